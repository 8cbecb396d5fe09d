//! Rendering: walks the tree, keeps variables and the current place, counts what it costs.

use kiln_value::Str;

use crate::error::{Error, ErrorKind, Refusal};
use crate::format::{self, Sink};
use crate::functions::FunctionCall;
use crate::marked::Marked;
use crate::meter::Meter;
use crate::tree::{
    Branch, FoundTemplate, Pipe, SourceFile, TemplateNode, TemplateScope, TreePart, Trees,
};
use crate::value::Dyn;
use crate::{
    AmbientSources, FunctionSet, Lookup, MissingKey, TemplateLimits, TemplateOptions, parse,
};

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
    pub(crate) scope: TemplateScope<'e>,
    pub(crate) missing_key: MissingKey,
    functions: FunctionSet,
    pub(crate) meter: &'e Meter,
    sources: &'e dyn AmbientSources,
    lookup: &'e dyn Lookup,
    limits: &'e TemplateLimits,
    out: Sink<'e>,
    /// The file and the template that are being rendered, and the part that was looked at last.
    pub(crate) file: &'e SourceFile,
    pub(crate) template: &'e str,
    pub(crate) at: TreePart<'e>,
    /// Where Go says an error is: after a call at its last argument, not at the call.
    pub(crate) go_at: TreePart<'e>,
    pub(crate) variables: Vec<(Str, Operand)>,
    depth: usize,
}

/// What a rendering works with.
#[derive(Clone, Copy)]
pub(crate) struct Means<'e> {
    pub(crate) meter: &'e Meter,
    pub(crate) sources: &'e dyn AmbientSources,
    pub(crate) lookup: &'e dyn Lookup,
    pub(crate) limits: &'e TemplateLimits,
}

/// Renders one of the templates.
pub(crate) fn run<'e>(
    trees: &'e Trees,
    name: &str,
    options: &TemplateOptions,
    means: Means<'e>,
    data: Dyn,
) -> Result<Sink<'e>, Error> {
    let scope = TemplateScope { trees, outer: None };
    let Some(found) = scope.find(name) else { return Ok(Sink::new(means.meter)) };
    let exec = Exec {
        scope,
        missing_key: options.missing_key,
        functions: options.functions,
        meter: means.meter,
        sources: means.sources,
        lookup: means.lookup,
        limits: means.limits,
        out: Sink::new(means.meter),
        file: found.file,
        template: found.name,
        at: TreePart::None,
        go_at: TreePart::None,
        variables: Vec::new(),
        depth: 0,
    };
    exec.run(found, data)
}

impl<'e> Exec<'e> {
    fn run(mut self, found: FoundTemplate<'e>, data: Dyn) -> Result<Sink<'e>, Error> {
        match self.rendered(found, &Operand::plain(data)) {
            Ok(()) => Ok(self.out),
            Err(error) => Err(error.with_partial(self.out.text)),
        }
    }

    /// Renders a template, which sees nothing of the variables around its call.
    fn rendered(&mut self, found: FoundTemplate<'e>, dot: &Operand) -> Result<(), Error> {
        let own = vec![(Str::new_static("$"), dot.clone())];
        let variables = std::mem::replace(&mut self.variables, own);
        let caller = (self.file, self.template);
        (self.file, self.template) = (found.file, found.name);
        self.list(dot, found.list)?;
        self.variables = variables;
        (self.file, self.template) = caller;
        Ok(())
    }

    /// Helm's `include`: a template as a text. An error is that of the template, and says where it was included.
    pub(crate) fn include(&mut self, name: &str, data: Dyn) -> Result<Dyn, Error> {
        let Some(found) = self.scope.find(name) else {
            let name = kiln_text::quote::quote(name);
            let message =
                format!("template: no template {name} associated with template \"gotpl\"");
            return Err(self.fault(message.into(), Some("include")));
        };
        let caller = (self.file, self.template, self.at);
        let out = std::mem::replace(&mut self.out, Sink::new(self.meter));
        if let Err(error) = self.rendered(found, &Operand::plain(present(data))) {
            (self.file, self.template) = (caller.0, caller.1);
            self.look_at(caller.2);
            return Err(match error.kind() {
                // Endless recursion would tell of every level.
                ErrorKind::Limit => error,
                _ => error.called_from(&format!("{}error calling include: ", self.go_prefix())),
            });
        }
        let text = std::mem::replace(&mut self.out, out).finish();
        Ok(Dyn::Text(text))
    }

    /// Helm's `tpl`: a text as a template, which sees all named ones and may define more for itself.
    pub(crate) fn tpl(&mut self, text: &str, data: Dyn) -> Result<Dyn, Error> {
        const NAME: &str = "gotpl";
        if !text.contains("{{") {
            return Ok(Dyn::from(text.replace(crate::NO_VALUE, "")));
        }
        self.meter.make(text.len() as u64).map_err(|fault| self.fault(fault, None))?;
        let failed = |this: &Self, what: &str, error: &Error| {
            let message = format!("{what} {}: {}", kiln_text::quote::quote(text), error.go_text());
            match error.kind() {
                kind @ (ErrorKind::Limit | ErrorKind::Stopped) => {
                    this.error_of(kind, error.message())
                }
                kind => this.error_of(kind, format!("error calling tpl: {message}")),
            }
        };
        let definitions = parse::parse(NAME, text, self.functions, self.limits)
            .map_err(|error| failed(self, "cannot parse template", &error))?;
        let mut trees = Trees::default();
        trees.add(NAME, text, definitions);
        let scope = TemplateScope { trees: &trees, outer: Some(&self.scope) };
        let Some(found) = scope.find(NAME) else { return Ok(Dyn::from("")) };
        let inner = Exec {
            scope,
            out: Sink::new(self.meter),
            file: found.file,
            template: found.name,
            at: TreePart::None,
            go_at: TreePart::None,
            variables: Vec::new(),
            missing_key: self.missing_key,
            functions: self.functions,
            meter: self.meter,
            sources: self.sources,
            lookup: self.lookup,
            limits: self.limits,
            depth: self.depth,
        };
        let written = inner
            .run(found, present(data))
            .map_err(|error| failed(self, "error during tpl function execution for", &error))?;
        Ok(Dyn::from(written.text.replace(crate::NO_VALUE, "")))
    }

    pub(crate) fn call(&self) -> FunctionCall<'e> {
        FunctionCall { meter: self.meter, sources: self.sources, lookup: self.lookup }
    }

