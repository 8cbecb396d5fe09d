//! Texts and documents with variables `{{ }}` as CEL.

use kiln_value::{Path, Value};

use crate::cel::Cel;
use crate::jmespath_to_cel::{Scope, as_text, translate};
use crate::shape::Shape;
use crate::term::Term;
use crate::verdict::Obstacle;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Variable(String),
}

/// The parts of a text: variables, and what stands between them.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(end) = closing(&rest[start..]) else { break };
        if rest[..start].ends_with('\\') {
            plain.push_str(&rest[..start - 1]);
            plain.push_str(&rest[start..start + end]);
        } else {
            plain.push_str(&rest[..start]);
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            let inner = rest[start + 2..start + end - 2].trim();
            parts.push(Part::Variable(inner.trim_start_matches('-').trim().to_owned()));
        }
        rest = &rest[start + end..];
    }
    plain.push_str(rest);
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}

/// Where the variable that a text begins with ends; variables may stand in it.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"{{" => {
                depth += 1;
                at += 2;
            }
            b"}}" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    // `}}}` closes a map before it closes the variable.
                    while bytes.get(at) == Some(&b'}') {
                        at += 1;
                    }
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
    None
}

pub(crate) fn has_variables(value: &Value) -> bool {
    match value {
        Value::String(text) => parts(text).iter().any(|part| matches!(part, Part::Variable(_))),
        Value::List(list) => list.iter().any(has_variables),
        Value::Map(map) => {
            map.iter().any(|(key, value)| key.contains("{{") || has_variables(value))
        }
        _ => false,
    }
}

/// What a text stands for: a text that is one variable is whatever that is.
pub(crate) fn text_term(text: &str, scope: &Scope) -> Result<Term, Obstacle> {
    let parts = parts(text);
    match parts.as_slice() {
        [Part::Text(text)] => Ok(Term::Literal(Value::from(text.as_str()))),
        [Part::Variable(expression)] => translate(expression, scope),
        parts => {
            let mut joined: Option<Cel> = None;
            for part in parts {
                let part = match part {
                    Part::Text(text) => Cel::text(text),
                    Part::Variable(expression) => as_text(&translate(expression, scope)?).strict(),
                };
                joined = Some(match joined {
                    Some(before) => before.plus(part),
                    None => part,
                });
            }
            Ok(Term::Value(joined.unwrap_or_else(|| Cel::text("")), Shape::Text))
        }
    }
}

/// What a document stands for.
pub(crate) fn term(value: &Value, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    match value {
        Value::String(text) => text_term(text, scope).map_err(|obstacle| obstacle.at(path)),
        value if !has_variables(value) => Ok(Term::Literal(value.clone())),
        Value::List(list) => {
            let parts: Result<Vec<Term>, Obstacle> = list
                .iter()
                .enumerate()
                .map(|(at, value)| term(value, scope, &path.join(at)))
                .collect();
            Ok(Term::Several(parts?))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map {
                entries.push((key.to_string(), term(value, scope, &path.join(key))?));
            }
            Ok(Term::Fields(entries))
        }
        other => Ok(Term::Literal(other.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fall_into_variables_and_what_is_between() {
        let text = |text: &str| Part::Text(text.into());
        let variable = |text: &str| Part::Variable(text.into());
        assert_eq!(parts("a-{{ b }}-c"), [text("a-"), variable("b"), text("-c")]);
        assert_eq!(parts("{{ x.'{{ y }}' }}"), [variable("x.'{{ y }}'")]);
        assert_eq!(parts(r"\{{ b }}"), [text("{{ b }}")]);
        assert_eq!(parts("{{ a | {b: c}}}"), [variable("a | {b: c}")]);
    }
}
