//! Named formats of strings: `format.dns1123Label().validate(name)`.

use std::any::Any;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use kiln_text::{Time, names};

use super::url::Url;
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::library::{FunctionBody, Registry};
use crate::value::Opaque;
use crate::{Type, Val};

/// What is wrong with a text; nothing means that it has the format.
type FormatCheck = fn(&str) -> Vec<String>;

#[derive(Debug)]
struct NamedFormat {
    name: &'static str,
    check: FormatCheck,
}

impl Opaque for NamedFormat {
    fn type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<NamedFormat>().is_some_and(|other| other.name == self.name)
    }
    fn to_text(&self) -> Option<String> {
        Some(self.name.to_owned())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

const FORMATS: [(&str, FormatCheck); 13] = [
    ("dns1123Label", names::dns1123_label),
    ("dns1123Subdomain", names::dns1123_subdomain),
    ("dns1035Label", names::dns1035_label),
    ("qualifiedName", names::qualified_name),
    ("dns1123LabelPrefix", |text| names::dns1123_label(&names::as_prefix(text))),
    ("dns1123SubdomainPrefix", |text| names::dns1123_subdomain(&names::as_prefix(text))),
    ("dns1035LabelPrefix", |text| names::dns1035_label(&names::as_prefix(text))),
    ("labelValue", names::label_value),
    ("uri", |text| Url::parse(text).err().into_iter().collect()),
    ("uuid", |text| refuse(is_uuid(text), "does not match the UUID format")),
    ("byte", |text| refuse(BASE64_STANDARD.decode(text).is_ok(), "invalid base64")),
    ("date", |text| refuse(is_date(text), "invalid date")),
    ("datetime", |text| refuse(Time::parse_rfc3339(text).is_ok(), "invalid datetime")),
];

fn refuse(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    digits.len() == 32
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
        && matches!(lengths.as_slice(), [8, 4, 4, 4, 12] | [32])
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Time::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok()
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("kubernetes.NamedFormat"));
    let makers: [(&'static str, FunctionBody); FORMATS.len()] = [
        ("format.dns1123Label(): kubernetes.NamedFormat", |_, _| Ok(format(0))),
        ("format.dns1123Subdomain(): kubernetes.NamedFormat", |_, _| Ok(format(1))),
        ("format.dns1035Label(): kubernetes.NamedFormat", |_, _| Ok(format(2))),
        ("format.qualifiedName(): kubernetes.NamedFormat", |_, _| Ok(format(3))),
        ("format.dns1123LabelPrefix(): kubernetes.NamedFormat", |_, _| Ok(format(4))),
        ("format.dns1123SubdomainPrefix(): kubernetes.NamedFormat", |_, _| Ok(format(5))),
        ("format.dns1035LabelPrefix(): kubernetes.NamedFormat", |_, _| Ok(format(6))),
        ("format.labelValue(): kubernetes.NamedFormat", |_, _| Ok(format(7))),
        ("format.uri(): kubernetes.NamedFormat", |_, _| Ok(format(8))),
        ("format.uuid(): kubernetes.NamedFormat", |_, _| Ok(format(9))),
        ("format.byte(): kubernetes.NamedFormat", |_, _| Ok(format(10))),
        ("format.date(): kubernetes.NamedFormat", |_, _| Ok(format(11))),
        ("format.datetime(): kubernetes.NamedFormat", |_, _| Ok(format(12))),
    ];
    for (signature, run) in makers {
        registry.add(run, &[signature]);
    }
    registry.add(named, &["format.named(string): optional(kubernetes.NamedFormat)"]);
    registry.add(validate, &["(kubernetes.NamedFormat).validate(string): optional(list(string))"]);
}

fn format(at: usize) -> Val {
    let (name, check) = FORMATS[at];
    Arc::new(NamedFormat { name, check }).into()
}

fn named(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(name) = &args[0] else { return Err(no_such_overload()) };
    let found = FORMATS.iter().position(|(known, _)| known == name);
    found.map_or(Ok(Val::none()), |at| Val::some(format(at)))
}

/// None when the text is valid, else what is wrong with it.
fn validate(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [format, Val::String(text)] = args else { return Err(no_such_overload()) };
    let format = format.as_opaque::<NamedFormat>().ok_or_else(no_such_overload)?;
    context.meter.charge_text(text.len() as u64)?;
    let problems = (format.check)(text);
    if problems.is_empty() {
        return Ok(Val::none());
    }
    Val::some(Val::list(problems.into_iter().map(Val::from).collect())?)
}
