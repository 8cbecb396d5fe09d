//! Filling a template with values.
//!
//! Text that came from a value is data from then on: it is inserted as it is and never read as a
//! template again. Kyverno reads it again, which lets the author of an object choose what a policy
//! evaluates; this is the one deliberate difference.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use kiln_value::{Key, List, MAX_DEPTH, Map, Str, Value};

use crate::error::{Limit, Problem, SubstituteError};
use crate::query::{self, Query, QueryError, VariableScope};
use crate::scan::{self, Marked};
use crate::template::{Ask, Prepared, Template, TemplateEntry, TemplatePart, TemplateText};

/// How much substitutions may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubstitutionLimits {
    /// How often variables may stand inside variables.
    pub rounds: usize,
    /// How many bytes may be made or inserted, over all documents of a [`Substitution`].
    pub bytes: usize,
    /// How deep lists and maps may nest in a result.
    pub depth: usize,
}

impl Default for SubstitutionLimits {
    fn default() -> Self {
        SubstitutionLimits { rounds: 64, bytes: 16 << 20, depth: MAX_DEPTH }
    }
}

/// What substitutions have cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many expressions were evaluated.
    pub queries: usize,
    /// How many bytes were made or inserted.
    pub bytes: usize,
}

/// A text that was filled, and which parts of it are values.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledText {
    pub text: String,
    /// The values, in order.
    pub values: Vec<FilledValue>,
}

/// A value in a text that was filled.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledValue {
    /// Where its text stands.
    pub at: Range<usize>,
    pub value: Value,
    /// The expression that gave it.
    pub expression: Arc<str>,
}

/// What a text became: one value, or a text with the values that were inserted, in the order in which they were. Each is with
/// its expression.
enum Filling {
    Value(Value, Arc<str>),
    Text(Marked, Vec<(Value, Arc<str>)>),
}

/// Fills templates from one scope, within one budget.
pub struct Substitution<'s> {
    scope: &'s dyn VariableScope,
    limits: SubstitutionLimits,
    usage: Usage,
    deleting: bool,
}

impl<'s> Substitution<'s> {
    /// A substitution with the usual limits.
    pub fn new(scope: &'s dyn VariableScope) -> Self {
        Self::with_limits(scope, SubstitutionLimits::default())
    }

