//! Generation: for Namespaces that are there, for a source that changes, and for triggers that change in nothing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::contender::{Contender, Stage, Who};
use super::server::{Writes, quiet};
use super::watch::Watch;
use super::{POLICIES, Programs, thousands};
use crate::bench::client::Client;
use crate::bench::report::Report;

const NAMESPACES: &str = "/api/v1/namespaces";
const NETWORK_POLICIES: &str = "/apis/networking.k8s.io/v1/networkpolicies";
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SOURCE: &str = "/api/v1/namespaces/default/configmaps";

/// Requests of our own are sent by so many threads.
const THREADS: usize = 8;

/// A request that fails is sent so often again.
const RETRIES: usize = 30;

/// The most writes for each Namespace that Kiln may need when there are many.
const BOUND: f64 = 1.02;
/// From so many Namespaces on, what a policy costs once no longer shows.
const MANY: usize = 10_000;

const TIME: &str = "time until all are there";
const WRITES: &str = "writes for each object";
const OBJECTS: &str = "of them writes for each object to its resource";
const REQUESTS: &str = "of them writes for each object to UpdateRequests";
const MEMORY: &str = "peak memory";
const PROCESSOR: &str = "processor time";

/// One policy that makes a NetworkPolicy for every Namespace that is there; then, if asked for, changes to those
/// Namespaces that change nothing for the rule.
pub(super) fn existing(
    report: &mut Report,
    programs: &Programs,
    who: Who,
    count: usize,
    touched: bool,
) -> Result<()> {
    let workload = format!("generateExisting, {} Namespaces", thousands(count));
    eprintln!("   {workload}: {}", who.name());
    let scene = Scene::begin(programs, who, count)?;
    let mut made = Watch::begin(&scene.stage.client, NETWORK_POLICIES, "made", |_| true)?;
    let data = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}});
    let rule = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": "made", "data": data,
    });
    let writes = scene.run(report, &workload, &mut made, |client| {
        client.post(POLICIES, &policy(&rule).to_string())
    })?;
    if who == Who::Kiln && count >= MANY && writes > BOUND * count as f64 {
        bail!("{workload}: kiln needs {writes} writes, and may need {BOUND} for each Namespace");
    }
    if touched { scene.touch(report) } else { Ok(()) }
}

/// One policy that clones a ConfigMap into every Namespace, and then a change to the source.
pub(super) fn clones(
    report: &mut Report,
    programs: &Programs,
    who: Who,
    count: usize,
) -> Result<()> {
    let workload = format!("source update to {} clones", thousands(count));
    eprintln!("   {workload}: {}", who.name());
    let scene = Scene::begin(programs, who, count)?;
    let client = &scene.stage.client;
    let mut made = Watch::begin(client, CONFIG_MAPS, "made", |_| true)?;
    let mut updated =
        Watch::begin(client, CONFIG_MAPS, "made", |object| object["data"]["version"] == "2")?;
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "source"},
        "data": {"version": "1", "settings": "x".repeat(500)},
    });
    client.post(SOURCE, &source.to_string())?;
    let rule = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "made",
        "clone": {"name": "source", "namespace": "default"},
    });
    let cloned = format!("generateExisting of clones, {} Namespaces", thousands(count));
    scene.run(report, &cloned, &mut made, |client| {
        client.post(POLICIES, &policy(&rule).to_string())
    })?;
    scene.run(report, &workload, &mut updated, |client| {
        client.merge(&format!("{SOURCE}/source"), r#"{"data":{"version":"2"}}"#)
    })?;
    Ok(())
}

/// A contender that is ready, in a cluster with Namespaces.
struct Scene<'a> {
    contender: Contender,
    stage: Stage<'a>,
    who: Who,
    count: usize,
}

