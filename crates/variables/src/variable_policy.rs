//! Which variables a rule may use, checked before it runs.
//!
//! Kyverno decides by the text of a variable, not by its structure: mentioning `request.` anywhere, or
//! calling a function, is enough. The same is done here, so that no policy is refused that Kyverno
//! takes, nor the other way round.

use std::fmt;

use kiln_text::wildcard;
use kiln_value::Segment;

use crate::query::Query;
use crate::scan::{self, Marked};
use crate::template::{Template, Variable};

/// What the variables of a rule may name.
#[derive(Clone, Debug, Default)]
pub struct VariablePolicy {
    /// Whether the policy also runs in the background, where there is no admission request.
    pub background: bool,
    /// Whether the rule changes existing objects, and so has a target.
    pub target: bool,
    /// Whether the policy never sees a request.
    pub without_request: bool,
    /// The names of the context entries in reach.
    pub entries: Vec<ContextName>,
}

/// The name of a context entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextName {
    /// An entry that reads a `ConfigMap`; only its `data` and `metadata` can be used.
    ConfigMap(String),
    /// Any other entry.
    Other(String),
}

/// A variable that a rule may not use.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedVariable<'t> {
    pub variable: Variable<'t>,
    /// Why it is refused.
    pub reason: RefusalReason,
}

/// Why a variable is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// It is not an expression; what is wrong with it.
    Syntax(String),
    /// It names nothing that is known.
    Unknown,
    /// It asks who sent a request, in a policy that also runs without requests.
    User,
    /// It asks for the element of a loop and is in none.
    OutsideLoop,
}

impl VariablePolicy {
    /// The variables of a document that are refused, in order.
    pub fn check<'t>(&self, template: &'t Template) -> Vec<RefusedVariable<'t>> {
        let refuse = |variable: Variable<'t>| {
            self.refusal(&variable).map(|reason| RefusedVariable { variable, reason })
        };
        template.variables().into_iter().filter_map(refuse).collect()
    }

    fn refusal(&self, variable: &Variable<'_>) -> Option<RefusalReason> {
        let text = outline(variable.expression);
        if text != "@"
            && let Err(error) = Query::new(&text).expression()
        {
            return Some(RefusalReason::Syntax(error.to_string()));
        }
        if self.background && !self.target && asks_for_user(&text) {
            return Some(RefusalReason::User);
        }
        if !self.names_something_known(&text) {
            return Some(RefusalReason::Unknown);
        }
        let in_loop = |step: &Segment| matches!(step, Segment::Key(key) if key == "foreach");
        if !variable.nested
            && text.starts_with("element")
            && !variable.path.segments().iter().any(in_loop)
        {
            return Some(RefusalReason::OutsideLoop);
        }
        None
    }

    fn names_something_known(&self, text: &str) -> bool {
        let text = text.replace('"', "");
        let roots: &[&str] = match self.without_request {
            true => &["@", "images"],
            false => &["request.", "element", "@", "images", "image."],
        };
        let accounts = ["request", "image", "serviceAccountName", "serviceAccountNamespace"];
        roots.iter().any(|root| text.contains(root))
            || (!self.background
                && !self.without_request
                && accounts.iter().any(|root| text.contains(root)))
            || (self.target && text.contains("target."))
            || calls_function(&text)
            || self.entries.iter().any(|entry| entry.covers(&text))
    }
}

impl ContextName {
    fn covers(&self, text: &str) -> bool {
        match self {
            ContextName::Other(name) => wildcard::matches(&format!("{name}*"), text),
            ContextName::ConfigMap(name) => ["data", "metadata", "data.*", "metadata.*"]
                .iter()
                .any(|part| wildcard::matches(&format!("{name}.{part}"), text)),
        }
    }
}

/// The expression with `null` in place of the variables inside it, which are not known yet.
fn outline(expression: &str) -> String {
    let mut text = Marked::template(expression);
    loop {
        let spans = scan::variables(text.shadow());
        if spans.is_empty() {
            return text.text().to_owned();
        }
        text = text.fill(&spans, &vec!["null"; spans.len()]);
    }
}