    pub(crate) fn look_at(&mut self, part: TreePart<'e>) {
        (self.at, self.go_at) = (part, part);
    }

    /// An error at the part that was looked at last, in Go's form.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        self.error_of(ErrorKind::Exec, message)
    }

    fn error_of(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let source = self.file.text.as_str();
        let at = self.at.at().saturating_sub(self.at.lead()).min(source.len());
        let end = (at + self.at.to_string().len()).min(source.len());
        let end = (at..=end).rev().find(|&end| source.is_char_boundary(end)).unwrap_or(at);
        Error::new(kind, at..end, message).with_go_prefix(self.go_prefix()).in_file(&self.file.name)
    }

    /// What Go puts before a message: where the template is, and what it looks at.
    fn go_prefix(&self) -> String {
        let source = self.file.text.as_str();
        let at = self.go_at.at().min(source.len());
        let before = &source[..at];
        let line = before.matches('\n').count() + 1;
        let column = at - before.rfind('\n').map_or(0, |newline| newline + 1);
        format!(
            "template: {}:{line}:{column}: executing {} at <{}>: ",
            self.file.name,
            kiln_text::quote::quote(self.template),
            self.go_at,
        )
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
            Refusal::Stopped(message) => self.error_of(ErrorKind::Stopped, message),
            Refusal::Limit(message) => self.error_of(ErrorKind::Limit, message),
        }
    }

    pub(crate) fn step(&self) -> Result<(), Error> {
        self.meter.step(1).map_err(|fault| self.fault(fault, None))
    }

    /// Goes one level in; [`Exec::leave`] goes out again.
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        self.step()?;
        if self.depth >= self.limits.depth {
            let limit = self.limits.depth;
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

    fn list(&mut self, dot: &Operand, list: &'e [TemplateNode]) -> Result<Flow, Error> {
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

    fn node(&mut self, dot: &Operand, node: &'e TemplateNode) -> Result<Flow, Error> {
        self.step()?;
        match node {
            TemplateNode::Text(text) => self.write(text)?,
            TemplateNode::Action(at, pipe) => self.action(dot, *at, pipe)?,
            TemplateNode::If(branch) => return self.branch(dot, branch, false),
            TemplateNode::With(branch) => return self.branch(dot, branch, true),
            TemplateNode::Range(branch) => {
                let variables = self.variables.len();
                let flow = self.range(dot, branch);
                self.variables.truncate(variables);
                return flow;
            }
            TemplateNode::Template(at, name, pipe) => {
                self.look_at(TreePart::Template(*at, name, pipe.as_ref()));
                self.template(dot, name, pipe.as_ref())?;
            }
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
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
            Dyn::Missing | Dyn::Nil => self.write(crate::NO_VALUE),
            Dyn::Text(text) => self.write_marked(text),
            // Go asks a struct that is reached through a pointer for its own words.
            Dyn::Map(map) if let Some(field) = map.named.and_then(|named| named.shown_as) => {
                match map.get(field) {
                    Some(Dyn::Text(text)) => self.write_marked(&text),
                    _ => Ok(()),
                }
            }
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
        let Some(found) = self.scope.find(name) else {
            let name = kiln_text::quote::quote(name);
            return Err(self.error(format!("template {name} not defined")));
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(dot, pipe)?,
            None => Operand::plain(Dyn::Missing),
        };
        self.rendered(found, &dot)
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

/// What a template is given as its data: Go has no value there rather than a nil.
fn present(data: Dyn) -> Dyn {
    match data {
        Dyn::Nil => Dyn::Missing,
        data => data,
    }
}
