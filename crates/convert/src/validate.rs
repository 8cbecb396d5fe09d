//! Validate rules as the parts of a ValidatingPolicy.

use kiln_object::Kinds;
use kiln_value::{Path, Value};

use crate::cel::Cel;
use crate::conditions_to_cel::conditions;
use crate::context::{self, CelVariable};
use crate::jmespath_to_cel::{Scope, translate};
use crate::matching::{Matching, matching};
use crate::patterns_to_cel::{element_pattern, pattern};
use crate::pod_security;
use crate::scope::{operations_of, rule_scope};
use crate::templates;
use crate::term::{Place, Term};
use crate::verdict::{CoveredRequests, Difference, Obstacle};

/// A validation: what must hold, and what to say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Validation {
    pub(crate) cel: Cel,
    pub(crate) message: Option<Message>,
}

/// What to say about an object that does not pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Text(String),
    Expression(Cel),
}

/// A rule, translated.
#[derive(Clone, Debug)]
pub(crate) struct ValidateRule {
    pub(crate) matching: Matching,
    pub(crate) operations: Vec<String>,
    /// What must hold besides, each under a name.
    pub(crate) match_conditions: Vec<(String, Cel)>,
    pub(crate) variables: Vec<CelVariable>,
    pub(crate) validations: Vec<Validation>,
    pub(crate) audit_annotations: Vec<Value>,
    pub(crate) differences: Vec<Difference>,
}

/// The checks that a rule may have.
pub(crate) const FORMS: [&str; 6] =
    ["pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel"];

const ALL_OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

/// The operations of a rule, and what is left of its preconditions when those on the operation are taken out.
pub(crate) struct RuleOperations {
    pub(crate) operations: Vec<String>,
    pub(crate) preconditions: Option<Value>,
    /// The rule itself says which operations it means.
    pub(crate) is_explicit: bool,
}

/// Finds the operations in a rule's filters and preconditions.
pub(crate) fn operations(rule: &Value, matching: &Matching) -> RuleOperations {
    let mut allowed: Vec<&str> = ALL_OPERATIONS.to_vec();
    let mut is_explicit = !matching.operations.is_empty();
    if is_explicit {
        allowed.retain(|operation| matching.operations.iter().any(|named| named == operation));
    }
    if !matching.excluded_operations.is_empty() {
        allowed
            .retain(|operation| !matching.excluded_operations.iter().any(|out| out == operation));
        is_explicit |= matching.excluded_operations.iter().any(|out| out == "DELETE");
    }
    let mut preconditions = rule.get("preconditions").cloned();
    if let Some(Value::Map(blocks)) = &mut preconditions {
        for word in ["all", "any"] {
            let Some(Value::List(list)) = blocks.get(word) else { continue };
            // Of several that may hold, one alone decides nothing.
            if word == "any" && list.len() > 1 {
                continue;
            }
            let mut rest = Vec::new();
            for condition in list {
                match operations_of(condition, &allowed) {
                    Some(kept) => {
                        allowed = kept;
                        is_explicit = true;
                    }
                    None => rest.push(condition.clone()),
                }
            }
            match rest.is_empty() {
                true => {
                    blocks.remove(word);
                }
                false => {
                    blocks.insert(word, Value::List(rest.into()));
                }
            }
        }
    }
    let preconditions = preconditions.filter(|value| match value {
        Value::Map(map) => !map.is_empty(),
        Value::List(list) => !list.is_empty(),
        _ => false,
    });
    if !matching.is_connection {
        allowed.retain(|operation| *operation != "CONNECT");
    } else if !matching.operations.iter().any(|operation| operation != "CONNECT") {
        allowed.retain(|operation| *operation == "CONNECT");
    }
    RuleOperations {
        operations: allowed.into_iter().map(str::to_owned).collect(),
        preconditions,
        is_explicit,
    }
}

