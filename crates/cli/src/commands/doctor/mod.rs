//! `kiln doctor`

mod address;
mod certificates;
mod engine;
mod health;
mod policies;
mod scan;
mod services;
mod shadows;
mod update_requests;
mod webhooks;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use kiln_admission::Settings;
use kiln_cluster::ApiError;
use kiln_object::{Gvk, ObjectId};
use kiln_runtime::LiveReader;
use kiln_value::Value;

use self::address::{Address, Unanswered};
use self::services::Endpoints;
use crate::args::OutputFormat;
use crate::cluster::competing_engines::CompetingEngine;
use crate::cluster::connection::{Connection, settings_of};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::{Paint, Ui, counted, plain};

/// Diagnose problems of an installation, with hints
///
/// Checks the CustomResourceDefinitions, the leader-election Lease and the health of the engine, how far the background
/// scan has come, webhooks and their endpoints, certificates, the permissions that policies need, policies that are not ready or have no recorded
/// author, rules that Kiln does not run, shadows that differ from their policies, exceptions that do not apply, UpdateRequests that wait or failed, objects
/// that another writer keeps changing, and other engines that act on the same policies. Changes nothing.
///
/// Exits with code 0 if there are no problems, with 1 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace of the Kiln installation
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    engine_namespace: String,

    /// Service through which the API server reaches the webhook [default: kyverno-svc, or as the installation is called]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FindingState {
    Good,
    Doubtful,
    Bad,
}

impl FindingState {
    fn word(self) -> &'static str {
        match self {
            FindingState::Good => "ok",
            FindingState::Doubtful => "warning",
            FindingState::Bad => "problem",
        }
    }
}

/// What was found when something was looked at.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    about: &'static str,
    state: FindingState,
    message: String,
    /// What to do next.
    hint: Option<String>,
}

/// Something could not be read, which is a finding; whether it is there is not known.
#[derive(Clone, Copy)]
struct Unread;

/// What every check may read, and what they found.
struct Checks<'r> {
    reader: &'r LiveReader,
    settings: Settings,
    service: &'r str,
    /// Seconds since 1970.
    now: i64,
    /// What engines serve, if that could be read.
    served: Option<certificates::Served>,
    /// Who renews certificates.
    renewal: certificates::Renewal,
    /// Deployments that answer the webhooks of other engines, if they could be read.
    answering: Option<Vec<CompetingEngine>>,
    /// Deployments of other engines that use the same definitions, if they could be read.
    sharing: Option<Vec<CompetingEngine>>,
    /// Endpoints of Services, by namespace and name.
    endpoints: BTreeMap<(String, String), Result<Endpoints, Unread>>,
    /// What engines said of themselves at the addresses that webhooks call.
    said: BTreeMap<Address, Result<String, Unanswered>>,
    findings: Vec<Finding>,
}

impl Checks<'_> {
    fn good(&mut self, about: &'static str, message: impl Into<String>) {
        let finding =
            Finding { about, state: FindingState::Good, message: message.into(), hint: None };
        self.findings.push(finding);
    }

    fn doubtful(&mut self, about: &'static str, message: impl Into<String>, hint: &str) {
        self.note(about, FindingState::Doubtful, message, hint);
    }

    fn bad(&mut self, about: &'static str, message: impl Into<String>, hint: &str) {
        self.note(about, FindingState::Bad, message, hint);
    }

    /// Whatever is not as it should be comes with what to do next.
    fn note(
        &mut self,
        about: &'static str,
        state: FindingState,
        message: impl Into<String>,
        hint: &str,
    ) {
        debug_assert!(!hint.trim().is_empty(), "what is to be done about {about}?");
        let hint = Some(hint.to_owned());
        let finding = Finding { about, state, message: message.into(), hint };
        // Several webhooks may lack the same thing.
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// What an engine says of itself at an address, asked once.
    fn said_at(&mut self, address: &Address) -> Result<String, Unanswered> {
        self.said.entry(address.clone()).or_insert_with(|| address.probe("health")).clone()
    }

    /// One object, if it is there; what keeps it from being read is a finding.
    fn object(
        &mut self,
        about: &'static str,
        gvk: Gvk,
        name: &str,
    ) -> Result<Option<Value>, Unread> {
        let namespaced =
            self.reader.kinds().get(&gvk).is_some_and(kiln_object::Kind::is_namespaced);
        let namespace =
            if namespaced { self.settings.namespace.to_string() } else { String::new() };
        let id = ObjectId::new(gvk, &namespace, name);
        let found = self.reader.object(&id);
        found.map_err(|error| self.unread(about, &id.to_string(), &error))
    }

    /// All objects of a kind; what keeps them from being read is a finding.
    fn all(
        &mut self,
        about: &'static str,
        gvk: &Gvk,
        namespace: &str,
    ) -> Result<Vec<Value>, Unread> {
        let found = self.reader.all(gvk, namespace);
        let what = || format!("objects of kind {}", gvk.kind);
        found.map_err(|error| self.unread(about, &what(), &error))
    }

    fn unread(&mut self, about: &'static str, what: &str, error: &ApiError) -> Unread {
        let hint = "ask with credentials that may read it";
        self.doubtful(about, format!("cannot read {what}: {error}"), hint);
        Unread
    }
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("doctor")?;
    let reader = args.connection.reader()?;
    let service = args.service.clone().unwrap_or_else(|| args.connection.names().service());
    let findings = findings(&reader, &service, &args.engine_namespace)?;
    show(ui, &findings)?;
    let is_well = findings.iter().all(|finding| finding.state != FindingState::Bad);
    Ok(if is_well { CommandOutcome::Done } else { CommandOutcome::Negative })
}

