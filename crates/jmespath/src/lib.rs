//! Kyverno's dialect of JMESPath.
//!
//! An [`Expression`] is compiled once and searched many times. A search borrows from the values it
//! is given, asks its [`Root`] for names only when it reaches them, and counts what it costs.
//!
//! The dialect is the classic language with one great difference, a key that a map does not have is
//! an error ([`Error::is_not_found`]) that only some places catch, and with about fifty more
//! [`functions`].
//!
//! | module | holds |
//! |---|---|
//! | `lex`, `parse`, `tree` | text to tokens to a tree with byte positions |
//! | `print` | the tree as people read it |
//! | `syntax` | the tree as programs read it |
//! | `eval` | the search |
//! | `functions` | what can be called, each with its signature and a line of description |
//! | `root`, `sources` | what the caller supplies: names, and time, chance and addresses |
//! | `meter`, `weight` | budgets, and the size and equality of values, counted |
//!
//! ```
//! use kiln_jmespath::{JmesPathEnvironment, Expression};
//! use kiln_value::value;
//! let expression = Expression::compile("spec.containers[?name == 'web'].image | [0]").unwrap();
//! let pod = value!({"spec": {"containers": [{"name": "web", "image": "nginx"}]}});
//! assert_eq!(expression.search(&pod, &JmesPathEnvironment::default()).unwrap(), value!("nginx"));
//!
//! let missing = Expression::compile("metadata.labels").unwrap();
//! assert!(missing.search(&pod, &JmesPathEnvironment::default()).unwrap_err().is_not_found());
//! ```

mod error;
mod eval;
pub mod functions;
mod lex;
mod meter;
mod number;
mod parse;
mod print;
mod root;
mod syntax;
mod tree;
mod weight;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use kiln_value::Value;

pub use error::{Error, ErrorKind, RootFailure};
pub use kiln_text::ambient::{AmbientSources, NoAmbientSources};
pub use meter::{JmesPathLimits, Meter};
pub use root::Root;
pub use syntax::Syntax;

/// A compiled expression. Cloning copies a pointer.
#[derive(Clone)]
pub struct Expression(Arc<CompiledExpression>);

struct CompiledExpression {
    source: String,
    tree: tree::Tree,
    top: tree::NodeId,
}

/// What a search may use: sources of the time and the like, and how much it may cost.
#[derive(Clone, Copy)]
pub struct JmesPathEnvironment<'e> {
    /// The time, chance and addresses.
    pub sources: &'e dyn AmbientSources,
    /// The budget of each search.
    pub limits: JmesPathLimits,
}

impl Default for JmesPathEnvironment<'_> {
    /// No sources, and the default limits.
    fn default() -> Self {
        JmesPathEnvironment { sources: &NoAmbientSources, limits: JmesPathLimits::default() }
    }
}

impl fmt::Debug for JmesPathEnvironment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Expression {
    /// Compiles an expression.
    ///
    /// Kyverno: an unknown function is found when it is called, not here; [`Expression::check`]
    /// finds it without a call.
    ///
    /// # Errors
    /// When the text is not an expression, or is too long or nests too deep.
    pub fn compile(source: &str) -> Result<Expression, Error> {
        Expression::compile_within(source, &JmesPathLimits::default())
    }

    /// Compiles an expression within limits of its own.
    ///
    /// # Errors
    /// As [`Expression::compile`].
    pub fn compile_within(source: &str, limits: &JmesPathLimits) -> Result<Expression, Error> {
        let (tree, top) = parse::parse(source, limits)?;
        Ok(Expression(Arc::new(CompiledExpression { source: source.to_owned(), tree, top })))
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// How many levels of calls, brackets and operators nest in it. A search takes stack for each.
    pub fn height(&self) -> usize {
        self.0.tree.measure(self.0.top).height
    }

    /// Finds the value of the expression in a root.
    ///
    /// # Errors
    /// When a key is missing where nothing catches it, a function fails, the root cannot load a
    /// value, or the budget is used up.
    pub fn search(
        &self,
        root: &dyn Root,
        environment: &JmesPathEnvironment<'_>,
    ) -> Result<Value, Error> {
        let meter = Meter::new(&environment.limits);
        self.search_metered(root, environment.sources, &meter)
    }

    /// Like [`Expression::search`], with a budget that several searches share.
    ///
    /// # Errors
    /// As [`Expression::search`].
    pub fn search_metered(
        &self,
        root: &dyn Root,
        sources: &dyn AmbientSources,
        meter: &Meter,
    ) -> Result<Value, Error> {
        let search = eval::SearchRun { tree: &self.0.tree, root, sources, meter };
        search.run(self.0.top).map(Cow::into_owned)
    }

    /// Finds calls that fail whatever the data is: unknown functions and wrong numbers of arguments.
    pub fn check(&self) -> Vec<Error> {
        let tree = &self.0.tree;
        tree.calls().filter_map(|(id, call)| functions::check(tree, id, call).err()).collect()
    }

    /// The names that the expression may ask its root for, in the order of the text.
    pub fn roots(&self) -> Vec<&str> {
        self.0.tree.roots(self.0.top).0.into_iter().map(kiln_value::Key::as_str).collect()
    }

    /// The paths of fields that the expression reads from its root, each as far as it is plain; elements of lists are passed
    /// over.
    pub fn paths(&self) -> Vec<Vec<&str>> {
        let paths = self.0.tree.paths(self.0.top).into_iter();
        paths.map(|path| path.into_iter().map(kiln_value::Key::as_str).collect()).collect()
    }

    /// Whether the expression may ask its root for the whole object, as `@` or `*` do.
    pub fn uses_whole_root(&self) -> bool {
        self.0.tree.roots(self.0.top).1
    }

    /// The tree, for programs that translate it.
    pub fn syntax(&self) -> Syntax {
        syntax::syntax(&self.0.tree, self.0.top)
    }

    /// The tree as text, one node per line, indented by depth. The form is stable.
    pub fn print_tree(&self) -> String {
        print::print(&self.0.tree, self.0.top)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0.source).finish()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}

impl std::str::FromStr for Expression {
    type Err = Error;
    fn from_str(source: &str) -> Result<Self, Error> {
        Expression::compile(source)
    }
}
