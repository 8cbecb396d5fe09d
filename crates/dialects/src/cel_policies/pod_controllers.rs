//! MutatingPolicies and ValidatingPolicies for Pods, rewritten for the controllers that make Pods.
//!
//! Kyverno: a policy that asks nothing of a Pod but its kind also holds for `spec.template` of the controllers and
//! for `spec.jobTemplate.spec.template` of CronJobs; `autogen.podControllers.controllers` names some of them, or
//! none. Kyverno replaces text, and leaves variables and JSON patches as they are, which then fail. Here every
//! expression is rewritten token by token, and a policy with one that cannot be has no variants.

use kiln_cel::{CelToken, Span, lex};
use kiln_value::{Value, value};

/// Where a group of controllers keeps the Pod that it makes.
struct ControllerGroup {
    /// What its rules are called, before the name of the policy.
    prefix: &'static str,
    template: &'static [&'static str],
    /// Kinds of controllers: their API group, plural and name.
    controllers: &'static [(&'static str, &'static str, &'static str)],
}

const GROUPS: [ControllerGroup; 2] = [
    ControllerGroup {
        prefix: "autogen-",
        template: &["spec", "template"],
        controllers: &[
            ("apps", "daemonsets", "DaemonSet"),
            ("apps", "deployments", "Deployment"),
            ("apps", "replicasets", "ReplicaSet"),
            ("apps", "statefulsets", "StatefulSet"),
            ("batch", "jobs", "Job"),
        ],
    },
    ControllerGroup {
        prefix: "autogen-cronjob-",
        template: &["spec", "jobTemplate", "spec", "template"],
        controllers: &[("batch", "cronjobs", "CronJob")],
    },
];

/// The controllers that a policy can name.
pub(super) const NAMES: [&str; 6] =
    ["daemonsets", "deployments", "replicasets", "statefulsets", "jobs", "cronjobs"];

/// What a policy names that are not controllers of Pods, with their places in its list.
// Kyverno passes them over in silence.
pub(super) fn unknown(spec: &Value) -> Vec<(usize, &str)> {
    let wanted =
        spec.get_path(["autogen", "podControllers", "controllers"]).and_then(Value::as_list);
    let names = wanted.into_iter().flat_map(|wanted| wanted.iter()).enumerate();
    names
        .filter_map(|(at, name)| Some((at, name.as_str()?)))
        .filter(|(_, name)| !NAMES.contains(name))
        .collect()
}

/// A MutatingPolicy for Pods, rewritten for a group of controllers.
#[derive(Debug, PartialEq)]
pub struct Variant {
    /// What its rule is called, before the name of the policy.
    pub prefix: &'static str,
    /// The kinds of the controllers.
    pub kinds: Vec<&'static str>,
    /// The API group of each of them.
    pub groups: Vec<&'static str>,
    /// The policy's `spec`, about the controllers.
    pub spec: Value,
}

impl Variant {
    /// The resources that it is about, those of one group together.
    pub fn joined_resource_rules(&self) -> Vec<Value> {
        let but_resources = |rule: &Value| {
            let mut rule = rule.clone();
            rule.remove(["resources"]);
            rule
        };
        let rules = self.spec.get_path(["matchConstraints", "resourceRules"]);
        let mut joined: Vec<Value> = Vec::new();
        for rule in rules.and_then(Value::as_list).into_iter().flat_map(|rules| rules.iter()) {
            let same = joined.iter_mut().find(|known| but_resources(known) == but_resources(rule));
            let resources = same.and_then(|known| known.get_path_mut(["resources"]));
            match (resources.and_then(Value::as_list_mut), rule.get("resources")) {
                (Some(known), Some(Value::List(more))) => known.extend(more.iter().cloned()),
                _ => joined.push(rule.clone()),
            }
        }
        joined
    }
}

/// Why a policy has no variants: the expression that cannot be rewritten.
#[derive(Debug, PartialEq, Eq)]
pub struct Fixed(pub String);

/// The variants of the `spec` of a MutatingPolicy for the controllers of Pods.
///
/// # Errors
/// When an expression means something else in a controller and cannot be rewritten.
pub fn variants(spec: &Value) -> Result<Vec<Variant>, Fixed> {
    found(spec, Unknown::Refused)
}

/// The variants of the `spec` of a ValidatingPolicy for the controllers of Pods. What means something else in a
/// controller stays as it is, as in Kyverno.
pub fn validating_variants(spec: &Value) -> Vec<Variant> {
    found(spec, Unknown::Kept).unwrap_or_default()
}

