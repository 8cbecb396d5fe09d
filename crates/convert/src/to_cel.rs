//! ClusterPolicy and Policy to the policies in CEL: one for the rules that are about the same, others for the rest.

use std::sync::Arc;

use kiln_object::Kinds;
use kiln_rules::Policy;
use kiln_value::{Map, Path, Value, value};
use kiln_yaml::Document;

use crate::cel::Cel;
use crate::cel_printer::print;
use crate::context::CelVariable;
use crate::documents::{self, ConvertedDocument};
use crate::validate::{FORMS, Message, ValidateRule, validate_rule};
use crate::verdict::{ConvertedRule, CoveredRequests, Difference, Obstacle};
use crate::{Conversion, generate, mutate};

/// The group and version of the policies in CEL.
pub(crate) const API_VERSION: &str = "policies.kyverno.io/v1";

/// Where Pods are made of, and what policies in CEL call it.
pub(crate) const CONTROLLERS: [(&str, &str); 6] = [
    ("DaemonSet", "daemonsets"),
    ("Deployment", "deployments"),
    ("Job", "jobs"),
    ("ReplicaSet", "replicasets"),
    ("StatefulSet", "statefulsets"),
    ("CronJob", "cronjobs"),
];

/// Converts a policy. `compiled` is the same policy as rules, which say what its rules also hold for.
pub(crate) fn convert(document: &Document, compiled: &Policy, kinds: &Kinds) -> Conversion {
    let policy = document.value();
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
    let mut conversion = Conversion::default();
    let empty = kiln_value::List::default();
    let rules = policy.get_path(["spec", "rules"]).and_then(Value::as_list).unwrap_or(&empty);
    let comments = documents::comments(document);
    let mut groups: Vec<Group> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let path = Path::root().join("spec").join("rules").join(at);
        let mut converted = ConvertedRule {
            policy: name.to_owned(),
            rule: rule.str_at(["name"]).unwrap_or_default().to_owned(),
            form: form(rule),
            documents: Vec::new(),
            differences: Vec::new(),
            possible: Vec::new(),
            obstacle: None,
        };
        match one(policy, rule, compiled, kinds, &path) {
            Ok(OneRule::Validate(found)) => {
                converted.differences.clone_from(&found.differences);
                converted.possible.clone_from(&found.possible);
                let index = conversion.rules.len();
                match groups.iter_mut().find(|group| group.takes(&found)) {
                    Some(group) => group.add(index, at, *found),
                    None => groups.push(Group::new(index, at, *found)),
                }
            }
            Ok(OneRule::Document(found, differences)) => {
                converted.documents.push(conversion.documents.len());
                converted.differences = differences;
                let mut found = *found;
                found.head = comments.rules.get(at).cloned().unwrap_or_default();
                conversion.documents.push(found);
            }
            Err(obstacle) => converted.obstacle = Some(obstacle),
        }
        conversion.rules.push(converted);
    }
    let alone = groups.len() == 1 && conversion.documents.is_empty();
    for group in groups {
        let first = group.rules.first().map(|(index, _)| *index);
        let rule = first.map(|index| conversion.rules[index].rule.clone()).unwrap_or_default();
        let called = if alone { name.to_owned() } else { format!("{name}-{rule}") };
        let number = conversion.documents.len();
        for (index, _) in &group.rules {
            conversion.rules[*index].documents.push(number);
            let more = group
                .differences
                .iter()
                .filter(|found| !conversion.rules[*index].differences.contains(found));
            let more: Vec<Difference> = more.cloned().collect();
            conversion.rules[*index].differences.extend(more);
        }
        conversion.documents.push(group.document(policy, &called, &comments));
    }
    let single = conversion.documents.len() == 1;
    if single
        && let Some(only) = conversion.documents.first_mut()
        && let Some(metadata) = only.value.get_mut("metadata").and_then(Value::as_map_mut)
    {
        metadata.insert("name", name);
    }
    if let Some(first) = conversion.documents.first_mut() {
        let mut head = comments.head;
        head.append(&mut first.head);
        first.head = head;
    }
    conversion
}

enum OneRule {
    Validate(Box<ConvertedValidate>),
    Document(Box<ConvertedDocument>, Vec<Difference>),
}

