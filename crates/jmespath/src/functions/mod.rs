//! The functions: what each takes and gives, and the call itself.
//!
//! A call checks the number of its arguments, then their types, then runs. Each file below holds
//! one family and its table; [`functions`] lists all of them for documentation and completion.

mod arithmetic;
mod data;
mod encoding;
mod matching;
mod network;
mod standard;
mod strings;
mod time;
mod x509;

pub use x509::decode_certificate;

use std::borrow::Cow;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use kiln_diagnostic::did_you_mean;
use kiln_text::Regex;
use kiln_value::{List, Map, Value, json};

use crate::AmbientSources;
use crate::error::{Error, ErrorKind};
use crate::eval::{EvalFault, EvalOutcome, SearchRun};
use crate::number;
use crate::tree::{JmesPathCall, JmesPathNode, NodeId, Tree};
use crate::weight;

/// A type that an argument may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentType {
    /// Any value, also null and one that is missing.
    Any,
    String,
    /// A number; never a text that looks like one.
    Number,
    /// A list.
    Array,
    /// A list of numbers.
    Numbers,
    /// A list of strings.
    Strings,
    /// A map.
    Object,
    /// An expression after `&`.
    Expression,
}

impl ArgumentType {
    fn accepts(self, argument: &Argument<'_>) -> bool {
        match argument {
            Argument::Reference(_) => self == ArgumentType::Expression,
            Argument::Value(value) => match (self, &**value) {
                (ArgumentType::Any, _)
                | (ArgumentType::String, Value::String(_))
                | (ArgumentType::Number, Value::Number(_))
                | (ArgumentType::Array, Value::List(_))
                | (ArgumentType::Object, Value::Map(_)) => true,
                (ArgumentType::Numbers, Value::List(list)) => {
                    list.iter().all(|element| matches!(element, Value::Number(_)))
                }
                (ArgumentType::Strings, Value::List(list)) => {
                    list.iter().all(|element| matches!(element, Value::String(_)))
                }
                _ => false,
            },
        }
    }
}

impl fmt::Display for ArgumentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArgumentType::Any => "any",
            ArgumentType::String => "string",
            ArgumentType::Number => "number",
            ArgumentType::Array => "array",
            ArgumentType::Numbers => "array of numbers",
            ArgumentType::Strings => "array of strings",
            ArgumentType::Object => "object",
            ArgumentType::Expression => "&expression",
        })
    }
}

/// One parameter of a function.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// What it is called in the documentation.
    pub name: &'static str,
    pub types: &'static [ArgumentType],
}

/// How many arguments a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arity {
    /// As many as there are parameters.
    Exact,
    /// At least as many as there are parameters; further ones are like the last.
    Variadic,
    /// Any number; they are ignored.
    Ignored,
}

/// The compiled form of a regular expression that does not change, or why there is none.
pub(crate) type CachedRegex = OnceLock<Result<Regex, String>>;

type FunctionBody = fn(&Arguments<'_>) -> Result<Value, EvalFault>;

/// A function that expressions can call. `Display` gives its signature.
#[derive(Clone, Copy)]
pub struct JmesPathFunction {
    name: &'static str,
    parameters: &'static [Parameter],
    arity: Arity,
    returns: &'static str,
    description: &'static str,
    /// How many levels deeper than its arguments the result may be.
    pub(crate) levels: usize,
    run: FunctionBody,
}

impl JmesPathFunction {
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }

    /// Whether the last parameter may be given several times.
    pub fn is_variadic(&self) -> bool {
        self.arity == Arity::Variadic
    }

    /// The type of the result, in words.
    pub fn returns(&self) -> &'static str {
        self.returns
    }

    /// What it does, in one line.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Whether Kyverno added it to the standard functions, or replaced a standard one.
    pub fn is_custom(&self) -> bool {
        !standard::FUNCTIONS.iter().any(|standard| standard.name == self.name)
    }
}

impl fmt::Display for JmesPathFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (at, parameter) in self.parameters.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{}: {}", parameter.name, one_of(parameter.types))?;
        }
        let rest = if self.is_variadic() { ", …" } else { "" };
        write!(f, "{rest}) -> {}", self.returns)
    }
}

