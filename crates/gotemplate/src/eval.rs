//! Pipelines, commands and arguments to values.

use kiln_value::Str;

use crate::MissingKey;
use crate::error::{Error, Refusal};
use crate::exec::{Exec, Operand};
use crate::functions::{Calls, ParameterType, TemplateFunction};
use crate::marked::keeps_marks;
use crate::methods;
use crate::number::Number;
use crate::tree::{Command, Pipe, Term, TermKind, TreePart};
use crate::value::Dyn;

impl<'e> Exec<'e> {
    /// The value of a pipeline, after its variables are set.
    pub(crate) fn pipe(&mut self, dot: &Operand, pipe: &'e Pipe) -> Result<Operand, Error> {
        self.look_at(TreePart::Pipe(pipe));
        self.enter()?;
        let mut value = None;
        for command in &pipe.commands {
            let result = self.command(dot, command, value)?;
            value = Some(unboxed(result));
        }
        let value = value.unwrap_or(Operand::plain(Dyn::Missing));
        for name in &pipe.variables {
            if pipe.assigns {
                self.assign(name, value.clone())?;
            } else {
                self.variables.push((name.clone(), value.clone()));
            }
        }
        self.leave();
        Ok(value)
    }

    fn command(
        &mut self,
        dot: &Operand,
        command: &'e Command,
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let first = &command.terms[0];
        let arguments = &command.terms[1..];
        match &first.kind {
            TermKind::Field(names) => {
                self.look_at(TreePart::Term(first));
                return self.fields(dot, dot.clone(), names, arguments, last);
            }
            TermKind::Chain(inner, names) => {
                self.look_at(TreePart::Term(first));
                let receiver = self.chained(dot, inner, first)?;
                return self.fields(dot, receiver, names, arguments, last);
            }
            TermKind::Function(function) => {
                self.look_at(TreePart::Term(first));
                return self.function(dot, function, TreePart::Command(command), arguments, last);
            }
            TermKind::Pipe(pipe) => {
                self.refuse_arguments(first, arguments, last.as_ref())?;
                return self.pipe(dot, pipe);
            }
            TermKind::Variable(names) => {
                self.look_at(TreePart::Term(first));
                let value = self.variable(&names[0])?;
                if names.len() == 1 {
                    self.refuse_arguments(first, arguments, last.as_ref())?;
                    return Ok(value);
                }
                return self.fields(dot, value, &names[1..], arguments, last);
            }
            _ => {}
        }
        self.look_at(TreePart::Term(first));
        self.refuse_arguments(first, arguments, last.as_ref())?;
        match &first.kind {
            TermKind::Nil => Err(self.error("nil is not a command")),
            _ => self.literal(dot, first),
        }
    }

    fn refuse_arguments(
        &self,
        first: &Term,
        arguments: &[Term],
        last: Option<&Operand>,
    ) -> Result<(), Error> {
        if arguments.is_empty() && last.is_none() {
            return Ok(());
        }
        let shown = match &first.kind {
            TermKind::Pipe(pipe) => pipe.to_string(),
            _ => first.to_string(),
        };
        Err(self.error(format!("can't give argument to non-function {shown}")))
    }

    /// The value before the fields of a chain.
    fn chained(&mut self, dot: &Operand, inner: &'e Term, whole: &Term) -> Result<Operand, Error> {
        if let TermKind::Nil = inner.kind {
            return Err(self.error(format!("indirection through explicit nil in {whole}")));
        }
        self.look_at(TreePart::Term(inner));
        self.term(dot, inner)
    }

