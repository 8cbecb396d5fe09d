//! Policies as they were written: lenient types, every mistake reported with its place.

use std::sync::Arc;

use kiln_fields::kyverno as table;
use kiln_rules::{ApplyRules, ContextEntry, QueryText, RequestFacts, Scope, Script};
use kiln_value::{Path, Str, Value};
use kiln_variables::{Conditions, Template};

use crate::cel_policies::request_conditions;
use crate::document_reader::{DocumentFields, DocumentNode, Report};
use crate::kyverno::delivery;
use crate::kyverno::entries::{self, string_template, template};
use crate::kyverno::filters::{self, Block};
use crate::kyverno::validate::{self, FailureDoc};

/// A ClusterPolicy or Policy.
pub(crate) struct PolicyDoc<'d, 'r> {
    pub(crate) api_version: Str,
    pub(crate) kind: Str,
    pub(crate) name: Str,
    pub(crate) scope: Scope,
    pub(crate) apply: ApplyRules,
    pub(crate) background: bool,
    pub(crate) admission: Option<DocumentNode<'d, 'r>>,
    /// What must hold of requests.
    pub(crate) match_conditions: Option<Arc<Script>>,
    /// What they read of requests.
    pub(crate) condition_facts: RequestFacts,
    pub(crate) generate_existing: Option<bool>,
    pub(crate) mutate_existing: Option<bool>,
    pub(crate) server_side_apply: bool,
    /// What becomes of objects that fail.
    pub(crate) failure: FailureDoc,
    pub(crate) rules: Vec<RuleDoc<'d, 'r>>,
}

/// One rule of a policy.
pub(crate) struct RuleDoc<'d, 'r> {
    pub(crate) name: Str,
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) fields: DocumentFields<'d, 'r>,
    pub(crate) operation: OperationDoc<'d, 'r>,
}

/// What a rule does, as it was written.
pub(crate) enum OperationDoc<'d, 'r> {
    Generate(DocumentNode<'d, 'r>),
    Mutate(DocumentNode<'d, 'r>),
    Validate(DocumentNode<'d, 'r>),
    /// Something that is left to others.
    NotRun {
        word: &'static str,
    },
}

/// What comes before the operation of a rule.
pub(crate) struct HeadDoc<'d, 'r> {
    pub(crate) include: Block<'d, 'r>,
    pub(crate) exclude: Option<Block<'d, 'r>>,
    pub(crate) context: Vec<ContextEntry>,
    pub(crate) guard: Option<Conditions>,
    pub(crate) skip_background_requests: bool,
}

/// A `generate` block.
pub(crate) struct GenerateDoc<'d, 'r> {
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) existing: Option<bool>,
    pub(crate) synchronize: bool,
    pub(crate) orphan: Option<bool>,
    pub(crate) pattern: PatternDoc<'d, 'r>,
    pub(crate) foreach: Vec<ForEachDoc<'d, 'r>>,
    pub(crate) has_foreach: bool,
}

/// An element of `foreach`.
pub(crate) struct ForEachDoc<'d, 'r> {
    pub(crate) path: Path,
    pub(crate) list: QueryText,
    pub(crate) context: Vec<ContextEntry>,
    pub(crate) guard: Option<Conditions>,
    pub(crate) pattern: PatternDoc<'d, 'r>,
}

/// What a `generate` block and an element of `foreach` have in common.
pub(crate) struct PatternDoc<'d, 'r> {
    pub(crate) fields: DocumentFields<'d, 'r>,
    pub(crate) target: TargetDoc<'d, 'r>,
    pub(crate) data: Option<DocumentNode<'d, 'r>>,
    pub(crate) clone: Option<CloneDoc<'d, 'r>>,
    pub(crate) clone_select: Option<CloneSelectDoc<'d, 'r>>,
    /// `cloneList.list`, or `cloneList` as a list.
    pub(crate) clone_pairs: Option<Vec<ClonePairDoc<'d, 'r>>>,
    pub(crate) data_list: Option<Vec<(TargetDoc<'d, 'r>, Option<DocumentNode<'d, 'r>>)>>,
}

/// What an object is called, as it was written.
#[derive(Clone)]
pub(crate) struct TargetDoc<'d, 'r> {
    pub(crate) fields: DocumentFields<'d, 'r>,
    pub(crate) api_version: Option<DocumentNode<'d, 'r>>,
    pub(crate) kind: Option<DocumentNode<'d, 'r>>,
    pub(crate) name: Option<DocumentNode<'d, 'r>>,
    pub(crate) namespace: Option<DocumentNode<'d, 'r>>,
}

