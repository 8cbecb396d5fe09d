//! What was acknowledged with `--data` is there again, after kills and after clean stops, with other writers.
//!
//! `KILN_DURABILITY_ROUNDS` says how many kills and how many stops are tried; without it there are few.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kiln_value::{Value, json};
use nix::sys::signal::Signal;

use super::Up;
use crate::harness::Folder;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 8;
const OBJECTS: usize = 4;
/// A sandbox ends after about so many acknowledged writes.
const WRITES: usize = 120;
/// For answers that never come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client knows of an object: the text in it, none when it is not there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    acknowledged: Option<String>,
    /// What was sent, and not answered for.
    tried: Option<Option<String>>,
}

/// How a sandbox ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Killed, while clients write.
    Killed,
    /// Told to stop, while clients write.
    Stopped,
    /// Told to stop when the last client has its answer.
    StoppedAtRest,
}

#[derive(Default)]
struct Clients {
    known: Mutex<BTreeMap<String, Known>>,
    /// The highest revision that was acknowledged.
    revision: Mutex<u64>,
    acknowledged: AtomicUsize,
    over: AtomicBool,
}

fn revision(object: &Value) -> u64 {
    object.str_at(["metadata", "resourceVersion"]).and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Clients {
    /// Writes, deletes and makes objects of its own until the sandbox does not answer.
    fn work(&self, up: &Up, writer: usize, round: usize) {
        for step in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let name = format!("w{writer}-{}", step % OBJECTS);
            let there = self.known.lock().unwrap().entry(name.clone()).or_default().clone();
            let text = format!("{round}-{step}");
            let (method, wanted) = match there.acknowledged {
                None => ("POST", Some(text)),
                // So that each object is deleted now and then, in another turn than the others.
                Some(_) if (step / OBJECTS + step).is_multiple_of(3) => ("DELETE", None),
                Some(_) => ("PUT", Some(text)),
            };
            let tried = Known { tried: Some(wanted.clone()), ..there };
            self.known.lock().unwrap().insert(name.clone(), tried);
            let Some(answer) = send(up, method, &name, wanted.as_deref()) else { return };
            let known = Known { acknowledged: wanted, tried: None };
            self.known.lock().unwrap().insert(name, known);
            let mut highest = self.revision.lock().unwrap();
            *highest = revision(&answer).max(*highest);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stored objects against acknowledged ones.
    fn compare(&self, up: &Up, after: &str) -> Vec<String> {
        let list = json::parse(&up.get(CONFIG_MAPS).1).unwrap();
        let items = list.get("items").and_then(Value::as_list).unwrap();
        let text = |item: &Value, path: [&'static str; 2]| item.str_at(path).map(str::to_owned);
        let stored: BTreeMap<String, Option<String>> = items
            .iter()
            .map(|item| (text(item, ["metadata", "name"]).unwrap(), text(item, ["data", "text"])))
            .collect();
        let mut violations = Vec::new();
        for (name, known) in &mut *self.known.lock().unwrap() {
            let found = stored.get(name).cloned().flatten();
            if found != known.acknowledged && known.tried.as_ref() != Some(&found) {
                violations.push(format!("{after}: {name} is {found:?}, known {known:?}"));
            }
            *known = Known { acknowledged: found, tried: None };
        }
        let highest = *self.revision.lock().unwrap();
        if revision(&list) < highest {
            violations.push(format!("{after}: revision {} after {highest}", revision(&list)));
        }
        violations
    }
}

/// Sends a write; the object that it is acknowledged with.
fn send(up: &Up, method: &str, name: &str, text: Option<&str>) -> Option<Value> {
    let path = if method == "POST" { String::new() } else { format!("/{name}") };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{}{CONFIG_MAPS}{path}", up.server))
        .header("Authorization", format!("Bearer {}", up.token));
    let mut body = String::new();
    if let Some(text) = text {
        request = request.header("Content-Type", "application/json");
        body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#
        );
    }
    let request = up
        .agent
        .configure_request(request.body(body).ok()?)
        .timeout_global(Some(PATIENCE))
        .allow_non_standard_methods(true)
        .build();
    let mut response = up.agent.run(request).ok()?;
    let answer = response.body_mut().read_to_string().ok()?;
    response.status().is_success().then(|| json::parse(&answer).unwrap_or_default())
}

#[test]
fn what_was_acknowledged_survives_kills_and_stops() {
    let rounds = std::env::var("KILN_DURABILITY_ROUNDS").ok();
    let rounds = rounds.map_or(2, |rounds| rounds.parse().expect("a number of rounds"));
    let folder = Folder::with(&[]);
    let start = || Up::start(&folder, &["--bare", "--data", "state"], "Ctrl-C");
    let clients = Clients::default();
    let mut violations = Vec::new();
    let mut ends = Vec::new();
    for round in 0..rounds {
        let stop = if round % 2 == 0 { End::Stopped } else { End::StoppedAtRest };
        ends.extend([End::Killed, stop]);
    }
    let mut up = start();
    for (round, end) in ends.iter().enumerate() {
        clients.over.store(false, Ordering::Relaxed);
        let enough = clients.acknowledged.load(Ordering::Relaxed) + WRITES + 7 * (round % 5);
        std::thread::scope(|scope| {
            let (clients, up) = (&clients, &up);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || clients.work(up, writer, round)))
                .collect();
            while clients.acknowledged.load(Ordering::Relaxed) < enough {
                assert!(
                    !writers.iter().all(std::thread::ScopedJoinHandle::is_finished),
                    "no request is answered"
                );
                std::thread::yield_now();
            }
            match end {
                End::Killed => up.signal(Signal::SIGKILL),
                End::Stopped => up.signal(Signal::SIGINT),
                End::StoppedAtRest => clients.over.store(true, Ordering::Relaxed),
            }
        });
        let code = match end {
            End::StoppedAtRest => up.end(Signal::SIGINT),
            _ => up.wait(),
        };
        assert_eq!(code, if *end == End::Killed { None } else { Some(0) }, "{end:?}");
        up = start();
        violations.extend(clients.compare(&up, &format!("round {round}, {end:?}")));
    }
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
    let acknowledged = clients.acknowledged.load(Ordering::Relaxed);
    eprintln!(
        "{rounds} kills, {rounds} stops, {acknowledged} acknowledged writes, {} violations",
        violations.len()
    );
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
