//! `mutate` blocks: what they change, checked and compiled.

use kiln_fields::kyverno as table;
use kiln_patch::{JsonPatch, JsonPatchRules};
use kiln_pattern::anchors_in;
use kiln_rules::{
    ForEachOrder, Mutate, MutateTarget, Mutation, MutationLoop, Patch, PatchBody, Scope, Targets,
};
use kiln_value::{Value, json};
use kiln_variables::Template;
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::document_reader::{DocumentFields, DocumentNode};
use crate::kyverno::entries::{self, string_template};
use crate::kyverno::filters::Block;
use crate::kyverno::loops;
use crate::kyverno::parse::{PolicyDoc, conditions};

/// Stands for variables while a patch is checked.
const VARIABLE: &str = "kilnvariable";

/// A `mutate` block.
pub(crate) struct MutateDoc {
    pub(crate) program: Mutate,
    /// `mutateExistingOnPolicyUpdate`.
    pub(crate) existing: Option<bool>,
}

/// Compiles a `mutate` block.
pub(crate) fn compile(
    node: &DocumentNode<'_, '_>,
    policy: &PolicyDoc<'_, '_>,
    rule: &str,
) -> Option<MutateDoc> {
    let fields = node.fields(&table::MUTATE)?;
    let existing = fields.flag("mutateExistingOnPolicyUpdate");
    let compiler = Compiler { scope: &policy.scope, rule };
    let targets = fields.get("targets").map(|node| compiler.targets(&node));
    if existing.or(policy.mutate_existing) == Some(true) && targets.is_none() {
        let written = fields.get("mutateExistingOnPolicyUpdate");
        written.as_ref().unwrap_or(node).error_with(
            "mutateExistingOnPolicyUpdate needs mutate.targets",
            "name the existing objects to change in targets",
        );
    }
    let change = compiler.change(&fields, 0)?;
    let program = Mutate { targets: targets.map(Targets::Named), change, pass_unchanged: false };
    Some(MutateDoc { program, existing })
}

struct Compiler<'c> {
    scope: &'c Scope,
    rule: &'c str,
}