/// Translates a validate rule.
pub(crate) fn validate_rule(
    rule: &Value,
    kinds: &Kinds,
    path: &Path,
) -> Result<ValidateRule, Obstacle> {
    let validate = rule.get("validate").unwrap_or(&Value::Null);
    let form = FORMS.into_iter().find(|form| validate.get(form).is_some());
    let Some(form) = form else {
        let word = ["manifests", "assert"].into_iter().find(|word| validate.get(word).is_some());
        let construct = format!("validate.{}", word.unwrap_or("without a check"));
        return Err(Obstacle::new(
            construct,
            "no CEL policy can do this: keep it in a policy of its own",
        )
        .at(&path.join("validate")));
    };
    let about = matching(rule, kinds, &Cel::name("object"), path)?;
    let mut found = operations(rule, &about);
    let mut differences = Vec::new();
    let sees_deleted = matches!(form, "deny" | "foreach" | "cel");
    if !sees_deleted || (!found.is_explicit && found.operations.len() > 1) {
        if sees_deleted && found.operations.iter().any(|operation| operation == "DELETE") {
            differences.push(Difference::weaker(
                "DELETE requests",
                "the rule names no operations, so it also refuses to delete objects that violate it; the new policy \
                 checks CREATE and UPDATE only (add DELETE to its operations, and read oldObject, to keep that)",
                CoveredRequests::Deletes,
            ));
        }
        found.operations.retain(|operation| operation != "DELETE");
    }
    if found.operations.is_empty() {
        return Err(Obstacle::new("a rule that no operation can fire", "delete the rule").at(path));
    }
    let deletes = found.operations.iter().any(|operation| operation == "DELETE");
    let only_deletes = deletes && found.operations.len() == 1;
    let mut variables = Vec::new();
    let object = match (only_deletes, deletes && form != "cel") {
        (true, _) => Cel::name("oldObject"),
        (false, true) => {
            let is_deleted = Cel::name("request").select("operation").equals(Cel::text("DELETE"));
            let cel = Cel::choose(is_deleted, Cel::name("oldObject"), Cel::name("object"));
            variables.push(CelVariable { name: "resource".to_owned(), cel });
            Cel::name("variables").select("resource")
        }
        _ => Cel::name("object"),
    };
    let about =
        if object == Cel::name("object") { about } else { matching(rule, kinds, &object, path)? };
    let mut scope = rule_scope(&object, &about.shape());
    context::add(
        rule.get("context"),
        kinds,
        &mut scope,
        Some(&mut variables),
        &path.join("context"),
    )?;
    let mut guards: Vec<Cel> = Vec::new();
    if let Some(preconditions) = &found.preconditions {
        match conditions(preconditions, &scope, &path.join("preconditions"))? {
            Cel::All(parts) => guards.extend(parts),
            one => guards.push(one),
        }
    }
    let at = path.join("validate").join(form);
    let mut building =
        Building { kinds, scope, variables, guards, path: at, audit_annotations: Vec::new() };
    let place = Place::of(object, about.shape());
    let checks = building.checks(form, validate, &place)?;
    let message = message(validate, &building.scope);
    differences.extend(building.scope.notes());
    let Building { variables, guards, audit_annotations, .. } = building;
    let mut match_conditions = about.conditions.clone();
    let (named, late): (Vec<Cel>, Vec<Cel>) = guards
        .into_iter()
        .filter(|guard| !guard.is_bool(true))
        .partition(|guard| !guard.mentions("variables"));
    let several = named.len() > 1;
    for (at, guard) in named.into_iter().enumerate() {
        let name =
            if several { format!("precondition-{}", at + 1) } else { "preconditions".to_owned() };
        match_conditions.push((name, guard));
    }
    let written = rule.get("celPreconditions").and_then(Value::as_list);
    for condition in written.into_iter().flat_map(|list| list.iter()) {
        let text = |field: &str| condition.str_at([field]).unwrap_or_default().trim().to_owned();
        match_conditions.push((text("name"), Cel::Written(text("expression"))));
    }
    let late = Cel::all(late).negate();
    let validations = checks
        .into_iter()
        .map(|check| Validation {
            cel: Cel::any([late.clone(), check.cel]),
            message: check.message.or_else(|| message.clone()),
        })
        .collect();
    Ok(ValidateRule {
        operations: found.operations,
        matching: about,
        match_conditions,
        variables,
        validations,
        audit_annotations,
        differences,
    })
}