fn one(
    policy: &Value,
    rule: &Value,
    compiled: &Policy,
    kinds: &Kinds,
    path: &Path,
) -> Result<OneRule, Obstacle> {
    if rule.get("validate").is_some() {
        let parts = validate_rule(rule, kinds, path)?;
        return ConvertedValidate::new(policy, rule, parts, compiled, path)
            .map(|found| OneRule::Validate(Box::new(found)));
    }
    if rule.get("mutate").is_some() {
        let (document, differences) = mutate::convert(policy, rule, compiled, kinds, path)?;
        return Ok(OneRule::Document(Box::new(document), differences));
    }
    if rule.get("generate").is_some() {
        let (document, differences) = generate::convert(policy, rule, kinds, path)?;
        return Ok(OneRule::Document(Box::new(document), differences));
    }
    let what = if rule.get("verifyImages").is_some() {
        "verifyImages"
    } else {
        "a rule that does nothing"
    };
    Err(Obstacle::new(what, "write an ImageValidatingPolicy for it").at(&path.join(what)))
}

/// What a rule does, in the words of its fields.
fn form(rule: &Value) -> String {
    if let Some(validate) = rule.get("validate") {
        let all = FORMS.iter().chain(&["manifests", "assert"]);
        let found = all.copied().find(|form| validate.get(form).is_some());
        return format!("validate.{}", found.unwrap_or("?"));
    }
    let found =
        ["mutate", "generate", "verifyImages"].into_iter().find(|word| rule.get(word).is_some());
    found.unwrap_or("?").to_owned()
}

/// A validate rule with what its policy says of it.
struct ConvertedValidate {
    parts: ValidateRule,
    actions: Value,
    autogen: Option<Value>,
    differences: Vec<Difference>,
    /// Those that some objects may show.
    possible: Vec<Difference>,
}

impl ConvertedValidate {
    fn new(
        policy: &Value,
        rule: &Value,
        parts: ValidateRule,
        compiled: &Policy,
        path: &Path,
    ) -> Result<Self, Obstacle> {
        let validate = rule.get("validate").unwrap_or(&Value::Null);
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        for (holder, field) in
            [(spec, "validationFailureActionOverrides"), (validate, "failureActionOverrides")]
        {
            if holder.get(field).and_then(Value::as_list).is_some_and(|list| !list.is_empty()) {
                return Err(Obstacle::new(
                    field,
                    "write one policy for each action, with matchConditions on request.namespace",
                )
                .at(path));
            }
        }
        let action =
            validate.str_at(["failureAction"]).or_else(|| spec.str_at(["validationFailureAction"]));
        let enforces = action.is_some_and(|action| action.eq_ignore_ascii_case("enforce"));
        let warns = spec.get("emitWarning").and_then(Value::as_bool).unwrap_or(false);
        let actions: Value = match (enforces, warns) {
            (true, _) => ["Deny"].into_iter().collect(),
            (false, true) => ["Audit", "Warn"].into_iter().collect(),
            (false, false) => ["Audit"].into_iter().collect(),
        };
        let mut differences = parts.differences.clone();
        let keeps =
            validate.get("allowExistingViolations").and_then(Value::as_bool).unwrap_or(true);
        let updates = parts.operations.iter().any(|operation| operation == "UPDATE");
        let mut possible = Vec::new();
        if keeps && updates && validate.get("cel").is_none() {
            let (list, effect) = match enforces {
                true => (&mut differences, "the new policy refuses them until they are mended"),
                // Nothing is refused; reports have another word for it.
                false => (&mut possible, "the new policy reports them as failures"),
            };
            list.push(Difference::other(
                "updates of objects that violated the rule before",
                format!("the rule lets them through (allowExistingViolations); {effect}"),
                CoveredRequests::StricterUpdates,
            ));
        }
        let text = kiln_value::json::to_string(rule);
        let is_pods =
            parts.matching.kinds.iter().any(|(version, kind)| version == "v1" && kind == "Pod");
        if is_pods && text.contains(r#"request.\"object\""#) {
            differences.push(Difference::other(
                "controllers of Pods",
                r#"request."object" stays the controller itself in the rule that is made for them; the new policy reads the Pod template"#,
                CoveredRequests::Controllers,
            ));
        }
        if is_pods && text.contains("ephemeralContainers") {
            differences.push(Difference::weaker(
                "requests to pods/ephemeralcontainers (kubectl debug)",
                "the rule checks them as Pods; the new policy does not (list pods/ephemeralcontainers in a policy of its own)",
                CoveredRequests::Subresource("ephemeralcontainers"),
            ));
        }
        let (autogen, more) = autogen(rule, &parts, compiled);
        differences.extend(more);
        Ok(ConvertedValidate { parts, actions, autogen, differences, possible })
    }
}

