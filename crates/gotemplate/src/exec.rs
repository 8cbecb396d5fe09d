//! Rendering: walks the tree, keeps variables and the current place, counts what it costs.

use kiln_value::Str;

use crate::error::{Error, ErrorKind, Refusal};
use crate::format::{self, Sink};
use crate::functions::Call;
use crate::marked::Marked;
use crate::meter::Meter;
use crate::tree::{Branch, Node, Pipe, TreePart, Trees};
use crate::value::Dyn;
use crate::{AmbientSources, MissingKey};

/// A value, and whether its declared type is `interface {}` rather than its own.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) value: Dyn,
    pub(crate) boxed: bool,
}

impl Operand {
    pub(crate) fn boxed(value: Dyn) -> Self {
        Operand { value, boxed: true }
    }

    pub(crate) fn plain(value: Dyn) -> Self {
        Operand { value, boxed: false }
    }
}

/// How a walk went on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// One rendering.
pub(crate) struct Exec<'e> {
    pub(crate) trees: &'e Trees,
    pub(crate) source: &'e str,
    pub(crate) name: &'e str,
    pub(crate) missing_key: MissingKey,
    pub(crate) meter: &'e Meter,
    pub(crate) sources: &'e dyn AmbientSources,
    pub(crate) depth_limit: usize,
    pub(crate) out: Sink<'e>,
    /// The template that is being rendered, and the part that was looked at last.
    pub(crate) template: &'e str,
    pub(crate) at: TreePart<'e>,
    /// Where Go says an error is: after a call at its last argument, not at the call.
    pub(crate) go_at: TreePart<'e>,
    pub(crate) variables: Vec<(Str, Operand)>,
    pub(crate) depth: usize,
}

