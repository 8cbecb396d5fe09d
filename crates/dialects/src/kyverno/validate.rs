//! `validate` blocks: what they check, and what becomes of objects that fail.

use kiln_fields::kyverno as table;
use kiln_object::selector::WildcardSelector;
use kiln_pattern::{Anchor, AnchorKind};
use kiln_rules::{
    ActionOverride, Actions, CheckLoop, Deny, FailureActions, Pattern, Scope, Script, Validate,
    ValidateCheck,
};
use kiln_text::wildcard;
use kiln_value::{Path, Str, Value, json};
use kiln_variables::Template;

use crate::cel_policies::in_rules;
use crate::document_reader::{DocumentFields, DocumentNode};
use crate::kyverno::entries::string_template;
use crate::kyverno::filters::{self, Block};
use crate::kyverno::loops;
use crate::kyverno::parse::{PolicyDoc, RuleDoc, conditions};
use crate::kyverno::pod_security;

/// What a block may check: one of these.
const CHECKS: [&str; 7] =
    ["pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests"];
/// What an element of a loop may check: one of these.
const LOOP_CHECKS: [&str; 4] = ["pattern", "anyPattern", "deny", "foreach"];

/// The annotation that takes a policy out of the score.
const SCORED: &str = "policies.kyverno.io/scored";

/// What a policy says about objects that fail.
pub(crate) struct FailureDoc {
    usual: Actions,
    overrides: Vec<ActionOverride>,
    emit_warning: bool,
    scored: bool,
}

/// Reads what a policy says about objects that fail.
pub(crate) fn failure(
    spec: &DocumentFields<'_, '_>,
    metadata: &DocumentFields<'_, '_>,
    kind: &str,
) -> FailureDoc {
    let emit_warning = spec.flag("emitWarning").unwrap_or(false);
    let usual = spec.get("validationFailureAction").and_then(|node| action(&node));
    let overrides = spec.get("validationFailureActionOverrides");
    if let Some(node) = overrides.as_ref().filter(|_| kind != "ClusterPolicy") {
        node.error_with(
            "Use of validationFailureActionOverrides is supported only with ClusterPolicy",
            "write failureAction below `validate`",
        );
    }
    let annotations = metadata.get("annotations").and_then(|node| node.any_fields());
    let scored = annotations.and_then(|annotations| annotations.text(SCORED));
    FailureDoc {
        usual: usual.unwrap_or(Actions::AUDIT),
        overrides: overrides.map(|node| action_overrides(&node)).unwrap_or_default(),
        emit_warning,
        scored: scored.as_deref() != Some("false"),
    }
}

fn action(node: &DocumentNode<'_, '_>) -> Option<Actions> {
    let word = node.text()?;
    let (actions, old) = match word.as_str() {
        "Enforce" => (Actions::DENY, None),
        "Audit" => (Actions::AUDIT, None),
        "enforce" => (Actions::DENY, Some("Enforce")),
        "audit" => (Actions::AUDIT, Some("Audit")),
        other => {
            node.error_with(format!("unknown failure action {other:?}"), "use Audit or Enforce");
            return None;
        }
    };
    if let Some(now) = old {
        node.report.warn(
            &node.path,
            "Validation failure actions enforce/audit are deprecated, use Enforce/Audit instead.",
            Some(format!("write {now}")),
        );
    }
    Some(actions)
}

fn action_overrides(node: &DocumentNode<'_, '_>) -> Vec<ActionOverride> {
    let mut known: Vec<(Actions, Str)> = Vec::new();
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.fields(&table::ACTION_OVERRIDE)?;
        let Some(written) = fields.get("action") else {
            element.error_with("the override has no action", "add action: Audit or Enforce");
            return None;
        };
        let actions = action(&written)?;
        let namespaces = fields.get("namespaces");
        for name in namespaces.as_ref().map(DocumentNode::texts).unwrap_or_default() {
            let path = element.path.join("namespaces");
            if let Some(conflict) = conflict(&known, actions, &name, &path) {
                namespaces.as_ref()?.error_with(conflict, "let each namespace have one action");
                return None;
            }
            known.push((actions, name));
        }
        Some(ActionOverride {
            actions,
            namespaces: namespaces.map(|node| node.texts()).unwrap_or_default(),
            selector: match fields.get("namespaceSelector") {
                Some(node) => Some(filters::selector(&node)?),
                None => None::<WildcardSelector>,
            },
        })
    };
    node.elements().iter().filter_map(read).collect()
}

