//! Which results are in policy reports, and when stored objects are scanned: the switches that Kyverno has as flags.

use kiln_engine::Status;
use kiln_rules::{Program, Rule};
use kiln_value::Str;

use crate::setting_values::{SettingError, listed};

/// Which results are in policy reports, and when stored objects are scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporting {
    /// There are reports at all.
    pub reports: bool,
    /// Results of admission requests are in them.
    pub admission: bool,
    /// The kinds of rules whose results are in them.
    pub rules: Vec<ReportedRules>,
    /// The results that are in them.
    pub results: Vec<Status>,
    /// Stored objects are scanned.
    pub scan: bool,
    /// How often all of them are, in seconds.
    pub interval: u64,
    /// Objects that no rule sees at admission are not scanned either.
    pub filtered: bool,
    /// Reasons of Events that are not written.
    pub omitted_events: Vec<Str>,
    /// Policies that ask for it are generated as ValidatingAdmissionPolicies.
    pub native_policies: bool,
}

impl Default for Reporting {
    fn default() -> Self {
        Reporting {
            reports: true,
            admission: true,
            rules: ReportedRules::ALL.to_vec(),
            results: RESULTS.to_vec(),
            scan: true,
            interval: 3_600,
            filtered: false,
            omitted_events: Vec::new(),
            native_policies: true,
        }
    }
}

const RESULTS: [Status; 5] =
    [Status::Pass, Status::Fail, Status::Error, Status::Warn, Status::Skip];

/// The reasons of Events that can be left out.
const EVENTS: [&str; 4] = ["PolicyViolation", "PolicyApplied", "PolicyError", "PolicySkipped"];

/// The shortest time between two scans of everything, in seconds.
const SHORTEST_INTERVAL: u64 = 10;

/// A kind of rules, as users switch their reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedRules {
    /// Rules that check objects.
    Validate,
    /// Rules that change what is sent.
    Mutate,
    /// Rules that change what is stored.
    MutateExisting,
    Generate,
    /// Rules about images, which are not run.
    ImageVerify,
}

impl ReportedRules {
    const ALL: [ReportedRules; 5] = [
        ReportedRules::Validate,
        ReportedRules::Mutate,
        ReportedRules::MutateExisting,
        ReportedRules::Generate,
        ReportedRules::ImageVerify,
    ];

    fn word(self) -> &'static str {
        match self {
            ReportedRules::Validate => "validate",
            ReportedRules::Mutate => "mutate",
            ReportedRules::MutateExisting => "mutateExisting",
            ReportedRules::Generate => "generate",
            ReportedRules::ImageVerify => "imageVerify",
        }
    }

    /// Which kind a rule is; none for one that is never in reports.
    pub fn of(rule: &Rule) -> Option<Self> {
        match &rule.program {
            Program::Validate(_) => Some(ReportedRules::Validate),
            Program::Mutate(mutate) if mutate.changes_trigger() => Some(ReportedRules::Mutate),
            Program::Mutate(_) => Some(ReportedRules::MutateExisting),
            Program::Generate(_) => Some(ReportedRules::Generate),
            Program::Modify(_) | Program::Delete(_) => None,
        }
    }
}

impl Reporting {
    /// Whether results of a rule are in reports.
    pub fn includes(&self, rule: &Rule) -> bool {
        self.reports && ReportedRules::of(rule).is_some_and(|kind| self.rules.contains(&kind))
    }

    /// Whether a result is in reports. Kyverno: a failure that does not count is a failure here, whatever reports call it.
    pub fn allows(&self, status: Status) -> bool {
        let meant = if status == Status::Warn { Status::Fail } else { status };
        self.results.contains(&status) || self.results.contains(&meant)
    }

    pub(crate) fn set_rules(&mut self, text: &str) -> Result<(), SettingError> {
        self.rules = listed(text, &ReportedRules::ALL, |kind| kind.word())?;
        Ok(())
    }

    pub(crate) fn set_results(&mut self, text: &str) -> Result<(), SettingError> {
        self.results = listed(text, &RESULTS, |status| status.as_str())?;
        Ok(())
    }

    pub(crate) fn set_omitted_events(&mut self, text: &str) -> Result<(), SettingError> {
        let omitted = listed(text, &EVENTS, |reason| *reason)?;
        self.omitted_events = omitted.into_iter().map(Str::from).collect();
        Ok(())
    }

    /// A duration as Go writes it.
    pub(crate) fn set_interval(&mut self, text: &str) -> Result<(), SettingError> {
        let read = kiln_text::Duration::parse(text.trim());
        let read =
            read.map_err(|source| SettingError::ReadDuration { text: text.to_owned(), source })?;
        let seconds = u64::try_from(read.as_nanos() / 1_000_000_000).unwrap_or(0);
        if seconds < SHORTEST_INTERVAL {
            let shortest = SHORTEST_INTERVAL;
            return Err(SettingError::TooOften { text: text.to_owned(), shortest });
        }
        self.interval = seconds;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_kyverno_writes_them() {
        let mut reporting = Reporting::default();
        reporting.set_rules("validate, mutateExisting").unwrap();
        assert_eq!(reporting.rules, [ReportedRules::Validate, ReportedRules::MutateExisting]);
        assert_eq!(
            reporting.set_rules("validate,generat").unwrap_err().to_string(),
            "\"generat\" is none of validate, mutate, mutateExisting, generate, imageVerify"
        );
        assert_eq!(reporting.rules.len(), 2, "what cannot be read changes nothing");
        reporting.set_rules("").unwrap();
        assert!(reporting.rules.is_empty());
        reporting.set_results("fail").unwrap();
        assert!(reporting.allows(Status::Fail) && reporting.allows(Status::Warn));
        assert!(!reporting.allows(Status::Pass) && !reporting.allows(Status::Error));
        reporting.set_results("warn").unwrap();
        assert!(reporting.allows(Status::Warn) && !reporting.allows(Status::Fail));
        reporting.set_omitted_events("PolicyApplied,PolicySkipped").unwrap();
        assert_eq!(reporting.omitted_events, ["PolicyApplied", "PolicySkipped"]);
        assert!(reporting.set_omitted_events("Pod").is_err());
        for (text, seconds) in
            [("90s", Some(90)), ("1h30m", Some(5_400)), ("5s", None), ("1", None)]
        {
            let set = reporting.set_interval(text);
            assert_eq!(set.is_ok().then_some(reporting.interval), seconds, "{text}");
        }
    }
}
