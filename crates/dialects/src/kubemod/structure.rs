//! Values that count on objects to write structure for them, which objects cannot do.

use kiln_gotemplate::Template;
use kiln_value::Value;
use kiln_yaml::{DuplicateKeys, ReadOptions, read_bytes};

use crate::document_reader::DocumentNode;

/// How many actions of a value are looked at; each costs a reading.
const MOST: usize = 50;

/// Warns of actions that stand where text makes no sense, only structure: alone where an entry of a map would be, say.
pub(super) fn warn(node: &DocumentNode<'_, '_>, template: &Template) {
    let mut actions = Vec::new();
    let whole = template.sketch(&mut |action| {
        if makes_structure(&action.functions) {
            return "{}".into();
        }
        actions.push(action.text.clone());
        word(actions.len() - 1)
    });
    let suspects: Vec<usize> = match read(&whole) {
        Some(value) => {
            (0..actions.len().min(MOST)).filter(|&at| is_bare_key(&value, &whole, at)).collect()
        }
        // It is the action without which there would be a value.
        None => (0..actions.len().min(MOST))
            .filter(|left_out| {
                let mut at = 0;
                let without = template.sketch(&mut |action| {
                    if makes_structure(&action.functions) {
                        return "{}".into();
                    }
                    at += 1;
                    if at - 1 == *left_out { String::new() } else { word(at - 1) }
                });
                read(&without).is_some()
            })
            .collect(),
    };
    for at in suspects {
        let action = &actions[at];
        node.report.warn(
            &node.path,
            format!("{{{{ {action} }}}} stands where structure would, and what objects say is text"),
            Some(format!("write {{{{ {action} | fromJson | toJson }}}} if it is JSON, or range over its parts")),
        );
    }
}

fn makes_structure(functions: &[&str]) -> bool {
    let writes_json = |name: &&str| name.ends_with("Json") && !name.ends_with("romJson");
    functions.iter().any(writes_json)
}

fn word(number: usize) -> String {
    format!("kilnaction{number}z")
}

fn read(text: &str) -> Option<Value> {
    let options =
        ReadOptions { duplicate_keys: DuplicateKeys::LastWins, ..ReadOptions::kubernetes() };
    let documents = read_bytes("value", text.as_bytes(), options).ok()?;
    Some(documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value))
}

/// Whether an action is an entry of a map all by itself: `{ {{ … }} }`.
fn is_bare_key(value: &Value, text: &str, at: usize) -> bool {
    fn entry(value: &Value, key: &str) -> bool {
        match value {
            Value::Map(map) => map
                .iter()
                .any(|(name, value)| name.as_str() == key && value.is_null() || entry(value, key)),
            Value::List(list) => list.iter().any(|element| entry(element, key)),
            _ => false,
        }
    }
    let word = word(at);
    let colon = text
        .split(&word)
        .nth(1)
        .is_some_and(|rest| rest.trim_start().starts_with([':', '"', '\'']));
    !colon && entry(value, &word)
}
