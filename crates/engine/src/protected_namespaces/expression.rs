//! Namespaces that the author of a policy names in CEL.
//!
//! An expression is looked at as text: a value does not show where it comes from. A name counts only where it says
//! where something goes: as the namespace of the call that makes objects (or, for targets, that reads them), or as the
//! field of an object that is made. It may be written there, be a value of the policy that is nothing but text, or come
//! from a loop over a list of such text. Whatever else an expression says, what it compares with and whatever it asks for,
//! names nothing.

use std::ops::Range;

use kiln_cel::{CelToken, Span, lex};
use kiln_object::ObjectId;
use kiln_rules::{
    DocumentPart, Emission, Emitter, Expression, Mutation, Program, Rule, Script, Targets,
    TextPiece,
};
use kiln_value::Value;

use super::namespace_of;

/// Whether what emits an object names the namespace that it is in.
pub(crate) fn in_emitter(emitter: &Emitter, rule: &Rule, id: &ObjectId) -> bool {
    let (namespace, field) = namespace_of(id);
    match &emitter.emission {
        Emission::FromExpression { expression, .. } => {
            let search = Search::new(expression.program.source(), namespace, rule);
            search.is_made_there(field) || (field == "namespace" && search.is_call_into())
        }
        Emission::Documents(documents) => documents.iter().any(|document| {
            let written = document.plain(["metadata", field]).and_then(Value::as_str);
            written == Some(namespace)
        }),
        Emission::Data { .. } | Emission::Clone { .. } | Emission::CloneSelect(_) => false,
    }
}

/// Whether an expression that reads targets names the namespace of one.
pub(crate) fn in_targets(source: &str, rule: &Rule, id: &ObjectId) -> bool {
    let (namespace, field) = namespace_of(id);
    Search::new(source, namespace, rule).is_read_from(field)
}

/// Whether an expression of a rule names the namespace that a resource is read from.
pub(crate) fn in_reads(rule: &Rule, namespace: &str, resource: &str) -> bool {
    expressions(rule).into_iter().any(|source| {
        let search = Search::new(source, namespace, rule);
        search.reads_from_name("namespace", Some(resource))
    })
}

/// Whether an object says from which namespace a rule lists a resource: it then says none, which means all of them, where the
/// policy asks for the objects of one.
pub(crate) fn is_emptied(rule: &Rule, resource: &str) -> bool {
    let everywhere: Vec<bool> = expressions(rule)
        .into_iter()
        .flat_map(|source| Search::new(source, "", rule).lists_everywhere(resource))
        .collect();
    !everywhere.is_empty() && !everywhere.contains(&true)
}

/// Every expression of a rule.
fn expressions(rule: &Rule) -> Vec<&str> {
    let mut all: Vec<&Expression> = Vec::new();
    if let Some(script) = &rule.script {
        let named = script.variables.iter().chain(&script.conditions).chain(&script.annotations);
        all.extend(named.map(|named| &named.expression));
    }
    match &rule.program {
        Program::Generate(generate) => {
            let emitters = generate.blocks.iter().flat_map(|block| &block.emitters);
            for emitter in emitters {
                match &emitter.emission {
                    Emission::FromExpression { expression, .. } => all.push(expression),
                    Emission::Documents(parts) => {
                        parts.iter().for_each(|part| in_part(part, &mut all));
                    }
                    Emission::Data { .. } | Emission::Clone { .. } | Emission::CloneSelect(_) => {}
                }
            }
        }
        Program::Mutate(mutate) => {
            if let Mutation::Steps(steps) = &mutate.change {
                all.extend(steps.iter().map(|step| &step.expression));
            }
            if let Some(Targets::FromExpression(asked)) = &mutate.targets {
                all.push(&asked.expression);
                all.extend(asked.conditions.iter().map(|named| &named.expression));
            }
            if let Some(Targets::Filtered(taken)) = &mutate.targets {
                all.extend(taken.conditions.iter().map(|named| &named.expression));
            }
        }
        Program::Modify(_) | Program::Delete(_) => {}
        Program::Validate(validate) => all.extend(validate.expressions()),
    }
    all.into_iter().map(|expression| expression.program.source()).collect()
}

