//! What an expression sees of a context, and how values come to it.

use std::borrow::Cow;

use kiln_jmespath::{Expression, Root};
use kiln_rules::{ContextEntry, QueryText};
use kiln_value::{Map, Value};
use kiln_variables::{
    FilledText, Query, QueryError, Substitution, SubstitutionLimits as TemplateLimits, Template,
    VariableScope,
};

use super::{Context, EvalShared, images, place, split_name};
use crate::output::failure::Failure;
use crate::output::trace::{TraceAnswer, TraceStep};

/// A context as some expression sees it: its own entries only up to a number, all of the outer ones.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'l> {
    pub(super) context: &'l Context<'l>,
    pub(super) upto: usize,
}

impl<'l> Layer<'l> {
    pub(crate) fn shared(&self) -> &'l EvalShared<'l> {
        self.context.shared
    }

    pub(super) fn substitution(&self) -> Substitution<'_> {
        let bytes =
            usize::try_from(self.context.shared.counters.bytes_left()).unwrap_or(usize::MAX);
        Substitution::with_limits(self, TemplateLimits { bytes, ..TemplateLimits::default() })
    }

    pub(crate) fn fill(&self, template: &Template) -> Result<Value, Failure> {
        if template.is_plain() {
            return Ok(template.document().clone());
        }
        let mut substitution = self.substitution();
        let filled = substitution.run(template);
        self.context.shared.counters.bytes(substitution.usage().bytes as u64)?;
        Ok(filled?)
    }

    /// Fills a template that is a text which is parsed further, values kept apart.
    pub(crate) fn fill_text(&self, template: &Template) -> Result<FilledText, Failure> {
        let mut substitution = self.substitution();
        let filled = substitution.run_text(template);
        self.context.shared.counters.bytes(substitution.usage().bytes as u64)?;
        Ok(filled?)
    }

    /// The entry that the first name of a path means, and what that entry sees; `None` if it is not an entry, or if several make
    /// its value.
    pub(crate) fn entry(&self, path: &str) -> Option<(Layer<'l>, &'l ContextEntry)> {
        let name = path.split(['.', '[']).next()?;
        let context = self.context;
        for (at, slot) in context.entries[..self.upto].iter().enumerate().rev() {
            let (first, rest) = split_name(&slot.entry.name);
            if first == name {
                return rest.is_none().then_some((Layer { context, upto: at }, slot.entry));
            }
        }
        match context.outer {
            Some(outer) if !context.values.contains_key(name) => outer.all().entry(path),
            _ => None,
        }
    }

    /// Evaluates an expression in the context.
    pub(crate) fn query_here(&self, query: &QueryText) -> Result<Value, Failure> {
        match query {
            QueryText::Ready(expression) => self.search(expression, self),
            QueryText::Unfilled(template) => {
                let expression = self.expression(template)?;
                self.search(&expression, self)
            }
        }
    }

    /// Looks for something in a value rather than in the context.
    pub(crate) fn query_in(&self, query: &QueryText, value: &Value) -> Result<Value, Failure> {
        match query {
            QueryText::Ready(expression) => self.search(expression, value),
            QueryText::Unfilled(template) => {
                let expression = self.expression(template)?;
                self.search(&expression, value)
            }
        }
    }

    pub(super) fn expression(&self, template: &Template) -> Result<Expression, Failure> {
        let text = self.expression_text(template)?;
        Expression::compile(&text)
            .map_err(|error| Failure::from(error).while_doing(format_args!("in {text:?}")))
    }

    fn search(&self, expression: &Expression, root: &dyn Root) -> Result<Value, Failure> {
        Ok(self.shared().search(expression, root)?)
    }

    /// The value under a name, loaded if need be; `None` when there is no such name.
    pub(super) fn value_of(&self, name: &str) -> Result<Option<Value>, Failure> {
        let context = self.context;
        let mut under = Vec::new();
        for (at, slot) in context.entries[..self.upto].iter().enumerate().rev() {
            let (first, rest) = split_name(&slot.entry.name);
            if first == name {
                under.push((at, rest));
                if rest.is_none() {
                    break;
                }
            }
        }
        let mut value = match under.last() {
            Some((at, None)) => {
                let at = *at;
                under.pop();
                Some(context.load(at)?)
            }
            _ => match context.values.get(name) {
                Some(value) => Some(value.clone()),
                None if name == "images" => self.images()?,
                None => context.outer.map_or(Ok(None), |outer| outer.all().value_of(name))?,
            },
        };
        for (at, rest) in under.into_iter().rev() {
            let loaded = context.load(at)?;
            let base = value.get_or_insert_with(Value::map);
            place(base, rest.unwrap_or_default(), loaded);
        }
        Ok(value)
    }

    /// The images of a Pod or of something that holds a Pod; looked for on first use.
    fn images(&self) -> Result<Option<Value>, Failure> {
        if let Some(outer) = self.context.outer {
            return outer.all().value_of("images");
        }
        let request = self.context.values.get("request");
        let object = request.and_then(|request| request.get("object"));
        Ok(object.and_then(images::of))
    }
}

impl Root for Layer<'_> {
    fn field(&self, name: &str) -> Result<Option<Cow<'_, Value>>, kiln_jmespath::RootFailure> {
        Ok(self.value_of(name)?.map(Cow::Owned))
    }

    fn whole(&self) -> Result<Cow<'_, Value>, kiln_jmespath::RootFailure> {
        // What has not been asked for by name stays unloaded.
        let mut whole = match self.context.outer {
            Some(outer) => match outer.all().whole()?.into_owned() {
                Value::Map(map) => map,
                _ => Map::new(),
            },
            None => Map::new(),
        };
        for (key, value) in self.context.values.iter() {
            whole.insert(key.clone(), value.clone());
        }
        let mut whole = Value::Map(whole);
        for slot in &self.context.entries[..self.upto] {
            if let Some(Ok(value)) = &*slot.loaded.borrow() {
                place(&mut whole, &slot.entry.name, value.clone());
            }
        }
        Ok(Cow::Owned(whole))
    }
}

impl VariableScope for Layer<'_> {
    fn evaluate(&self, query: &Query) -> Result<Value, QueryError> {
        let shared = self.shared();
        let found = query.expression().and_then(|expression| Ok(shared.search(expression, self)?));
        shared.tracer.note(|| TraceStep {
            what: format!("{{{{ {} }}}}", query.text()),
            answer: found
                .as_ref()
                .map_or(TraceAnswer::Failed, |value| TraceAnswer::Value(value.clone())),
            why: found.as_ref().err().map(|error| error.message().to_owned()),
            steps: Vec::new(),
        });
        found
    }

    fn is_deleting(&self) -> bool {
        self.context.deleting
    }

    fn has_target(&self) -> bool {
        matches!(self.value_of("target"), Ok(Some(_)))
    }
}
