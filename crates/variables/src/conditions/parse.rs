//! Reading conditions from a document.

use std::fmt;

use kiln_diagnostic::did_you_mean;
use kiln_value::{List, Map, Path, Value};

use super::{Condition, ConditionOperator, Conditions};
use crate::template::Template;

/// Conditions that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseConditionsError {
    /// The place at fault.
    pub path: Path,
    /// What is wrong there.
    pub problem: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl fmt::Display for ParseConditionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_root() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ParseConditionsError {}

fn wrong(path: &Path, problem: impl Into<String>, hint: Option<String>) -> ParseConditionsError {
    ParseConditionsError { path: path.clone(), problem: problem.into(), hint }
}

impl Conditions {
    /// Reads conditions: a map with `any` and `all`, a plain list, or null for none.
    ///
    /// # Errors
    /// When the form is another one, or an operator is unknown.
    pub fn parse(document: &Value) -> Result<Self, ParseConditionsError> {
        Self::parse_at(document, &Path::root())
    }

    /// Reads conditions that stand at a place of a larger document; places in errors count from there.
    ///
    /// # Errors
    /// As [`Conditions::parse`].
    pub fn parse_at(document: &Value, path: &Path) -> Result<Self, ParseConditionsError> {
        let mut conditions = Conditions::default();
        match document {
            Value::Null => {}
            Value::List(list) => {
                conditions.plain_list = true;
                conditions.all = conditions.list(list, path)?;
            }
            Value::Map(map) => {
                for (field, value) in map {
                    let path = path.join(field);
                    match field.as_str() {
                        "any" => conditions.any = conditions.block(value, &path)?,
                        "all" => {
                            conditions.all = conditions.block(value, &path)?.unwrap_or_default();
                        }
                        _ => conditions.unknown_fields.push(path),
                    }
                }
            }
            other => {
                let problem =
                    format!("conditions are a map or a list, not a {}", other.type_name());
                return Err(wrong(path, problem, Some("write any: or all: and a list".into())));
            }
        }
        Ok(conditions)
    }

    fn block(
        &mut self,
        block: &Value,
        path: &Path,
    ) -> Result<Option<Vec<Condition>>, ParseConditionsError> {
        match block {
            Value::Null => Ok(None),
            Value::List(list) => self.list(list, path).map(Some),
            other => {
                let problem =
                    format!("expected a list of conditions, found a {}", other.type_name());
                Err(wrong(path, problem, Some("put a dash in front of the condition".into())))
            }
        }
    }

    fn list(&mut self, list: &List, path: &Path) -> Result<Vec<Condition>, ParseConditionsError> {
        let mut conditions = Vec::with_capacity(list.len());
        for (at, condition) in list.iter().enumerate() {
            let path = path.join(at);
            let Value::Map(fields) = condition else {
                let problem = format!("expected a condition, found a {}", condition.type_name());
                let hint = "a condition has a key, an operator and a value";
                return Err(wrong(&path, problem, Some(hint.into())));
            };
            conditions.push(self.condition(fields, path)?);
        }
        Ok(conditions)
    }

    fn condition(&mut self, fields: &Map, path: Path) -> Result<Condition, ParseConditionsError> {
        let (mut key, mut value) = (&Value::Null, &Value::Null);
        let (mut operator, mut message) = (None, None);
        for (field, content) in fields {
            match field.as_str() {
                "key" => key = content,
                "value" => value = content,
                "operator" => operator = Some(read_operator(content, &path.join("operator"))?),
                "message" => message = read_message(content, &path.join("message"))?,
                _ => self.unknown_fields.push(path.join(field)),
            }
        }
        let Some(operator) = operator else {
            let nested = fields.contains_key("any") || fields.contains_key("all");
            let hint = if nested {
                "any and all stand at the top, not inside a list".into()
            } else {
                format!("add an operator: {}", operators())
            };
            return Err(wrong(&path, "a condition without an operator", Some(hint)));
        };
        let (key, value) = (Template::compile(key), Template::compile(value));
        Ok(Condition { path, key, operator, value, message })
    }
}

fn read_operator(value: &Value, path: &Path) -> Result<ConditionOperator, ParseConditionsError> {
    let Some(name) = value.as_str() else {
        let problem = format!("an operator is a name, not a {}", value.type_name());
        return Err(wrong(path, problem, Some(format!("use one of {}", operators()))));
    };
    ConditionOperator::named(name).ok_or_else(|| {
        let hint = match did_you_mean(name, ConditionOperator::names()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("use one of {}", operators()),
        };
        // Kyverno's words, for those who search for them.
        let problem = format!("entered value of `operator` is invalid: {name:?}");
        wrong(path, problem, Some(hint))
    })
}

fn read_message(value: &Value, path: &Path) -> Result<Option<Template>, ParseConditionsError> {
    match value {
        Value::Null => Ok(None),
        Value::String(_) => Ok(Some(Template::compile(value))),
        other => {
            let problem = format!("a message is text, not a {}", other.type_name());
            Err(wrong(path, problem, Some("put it in quotes".into())))
        }
    }
}

fn operators() -> String {
    ConditionOperator::names().collect::<Vec<_>>().join(", ")
}