/// Every expression of a document.
fn in_part<'p>(part: &'p DocumentPart, all: &mut Vec<&'p Expression>) {
    match part {
        DocumentPart::Plain(_) => {}
        DocumentPart::Whole(expression) => all.push(expression),
        DocumentPart::Text(pieces) => all.extend(pieces.iter().filter_map(|piece| match piece {
            TextPiece::Plain(_) => None,
            TextPiece::Value(expression) => Some(expression),
        })),
        DocumentPart::Map(entries) => entries.iter().for_each(|(_, part)| in_part(part, all)),
        DocumentPart::List(parts) => parts.iter().for_each(|part| in_part(part, all)),
    }
}

/// The ways to say that objects are to be made.
const MAKE: &[&str] = &["Apply", "apply", "ApplyAll", "applyAll"];
/// Loops that go through a list, with a name for its elements.
const LOOPS: &[&str] = &["all", "exists", "exists_one", "existsOne", "map", "filter"];

/// A look for a name in an expression, token by token.
struct Search<'s> {
    source: &'s str,
    name: &'s str,
    rule: &'s Rule,
    tokens: Vec<(CelToken, Span)>,
    /// For each token, the bracket that it is in. Brackets are where they were opened.
    within: Vec<Option<usize>>,
}

impl<'s> Search<'s> {
    fn new(source: &'s str, name: &'s str, rule: &'s Rule) -> Self {
        let tokens = lex(source).unwrap_or_default();
        let mut within = Vec::with_capacity(tokens.len());
        let mut open: Vec<usize> = Vec::new();
        for (at, (token, _)) in tokens.iter().enumerate() {
            if matches!(token, CelToken::CloseParen | CelToken::CloseBracket | CelToken::CloseBrace)
            {
                open.pop();
            }
            within.push(open.last().copied());
            if opens(*token) {
                open.push(at);
            }
        }
        Search { source, name, rule, tokens, within }
    }

    /// Whether objects are made in the namespace: `generator.ApplyRules('name', …)`.
    fn is_call_into(&self) -> bool {
        let mut calls = self.calls("generator", MAKE);
        calls.any(|call| self.parts(call).first().is_some_and(|into| self.is_name(into.clone())))
    }

    /// Whether objects are read from the namespace: `resource.Get('v1', 'secrets', 'name', …)`. A Namespace is read by its
    /// own name.
    fn is_read_from(&self, field: &str) -> bool {
        self.reads_from_name(field, None)
    }

    /// The same for one resource, if one is given: calls that read others name nothing.
    fn reads_from_name(&self, field: &str, resource: Option<&str>) -> bool {
        let is_text = |part: Option<&Range<usize>>| {
            part.is_some_and(|part| part.len() == 1 && self.is(part.start, CelToken::String))
        };
        // What is read may be a variable, or one part together with its version.
        let reads = |parts: &[Range<usize>]| match (resource, parts) {
            (Some(resource), [version, named, ..])
                if is_text(Some(version)) && is_text(Some(named)) =>
            {
                bare(self.text(named.start)) == resource
            }
            _ => true,
        };
        let is_name = |part: Option<&Range<usize>>| part.is_some_and(|p| self.is_name(p.clone()));
        let got = self.calls("resource", &["Get", "get"]).any(|call| {
            let parts = self.parts(call);
            if !reads(&parts) {
                return false;
            }
            let from_end = if field == "name" { 1 } else { 2 };
            is_name(parts.len().checked_sub(from_end).and_then(|at| parts.get(at)))
        });
        // The first argument, or the first two, say what is listed; labels are not text.
        let listed = || {
            self.calls("resource", &["List", "list"]).any(|call| {
                let parts = self.parts(call);
                let named = is_name(parts.get(2)) && reads(&parts);
                // Where one part says what is listed, the second is the namespace.
                let is_one = resource.is_none() || !is_text(parts.first());
                named || (is_one && is_name(parts.get(1)))
            })
        };
        got || (field == "namespace" && listed())
    }