/// `clone`.
pub(crate) struct CloneDoc<'d, 'r> {
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) name: Option<DocumentNode<'d, 'r>>,
    pub(crate) namespace: Option<DocumentNode<'d, 'r>>,
}

/// `cloneList` with kinds.
pub(crate) struct CloneSelectDoc<'d, 'r> {
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) kinds: Vec<DocumentNode<'d, 'r>>,
    pub(crate) namespace: Option<DocumentNode<'d, 'r>>,
    pub(crate) selector: Option<DocumentNode<'d, 'r>>,
}

/// A source and its target.
pub(crate) struct ClonePairDoc<'d, 'r> {
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) source: TargetDoc<'d, 'r>,
    pub(crate) target: TargetDoc<'d, 'r>,
}

/// Reads a policy; `None` when not even its name can be read.
pub(crate) fn policy<'d, 'r>(report: &'r Report<'d>) -> Option<PolicyDoc<'d, 'r>> {
    let root = report.root().fields(&table::POLICY)?;
    let (api_version, kind) = (root.required_text("apiVersion")?, root.required_text("kind")?);
    let metadata = match root.get("metadata") {
        Some(metadata) => metadata.any_fields()?,
        None => {
            root.error("the policy has no metadata", Some("add metadata.name".into()));
            return None;
        }
    };
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
    let scope = match (kind.as_str(), namespace) {
        ("ClusterPolicy", Some(_)) => {
            report.error(
                &metadata.path().join("namespace"),
                "a ClusterPolicy has no namespace",
                Some("remove it, or write `kind: Policy`".into()),
            );
            Scope::Cluster
        }
        ("ClusterPolicy", None) => Scope::Cluster,
        // As kubectl does without being told otherwise.
        (_, namespace) => Scope::Namespace(namespace.unwrap_or_else(|| "default".into())),
    };
    let Some(spec) = root.get("spec") else {
        root.error("the policy has no spec", Some("add spec.rules".into()));
        return None;
    };
    let spec = spec.fields(&table::SPEC)?;
    if let Some(old) = spec.get("generateExistingOnPolicyUpdate") {
        report.error_at_key(
            &old.path,
            "remove the deprecated field and use spec.generate[*].generateExisting instead",
            Some("write `generateExisting: true` below `generate`".into()),
        );
    }
    if let Some(old) = spec.get("generateExisting") {
        report.warn(
            &old.path,
            "spec.generateExisting is deprecated",
            Some("write generateExisting below `generate` of each rule".into()),
        );
    }
    if let Some(old) = spec.get("mutateExistingOnPolicyUpdate") {
        report.warn(
            &old.path,
            "spec.mutateExistingOnPolicyUpdate is deprecated",
            Some("write mutateExistingOnPolicyUpdate below `mutate` of each rule".into()),
        );
    }
    let apply = match spec.text("applyRules").as_deref() {
        None | Some("All") => ApplyRules::All,
        Some("One") => ApplyRules::One,
        Some(other) => {
            let message = format!("unknown value {other:?} of applyRules");
            report.error(&spec.path().join("applyRules"), message, Some("use All or One".into()));
            ApplyRules::All
        }
    };
    for (old, new) in
        [("failurePolicy", "failurePolicy"), ("webhookTimeoutSeconds", "timeoutSeconds")]
    {
        let twice =
            spec.get("webhookConfiguration").is_some_and(|node| node.value.get(new).is_some());
        if let Some(old_node) = spec.get(old).filter(|_| twice) {
            old_node.error_with(
                format!("spec.{old} and spec.webhookConfiguration.{new} are both set"),
                format!("remove spec.{old}"),
            );
        }
    }
    let rules = spec.get("rules").map(|node| node.elements()).unwrap_or_default();
    if rules.is_empty() {
        spec.error("the policy has no rules", Some("add spec.rules".into()));
    }
    let match_conditions = spec
        .get("webhookConfiguration")
        .and_then(|node| node.any_fields())
        .and_then(|fields| fields.get("matchConditions"));
    Some(PolicyDoc {
        background: spec.flag("background").unwrap_or(true),
        admission: spec.get("admission"),
        condition_facts: match_conditions
            .as_ref()
            .map(|node| delivery::facts_of_conditions(node.value))
            .unwrap_or_default(),
        match_conditions: match_conditions.and_then(|node| request_conditions(&node)),
        generate_existing: spec.flag("generateExisting"),
        mutate_existing: spec.flag("mutateExistingOnPolicyUpdate"),
        server_side_apply: spec.flag("useServerSideApply").unwrap_or(false),
        failure: validate::failure(&spec, &metadata, &kind),
        rules: rules.into_iter().filter_map(rule).collect(),
        api_version,
        kind,
        name,
        scope,
        apply,
    })
}

