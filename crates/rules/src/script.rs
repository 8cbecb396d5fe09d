//! What the CEL expressions of a rule share: named values, conditions, and what they are bound to.

use kiln_cel::{Env, Program};
use kiln_object::{Gvk, Selector};
use kiln_value::{Path, Str};

/// An expression, and where it was written.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The expression, with its types checked.
    pub program: Program,
    /// The text that holds it, from the root of the rule's document.
    pub path: Path,
    /// Where it begins in that text.
    pub offset: usize,
}

#[derive(Clone, Debug)]
pub struct NamedExpression {
    pub name: Str,
    pub expression: Expression,
}

/// Named values and conditions of a rule. Its expressions run in one session: a value is computed when an
/// expression first asks for it, and at most once.
#[derive(Clone, Debug)]
pub struct Script {
    /// What the expressions may mention.
    pub env: Env,
    /// Values, each seeing those before it.
    pub variables: Vec<NamedExpression>,
    /// What must hold. A condition that is false counts more than one that fails.
    pub conditions: Vec<NamedExpression>,
    /// What it means that a condition is false.
    pub unmet: Unmet,
    /// Values for reports, computed once the rule has done its work.
    pub annotations: Vec<NamedExpression>,
    /// Some expression looks at the namespace of the trigger.
    pub asks_for_namespace: bool,
    /// Some condition looks at who made the request.
    pub asks_for_user: bool,
    /// Objects that the rule is given as parameters, if it asks for some.
    pub params: Option<Params>,
    /// Compute the values afresh for each patch, since the object is another one by then.
    pub renew_for_each_patch: bool,
    /// The most that one expression may cost; whatever the host allows when none is said.
    pub expression_cost: Option<u64>,
    /// Where nothing is known of the trigger's namespace, its name and its label are made up.
    pub supposes_namespace: bool,
    /// There is no request: expressions that ask for it, or for the object as it was, fail.
    pub has_no_request: bool,
    /// The namespace of a Namespace is that Namespace; otherwise it has none.
    pub namespaces_are_their_own: bool,
}

/// Objects that a rule is given as parameters: it runs once for each.
#[derive(Clone, Debug)]
pub struct Params {
    pub kind: Gvk,
    pub find: FindParams,
    /// Where they are; where the trigger is when left out.
    pub namespace: Option<Str>,
    /// What it means that there are none.
    pub missing: MissingParams,
    /// All that a selector finds are given at once, as a List.
    pub as_list: bool,
}

/// Which objects are parameters.
#[derive(Clone, Debug)]
pub enum FindParams {
    Named(Str),
    /// All with these labels.
    Selected(Selector),
}

/// What it means that there are no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParams {
    /// The rule is skipped.
    Skip,
    /// The rule fails.
    Fail,
}

/// What it means that a condition is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The event is none of the rule's business.
    NoMatch,
    /// The rule is skipped.
    Skip,
}

impl Script {
    /// The value of this name, as `variables.name` or `name`.
    pub fn variable(&self, name: &str) -> Option<&NamedExpression> {
        let name = name.strip_prefix("variables.").unwrap_or(name);
        self.variables.iter().find(|variable| variable.name == name)
    }
}
