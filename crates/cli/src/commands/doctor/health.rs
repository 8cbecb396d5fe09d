//! What engines say of their watches, webhooks and servers.

use std::time::{Duration, Instant};

use kiln_cluster::{ApiError, Reason};
use kiln_object::{Gvk, metadata};
use kiln_runtime::reader::ProbeTarget;
use kiln_value::Value;

use super::address::Address;
use super::{Checks, FindingState};
use crate::cluster::competing_engines::installed;
use crate::ui::counted;

const ABOUT: &str = "watches";
/// What is over by then was the beginning of an engine.
const PASSING: Duration = Duration::from_secs(2);
/// How often it is asked meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// The Service of those who act, where they do nothing else.
const CONTROLLER: &str = "kiln-controller";
/// The port that engines listen on whose pods do not say another.
const PORT: u16 = 9443;

/// Where an engine is asked how it is.
#[derive(Debug)]
pub(super) enum HealthEndpoint {
    At(Address),
    Service(String),
    In(Pod),
}

/// A pod of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    name: String,
    port: u16,
    is_ready: bool,
}

impl Pod {
    /// None for one that ends or has ended.
    fn of(pod: &Value) -> Option<Self> {
        let has_ended = matches!(pod.str_at(["status", "phase"]), Some("Succeeded" | "Failed"));
        if has_ended || metadata::is_deleted(pod) {
            return None;
        }
        let name = metadata::name(pod)?.to_owned();
        let ports = each(pod.get_path(["spec", "containers"]))
            .flat_map(|container| each(container.get("ports")));
        let port = ports
            .filter(|port| port.str_at(["name"]) == Some("https"))
            .find_map(|port| u16::try_from(port.get("containerPort")?.as_i64()?).ok());
        let is_ready = each(pod.get_path(["status", "conditions"])).any(|condition| {
            let text = |key: &str| condition.str_at([key]).unwrap_or_default();
            (text("type"), text("status")) == ("Ready", "True")
        });
        Some(Pod { name, port: port.unwrap_or(PORT), is_ready })
    }
}

/// The values of a list, if it is there.
fn each(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
}

/// Why an engine said nothing.
#[derive(Debug)]
pub(super) struct Silent {
    why: String,
    is_forbidden: bool,
}

impl From<ApiError> for Silent {
    fn from(error: ApiError) -> Self {
        Silent { why: error.to_string(), is_forbidden: error.reason == Reason::Forbidden }
    }
}

impl HealthEndpoint {
    /// What the engine says at a path.
    pub(super) fn ask(&self, checks: &Checks<'_>, at: &str) -> Result<String, Silent> {
        let asked = match self {
            HealthEndpoint::At(address) => {
                let said = address.probe(at);
                return said.map_err(|why| Silent { why: why.to_string(), is_forbidden: false });
            }
            HealthEndpoint::Service(service) => ProbeTarget::Service(service),
            HealthEndpoint::In(pod) => ProbeTarget::Pod { name: &pod.name, port: pod.port },
        };
        Ok(checks.reader.probe(&checks.settings.namespace, asked, at)?)
    }
}

/// What is found out of what engines say: where webhooks find them, and in their pods. A Service would let one speak for
/// all, and never one that is not ready; it is asked where there are no pods to be seen. Gives those that answered.
pub(super) fn check(checks: &mut Checks<'_>) -> Vec<HealthEndpoint> {
    let mut places: Vec<HealthEndpoint> =
        checks.said.keys().cloned().map(HealthEndpoint::At).collect();
    let pods = pods(checks);
    let count = pods.len();
    if pods.is_empty() && places.is_empty() {
        places.push(HealthEndpoint::Service(checks.service.to_owned()));
    }
    // Those who act have a Service of their own where the sides are split.
    if pods.is_empty()
        && let Ok(Some(_)) = checks.object(ABOUT, Gvk::new("v1", "Service"), CONTROLLER)
    {
        places.push(HealthEndpoint::Service(CONTROLLER.to_owned()));
    }
    places.extend(pods.into_iter().map(HealthEndpoint::In));
    let mut is_well = true;
    let mut answered = Vec::new();
    for place in places {
        let said = said(checks, &place);
        let answers = said.is_ok();
        for (state, message, hint) in judged(&place, said) {
            is_well = false;
            checks.note(ABOUT, state, message, &hint);
        }
        answered.extend(answers.then_some(place));
    }
    if is_well {
        let who = match count {
            0 => "the engine says".to_owned(),
            _ => counted(count, "pod says", "pods say"),
        };
        checks.good(ABOUT, format!("{who} that everything is healthy"));
    }
    answered
}

fn pods(checks: &mut Checks<'_>) -> Vec<Pod> {
    let namespace = checks.settings.namespace.to_string();
    let pods = checks.all(ABOUT, &Gvk::new("v1", "Pod"), &namespace).unwrap_or_default();
    let installed = installed(&namespace, &checks.settings.names);
    pods.iter().filter(|pod| is_engine(pod, &installed)).filter_map(Pod::of).collect()
}

/// Whether a pod belongs to a Deployment among what is installed.
fn is_engine(pod: &Value, installed: &[Value]) -> bool {
    installed
        .iter()
        .filter(|object| object.str_at(["kind"]) == Some("Deployment"))
        .filter_map(|deployment| deployment.get_path(["spec", "selector", "matchLabels"])?.as_map())
        .any(|labels| labels.iter().all(|(key, value)| metadata::label(pod, key) == value.as_str()))
}

/// What an engine says, when it has had time to begin.
fn said(checks: &Checks<'_>, place: &HealthEndpoint) -> Result<String, Silent> {
    let began = Instant::now();
    let mut said = place.ask(checks, "health");
    while said.as_ref().is_ok_and(|said| said.trim() != "ok") && began.elapsed() < PASSING {
        std::thread::sleep(LOOK);
        said = place.ask(checks, "health");
    }
    said
}

