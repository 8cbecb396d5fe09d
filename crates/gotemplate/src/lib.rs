//! Go's `text/template` with sprig's functions, over shared values.
//!
//! A [`Template`] is parsed once and rendered many times. A rendering is a pure function of its data unless [`AmbientSources`]
//! say otherwise, and it counts what it costs.
//!
//! The language, its messages and the way values print are Go's: numbers of the data are `float64` (so that 1000000 prints
//! as `1e+06`), unless [`TemplateOptions::numbers`] keeps integers. Texts are UTF-8; a function that cuts a character in two leaves
//! U+FFFD. Sprig is whole but for what reaches outside: there is no environment, network or key generation.
//!
//! | module | holds |
//! |---|---|
//! | `lex`, `parse`, `tree`, `number` | text to tokens to trees with byte positions |
//! | `exec`, `eval` | rendering, pipelines and arguments |
//! | `value`, `methods` | Go's types, and what can be asked of times and versions |
//! | `marked` | which parts of a text came from the data |
//! | `format` | `%v`, `printf` |
//! | [`functions`] | the functions of the language, and the tables |
//! | `sprig` | sprig's functions, by subject |
//! | `helm` | Helm's functions, and the types of what its templates are given |
//! | `set` | texts that share their named templates, rendered one after the other |
//! | `sketch` | what the output looks like before there is data |
//! | `meter` | budgets |
//!
//! ```
//! use kiln_gotemplate::{TemplateEnvironment, FunctionSet, TemplateOptions, Template};
//! use kiln_value::value;
//! let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
//! let template = Template::parse("value", "{{ .Target.kind | lower }}-{{ .Namespace }}", &options).unwrap();
//! let data = value!({"Target": {"kind": "Pod"}, "Namespace": "prod"});
//! assert_eq!(template.render(&data, &TemplateEnvironment::default()).unwrap(), "pod-prod");
//! ```

mod error;
mod eval;
mod exec;
mod format;
pub mod functions;
mod helm;
mod lex;
mod marked;
mod meter;
mod methods;
mod number;
mod parse;
mod semver;
mod set;
mod sketch;
mod sprig;
mod tree;
mod value;

use std::fmt;
use std::sync::Arc;

use kiln_value::Value;

pub use error::{Error, ErrorKind};
pub use helm::{Data, KubeVersion, Lookup, NoLookup, RecordType, ValuesType};
pub use kiln_text::ambient::{AmbientSources, NoAmbientSources};
pub use marked::DataPart;
pub use meter::TemplateLimits;
pub use set::{SetRenderer, TemplateSet};
pub use sketch::Action;

/// Which functions a template can call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionSet {
    /// Those of the language.
    #[default]
    Builtin,
    /// Those of the language and sprig's.
    Sprig,
    /// Sprig's, and those that Helm 3 adds and replaces.
    Helm3,
    /// Sprig's, and those that Helm 4 adds and replaces.
    Helm4,
}

/// What becomes of a key that a map does not have: the option `missingkey`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// No value, which prints as `<no value>`.
    #[default]
    Default,
    /// The zero value of the map's type.
    Zero,
    Error,
}

/// What numbers of the data are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// All are `float64`, as in Go programs that read JSON.
    #[default]
    Floats,
    /// Whole ones are `int`.
    Integers,
    /// As they are: whole ones `int64`, others `float64`.
    AsTyped,
}

/// How a template is parsed and rendered.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateOptions {
    /// The functions it can call.
    pub functions: FunctionSet,
    /// What becomes of missing keys.
    pub missing_key: MissingKey,
    /// What numbers of the data are.
    pub numbers: Numbers,
}

/// What a template rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    pub text: String,
    /// The parts of it that the data said, in order; everything else is the template's own text. Numbers and truths
    /// count as the template's own: they cannot say anything else.
    pub data: Vec<DataPart>,
}

/// A named value of the data; see [`Template::render_fields`].
#[derive(Clone, Copy, Debug)]
pub struct TemplateField<'f> {
    /// Its name, without a dot.
    pub name: &'f str,
    pub value: &'f Value,
    /// Whether its numbers are Go integers or floats.
    pub numbers: Numbers,
}

