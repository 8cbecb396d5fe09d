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
pub struct TemplateFunction {
    pub(crate) name: &'static str,
    pub(crate) parameters: &'static [ParameterType],
    /// The type of any further arguments.
    pub(crate) more: Option<ParameterType>,
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

type FunctionBody = fn(&FunctionCall<'_>, &[Dyn]) -> Result<Dyn, Refusal>;

/// The declared type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterType {
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

impl ParameterType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ParameterType::Any => "interface {}",
            ParameterType::Raw => "reflect.Value",
            ParameterType::Text => "string",
            ParameterType::Int => "int",
            ParameterType::Uint32 => "uint32",
            ParameterType::Bool => "bool",
            ParameterType::Float => "float64",
            ParameterType::Map => "map[string]interface {}",
            ParameterType::Time => "time.Time",
            ParameterType::Version => "*semver.Version",
        }
    }

    /// Whether a value is of this type.
    pub(crate) fn accepts(self, value: &Dyn) -> bool {
        match self {
            ParameterType::Any | ParameterType::Raw => true,
            ParameterType::Text => matches!(value, Dyn::Text(_)),
            ParameterType::Int => matches!(value, Dyn::Int(_)),
            // No value of a template has this type.
            ParameterType::Uint32 => false,
            ParameterType::Bool => matches!(value, Dyn::Bool(_)),
            ParameterType::Float => matches!(value, Dyn::Float(_)),
            ParameterType::Map => {
                matches!(value, Dyn::Map(map) if !map.of_text && !map.is_record && !map.is_files())
            }
            ParameterType::Time => matches!(value, Dyn::Time(_)),
            ParameterType::Version => matches!(value, Dyn::Version(_)),
        }
    }
}

/// What a running function may use.
pub(crate) struct FunctionCall<'c> {
    pub(crate) meter: &'c Meter,
    pub(crate) sources: &'c dyn AmbientSources,
    pub(crate) lookup: &'c dyn Lookup,
}

/// A row of a table.
pub(crate) const fn function(
    name: &'static str,
    parameters: &'static [ParameterType],
    more: Option<ParameterType>,
    run: FunctionBody,
    about: &'static str,
) -> TemplateFunction {
    TemplateFunction { name, parameters, more, run, calls: Calls::Nothing, about }
}

/// A row of a function that renders a template with data.
pub(crate) const fn template(
    name: &'static str,
    calls: Calls,
    about: &'static str,
) -> TemplateFunction {
    let run = |_: &FunctionCall<'_>, _: &[Dyn]| Err(Refusal::Failed(String::new()));
    TemplateFunction {
        name,
        parameters: &[ParameterType::Text, ParameterType::Any],
        more: None,
        run,
        calls,
        about,
    }
}

impl TemplateFunction {
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
            self.parameters.iter().copied().map(ParameterType::name).collect();
        if self.more.is_some() {
            names.push("…");
        }
        names
    }
}

impl fmt::Debug for TemplateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All functions of a set, by name.
pub fn functions(set: FunctionSet) -> Vec<&'static TemplateFunction> {
    index(set).values().copied().collect()
}

pub(crate) fn find(name: &str, set: FunctionSet) -> Option<&'static TemplateFunction> {
    index(set).get(name).copied()
}

type Index = BTreeMap<&'static str, &'static TemplateFunction>;

/// The functions of a set by name. A chart names some ten thousand, so they are not looked for one by one.
fn index(set: FunctionSet) -> &'static Index {
    static INDICES: [OnceLock<Index>; 4] = [const { OnceLock::new() }; 4];
    // Later tables replace functions of earlier ones: sprig's `slice` that of the language.
    let sprig = || sprig::TABLES.iter().copied();
    let (at, tables): (usize, Vec<&'static [TemplateFunction]>) = match set {
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
