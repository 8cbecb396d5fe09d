//! Paths with slashes, and addresses.

use kiln_text::path;

use super::urls;
use crate::error::Refusal;
use crate::functions::ParameterType::{Map, Text};
use crate::functions::{FunctionCall, TemplateFunction, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("base", &[Text], None, base, "the last part of a path"),
    function("clean", &[Text], None, clean, "the shortest path to the same place"),
    function("dir", &[Text], None, dir, "a path without its last part"),
    function("ext", &[Text], None, ext, "the ending of a file name"),
    function("isAbs", &[Text], None, is_abs, "whether a path begins at the root"),
    function("osBase", &[Text], None, base, "the last part of a path"),
    function("osClean", &[Text], None, clean, "the shortest path to the same place"),
    function("osDir", &[Text], None, dir, "a path without its last part"),
    function("osExt", &[Text], None, ext, "the ending of a file name"),
    function("osIsAbs", &[Text], None, is_abs, "whether a path begins at the root"),
    function("urlJoin", &[Map], None, urls::join, "an address from its parts"),
    function("urlParse", &[Text], None, urls::parse, "the parts of an address"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn base(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let path = text(a, 0);
    let trimmed = path.trim_end_matches('/');
    Ok(match (path.is_empty(), trimmed.rsplit('/').next()) {
        (true, _) => ".".into(),
        (_, Some("") | None) => "/".into(),
        (_, Some(last)) => last.into(),
    })
}

fn dir(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let path = text(a, 0);
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    Ok(path::clean(&path[..end]).into())
}

fn ext(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let name = text(a, 0).rsplit('/').next().unwrap_or_default();
    Ok(name.rfind('.').map_or("", |dot| &name[dot..]).into())
}

fn is_abs(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(text(a, 0).starts_with('/').into())
}

fn clean(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(path::clean(text(a, 0)).into())
}