impl<'a> Scene<'a> {
    fn begin(programs: &'a Programs, who: Who, count: usize) -> Result<Self> {
        let stage = Stage::set(programs, who)?;
        // The controller manager gives every Namespace an account; that is not to be counted.
        let mut accounts =
            Watch::begin(&stage.client, "/api/v1/serviceaccounts", "default", |object| {
                object["metadata"]["namespace"].as_str().is_some_and(|n| n.starts_with("team-"))
            })?;
        for_each(count, &stage.client, |client, number| {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{number}")},
            });
            client.post(NAMESPACES, &namespace.to_string())
        })?;
        if accounts.wait(count).0 < count {
            bail!("the controller manager does not keep up");
        }
        let contender = stage.start()?;
        quiet(&stage.client)?;
        Ok(Scene { contender, stage, who, count })
    }

    /// Does something with one write that makes the contender act for all Namespaces, and reports what that took. Gives
    /// the contender's writes.
    fn run(
        &self,
        report: &mut Report,
        workload: &str,
        watch: &mut Watch,
        act: impl Fn(&Client) -> Result<()>,
    ) -> Result<f64> {
        let client = &self.stage.client;
        let before = Writes::read(client)?;
        let processor = self.contender.processor_seconds();
        let began = Instant::now();
        self.contender.wait("taking the change", || match act(client) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("   not yet: {error:#}");
                false
            }
        })?;
        let (seen, last) = watch.wait(self.count);
        let (after, _) = quiet(client)?;
        let writes = after.since(&before);
        // One is our own.
        let all = writes.all() - 1.0;
        let (who, count) = (self.who.name(), self.count as f64);
        let seconds = (last - began).as_secs_f64();
        eprintln!("   {who}: {seen} in {seconds:.1} s; writes: {}", writes.told());
        if seen < self.count {
            report.note(&format!(
                "{workload}: {who} came to {} of {}, and to no more within two minutes",
                thousands(seen),
                thousands(self.count)
            ));
            return Ok(all);
        }
        report.figure(workload, TIME, who, seconds);
        report.figure(workload, WRITES, who, all / count);
        report.figure(workload, OBJECTS, who, writes.of_resource(watch.resource()) / count);
        report.figure(workload, REQUESTS, who, writes.of_resource("updaterequests") / count);
        self.account(report, workload, processor);
        report.figure(workload, MEMORY, who, self.contender.peak_memory());
        for (measure, goal) in [(TIME, 10.0), (WRITES, 1.0), (MEMORY, 5.0)] {
            report.goal(workload, measure, goal);
        }
        Ok(all)
    }

    /// Reports the processor time since a moment, or that it is unknown.
    fn account(&self, report: &mut Report, workload: &str, before: f64) {
        let who = self.who.name();
        match self.contender.restarts() {
            0 => {
                let seconds = self.contender.processor_seconds() - before;
                report.figure(workload, PROCESSOR, who, seconds);
            }
            ends => report.note(&format!(
                "{workload}: processes of {who} had ended by themselves {ends} times in this scene and were started again; \
                 memory is that of those that ran last"
            )),
        }
    }

    /// Labels every Namespace anew, which changes nothing for the rule.
    fn touch(&self, report: &mut Report) -> Result<()> {
        let workload = format!("{} no-op trigger updates", thousands(self.count));
        let client = &self.stage.client;
        let before = Writes::read(client)?;
        let processor = self.contender.processor_seconds();
        let began = Instant::now();
        for_each(self.count, client, |client, number| {
            let labels = r#"{"metadata":{"labels":{"touched":"yes"}}}"#;
            client.merge(&format!("{NAMESPACES}/team-{number}"), labels)
        })?;
        let sent = began.elapsed().as_secs_f64();
        let (after, last) = quiet(client)?;
        let writes = after.since(&before);
        let who = self.who.name();
        let seconds = (last - began).as_secs_f64().max(sent);
        eprintln!(
            "   {who}: {workload}, sent in {sent:.1} s, quiet after {seconds:.1} s; writes: {}",
            writes.told()
        );
        report.figure(&workload, "time until writes stop", who, seconds);
        report.figure(&workload, "writes", who, writes.all() - self.count as f64);
        self.account(report, &workload, processor);
        report.goal(&workload, "writes", 1.0);
        Ok(())
    }
}

/// A policy with one rule for the Namespaces of a scene, old and new.
fn policy(generate: &Value) -> Value {
    let mut generate = generate.clone();
    generate["synchronize"] = json!(true);
    generate["generateExisting"] = json!(true);
    generate["namespace"] = json!("{{request.object.metadata.name}}");
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "bench"},
        "spec": {"rules": [{
            "name": "make",
            "match": {"any": [{"resources": {"kinds": ["Namespace"], "names": ["team-*"]}}]},
            "generate": generate,
        }]},
    })
}

/// Calls until it works, while a contender that ended is started again.
fn insist(call: impl Fn() -> Result<()>) -> Result<()> {
    for _ in 0..RETRIES {
        if call().is_ok() {
            return Ok(());
        }
        sleep(Duration::from_secs(1));
    }
    call()
}

/// Calls for all numbers below a count, in some threads.
pub(super) fn for_each(
    count: usize,
    client: &Client,
    call: impl Fn(&Client, usize) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let call = &call;
        let threads: Vec<_> = (0..THREADS)
            .map(|first| {
                scope.spawn(move || {
                    let numbers = (first..count).step_by(THREADS);
                    numbers.into_iter().try_for_each(|number| insist(|| call(client, number)))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a thread has panicked"),
        })
    })
}