/// An expression about a Pod as one about what makes Pods below these keys; what means something else there stays as it
/// is.
pub(crate) fn moved_expression(source: &str, template: &[&str]) -> String {
    rewrite(source, template, Unknown::Kept).unwrap_or_else(|| source.to_owned())
}

/// What becomes of a name that means something else in a controller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refused,
    Kept,
}

fn found(spec: &Value, unknown: Unknown) -> Result<Vec<Variant>, Fixed> {
    let wanted =
        spec.get_path(["autogen", "podControllers", "controllers"]).and_then(Value::as_list);
    let is_named = |name: &str, plural: &str| {
        // What is kept is what its author means: a kind will do as well, with a warning.
        let is_kind =
            unknown == Unknown::Kept && format!("{}s", name.to_ascii_lowercase()) == plural;
        name == plural || is_kind
    };
    let names = |plural: &str| {
        wanted.is_none_or(|wanted| {
            wanted.iter().filter_map(Value::as_str).any(|name| is_named(name, plural))
        })
    };
    if !is_about_pods_alone(spec) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for ControllerGroup { prefix, template, controllers } in &GROUPS {
        let controllers: Vec<_> =
            controllers.iter().filter(|(_, plural, _)| names(plural)).collect();
        if !controllers.is_empty() {
            let kinds = controllers.iter().map(|(_, _, kind)| *kind).collect();
            let groups = controllers.iter().map(|(group, _, _)| *group).collect();
            let spec = moved(spec, template, &controllers, unknown)?;
            found.push(Variant { prefix, kinds, groups, spec });
        }
    }
    Ok(found)
}

/// Whether a policy asks nothing of a Pod but its kind, and changes what it is about.
fn is_about_pods_alone(spec: &Value) -> bool {
    let Some(constraints) = spec.get("matchConstraints") else { return false };
    let is_set = |value: Option<&Value>| match value {
        None | Some(Value::Null) => false,
        Some(Value::List(list)) => !list.is_empty(),
        Some(Value::Map(map)) => !map.is_empty(),
        Some(_) => true,
    };
    let only = |rule: &Value, field: &str, word: &str| {
        let list = rule.get(field).and_then(Value::as_list);
        list.is_some_and(|list| list.iter().map(Value::as_str).eq([Some(word)]))
    };
    let Some(rules) = constraints.get("resourceRules").and_then(Value::as_list) else {
        return false;
    };
    let (Some(rule), 1) = (rules.iter().next(), rules.len()) else { return false };
    only(rule, "apiGroups", "")
        && only(rule, "apiVersions", "v1")
        && only(rule, "resources", "pods")
        && !is_set(rule.get("resourceNames"))
        && !is_set(constraints.get("objectSelector"))
        && !is_set(constraints.get("excludeResourceRules"))
        && !is_set(spec.get("targetMatchConstraints"))
}

