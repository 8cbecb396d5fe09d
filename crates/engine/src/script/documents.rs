//! Documents with expressions in them, filled in.

use kiln_cel::Val;
use kiln_rules::{DocumentPart, TextPiece};
use kiln_value::{Map, Value, json};

use super::ScriptSession;
use crate::output::failure::{Failure, FailureKind};

/// Fills a document in. `number` counts from 1.
pub(super) fn fill(
    running: &mut ScriptSession<'_>,
    part: &DocumentPart,
    number: usize,
) -> Result<Value, Failure> {
    let filled = part_value(running, part).map_err(|failure| {
        failure.while_doing(format_args!("failed to render generation template: document {number}"))
    })?;
    match filled {
        Value::Map(_) => Ok(filled),
        other => {
            let message = format!(
                "failed to render generation template: document {number} is a {}, not a resource",
                other.type_name()
            );
            Err(Failure::new(FailureKind::Target, message))
        }
    }
}

fn part_value(running: &mut ScriptSession<'_>, part: &DocumentPart) -> Result<Value, Failure> {
    match part {
        DocumentPart::Plain(value) => Ok(value.clone()),
        DocumentPart::Whole(expression) => running.eval_json(expression),
        DocumentPart::Text(pieces) => {
            let mut text = String::new();
            for piece in pieces {
                match piece {
                    TextPiece::Plain(plain) => text.push_str(plain),
                    TextPiece::Value(expression) => {
                        let value = running.eval(expression)?;
                        text.push_str(&scalar(&value).ok_or_else(|| {
                            let message = format!(
                                "placeholder {:?} embedded in a string must evaluate to a scalar, \
                                 got {}; use a whole-value placeholder for structured results",
                                expression.program.source().trim(),
                                value.type_name()
                            );
                            Failure::new(FailureKind::Value, message).at(&expression.path)
                        })?);
                    }
                }
            }
            Ok(Value::from(text))
        }
        DocumentPart::Map(entries) => {
            let mut map = Map::new();
            for (key, part) in entries {
                let value = part_value(running, part).map_err(|failure| {
                    failure.while_doing(format_args!("field {:?}", key.as_str()))
                })?;
                map.insert(key.clone(), value);
            }
            Ok(Value::Map(map))
        }
        DocumentPart::List(parts) => {
            let mut list = Vec::with_capacity(parts.len());
            for (at, part) in parts.iter().enumerate() {
                list.push(
                    part_value(running, part)
                        .map_err(|failure| failure.while_doing(format_args!("item {at}")))?,
                );
            }
            Ok(Value::from(list))
        }
    }
}

fn scalar(value: &Val) -> Option<String> {
    match value {
        Val::String(text) => Some(text.to_string()),
        Val::Bool(flag) => Some(flag.to_string()),
        Val::Int(number) => Some(number.to_string()),
        Val::UInt(number) => Some(number.to_string()),
        Val::Double(number) => Some(json::to_string(&Value::from(*number))),
        _ => None,
    }
}
