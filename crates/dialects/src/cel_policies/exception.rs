//! PolicyException of `policies.kyverno.io`: objects that policies in CEL leave alone, or allow more.

use std::sync::Arc;

use kiln_cel::{Env, PolicyScope};
use kiln_fields::policies as table;
use kiln_rules::{ExceptedRules, Exception, Exempts, Origin, ReportResult};
use kiln_text::time::Time;
use kiln_value::{Path, Str};
use kiln_yaml::Document;

use super::expressions::{self, ExpectedType};
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::{Compiled, PolicyKind};

/// The label that says which of several exceptions decides.
const PRIORITY: &str = "polex.kyverno.io/priority";

/// Compiles a PolicyException. One with an error is left out.
pub(crate) fn compile(document: &Document, compiled: &mut Compiled) {
    let report = Report::new(document);
    let exceptions = exceptions(&report).unwrap_or_default();
    if !report.has_errors() {
        compiled.exceptions.extend(exceptions.into_iter().map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

/// One exception for policies of the cluster, and one for those of a namespace, since functions differ.
fn exceptions(report: &Report<'_>) -> Option<Vec<Exception>> {
    let root = report.root().fields(&table::EXCEPTION)?;
    let metadata = root.get("metadata")?.any_fields()?;
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
    let Some(spec) = root.get("spec") else {
        root.error("the exception has no spec", Some("add spec.policyRefs".into()));
        return None;
    };
    let spec = spec.fields(&table::EXCEPTION_SPEC)?;
    let own = namespace.clone().unwrap_or_else(|| "default".into());
    let refs = references(&spec, &own);
    let name = match &namespace {
        Some(namespace) => Str::from(format!("{namespace}/{name}")),
        None => name,
    };
    let texts = |key: &str| spec.get(key).map(|node| node.texts()).unwrap_or_default();
    let (images, values) = (texts("images"), texts("allowedValues"));
    let exempts = match (images.is_empty() && values.is_empty(), reported(&spec)) {
        (true, reported) => Exempts::All(reported),
        (false, _) => Exempts::Some { images, values },
    };
    let labels = metadata.get("labels").and_then(|node| node.any_fields());
    let priority = labels.and_then(|labels| labels.text(PRIORITY));
    let made = |namespaced: bool| -> Option<Exception> {
        let rules: Vec<ExceptedRules> = refs
            .iter()
            .filter(|(_, of_namespace)| *of_namespace == namespaced)
            .map(|(rules, _)| rules.clone())
            .collect();
        let scope = match namespaced {
            true => PolicyScope::Namespace(own.clone()),
            false => PolicyScope::Cluster,
        };
        (!rules.is_empty()).then(|| Exception {
            name: name.clone(),
            rules,
            include: None,
            guard: None,
            conditions: expressions::named(
                &Env::policies(scope),
                spec.get("matchConditions"),
                ExpectedType::Bool,
            ),
            exempts: exempts.clone(),
            priority: priority.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0),
            expires: expires(&spec),
            origin: Origin::new(report.document().clone(), Path::root()),
        })
    };
    Some([made(false), made(true)].into_iter().flatten().collect())
}

/// The policies that are meant and that Kiln runs, and whether they live in a namespace.
fn references(spec: &DocumentFields<'_, '_>, own: &str) -> Vec<(ExceptedRules, bool)> {
    let list = spec.get("policyRefs").map(|node| node.elements()).unwrap_or_default();
    if list.is_empty() {
        spec.error("must specify at least one policy ref", Some("add policyRefs".into()));
    }
    let read = |node: &DocumentNode<'_, '_>| -> Option<(ExceptedRules, bool)> {
        let fields = node.fields(&table::POLICY_REF)?;
        let (name, kind) = (fields.text("name"), fields.text("kind"));
        if name.as_ref().is_none_or(Str::is_empty) {
            node.error_with("must specify policy name", "add name");
        }
        if kind.as_ref().is_none_or(Str::is_empty) {
            node.error_with("must specify policy kind", "add kind");
        }
        let (name, kind) = (name?, kind?);
        // Exceptions of policies that Kiln does not run have no effect.
        let known = PolicyKind::find("policies.kyverno.io", &kind)?;
        let (dialect, namespaced) = (known.dialect?, known.namespaced);
        let policy = match namespaced && !name.contains('/') {
            true => Str::from(format!("{own}/{name}")),
            false => name,
        };
        Some((ExceptedRules { dialect, policy, rules: vec!["*".into()] }, namespaced))
    };
    list.iter().filter_map(read).collect()
}

fn reported(spec: &DocumentFields<'_, '_>) -> ReportResult {
    match spec.text("reportResult").as_deref() {
        None | Some("" | "skip") => ReportResult::Skip,
        Some("pass") => ReportResult::Pass,
        Some(other) => {
            let message = format!("unknown value {other:?} of reportResult");
            spec.error(message, Some("use skip or pass".into()));
            ReportResult::Skip
        }
    }
}

fn expires(spec: &DocumentFields<'_, '_>) -> Option<i64> {
    let text = spec.text("expiresAt")?;
    match Time::parse_rfc3339(&text) {
        Ok(time) => Some(time.unix()),
        Err(error) => {
            spec.error(format!("expiresAt is not a time: {error}"), None);
            None
        }
    }
}