/// Which controllers of Pods a rule also holds for, as policies in CEL say it.
pub(crate) fn autogen(
    rule: &Value,
    parts: &ValidateRule,
    compiled: &Policy,
) -> (Option<Value>, Vec<Difference>) {
    let pods_alone = matches!(parts.matching.resources.as_slice(),
        [only] if only.group.is_empty() && only.resources == ["pods"] && only.versions == ["v1"])
        && parts.matching.object_selector.is_none();
    if !pods_alone {
        return (None, Vec::new());
    }
    let held = controllers(rule, compiled);
    let mut differences = Vec::new();
    if held.contains(&"ReplicationController") {
        differences.push(replication_controllers("their Pods are still checked"));
    }
    let listed: Vec<&str> = CONTROLLERS
        .iter()
        .filter(|(kind, _)| held.contains(kind))
        .map(|(_, plural)| *plural)
        .collect();
    if listed.len() == CONTROLLERS.len() {
        return (None, differences);
    }
    let listed: Value = listed.into_iter().collect();
    (Some(value!({"podControllers": {"controllers": listed}})), differences)
}

/// Policies in CEL have variants for all controllers but this one.
pub(crate) fn replication_controllers(still: &str) -> Difference {
    Difference::weaker(
        "ReplicationControllers",
        format!(
            "the rule also holds for their Pod templates; CEL policies have no variant for them ({still})"
        ),
        CoveredRequests::Kind("ReplicationController"),
    )
}

/// The kinds of controllers that a rule was rewritten for.
pub(crate) fn controllers<'p>(rule: &Value, compiled: &'p Policy) -> Vec<&'p str> {
    let name = rule.str_at(["name"]).unwrap_or_default();
    let derived = |found: &str| {
        ["autogen-cronjob-", "autogen-"].iter().any(|prefix| {
            let full: String = format!("{prefix}{name}").chars().take(63).collect();
            full == found
        })
    };
    let rules: Vec<&Arc<kiln_rules::Rule>> =
        compiled.rules.iter().filter(|rule| derived(&rule.id.rule)).collect();
    let filters = rules.iter().flat_map(|rule| rule.trigger.include.filters());
    filters.flat_map(|filter| filter.kinds.iter().map(|kind| kind.kind.as_str())).collect()
}

/// Rules that become one policy.
struct Group {
    /// The rules, by their numbers in the conversion and in the policy.
    rules: Vec<(usize, usize)>,
    parts: ValidateRule,
    /// Which rule each validation came of.
    of: Vec<usize>,
    actions: Value,
    autogen: Option<Value>,
    differences: Vec<Difference>,
}

impl Group {
    fn new(index: usize, at: usize, found: ConvertedValidate) -> Self {
        Group {
            rules: vec![(index, at)],
            of: vec![at; found.parts.validations.len()],
            parts: found.parts,
            actions: found.actions,
            autogen: found.autogen,
            differences: found.differences,
        }
    }

    /// Whether a rule is about the same as those in the group.
    fn takes(&self, found: &ConvertedValidate) -> bool {
        let (ours, theirs) = (&self.parts, &found.parts);
        let agrees = |variable: &CelVariable| {
            ours.variables
                .iter()
                .all(|known| known.name != variable.name || known.cel == variable.cel)
        };
        ours.matching == theirs.matching
            && ours.operations == theirs.operations
            && ours.match_conditions == theirs.match_conditions
            && self.actions == found.actions
            && self.autogen == found.autogen
            && theirs.variables.iter().all(agrees)
    }

    fn add(&mut self, index: usize, at: usize, found: ConvertedValidate) {
        self.rules.push((index, at));
        self.of.extend(vec![at; found.parts.validations.len()]);
        self.parts.validations.extend(found.parts.validations);
        for variable in found.parts.variables {
            if !self.parts.variables.contains(&variable) {
                self.parts.variables.push(variable);
            }
        }
        self.parts.audit_annotations.extend(found.parts.audit_annotations);
        for difference in found.differences {
            if !self.differences.contains(&difference) {
                self.differences.push(difference);
            }
        }
    }

