//! Whether an object is as the items of a rule say.

use kiln_jsonpath::{ErrorKind, Item};
use kiln_rules::{MatchItem, Quantifier, ValueTest};
use kiln_value::Value;

use super::Modifying;
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep};

impl Modifying<'_> {
    /// Whether all items hold.
    pub(crate) fn holds(&self, object: &Value) -> Result<bool, Failure> {
        let seen = self.seen(object);
        for item in &self.program.items {
            let (held, found) = self.item(item, &seen)?;
            let held = held != item.negate;
            self.shared.tracer.note(|| TraceStep {
                what: described(item),
                answer: TraceAnswer::from(held),
                why: Some(match (found_in_words(&found), item.negate) {
                    (why, true) => format!("{why}; negated"),
                    (why, false) => why,
                }),
                steps: Vec::new(),
            });
            if !held {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an item holds before it is negated, and what it looked at.
    fn item(
        &self,
        item: &MatchItem,
        seen: &Value,
    ) -> Result<(bool, Result<Item, kiln_jsonpath::Error>), Failure> {
        let result = match item.select.evaluate(seen, &self.path_limits()) {
            Ok(result) => result,
            Err(error) if error.kind() == ErrorKind::Limit => {
                let failure = Failure::new(FailureKind::Limit, error.to_string());
                return Err(failure.at(&item.path));
            }
            // KubeMod: what cannot be looked at does not match.
            Err(error) => return Ok((false, Err(error))),
        };
        Ok((is_as_wanted(item, &result), Ok(result)))
    }
}

fn is_as_wanted(item: &MatchItem, result: &Item) -> bool {
    if let Item::Value(Value::Bool(verdict)) = result {
        return *verdict;
    }
    if result.is_nothing() {
        return false;
    }
    let Some(elements) = result.elements() else { return passes(&item.test, result) };
    let mut present = elements.iter().filter(|element| **element != Item::Undefined);
    match item.quantifier {
        Quantifier::Any => present.any(|element| passes(&item.test, element)),
        Quantifier::All => {
            let mut some = false;
            present.all(|element| {
                some = true;
                passes(&item.test, element)
            }) && some
        }
    }
}

/// Only traces ask: of an item that holds, its text would be made for nothing.
fn found_in_words(found: &Result<Item, kiln_jsonpath::Error>) -> String {
    match found {
        Err(error) => error.to_string(),
        Ok(Item::Undefined) => "it is undefined".to_owned(),
        Ok(item) => {
            let mut text = item.text();
            if let Some((end, _)) = text.char_indices().nth(60) {
                text.truncate(end);
                text.push('…');
            }
            format!("it is {text}")
        }
    }
}

fn passes(test: &ValueTest, item: &Item) -> bool {
    match test {
        ValueTest::Any => true,
        ValueTest::Values(values) => {
            let text = item.text();
            values.iter().any(|value| *value == text)
        }
        ValueTest::Regex(regex) => regex.is_match(&item.text()),
    }
}

fn described(item: &MatchItem) -> String {
    let test = match &item.test {
        ValueTest::Any => String::new(),
        ValueTest::Values(values) => match values.as_slice() {
            [only] => format!(" is {:?}", only.as_str()),
            several => format!(" is one of {}", several.join(", ")),
        },
        ValueTest::Regex(regex) => format!(" matches {regex}"),
    };
    let all = if item.quantifier == Quantifier::All { "all " } else { "" };
    format!("{all}{}{test}", item.select)
}
