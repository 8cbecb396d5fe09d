//! Namespaces that the author of a policy names in CEL.
//!
//! An expression is looked at as text: nobody can tell from a value where it comes from. A name counts where it is written
//! as an argument, in a list, or as the field that says where an object is, and so does a value of the policy that is
//! nothing but such text.

use kiln_cel::{Token, lex};
use kiln_object::ObjectId;
use kiln_rules::{Emitter, Rule, Script, What};
use kiln_value::Value;

use super::namespace_of;

/// Whether what emits an object names the namespace that it is in.
pub(crate) fn in_emitter(emitter: &Emitter, rule: &Rule, id: &ObjectId) -> bool {
    let (namespace, field) = namespace_of(id);
    match &emitter.what {
        What::Asked { expression, .. } => {
            // Where something is read from says nothing about where it goes.
            let search = Search { name: namespace, field, rule, reads_count: false };
            search.finds_in(expression.program.source())
        }
        What::Documents(documents) => documents.iter().any(|document| {
            let written = document.plain(["metadata", field]).and_then(Value::as_str);
            written == Some(namespace)
        }),
        What::Data { .. } | What::Clone { .. } | What::CloneSelect(_) => false,
    }
}

/// Whether an expression that reads targets names the namespace of one.
pub(crate) fn in_targets(source: &str, rule: &Rule, id: &ObjectId) -> bool {
    let (name, field) = namespace_of(id);
    Search { name, field, rule, reads_count: true }.finds_in(source)
}

struct Search<'s> {
    name: &'s str,
    /// The field that holds the name in an object.
    field: &'static str,
    rule: &'s Rule,
    /// Whether the arguments of functions that read count like others.
    reads_count: bool,
}

impl Search<'_> {
    fn finds_in(&self, source: &str) -> bool {
        let tokens = lex(source).unwrap_or_default();
        let text = |at: usize| source.get(tokens[at].1.range()).unwrap_or_default();
        let is_name = |at: usize| match tokens[at].0 {
            Token::String => bare(text(at)) == self.name,
            Token::Ident => {
                text(at) == "variables"
                    && tokens.get(at + 2).is_some_and(|(token, _)| *token == Token::Ident)
                    && self.is_value(text(at + 2))
            }
            _ => false,
        };
        // For each bracket that is open, whether it belongs to a function that reads or is within one.
        let mut reading: Vec<bool> = Vec::new();
        for at in 0..tokens.len() {
            let is_within = reading.last() == Some(&true);
            match tokens[at].0 {
                Token::OpenParen => {
                    let reads = at > 0 && ["Get", "List", "Post"].contains(&text(at - 1));
                    reading.push(is_within || reads);
                }
                Token::CloseParen => drop(reading.pop()),
                _ if is_name(at) && (self.reads_count || !is_within) => {
                    let in_dyn =
                        at >= 2 && tokens[at - 1].0 == Token::OpenParen && text(at - 2) == "dyn";
                    let Some(before) = at.checked_sub(if in_dyn { 3 } else { 1 }) else {
                        return true;
                    };
                    let counts = match tokens[before].0 {
                        Token::OpenParen | Token::Comma => true,
                        Token::OpenBracket => before == 0 || tokens[before - 1].0 != Token::In,
                        Token::Colon => before > 0 && bare(text(before - 1)) == self.field,
                        _ => false,
                    };
                    if counts {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Whether a value of the policy is nothing but text, or a list of it, in which the name is.
    fn is_value(&self, variable: &str) -> bool {
        let script: Option<&Script> = self.rule.script.as_deref();
        let Some(variable) = script.and_then(|script| script.variable(variable)) else {
            return false;
        };
        let source = variable.expression.program.source();
        let tokens = lex(source).unwrap_or_default();
        let mut found = false;
        for (token, span) in &tokens {
            match token {
                Token::String => {
                    found |= bare(source.get(span.range()).unwrap_or_default()) == self.name;
                }
                Token::OpenBracket | Token::Comma | Token::CloseBracket | Token::End => {}
                _ => return false,
            }
        }
        found
    }
}

fn bare(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}