/// What a rendering may use: sources of time and chance, and how much it may cost.
#[derive(Clone, Copy)]
pub struct TemplateEnvironment<'e> {
    /// The time and chance.
    pub sources: &'e dyn AmbientSources,
    /// The budget.
    pub limits: TemplateLimits,
}

impl Default for TemplateEnvironment<'_> {
    /// No sources, and the default limits.
    fn default() -> Self {
        TemplateEnvironment { sources: &NoAmbientSources, limits: TemplateLimits::default() }
    }
}

impl fmt::Debug for TemplateEnvironment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A parsed template with everything it defines. Cloning copies a pointer.
#[derive(Clone)]
pub struct Template(Arc<Parsed>);

struct Parsed {
    options: TemplateOptions,
    /// Of one file.
    trees: tree::Trees,
}

/// What Go writes for a value that is not there.
pub(crate) const NO_VALUE: &str = "<no value>";

impl Template {
    /// Parses a template; the name is what messages call it.
    ///
    /// # Errors
    /// When the text is not a template, calls a function that is not there, is too long or nests too deep.
    pub fn parse(name: &str, source: &str, options: &TemplateOptions) -> Result<Template, Error> {
        Template::parse_within(name, source, options, &TemplateLimits::default())
    }

    /// Parses a template within limits of its own.
    ///
    /// # Errors
    /// As [`Template::parse`].
    pub fn parse_within(
        name: &str,
        source: &str,
        options: &TemplateOptions,
        limits: &TemplateLimits,
    ) -> Result<Template, Error> {
        let mut trees = tree::Trees::default();
        trees.add(name, source, parse::parse(name, source, options.functions, limits)?);
        Ok(Template(Arc::new(Parsed { options: *options, trees })))
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.0.trees.files[0].text
    }

    /// Renders the template with data, which it sees as `.` and `$`.
    ///
    /// # Errors
    /// When an access or a function fails, or the budget is used up.
    pub fn render(
        &self,
        data: &Value,
        environment: &TemplateEnvironment<'_>,
    ) -> Result<String, Error> {
        let data = match data {
            // Go has no value here at all, unlike a null inside of the data.
            Value::Null => value::Dyn::Missing,
            data => value::Dyn::from_value(data, self.0.options.numbers),
        };
        Ok(self.run(data, environment)?.text)
    }

    /// Renders the template with these fields as its data. To ask for another one is an error, as it is of a struct in Go.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn render_fields(
        &self,
        fields: &[TemplateField<'_>],
        environment: &TemplateEnvironment<'_>,
    ) -> Result<Rendering, Error> {
        let entries = fields.iter().map(|field| {
            let value = value::Dyn::from_value(field.value, field.numbers);
            (kiln_value::Str::new(field.name), value)
        });
        self.run(value::Dyn::record(entries), environment)
    }

    fn run(
        &self,
        data: value::Dyn,
        environment: &TemplateEnvironment<'_>,
    ) -> Result<Rendering, Error> {
        let meter = meter::Meter::new(&environment.limits);
        let means = exec::Means {
            meter: &meter,
            sources: environment.sources,
            lookup: &NoLookup,
            limits: &environment.limits,
        };
        let Parsed { options, trees } = &*self.0;
        let name = &trees.files[0].name;
        let format::Sink { text, parts, .. } = exec::run(trees, name, options, means, data)?;
        Ok(Rendering { text, data: parts })
    }
}

/// Whether a text is a version, as sprig's `semver` reads it.
pub fn is_version(text: &str) -> bool {
    semver::SprigVersion::parse(text).is_ok()
}

/// Whether a version meets a constraint, as sprig's `semverCompare` has it. What is not a version or not a constraint
/// does not.
pub fn version_meets(constraint: &str, version: &str) -> bool {
    match (semver::Constraints::parse(constraint), semver::SprigVersion::parse(version)) {
        (Ok(constraints), Ok(version)) => constraints.allow(&version),
        _ => false,
    }
}

/// The order of two versions. What is not a version comes before all that are.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    match (semver::SprigVersion::parse(a), semver::SprigVersion::parse(b)) {
        (Ok(a), Ok(b)) => a.compare(&b),
        (a, b) => a.is_ok().cmp(&b.is_ok()),
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source()).finish()
    }
}
