//! What happened in a world, in order.

use std::fmt;

use kiln_object::ObjectId;

/// How many entries are kept; older ones are dropped.
const MOST: usize = 100_000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    pub what: TimelineEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineEvent {
    /// Something was to be written.
    Write {
        /// The user of the request.
        by: String,
        /// `create`, `update`, `patch`, `delete`, …
        verb: &'static str,
        /// The path of the object, or of its kind.
        path: String,
        /// The status of HTTP that came of it.
        status: u16,
        /// What the server said of a failure.
        message: String,
        /// The revision of the cluster afterwards.
        revision: u64,
    },
    /// A replica answered an admission request.
    Review {
        replica: usize,
        /// The path of the webhook.
        webhook: String,
        operation: String,
        object: ObjectId,
        /// `allowed`, `patched`, `denied`, `skipped`.
        outcome: &'static str,
        /// The rules that ran, as `policy/rule: result`.
        rules: Vec<String>,
        /// Why it was denied.
        message: String,
    },
    /// Something that users read as an Event: a rule made, changed or could not do something.
    Told { replica: usize, message: String },
    /// A replica became the leader, or is no longer.
    Leads { replica: usize, leads: bool },
    /// A fault was injected.
    Fault { what: String },
    /// The clock jumped by so many milliseconds.
    Jumped { milliseconds: u64 },
}

impl fmt::Display for TimelineEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            TimelineEvent::Write { by, verb, path, status, message, .. } => {
                write!(f, "{by} {verb} {path}: {status}")?;
                if message.is_empty() { Ok(()) } else { write!(f, " {message}") }
            }
            TimelineEvent::Review {
                replica,
                webhook,
                operation,
                object,
                outcome,
                rules,
                message,
            } => {
                write!(f, "replica {replica} {webhook} {operation} {object}: {outcome}")?;
                if !rules.is_empty() {
                    write!(f, " ({})", rules.join(", "))?;
                }
                if message.is_empty() { Ok(()) } else { write!(f, " {message}") }
            }
            TimelineEvent::Told { replica, message } => write!(f, "replica {replica}: {message}"),
            TimelineEvent::Leads { replica, leads: true } => write!(f, "replica {replica} leads"),
            TimelineEvent::Leads { replica, leads: false } => {
                write!(f, "replica {replica} no longer leads")
            }
            TimelineEvent::Fault { what } => write!(f, "fault: {what}"),
            TimelineEvent::Jumped { milliseconds } => write!(f, "{milliseconds} ms pass"),
        }
    }
}

/// Everything that happened of late.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    entries: Vec<TimelineEntry>,
    /// How many were dropped.
    dropped: usize,
}

impl Timeline {
    pub(crate) fn add(&mut self, at: u64, what: TimelineEvent) {
        if self.entries.len() >= MOST {
            self.entries.drain(..MOST / 2);
            self.dropped += MOST / 2;
        }
        self.entries.push(TimelineEntry { at, what });
    }

    /// The entries from a number on, and the number of the next one.
    pub(crate) fn since(&self, number: usize) -> (Vec<TimelineEntry>, usize) {
        let from = number.saturating_sub(self.dropped).min(self.entries.len());
        (self.entries[from..].to_vec(), self.dropped + self.entries.len())
    }
}
