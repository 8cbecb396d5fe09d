//! Paths of the API server, read into what they ask for.
//!
//! A path is text that a policy wrote and variables filled, so it is taken apart once, here, and what
//! comes out is typed: which kind, which namespace, which name. Nothing further down sees the text.

use kiln_object::{Gvk, Kind, Kinds, Selector};
use kiln_value::{Str, Value};

use crate::input::view::View;
use crate::output::failure::{Failure, FailureKind};

/// What a path asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiPath {
    pub(crate) kind: Gvk,
    pub(crate) namespace: Option<Str>,
    pub(crate) asks: ApiTarget,
    /// Something about the path that was read leniently.
    pub(crate) remark: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiTarget {
    One(Str),
    Many { selector: Selector, fields: Vec<FieldTest>, limit: Option<usize> },
}

/// A part of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldTest {
    path: Vec<Str>,
    value: Str,
    equal: bool,
}

impl FieldTest {
    pub(crate) fn holds(&self, object: &Value) -> bool {
        let found = object.get_path(self.path.iter().map(Str::as_str));
        // The server compares text, and what is missing is empty.
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => Str::default(),
            Some(other) => kiln_value::json::to_string(other).into(),
        };
        (text == self.value) == self.equal
    }
}

impl ApiPath {
    pub(crate) fn parse(path: &str, kinds: &Kinds, view: &dyn View) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(FailureKind::Value, format!("{path:?} {why}"));
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let mut parts = Vec::new();
        for part in place.split('/').filter(|part| !part.is_empty()) {
            let part = decoded(part).filter(|part| !part.contains('/') && part != "..");
            parts.push(part.ok_or_else(|| wrong("has a part that is not a name".into()))?);
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts[..] {
            ["api", version, ref rest @ ..] if !rest.is_empty() => ("", version, rest),
            ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (group, version, rest),
            _ => {
                return Err(wrong("reads no objects".into()).hint(
                    "write /api/v1/namespaces/NAMESPACE/RESOURCE or /apis/GROUP/VERSION/RESOURCE",
                ));
            }
        };
        let (namespace, plural, name) = match *rest {
            ["namespaces"] => (None, "namespaces", None),
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => {
                (None, "namespaces", Some(name))
            }
            ["namespaces", namespace, plural] => (Some(namespace), plural, None),
            ["namespaces", namespace, plural, name]
            | ["namespaces", namespace, plural, name, "status"] => {
                (Some(namespace), plural, Some(name))
            }
            [plural] => (None, plural, None),
            [plural, name] | [plural, name, "status"] => (None, plural, Some(name)),
            _ => return Err(wrong("asks for a subresource, which is not read here".into())),
        };
        let kind = kinds
            .by_resource(group, version, plural)
            .map(Kind::gvk)
            .or_else(|| view.kind_of(group, version, plural))
            .ok_or_else(|| {
                wrong(format!("asks for {plural:?}, which is not a known resource of this API"))
                    .hint("give the CustomResourceDefinition along with the objects")
            })?;
        let (asks, remark) = match name {
            Some(name) => (ApiTarget::One(name.into()), None),
            None => {
                let (parameters, remark) = Parameters::parse(query).map_err(&wrong)?;
                let Parameters { selector, fields, limit } = parameters;
                (ApiTarget::Many { selector, fields, limit }, remark)
            }
        };
        Ok(ApiPath { kind, namespace: namespace.map(Str::from), asks, remark })
    }
}

#[derive(Default)]
struct Parameters {
    selector: Selector,
    fields: Vec<FieldTest>,
    limit: Option<usize>,
}

impl Parameters {
    fn parse(query: &str) -> Result<(Self, Option<String>), String> {
        let mut parameters = Parameters::default();
        // A second question mark is a slip for `&`: no value here can hold one.
        let remark = query.split_once('?').map(|(_, after)| {
            format!(
                "parameters after the first are joined with `&`: write `&{after}`, not `?{after}`"
            )
        });
        for pair in query.split(['&', '?']).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(&value.replace('+', " "))
                .ok_or_else(|| format!("has a parameter {key:?} that is not text"))?;
            match key {
                "labelSelector" => {
                    parameters.selector = Selector::parse(&value)
                        .map_err(|error| format!("has a bad labelSelector: {error}"))?;
                }
                "fieldSelector" => parameters.fields = fields(&value)?,
                "limit" => {
                    let limit: usize =
                        value.parse().map_err(|_| format!("has a bad limit: {value:?}"))?;
                    // The server takes 0 for no limit.
                    parameters.limit = Some(limit).filter(|limit| *limit > 0);
                }
                // Everything else says how to read, not what.
                _ => {}
            }
        }
        Ok((parameters, remark))
    }
}

fn fields(selector: &str) -> Result<Vec<FieldTest>, String> {
    selector
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (path, value, equal) = part
                .split_once("!=")
                .map(|(path, value)| (path, value, false))
                .or_else(|| part.split_once("==").map(|(path, value)| (path, value, true)))
                .or_else(|| part.split_once('=').map(|(path, value)| (path, value, true)))
                .ok_or_else(|| format!("has a bad fieldSelector: {part:?}"))?;
            Ok(FieldTest {
                path: path.split('.').map(Str::from).collect(),
                value: value.into(),
                equal,
            })
        })
        .collect()
}

/// Text with `%41` and the like replaced; `None` when that is not text.
fn decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok())?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
