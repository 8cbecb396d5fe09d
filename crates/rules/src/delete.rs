//! Deleting objects on a schedule.

use kiln_text::Schedule;
use kiln_value::Path;

/// Deletes objects that match, again and again.
#[derive(Clone, Debug)]
pub struct Delete {
    /// When.
    pub schedule: Schedule,
    /// Where the schedule was written, from the root of the rule's document.
    pub schedule_path: Path,
    /// What becomes of objects that a deleted one owns; whatever the API server does when none is said.
    pub propagation: Option<Propagation>,
    /// Objects that do not match are reported as kept. Kyverno's command line does so for policies with conditions in
    /// JMESPath, and leaves them out for those in CEL.
    pub reports_unmatched: bool,
}

/// What becomes of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go first.
    Foreground,
    /// They go afterwards.
    Background,
    /// They stay.
    Orphan,
}

impl Propagation {
    /// All of them.
    pub const ALL: [Propagation; 3] =
        [Propagation::Foreground, Propagation::Background, Propagation::Orphan];

    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        }
    }

    /// The one of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Propagation::ALL.into_iter().find(|one| one.as_str() == word)
    }
}