struct Building<'b> {
    kinds: &'b Kinds,
    scope: Scope,
    variables: Vec<CelVariable>,
    /// What must hold for the rule to say anything.
    guards: Vec<Cel>,
    path: Path,
    audit_annotations: Vec<Value>,
}

impl Building<'_> {
    fn checks(
        &mut self,
        form: &str,
        validate: &Value,
        object: &Place,
    ) -> Result<Vec<Validation>, Obstacle> {
        let check = validate.get(form).unwrap_or(&Value::Null);
        let one = |cel: Cel| Ok(vec![Validation { cel, message: None }]);
        match form {
            "pattern" => {
                let asked = pattern(check, object, &self.scope, &self.path)?;
                self.guards.extend(asked.guards);
                one(Cel::all(asked.checks))
            }
            "anyPattern" => {
                let mut each = Vec::new();
                let mut guarded = Vec::new();
                for (at, element) in
                    check.as_list().into_iter().flat_map(|list| list.iter()).enumerate()
                {
                    let asked = pattern(element, object, &self.scope, &self.path.join(at))?;
                    let guard = Cel::all(asked.guards);
                    guarded.push(guard.clone());
                    each.push(Cel::all([guard, Cel::all(asked.checks)]));
                }
                let none = Cel::all(guarded.into_iter().map(Cel::negate));
                one(Cel::any(each.into_iter().chain([none])))
            }
            "deny" => one(self.deny(check)?.negate()),
            "foreach" => {
                let scope = self.scope.clone();
                let mut found = Vec::new();
                for (at, entry) in
                    check.as_list().into_iter().flat_map(|list| list.iter()).enumerate()
                {
                    let path = self.path.join(at);
                    let cel = self.foreach(entry, &scope, 0, &path)?;
                    found.push(Validation { cel, message: None });
                }
                Ok(found)
            }
            "podSecurity" => {
                let controls = pod_security::validations(check, object, &self.path)?;
                Ok(controls
                    .into_iter()
                    .map(|(cel, message)| Validation { cel, message: Some(Message::Text(message)) })
                    .collect())
            }
            _ => self.written(check),
        }
    }

    fn deny(&mut self, check: &Value) -> Result<Cel, Obstacle> {
        match check.get("conditions") {
            None | Some(Value::Null) => Ok(Cel::bool(true)),
            Some(found) => conditions(found, &self.scope, &self.path.join("conditions")),
        }
    }

    /// An entry of `foreach`: what must hold for each element of its list.
    fn foreach(
        &mut self,
        entry: &Value,
        scope: &Scope,
        depth: usize,
        path: &Path,
    ) -> Result<Cel, Obstacle> {
        let list = translate(entry.str_at(["list"]).unwrap_or_default(), scope)
            .map_err(|obstacle| obstacle.at(&path.join("list")))?;
        let mut cel = list.list();
        let is_sum = matches!(&cel, Cel::Binary(crate::cel::Operator::Plus, ..));
        if is_sum && depth == 0 && !cel.mentions("element") {
            cel = self.hoisted(cel);
        }
        let mut inner = scope.clone();
        let name = inner.fresh(&cel);
        let element = Term::Value(Cel::name(&name), list.shape().element());
        inner.set("element", element.clone());
        inner.set(&format!("element{depth}"), element.clone());
        context::add(entry.get("context"), self.kinds, &mut inner, None, &path.join("context"))?;
        let mut guards = Vec::new();
        if let Some(preconditions) = entry.get("preconditions") {
            guards.push(conditions(preconditions, &inner, &path.join("preconditions"))?);
        }
        let check = if let Some(wanted) = entry.get("pattern") {
            element_pattern(wanted, &element, &inner, &path.join("pattern"))?
        } else if let Some(Value::List(patterns)) = entry.get("anyPattern") {
            let mut each = Vec::new();
            for (at, wanted) in patterns.iter().enumerate() {
                each.push(element_pattern(
                    wanted,
                    &element,
                    &inner,
                    &path.join("anyPattern").join(at),
                )?);
            }
            Cel::any(each)
        } else if let Some(deny) = entry.get("deny") {
            let path = path.join("deny").join("conditions");
            match deny.get("conditions") {
                Some(found) => conditions(found, &inner, &path)?.negate(),
                None => Cel::bool(false),
            }
        } else {
            let loops = entry.get("foreach").and_then(Value::as_list);
            let mut each = Vec::new();
            for (at, nested) in loops.into_iter().flat_map(|list| list.iter()).enumerate() {
                each.push(self.foreach(
                    nested,
                    &inner,
                    depth + 1,
                    &path.join("foreach").join(at),
                )?);
            }
            Cel::all(each)
        };
        Ok(cel.each("all", &name, Cel::any([Cel::all(guards).negate(), check])))
    }

    /// A list of its own, as a variable.
    fn hoisted(&mut self, list: Cel) -> Cel {
        let known = self.variables.iter().find(|variable| variable.cel == list);
        let name = match known {
            Some(known) => known.name.clone(),
            None => {
                let text = crate::cel_printer::print_flat(&list);
                let wanted = if text.contains("ontainers") && !text.contains(".map(") {
                    "allContainers"
                } else {
                    "items"
                };
                let mut name = wanted.to_owned();
                let mut number = 2;
                while self.variables.iter().any(|variable| variable.name == name) {
                    name = format!("{wanted}{number}");
                    number += 1;
                }
                self.variables.push(CelVariable { name: name.clone(), cel: list });
                name
            }
        };
        Cel::name("variables").select(&name)
    }

    /// `validate.cel`: expressions that are written in CEL already.
    fn written(&mut self, check: &Value) -> Result<Vec<Validation>, Obstacle> {
        if check.get("paramKind").is_some() || check.get("paramRef").is_some() {
            return Err(Obstacle::new(
                "validate.cel.paramKind",
                "read the parameters with resource.Get in a variable",
            )
            .at(&self.path));
        }
        let texts = |list: Option<&Value>| -> Vec<Value> {
            list.and_then(Value::as_list)
                .map(|list| list.iter().cloned().collect())
                .unwrap_or_default()
        };
        for variable in texts(check.get("variables")) {
            let name = variable.str_at(["name"]).unwrap_or_default().to_owned();
            let text = variable.str_at(["expression"]).unwrap_or_default();
            self.variables.push(CelVariable { name, cel: Cel::Written(text.trim().to_owned()) });
        }
        self.audit_annotations = texts(check.get("auditAnnotations"));
        let mut found = Vec::new();
        for (at, expression) in texts(check.get("expressions")).iter().enumerate() {
            let text = expression.str_at(["expression"]).unwrap_or_default();
            if text.contains("authorizer") || text.contains("params.") {
                let word = if text.contains("authorizer") { "authorizer" } else { "params" };
                let path = self.path.join("expressions").join(at);
                return Err(Obstacle::new(
                    format!("{word} in an expression"),
                    "ask with resource.Post for an access review",
                )
                .at(&path));
            }
            let message =
                match (expression.str_at(["messageExpression"]), expression.str_at(["message"])) {
                    (Some(cel), _) => {
                        Some(Message::Expression(Cel::Written(cel.trim().to_owned())))
                    }
                    (None, Some(text)) => Some(Message::Text(text.to_owned())),
                    (None, None) => None,
                };
            found.push(Validation { cel: Cel::Written(text.trim().to_owned()), message });
        }
        Ok(found)
    }
}

/// The message of a rule: an expression if it holds variables that can be translated.
fn message(validate: &Value, scope: &Scope) -> Option<Message> {
    let text = validate.str_at(["message"])?.trim();
    if !templates::has_variables(&Value::from(text)) {
        return Some(Message::Text(text.to_owned()));
    }
    match templates::text_term(text, scope) {
        Ok(term) => Some(Message::Expression(term.strict())),
        Err(_) => Some(Message::Text(text.replace("{{", "").replace("}}", ""))),
    }
}
