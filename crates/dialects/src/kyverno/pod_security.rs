//! `validate.podSecurity`, and what rules and exceptions leave out of it.

use kiln_fields::validating as table;
use kiln_podsecurity::{Control, Covers, Exclusion, Level, PodSecurityVersion, Standard};
use kiln_rules::PodSecurity;

use crate::document_reader::DocumentNode;

/// Compiles `podSecurity`.
pub(crate) fn compile(node: &DocumentNode<'_, '_>) -> Option<PodSecurity> {
    let fields = node.fields(&table::POD_SECURITY)?;
    let report = node.report;
    let level = match fields.text("level").as_deref() {
        None | Some("") => {
            node.error_with("podSecurity.level is required", "use baseline or restricted");
            None
        }
        Some(written) => written
            .parse::<Level>()
            .map_err(|wrong| {
                let message = format!("unknown level {written:?}: {wrong}");
                report.error(&node.path.join("level"), message, Some("use one of them".into()));
            })
            .ok(),
    };
    if level == Some(Level::Privileged) {
        // Kyverno checks such a rule as if it were restricted.
        report.warn(
            &node.path.join("level"),
            "the level privileged forbids nothing: the rule passes everything",
            Some("use baseline or restricted".into()),
        );
    }
    let written = fields.text("version").unwrap_or_default();
    let version = match written.as_str() {
        "" => Some(PodSecurityVersion::Latest),
        version => version
            .parse::<PodSecurityVersion>()
            .map_err(|wrong| {
                let message = format!("failed to parse pod security api version: {wrong}");
                let path = node.path.join("version");
                report.error(&path, message, Some("write latest, or for example v1.34".into()));
            })
            .ok(),
    };
    let exclude = fields.get("exclude").map(|node| exclusions(&node, level)).unwrap_or_default();
    Some(PodSecurity {
        standard: Standard::of_rules(level?, version?),
        version: written,
        exclude,
        path: node.path.clone(),
    })
}

/// Reads what is left out, of a rule of this level or of an exception.
pub(crate) fn exclusions(node: &DocumentNode<'_, '_>, level: Option<Level>) -> Vec<Exclusion> {
    node.elements().iter().filter_map(|element| exclusion(element, level)).collect()
}

fn exclusion(node: &DocumentNode<'_, '_>, level: Option<Level>) -> Option<Exclusion> {
    let fields = node.fields(&table::POD_SECURITY_EXCLUSION)?;
    let name = fields.required_text("controlName")?;
    let named = fields.get("controlName")?;
    let Ok(control) = name.parse::<Control>() else {
        let known: Vec<&str> = Control::ALL.iter().map(|control| control.name()).collect();
        let hint = match kiln_diagnostic::did_you_mean(&name, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("the controls are {}", known.join(", ")),
        };
        named.error_with(format!("there is no control {:?}", name.as_str()), hint);
        return None;
    };
    let texts = |key: &str| fields.get(key).map(|node| node.texts()).unwrap_or_default();
    let (images, values) = (texts("images"), texts("values"));
    let field = fields.text("restrictedField").filter(|field| !field.is_empty());
    // Kyverno's words.
    let invalid = |why: &str, hint: &str| {
        let path = &named.path;
        let message = format!("{path}: Invalid value: {:?}: {why}", name.as_str());
        named.error_with(message, hint.to_owned());
    };
    match control.covers() {
        Covers::Containers if images.is_empty() => invalid(
            "exclude.images must be specified for the container level control",
            "add images, with wildcards for those of the containers that are meant",
        ),
        Covers::Pod if !images.is_empty() => invalid(
            "exclude.images must not be specified for the pod level control",
            "remove images",
        ),
        _ => {}
    }
    if level == Some(Level::Baseline) && control.level() == Level::Restricted {
        invalid(
            "Invalid control name defined at the given level",
            "remove it: baseline does not have this control",
        );
    }
    // Kyverno leaves `validate` out.
    let path = |field: &str| node.path.join(field).to_string().replace(".validate.", ".");
    match (&field, values.is_empty()) {
        (Some(_), true) => node.error_with(
            format!("{}: Forbidden: values is required", path("values")),
            "add the values that are allowed",
        ),
        (None, false) => node.error_with(
            format!("{}: Forbidden: restrictedField is required", path("restrictedField")),
            "add the field that may have the values",
        ),
        _ => {}
    }
    Some(Exclusion { control, images, field, values })
}