/// Whether a name is mentioned that only a request has: as a word of its own, not behind a dot.
fn asks_for_user(text: &str) -> bool {
    let names = [
        "serviceAccountName",
        "serviceAccountNamespace",
        "request.userInfo",
        "request.roles",
        "request.clusterRoles",
    ];
    names.iter().any(|name| {
        text.match_indices(name).any(|(at, _)| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !text[..at].ends_with('.') && !text[at + name.len()..].starts_with(word)
        })
    })
}

/// Whether there is a name, an opening parenthesis and something after it.
fn calls_function(text: &str) -> bool {
    text.match_indices('(').any(|(at, _)| {
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let after = text[at + 1..].chars().next();
        text[..at].ends_with(named) && after.is_some_and(|c| !matches!(c, '{' | '}'))
    })
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::Syntax(problem) => f.write_str(problem),
            RefusalReason::Unknown => {
                f.write_str("it names no part of the context and no context entry of the rule")
            }
            RefusalReason::User => {
                f.write_str("the policy also runs in the background, where no user is known")
            }
            RefusalReason::OutsideLoop => f.write_str("there is an element only inside foreach"),
        }
    }
}

impl fmt::Display for RefusedVariable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the variable {{{{ {} }}}} is not allowed", self.variable.expression)?;
        if !self.variable.path.is_root() {
            write!(f, " at {}", self.variable.path)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl RefusedVariable<'_> {
    /// What to do next.
    pub fn hint(&self) -> Option<&'static str> {
        match self.reason {
            RefusalReason::Syntax(_) => None,
            RefusalReason::Unknown => Some("declare a context entry of this name"),
            RefusalReason::User => Some("set spec.background to false"),
            RefusalReason::OutsideLoop => Some("move it below foreach"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn reasons(variable_policy: &VariablePolicy, text: &str) -> Vec<RefusalReason> {
        let template = Template::compile(&value!({"a": text}));
        variable_policy.check(&template).into_iter().map(|refusal| refusal.reason).collect()
    }

    #[test]
    fn variables_must_name_something_known() {
        let entries = vec![ContextName::Other("mine".into()), ContextName::ConfigMap("cm".into())];
        let variable_policy = VariablePolicy { entries, ..VariablePolicy::default() };
        for known in [
            "{{ request.object.x }}",
            "{{ request }}",
            "{{@}}",
            "{{ to_upper('a') }}",
            "{{ mine.x }}",
            "{{ cm.data.x }}",
            "{{ \"cm\".data.\"a.b\" }}",
            "{{ mine.{{ request.name }} }}",
            "{{ serviceAccountName }}",
        ] {
            assert_eq!(reasons(&variable_policy, known), [], "{known}");
        }
        for unknown in
            ["{{ other }}", "{{ cm.other }}", "{{ target.x }}", "{{ time_now() }} {{ z }}"]
        {
            assert_eq!(reasons(&variable_policy, unknown), [RefusalReason::Unknown], "{unknown}");
        }
        assert!(matches!(reasons(&variable_policy, "{{ a b }}")[..], [RefusalReason::Syntax(_)]));
    }

    #[test]
    fn users_are_unknown_in_the_background() {
        let variable_policy = VariablePolicy { background: true, ..VariablePolicy::default() };
        for text in [
            "{{ request.userInfo }}",
            "{{ request.roles[0] }}",
            "{{ to_upper(serviceAccountName) }}",
        ] {
            assert_eq!(reasons(&variable_policy, text), [RefusalReason::User], "{text}");
        }
        for text in ["{{ request.object.serviceAccountName }}", "{{ request.userInformation }}"] {
            assert_eq!(reasons(&variable_policy, text), [], "{text}");
        }
        let existing =
            VariablePolicy { background: true, target: true, ..VariablePolicy::default() };
        assert_eq!(reasons(&existing, "{{ request.userInfo }} {{ target.x }}"), []);
    }

    #[test]
    fn elements_exist_inside_loops() {
        let variable_policy = VariablePolicy::default();
        assert_eq!(reasons(&variable_policy, "{{ element.name }}"), [RefusalReason::OutsideLoop]);
        let looped = Template::compile(&value!({"foreach": [{"x": "{{ elementIndex }}"}]}));
        assert_eq!(variable_policy.check(&looped), []);
    }
}
