//! What is said of a failure.

use kiln_value::{Value, json};

use super::Checking;
use crate::context::Context;
use crate::output::failure::Failure;

impl Checking<'_> {
    /// The rule's own words, filled in; none when it has none.
    pub(super) fn message(&self, context: &Context<'_>) -> Option<Result<String, Failure>> {
        let template = self.program.message.as_ref()?;
        let said = context.fill(template).map(|said| match said {
            Value::String(text) => text.to_string(),
            // Kyverno ends with a panic.
            other => json::to_string(&other),
        });
        Some(said).filter(|said| !matches!(said, Ok(text) if text.is_empty()))
    }
}