/// Looks at everything.
fn findings(
    reader: &LiveReader,
    service: &str,
    engine_namespace: &str,
) -> Result<Vec<Finding>, CommandFailure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut checks = Checks {
        settings: settings_of(reader, engine_namespace)?,
        reader,
        service,
        now: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        served: None,
        renewal: certificates::Renewal::Unknown,
        answering: None,
        sharing: None,
        endpoints: BTreeMap::new(),
        said: BTreeMap::new(),
        findings: Vec::new(),
    };
    if engine::definitions(&mut checks) {
        engine::lease(&mut checks);
        engine::others(&mut checks);
        certificates::check(&mut checks);
        webhooks::check(&mut checks);
        let engines = health::check(&mut checks);
        scan::check(&mut checks, &engines);
        policies::check(&mut checks)?;
        shadows::check(&mut checks, &engines)?;
        update_requests::check(&mut checks);
    }
    Ok(checks.findings)
}

/// The same for another command, as programs read it.
pub(super) fn findings_as_value(
    reader: &LiveReader,
    service: &str,
    engine_namespace: &str,
) -> Result<Value, CommandFailure> {
    let found = findings(reader, service, engine_namespace)?;
    let found = found.iter().map(|finding| {
        let severity = match finding.state {
            FindingState::Good => "ok",
            FindingState::Doubtful => "warning",
            FindingState::Bad => "error",
        };
        let mut fields = kiln_value::Map::from_iter([
            ("severity", severity.to_owned()),
            ("message", format!("{}: {}", finding.about, finding.message)),
        ]);
        if let Some(hint) = &finding.hint {
            fields.insert("hint", hint.as_str());
        }
        Value::from(fields)
    });
    Ok(found.collect())
}

fn show(ui: &Ui, findings: &[Finding]) -> std::io::Result<()> {
    if ui.format() != OutputFormat::Text {
        let all: Vec<_> = findings
            .iter()
            .map(|finding| {
                serde_json::json!({
                    "about": finding.about, "state": finding.state.word(),
                    "message": finding.message, "hint": finding.hint,
                })
            })
            .collect();
        return ui.document(&all.into());
    }
    let mut out = ui.stdout();
    text(&mut out, findings)?;
    out.flush()
}

fn text(out: &mut impl Paint, findings: &[Finding]) -> std::io::Result<()> {
    for finding in findings {
        let (state, about) = (finding.state.word(), finding.about);
        let mut message = finding.message.trim_end().lines().map(plain);
        out.result(state)?;
        let gap = 9 - state.len();
        writeln!(out, "{:gap$}{about}: {}", "", message.next().unwrap_or_default())?;
        let hint = finding.hint.as_deref().unwrap_or_default().trim_end().lines().map(plain);
        for line in message.chain(hint) {
            writeln!(out, "         {line}")?;
        }
    }
    let count =
        |state: FindingState| findings.iter().filter(|finding| finding.state == state).count();
    let (bad, doubtful) = (count(FindingState::Bad), count(FindingState::Doubtful));
    writeln!(
        out,
        "{}, {}",
        counted(bad, "problem", "problems"),
        counted(doubtful, "warning", "warnings")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_says_cannot_pass_for_another_finding() {
        let finding = Finding {
            about: "work",
            state: FindingState::Bad,
            message: "policy a: \u{1b}[2J\nok       all: fine".to_owned(),
            hint: Some("first\n  second\n".to_owned()),
        };
        let mut said = Vec::new();
        text(&mut said, &[finding]).unwrap();
        assert_eq!(
            String::from_utf8(said).unwrap(),
            "problem  work: policy a: \u{fffd}[2J\n         ok       all: fine\n         first\n           second\n\
             1 problem, 0 warnings\n"
        );
    }
}