fn moved(
    spec: &Value,
    template: &[&str],
    controllers: &[&(&str, &str, &str)],
    unknown: Unknown,
) -> Result<Value, Fixed> {
    let mut spec = spec.clone();
    let Some(map) = spec.as_map_mut() else { return Ok(spec) };
    map.remove("autogen");
    let one = map.get("matchConstraints").and_then(|c| c.get("resourceRules")?.index(0)).cloned();
    let rules: Vec<Value> = controllers
        .iter()
        .filter_map(|(group, plural, _)| {
            let mut rule = one.clone()?;
            for (field, word) in [("apiGroups", group), ("resources", plural)] {
                rule.as_map_mut()?.insert(field, value!([*word]));
            }
            Some(rule)
        })
        .collect();
    if let Some(constraints) = map.get_mut("matchConstraints").and_then(Value::as_map_mut) {
        constraints.insert("resourceRules", Value::from_iter(rules));
    }
    for (list, field) in [
        ("variables", "expression"),
        ("matchConditions", "expression"),
        ("auditAnnotations", "valueExpression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
    ] {
        for element in map.get_mut(list).and_then(Value::as_list_mut).into_iter().flatten() {
            rewrite_at(element, &[field], template, unknown)?;
        }
    }
    for step in map.get_mut("mutations").and_then(Value::as_list_mut).into_iter().flatten() {
        if let Some(patch) = step.str_at(["jsonPatch", "expression"]) {
            return Err(Fixed(patch.to_owned()));
        }
        rewrite_at(step, &["applyConfiguration", "expression"], template, unknown)?;
    }
    Ok(spec)
}

fn rewrite_at(
    element: &mut Value,
    path: &[&str],
    template: &[&str],
    unknown: Unknown,
) -> Result<(), Fixed> {
    let Some(source) = element.str_at(path.iter().copied()).map(str::to_owned) else {
        return Ok(());
    };
    let moved = rewrite(&source, template, unknown);
    let moved = match unknown {
        Unknown::Refused => moved.ok_or(Fixed(source))?,
        // An expression that cannot be read has been reported.
        Unknown::Kept => moved.unwrap_or(source),
    };
    // The path was just read.
    let _ = element.set(path.iter().copied(), moved);
    Ok(())
}

/// An expression about a Pod as one about what makes Pods; none when it cannot be one.
fn rewrite(source: &str, template: &[&str], unknown: Unknown) -> Option<String> {
    let tokens = lex(source).ok()?;
    let mut writer =
        ExpressionWriter { source, tokens: &tokens, template, out: String::new(), copied: 0 };
    let mut braces: Vec<bool> = Vec::new();
    for (at, (token, _)) in tokens.iter().enumerate() {
        match token {
            // What is inside of an `Object{…}` closes with it.
            CelToken::OpenBrace => {
                let wraps = writer.opens_object(at);
                braces.push(wraps);
                if wraps {
                    writer.open(at);
                }
            }
            CelToken::CloseBrace => writer.close(at, braces.pop()?),
            CelToken::Ident if !writer.follows_dot(at) => {
                let known = writer.name(at).is_some();
                if !known && unknown == Unknown::Refused {
                    return None;
                }
            }
            // Requests hold the whole controller.
            CelToken::Ident if writer.is_of_request(at) && unknown == Unknown::Refused => {
                return None;
            }
            _ => {}
        }
    }
    Some(writer.finish())
}

struct ExpressionWriter<'s> {
    source: &'s str,
    tokens: &'s [(CelToken, Span)],
    template: &'s [&'s str],
    out: String,
    /// How much of the source is written.
    copied: usize,
}