/// What is wrong with an engine that says this.
fn judged(
    place: &HealthEndpoint,
    said: Result<String, Silent>,
) -> Vec<(FindingState, String, String)> {
    let said = match said {
        Ok(said) if said.trim() == "ok" => return Vec::new(),
        Ok(said) if said.trim().is_empty() => "the answer is empty".to_owned(),
        Ok(said) => said,
        Err(silent) => return vec![unanswered(place, &silent)],
    };
    let which = match place {
        HealthEndpoint::In(pod) => format!("the pod {}: ", pod.name),
        _ => String::new(),
    };
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            // It may have begun a moment ago. Version 0.1 says it in the second way.
            let is_new = line.ends_with("its caches are not synced yet")
                || line.ends_with("it has not read everything yet");
            let state = if is_new { FindingState::Doubtful } else { FindingState::Bad };
            (state, format!("{which}{line}"), "look at the logs of the engine".to_owned())
        })
        .collect()
}

fn unanswered(place: &HealthEndpoint, silent: &Silent) -> (FindingState, String, String) {
    let Silent { why, is_forbidden } = silent;
    let place = match place {
        HealthEndpoint::In(pod) if !pod.is_ready && !is_forbidden => {
            let message = format!("the pod {} is not ready, and does not answer: {why}", pod.name);
            return (
                FindingState::Bad,
                message,
                "look at the events and the logs of the pod".to_owned(),
            );
        }
        HealthEndpoint::At(address) => format!("at {}", address.origin),
        HealthEndpoint::Service(service) => format!("through the Service {service}"),
        HealthEndpoint::In(pod) => format!("in the pod {}", pod.name),
    };
    let hint = if *is_forbidden {
        "ask with credentials that may get pods/proxy and services/proxy"
    } else {
        "ask it from where it runs: GET /health at the address that it listens on says which watches are stale"
    };
    (FindingState::Doubtful, format!("cannot reach the engine {place}: {why}"), hint.to_owned())
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use kiln_object::EngineNames;

    use super::*;

    #[test]
    fn pods_of_engines_are_those_of_what_is_installed() {
        let installed = installed("kyverno", &EngineNames::default());
        for (name, component, wanted) in [
            ("kiln", "engine", true),
            ("kiln", "admission", true),
            ("kiln", "controller", true),
            ("kiln", "other", false),
            ("kyverno", "controller", false),
        ] {
            let pod = value!({"metadata": {"labels": {
                "app.kubernetes.io/name": name, "app.kubernetes.io/component": component, "more": "labels",
            }}});
            assert_eq!(is_engine(&pod, &installed), wanted, "{name} {component}");
        }
        assert!(!is_engine(&value!({"metadata": {}}), &installed));
    }

    #[test]
    fn pods_say_where_they_listen_and_whether_they_are_ready() {
        let pod = |more: Value, ready: &str| {
            value!({
                "metadata": {"name": "kiln-0"},
                "spec": {"containers": [{"name": "other"}, more]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let ports = value!({"ports": [{"name": "m", "containerPort": 1}, {"name": "https", "containerPort": 8443}]});
        let name = || "kiln-0".to_owned();
        let found = Pod::of(&pod(ports, "True"));
        assert_eq!(found, Some(Pod { name: name(), port: 8443, is_ready: true }));
        let found = Pod::of(&pod(value!({}), "False"));
        assert_eq!(found, Some(Pod { name: name(), port: PORT, is_ready: false }));
        let mut ends = pod(value!({}), "True");
        ends.set(["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(Pod::of(&ends), None);
        let mut ended = pod(value!({}), "False");
        ended.set(["status", "phase"], "Failed").unwrap();
        assert_eq!(Pod::of(&ended), None);
    }

    #[test]
    fn answers_of_pods_are_judged_by_what_they_say_and_name_them() {
        let judge = |is_ready: bool, said: Result<&str, bool>| {
            let pod = HealthEndpoint::In(Pod { name: "kiln-0".to_owned(), port: PORT, is_ready });
            let silent = |is_forbidden| Silent { why: "no".to_owned(), is_forbidden };
            let judged = judged(&pod, said.map(str::to_owned).map_err(silent));
            judged.into_iter().map(|(state, message, _)| (state, message)).collect::<Vec<_>>()
        };
        for (is_ready, said, wanted) in [
            (true, Ok("ok\n"), vec![]),
            (false, Ok("ok\n"), vec![]),
            (true, Ok(" "), vec![(FindingState::Bad, "the pod kiln-0: the answer is empty")]),
            (
                false,
                Ok("watch of v1/Secret: stale\ncontroller: its caches are not synced yet\n"),
                vec![
                    (FindingState::Bad, "the pod kiln-0: watch of v1/Secret: stale"),
                    (
                        FindingState::Doubtful,
                        "the pod kiln-0: controller: its caches are not synced yet",
                    ),
                ],
            ),
            (
                false,
                Err(false),
                vec![(FindingState::Bad, "the pod kiln-0 is not ready, and does not answer: no")],
            ),
            (
                true,
                Err(false),
                vec![(FindingState::Doubtful, "cannot reach the engine in the pod kiln-0: no")],
            ),
            (
                false,
                Err(true),
                vec![(FindingState::Doubtful, "cannot reach the engine in the pod kiln-0: no")],
            ),
        ] {
            let wanted: Vec<_> =
                wanted.into_iter().map(|(state, text)| (state, text.to_owned())).collect();
            assert_eq!(judge(is_ready, said), wanted, "{said:?}");
        }
    }
}
