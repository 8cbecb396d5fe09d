//! Admission: how long a webhook takes to answer, by how many policies there are and how many ask at once, and what
//! memory it needs at rest.
//!
//! AdmissionReviews are posted to the webhook that the contender registers for ConfigMaps, over TLS connections
//! that are kept, as the API server does, from threads of this process.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contender::{Contender, Stage, Who, unverified};
use super::{POLICIES, Programs, thousands};
use crate::bench::client::Client;
use crate::bench::report::Report;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// The number of policies with which memory at rest is measured.
const RESTING: usize = 17;
/// So many namespaces are written to.
const TEAMS: usize = 10;
/// Every stream sends so many requests before the clock runs.
const WARM_UP: usize = 20;
/// Every stream sends at least so many.
const ENOUGH: usize = 20;

/// What is asked of a contender.
pub(super) struct Load {
    pub(super) policies: &'static [usize],
    pub(super) streams: &'static [usize],
    /// How long each number of streams goes on.
    pub(super) lasting: Duration,
    /// How long it is left alone before its memory at rest is read.
    pub(super) rest: Duration,
}

/// Measures one contender with all numbers of policies and streams, and gives the fewest answers behind a figure.
pub(super) fn latency(
    report: &mut Report,
    programs: &Programs,
    who: Who,
    load: &Load,
) -> Result<usize> {
    let stage = Stage::set(programs, who)?;
    for team in 0..TEAMS {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{team}")},
        });
        stage.client.post("/api/v1/namespaces", &namespace.to_string())?;
    }
    let mut stored = 0;
    let mut fewest = usize::MAX;
    for &policies in load.policies {
        for number in stored..policies {
            stage.client.post(POLICIES, &policy(number).to_string())?;
        }
        stored = policies;
        let contender = stage.start()?;
        let url = asked_for(&contender, &stage.client, WEBHOOKS, "configmaps")?;
        answers(&contender, &url, policies)?;
        if policies == RESTING {
            sleep(load.rest);
            let workload = format!("at rest, {RESTING} policies");
            report.figure(&workload, "memory", who.name(), contender.memory());
            report.goal(&workload, "memory", 5.0);
        }
        let name = match policies {
            1 => "admission, 1 policy".to_owned(),
            _ => format!("admission, {} policies", thousands(policies)),
        };
        for &streams in load.streams {
            let times = ask(&url, streams, load.lasting)?;
            let workload = match streams {
                1 => format!("{name}, 1 stream"),
                _ => format!("{name}, {streams} streams"),
            };
            eprintln!("   {}: {workload}: {} answers", who.name(), times.len());
            fewest = fewest.min(times.len());
            for (measure, part) in [("p50", 0.5), ("p99", 0.99)] {
                report.figure(&workload, measure, who.name(), quantile(&times, part));
            }
            report.goal(&workload, "p99", 5.0);
        }
        let workload = format!("{name}, after all streams");
        report.figure(&workload, "peak memory", who.name(), contender.peak_memory());
        report.goal(&workload, "peak memory", 5.0);
        drop(contender);
        stage.remove_webhooks()?;
    }
    Ok(fewest)
}

/// The address that the contender has registered for a resource, in configurations of a kind.
pub(super) fn asked_for(
    contender: &Contender,
    client: &Client,
    configurations: &str,
    resource: &str,
) -> Result<String> {
    let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let find = || -> Option<String> {
        let configurations = client.object(configurations).ok()?;
        let all = listed(&configurations["items"]).into_iter();
        let webhooks = all.flat_map(|configuration| listed(&configuration["webhooks"]));
        let mut asked = webhooks.filter(|webhook| {
            let mut rules = listed(&webhook["rules"]).into_iter();
            rules.any(|rule| listed(&rule["resources"]).iter().any(|name| name == resource))
        });
        asked.next_back()?["clientConfig"]["url"].as_str().map(str::to_owned)
    };
    contender.wait(&format!("registered for {resource}"), || find().is_some())?;
    find().context("the webhook is gone again")
}

/// Waits until the last policy is used.
fn answers(contender: &Contender, url: &str, policies: usize) -> Result<()> {
    let agent = unverified(Duration::from_secs(30));
    let mut number = 0;
    contender.wait("using all policies", || {
        number += 1;
        let review = review(policies - 1, number);
        let answer = agent.post(url).content_type("application/json").send(&review);
        let text = answer.and_then(|mut answer| answer.body_mut().read_to_string());
        let answer: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
        answer["response"]["patch"].is_string()
    })
}