impl ExpressionWriter<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |(_, span)| &self.source[span.range()])
    }

    fn is(&self, at: usize, token: CelToken) -> bool {
        self.tokens.get(at).is_some_and(|(there, _)| *there == token)
    }

    /// The fields that follow a name: `.a`, or `.?a`. Each with the position of its name, and whether it is optional.
    fn fields(&self, at: usize) -> Vec<(usize, bool)> {
        let mut fields = Vec::new();
        let mut next = at + 1;
        while self.is(next, CelToken::Dot) {
            let optional = self.is(next + 1, CelToken::Question);
            let name = next + 1 + usize::from(optional);
            if !self.is(name, CelToken::Ident) || self.is(name + 1, CelToken::OpenParen) {
                break;
            }
            fields.push((name, optional));
            next = name + 1;
        }
        fields
    }

    fn follows_dot(&self, at: usize) -> bool {
        let before = |back: usize, token| at >= back && self.is(at - back, token);
        before(1, CelToken::Dot) || (before(1, CelToken::Question) && before(2, CelToken::Dot))
    }

    fn is_of_request(&self, at: usize) -> bool {
        let mut owner = at;
        while owner > 0 && matches!(self.tokens[owner - 1].0, CelToken::Dot | CelToken::Question) {
            owner -= 1;
        }
        matches!(self.text(at), "object" | "oldObject")
            && owner > 0
            && self.text(owner - 1) == "request"
    }

    /// Whether an `Object{` begins here that says something.
    fn opens_object(&self, at: usize) -> bool {
        at > 0
            && self.text(at - 1) == "Object"
            && !self.follows_dot(at - 1)
            && !self.is(at + 1, CelToken::CloseBrace)
    }

    /// A name that stands for itself: one of an object is followed into the template, others are left.
    fn name(&mut self, at: usize) -> Option<()> {
        let is_type = self.text(at) == "Object";
        if !is_type && !matches!(self.text(at), "object" | "oldObject") {
            return Some(());
        }
        let fields = self.fields(at);
        let Some((first, optional)) = fields.first().copied() else {
            let compared = matches!(
                self.tokens.get(at + 1).map(|(token, _)| *token),
                Some(CelToken::EqualEqual | CelToken::NotEqual)
            ) && self.is(at + 2, CelToken::Null);
            return (is_type || compared).then_some(());
        };
        let second = fields.get(1).map_or("", |(at, _)| self.text(*at));
        match self.text(first) {
            "spec" => self.insert_before(first, optional),
            "metadata" if is_type || matches!(second, "labels" | "annotations") => {
                self.insert_before(first, optional);
            }
            "metadata" if matches!(second, "name" | "namespace" | "generateName" | "uid") => {}
            _ => return None,
        }
        Some(())
    }

    /// Writes the way to the template before a field.
    fn insert_before(&mut self, field: usize, optional: bool) {
        let start = self.tokens[field].1.range().start;
        self.copy(start);
        for step in self.template {
            self.out.push_str(step);
            self.out.push_str(if optional { ".?" } else { "." });
        }
    }

    /// Writes what an `Object{…}` of a controller holds around that of a Pod.
    fn open(&mut self, brace: usize) {
        let end = self.tokens[brace].1.range().end;
        self.copy(end);
        let mut name = String::from("Object");
        for step in self.template {
            name = format!("{name}.{step}");
            self.out.push_str(&format!("{step}: {name}{{"));
        }
    }

    fn close(&mut self, brace: usize, wrapped: bool) {
        if !wrapped {
            return;
        }
        let start = self.tokens[brace].1.range().start;
        self.copy(start);
        self.out.push_str(&"}".repeat(self.template.len()));
    }

    fn copy(&mut self, upto: usize) {
        self.out.push_str(&self.source[self.copied..upto]);
        self.copied = upto;
    }

    fn finish(mut self) -> String {
        self.copy(self.source.len());
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_followed_into_the_template() {
        let template = ["spec", "template"];
        for (source, wanted) in [
            (
                "object.spec.containers.size() > 0",
                "object.spec.template.spec.containers.size() > 0",
            ),
            ("has(object.metadata.labels)", "has(object.spec.template.metadata.labels)"),
            (
                "object.?spec.?hostPID.orValue(false)",
                "object.?spec.?template.?spec.?hostPID.orValue(false)",
            ),
            ("object.metadata.name == 'object.spec'", "object.metadata.name == 'object.spec'"),
            ("namespaceObject.metadata.labels.a", "namespaceObject.metadata.labels.a"),
            (
                "oldObject == null || oldObject.spec.a",
                "oldObject == null || oldObject.spec.template.spec.a",
            ),
            ("request.operation == 'CREATE'", "request.operation == 'CREATE'"),
            (
                r#"r'\' + object.spec.nodeName // object.spec"#,
                r#"r'\' + object.spec.template.spec.nodeName // object.spec"#,
            ),
            (
                "x ? Object{spec: Object.spec{hostPID: false}} : Object{}",
                "x ? Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{hostPID: false}}}} : Object{}",
            ),
            (
                "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}",
                "Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{a: 'b'}}}}}",
            ),
        ] {
            assert_eq!(
                rewrite(source, &template, Unknown::Refused).as_deref(),
                Some(wanted),
                "{source}"
            );
        }
        let cron = ["spec", "jobTemplate", "spec", "template"];
        assert_eq!(
            rewrite("Object{spec: Object.spec{a: object.spec.b}}", &cron, Unknown::Refused)
                .as_deref(),
            Some(
                "Object{spec: Object.spec{jobTemplate: Object.spec.jobTemplate{spec: Object.spec.jobTemplate.spec{\
                 template: Object.spec.jobTemplate.spec.template{spec: Object.spec.jobTemplate.spec.template.spec{\
                 a: object.spec.jobTemplate.spec.template.spec.b}}}}}}"
            )
        );
    }

    #[test]
    fn all_controllers_can_be_named() {
        let all: Vec<&str> = GROUPS
            .iter()
            .flat_map(|group| group.controllers)
            .map(|(_, plural, _)| *plural)
            .collect();
        assert_eq!(all, NAMES);
    }

    #[test]
    fn what_means_something_else_in_a_controller_is_left() {
        for source in [
            "request.object.spec.a",
            "request.?oldObject.?spec.?a.orValue(1)",
            "object == oldObject",
            "object['spec']",
            "object.status.phase == 'Running'",
            "object.kind == 'Pod'",
            "object.metadata",
            "[1].all(object, object > 0)",
        ] {
            let template = ["spec", "template"];
            assert_eq!(rewrite(source, &template, Unknown::Refused), None, "{source}");
            // Checks keep what they cannot move.
            assert_eq!(moved_expression(source, &template), source);
        }
    }
}
