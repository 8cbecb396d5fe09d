//! What stands in parentheses: JMESPath over the value at hand, with bindings (`$name`).

use std::collections::BTreeMap;

use kiln_jmespath::{Expression, JmesPathEnvironment};
use kiln_value::{Map, Value, json};

use super::error::{ExpressionError, ExpressionProblem};

/// Names that expressions may use, and their values.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings(BTreeMap<String, Value>);

impl Bindings {
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// With more of them, each of which may use those before it.
    pub(super) fn extended(&self, more: &[(String, Value)]) -> Result<Self, ExpressionError> {
        let mut all = self.clone();
        for (name, value) in more {
            let value = all.filled(value)?;
            all.0.insert(name.clone(), value);
        }
        Ok(all)
    }

    /// A value with everything in parentheses evaluated, as in a document that is a template.
    pub(super) fn filled(&self, value: &Value) -> Result<Value, ExpressionError> {
        match value {
            Value::String(text) => match parenthesised(text) {
                // Of nothing, JMESPath makes nothing: not even a list of what is named.
                Some(expression) => self.evaluate(expression, &Value::map()),
                None => Ok(value.clone()),
            },
            Value::List(list) => list.iter().map(|item| self.filled(item)).collect(),
            Value::Map(map) => {
                let filled = map.iter().map(|(key, value)| Ok((key.clone(), self.filled(value)?)));
                Ok(Value::Map(filled.collect::<Result<Map, ExpressionError>>()?))
            }
            other => Ok(other.clone()),
        }
    }

    /// What an expression finds in a value; null for what is not there.
    pub(super) fn evaluate(
        &self,
        expression: &str,
        value: &Value,
    ) -> Result<Value, ExpressionError> {
        let wrong = |problem| ExpressionError { expression: expression.to_owned(), problem };
        let literal = self.spelled_out(expression).map_err(wrong)?;
        let compiled = Expression::compile(&literal)
            .map_err(|error| wrong(ExpressionProblem::Compile(error.to_string())))?;
        match compiled.search(value, &JmesPathEnvironment::default()) {
            Ok(found) => Ok(found),
            // chainsaw's dialect is the one in which nothing is wrong with a missing key.
            Err(error) if error.is_not_found() => Ok(Value::Null),
            Err(error) => Err(wrong(ExpressionProblem::Evaluate(error.to_string()))),
        }
    }

    /// The expression with the values of bindings in the place of their names.
    fn spelled_out(&self, expression: &str) -> Result<String, ExpressionProblem> {
        let mut text = String::with_capacity(expression.len());
        let mut quote = None;
        let mut characters = expression.char_indices();
        while let Some((at, c)) = characters.next() {
            match quote {
                Some(end) => {
                    if c == '\\' {
                        text.push(c);
                        text.extend(characters.next().map(|(_, c)| c));
                        continue;
                    }
                    if c == end {
                        quote = None;
                    }
                }
                None if matches!(c, '\'' | '"' | '`') => quote = Some(c),
                None if c == '$' => {
                    let rest = &expression[at + 1..];
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                    let name = &rest[..end];
                    let value = self
                        .0
                        .get(name)
                        .ok_or_else(|| ExpressionProblem::FindBinding(name.to_owned()))?;
                    text.push('`');
                    text.push_str(&json::to_string(value).replace('`', "\\`"));
                    text.push('`');
                    for _ in 0..name.len() {
                        characters.next();
                    }
                    continue;
                }
                None => {}
            }
            text.push(c);
        }
        Ok(text)
    }
}

/// What stands in parentheses, if all of a text does. chainsaw: text of several lines is text, and so is one with blanks
/// around it; the name of the language may stand in front, with a semicolon.
pub(super) fn parenthesised(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    if inner.is_empty() || inner.contains('\n') {
        return None;
    }
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    match inner.split_once(';') {
        Some((word, rest)) if is_word(word) && !rest.is_empty() => Some(rest),
        _ => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn only_one_line_in_parentheses_is_an_expression() {
        for (text, inner) in [
            ("(x.y)", Some("x.y")),
            ("(jp;x.y)", Some("x.y")),
            ("(a && b) || (c)", Some("a && b) || (c")),
            ("(a &&\nb)", None),
            ("(a)\n", None),
            (" (a)", None),
            ("()", None),
            ("a", None),
        ] {
            assert_eq!(parenthesised(text), inner, "{text:?}");
        }
    }

    #[test]
    fn bindings_stand_for_their_values() {
        let bindings = Bindings::default()
            .with("name", Value::from("a`b"))
            .with("error", Value::Null)
            .extended(&[("both".to_owned(), Value::from("(join('-', [$name, 'c']))"))])
            .unwrap();
        let evaluate = |text: &str| bindings.evaluate(text, &value!({"x": {"y": 1}}));
        assert_eq!(evaluate("$name"), Ok(value!("a`b")));
        assert_eq!(evaluate("$both"), Ok(value!("a`b-c")));
        assert_eq!(evaluate("$error != null"), Ok(value!(false)));
        assert_eq!(evaluate("x.y"), Ok(value!(1)));
        assert_eq!(evaluate("x.z"), Ok(Value::Null));
        assert_eq!(evaluate("'$name'"), Ok(value!("$name")), "a text is a text");
        assert_eq!(
            evaluate("$missing").unwrap_err().to_string(),
            "($missing): there is no binding $missing"
        );
        assert_eq!(
            bindings.filled(&value!({"metadata": {"name": "($name)", "other": "(a) b"}})),
            Ok(value!({"metadata": {"name": "a`b", "other": "(a) b"}}))
        );
    }
}
