//! Label selectors: `a=b,c!=d,e in (x,y),!f,g`, and the form with `matchLabels` and
//! `matchExpressions`.
//!
//! A [`Selector`] is a list of requirements that must all hold; without any it selects everything.
//! Both forms are checked as Kubernetes checks them. [`WildcardSelector`] is Kyverno's variant, whose
//! `matchLabels` may contain wildcards.

mod parse;
mod wildcard;

use std::borrow::Cow;
use std::fmt;

use kiln_text::names;
use kiln_text::quote::quote;
use kiln_value::{Map, Value};

use crate::metadata::scalar_text;

pub use wildcard::WildcardSelector;

/// A condition on labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    /// Set for the selector that is absent where one is needed.
    nothing: bool,
}

/// One condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: SelectorOperator,
    /// Sorted, without duplicates.
    values: Vec<String>,
}

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// `key=value`
    Equals,
    /// `key==value`
    DoubleEquals,
    /// `key!=value`; also holds without the label.
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; also holds without the label.
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>5`
    GreaterThan,
    /// `key<5`
    LessThan,
}

/// Why something is not a selector, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl Requirement {
    /// A checked requirement; `path` is the field it stands in, for messages, or empty.
    ///
    /// # Errors
    /// When the key or a value is not a label's, or the number of values does not fit the operator.
    pub fn new(
        key: &str,
        operator: SelectorOperator,
        values: impl IntoIterator<Item = String>,
        path: &str,
    ) -> Result<Self, SelectorError> {
        let mut values: Vec<String> = values.into_iter().collect();
        let child = |field: &str| {
            if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
        };
        let mut problems = Vec::new();
        problems.extend(invalid_key(key, &child("key")));
        let wrong_count = match operator {
            SelectorOperator::In | SelectorOperator::NotIn => values
                .is_empty()
                .then_some("for 'in', 'notin' operators, values set can't be empty"),
            SelectorOperator::Equals
            | SelectorOperator::DoubleEquals
            | SelectorOperator::NotEquals => {
                (values.len() != 1).then_some("exact-match compatibility requires one single value")
            }
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => (!values.is_empty())
                .then_some("values set must be empty for exists and does not exist"),
            SelectorOperator::GreaterThan | SelectorOperator::LessThan => (values.len() != 1)
                .then_some("for 'Gt', 'Lt' operators, exactly one value is required"),
        };
        if let Some(problem) = wrong_count {
            let quoted: Vec<_> = values.iter().map(|value| quote(value)).collect();
            let place = child("values");
            problems.push(format!("{place}: Invalid value: [{}]: {problem}", quoted.join(",")));
        }
        for (i, value) in values.iter().enumerate() {
            let place = format!("{}[{i}]", child("values"));
            if matches!(operator, SelectorOperator::GreaterThan | SelectorOperator::LessThan)
                && value.parse::<i64>().is_err()
            {
                let problem = "for 'Gt', 'Lt' operators, the value must be an integer";
                problems.push(format!("{place}: Invalid value: {}: {problem}", quote(value)));
            }
            let found = names::label_value(value);
            if !found.is_empty() {
                let found = found.join("; ");
                problems.push(format!("{place}[{key}]: Invalid value: {}: {found}", quote(value)));
            }
        }
        match problems.as_slice() {
            [] => {}
            [problem] => return Err(SelectorError(problem.clone())),
            problems => return Err(SelectorError(format!("[{}]", problems.join(", ")))),
        }
        values.sort_unstable();
        values.dedup();
        Ok(Requirement { key: key.to_owned(), operator, values })
    }

    /// The label it is about.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How it compares.
    pub fn operator(&self) -> SelectorOperator {
        self.operator
    }

    /// What it compares with, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the label must be there, with one of the values.
    fn asks_for_a_value(&self) -> bool {
        use SelectorOperator::{DoubleEquals, Equals, In};
        matches!(self.operator, In | Equals | DoubleEquals)
    }

    /// Whether it holds for the value of its label, `None` if there is no such label.
    fn holds(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        let compared = |greater: bool| {
            let label: Option<i64> = label.and_then(|label| label.parse().ok());
            let bound: Option<i64> = self.values.first().and_then(|value| value.parse().ok());
            label.zip(bound).is_some_and(|(a, b)| if greater { a > b } else { a < b })
        };
        match self.operator {
            SelectorOperator::In | SelectorOperator::Equals | SelectorOperator::DoubleEquals => {
                label.is_some_and(listed)
            }
            SelectorOperator::NotIn | SelectorOperator::NotEquals => !label.is_some_and(listed),
            SelectorOperator::Exists => label.is_some(),
            SelectorOperator::DoesNotExist => label.is_none(),
            SelectorOperator::GreaterThan => compared(true),
            SelectorOperator::LessThan => compared(false),
        }
    }
}

fn invalid_key(key: &str, place: &str) -> Option<String> {
    let found = names::qualified_name(key);
    (!found.is_empty())
        .then(|| format!("{place}: Invalid value: {}: {}", quote(key), found.join("; ")))
}

impl Selector {
    /// Selects everything.
    pub fn everything() -> Self {
        Selector::default()
    }

    /// Selects nothing.
    pub fn nothing() -> Self {
        Selector { requirements: Vec::new(), nothing: true }
    }

    /// Selects what meets all the requirements.
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Selector { requirements, nothing: false }
    }

    /// Reads the text form. The empty text selects everything.
    ///
    /// # Errors
    /// With Kubernetes' text, on bad syntax and on keys and values that no label can have.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text).map(Selector::new)
    }

    /// Reads the form with `matchLabels` and `matchExpressions`. An empty map selects everything, null
    /// selects nothing.
    ///
    /// # Errors
    /// When a field has the wrong type, an operator is unknown, or a key, value or number of values is
    /// not allowed; the message begins with the field.
    pub fn from_value(selector: &Value) -> Result<Self, SelectorError> {
        let fields = match selector {
            Value::Null => return Ok(Selector::nothing()),
            selector => expect_map(selector, "the selector")?,
        };
        let mut requirements = Vec::new();
        for (key, value) in match_labels(fields)? {
            requirements.push(label_requirement(&key, &value)?);
        }
        requirements.extend(match_expressions(fields)?);
        Ok(Selector::new(requirements))
    }

    /// Selects what has all these labels.
    ///
    /// # Errors
    /// When one of them is not a possible label.
    pub fn from_labels<'l>(
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<Self, SelectorError> {
        let requirement = |(key, value)| {
            Requirement::new(key, SelectorOperator::Equals, [str::to_owned(value)], "")
        };
        Ok(Selector::new(labels.into_iter().map(requirement).collect::<Result<_, _>>()?))
    }

    /// What must hold.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether it selects an object with these labels (or annotations).
    pub fn matches(&self, labels: Option<&Map>) -> bool {
        self.matches_with(|key| labels?.get(key).and_then(scalar_text))
    }

    /// Whether it selects an object whose labels a function knows.
    pub fn matches_with<'l>(&self, label: impl Fn(&str) -> Option<Cow<'l, str>>) -> bool {
        !self.nothing && self.requirements.iter().all(|one| one.holds(label(&one.key).as_deref()))
    }
}

fn expect_map<'v>(value: &'v Value, what: &str) -> Result<&'v Map, SelectorError> {
    value.as_map().ok_or_else(|| wrong_type(what, "a map", value))
}

fn wrong_type(what: &str, wanted: &str, found: &Value) -> SelectorError {
    SelectorError(format!("{what} must be {wanted}, not {}", found.type_name()))
}

/// The pairs of `matchLabels`, as texts.
fn match_labels(selector: &Map) -> Result<Vec<(String, String)>, SelectorError> {
    let labels = match selector.get("matchLabels") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(labels) => expect_map(labels, "matchLabels")?,
    };
    let pair = |(key, value): (&kiln_value::Key, &Value)| match value.as_str() {
        Some(value) => Ok((key.as_str().to_owned(), value.to_owned())),
        None => Err(wrong_type(&format!("matchLabels[{}]", key.as_str()), "a string", value)),
    };
    labels.iter().map(|(key, value)| pair((key, value))).collect()
}

fn label_requirement(key: &str, value: &str) -> Result<Requirement, SelectorError> {
    Requirement::new(key, SelectorOperator::Equals, [value.to_owned()], "matchLabels")
}

fn match_expressions(selector: &Map) -> Result<Vec<Requirement>, SelectorError> {
    let expressions = match selector.get("matchExpressions") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::List(expressions)) => expressions,
        Some(other) => return Err(wrong_type("matchExpressions", "a list", other)),
    };
    let read = |(i, expression): (usize, &Value)| {
        let path = format!("matchExpressions[{i}]");
        let fields = expect_map(expression, &path)?;
        let text = |field: &str| match fields.get(field) {
            None | Some(Value::Null) => Ok(""),
            Some(value) => value
                .as_str()
                .ok_or_else(|| wrong_type(&format!("{path}.{field}"), "a string", value)),
        };
        let operator = match text("operator")? {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            other => {
                let other = quote(other);
                let hint = "use In, NotIn, Exists or DoesNotExist";
                return Err(SelectorError(format!(
                    "{path}.operator: {other} is not a valid label selector operator; {hint}"
                )));
            }
        };
        let values = match fields.get("values") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::List(values)) => values
                .iter()
                .enumerate()
                .map(|(j, value)| {
                    let place = format!("{path}.values[{j}]");
                    let text = value.as_str().ok_or_else(|| wrong_type(&place, "a string", value));
                    text.map(str::to_owned)
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(wrong_type(&format!("{path}.values"), "a list", other)),
        };
        Requirement::new(text("key")?, operator, values, &path)
    };
    expressions.iter().enumerate().map(read).collect()
}

impl fmt::Display for Selector {
    /// Prints the text form. A selector of nothing has none and prints as `!!`, which does not parse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing {
            return f.write_str("!!");
        }
        for (i, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            SelectorOperator::Equals => write!(f, "{key}={values}"),
            SelectorOperator::DoubleEquals => write!(f, "{key}=={values}"),
            SelectorOperator::NotEquals => write!(f, "{key}!={values}"),
            SelectorOperator::In => write!(f, "{key} in ({values})"),
            SelectorOperator::NotIn => write!(f, "{key} notin ({values})"),
            SelectorOperator::Exists => f.write_str(key),
            SelectorOperator::DoesNotExist => write!(f, "!{key}"),
            SelectorOperator::GreaterThan => write!(f, "{key}>{values}"),
            SelectorOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn both_forms_select_alike() {
        let labels = value!({"app": "web", "tier": "front", "n": "5", "empty": "", "raw": 1});
        let labels = labels.as_map();
        for (text, selected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app=db", false),
            ("app!=db,other!=x", true),
            ("app in (db,web)", true),
            ("app notin (db)", true),
            ("other notin (x)", true),
            ("other in ()", false),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("n>4", true),
            ("n<5", false),
            ("app>4", false),
            ("empty=", true),
            ("raw=1", true),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(labels), selected, "{text}");
        }
        let structured = value!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "x", "operator": "DoesNotExist"},
                {"key": "app", "operator": "Exists", "values": []},
                {"key": "tier", "operator": "NotIn", "values": ["z"]},
            ],
        });
        let selector = Selector::from_value(&structured).unwrap();
        assert!(selector.matches(labels));
        assert!(!selector.matches(None));
        assert_eq!(selector.to_string(), "app=web,tier in (back,front),!x,app,tier notin (z)");
        assert!(Selector::from_value(&value!({})).unwrap().matches(None));
        assert!(!Selector::from_value(&value!(null)).unwrap().matches(labels));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (selector, error) in [
            (value!([]), "the selector must be a map, not list"),
            (value!({"matchLabels": {"a": 1}}), "matchLabels[a] must be a string, not number"),
            (
                value!({"matchExpressions": [{"key": "a", "operator": "Equals"}]}),
                "matchExpressions[0].operator: \"Equals\" is not a valid label selector operator; \
                 use In, NotIn, Exists or DoesNotExist",
            ),
            (
                value!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values \
                 set can't be empty",
            ),
            (
                value!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "matchExpressions[0].values: Invalid value: [\"x\"]: values set must be empty for \
                 exists and does not exist",
            ),
        ] {
            assert_eq!(Selector::from_value(&selector).unwrap_err().to_string(), error);
        }
        let error = Selector::from_value(&value!({"matchLabels": {"a b": "c"}})).unwrap_err();
        let start = "matchLabels.key: Invalid value: \"a b\": name part must consist of";
        assert!(error.to_string().starts_with(start), "{error}");
        let error = Selector::from_labels([("a", "b c")]).unwrap_err();
        assert!(error.to_string().starts_with("values[0][a]: Invalid value: \"b c\""), "{error}");
    }
}
