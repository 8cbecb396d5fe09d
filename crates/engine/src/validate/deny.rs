//! Conditions that must not hold.

use kiln_rules::Deny;
use kiln_value::{Path, Value};
use kiln_variables::conditions::ConditionCheck as Condition;

use super::{Checked, Checking, Failed, ValidationFault};
use crate::context::Context;
use crate::output::failure::Failure;

impl Checking<'_> {
    pub(super) fn deny(&self, deny: &Deny, context: &Context<'_>) -> Result<Checked, Failure> {
        let (said, decided) = match &deny.conditions {
            Some(conditions) => {
                let outcome = context.ask(conditions).map_err(|failure| {
                    failure.at(&deny.path).while_doing("failed to check deny conditions")
                })?;
                if !outcome.holds {
                    return Ok(self.passed());
                }
                (outcome.message, outcome.checks.into_iter().filter(|check| check.holds).collect())
            }
            None => (String::new(), Vec::new()),
        };
        let own = match self.message(context) {
            None => Some(String::new()),
            Some(own) => own.ok(),
        };
        let message = match (own.as_deref(), said.as_str()) {
            (Some(""), "") => format!("validation error: rule {} failed", self.name()),
            (Some("") | None, said) => said.to_owned(),
            (Some(own), "") => own.to_owned(),
            (Some(own), said) => format!("{own}; {said}"),
        };
        let faults = decided.iter().map(|check| self.denied(check)).collect();
        Ok(Checked::Fail(Failed { message, faults, fix: None }))
    }

    /// A condition that holds, and the value that makes it hold where one is compared.
    fn denied(&self, check: &Condition) -> ValidationFault {
        let shown = |value: &Value| kiln_value::json::to_string(value);
        let (key, value) = (shown(&check.key), shown(&check.value));
        let at = compared(self.rule.origin.document().value(), &check.path)
            .filter(|path| self.object.get_path(path).is_some());
        ValidationFault {
            at,
            wanted: Some(check.path.clone()),
            why: format!("{key} {} {value} is not allowed", check.operator),
        }
    }
}

/// The place in the object that a condition compares, where its key is nothing but that: `{{ request.object.spec.type }}`.
fn compared(document: &Value, condition: &Path) -> Option<Path> {
    let key = document.get_path(&condition.join("key"))?.as_str()?.trim();
    let inner = key.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    // A default does not make it another place.
    let path = inner.split("||").next()?.trim();
    let below = path.strip_prefix("request.object.")?;
    let is_name = |step: &str| {
        !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let steps: Vec<&str> = below.split('.').map(|step| step.trim_matches('"')).collect();
    steps.iter().all(|step| is_name(step)).then(|| steps.into_iter().collect())
}