/// Reads a rule; `None` when it does nothing, or too much.
pub(crate) fn rule<'d, 'r>(node: DocumentNode<'d, 'r>) -> Option<RuleDoc<'d, 'r>> {
    let fields = node.fields(&table::RULE)?;
    let name = fields.required_text("name")?;
    if name.is_empty() || name.chars().count() > 63 {
        fields.get("name")?.error_with(
            format!("the name of the rule has {} characters", name.chars().count()),
            "a rule has a name of at most 63 characters",
        );
    }
    let words = ["generate", "mutate", "validate", "verifyImages"];
    let there: Vec<_> =
        words.into_iter().filter_map(|word| Some((word, fields.get(word)?))).collect();
    let operation = match &there[..] {
        [("generate", block)] => OperationDoc::Generate(block.clone()),
        [("mutate", block)] => OperationDoc::Mutate(block.clone()),
        [("validate", block)] => OperationDoc::Validate(block.clone()),
        [(word, _)] => OperationDoc::NotRun { word },
        [] => {
            node.error_with(
                format!("No operation defined in the rule '{name}'. (supported operations: generate, mutate, validate, verifyImages)"),
                "add one of them",
            );
            return None;
        }
        several => {
            let words: Vec<_> = several.iter().map(|(word, _)| *word).collect();
            node.error_with(
                format!("Multiple operations defined in the rule '{name}', only one operation (generate, mutate, validate, verifyImages) is allowed per rule"),
                format!("write one rule each for {}", words.join(" and ")),
            );
            return None;
        }
    };
    Some(RuleDoc { name, node, fields, operation })
}

/// Reads what comes before the operation of a rule.
pub(crate) fn head<'d, 'r>(
    rule: &RuleDoc<'d, 'r>,
    scope: &Scope,
    old_form_allowed: bool,
) -> Option<HeadDoc<'d, 'r>> {
    let fields = &rule.fields;
    let Some(include) = fields.get("match") else {
        rule.node.error_with(format!("rule {:?} has no match", rule.name), "add match.any");
        return None;
    };
    Some(HeadDoc {
        include: filters::block(include, old_form_allowed)?,
        exclude: match fields.get("exclude") {
            Some(exclude) => Some(filters::block(exclude, old_form_allowed)?),
            None => None,
        },
        context: entries::context(fields.get("context"), scope),
        guard: conditions(fields.get("preconditions"), true),
        skip_background_requests: fields.flag("skipBackgroundRequests").unwrap_or(true),
    })
}

/// Reads conditions. In `foreach` only any and all are known, not the bare list.
pub(crate) fn conditions(
    node: Option<DocumentNode<'_, '_>>,
    list_allowed: bool,
) -> Option<Conditions> {
    let node = node?;
    if !list_allowed && node.value.as_list().is_some() {
        node.error_with(
            format!("{} must have any or all", node.path),
            "put `all:` in front of the list",
        );
        return None;
    }
    match Conditions::parse_at(node.value, &node.path) {
        Ok(conditions) => {
            for unknown in conditions.unknown_fields() {
                let hint = "conditions have any and all; each has key, operator, value, message";
                node.report.unknown_field(unknown, hint);
            }
            Some(conditions)
        }
        Err(error) => {
            node.report.error(&error.path, error.problem, error.hint);
            None
        }
    }
}

/// Reads a `generate` block.
pub(crate) fn generate<'d, 'r>(
    node: &DocumentNode<'d, 'r>,
    scope: &Scope,
) -> Option<GenerateDoc<'d, 'r>> {
    let fields = node.fields(&table::GENERATE)?;
    let foreach = fields.get("foreach");
    let elements = foreach.as_ref().map(DocumentNode::elements).unwrap_or_default();
    if let Some(foreach) = foreach.as_ref().filter(|_| elements.is_empty()) {
        foreach.error_with("foreach has no elements", "add an element with a list");
    }
    Some(GenerateDoc {
        node: node.clone(),
        existing: fields.flag("generateExisting"),
        synchronize: fields.flag("synchronize").unwrap_or(false),
        orphan: fields.flag("orphanDownstreamOnPolicyDelete"),
        pattern: pattern(&fields)?,
        has_foreach: foreach.is_some(),
        foreach: elements.iter().filter_map(|element| for_each(element, scope)).collect(),
    })
}