    fn variable(&self, name: &Str) -> Result<Operand, Error> {
        let found = self.variables.iter().rev().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| self.error(format!("undefined variable: {name}")))
    }

    fn fields(
        &mut self,
        dot: &Operand,
        receiver: Operand,
        names: &'e [Str],
        arguments: &'e [Term],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let Some((final_name, before)) = names.split_last() else { return Ok(receiver) };
        let mut receiver = receiver;
        for (at, name) in before.iter().enumerate() {
            self.refuse_nil(&receiver, names, at)?;
            receiver = self.field(dot, &receiver, name, &[], None)?;
        }
        self.refuse_nil(&receiver, names, before.len())?;
        self.field(dot, &receiver, final_name, arguments, last)
    }

    /// Refuses to look for a field in nothing, and names what is not set.
    fn refuse_nil(&self, receiver: &Operand, names: &[Str], at: usize) -> Result<(), Error> {
        if !matches!(receiver.value, Dyn::Nil) {
            return Ok(());
        }
        let rest: String = names[at..].iter().map(|name| format!(".{name}")).collect();
        let whole = self.at.to_string();
        let unset = whole.strip_suffix(&rest).filter(|unset| !unset.is_empty());
        let hint = unset.map(|unset| format!("{unset} has no value: set it, or test it with `if`"));
        let name = &names[at];
        Err(self.error(format!("nil pointer evaluating interface {{}}.{name}")).maybe_hint(hint))
    }

    fn field(
        &mut self,
        dot: &Operand,
        receiver: &Operand,
        name: &'e Str,
        arguments: &'e [Term],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        self.step()?;
        match &receiver.value {
            Dyn::Missing if self.missing_key == MissingKey::Error => {
                let name = kiln_text::quote::quote(name);
                Err(self.error(format!("nil data; no entry for key {name}")))
            }
            Dyn::Missing => Ok(Operand::plain(Dyn::Missing)),
            // Go looks for a method first.
            value if let Some(method) = methods::find(value, name) => {
                self.method(dot, receiver, method, arguments, last)
            }
            Dyn::Map(_) if !arguments.is_empty() || last.is_some() => {
                Err(self.error(format!("{name} is not a method but has arguments")))
            }
            Dyn::Map(map) => {
                let found = match (map.get(name), self.missing_key) {
                    (Some(found), _) => found,
                    (None, _) if map.is_record => {
                        let fields = map.keys().join(", .");
                        let of = match map.named {
                            None => "in this template".to_owned(),
                            Some(_) if receiver.boxed => "in type interface {}".to_owned(),
                            Some(named) => format!("in type {}", named.name),
                        };
                        let message = format!("can't evaluate field {name} {of}");
                        let hint = format!("the fields are .{fields}");
                        return Err(self.error(message).maybe_hint(Some(hint)));
                    }
                    (None, MissingKey::Default) => Dyn::Missing,
                    (None, MissingKey::Zero) if map.of_text => Dyn::from(""),
                    (None, MissingKey::Zero) if map.is_files() => Dyn::Bytes([].into()),
                    (None, MissingKey::Zero) => Dyn::Nil,
                    (None, MissingKey::Error) => {
                        let name = kiln_text::quote::quote(name);
                        return Err(self.error(format!("map has no entry for key {name}")));
                    }
                };
                Ok(Operand { value: found, boxed: !map.of_text })
            }
            value => {
                let found = if receiver.boxed { "interface {}" } else { value.type_name() };
                Err(self.error(format!("can't evaluate field {name} in type {found}")))
            }
        }
    }

    fn method(
        &mut self,
        dot: &Operand,
        receiver: &Operand,
        method: &'static TemplateFunction,
        arguments: &'e [Term],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        let node = self.at;
        let mut values = vec![receiver.value.clone()];
        self.arguments(dot, method, arguments, last, &mut values)?;
        match self.invoke(method, &values) {
            Ok(result) => {
                self.at = node;
                Ok(Operand::plain(result))
            }
            Err(fault) => {
                self.look_at(node);
                Err(self.fault(fault, Some(method.name)))
            }
        }
    }

    /// Runs a function that has its arguments, once the texts among them are paid for.
    fn invoke(&self, function: &TemplateFunction, values: &[Dyn]) -> Result<Dyn, Refusal> {
        self.meter.read(values.iter().map(text_bytes).sum())?;
        let result = (function.run)(&self.call(), values)?;
        let made_of_data = !keeps_marks(function.name) && values.iter().any(Dyn::may_hold_data);
        Ok(if made_of_data { result.as_data() } else { result })
    }

    fn function(
        &mut self,
        dot: &Operand,
        function: &'static TemplateFunction,
        node: TreePart<'e>,
        arguments: &'e [Term],
        last: Option<Operand>,
    ) -> Result<Operand, Error> {
        self.enter()?;
        let given = arguments.len() + usize::from(last.is_some());
        let (wanted, name) = (function.parameters.len(), function.name);
        if function.more.is_some() && given < wanted {
            let given = arguments.len();
            return Err(self.error(format!(
                "wrong number of args for {name}: want at least {wanted} got {given}"
            )));
        }
        if function.more.is_none() && given != wanted {
            return Err(
                self.error(format!("wrong number of args for {name}: want {wanted} got {given}"))
            );
        }
        let result = if let "and" | "or" = name {
            self.short_circuit(dot, name == "or", arguments, last)?
        } else {
            let mut values = Vec::with_capacity(given);
            self.arguments(dot, function, arguments, last, &mut values)?;
            match function.calls {
                Calls::Nothing => {}
                Calls::Template | Calls::Text => {
                    self.look_at(node);
                    let [Dyn::Text(text), data] = values.as_slice() else {
                        return Err(self.error("a template and its data are needed"));
                    };
                    let result = match function.calls {
                        Calls::Template => self.include(text, data.clone())?,
                        _ => self.tpl(text, data.clone())?,
                    };
                    self.leave();
                    return Ok(Operand::plain(result));
                }
            }
            match self.invoke(function, &values) {
                Ok(result) => {
                    self.at = node;
                    result
                }
                Err(fault) => {
                    self.look_at(node);
                    let unset = match (name, arguments) {
                        ("required", [_, value]) if value.is_path() => Some(format!("set {value}")),
                        _ => None,
                    };
                    let error = self.fault(name_callee(fault, name, arguments), Some(name));
                    return Err(error.maybe_hint(unset));
                }
            }
        };
        self.leave();
        // What `index` and the like take out of data has the type of its place.
        let boxed = matches!(name, "index" | "and" | "or") || matches!(result, Dyn::Nil);
        Ok(Operand { value: result, boxed })
    }

    fn short_circuit(
        &mut self,
        dot: &Operand,
        stop_at: bool,
        arguments: &'e [Term],
        last: Option<Operand>,
    ) -> Result<Dyn, Error> {
        let mut value = Dyn::Missing;
        for term in arguments {
            value = self.argument(dot, ParameterType::Raw, term)?;
            if value.is_true() == stop_at {
                return Ok(value);
            }
        }
        Ok(last.map_or(value, |last| last.value))
    }

    /// Appends the arguments of a call, checked against the parameters.
    fn arguments(
        &mut self,
        dot: &Operand,
        function: &'static TemplateFunction,
        arguments: &'e [Term],
        last: Option<Operand>,
        values: &mut Vec<Dyn>,
    ) -> Result<(), Error> {
        let declared = |at: usize| function.parameters.get(at).copied().or(function.more);
        let given = arguments.len() + usize::from(last.is_some());
        // Methods come without the check of functions.
        if given > function.parameters.len() && function.more.is_none()
            || given < function.parameters.len()
        {
            let (name, wanted) = (function.name, function.parameters.len());
            return Err(
                self.error(format!("wrong number of args for {name}: want {wanted} got {given}"))
            );
        }
        for (at, term) in arguments.iter().enumerate() {
            let value = self.argument(dot, declared(at).unwrap_or(ParameterType::Any), term)?;
            values.push(value);
        }
        if let Some(last) = last {
            let declared = declared(arguments.len()).unwrap_or(ParameterType::Any);
            values.push(self.checked(last.value, declared)?);
        }
        Ok(())
    }

    fn argument(
        &mut self,
        dot: &Operand,
        declared: ParameterType,
        term: &'e Term,
    ) -> Result<Dyn, Error> {
        self.look_at(TreePart::Term(term));
        match &term.kind {
            TermKind::Dot => self.checked(dot.value.clone(), declared),
            TermKind::Nil => match declared {
                ParameterType::Raw => Ok(Dyn::Missing),
                ParameterType::Any | ParameterType::Map => Ok(Dyn::Nil),
                _ => Err(self.error(format!("cannot assign nil to {}", declared.name()))),
            },
            TermKind::Bool(_) | TermKind::Number(_) | TermKind::Text(..) => {
                self.constant(dot, declared, term)
            }
            _ => {
                let value = self.term(dot, term)?.value;
                self.checked(value, declared)
            }
        }
    }

    /// A literal for a parameter: the type of the parameter decides what it is.
    fn constant(
        &mut self,
        dot: &Operand,
        declared: ParameterType,
        term: &'e Term,
    ) -> Result<Dyn, Error> {
        let expected = |what: &str| format!("expected {what}; found {term}");
        let number = match &term.kind {
            TermKind::Number(number) => Some(number),
            _ => None,
        };
        let found = match declared {
            ParameterType::Any | ParameterType::Raw => {
                return self.literal(dot, term).map(|literal| literal.value);
            }
            ParameterType::Text => match &term.kind {
                TermKind::Text(_, text) => Some(Dyn::Text(text.clone().into())),
                _ => return Err(self.error(expected("string"))),
            },
            ParameterType::Bool => match &term.kind {
                TermKind::Bool(truth) => Some(Dyn::Bool(*truth)),
                _ => return Err(self.error(expected("bool"))),
            },
            ParameterType::Int => match number.and_then(|number| number.int) {
                Some(int) => Some(Dyn::Int(int)),
                None => return Err(self.error(expected("integer"))),
            },
            ParameterType::Uint32 => match number.and_then(|number| number.uint) {
                Some(uint) => Some(Dyn::Int64(i64::from(uint as u32))),
                None => return Err(self.error(expected("unsigned integer"))),
            },
            ParameterType::Float => match number.and_then(|number| number.float) {
                Some(float) => Some(Dyn::Float(float)),
                None => return Err(self.error(expected("float"))),
            },
            ParameterType::Map | ParameterType::Time | ParameterType::Version => None,
        };
        found.ok_or_else(|| {
            self.error(format!("can't handle {term} for arg of type {}", declared.name()))
        })
    }

    /// A value for a parameter.
    fn checked(&self, value: Dyn, declared: ParameterType) -> Result<Dyn, Error> {
        let wanted = declared.name();
        match value {
            Dyn::Missing if matches!(declared, ParameterType::Any | ParameterType::Map) => {
                Ok(Dyn::Nil)
            }
            Dyn::Missing if declared != ParameterType::Raw => {
                Err(self.error(format!("invalid value; expected {wanted}")))
            }
            Dyn::Nil if !matches!(declared, ParameterType::Any | ParameterType::Raw) => {
                Err(self
                    .error(format!("wrong type for value; expected {wanted}; got interface {{}}")))
            }
            // What takes any map sees no methods.
            Dyn::Map(map)
                if declared == ParameterType::Map && declared.accepts(&Dyn::Map(map.clone())) =>
            {
                Ok(Dyn::Map(map.under_type(None)))
            }
            value if declared.accepts(&value) => Ok(value),
            value => Err(self.error(format!(
                "wrong type for value; expected {wanted}; got {}",
                value.type_name()
            ))),
        }
    }

    fn term(&mut self, dot: &Operand, term: &'e Term) -> Result<Operand, Error> {
        self.look_at(TreePart::Term(term));
        match &term.kind {
            TermKind::Field(names) => self.fields(dot, dot.clone(), names, &[], None),
            TermKind::Variable(names) => {
                let value = self.variable(&names[0])?;
                self.fields(dot, value, &names[1..], &[], None)
            }
            TermKind::Function(function) => {
                self.function(dot, function, TreePart::Term(term), &[], None)
            }
            TermKind::Chain(inner, names) => {
                let receiver = self.chained(dot, inner, term)?;
                self.fields(dot, receiver, names, &[], None)
            }
            TermKind::Pipe(pipe) => self.pipe(dot, pipe),
            _ => self.literal(dot, term),
        }
    }

    fn literal(&self, dot: &Operand, term: &Term) -> Result<Operand, Error> {
        Ok(match &term.kind {
            TermKind::Dot => dot.clone(),
            TermKind::Bool(truth) => Operand::plain(Dyn::Bool(*truth)),
            TermKind::Text(_, text) => Operand::plain(Dyn::Text(text.clone().into())),
            TermKind::Number(number) => Operand::plain(self.ideal(number)?),
            _ => return Err(self.error(format!("can't evaluate command {term}"))),
        })
    }

    /// A number literal where no type is asked for.
    fn ideal(&self, number: &Number) -> Result<Dyn, Error> {
        match (number.complex, number.float, number.int) {
            (Some((real, imaginary)), ..) => Ok(Dyn::Complex(real, imaginary)),
            (_, Some(float), _) if number.looks_like_float() => Ok(Dyn::Float(float)),
            (_, _, Some(int)) => Ok(Dyn::Int(int)),
            _ => Err(self.error(format!("{} overflows int", number.text))),
        }
    }
}

/// Go: what leaves a command is no longer an interface, and a nil in one is nothing at all.
fn unboxed(operand: Operand) -> Operand {
    match operand.value {
        Dyn::Nil => Operand::plain(Dyn::Missing),
        value => Operand::plain(value),
    }
}

/// How much text a value is.
fn text_bytes(value: &Dyn) -> u64 {
    match value {
        Dyn::Text(text) => text.len() as u64,
        _ => 0,
    }
}

/// Go names the argument of `call` that is not a function.
fn name_callee(fault: Refusal, name: &str, arguments: &[Term]) -> Refusal {
    match (fault, arguments.first()) {
        (Refusal::Failed(message), Some(callee)) if name == "call" => {
            let message = message.replacen("non-function", &format!("non-function {callee}"), 1);
            Refusal::Failed(message)
        }
        (fault, _) => fault,
    }
}