/// Why a namespace cannot have an action, since it or its pattern has another one already.
fn conflict(known: &[(Actions, Str)], actions: Actions, name: &str, path: &Path) -> Option<String> {
    let others: Vec<&Str> =
        known.iter().filter(|(other, _)| *other != actions).map(|(_, name)| name).collect();
    let is_pattern = wildcard::contains_wildcard;
    let wrong = |what: String| Some(format!("path: {path}: wildcard pattern {what}"));
    for other in &others {
        match (is_pattern(name), is_pattern(other)) {
            (false, false) if other.as_str() == name => {
                return Some(format!("conflicting namespaces found in path: {path}: {name}"));
            }
            (true, false) if wildcard::matches(name, other) => {
                return wrong(format!("'{name}' matches with namespace '{other}'"));
            }
            (false, true) if wildcard::matches(other, name) => {
                return wrong(format!("'{other}' matches with namespace '{name}'"));
            }
            _ => {}
        }
    }
    // Patterns that hold all of this one come before those that it holds.
    let patterns = || others.iter().filter(|other| is_pattern(name) && is_pattern(other));
    let wider = patterns().find(|other| wildcard::matches(other, name));
    let overlapping = wider.or_else(|| patterns().find(|other| wildcard::matches(name, other)));
    overlapping.and_then(|other| wrong(format!("'{name}' conflicts with the pattern '{other}'")))
}

/// What came of a `validate` block.
pub(crate) enum Compiled {
    /// It is run, perhaps with a script.
    Program(Box<Validate>, Option<Box<Script>>),
    /// It is left to others; the word says what it would do.
    NotRun(&'static str),
}

/// Compiles a `validate` block. `wrapped` says how many steps lie around its patterns that were not written.
pub(crate) fn compile(
    node: &DocumentNode<'_, '_>,
    rule: &RuleDoc<'_, '_>,
    policy: &PolicyDoc<'_, '_>,
    wrapped: usize,
) -> Option<Compiled> {
    let fields = node.fields(&table::VALIDATE)?;
    let there: Vec<&str> = CHECKS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    if let Some(assert) = fields.get("assert") {
        let why = "validate.assert was removed in Kyverno 1.19";
        match there.is_empty() {
            true => {
                let what = "rewrite the rule as ValidatingPolicy or validate.cel";
                assert.report.error_at_key(&assert.path, why, Some(what.into()));
                return None;
            }
            false => assert.report.warn_at_key(
                &assert.path,
                format!("{why}: it has no effect"),
                Some("remove it".into()),
            ),
        }
    }
    one_of(&fields, &there, "one of pattern, anyPattern, deny, foreach, cel must be specified")?;
    let compiler = Compiler { scope: &policy.scope, wrapped };
    let mut script = None;
    let check = match there.first() {
        Some(&"manifests") => return Some(Compiled::NotRun("validate.manifests")),
        Some(&"podSecurity") => ValidateCheck::PodSecurity(Box::new(pod_security::compile(
            &fields.get("podSecurity")?,
        )?)),
        Some(&"cel") => {
            let message = fields.text("message");
            let preconditions = rule.fields.get("celPreconditions");
            let cel = fields.get("cel")?;
            let (check, made) =
                in_rules::compile(&cel, preconditions, message.as_ref(), &rule.name)?;
            script = Some(Box::new(made));
            check
        }
        _ => compiler.check(&fields, 0)?,
    };
    let failure = &policy.failure;
    let own = fields.get("failureAction").and_then(|node| action(&node));
    let overrides = fields.get("failureActionOverrides");
    let overrides = overrides.map(|node| action_overrides(&node)).unwrap_or_default();
    let overrides = if overrides.is_empty() { failure.overrides.clone() } else { overrides };
    let warned = |actions: Actions| Actions {
        warn: actions.warn || (failure.emit_warning && !actions.deny),
        ..actions
    };
    // Kyverno: what was wrong before an update does not count for expressions.
    let allows_existing =
        script.is_none() && fields.flag("allowExistingViolations").unwrap_or(true);
    let program = Validate {
        check,
        message: fields.get("message").and_then(|node| string_template(&node)),
        on_failure: FailureActions {
            usual: warned(own.unwrap_or(failure.usual)),
            overrides: overrides
                .into_iter()
                .map(|entry| ActionOverride { actions: warned(entry.actions), ..entry })
                .collect(),
        },
        allows_existing,
        scored: failure.scored,
    };
    Some(Compiled::Program(Box::new(program), script))
}

/// Reports a block that checks nothing, or too much.
fn one_of(fields: &DocumentFields<'_, '_>, there: &[&str], missing: &'static str) -> Option<()> {
    match there {
        [_] => Some(()),
        [] => {
            fields.error(missing, Some("add one of them".into()));
            None
        }
        [_, second, ..] => {
            let several = missing.replace("one of", "only one of").replace("must", "can");
            fields
                .get(second)?
                .error_with(several, format!("write one rule each for {}", there.join(" and ")));
            None
        }
    }
}

struct Compiler<'c> {
    scope: &'c Scope,
    wrapped: usize,
}