fn for_each<'d, 'r>(node: &DocumentNode<'d, 'r>, scope: &Scope) -> Option<ForEachDoc<'d, 'r>> {
    let fields = node.fields(&table::FOREACH)?;
    fields.required_text("list")?;
    Some(ForEachDoc {
        path: node.path.clone(),
        list: entries::list_expression(&fields.get("list")?)?,
        context: entries::context(fields.get("context"), scope),
        guard: conditions(fields.get("preconditions"), false),
        pattern: pattern(&fields)?,
    })
}

fn pattern<'d, 'r>(fields: &DocumentFields<'d, 'r>) -> Option<PatternDoc<'d, 'r>> {
    let clone = match fields.get("clone") {
        Some(node) => {
            let fields = node.fields(&table::CLONE)?;
            Some(CloneDoc { name: fields.get("name"), namespace: fields.get("namespace"), node })
        }
        None => None,
    };
    let (mut clone_select, mut clone_pairs) = (None, None);
    if let Some(node) = fields.get("cloneList") {
        if node.value.as_list().is_some() {
            clone_pairs = Some(pairs(&node));
        } else {
            let fields = node.fields(&table::CLONE_LIST)?;
            match fields.get("list") {
                Some(list) => {
                    for other in ["kinds", "namespace", "selector"] {
                        if let Some(other) = fields.get(other) {
                            other.error_with(
                                format!("{} cannot stand beside list", other.path),
                                "write one rule for the list and one for the kinds",
                            );
                        }
                    }
                    clone_pairs = Some(pairs(&list));
                }
                None => {
                    clone_select = Some(CloneSelectDoc {
                        kinds: fields.get("kinds").map(|node| node.elements()).unwrap_or_default(),
                        namespace: fields.get("namespace"),
                        selector: fields.get("selector"),
                        node,
                    });
                }
            }
        }
    }
    let data_list = fields.get("dataList").map(|node| {
        let entry = |element: &DocumentNode<'d, 'r>| {
            let fields = element.fields(&table::DATA_ENTRY)?;
            Some((target(&fields), fields.get("data")))
        };
        node.elements().iter().filter_map(entry).collect()
    });
    Some(PatternDoc {
        target: target(fields),
        data: fields.get("data"),
        clone,
        clone_select,
        clone_pairs,
        data_list,
        fields: fields.clone(),
    })
}

fn pairs<'d, 'r>(node: &DocumentNode<'d, 'r>) -> Vec<ClonePairDoc<'d, 'r>> {
    let read = |element: &DocumentNode<'d, 'r>| {
        let fields = element.fields(&table::CLONE_PAIR)?;
        let side = |key: &str| match fields.get(key) {
            Some(node) => Some(target(&node.fields(&table::OBJECT_NAME)?)),
            None => {
                element.error_with(
                    format!("{}.{key} is missing", element.path),
                    format!("add {key:?} here"),
                );
                None
            }
        };
        Some(ClonePairDoc {
            source: side("source")?,
            target: side("target")?,
            node: element.clone(),
        })
    };
    node.elements().iter().filter_map(read).collect()
}

fn target<'d, 'r>(fields: &DocumentFields<'d, 'r>) -> TargetDoc<'d, 'r> {
    let filled = |key: &str| fields.get(key).filter(|node| node.value.as_str() != Some(""));
    TargetDoc {
        fields: fields.clone(),
        api_version: filled("apiVersion"),
        kind: filled("kind"),
        name: filled("name"),
        namespace: filled("namespace"),
    }
}

impl PatternDoc<'_, '_> {
    /// The ways to make objects that are there.
    pub(crate) fn ways(&self) -> Vec<&'static str> {
        let there = [
            ("data", self.data.is_some()),
            ("clone", self.clone.is_some()),
            ("cloneList", self.clone_select.is_some() || self.clone_pairs.is_some()),
            ("dataList", self.data_list.is_some()),
        ];
        there.into_iter().filter(|(_, there)| *there).map(|(way, _)| way).collect()
    }

    /// The content of an object, as a template.
    pub(crate) fn body(&self) -> Option<Template> {
        template(&self.fields, "data")
    }
}

impl TargetDoc<'_, '_> {
    /// A field as text, if it has no variables.
    pub(crate) fn plain(node: Option<&DocumentNode<'_, '_>>) -> Option<Str> {
        match node?.value {
            Value::String(text) if !text.contains("{{") => Some(text.clone()),
            _ => None,
        }
    }

    /// A field as a template; reports it when it is not text.
    pub(crate) fn filled(node: Option<&DocumentNode<'_, '_>>) -> Option<Template> {
        string_template(node?)
    }
}
