//! PolicyException: objects that rules leave alone.

use std::sync::Arc;

use kiln_fields::kyverno as table;
use kiln_rules::{Dialect, ExceptedRules, Exception, Exempts, Origin, ReportResult};
use kiln_value::{Path, Str};
use kiln_yaml::Document;

use crate::Compiled;
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::kyverno::filters;
use crate::kyverno::parse::conditions;
use crate::kyverno::pod_security;

/// Compiles a PolicyException. One with an error is left out.
pub(crate) fn compile(document: &Document, compiled: &mut Compiled) {
    let report = Report::new(document);
    let exception = exception(&report);
    if !report.has_errors() {
        compiled.exceptions.extend(exception.map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

fn exception(report: &Report<'_>) -> Option<Exception> {
    let root = report.root().fields(&table::EXCEPTION)?;
    let metadata = required(&root, "metadata")?.any_fields()?;
    let name = metadata.required_text("name")?;
    let name = match metadata.text("namespace").filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => Str::from(format!("{namespace}/{name}")),
        None => name,
    };
    let spec = required(&root, "spec")?.fields(&table::EXCEPTION_SPEC)?;
    let include = filters::block(required(&spec, "match")?, false)?;
    if include.filters.filters().is_empty() {
        // Kyverno stores such an exception, and it applies to nothing.
        report.warn(
            &include.node.path,
            "match is empty: the exception applies to nothing",
            Some("add match.any with a list of resources".into()),
        );
    }
    let background = spec.flag("background").unwrap_or(true);
    for (at, filter) in include.filters.filters().iter().enumerate() {
        if background && !filter.user.is_empty() {
            report.error(
                &include.node.path.join(include.filters.word()).join(at),
                "an exception for background processing cannot ask who made the request",
                Some("add `background: false` below spec".into()),
            );
        }
    }
    let rules: Vec<_> =
        required(&spec, "exceptions")?.elements().iter().filter_map(excepted).collect();
    if rules.is_empty() {
        spec.error(
            "the exception names no rules",
            Some("add exceptions with policyName and ruleNames".into()),
        );
    }
    Some(Exception {
        name,
        rules,
        include: Some(include.filters),
        guard: conditions(spec.get("conditions"), false),
        conditions: Vec::new(),
        exempts: match spec.get("podSecurity") {
            Some(node) => Exempts::PodSecurity(pod_security::exclusions(&node, None)),
            None => Exempts::All(ReportResult::Skip),
        },
        priority: 0,
        expires: None,
        origin: Origin::new(report.document().clone(), Path::root()),
    })
}

fn excepted(node: &DocumentNode<'_, '_>) -> Option<ExceptedRules> {
    let fields = node.fields(&table::EXCEPTED_RULES)?;
    let policy = fields.required_text("policyName")?;
    let rules = required(&fields, "ruleNames")?.texts();
    Some(ExceptedRules { dialect: Dialect::Kyverno, policy, rules })
}

fn required<'d, 'r>(fields: &DocumentFields<'d, 'r>, key: &str) -> Option<DocumentNode<'d, 'r>> {
    let found = fields.get(key);
    if found.is_none() {
        let message = match fields.path().is_root() {
            true => format!("the field {key} is missing"),
            false => format!("the field {key} of {} is missing", fields.path()),
        };
        fields.error(message, Some(format!("add {key:?} here")));
    }
    found
}
