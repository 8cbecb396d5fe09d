//! One run of one test by chainsaw.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use kiln_testkit::control_plane::{ControlPlane, Watched};
use serde_json::Value;

use super::{Settings, suite};

/// Longer than the longest test with all its waits.
const LIMIT: Duration = Duration::from_secs(600);

/// How one test went.
pub(super) struct TrialOutcome {
    pub(super) passed: bool,
    /// The test says that it is not to be run.
    pub(super) switched_off: bool,
    pub(super) seconds: f64,
    /// The first step that failed, and what it said.
    pub(super) failure: Option<(String, String)>,
    /// What chainsaw printed.
    pub(super) output: String,
}

impl TrialOutcome {
    pub(super) fn fail(&mut self, step: &str, message: &str) {
        self.passed = false;
        self.failure = Some((step.to_owned(), message.to_owned()));
    }
}

pub(super) fn run(
    settings: &Settings,
    cluster: &ControlPlane,
    test: &str,
    shard: usize,
) -> Result<TrialOutcome> {
    let begin = Instant::now();
    let directory = settings.suites.path();
    let config = directory.join(suite::suite_of(test)).join(".chainsaw.yaml");
    let log = cluster.directory().join("chainsaw.log");
    let report = format!("report-{shard}");
    let path = cluster.directory().join(format!("{report}.json"));
    let _ = fs::remove_file(&path);
    let bin = cluster.directory().join("bin");
    let mut command = Command::new(&settings.chainsaw);
    command
        .arg("test")
        .arg(directory.join(test))
        .args(["--parallel=1", "--no-color", "--report-format=JSON"])
        .arg(format!("--report-path={}", cluster.directory().display()))
        .arg(format!("--report-name={report}"))
        .arg(format!("--assert-timeout={}s", settings.patience.as_secs()))
        .arg(format!("--error-timeout={}s", settings.patience.as_secs()))
        // A loaded machine starts kubectl slowly.
        .args(["--exec-timeout=60s", "--cleanup-timeout=60s", "--delete-timeout=60s"])
        .current_dir(directory)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("HOME", cluster.directory())
        .env("PATH", prefixed(&bin));
    if config.is_file() {
        command.arg("--config").arg(config);
    }
    let process = Watched::spawn(&command, &log)?;
    let mut timed_out = false;
    while !process.has_ended() {
        if begin.elapsed() > LIMIT {
            timed_out = true;
            break;
        }
        sleep(Duration::from_millis(100));
    }
    drop(process);
    let output = fs::read_to_string(&log).unwrap_or_default();
    let seconds = begin.elapsed().as_secs_f64();
    let mut outcome =
        TrialOutcome { passed: false, switched_off: false, seconds, failure: None, output };
    if timed_out {
        outcome.fail("the whole test", &format!("it was not done after {LIMIT:?}"));
        return Ok(outcome);
    }
    match fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok())
    {
        Some(report) => judge(&report, &mut outcome),
        None => {
            let last = outcome.output.lines().next_back().unwrap_or("nothing").to_owned();
            outcome.fail("before the first step", &last);
        }
    }
    Ok(outcome)
}

fn prefixed(bin: &std::path::Path) -> std::ffi::OsString {
    let mut path = bin.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Reads chainsaw's report of one test.
fn judge(report: &Value, outcome: &mut TrialOutcome) {
    let tests = report["tests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [test] = tests else {
        outcome.fail("before the first step", "the report is not about one test");
        return;
    };
    outcome.passed = test["status"] == "passed";
    outcome.switched_off = test["status"] == "skipped";
    if outcome.passed || outcome.switched_off {
        return;
    }
    for step in test["steps"].as_array().into_iter().flatten() {
        let operations = step["operations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let failed = operations.iter().find(|operation| operation["status"] == "failed");
        if let Some(operation) = failed {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let place = [text(&step["name"]), text(&operation["type"])].join(" · ");
            outcome.fail(&place, &text(&operation["failure"]["error"]));
            return;
        }
    }
    outcome.fail("somewhere", "no step says why");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_failing_step() {
        let mut outcome = TrialOutcome {
            passed: false,
            switched_off: false,
            seconds: 0.0,
            failure: None,
            output: String::new(),
        };
        let report = serde_json::json!({"tests": [{"status": "failed", "steps": [
            {"name": "step-01", "operations": [{"type": "apply", "status": "passed"}]},
            {"name": "step-02", "operations": [
                {"type": "assert", "status": "failed", "failure": {"error": "not there"}}]},
        ]}]});
        judge(&report, &mut outcome);
        assert_eq!(outcome.failure, Some(("step-02 · assert".into(), "not there".into())));
        judge(&serde_json::json!({"tests": [{"status": "passed"}]}), &mut outcome);
        assert!(outcome.passed);
        judge(&serde_json::json!({"tests": [{"status": "skipped"}]}), &mut outcome);
        assert!(!outcome.passed && outcome.switched_off, "what did not run is not passed");
        judge(&serde_json::json!({"tests": []}), &mut outcome);
        assert!(!outcome.passed);
    }
}
