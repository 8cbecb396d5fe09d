//! The scan of Pods that are there: how long until every Pod has its report, with which writes and memory, and what
//! reports cost when Pods change.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::contender::{Contender, Stage, Who};
use super::generation::for_each;
use super::pods::{PodSecurity, TEAMS, pod};
use super::server::{Writes, quiet};
use super::watch::Watch;
use super::{POLICIES, Programs, thousands};
use crate::bench::client::Client;
use crate::bench::report::Report;

const REPORTS: &str = "/apis/wgpolicyk8s.io/v1alpha2/policyreports";
/// Kyverno looks at changes half a minute later.
const LATER: Duration = Duration::from_secs(45);

const TIME: &str = "time until all reports are there";
const WRITES: &str = "writes for each Pod";
const REPORT_WRITES: &str = "writes for each changed Pod";
const NO_CHANGE: &str = "writes for each Pod whose results stay";
const MEMORY: &str = "peak memory";
const PROCESSOR: &str = "processor time";

/// Has a contender scan so many Pods.
pub(super) fn scan(
    report: &mut Report,
    programs: &Programs,
    security: &PodSecurity,
    who: Who,
    pods: usize,
) -> Result<()> {
    let workload =
        format!("scan of {} Pods, {} policies", thousands(pods), thousands(security.count()));
    eprintln!("   {workload}: {}", who.name());
    let stage = Stage::set(programs, who)?.with_reports();
    stage.teams()?;
    for_each(pods, &stage.client, |client, number| {
        client.post(&namespaced(number), &pod(number).to_string())
    })?;
    let contender = stage.start()?;
    quiet(&stage.client)?;
    let scene = Scene { stage, contender, who, pods };
    // A report of a Pod is whole when it has a result of each policy.
    let wanted = security.count();
    let mut whole = reports(&scene.stage.client, move |results| results.len() >= wanted)?;
    let before = scene.before()?;
    security.store(&scene.stage, &scene.contender)?;
    let (seen, last) = whole.wait(pods);
    if seen < pods {
        scene.note_missing(report, &workload, seen);
        return Ok(());
    }
    let (after, _) = quiet(&scene.stage.client)?;
    let writes = after.since(&before.writes);
    let own = security.count() as f64;
    eprintln!("   {}: {:.1?}; writes: {}", who.name(), last - before.began, writes.told());
    report.figure(&workload, TIME, who.name(), (last - before.began).as_secs_f64());
    report.figure(&workload, WRITES, who.name(), (writes.all() - own) / pods as f64);
    let processor = scene.contender.processor_seconds() - before.processor;
    report.figure(&workload, PROCESSOR, who.name(), processor);
    report.figure(&workload, MEMORY, who.name(), scene.contender.peak_memory());
    for (measure, goal) in [(TIME, 20.0), (WRITES, 1.0), (MEMORY, 5.0)] {
        report.goal(&workload, measure, goal);
    }
    scene.change(report)
}

fn namespaced(number: usize) -> String {
    format!("/api/v1/namespaces/team-{}/pods", number % TEAMS)
}

/// A contender with Pods that it scans.
struct Scene<'a> {
    stage: Stage<'a>,
    contender: Contender,
    who: Who,
    pods: usize,
}

/// What was so when something began.
struct Before {
    began: Instant,
    writes: Writes,
    processor: f64,
}

impl Scene<'_> {
    fn before(&self) -> Result<Before> {
        Ok(Before {
            writes: Writes::read(&self.stage.client)?,
            processor: self.contender.processor_seconds(),
            began: Instant::now(),
        })
    }

    fn note_missing(&self, report: &mut Report, workload: &str, seen: usize) {
        report.note(&format!(
            "{workload}: {} came to {} of {} reports, and to no more within two minutes",
            self.who.name(),
            thousands(seen),
            thousands(self.pods)
        ));
    }

    /// Changes a part of the Pods so that one result of each changes, and then so that none does.
    fn change(&self, report: &mut Report) -> Result<()> {
        let changed = (self.pods / 10).max(1);
        let labelled = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "require-owner"},
            "spec": {"validationFailureAction": "Audit", "background": true, "rules": [{
                "name": "owner", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "set the label owner", "pattern": {"metadata": {"labels": {"owner": "?*"}}}},
            }]},
        });
        let client = &self.stage.client;
        let workload = format!("changes of {} Pods", thousands(changed));
        let mut known = reports(client, |results| results.contains_key("require-owner"))?;
        self.contender
            .wait("storing a policy", || client.post(POLICIES, &labelled.to_string()).is_ok())?;
        let (seen, _) = known.wait(self.pods);
        if seen < self.pods {
            self.note_missing(report, &workload, seen);
            return Ok(());
        }
        quiet(client)?;
        for (measure, labels) in
            [(REPORT_WRITES, json!({"owner": "a"})), (NO_CHANGE, json!({"touched": "yes"}))]
        {
            let is_good = |results: &BTreeMap<String, String>| {
                results.get("require-owner").is_some_and(|one| one == "pass")
            };
            let mut good = reports(client, is_good)?;
            let before = self.before()?;
            for_each(changed, client, |client, number| {
                let path = format!("{}/p-{number}", namespaced(number));
                client.merge(&path, &json!({"metadata": {"labels": labels}}).to_string())
            })?;
            let (seen, _) = good.wait(changed);
            if seen < changed {
                self.note_missing(report, &workload, seen);
                return Ok(());
            }
            sleep(LATER);
            let (after, _) = quiet(client)?;
            let writes = after.since(&before.writes);
            eprintln!("   {}: {measure}: {}", self.who.name(), writes.told());
            let own = changed as f64;
            report.figure(&workload, measure, self.who.name(), (writes.all() - own) / own);
            report.goal(&workload, measure, 1.0);
        }
        Ok(())
    }
}

/// Follows the reports of Pods whose results are as they should be.
fn reports(
    client: &Client,
    is_whole: impl Fn(&BTreeMap<String, String>) -> bool + Send + 'static,
) -> Result<Watch> {
    Watch::keyed(client, REPORTS, "", move |report| {
        let is_meant = report["scope"]["kind"] == "Pod" && is_whole(&results(report));
        is_meant.then(|| report["scope"]["uid"].as_str().unwrap_or_default().to_owned())
    })
}

/// The result of each policy in a report.
fn results(report: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = report["results"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (text(&one["policy"]), text(&one["result"]))).collect()
}