/// Asks from some streams for some time, and gives all times in order.
fn ask(url: &str, streams: usize, lasting: Duration) -> Result<Vec<f64>> {
    let mut times = thread::scope(|scope| {
        let threads: Vec<_> = (0..streams)
            .map(|stream| scope.spawn(move || ask_alone(url, stream * 1_000_000, lasting)))
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(more) => times.extend(more?),
                Err(_) => bail!("a stream has panicked"),
            }
        }
        Ok(times)
    })?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// One stream: each request waits for the answer to the one before.
fn ask_alone(url: &str, first: usize, lasting: Duration) -> Result<Vec<f64>> {
    let agent = unverified(Duration::from_secs(60));
    let mut times = Vec::new();
    let mut began = Instant::now();
    for number in 0.. {
        if number == WARM_UP {
            began = Instant::now();
        }
        if number >= WARM_UP + ENOUGH && began.elapsed() > lasting {
            break;
        }
        let review = review(number % RESTING, first + number);
        let sent = Instant::now();
        let mut answer = agent.post(url).content_type("application/json").send(&review)?;
        let text = answer.body_mut().read_to_string()?;
        let took = sent.elapsed().as_secs_f64();
        if !text.contains(r#""allowed":true"#) {
            bail!("the webhook does not allow a request: {text}");
        }
        if number >= WARM_UP {
            times.push(took);
        }
    }
    Ok(times)
}

pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
}

/// A mutate rule in one of four shapes. Each is for one application, so that of many policies few apply to a request,
/// as in clusters with many teams.
fn policy(number: usize) -> Value {
    let app = format!("app-{number}");
    let (kinds, extra, mutate) = match number % 4 {
        0 => (
            json!(["ConfigMap"]),
            json!({}),
            json!({"patchStrategicMerge": {"metadata": {"labels": {
                "owner": "{{request.object.metadata.namespace}}", "+(policy)": format!("p{number}"),
            }}}}),
        ),
        1 => (
            json!(["ConfigMap", "Secret"]),
            json!({"preconditions": {"all": [{
                "key": "{{request.operation || 'BACKGROUND'}}", "operator": "AnyIn", "value": ["CREATE", "UPDATE"],
            }]}}),
            json!({"patchStrategicMerge": {"metadata": {"annotations": {
                "example.com/reviewed": "{{request.object.metadata.name}}",
            }}}}),
        ),
        2 => (
            json!(["ConfigMap"]),
            json!({"context": [{"name": "team", "variable": {
                "jmesPath": "request.object.metadata.labels.team || 'none'",
            }}]}),
            json!({"patchesJson6902":
                "- op: add\n  path: /metadata/annotations\n  value: {team: \"{{team}}\"}\n"}),
        ),
        _ => (
            json!(["Deployment", "ConfigMap", "Service"]),
            json!({}),
            json!({"patchStrategicMerge": {"metadata": {"labels": {"tier": "standard"}}}}),
        ),
    };
    let mut rule = json!({
        "name": "shape",
        "match": {"any": [{"resources": {"kinds": kinds, "selector": {"matchLabels": {"app": app}}}}]},
        "exclude": {"any": [{"resources": {"namespaces": ["kube-*", "platform"]}}]},
        "mutate": mutate,
    });
    for (name, value) in extra.as_object().into_iter().flatten() {
        rule[name] = value.clone();
    }
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": format!("policy-{number}")},
        "spec": {"rules": [rule]},
    })
}

/// What the API server sends when a user creates a ConfigMap of an application.
fn review(app: usize, number: usize) -> String {
    let id = format!("{app:08x}-0000-4000-8000-{number:012x}");
    let (name, namespace) = (format!("settings-{number}"), format!("team-{}", number % TEAMS));
    let settings: serde_json::Map<String, Value> =
        (0..20).map(|line| (format!("setting-{line}"), json!("some words of a value"))).collect();
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": id, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": namespace, "operation": "CREATE", "dryRun": false, "oldObject": null,
            "userInfo": {"username": "jane", "uid": "jane", "groups": ["developers", "system:authenticated"]},
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "kubectl-create"},
            "object": {
                "apiVersion": "v1", "kind": "ConfigMap", "data": settings,
                "metadata": {
                    "name": name, "namespace": namespace, "uid": id, "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"app": format!("app-{app}"), "team": namespace},
                    "managedFields": [{
                        "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1",
                        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
                    }],
                },
            },
        },
    })
    .to_string()
}