    fn document(
        &self,
        policy: &Value,
        name: &str,
        comments: &documents::FoundComments,
    ) -> ConvertedDocument {
        let namespaced = policy.str_at(["metadata", "namespace"]).is_some()
            && policy.str_at(["kind"]) == Some("Policy");
        let kind = if namespaced { "NamespacedValidatingPolicy" } else { "ValidatingPolicy" };
        let mut document = documents::envelope(policy, API_VERSION, kind, name);
        let mut spec = Map::new();
        spec.insert("validationActions", self.actions.clone());
        common_fields(policy, &mut spec, true);
        if let Some(autogen) = &self.autogen {
            spec.insert("autogen", autogen.clone());
        }
        spec.insert("matchConstraints", self.parts.matching.constraints(&self.parts.operations));
        insert_named(
            &mut spec,
            "matchConditions",
            self.parts.match_conditions.iter().map(|(name, cel)| (name.as_str(), cel)),
        );
        insert_named(
            &mut spec,
            "variables",
            self.parts.variables.iter().map(|variable| (variable.name.as_str(), &variable.cel)),
        );
        let validations: Value = self
            .parts
            .validations
            .iter()
            .map(|validation| {
                let mut fields = Map::new();
                fields.insert("expression", print(&bool_typed(&validation.cel)));
                match &validation.message {
                    Some(Message::Text(text)) => {
                        fields.insert("message", text.as_str());
                    }
                    Some(Message::Expression(cel)) => {
                        fields.insert("messageExpression", print(cel));
                    }
                    None => {}
                }
                Value::Map(fields)
            })
            .collect();
        spec.insert("validations", validations);
        if !self.parts.audit_annotations.is_empty() {
            spec.insert(
                "auditAnnotations",
                Value::List(self.parts.audit_annotations.clone().into()),
            );
        }
        document.insert("spec", spec);
        let mut converted = ConvertedDocument::of(Value::Map(document));
        let mut seen = Vec::new();
        for (number, at) in self.of.iter().enumerate() {
            if seen.contains(at) {
                continue;
            }
            seen.push(*at);
            let lines = comments.rules.get(*at).cloned().unwrap_or_default();
            if !lines.is_empty() {
                converted.inner.push((vec!["spec", "validations"], number, lines));
            }
        }
        converted
    }
}

/// The checker wants a boolean: what may be anything is compared.
fn bool_typed(cel: &Cel) -> Cel {
    match cel {
        Cel::Written(_) => cel.clone(),
        cel if cel.is_condition() => cel.clone(),
        cel => cel.clone().equals(Cel::bool(true)),
    }
}

pub(crate) fn insert_named<'n>(
    spec: &mut Map,
    field: &str,
    parts: impl Iterator<Item = (&'n str, &'n Cel)>,
) {
    let list: Vec<Value> = parts
        .map(|(name, cel)| value!({"name": name, "expression": print(&cel.clone())}))
        .collect();
    if !list.is_empty() {
        spec.insert(field, Value::List(list.into()));
    }
}

/// What policies of both languages say alike.
pub(crate) fn common_fields(policy: &Value, spec: &mut Map, checks: bool) {
    let old = policy.get("spec").unwrap_or(&Value::Null);
    let failure = old
        .get_path(["webhookConfiguration", "failurePolicy"])
        .or_else(|| old.get("failurePolicy"))
        .and_then(Value::as_str)
        .filter(|failure| *failure != "Fail");
    if let Some(failure) = failure {
        spec.insert("failurePolicy", failure);
    }
    let timeout = old
        .get_path(["webhookConfiguration", "timeoutSeconds"])
        .or_else(|| old.get("webhookTimeoutSeconds"));
    if let Some(timeout) = timeout {
        spec.insert("webhookConfiguration", value!({"timeoutSeconds": timeout.clone()}));
    }
    if !checks {
        return;
    }
    let mut evaluation = Map::new();
    if old.get("admission").and_then(Value::as_bool) == Some(false) {
        evaluation.insert("admission", value!({"enabled": false}));
    }
    if old.get("background").and_then(Value::as_bool) == Some(false) {
        evaluation.insert("background", value!({"enabled": false}));
    }
    if !evaluation.is_empty() {
        spec.insert("evaluation", evaluation);
    }
}
