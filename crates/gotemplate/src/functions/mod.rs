//! What a template can call: a table of functions with the types of their parameters.

mod builtin;
mod compare;
mod escape;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use kiln_diagnostic::did_you_mean;
use kiln_value::Str;

use crate::error::Refusal;
use crate::meter::Meter;
use crate::value::{Dyn, Map};
use crate::{AmbientSources, FunctionSet, Lookup, helm, sprig};

/// A function that templates can call.
pub struct Function {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [Type],
    /// The type of any further arguments.
    pub(crate) more: Option<Type>,
    pub(crate) run: FunctionBody,
    /// Which templates it renders: the evaluator does that itself.
    pub(crate) calls: Calls,
    pub(crate) about: &'static str,
}

/// Which templates a function renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Nothing,
    /// The one that its first argument names.
    Template,
    /// The one that its first argument is.
    Text,
}

type FunctionBody = fn(&Call<'_>, &[Dyn]) -> Result<Dyn, Refusal>;

/// The declared type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// `interface {}`
    Any,
    /// `reflect.Value`: a missing value arrives as one.
    Raw,
    Text,
    Int,
    Uint32,
    Bool,
    Float,
    /// `map[string]interface {}`
    Map,
    Time,
    Version,
}

impl Type {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Any => "interface {}",
            Type::Raw => "reflect.Value",
            Type::Text => "string",
            Type::Int => "int",
            Type::Uint32 => "uint32",
            Type::Bool => "bool",
            Type::Float => "float64",
            Type::Map => "map[string]interface {}",
            Type::Time => "time.Time",
            Type::Version => "*semver.Version",
        }
    }

    /// Whether a value is of this type.
    pub(crate) fn accepts(self, value: &Dyn) -> bool {
        match self {
            Type::Any | Type::Raw => true,
            Type::Text => matches!(value, Dyn::Text(_)),
            Type::Int => matches!(value, Dyn::Int(_)),
            // No value of a template has this type.
            Type::Uint32 => false,
            Type::Bool => matches!(value, Dyn::Bool(_)),
            Type::Float => matches!(value, Dyn::Float(_)),
            Type::Map => {
                matches!(value, Dyn::Map(map) if !map.of_text && !map.is_record && !map.is_files())
            }
            Type::Time => matches!(value, Dyn::Time(_)),
            Type::Version => matches!(value, Dyn::Version(_)),
        }
    }
}

/// What a running function may use.
pub(crate) struct Call<'c> {
    pub(crate) meter: &'c Meter,
    pub(crate) sources: &'c dyn AmbientSources,
    pub(crate) lookup: &'c dyn Lookup,
}

/// A row of a table.
pub(crate) const fn function(
    name: &'static str,
    parameters: &'static [Type],
    more: Option<Type>,
    run: FunctionBody,
    about: &'static str,
) -> Function {
    Function { name, parameters, more, run, calls: Calls::Nothing, about }
}

/// A row of a function that renders a template with data.
pub(crate) const fn template(name: &'static str, calls: Calls, about: &'static str) -> Function {
    let run = |_: &Call<'_>, _: &[Dyn]| Err(Refusal::Failed(String::new()));
    Function { name, parameters: &[Type::Text, Type::Any], more: None, run, calls, about }
}

impl Function {
    /// The name that templates call it by.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it does, in a few words.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// The types of its parameters, as Go writes them.
    pub fn parameters(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> =
            self.parameters.iter().copied().map(Type::name).collect();
        if self.more.is_some() {
            names.push("…");
        }
        names
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All functions of a set, by name.
pub fn functions(set: FunctionSet) -> Vec<&'static Function> {
    index(set).values().copied().collect()
}

pub(crate) fn find(name: &str, set: FunctionSet) -> Option<&'static Function> {
    index(set).get(name).copied()
}

type Index = BTreeMap<&'static str, &'static Function>;

/// The functions of a set by name. A chart names some ten thousand, so they are not looked for one by one.
fn index(set: FunctionSet) -> &'static Index {
    static INDICES: [OnceLock<Index>; 4] = [const { OnceLock::new() }; 4];
    // Later tables replace functions of earlier ones: sprig's `slice` that of the language.
    let sprig = || sprig::TABLES.iter().copied();
    let (at, tables): (usize, Vec<&'static [Function]>) = match set {
        FunctionSet::Builtin => (0, vec![builtin::TABLE]),
        FunctionSet::Sprig => (1, [builtin::TABLE].into_iter().chain(sprig()).collect()),
        FunctionSet::Helm3 | FunctionSet::Helm4 => {
            let both =
                [builtin::TABLE].into_iter().chain(sprig()).chain(helm::TABLES.iter().copied());
            let also = (set == FunctionSet::Helm4).then_some(helm::ONLY_HELM_4);
            (if set == FunctionSet::Helm4 { 3 } else { 2 }, both.chain(also).collect())
        }
    };
    INDICES[at].get_or_init(|| {
        tables.into_iter().flatten().map(|function| (function.name, function)).collect()
    })
}

/// What was probably meant by a name that is not there.
pub(crate) fn suggest(name: &str, set: FunctionSet) -> Option<String> {
    match name {
        "toYaml" | "include" | "required" | "tpl" | "lookup" | "fromYaml"
            if matches!(set, FunctionSet::Builtin | FunctionSet::Sprig) =>
        {
            return Some("it is one of Helm's own functions; toJson and fail are there".to_owned());
        }
        "env" | "expandenv" => {
            return Some("templates do not see the environment of the program".to_owned());
        }
        _ => {}
    }
    if set == FunctionSet::Builtin && find(name, FunctionSet::Sprig).is_some() {
        return Some("it is one of sprig's functions, which are not offered here".to_owned());
    }
    let names = functions(set).into_iter().map(|function| function.name);
    did_you_mean(name, names).map(|near| format!("did you mean {near}?"))
}

// Arguments arrive checked, so these cannot miss; they answer something harmless if they do.

pub(crate) fn text(arguments: &[Dyn], at: usize) -> &str {
    match arguments.get(at) {
        Some(Dyn::Text(text)) => text,
        _ => "",
    }
}

pub(crate) fn int(arguments: &[Dyn], at: usize) -> i64 {
    match arguments.get(at) {
        Some(Dyn::Int(int) | Dyn::Int64(int)) => *int,
        _ => 0,
    }
}

pub(crate) fn map(arguments: &[Dyn], at: usize) -> Map {
    match arguments.get(at) {
        Some(Dyn::Map(map)) => map.clone(),
        _ => Map::own(Default::default()),
    }
}

pub(crate) fn any(arguments: &[Dyn], at: usize) -> &Dyn {
    arguments.get(at).unwrap_or(&Dyn::Nil)
}

pub(crate) fn key(text: &str) -> Str {
    Str::new(text)
}
