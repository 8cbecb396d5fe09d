//! The CEL rules of a schema (`x-kubernetes-validations`).

use kiln_cel::{Budget, Env, NoHost, Program, Session, Type};
use kiln_value::{Map, Value};

use super::validate::MOST;

use crate::status::{FieldProblem, FieldProblemKind};

/// What all rules may cost together for one object, in the units of Kubernetes, and what each costs besides.
const BUDGET: u64 = 10_000_000;
const EACH: u64 = 20;

/// The rules of a schema, compiled, each at its place.
#[derive(Debug, Default)]
pub(crate) struct SchemaRules {
    env: Option<Env>,
    root: SchemaRuleNode,
}

#[derive(Debug, Default)]
struct SchemaRuleNode {
    rules: Vec<SchemaRule>,
    fields: Vec<(String, SchemaRuleNode)>,
    items: Option<Box<SchemaRuleNode>>,
    entries: Option<Box<SchemaRuleNode>>,
}

#[derive(Debug)]
struct SchemaRule {
    program: Result<Program, String>,
    source: String,
    message: Option<String>,
    message_expression: Option<Program>,
    field_path: String,
    reason: String,
    /// Whether it compares with what was there before.
    transition: bool,
}

impl SchemaRuleNode {
    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.fields.is_empty()
            && self.items.is_none()
            && self.entries.is_none()
    }
}

impl SchemaRules {
    pub(crate) fn compile(schema: Option<&Value>) -> Self {
        let Some(schema) = schema else { return SchemaRules::default() };
        let env = environment();
        let root = read(schema, &env);
        if root.is_empty() { SchemaRules::default() } else { SchemaRules { env: Some(env), root } }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.env.is_none()
    }

    /// What is wrong with an object, given what it was before.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        if let Some(env) = &self.env {
            let mut checking = Checking { env, left: BUDGET, problems: &mut problems };
            checking.walk(&self.root, object, old, "");
            if checking.left == 0 {
                let why = "validation failed due to running out of cost budget, no further validation rules will be run";
                problems.push(FieldProblem::new("<nil>", FieldProblemKind::Rule(why.to_owned())));
            }
        }
        problems
    }
}

/// What rules are written against.
pub(super) fn environment() -> Env {
    Env::suite().extend().variable("self", Type::Dyn).variable("oldSelf", Type::Dyn).build()
}

fn read(schema: &Value, env: &Env) -> SchemaRuleNode {
    let mut node = SchemaRuleNode::default();
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_list);
    for rule in rules.into_iter().flat_map(|rules| rules.iter()) {
        let text = |field: &str| rule.str_at([field]).unwrap_or_default();
        let source = text("rule").to_owned();
        node.rules.push(SchemaRule {
            program: env.compile(&source).map_err(|error| error.to_string()),
            transition: source.contains("oldSelf"),
            message: rule.str_at(["message"]).map(|text| text.trim().to_owned()),
            message_expression: rule
                .str_at(["messageExpression"])
                .and_then(|text| env.compile(text).ok()),
            field_path: text("fieldPath").to_owned(),
            reason: text("reason").to_owned(),
            source,
        });
    }
    for (name, inner) in
        schema.get("properties").and_then(Value::as_map).into_iter().flat_map(Map::iter)
    {
        let inner = read(inner, env);
        if !inner.is_empty() {
            node.fields.push((name.to_string(), inner));
        }
    }
    let inner = |field: &str| {
        let inner = schema.get(field).filter(|inner| inner.as_map().is_some())?;
        let inner = read(inner, env);
        (!inner.is_empty()).then(|| Box::new(inner))
    };
    node.items = inner("items");
    node.entries = inner("additionalProperties");
    node
}

/// One object while the rules check it.
struct Checking<'c> {
    env: &'c Env,
    left: u64,
    problems: &'c mut Vec<FieldProblem>,
}

impl Checking<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 || self.problems.len() >= MOST
    }

    fn walk(&mut self, node: &SchemaRuleNode, value: &Value, old: Option<&Value>, path: &str) {
        // A long path is copied for every value below it.
        self.left = self.left.saturating_sub(1 + path.len() as u64 / 16);
        for rule in &node.rules {
            if self.is_over() {
                return;
            }
            if rule.transition && old.is_none() {
                continue;
            }
            let most = self.left;
            let spent = check(self.env, rule, value, old, path, most, self.problems);
            self.left = self.left.saturating_sub(spent + EACH);
        }
        let join =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Map(map) => {
                for (name, inner) in &node.fields {
                    if self.is_over() {
                        return;
                    }
                    if let Some(value) = map.get(name).filter(|value| !value.is_null()) {
                        let old = old.and_then(|old| old.get(name));
                        self.walk(inner, value, old, &join(name));
                    }
                }
                if let Some(inner) = &node.entries {
                    for (key, value) in map {
                        if self.is_over() {
                            return;
                        }
                        self.walk(inner, value, old.and_then(|old| old.get(key)), &join(key));
                    }
                }
            }
            Value::List(list) => {
                if let Some(inner) = &node.items {
                    for (i, value) in list.iter().enumerate() {
                        if self.is_over() {
                            return;
                        }
                        self.walk(inner, value, None, &format!("{path}[{i}]"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Checks one rule; what that cost.
fn check(
    env: &Env,
    rule: &SchemaRule,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    most: u64,
    problems: &mut Vec<FieldProblem>,
) -> u64 {
    let at = format!("{path}{}", rule.field_path);
    let at = at.trim_start_matches('.').to_owned();
    let failed = |why: String| {
        let kind = match rule.reason.as_str() {
            "FieldValueRequired" => FieldProblemKind::Required(why),
            "FieldValueForbidden" => FieldProblemKind::Forbidden(why),
            "FieldValueDuplicate" => FieldProblemKind::Duplicate(value.clone()),
            _ => FieldProblemKind::Rule(why),
        };
        FieldProblem::new(if at.is_empty() { "<nil>" } else { &at }, kind)
    };
    let program = match &rule.program {
        Ok(program) => program,
        Err(error) => {
            problems.push(failed(format!("rule compile error: {error}")));
            return 0;
        }
    };
    let mut host = NoHost;
    let budget = Budget { total: most, ..Budget::default() };
    let mut session = Session::with_budget(env, &mut host, budget);
    session.set("self", value.clone());
    session.set("oldSelf", old.cloned().unwrap_or_default());
    match session.eval(program).map(|result| result.as_bool()) {
        Ok(Some(true)) => {}
        Ok(_) => {
            let words = rule.message_expression.as_ref().and_then(|program| {
                session.eval(program).ok().and_then(|text| text.as_str().map(str::to_owned))
            });
            let usual = || format!("failed rule: {}", rule.source);
            problems.push(failed(words.or_else(|| rule.message.clone()).unwrap_or_else(usual)));
        }
        Err(error) => problems.push(failed(error.to_string())),
    }
    session.cost()
}
