//! Checks the schema of a custom kind itself.

use kiln_text::Regex;
use kiln_value::{Map, Value};

use super::rules::environment;
use super::validate::MOST;
use crate::status::FieldProblem;

/// The most parts of a schema.
const PARTS: usize = 200_000;
/// The most patterns and rules of a schema: each is compiled.
const COMPILED: usize = 2_000;

/// What is wrong with a schema at a path.
pub(crate) fn schema_problems(schema: &Value, path: &str) -> Vec<FieldProblem> {
    let mut checking =
        Checking { env: None, parts: PARTS, compiled: COMPILED, problems: Vec::new() };
    checking.walk(schema, path);
    if checking.parts == 0 {
        let why = format!("must have at most {PARTS} parts");
        checking.problems.push(FieldProblem::forbidden(path, &why));
    } else if checking.compiled == 0 {
        let why = format!("must have at most {COMPILED} patterns and validation rules");
        checking.problems.push(FieldProblem::forbidden(path, &why));
    }
    checking.problems
}

struct Checking {
    /// Made when the first rule is met.
    env: Option<kiln_cel::Env>,
    parts: usize,
    compiled: usize,
    problems: Vec<FieldProblem>,
}

impl Checking {
    fn walk(&mut self, schema: &Value, path: &str) {
        // A long path is copied for every part below it.
        self.parts = self.parts.saturating_sub(1 + path.len() / 256);
        if self.parts == 0 || self.compiled == 0 || self.problems.len() >= MOST {
            return;
        }
        if schema.str_at(["$ref"]).is_some_and(|to| !to.is_empty()) {
            let why = "$ref is not supported";
            self.problems.push(FieldProblem::forbidden(format!("{path}.$ref"), why));
        }
        if let Some(pattern) = schema.str_at(["pattern"]) {
            self.compiled = self.compiled.saturating_sub(1);
            if let Err(error) = Regex::new(pattern) {
                let why = format!("must be a valid regular expression, but isn't: {error}");
                self.problems.push(FieldProblem::invalid(format!("{path}.pattern"), pattern, why));
            }
        }
        self.rules(schema, path);
        for field in ["properties", "patternProperties", "definitions"] {
            let inner = schema.get(field).and_then(Value::as_map);
            for (name, inner) in inner.into_iter().flat_map(Map::iter) {
                self.walk(inner, &format!("{path}.{field}[{name}]"));
                if self.parts == 0 {
                    return;
                }
            }
        }
        for field in ["items", "additionalProperties", "not"] {
            if let Some(inner) = schema.get(field).filter(|inner| inner.as_map().is_some()) {
                self.walk(inner, &format!("{path}.{field}"));
            }
        }
        for field in ["allOf", "anyOf", "oneOf"] {
            let inner = schema.get(field).and_then(Value::as_list);
            for (i, inner) in inner.into_iter().flat_map(|list| list.iter()).enumerate() {
                self.walk(inner, &format!("{path}.{field}[{i}]"));
                if self.parts == 0 {
                    return;
                }
            }
        }
    }

    fn rules(&mut self, schema: &Value, path: &str) {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_list);
        for (i, rule) in rules.into_iter().flat_map(|rules| rules.iter()).enumerate() {
            for field in ["rule", "messageExpression"] {
                let Some(text) = rule.str_at([field]).filter(|text| !text.is_empty()) else {
                    continue;
                };
                self.compiled = self.compiled.saturating_sub(1);
                if self.compiled == 0 {
                    return;
                }
                let env = self.env.get_or_insert_with(environment);
                if let Err(error) = env.compile(text) {
                    let at = format!("{path}.x-kubernetes-validations[{i}].{field}");
                    let why = format!("compilation failed: {error}");
                    self.problems.push(FieldProblem::invalid(at, text, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn schemas_that_cannot_be_used_are_refused() {
        let check = |schema: Value| -> Vec<String> {
            schema_problems(&schema, "s").iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            check(value!({"properties": {"a": {"$ref": "#/definitions/a"}}})),
            ["s.properties[a].$ref: Forbidden: $ref is not supported"]
        );
        let told = check(value!({"items": {"pattern": "("}}));
        assert!(
            told[0].starts_with(
                r#"s.items.pattern: Invalid value: "(": must be a valid regular expression, but isn't: "#
            ),
            "{told:?}"
        );
        let told = check(value!({"allOf": [{"x-kubernetes-validations": [{"rule": "self.a >"}]}]}));
        assert!(
            told[0].starts_with(
                r#"s.allOf[0].x-kubernetes-validations[0].rule: Invalid value: "self.a >": compilation failed: "#
            ),
            "{told:?}"
        );
        assert!(check(value!({"x-kubernetes-validations": [{"rule": "self.a > 1"}]})).is_empty());
        let mut large = value!({});
        let all = Value::from(vec![value!({"type": "string"}); PARTS]);
        large.set(["anyOf"], all).unwrap();
        assert_eq!(check(large), ["s: Forbidden: must have at most 200000 parts"]);
        let mut many = value!({});
        let all = Value::from(vec![value!({"pattern": "a"}); COMPILED]);
        many.set(["anyOf"], all).unwrap();
        assert_eq!(
            check(many),
            ["s: Forbidden: must have at most 2000 patterns and validation rules"]
        );
    }
}