impl<'e> Exec<'e> {
    /// Renders the main template.
    pub(crate) fn run(mut self, data: Dyn) -> Result<Sink<'e>, Error> {
        let Some(root) = self.trees.named.get(self.name) else { return Ok(self.out) };
        let dot = Operand::plain(data);
        self.variables.push((Str::new_static("$"), dot.clone()));
        match self.list(&dot, root) {
            Ok(_) => Ok(self.out),
            Err(error) => Err(error.with_partial(self.out.text)),
        }
    }

    pub(crate) fn call(&self) -> Call<'e> {
        Call { meter: self.meter, sources: self.sources }
    }

    pub(crate) fn look_at(&mut self, part: TreePart<'e>) {
        (self.at, self.go_at) = (part, part);
    }

    /// An error at the part that was looked at last, in Go's form.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        self.error_of(ErrorKind::Exec, message)
    }

    fn error_of(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let place = |part: TreePart<'_>| (part.at().min(self.source.len()), part.to_string());
        let (at, context) = place(self.go_at);
        let before = &self.source[..at];
        let line = before.matches('\n').count() + 1;
        let column = at - before.rfind('\n').map_or(0, |newline| newline + 1);
        let prefix = format!(
            "template: {}:{line}:{column}: executing {} at <{context}>: ",
            self.name,
            kiln_text::quote::quote(self.template),
        );
        let (at, context) = place(self.at);
        let end = (at + context.len()).min(self.source.len());
        let end = (at..=end).rev().find(|&end| self.source.is_char_boundary(end)).unwrap_or(at);
        Error::new(kind, at..end, message).with_go_prefix(prefix)
    }

    /// A function's own failure; `calling` says which function it was.
    pub(crate) fn fault(&self, fault: Refusal, calling: Option<&str>) -> Error {
        let prefixed = |message: String| match calling {
            Some(name) => format!("error calling {name}: {message}"),
            None => message,
        };
        match fault {
            Refusal::Failed(message) => self.error(prefixed(message)),
            Refusal::Refused(message, hint) => {
                self.error(prefixed(message)).maybe_hint(Some(hint.to_owned()))
            }
            Refusal::Limit(message) => self.error_of(ErrorKind::Limit, message),
        }
    }

    pub(crate) fn step(&self) -> Result<(), Error> {
        self.meter.step(1).map_err(|fault| self.fault(fault, None))
    }

    /// Goes one level in; [`Exec::leave`] goes out again.
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        self.step()?;
        if self.depth >= self.depth_limit {
            let limit = self.depth_limit;
            return Err(self.error_of(
                ErrorKind::Limit,
                format!("the template goes deeper than {limit} levels of calls and blocks"),
            ));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        self.out.push(text).map_err(|fault| self.fault(fault, None))
    }

    fn write_marked(&mut self, text: &Marked) -> Result<(), Error> {
        self.out.push_marked(text).map_err(|fault| self.fault(fault, None))
    }

    fn list(&mut self, dot: &Operand, list: &'e [Node]) -> Result<Flow, Error> {
        self.enter()?;
        for node in list {
            let flow = self.node(dot, node)?;
            if flow != Flow::Next {
                self.leave();
                return Ok(flow);
            }
        }
        self.leave();
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Operand, node: &'e Node) -> Result<Flow, Error> {
        self.step()?;
        match node {
            Node::Text(text) => self.write(text)?,
            Node::Action(at, pipe) => self.action(dot, *at, pipe)?,
            Node::If(branch) => return self.branch(dot, branch, false),
            Node::With(branch) => return self.branch(dot, branch, true),
            Node::Range(branch) => {
                let variables = self.variables.len();
                let flow = self.range(dot, branch);
                self.variables.truncate(variables);
                return flow;
            }
            Node::Template(at, name, pipe) => {
                self.look_at(TreePart::Template(*at, name, pipe.as_ref()));
                self.template(dot, name, pipe.as_ref())?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn action(&mut self, dot: &Operand, at: u32, pipe: &'e Pipe) -> Result<(), Error> {
        self.look_at(TreePart::Action(at, pipe));
        let value = self.pipe(dot, pipe)?;
        if !pipe.variables.is_empty() {
            return Ok(());
        }
        self.look_at(TreePart::Action(at, pipe));
        match &value.value {
            Dyn::Missing | Dyn::Nil => self.write("<no value>"),
            Dyn::Text(text) => self.write_marked(text),
            other => {
                let text = format::plain(other, self.meter);
                let text = text.map_err(|fault| self.fault(fault, None))?;
                self.write_marked(&text)
            }
        }
    }

    fn branch(&mut self, dot: &Operand, branch: &'e Branch, with: bool) -> Result<Flow, Error> {
        let variables = self.variables.len();
        let value = self.pipe(dot, &branch.pipe)?;
        let flow = match (value.value.is_true(), &branch.otherwise) {
            (true, _) => self.list(if with { &value } else { dot }, &branch.list),
            (false, Some(list)) => self.list(dot, list),
            (false, None) => Ok(Flow::Next),
        };
        self.variables.truncate(variables);
        flow
    }

    fn range(&mut self, dot: &Operand, branch: &'e Branch) -> Result<Flow, Error> {
        let value = self.pipe(dot, &branch.pipe)?.value;
        let mut ran = false;
        let several = branch.pipe.variables.len() > 1;
        match &value {
            Dyn::List(list) => {
                for (index, item) in list.items().iter().enumerate() {
                    ran = true;
                    let index = Dyn::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    if !self.iterate(branch, index, &Operand::boxed(item.clone()))? {
                        break;
                    }
                }
            }
            Dyn::Map(map) => {
                self.meter.step(map.len() as u64).map_err(|fault| self.fault(fault, None))?;
                for (key, item) in map.entries() {
                    ran = true;
                    if !self.iterate(branch, Dyn::Text(Marked::data(key)), &Operand::boxed(item))? {
                        break;
                    }
                }
            }
            Dyn::Missing | Dyn::Nil => {}
            other => match other.as_integer() {
                Some(count) if several => {
                    return Err(self.error(format!(
                        "can't use {count} to iterate over more than one variable"
                    )));
                }
                Some(count) => {
                    for number in 0..i64::try_from(count).unwrap_or(i64::MAX) {
                        ran = true;
                        let item = Operand::plain(Dyn::Int(number));
                        if !self.iterate(branch, Dyn::Missing, &item)? {
                            break;
                        }
                    }
                }
                None => {
                    let shown = format::plain(other, self.meter);
                    let shown = shown.map_err(|fault| self.fault(fault, None))?;
                    return Err(self.error(format!("range can't iterate over {}", shown.as_str())));
                }
            },
        }
        match &branch.otherwise {
            Some(list) if !ran => self.list(dot, list),
            _ => Ok(Flow::Next),
        }
    }

    /// One turn of a loop. Whether there is another.
    fn iterate(&mut self, branch: &'e Branch, index: Dyn, item: &Operand) -> Result<bool, Error> {
        let pipe = &branch.pipe;
        let index = Operand::plain(index);
        if pipe.assigns {
            match pipe.variables.as_slice() {
                [only] => self.assign(only, item.clone())?,
                [first, second, ..] => {
                    self.assign(first, index)?;
                    self.assign(second, item.clone())?;
                }
                [] => {}
            }
        } else {
            let top = self.variables.len();
            if !pipe.variables.is_empty() {
                self.variables[top - 1].1 = item.clone();
            }
            if pipe.variables.len() > 1 {
                self.variables[top - 2].1 = index;
            }
        }
        let variables = self.variables.len();
        let flow = self.list(item, &branch.list)?;
        self.variables.truncate(variables);
        Ok(flow != Flow::Break)
    }

    fn template(
        &mut self,
        dot: &Operand,
        name: &'e Str,
        pipe: Option<&'e Pipe>,
    ) -> Result<(), Error> {
        let Some((name, list)) = self.trees.named.get_key_value(name.as_str()) else {
            let name = kiln_text::quote::quote(name);
            return Err(self.error(format!("template {name} not defined")));
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(dot, pipe)?,
            None => Operand::plain(Dyn::Missing),
        };
        // A template sees nothing of the variables around its call.
        let own = vec![(Str::new_static("$"), dot.clone())];
        let variables = std::mem::replace(&mut self.variables, own);
        let caller = std::mem::replace(&mut self.template, name.as_str());
        self.list(&dot, list)?;
        self.variables = variables;
        self.template = caller;
        Ok(())
    }

    pub(crate) fn assign(&mut self, name: &Str, value: Operand) -> Result<(), Error> {
        match self.variables.iter_mut().rev().find(|(known, _)| known == name) {
            Some((_, place)) => {
                *place = value;
                Ok(())
            }
            None => Err(self.error(format!("undefined variable: {name}"))),
        }
    }
}