impl fmt::Debug for JmesPathFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({self})")
    }
}

fn one_of(types: &[ArgumentType]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
}

/// A function that takes as many arguments as it has parameters.
const fn function(
    name: &'static str,
    parameters: &'static [Parameter],
    returns: &'static str,
    description: &'static str,
    run: FunctionBody,
) -> JmesPathFunction {
    let arity = Arity::Exact;
    JmesPathFunction { name, parameters, arity, returns, description, levels: 0, run }
}

impl JmesPathFunction {
    const fn variadic(mut self) -> Self {
        self.arity = Arity::Variadic;
        self
    }

    const fn ignoring_arguments(mut self) -> Self {
        self.arity = Arity::Ignored;
        self
    }

    const fn deeper(mut self, levels: usize) -> Self {
        self.levels = levels;
        self
    }
}

const fn parameter(name: &'static str, types: &'static [ArgumentType]) -> Parameter {
    Parameter { name, types }
}

const ANY: &[ArgumentType] = &[ArgumentType::Any];
const STRING: &[ArgumentType] = &[ArgumentType::String];
const NUMBER: &[ArgumentType] = &[ArgumentType::Number];
const ARRAY: &[ArgumentType] = &[ArgumentType::Array];
const OBJECT: &[ArgumentType] = &[ArgumentType::Object];
const EXPRESSION: &[ArgumentType] = &[ArgumentType::Expression];

static BY_NAME: LazyLock<Vec<&'static JmesPathFunction>> = LazyLock::new(|| {
    let families = [
        standard::FUNCTIONS,
        arithmetic::FUNCTIONS,
        data::FUNCTIONS,
        encoding::FUNCTIONS,
        matching::FUNCTIONS,
        network::FUNCTIONS,
        strings::FUNCTIONS,
        time::FUNCTIONS,
        x509::FUNCTIONS,
    ];
    let mut all: Vec<&'static JmesPathFunction> = families.into_iter().flatten().collect();
    all.sort_by_key(|function| function.name);
    all
});

/// All functions, by name.
pub fn functions() -> &'static [&'static JmesPathFunction] {
    &BY_NAME
}

/// The function of this name.
pub fn find(name: &str) -> Option<&'static JmesPathFunction> {
    BY_NAME.binary_search_by_key(&name, |function| function.name).ok().map(|at| BY_NAME[at])
}

/// An argument of a call.
pub(crate) enum Argument<'a> {
    Value(Cow<'a, Value>),
    /// What stands after `&`.
    Reference(NodeId),
}

/// Checks what is known about a call without its values.
pub(crate) fn check(
    tree: &Tree,
    id: NodeId,
    call: &JmesPathCall,
) -> Result<&'static JmesPathFunction, Error> {
    let Some(function) = call.function else {
        let name = call.name.as_str();
        let nearest = did_you_mean(name, functions().iter().map(|function| function.name));
        return Err(Error::new(
            ErrorKind::UnknownFunction,
            name_span(tree, id, call),
            format!("unknown function {name:?}"),
        )
        .maybe_hint(nearest.map(|nearest| format!("did you mean {nearest:?}?"))));
    };
    let (given, wanted) = (call.arguments.len(), function.parameters.len());
    let fits = match function.arity {
        Arity::Exact => given == wanted,
        Arity::Variadic => given >= wanted,
        Arity::Ignored => true,
    };
    if fits {
        return Ok(function);
    }
    let least = if function.is_variadic() { "at least " } else { "" };
    let plural = if wanted == 1 { "" } else { "s" };
    Err(Error::new(
        ErrorKind::Arity,
        tree.span(id),
        format!("{} takes {least}{wanted} argument{plural}, not {given}", function.name),
    )
    .hint(function.to_string()))
}

fn name_span(tree: &Tree, id: NodeId, call: &JmesPathCall) -> std::ops::Range<usize> {
    let span = tree.span(id);
    span.start..(span.start + call.name.len()).min(span.end)
}