    /// For each call that lists a resource, whether it asks for the objects of all namespaces.
    fn lists_everywhere(&self, resource: &str) -> Vec<bool> {
        let is_text =
            |part: &Range<usize>| part.len() == 1 && self.is(part.start, CelToken::String);
        let is_none = |part: Option<&Range<usize>>| match part {
            None => true,
            // Labels.
            Some(part) if self.is(part.start, CelToken::OpenBrace) => true,
            Some(part) => self.is_name(part.clone()),
        };
        let mut found = Vec::new();
        for call in self.calls("resource", &["List", "list"]) {
            let parts = self.parts(call);
            match parts.as_slice() {
                [version, named, rest @ ..] if is_text(version) || is_text(named) => {
                    if !is_text(named) || bare(self.text(named.start)) == resource {
                        found.push(is_none(rest.first()));
                    }
                }
                [_, rest @ ..] => found.push(is_none(rest.first())),
                [] => {}
            }
        }
        found
    }

    /// Whether an object is made that says so itself: `generator.ApplyRules(…, [{'metadata': {'namespace': 'name'}}])`.
    fn is_made_there(&self, field: &str) -> bool {
        (2..self.tokens.len()).any(|colon| {
            let Some(map) = self.within[colon].filter(|map| self.is(*map, CelToken::OpenBrace))
            else {
                return false;
            };
            self.is(colon, CelToken::Colon)
                && self.key(colon) == Some(field)
                && self
                    .parts(map)
                    .into_iter()
                    .any(|entry| entry.start + 1 == colon && self.is_name(colon + 1..entry.end))
                && self.is_metadata(map)
        })
    }

    /// Whether a map is the metadata of an object that is made.
    fn is_metadata(&self, map: usize) -> bool {
        let in_dyn =
            map >= 2 && self.is(map - 1, CelToken::OpenParen) && self.text(map - 2) == "dyn";
        let Some(colon) = map.checked_sub(if in_dyn { 3 } else { 1 }) else { return false };
        if !self.is(colon, CelToken::Colon) || self.key(colon) != Some("metadata") {
            return false;
        }
        // Nothing but lists and maps between the call and the object: what other functions are given is not made.
        let mut around = self.within[colon];
        while let Some(open) = around {
            match self.tokens[open].0 {
                CelToken::OpenBrace => {}
                CelToken::OpenBracket if self.begins_value(open) => {}
                CelToken::OpenParen if self.is_call(open, "generator", MAKE) => return true,
                CelToken::OpenParen if open > 0 && self.text(open - 1) == "dyn" => {}
                _ => return false,
            }
            around = self.within[open];
        }
        false
    }

    /// The text in front of a colon.
    fn key(&self, colon: usize) -> Option<&str> {
        let at = colon.checked_sub(1).filter(|at| self.is(*at, CelToken::String))?;
        Some(bare(self.text(at)))
    }

    /// Whether a part of the expression is the name, and nothing else: written, a value of the policy, or an element of a
    /// list of names.
    fn is_name(&self, part: Range<usize>) -> bool {
        let (start, end) = (part.start, part.end);
        let tokens: Vec<CelToken> = self.tokens[part].iter().map(|(token, _)| *token).collect();
        match tokens.as_slice() {
            [CelToken::String] => bare(self.text(start)) == self.name,
            [CelToken::Ident] => self.is_element(start),
            [CelToken::Ident, CelToken::Dot, CelToken::Ident] => {
                self.text(start) == "variables" && self.is_value(self.text(start + 2))
            }
            // Whichever element of a list of the policy's own.
            [
                CelToken::Ident,
                CelToken::Dot,
                CelToken::Ident,
                CelToken::OpenBracket,
                ..,
                CelToken::CloseBracket,
            ] => {
                self.text(start) == "variables"
                    && self.opening_of(end - 1) == Some(start + 3)
                    && self.is_value(self.text(start + 2))
            }
            [CelToken::Ident, CelToken::OpenParen, _, .., CelToken::CloseParen] => {
                ["string", "dyn"].contains(&self.text(start))
                    && self.opening_of(end - 1) == Some(start + 1)
                    && self.is_name(start + 2..end - 1)
            }
            _ => false,
        }
    }

    /// Whether a word stands for an element of a list of names: `['name'].all(word, … word …)`.
    fn is_element(&self, at: usize) -> bool {
        let word = self.text(at);
        let mut around = self.within[at];
        while let Some(open) = around {
            let binds = |place: usize| {
                place != at
                    && self.is(place, CelToken::Ident)
                    && self.text(place) == word
                    && self.is(place + 1, CelToken::Comma)
            };
            if self.is(open, CelToken::OpenParen) && open >= 3 && self.is(open - 2, CelToken::Dot) {
                if binds(open + 1) {
                    return LOOPS.contains(&self.text(open - 1)) && self.is_list(open - 2);
                }
                // With a name for the number of the element, or for a key.
                if self.is(open + 2, CelToken::Comma) && binds(open + 3) {
                    return false;
                }
            }
            around = self.within[open];
        }
        false
    }

