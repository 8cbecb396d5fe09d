//! Kyverno's variables, references and conditions.
//!
//! A [`Template`] is a document that was read once: references `$(…)` are resolved, every `{{ … }}` is
//! found and compiled. A [`Substitution`] fills templates with values from a [`VariableScope`]. [`Conditions`]
//! are any/all blocks whose keys and values are templates, and whose operators compare what came out.
//!
//! What a variable brings in is data: it is never read as a template again, whatever it says.
//!
//! | module | holds |
//! |---|---|
//! | `scan` | finding variables in text, telling text of the template from data |
//! | `reference` | `$(…)`, resolved inside the document |
//! | `template` | documents with variables, compiled; listing their variables |
//! | `at_sign` | what `{{@}}` means |
//! | `query` | expressions and the scope that answers them |
//! | `substitute` | filling templates, within limits |
//! | `variable_policy` | which variables a rule may use, before it runs |
//! | [`conditions`] | any/all blocks and their operators |
//!
//! ```
//! use kiln_jmespath::JmesPathEnvironment;
//! use kiln_value::value;
//! use kiln_variables::{ContextScope, Substitution, Template};
//! let template = Template::compile(&value!({"name": "{{ request.name }}-copy", "count": "{{ n }}"}));
//! let context = value!({"request": {"name": "web"}, "n": 3});
//! let scope = ContextScope::new(&context, JmesPathEnvironment::default());
//! let filled = Substitution::new(&scope).run(&template).unwrap();
//! assert_eq!(filled, value!({"name": "web-copy", "count": 3}));
//! ```

mod at_sign;
pub mod conditions;
mod error;
mod query;
mod reference;
mod scan;
mod substitute;
mod template;
mod variable_policy;

pub use conditions::Conditions;
pub use error::{Limit, Problem, SubstituteError};
pub use query::{ContextScope, Query, QueryError, VariableScope};
pub use substitute::{FilledText, FilledValue, Substitution, SubstitutionLimits, Usage};
pub use template::{Lookalike, Template, Variable};
pub use variable_policy::{ContextName, RefusalReason, RefusedVariable, VariablePolicy};
