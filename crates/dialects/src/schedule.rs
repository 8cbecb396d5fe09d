//! `schedule` and `deletionPropagationPolicy` of policies that delete objects.

use kiln_diagnostic::Diagnostic;
use kiln_rules::Propagation;
use kiln_text::Schedule;
use kiln_value::Path;
use kiln_yaml::part_of;

use crate::document_reader::DocumentFields;

/// The words for a kind of policy in what Kyverno says of schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduledKind {
    CleanupPolicy,
    DeletingPolicy,
}

/// Reads `schedule`, which must be there, and where it was written.
pub(crate) fn schedule(
    spec: &DocumentFields<'_, '_>,
    kind: ScheduledKind,
) -> Option<(Schedule, Path)> {
    let Some(node) = spec.get("schedule") else {
        spec.error(
            "spec.schedule: Required value: schedule is required",
            Some("add a schedule, such as \"*/5 * * * *\" or \"@daily\"".into()),
        );
        return None;
    };
    let text = node.text()?;
    match Schedule::parse(&text) {
        Ok(schedule) => {
            if schedule.next(0).is_none() {
                node.report.warn(
                    &node.path,
                    format!("no day meets the schedule {text:?}: the policy never runs"),
                    Some("choose a day that the month has".into()),
                );
            }
            Some((schedule, node.path))
        }
        Err(wrong) => {
            let place = part_of(&node.report.place(&node.path), &text, wrong.at.clone());
            // Kyverno's words.
            let bad = |word: &str| {
                let text = text.as_str();
                format!(
                    "spec.schedule: Invalid value: {text:?}: schedule spec in the {word} is not in proper cron format"
                )
            };
            let found = match kind {
                ScheduledKind::CleanupPolicy => {
                    Diagnostic::error(bad("cleanupPolicy")).hint(wrong.message)
                }
                ScheduledKind::DeletingPolicy => {
                    let message = format!("{}: {}", bad("deletingPolicy"), wrong.message);
                    Diagnostic::error(message)
                        .hint("schedules are in UTC and have five fields, such as \"*/5 * * * *\"")
                }
            };
            node.report.add(found.at(place));
            None
        }
    }
}

/// Reads `deletionPropagationPolicy`.
pub(crate) fn propagation(spec: &DocumentFields<'_, '_>) -> Option<Propagation> {
    let node = spec.get("deletionPropagationPolicy")?;
    let word = node.text()?;
    let found = Propagation::parse(&word);
    if found.is_none() {
        let known = Propagation::ALL.map(|known| format!("{:?}", known.as_str())).join(", ");
        node.error_with(
            format!("{}: Unsupported value: {word:?}: supported values: {known}", node.path),
            "use one of them",
        );
    }
    found
}