    /// Whether what ends in front of a token is a list of nothing but text, in which the name is, or what was chosen of one.
    fn is_list(&self, end: usize) -> bool {
        let Some(last) = end.checked_sub(1) else { return false };
        match self.tokens[last].0 {
            CelToken::CloseBracket => {
                let Some(open) = self.opening_of(last).filter(|open| self.begins_value(*open))
                else {
                    return false;
                };
                let items = self.parts(open);
                let is_text =
                    |item: &Range<usize>| item.len() == 1 && self.is(item.start, CelToken::String);
                items.iter().all(is_text)
                    && items.iter().any(|item| bare(self.text(item.start)) == self.name)
            }
            CelToken::Ident if last >= 2 && self.is(last - 1, CelToken::Dot) => {
                self.text(last - 2) == "variables"
                    && !(last >= 3 && self.is(last - 3, CelToken::Dot))
                    && self.is_value(self.text(last))
            }
            CelToken::CloseParen => self.opening_of(last).is_some_and(|open| {
                open >= 2
                    && self.text(open - 1) == "filter"
                    && self.is(open - 2, CelToken::Dot)
                    && self.is_list(open - 2)
            }),
            _ => false,
        }
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
                CelToken::String => {
                    found |= bare(source.get(span.range()).unwrap_or_default()) == self.name;
                }
                CelToken::OpenBracket
                | CelToken::Comma
                | CelToken::CloseBracket
                | CelToken::End => {}
                _ => return false,
            }
        }
        found
    }

    /// The brackets of calls of functions of something.
    fn calls<'c>(&'c self, of: &'c str, names: &'c [&str]) -> impl Iterator<Item = usize> + 'c {
        (0..self.tokens.len()).filter(move |at| self.is_call(*at, of, names))
    }

    fn is_call(&self, open: usize, of: &str, names: &[&str]) -> bool {
        open >= 3
            && self.is(open, CelToken::OpenParen)
            && names.contains(&self.text(open - 1))
            && self.is(open - 2, CelToken::Dot)
            && self.text(open - 3) == of
            && !(open >= 4 && self.is(open - 4, CelToken::Dot))
    }

    /// What commas part within a bracket.
    fn parts(&self, open: usize) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut begin = open + 1;
        for at in open + 1..self.tokens.len() {
            let ends = self.within[at] == self.within[open];
            let parted = self.within[at] == Some(open) && self.is(at, CelToken::Comma);
            if ends || parted {
                parts.extend(Some(begin..at).filter(|part| !part.is_empty()));
                begin = at + 1;
            }
            if ends {
                break;
            }
        }
        parts
    }

    /// Where a bracket was opened that is closed.
    fn opening_of(&self, close: usize) -> Option<usize> {
        (0..close)
            .rev()
            .find(|at| self.within[*at] == self.within[close] && opens(self.tokens[*at].0))
    }

    /// Whether a square bracket begins a list, and does not follow a value to choose of it.
    fn begins_value(&self, open: usize) -> bool {
        let before = open.checked_sub(1).map(|before| self.tokens[before].0);
        !matches!(
            before,
            Some(
                CelToken::Ident
                    | CelToken::Quoted
                    | CelToken::String
                    | CelToken::CloseParen
                    | CelToken::CloseBracket
                    | CelToken::CloseBrace
            )
        )
    }

    fn is(&self, at: usize, wanted: CelToken) -> bool {
        self.tokens.get(at).is_some_and(|(token, _)| *token == wanted)
    }

    fn text(&self, at: usize) -> &'s str {
        let range = self.tokens.get(at).map(|(_, span)| span.range());
        range.and_then(|range| self.source.get(range)).unwrap_or_default()
    }
}

fn opens(token: CelToken) -> bool {
    matches!(token, CelToken::OpenParen | CelToken::OpenBracket | CelToken::OpenBrace)
}

fn bare(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}