    /// A substitution with limits of its own.
    pub fn with_limits(scope: &'s dyn VariableScope, limits: SubstitutionLimits) -> Self {
        Substitution { scope, limits, usage: Usage::default(), deleting: scope.is_deleting() }
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Fills a template. Keys come before their values, entries in their order; the first error ends it.
    ///
    /// # Errors
    /// When a reference leads nowhere, an expression fails, a key does not stay a key of its own, or a
    /// limit is reached.
    pub fn run(&mut self, template: &Template) -> Result<Value, SubstituteError> {
        template.check_references()?;
        match &template.root {
            None => Ok(template.document.clone()),
            Some(node) => self.node(node, &template.document, template.base_depth),
        }
    }

    /// Fills a template that is one text, and says which parts of it are values.
    ///
    /// # Errors
    /// As [`Substitution::run`].
    pub fn run_text(&mut self, template: &Template) -> Result<FilledText, SubstituteError> {
        template.check_references()?;
        let Some(TemplatePart::Text(pattern)) = &template.root else {
            let text = template.document.as_str().unwrap_or_default().to_owned();
            return Ok(FilledText { text, values: Vec::new() });
        };
        Ok(match self.marked(pattern, template.base_depth)? {
            Filling::Value(value, expression) => {
                let text = query::text_of(&value).map_err(Problem::Query);
                let text = text.map_err(|problem| failed(pattern, problem))?.to_string();
                FilledText {
                    values: vec![FilledValue { at: 0..text.len(), value, expression }],
                    text,
                }
            }
            Filling::Text(marked, values) => {
                let (text, data) = marked.unescape_with_data();
                let value = |(at, number): (_, usize)| {
                    let (value, expression) = values.get(number)?.clone();
                    Some(FilledValue { at, value, expression })
                };
                FilledText { text, values: data.into_iter().filter_map(value).collect() }
            }
        })
    }

    /// Fills what lies below a node; everything else of the value is shared.
    fn node(
        &mut self,
        node: &TemplatePart,
        value: &Value,
        depth: usize,
    ) -> Result<Value, SubstituteError> {
        match (node, value) {
            (TemplatePart::Text(pattern), _) => self.text(pattern, depth),
            (TemplatePart::List(below), Value::List(list)) => {
                let mut elements = list.to_vec();
                for (at, node) in below {
                    elements[*at] = self.node(node, &list[*at], depth + 1)?;
                }
                Ok(Value::List(List::from(elements)))
            }
            (TemplatePart::Map(below), Value::Map(map)) => self.map(below, map, depth),
            (TemplatePart::List(_) | TemplatePart::Map(_), other) => Ok(other.clone()),
        }
    }

    fn map(
        &mut self,
        below: &[TemplateEntry],
        map: &Map,
        depth: usize,
    ) -> Result<Value, SubstituteError> {
        let mut entries = map.as_slice().to_vec();
        let mut renamed: Vec<&TemplateText> = Vec::new();
        for TemplateEntry { at, key, value } in below {
            if let Some(pattern) = key {
                entries[*at].0 = self.key(pattern, &entries[*at].0)?;
                renamed.push(pattern);
            }
            if let Some(node) = value {
                entries[*at].1 = self.node(node, &map.as_slice()[*at].1, depth + 1)?;
            }
        }
        if renamed.is_empty() {
            return Ok(Value::Map(Map::from_unique(entries)));
        }
        let mut result = Map::new();
        for (key, value) in entries {
            if result.contains_key(&key) {
                // Kyverno: one of the two wins, by chance.
                let problem = Problem::DuplicateKey(key.to_string());
                return Err(failed(renamed[0], problem));
            }
            result.insert(key, value);
        }
        Ok(Value::Map(result))
    }

    fn key(&mut self, pattern: &TemplateText, key: &Key) -> Result<Key, SubstituteError> {
        match self.text(pattern, 0)? {
            Value::String(text) => Ok(Key::new(&text)),
            // Kyverno: a key that became null stays as it was.
            Value::Null => Ok(key.clone()),
            other => Err(failed(pattern, Problem::KeyNotText(other.type_name()))),
        }
    }

    /// Fills a text. A text that is one variable takes the value of it, whatever its type.
    fn text(&mut self, pattern: &TemplateText, depth: usize) -> Result<Value, SubstituteError> {
        Ok(match self.marked(pattern, depth)? {
            Filling::Value(value, _) => value,
            Filling::Text(marked, _) => Value::from(marked.unescape()),
        })
    }

    fn marked(&mut self, pattern: &TemplateText, depth: usize) -> Result<Filling, SubstituteError> {
        let mut inserted = Vec::new();
        let mut found = Cow::Borrowed(pattern.first.as_slice());
        let mut text = Cow::Borrowed(&pattern.text);
        let mut rounds = 0;
        while !found.is_empty() {
            rounds += 1;
            if rounds > self.limits.rounds {
                return Err(failed(pattern, Problem::Limit(Limit::Rounds(self.limits.rounds))));
            }
            let mut values = Vec::with_capacity(found.len());
            for variable in found.iter() {
                let (value, expression) = self.variable(variable, &text, pattern)?;
                if variable.span == (0..text.text().len()) {
                    self.insert(&value, depth).map_err(|limit| failed(pattern, limit))?;
                    return Ok(Filling::Value(value, expression));
                }
                let pasted = query::text_of(&value).map_err(Problem::Query);
                values.push(pasted.map_err(|problem| failed(pattern, problem))?);
                inserted.push((value, expression));
            }
            let made = text.text().len() + values.iter().map(Str::len).sum::<usize>();
            self.spend(made).map_err(|limit| failed(pattern, limit))?;
            let spans: Vec<_> = found.iter().map(|variable| variable.span.clone()).collect();
            text = Cow::Owned(text.fill(&spans, &values));
            // Kyverno: a pass that ends with a shallow variable is the last one.
            if found.last().is_some_and(|variable| variable.shallow) {
                break;
            }
            found = scan::variables(text.shadow())
                .into_iter()
                .map(|span| Prepared::read(text.text(), span, &pattern.path))
                .collect();
        }
        Ok(Filling::Text(text.into_owned(), inserted))
    }

    fn variable(
        &mut self,
        variable: &Prepared,
        text: &Marked,
        pattern: &TemplateText,
    ) -> Result<(Value, Arc<str>), SubstituteError> {
        let choice = match &variable.ask {
            Ask::Nothing => {
                return Err(at_variable(variable, text, pattern, "", Problem::EmptyVariable));
            }
            Ask::This(choice) => choice,
            Ask::Here { target, object } => {
                if self.scope.has_target() {
                    target
                } else {
                    object
                }
            }
        };
        let query = choice.query(self.deleting);
        self.usage.queries += 1;
        self.scope
            .evaluate(query)
            .map(|value| (value, query.shared_text()))
            .map_err(|error| query_failed(variable, text, pattern, query, error))
    }

    /// Counts a value that goes into the result as it is.
    fn insert(&mut self, value: &Value, depth: usize) -> Result<(), Problem> {
        match value {
            Value::String(text) => self.spend(text.len()),
            Value::List(list) => {
                self.descend(depth)?;
                list.iter().try_for_each(|element| self.insert(element, depth + 1))
            }
            Value::Map(map) => {
                self.descend(depth)?;
                map.iter().try_for_each(|(key, element)| {
                    self.spend(key.len())?;
                    self.insert(element, depth + 1)
                })
            }
            _ => self.spend(1),
        }
    }

    fn descend(&mut self, depth: usize) -> Result<(), Problem> {
        if depth >= self.limits.depth {
            return Err(Problem::Limit(Limit::Depth(self.limits.depth)));
        }
        self.spend(2)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Problem> {
        self.usage.bytes = self.usage.bytes.saturating_add(bytes);
        if self.usage.bytes > self.limits.bytes {
            return Err(Problem::Limit(Limit::Bytes(self.limits.bytes)));
        }
        Ok(())
    }
}

/// A problem with a text as a whole.
fn failed(pattern: &TemplateText, problem: Problem) -> SubstituteError {
    SubstituteError {
        path: pattern.path.clone(),
        in_key: pattern.in_key,
        span: None,
        expression: pattern.text.text().to_owned(),
        problem,
    }
}

/// A problem with one variable of a text.
fn at_variable(
    variable: &Prepared,
    text: &Marked,
    pattern: &TemplateText,
    expression: &str,
    problem: Problem,
) -> SubstituteError {
    SubstituteError {
        span: pattern.as_written.then(|| text.written(&variable.span)),
        expression: expression.to_owned(),
        ..failed(pattern, problem)
    }
}

fn query_failed(
    variable: &Prepared,
    text: &Marked,
    pattern: &TemplateText,
    query: &Query,
    error: QueryError,
) -> SubstituteError {
    let inside = error.span();
    let mut failed = at_variable(variable, text, pattern, query.text(), Problem::Query(error));
    // Where the expression was evaluated as it was written, the place inside it is known.
    if let (Some(span), Some(inside)) = (&failed.span, inside)
        && let Some(written) = pattern.text.text().get(span.clone())
        && let Some(offset) = written.find(query.text())
        && scan::content(written).expression == query.text()
    {
        let start = span.start + offset;
        failed.span = Some(start + inside.start..start + inside.end);
    }
    failed
}
