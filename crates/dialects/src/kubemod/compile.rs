//! A ModRule as it was written, compiled to a rule.

use std::sync::Arc;

use kiln_fields::kubemod as table;
use kiln_gotemplate::Template;
use kiln_object::Kinds;
use kiln_rules::{
    ApplyRules, Delivery, Dialect, Existing, FailurePolicies, Filter, Filters, KindPattern,
    LabelOwner, Lifecycle, MatchItem, Modify, ModifyAction, NamespaceReach, OnPolicyDelete,
    Operation, Operations, Origin, OwnershipLabels, PatchItem, Policy, PolicyId, Program,
    RequestFacts, Rule, RuleId, Scope, Trigger, WebhookFamily, Write,
};
use kiln_text::{Regex, wildcard};
use kiln_value::{Path, Str, Value, value};
use kiln_yaml::Document;

use super::items;
use crate::Compiled;
use crate::delivery::{background, report_words, unchanged_since};
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::generated_object_fields;

/// The namespace of rules that reach beyond their own.
const CLUSTER_WIDE: &str = "kubemod-system";
const API_VERSION: &str = "api.kubemod.io/v1beta1";

/// Compiles a ModRule. KubeMod drops a rule that does not load without a word; here every reason is said.
pub(crate) fn compile(document: &Document, compiled: &mut Compiled) {
    let report = Report::new(document);
    let policy = policy(&report);
    if !report.has_errors() {
        compiled.policies.extend(policy.map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

fn policy(report: &Report<'_>) -> Option<Policy> {
    let root = report.root();
    let fields = root.fields(&table::MOD_RULE)?;
    let api_version = fields.required_text("apiVersion")?;
    if api_version != API_VERSION {
        let path = Path::from_iter(["apiVersion"]);
        let message = format!("{api_version} ModRule is not known");
        report.error(&path, message, Some(format!("use {API_VERSION}")));
    }
    let metadata = fields.get("metadata").and_then(|node| node.any_fields());
    let Some(metadata) = metadata else {
        fields.error("the field metadata is missing", Some("give the rule a name".into()));
        return None;
    };
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
    // As a client would, and as it is for a Policy.
    let namespace = namespace.unwrap_or_else(|| "default".into());
    let Some(spec) = fields.get("spec") else {
        fields.error("the field spec is missing", None);
        return None;
    };
    let spec = spec.fields(&table::SPEC)?;
    let id = PolicyId {
        dialect: Dialect::ModRule,
        namespace: Some(namespace.clone()),
        name: name.clone(),
    };
    let (scope, reach) = reach(&spec, namespace);
    let operations = operations(&spec);
    let items = matches(&spec);
    let action = action(&spec, operations)?;
    let program = Modify {
        reach,
        tier: tier(&spec),
        asks_for_references: mentions_references(report.document().value()),
        action,
        items,
    };
    // Of a kind that is not built in everything may be right.
    let patched = match program.named_kinds() {
        Some(_) => generated_object_fields::filtered(
            &Filters::Any(vec![Filter { kinds: kinds(&program), ..Filter::default() }]),
            &Kinds::builtin(),
        ),
        None => None,
    };
    if let Some(patched) = patched.filter(|kinds| !kinds.is_empty()) {
        for item in spec.get("patch").map(|node| node.elements()).unwrap_or_default() {
            items::against_schemas(&item, &patched);
        }
    }
    let filter = Filter { kinds: kinds(&program), operations, ..Filter::default() };
    let origin = Origin::new(report.document().clone(), Path::root());
    let rule = Rule {
        id: RuleId { policy: id.clone(), rule: name },
        // Rules act on everything at admission, also on what rules made.
        trigger: Trigger::of(Filters::Any(vec![filter]), Filters::NONE),
        scope,
        context: Vec::new(),
        guard: None,
        script: None,
        program: Program::Modify(Box::new(program)),
        lifecycle: Lifecycle {
            synchronize: false,
            existing: false,
            on_policy_delete: OnPolicyDelete::Keep,
            on_conflict: Existing::Keep,
            write: Write::Replace,
            labels: OwnershipLabels {
                owner: LabelOwner::Kyverno,
                rule: true,
                trigger_name: false,
                whole_source: false,
            },
            clears_adopted: false,
            existing_switch: "",
        },
        report_properties: Vec::new(),
        request_facts: RequestFacts::default(),
        origin: origin.clone(),
    };
    Some(Policy {
        id,
        api_version: api_version.to_string(),
        kind: "ModRule".to_owned(),
        rules: vec![Arc::new(rule)],
        apply: ApplyRules::All,
        delivery: delivery(report.document().value()),
        background: background(report.document().value()),
        report: report_words(report.document().value()),
        origin,
    })
}

/// How requests reach a ModRule. KubeMod: its webhook never blocks, and namespaces can be kept from all ModRules by a label.
fn delivery(document: &Value) -> Delivery {
    let unless_ignored = value!({"matchExpressions": [
        {"key": "admission.kubemod.io/ignore", "operator": "NotIn", "values": ["true"]},
    ]});
    Delivery {
        failure: FailurePolicies::IGNORE,
        namespace_selector: Some(unless_ignored),
        unchanged_since: unchanged_since(document),
        ..Delivery::usual(WebhookFamily::ModRules)
    }
}

fn reach(spec: &DocumentFields<'_, '_>, namespace: Str) -> (Scope, NamespaceReach) {
    let node = spec.get("targetNamespaceRegex");
    let names = node.as_ref().and_then(|node| {
        let text = node.text()?;
        match Regex::new(&text) {
            Ok(_) if text.is_empty() => None,
            Ok(regex) => Some(regex),
            Err(error) => {
                node.error(error.to_string());
                None
            }
        }
    });
    if namespace == CLUSTER_WIDE {
        return (Scope::Cluster, NamespaceReach::Beyond { own: namespace, names });
    }
    if let Some(node) = node {
        node.report.warn(
            &node.path,
            format!("targetNamespaceRegex means nothing in namespace {namespace:?}"),
            Some(format!("put the rule into namespace {CLUSTER_WIDE} to reach others")),
        );
    }
    (Scope::Namespace(namespace), NamespaceReach::Scope)
}

fn tier(spec: &DocumentFields<'_, '_>) -> i16 {
    let Some(node) = spec.get("executionTier") else { return 0 };
    let tier = node.value.as_i64().and_then(|tier| i16::try_from(tier).ok());
    match tier.filter(|tier| !matches!(*tier, i16::MIN | i16::MAX)) {
        Some(tier) => tier,
        None => {
            node.error_with(
                "executionTier must be an integer",
                "use a number from -32767 to 32766",
            );
            0
        }
    }
}

fn operations(spec: &DocumentFields<'_, '_>) -> Operations {
    let written = spec.get("admissionOperations").map(|node| node.elements()).unwrap_or_default();
    let read = written.iter().filter_map(|node| {
        let word = node.text()?;
        match word.parse::<Operation>() {
            Ok(operation) if operation != Operation::Connect => Some(operation),
            _ => {
                node.error_with(
                    format!("{word:?} is not an operation of a ModRule"),
                    "use CREATE, UPDATE or DELETE",
                );
                None
            }
        }
    });
    let operations: Operations = read.collect();
    if operations.is_empty() {
        return [Operation::Create, Operation::Update].into_iter().collect();
    }
    operations
}

fn matches(spec: &DocumentFields<'_, '_>) -> Vec<MatchItem> {
    let node = match (spec.get("match"), spec.get("matches")) {
        (Some(node), None) => node,
        (None, Some(node)) => {
            node.report.warn(
                &node.path,
                "spec.matches is read as spec.match",
                Some("write match: KubeMod itself refuses matches".into()),
            );
            node
        }
        (Some(node), Some(other)) => {
            other.error_with("match and matches are both there", "write match alone");
            node
        }
        (None, None) => {
            spec.error(
                "the field match of spec is missing",
                Some("say which objects are meant, such as select: $.kind".into()),
            );
            return Vec::new();
        }
    };
    let elements = node.elements();
    if elements.is_empty() {
        node.error_with(
            "match has no item, so the rule would act on every object",
            "say which objects are meant, such as select: $.kind",
        );
    }
    elements.iter().filter_map(items::match_item).collect()
}

fn action(spec: &DocumentFields<'_, '_>, operations: Operations) -> Option<ModifyAction> {
    let patch = spec.get("patch");
    let message = spec.get("rejectMessage");
    match spec.required_text("type")?.as_str() {
        "Patch" => {
            if let Some(message) = message {
                message.error_with("rejectMessage belongs to Reject rules", "remove it");
            }
            let items = patch.map(|node| node.elements()).unwrap_or_default();
            if items.is_empty() {
                spec.error(
                    "a Patch rule needs operations",
                    Some("add patch: with op and path".into()),
                );
            }
            if operations.contains(Operation::Delete) {
                let node = spec.get("admissionOperations")?;
                let message = "there is nothing to patch in an object that goes away";
                let hint = "remove DELETE, or make it a Reject rule";
                match operations.iter().count() {
                    1 => node.error_with(message, hint),
                    _ => node.report.warn(&node.path, message, Some(hint.into())),
                }
            }
            let items: Vec<PatchItem> = items.iter().filter_map(items::patch_item).collect();
            Some(ModifyAction::Patch(items))
        }
        "Reject" => {
            if let Some(patch) = patch {
                patch.error_with("patch belongs to Patch rules", "remove it");
            }
            let message: Option<Template> =
                message.and_then(|node| items::template(&node, node.text()?.as_str()));
            Some(ModifyAction::Reject(message))
        }
        other => {
            let hint = kiln_diagnostic::did_you_mean(other, ["Patch", "Reject"]);
            spec.report().error(
                &spec.path().join("type"),
                format!("there is no type {other:?}"),
                Some(hint.map_or("use Patch or Reject".into(), |meant| {
                    format!("did you mean {meant:?}?")
                })),
            );
            None
        }
    }
}

/// The kinds that the items leave: those that one of them asks for by name, or all.
fn kinds(program: &Modify) -> Vec<KindPattern> {
    let every = || KindPattern::parse("*").into_iter().collect();
    let Some(named) = program.named_kinds() else { return every() };
    let plain = |kind: &Str| {
        !wildcard::contains_wildcard(kind)
            && !kind.is_empty()
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if !named.iter().all(plain) {
        return every();
    }
    named.iter().filter_map(|kind| KindPattern::parse(kind)).collect()
}

/// Whether a rule looks at objects that belong to the object.
fn mentions_references(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("syntheticRefs"),
        Value::List(list) => list.iter().any(mentions_references),
        Value::Map(map) => map.values().any(mentions_references),
        _ => false,
    }
}

/// A node's text also where people wrote a number or a truth without quotes.
pub(super) fn loose_text(node: &DocumentNode<'_, '_>) -> Option<Str> {
    match node.value {
        Value::Bool(_) | Value::Number(_) => {
            let written = node.report.document().written(&node.path).map(str::trim);
            let text = match (written, node.value) {
                (_, Value::Bool(truth)) => truth.to_string(),
                (Some(written), _) => written.to_owned(),
                (None, number) => kiln_value::json::to_string(number),
            };
            Some(Str::from(text))
        }
        _ => node.text(),
    }
}