/// Runs a call.
pub(crate) fn call(
    search: &SearchRun<'_>,
    id: NodeId,
    call: &JmesPathCall,
    arguments: &[Argument<'_>],
) -> Result<Value, EvalFault> {
    let function = check(search.tree, id, call)?;
    for (at, argument) in arguments.iter().enumerate() {
        // Kyverno checks no variadic argument and panics on some; here further ones are like the
        // last. A function without parameters ignores what it is given.
        let Some(parameter) = function.parameters.get(at).or(function.parameters.last()) else {
            break;
        };
        if !accepts(search, id, parameter, argument)? {
            return Err(wrong_type(search, function, call, at, parameter, argument).into());
        }
    }
    (function.run)(&Arguments { search, id, call, arguments })
}

/// Whether a function takes an argument; counts the text in it, which it is about to look at.
fn accepts(
    search: &SearchRun<'_>,
    id: NodeId,
    parameter: &Parameter,
    argument: &Argument<'_>,
) -> Result<bool, Error> {
    if let Argument::Value(value) = argument {
        let counted = match &**value {
            Value::String(text) => search.meter.read(text.len() as u64),
            Value::List(list)
                if parameter
                    .types
                    .iter()
                    .any(|t| matches!(t, ArgumentType::Numbers | ArgumentType::Strings)) =>
            {
                let texts = list.iter().filter_map(Value::as_str);
                let bytes = texts.map(|text| text.len() as u64).sum();
                search.meter.step(list.len() as u64).and_then(|()| search.meter.read(bytes))
            }
            _ => Ok(()),
        };
        counted.map_err(|exhausted| search.exhausted(id, exhausted))?;
    }
    Ok(parameter.types.iter().any(|t| t.accepts(argument)))
}

fn wrong_type(
    search: &SearchRun<'_>,
    function: &JmesPathFunction,
    call: &JmesPathCall,
    at: usize,
    parameter: &Parameter,
    argument: &Argument<'_>,
) -> Error {
    let found = match argument {
        Argument::Reference(_) => "an expression reference",
        Argument::Value(value) => match &**value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "an array",
            Value::Map(_) => "an object",
        },
    };
    let wanted = one_of(parameter.types);
    let error = Error::new(
        ErrorKind::Type,
        search.tree.span(call.arguments[at]),
        format!("argument {} of {} must be {wanted}, not {found}", at + 1, function.name),
    );
    match argument {
        Argument::Value(value) if value.is_null() => {
            error.hint("a missing key is null here; give a default with `||`")
        }
        Argument::Value(value) if value.as_str().is_some() && wanted == "number" => {
            error.hint("convert it with to_number, or write the number in backticks")
        }
        Argument::Value(value) if value.as_number().is_some() && wanted == "string" => {
            error.hint("convert it with to_string")
        }
        _ => error,
    }
}

/// The arguments of one call, checked, and what the function needs to run.
pub(crate) struct Arguments<'c> {
    search: &'c SearchRun<'c>,
    id: NodeId,
    call: &'c JmesPathCall,
    arguments: &'c [Argument<'c>],
}

impl<'c> Arguments<'c> {
    fn len(&self) -> usize {
        self.arguments.len()
    }