impl Compiler<'_> {
    /// The one change of a block or of a loop.
    fn change(&self, fields: &DocumentFields<'_, '_>, depth: usize) -> Option<Mutation> {
        let strategic = fields.get("patchStrategicMerge");
        // Kyverno: an empty text is not a patch.
        let json = fields.get("patchesJson6902").filter(|node| node.value.as_str() != Some(""));
        let foreach = fields.get("foreach");
        match (strategic, json, foreach) {
            (Some(node), None, None) => self.strategic(&node),
            (None, Some(node), None) => self.json(&node, depth),
            (None, None, Some(node)) => self.loops(&node, depth),
            (None, None, None) => {
                fields.error(
                    "the mutate block has no patch",
                    Some("add patchStrategicMerge, patchesJson6902 or foreach".into()),
                );
                None
            }
            (strategic, json, foreach) => {
                let message = match (&foreach, depth) {
                    (None, _) => {
                        "only one of `patchStrategicMerge` or `patchesJson6902` is allowed"
                    }
                    (Some(_), 0) => {
                        "only one of `foreach`, `patchStrategicMerge`, or `patchesJson6902` is \
                         allowed"
                    }
                    (Some(_), _) => "a nested foreach cannot contain other declarations",
                };
                let second = [strategic, json, foreach].into_iter().flatten().nth(1);
                second?.error_with(message, "write one rule for each");
                None
            }
        }
    }

    fn loops(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Option<Mutation> {
        let elements = loops::elements(node, depth)?;
        let loops: Vec<_> =
            elements.iter().filter_map(|element| self.one_loop(element, depth)).collect();
        Some(Mutation::Loops(loops))
    }

    fn one_loop(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Option<MutationLoop> {
        let fields = node.fields(&table::MUTATE_FOREACH)?;
        fields.required_text("list")?;
        if fields.get("foreach").is_some() {
            let other = ["context", "preconditions"].iter().find_map(|key| fields.get(key));
            if let Some(other) = other {
                other.error_with(
                    "a nested foreach cannot contain other declarations",
                    "move it into the inner foreach",
                );
            }
        }
        let foreach = loops::for_each(node, &fields, &fields.get("list")?, self.scope);
        let change = self.change(&fields, depth + 1)?;
        let merges =
            matches!(&change, Mutation::Patch(Patch { body: PatchBody::Strategic(_), .. }));
        let order = match fields.text("order").as_deref() {
            Some("Ascending") => ForEachOrder::Ascending,
            Some("Descending") => ForEachOrder::Descending,
            // Kyverno: each merge puts its elements first, so the last one has to come first.
            None if merges => ForEachOrder::Descending,
            None => ForEachOrder::Ascending,
            Some(other) => {
                fields
                    .get("order")?
                    .error_with(format!("unknown order {other:?}"), "use Ascending or Descending");
                return None;
            }
        };
        Some(MutationLoop { foreach: foreach?, order, change })
    }

    fn strategic(&self, node: &DocumentNode<'_, '_>) -> Option<Mutation> {
        match node.value {
            Value::Map(_) => {}
            // A whole patch that a variable gives.
            Value::String(text) if text.contains("{{") => {}
            other => {
                node.error_with(
                    format!("{} must be a map, and this is a {}", node.path, other.type_name()),
                    "write the patch as a part of the object",
                );
                return None;
            }
        }
        for (path, kind) in anchors_in(node.value) {
            if !kind.is_for_patches() {
                let at = path.segments().iter().fold(node.path.clone(), |mut at, step| {
                    at.push(step.clone());
                    at
                });
                node.report.error_at_key(
                    &at,
                    format!(
                        "the anchor {}( ) is for validate patterns; a patch would write it out",
                        kind.mark()
                    ),
                    Some("patches know ( ), +( ) and <( )".into()),
                );
            }
        }
        text_labels(node);
        let template = Template::compile_part(node.value, &node.path);
        Some(Mutation::Patch(Patch {
            body: PatchBody::Strategic(template),
            path: node.path.clone(),
        }))
    }

    fn json(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Option<Mutation> {
        let text = node.text()?;
        let template = Template::compile_part(node.value, &node.path);
        let masked = masked(&text, &template);
        // In a loop, variables may make up the whole patch: what it is shows when it is filled in.
        let later = depth > 0 && !template.is_plain();
        let operations = match operations(&masked) {
            Ok(operations) => operations,
            Err(_) if later => {
                node.report.warn(
                    &node.path,
                    "variables stand where structure would, and what objects say is text",
                    Some("write the operations out, with variables where values stand".into()),
                );
                Value::Null
            }
            Err(problem) => {
                node.error_with(
                    problem,
                    "write a list: - op: add, path: /metadata/labels/x, value: y",
                );
                return None;
            }
        };
        self.check_operations(node, &operations, depth)?;
        let body = match template.is_plain() {
            true => PatchBody::Json(operations),
            false => PatchBody::JsonText(template),
        };
        Some(Mutation::Patch(Patch { body, path: node.path.clone() }))
    }

    fn check_operations(
        &self,
        node: &DocumentNode<'_, '_>,
        operations: &Value,
        depth: usize,
    ) -> Option<()> {
        for operation in operations.as_list().into_iter().flatten() {
            let path = operation.str_at(["path"]).unwrap_or_default();
            if depth == 0 && path.contains(VARIABLE) {
                node.error_with(
                    format!(
                        "rule {:?} should not have variables in patchesJSON6902 path section",
                        self.rule
                    ),
                    "use foreach, where paths may hold {{elementIndex}}",
                );
                return None;
            }
            // A path that begins with a variable is known only when it is filled in.
            if !path.starts_with('/') && !path.starts_with(VARIABLE) {
                node.error_with(
                    format!("path must begin with a forward slash: {path:?}"),
                    format!("write \"/{path}\""),
                );
                return None;
            }
        }
        if let Err(error) = JsonPatch::parse(operations, JsonPatchRules::kyverno()) {
            node.error_with(
                format!("bad patchesJson6902: {error}"),
                "each operation has op, path and, to add, replace or test, a value",
            );
            return None;
        }
        Some(())
    }

    fn targets(&self, node: &DocumentNode<'_, '_>) -> Vec<MutateTarget> {
        let elements = node.elements();
        if elements.is_empty() {
            node.error_with("targets is empty", "name the objects to change, or remove targets");
        }
        elements.iter().filter_map(|element| self.target(element)).collect()
    }

    fn target(&self, node: &DocumentNode<'_, '_>) -> Option<MutateTarget> {
        let fields = node.fields(&table::MUTATE_TARGET)?;
        fields.required_text("kind")?;
        let text = |key: &str| fields.get(key).and_then(|node| string_template(&node));
        if let (Some(own), Some(namespace)) = (self.scope.namespace(), fields.get("namespace"))
            && let Some(written) = namespace.value.as_str()
            && written != own
            && !written.contains("{{")
        {
            namespace.error_with(
                format!("a policy of namespace {own:?} cannot change objects of {written:?}"),
                "remove the namespace, or use a ClusterPolicy",
            );
        }
        if let Some(selector) = fields.get("selector")
            && selector.any_fields().is_none()
        {
            return None;
        }
        Some(MutateTarget {
            api_version: text("apiVersion"),
            kind: text("kind")?,
            name: text("name"),
            namespace: text("namespace"),
            selector: entries::template(&fields, "selector"),
            context: entries::context(fields.get("context"), self.scope),
            guard: conditions(fields.get("preconditions"), true),
            path: node.path.clone(),
        })
    }
}

/// Reads the operations of a JSON patch, which may be written as YAML.
fn operations(text: &str) -> Result<Value, String> {
    if text.starts_with('[')
        && let Ok(operations) = json::parse(text)
    {
        return Ok(operations);
    }
    let mut documents = read_bytes("patchesJson6902", text.as_bytes(), ReadOptions::kubernetes())
        .map_err(|error| format!("patchesJson6902 is not YAML: {error}"))?;
    match (documents.pop().map(Document::into_value), documents.len()) {
        (Some(list @ Value::List(_)), 0) => Ok(list),
        (Some(other), 0) => Err(format!(
            "patchesJson6902 must be a list of operations, and this is a {}",
            other.type_name()
        )),
        (_, more) => Err(format!("patchesJson6902 holds {} documents", more + 1)),
    }
}

/// The text with a word in place of each variable.
fn masked(text: &str, template: &Template) -> String {
    let mut spans: Vec<_> = template.variables().into_iter().filter_map(|v| v.span).collect();
    // Outer variables hold the inner ones.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let (mut masked, mut end) = (String::with_capacity(text.len()), 0);
    for span in spans {
        if span.start >= end {
            masked.push_str(&text[end..span.start]);
            masked.push_str(VARIABLE);
            end = span.end;
        }
    }
    masked.push_str(&text[end..]);
    masked
}

/// Checks that labels and annotations are text, or null to delete them.
fn text_labels(node: &DocumentNode<'_, '_>) {
    for field in ["labels", "annotations"] {
        let Some(Value::Map(pairs)) = node.value.get_path(["metadata", field]) else { continue };
        for (key, value) in pairs {
            if !matches!(value, Value::String(_) | Value::Null) {
                node.report.error(
                    &node.path.join("metadata").join(field).join(key),
                    "labels and annotations supports only string values, \"use double quotes around \
                     the non string values\"",
                    Some(format!("write {key}: {:?}", json::to_string(value))),
                );
            }
        }
    }
}

/// Checks that a rule for every kind changes only what every kind has.
pub(crate) fn only_metadata(policy: &PolicyDoc<'_, '_>, include: &Block<'_, '_>, doc: &MutateDoc) {
    let every = include
        .filters
        .filters()
        .iter()
        .any(|filter| filter.kinds.iter().any(|kind| kind.to_string() == "*"));
    if !every {
        return;
    }
    let message = if policy.background {
        "wildcard policy not allowed in background mode. Set spec.background=false to disable \
         background mode for this policy rule"
    } else if doc.program.targets.is_none() && !changes_only_metadata(&doc.program.change) {
        "policy can only deal with the metadata field of the resource if the rule does not match any \
         kind"
    } else {
        return;
    };
    include.node.error_with(message, "name the kinds");
}

fn changes_only_metadata(change: &Mutation) -> bool {
    match change {
        Mutation::Steps(_) => false,
        // Kyverno: what loops change is not looked at.
        Mutation::Loops(_) => true,
        Mutation::Patch(patch) => match &patch.body {
            PatchBody::Strategic(template) => match template.document() {
                Value::Map(map) => map.keys().all(|key| key.as_str() == "metadata"),
                _ => true,
            },
            PatchBody::Json(operations) => operations.as_list().is_none_or(|list| {
                list.iter().all(|operation| {
                    operation.str_at(["path"]).is_some_and(|p| p.starts_with("/metadata"))
                })
            }),
            PatchBody::JsonText(_) => true,
        },
    }
}
