//! Admission of Pods that 17 Pod Security policies check: an open loop at fixed rates, and how many a webhook can answer.
//!
//! In an open loop requests are sent when they are due, whether or not earlier ones are answered, and each time counts
//! from that moment: a contender that stalls is late for all that came meanwhile, as it is in a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use super::admission::{asked_for, quantile};
use super::contender::{Stage, Who, unverified};
use super::pods::{PodSecurity, TEAMS, pod};
use super::{Programs, thousands};
use crate::bench::report::Report;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// How many requests may be under way; more than any contender answers at once.
const SENDERS: usize = 64;
/// How much sooner Kiln is to answer.
const GOAL: f64 = 10.0;
/// How much of a rate must be answered in time for it to count as kept.
const KEPT: f64 = 0.95;

/// How hard a contender is asked.
pub(super) struct Load {
    /// Requests in a second.
    pub(super) rates: &'static [usize],
    /// How long each rate goes on.
    pub(super) lasting: Duration,
}

/// Measures one contender at all rates, and then as fast as it can answer.
pub(super) fn open_loop(
    report: &mut Report,
    programs: &Programs,
    security: &PodSecurity,
    who: Who,
    load: &Load,
) -> Result<()> {
    let stage = Stage::set(programs, who)?;
    stage.teams()?;
    let contender = stage.start()?;
    security.store(&stage, &contender)?;
    let url = asked_for(&contender, &stage.client, WEBHOOKS, "pods")?;
    let policies = thousands(security.count());
    // What the first requests pay for is not the same for all.
    closed_loop(&url, Duration::from_secs(2))?;
    for &rate in load.rates {
        let workload = format!("{policies} policies, {rate} Pods/s");
        let sent = at_rate(&url, rate, load.lasting)?;
        let answered = sent.times.len() as f64 / sent.took.as_secs_f64();
        eprintln!("   {}: {workload}: {answered:.0} answers in a second", who.name());
        for (measure, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            report.figure(&workload, measure, who.name(), quantile(&sent.times, part));
        }
        report.goal(&workload, "p99", GOAL);
        if answered < KEPT * rate as f64 {
            report.note(&format!(
                "{workload}: {} answered {answered:.0} in a second, so that its times grow with the length of the run",
                who.name()
            ));
        }
    }
    let answers = closed_loop(&url, load.lasting)?;
    let workload = format!("{policies} policies, {SENDERS} senders without a pause");
    let each = load.lasting.as_secs_f64() / answers.max(1) as f64;
    eprintln!("   {}: {workload}: {:.0} answers in a second", who.name(), 1.0 / each);
    report.figure(&workload, "time for each answer at saturation", who.name(), each);
    report.goal(&workload, "time for each answer at saturation", GOAL);
    report.figure(&workload, "peak memory", who.name(), contender.peak_memory());
    Ok(())
}

/// What came of a rate.
struct Sent {
    /// From when each request was due to its answer, in order.
    times: Vec<f64>,
    took: Duration,
}

fn at_rate(url: &str, rate: usize, lasting: Duration) -> Result<Sent> {
    let count = rate * usize::try_from(lasting.as_secs())?.max(1);
    let next = AtomicUsize::new(0);
    // A moment for the threads to connect.
    let begin = Instant::now() + Duration::from_millis(200);
    let due = |number: usize| begin + Duration::from_secs_f64(number as f64 / rate as f64);
    let sender = || -> Result<Vec<f64>> {
        let agent = unverified(Duration::from_secs(60));
        let mut times = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(times);
            }
            let review = review(number);
            sleep(due(number).saturating_duration_since(Instant::now()));
            answer(&agent, url, &review)?;
            times.push(due(number).elapsed().as_secs_f64());
        }
    };
    let mut times = on_all(SENDERS, sender)?.concat();
    times.sort_by(f64::total_cmp);
    Ok(Sent { times, took: begin.elapsed() })
}

/// How many requests are answered in a time by senders that never pause.
fn closed_loop(url: &str, lasting: Duration) -> Result<usize> {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let sender = || -> Result<usize> {
        let agent = unverified(Duration::from_secs(60));
        let mut answers = 0;
        while begin.elapsed() < lasting {
            answer(&agent, url, &review(next.fetch_add(1, Ordering::Relaxed)))?;
            answers += usize::from(begin.elapsed() < lasting);
        }
        Ok(answers)
    };
    Ok(on_all(SENDERS, sender)?.into_iter().sum())
}

fn on_all<T: Send>(count: usize, run: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&run)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a sender has panicked"),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Sends one review. Whether the Pod is allowed is the policies' business: they only audit.
fn answer(agent: &ureq::Agent, url: &str, review: &str) -> Result<()> {
    let mut answer = agent.post(url).content_type("application/json").send(review)?;
    let text = answer.body_mut().read_to_string()?;
    if !text.contains(r#""allowed":true"#) {
        bail!("the webhook does not allow a Pod that policies only audit: {text}");
    }
    Ok(())
}

/// What the API server sends when a controller creates a Pod.
fn review(number: usize) -> String {
    let id = format!("{number:08x}-0000-4000-8000-{number:012x}");
    let mut object = pod(number);
    object["metadata"]["uid"] = json!(id);
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": id, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": object["metadata"]["name"], "namespace": format!("team-{}", number % TEAMS),
            "operation": "CREATE", "dryRun": false, "oldObject": null,
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            "object": object,
        },
    })
    .to_string()
}