    fn value(&self, at: usize) -> Result<&'c Value, EvalFault> {
        match self.arguments.get(at) {
            Some(Argument::Value(value)) => Ok(value),
            _ => Err(self.mismatch(at, "a value")),
        }
    }

    fn string(&self, at: usize) -> Result<&'c str, EvalFault> {
        self.value(at)?.as_str().ok_or_else(|| self.mismatch(at, "a string"))
    }

    fn number(&self, at: usize) -> Result<f64, EvalFault> {
        self.value(at)?.as_f64().ok_or_else(|| self.mismatch(at, "a number"))
    }

    fn list(&self, at: usize) -> Result<&'c List, EvalFault> {
        self.value(at)?.as_list().ok_or_else(|| self.mismatch(at, "an array"))
    }

    fn map(&self, at: usize) -> Result<&'c Map, EvalFault> {
        self.value(at)?.as_map().ok_or_else(|| self.mismatch(at, "an object"))
    }

    fn reference(&self, at: usize) -> Result<NodeId, EvalFault> {
        match self.arguments.get(at) {
            Some(Argument::Reference(id)) => Ok(*id),
            _ => Err(self.mismatch(at, "an expression reference")),
        }
    }

    /// Only reached when a table promises less than its function uses.
    fn mismatch(&self, at: usize, wanted: &str) -> EvalFault {
        let message = format!("argument {} of {} must be {wanted}", at + 1, self.call.name);
        Error::new(ErrorKind::Type, self.search.tree.span(self.id), message).into()
    }

    /// Evaluates an expression reference on a value; a missing key is null.
    fn apply<'a>(&'a self, reference: NodeId, value: &'a Value) -> EvalOutcome<'a> {
        match self.search.eval_on(reference, value) {
            Err(EvalFault::NotFound(..)) => Ok(Cow::Owned(Value::Null)),
            other => other,
        }
    }

    fn sources(&self) -> &'c dyn AmbientSources {
        self.search.sources
    }

    /// A failure of the function itself.
    fn fail(&self, message: impl fmt::Display) -> EvalFault {
        let message = format!("{}: {message}", self.call.name);
        Error::new(ErrorKind::Failed, self.search.tree.span(self.id), message).into()
    }

    /// Takes steps from the budget.
    fn step(&self, count: usize) -> Result<(), EvalFault> {
        let taken = self.search.meter.step(count as u64);
        taken.map_err(|exhausted| self.search.exhausted(self.id, exhausted).into())
    }

    /// Takes steps for text that is looked at beyond the once that every call is charged for.
    fn read(&self, bytes: usize) -> Result<(), EvalFault> {
        let read = self.search.meter.read(bytes as u64);
        read.map_err(|exhausted| self.search.exhausted(self.id, exhausted).into())
    }

    /// Takes bytes from the budget; asked before they are made where the size is known.
    fn make(&self, count: usize) -> Result<(), EvalFault> {
        let made = self.search.meter.make(count as u64);
        made.map_err(|exhausted| self.search.exhausted(self.id, exhausted).into())
    }

    /// Takes the size of a whole value from the budget.
    fn charge(&self, value: &Value) -> Result<(), EvalFault> {
        let charged = weight::charge(value, self.search.meter);
        charged.map_err(|exhausted| self.search.exhausted(self.id, exhausted).into())
    }

    /// Where the compiled form of the first argument is kept, if that is a literal.
    fn fixed_pattern(&self) -> Option<&'c CachedRegex> {
        let first = self.call.arguments.first()?;
        matches!(self.search.tree.node(*first), JmesPathNode::Literal(..))
            .then_some(&self.call.pattern)
    }

    /// A text as the result.
    fn text(&self, text: impl AsRef<str> + Into<Value>) -> Result<Value, EvalFault> {
        self.make(text.as_ref().len())?;
        Ok(text.into())
    }

    /// A float as the result.
    fn float(&self, float: f64) -> Result<Value, EvalFault> {
        if float.is_finite() {
            Ok(number::number(float))
        } else {
            // Kyverno: such a number cannot be written as JSON, and the query fails then.
            Err(self.fail(format_args!("the result is {}", kiln_value::Number::Float(float))))
        }
    }

    fn equal(&self, left: &Value, right: &Value) -> Result<bool, EvalFault> {
        Ok(self.search.equal(self.id, left, right)?)
    }

    /// The value as `to_string` writes it.
    fn written(&self, value: &Value) -> Result<Value, EvalFault> {
        if let Value::String(_) = value {
            return Ok(value.clone());
        }
        self.charge(value)?;
        Ok(Value::from(json::to_go_string(&number::as_floats(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_describes_itself() {
        for pair in functions().windows(2) {
            assert!(pair[0].name < pair[1].name, "{} is listed twice", pair[0].name);
        }
        for function in functions() {
            assert!(std::ptr::eq(find(function.name).unwrap(), *function));
            assert!(function.description.len() > 10, "{}", function.name);
            assert!(!function.description.ends_with('.'), "{}", function.name);
            assert!(function.parameters.iter().all(|p| !p.types.is_empty()));
        }
        assert!(find("no_such").is_none());
    }

    #[test]
    fn signatures_read_well() {
        assert_eq!(find("merge").unwrap().to_string(), "merge(object: object, …) -> object");
        assert_eq!(
            find("length").unwrap().to_string(),
            "length(subject: string|array|object) -> number"
        );
    }
}