impl Compiler<'_> {
    fn check(&self, fields: &DocumentFields<'_, '_>, depth: usize) -> Option<ValidateCheck> {
        if let Some(node) = fields.get("pattern") {
            return Some(ValidateCheck::Pattern(self.pattern(&node, depth)));
        }
        if let Some(node) = fields.get("anyPattern") {
            let patterns = node.elements();
            let patterns = patterns.iter().map(|element| self.pattern(element, depth));
            return Some(ValidateCheck::AnyPattern(patterns.collect()));
        }
        if let Some(node) = fields.get("deny") {
            let deny = node.fields(&table::DENY)?;
            let written = deny.get("conditions");
            let is_written = written.is_some();
            let conditions = conditions(written, true);
            if is_written && conditions.is_none() {
                return None;
            }
            return Some(ValidateCheck::Deny(Deny { conditions, path: node.path.clone() }));
        }
        let node = fields.get("foreach")?;
        self.loops(&node, depth).map(ValidateCheck::Loops)
    }

    fn loops(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Option<Vec<CheckLoop>> {
        let elements = loops::elements(node, depth)?;
        elements.iter().map(|element| self.one_loop(element, depth)).collect()
    }

    fn one_loop(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Option<CheckLoop> {
        let fields = node.fields(&table::VALIDATE_FOREACH)?;
        let Some(list) = fields.get("list") else {
            node.error_with("foreach.list is required", "add the list to look at");
            return None;
        };
        let there: Vec<&str> =
            LOOP_CHECKS.into_iter().filter(|key| fields.get(key).is_some()).collect();
        one_of(
            &fields,
            &there,
            "one of pattern, anyPattern, deny, or a nested foreach must be specified",
        )?;
        let foreach = loops::for_each(node, &fields, &list, self.scope)?;
        let element_scope = fields.flag("elementScope");
        Some(CheckLoop { foreach, element_scope, check: self.check(&fields, depth + 1)? })
    }

    fn pattern(&self, node: &DocumentNode<'_, '_>, depth: usize) -> Pattern {
        // Patterns of elements begin at the element.
        let wrapped = if depth == 0 { self.wrapped } else { 0 };
        check_pattern(node);
        Pattern {
            template: Template::compile_part(node.value, &node.path),
            path: node.path.clone(),
            wrapped,
        }
    }
}

/// Checks the anchors of a pattern, and that labels and annotations are text.
fn check_pattern(node: &DocumentNode<'_, '_>) {
    fn walk(value: &Value, path: &mut Path, node: &DocumentNode<'_, '_>) {
        match value {
            Value::Map(map) => {
                for (key, value) in map {
                    path.push(key);
                    anchor(key, value, path, node);
                    walk(value, path, node);
                    path.pop();
                }
            }
            Value::List(list) => {
                for (at, value) in list.iter().enumerate() {
                    path.push(at);
                    walk(value, path, node);
                    path.pop();
                }
            }
            _ => {}
        }
    }
    walk(node.value, &mut node.path.clone(), node);
    for above in [&["metadata"][..], &["spec", "template", "metadata"]] {
        for field in ["labels", "annotations"] {
            let path: Path = above.iter().copied().chain([field]).collect();
            let Some(Value::Map(pairs)) = node.value.get_path(&path) else { continue };
            for (key, value) in pairs {
                if !matches!(value, Value::String(_)) {
                    let at = path
                        .segments()
                        .iter()
                        .fold(node.path.clone(), |at, step| at.join(step.clone()));
                    node.report.error(
                        &at.join(key),
                        "labels and annotations supports only string values, \"use double quotes around \
                         the non string values\"",
                        Some(format!("write {key}: {:?}", json::to_string(value))),
                    );
                }
            }
        }
    }
}

fn anchor(key: &str, value: &Value, path: &Path, node: &DocumentNode<'_, '_>) {
    let Some(anchor) = Anchor::parse(key) else { return };
    match (anchor.kind, value) {
        (AnchorKind::AddIfNotPresent, _) => node.report.error_at_key(
            path,
            format!("unsupported anchor {}", key.trim()),
            Some("patterns know ( ), =( ), ^( ), X( ) and <( )".into()),
        ),
        (AnchorKind::Existence, Value::List(list)) if list.is_empty() => node.report.error(
            path,
            "existence anchor: should have at least one value",
            Some("describe the element that must be there".into()),
        ),
        (AnchorKind::Existence, Value::List(_)) => {}
        (AnchorKind::Existence, _) => node.report.error(
            path,
            "existence anchor should have value of type list",
            Some("put a dash in front of it".into()),
        ),
        _ => {}
    }
}

/// Checks that a rule for every kind asks only for what every kind has.
pub(crate) fn every_kind(policy: &PolicyDoc<'_, '_>, include: &Block<'_, '_>, program: &Validate) {
    let kinds = || include.filters.filters().iter().flat_map(|filter| &filter.kinds);
    if !kinds().any(|kind| kind.to_string() == "*") {
        return;
    }
    let only_metadata = |pattern: &&Pattern| match pattern.template.document() {
        Value::Map(map) => map
            .keys()
            .all(|key| Anchor::parse(key).map_or(key.as_str(), |anchor| anchor.key) == "metadata"),
        _ => true,
    };
    let message = if policy.background {
        "wildcard policy not allowed in background mode. Set spec.background=false to disable \
         background mode for this policy rule "
    } else if kinds().count() > 1 {
        "wildcard policy can not deal with more than one kind"
    } else if matches!(program.check, ValidateCheck::Loops(_)) {
        "wildcard policy does not support rule type"
    } else if !program.patterns().iter().all(only_metadata) {
        "policy can only deal with the metadata field of the resource if the rule does not match any \
         kind"
    } else {
        return;
    };
    include.node.error_with(message, "name the kinds");
}
