//! Small faults in a policy, to see whether inputs notice them: what they do not notice, they do not prove.

use kiln_cel::{CelToken, lex};
use kiln_object::Kinds;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};

use crate::PolicySide;
use crate::inputs::Input;
use crate::outcome::run;

/// How many faults there were, and how many of them were noticed.
#[derive(Clone, Debug, Default)]
pub struct Mutants {
    pub made: usize,
    pub noticed: usize,
    /// Those that were not, in words.
    pub missed: Vec<String>,
}

/// So many faults are tried in one policy.
const MOST: usize = 40;

/// Seeds faults into a policy in CEL, one at a time, and counts those that change what becomes of some input.
pub fn mutants(document: &Value, inputs: &[Input], kinds: &Kinds) -> Mutants {
    let Some(original) = side(document, kinds) else { return Mutants::default() };
    let wanted: Vec<_> = inputs.iter().map(|input| run(&original, input, kinds, None)).collect();
    let mut counted = Mutants::default();
    for (words, mutant) in faults(document).into_iter().take(MOST) {
        // What does not compile is noticed by every engine.
        let Some(side) = side(&mutant, kinds) else { continue };
        counted.made += 1;
        let is_noticed = inputs.iter().zip(&wanted).any(|(input, wanted)| {
            let found = run(&side, input, kinds, None);
            (found.word, &found.object, &found.made) != (wanted.word, &wanted.object, &wanted.made)
        });
        match is_noticed {
            true => counted.noticed += 1,
            false => counted.missed.push(words),
        }
    }
    counted
}

fn side(document: &Value, kinds: &Kinds) -> Option<PolicySide> {
    let read = Document::from_value("mutant", document.clone(), ReadOptions::kubernetes());
    let compiled = kiln_dialects::compile([&read], kinds);
    if compiled.has_errors() || compiled.policies.is_empty() {
        return None;
    }
    Some(PolicySide::new(compiled.policies, [], vec![document.clone()]))
}

/// Every policy with one fault, each with the fault in words.
fn faults(document: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for list in ["matchConditions", "variables", "validations", "mutations", "generate"] {
        let Some(Value::List(entries)) = document.get_path(["spec", list]) else { continue };
        for (at, entry) in entries.iter().enumerate() {
            for path in [
                &["expression"][..],
                &["applyConfiguration", "expression"],
                &["jsonPatch", "expression"],
            ] {
                let Some(source) = entry.str_at(path.iter().copied()) else { continue };
                for (words, text) in expression_faults(source) {
                    let mut mutant = document.clone();
                    let holder = mutant
                        .get_path_mut(["spec", list])
                        .and_then(Value::as_list_mut)
                        .and_then(|list| list.get_mut(at));
                    if let Some(holder) = holder
                        && holder.set(path.iter().copied(), text).is_ok()
                    {
                        found.push((format!("{list}[{at}]: {words}"), mutant));
                    }
                }
            }
        }
    }
    found
}

/// An expression with one token changed, for each token that can be.
fn expression_faults(source: &str) -> Vec<(String, String)> {
    let Ok(tokens) = lex(source) else { return Vec::new() };
    let mut found = Vec::new();
    for (token, span) in &tokens {
        let range = span.range();
        let text = &source[range.clone()];
        let other = match text {
            "==" => "!=",
            "!=" => "==",
            "&&" => "||",
            "||" => "&&",
            "<" => ">=",
            ">" => "<=",
            "<=" => ">",
            ">=" => "<",
            "true" => "false",
            "false" => "true",
            "all" => "exists",
            "exists" => "all",
            "startsWith" => "endsWith",
            "endsWith" => "startsWith",
            "!" => "",
            _ => match token {
                CelToken::String if text.len() > 3 => "'another-text'",
                CelToken::Int => "7919",
                _ => continue,
            },
        };
        let mut changed = source.to_owned();
        changed.replace_range(range.clone(), other);
        found.push((format!("{text} became {other:?} at {}", range.start), changed));
    }
    found
}
