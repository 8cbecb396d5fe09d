//! What Helm adds to sprig, and the Go types of what it gives to templates.

mod data;
mod files;
mod serial;
mod toml;
mod toml_read;

use sha2::Digest as _;

use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Map, Text};
use crate::functions::{Calls, FunctionCall, TemplateFunction, any, function, template, text};
use crate::sprig::dicts;
use crate::value::Dyn;

pub(crate) use data::VERSION_SET;
pub use data::{Data, KubeVersion, RecordType, ValuesType};
pub(crate) use files::FILES;

/// Where `lookup` finds objects.
pub trait Lookup {
    /// The object of this name, or a list of all if the name is empty; `Null` if there is none.
    ///
    /// # Errors
    /// When it cannot be asked for, in words.
    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<kiln_value::Value, String>;
}

/// Finds nothing, as `helm template` does.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLookup;

impl Lookup for NoLookup {
    fn lookup(&self, _: &str, _: &str, _: &str, _: &str) -> Result<kiln_value::Value, String> {
        Ok(kiln_value::Value::Null)
    }
}

/// The tables of both versions. They replace functions of sprig.
pub(crate) const TABLES: &[&[TemplateFunction]] = &[TABLE, serial::TABLE];

/// What Helm 4 has besides.
pub(crate) const ONLY_HELM_4: &[TemplateFunction] = serial::ONLY_HELM_4;

const TABLE: &[TemplateFunction] = &[
    function("fail", &[Text], None, fail, "stops with a message"),
    function("getHostByName", &[Text], None, no_host, "nothing: templates do not use the network"),
    template("include", Calls::Template, "what a named template renders"),
    function(
        "lookup",
        &[Text, Text, Text, Text],
        None,
        lookup,
        "an object of the cluster, or a list of them",
    ),
    function(
        "mergeOverwrite",
        &[Map],
        Some(Map),
        dicts::overwrite_all,
        "writes the others over the first map",
    ),
    function(
        "mustMergeOverwrite",
        &[Map],
        Some(Map),
        dicts::overwrite_all,
        "writes the others over the first map",
    ),
    function("required", &[Text, Any], None, required, "the value, or a message if there is none"),
    function("sha512sum", &[Text], None, sha512sum, "the SHA-512 sum"),
    template("tpl", Calls::Text, "what a text renders"),
];

type HelmResult = std::result::Result<Dyn, Refusal>;

fn fail(_: &FunctionCall<'_>, a: &[Dyn]) -> HelmResult {
    Err(Refusal::Stopped(text(a, 0).to_owned()))
}

fn required(_: &FunctionCall<'_>, a: &[Dyn]) -> HelmResult {
    match any(a, 1) {
        Dyn::Missing | Dyn::Nil => Err(Refusal::Stopped(text(a, 0).to_owned())),
        Dyn::Text(given) if given.is_empty() => Err(Refusal::Stopped(text(a, 0).to_owned())),
        given => Ok(given.clone()),
    }
}

fn no_host(_: &FunctionCall<'_>, _: &[Dyn]) -> HelmResult {
    Ok("".into())
}

fn sha512sum(call: &FunctionCall<'_>, a: &[Dyn]) -> HelmResult {
    call.meter.make(128)?;
    let digest = sha2::Sha512::digest(text(a, 0));
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

fn lookup(call: &FunctionCall<'_>, a: &[Dyn]) -> HelmResult {
    let found = call.lookup.lookup(text(a, 0), text(a, 1), text(a, 2), text(a, 3))?;
    Ok(match found {
        kiln_value::Value::Null => Dyn::map([]),
        found => Dyn::from_value(&found, crate::Numbers::Integers),
    })
}
