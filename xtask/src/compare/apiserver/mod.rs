//! Random histories of requests on the sandbox's API server and on a real one.
//!
//! A history is a dozen requests about a few objects of one or two kinds, in a namespace of its own. Both servers get it,
//! each with the versions, UIDs and names that it chose itself. Compared are status, warnings and body of every answer and
//! the events of every watch; what etcd promises to those who watch is held against both. Neither has controllers: what is
//! stored stays as the client leaves it, so that nothing has to be waited for.

mod difference;
mod generate;
mod guarantees;
mod history;
mod known;
mod objects;
mod shrink;
mod sides;
mod trace;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use kiln_apiserver::ApiRequest;
use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};

use self::difference::{Difference, Verdict};
use self::history::Operation;
use self::sides::{Access, Ours, Real, Side};
use self::trace::Trace;
use super::Args;

/// How many histories run side by side.
const WORKERS: usize = 3;

pub(super) fn run(args: &Args) -> Result<bool> {
    let cluster = ControlPlane::start_without_controllers()?;
    let access = Access::of(&cluster)?;
    let mut real = Real::new(access.clone());
    define(&mut real)?;
    let next = AtomicU64::new(args.seed);
    let end = args.seed + args.cases;
    let tally = Mutex::new(Tally::default());
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut both = Both { real: Real::new(access.clone()), runs: 0 };
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end || failed.load(Ordering::Relaxed) {
                            return Ok(());
                        }
                        both.compare(seed, args.show, &tally)
                            .inspect_err(|_| failed.store(true, Ordering::Relaxed))
                            .with_context(|| format!("seed {seed}"))?;
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker has panicked"))??;
        }
        Ok(())
    })?;
    eprintln!();
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.print(args);
    Ok(tally.different.is_empty() && tally.broken.is_empty())
}

/// Defines the custom kinds that all histories share.
fn define(side: &mut dyn Side) -> Result<()> {
    for definition in objects::definitions() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let answer = side.send(&trace::post(path, &definition))?;
        ensure!(answer.status == 201, "{}", json::to_string(&answer.body));
        side.wait_for_kind(&trace::collection_of(&definition, "default"))?;
    }
    Ok(())
}

/// What has come of histories so far.
#[derive(Default)]
struct Tally {
    histories: u64,
    requests: u64,
    /// Requests by the status that the real server answered with.
    statuses: BTreeMap<u16, u64>,
    events: u64,
    watches: u64,
    known: BTreeMap<&'static str, u64>,
    /// Seeds by what differs.
    different: BTreeMap<String, Vec<u64>>,
    broken: Vec<String>,
}

impl Tally {
    fn count(&mut self, real: &Trace) {
        self.histories += 1;
        for answer in real.steps.iter().filter_map(Option::as_ref) {
            self.requests += 1;
            *self.statuses.entry(answer.status).or_default() += 1;
        }
        self.watches += real.watches.len() as u64;
        self.events += real.watches.iter().map(|watch| watch.events.len() as u64).sum::<u64>();
    }

    #[expect(clippy::print_stdout, reason = "the differences are this command's output")]
    fn print(&self, args: &Args) {
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        println!(
            "{} histories from seed {}: {} requests ({}), {} watches with {} events",
            self.histories,
            args.seed,
            self.requests,
            statuses.join(", "),
            self.watches,
            self.events
        );
        for (reason, count) in &self.known {
            println!("{count} differ on purpose: {reason}");
        }
        let mut different: Vec<_> = self.different.iter().collect();
        different.sort_by_key(|(_, seeds)| std::cmp::Reverse(seeds.len()));
        for (class, seeds) in &different {
            println!("{} differ: {class}, seeds {:?}", seeds.len(), &seeds[..seeds.len().min(6)]);
        }
        for broken in &self.broken {
            println!("a promise of watches is not kept: {broken}");
        }
        println!(
            "{} differences, {} broken promises",
            different.iter().map(|(_, seeds)| seeds.len()).sum::<usize>(),
            self.broken.len()
        );
    }
}

/// Both servers: ours is new for each history.
struct Both {
    real: Real,
    runs: u64,
}

impl Both {
    fn traces(&mut self, seed: u64, history: &[Operation]) -> Result<(Trace, Trace)> {
        self.runs += 1;
        let namespace = format!("h{seed}-{}", self.runs);
        let mut ours = Ours::new();
        define(&mut ours)?;
        let ours = trace::run(history, &mut ours, &namespace, None).context("sandbox")?;
        let real =
            trace::run(history, &mut self.real, &namespace, Some(&ours)).context("Kubernetes")?;
        clean(&mut self.real, &real)?;
        Ok((real, ours))
    }

    fn compare(&mut self, seed: u64, show: usize, tally: &Mutex<Tally>) -> Result<()> {
        let history = generate::history(seed);
        let (real, ours) = self.traces(seed, &history)?;
        let verdict = difference::compare(&history, &real, &ours);
        let mut broken: Vec<String> = Vec::new();
        for (who, trace) in [("Kubernetes", &real), ("sandbox", &ours)] {
            // How many events to wait for is known only if both answered alike.
            if who == "Kubernetes" && !matches!(verdict, Verdict::Same) {
                continue;
            }
            let problems = guarantees::broken(&history, trace).into_iter();
            broken.extend(problems.map(|why| format!("seed {seed}, {who}: {why}")));
        }
        let is_shown = {
            let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            tally.count(&real);
            tally.broken.extend(broken);
            let different: usize = tally.different.values().map(Vec::len).sum();
            eprint!("\r{} histories, {different} differences ", tally.histories);
            match &verdict {
                Verdict::Same => false,
                Verdict::Known(reason) => {
                    *tally.known.entry(reason).or_default() += 1;
                    false
                }
                Verdict::Different(difference) => {
                    let is_new = !tally.different.contains_key(&difference.class);
                    let classes = tally.different.len();
                    tally.different.entry(difference.class.clone()).or_default().push(seed);
                    is_new && classes < show
                }
            }
        };
        if let (true, Verdict::Different(difference)) = (is_shown, verdict) {
            self.show(seed, history, &difference)?;
        }
        Ok(())
    }

    #[expect(clippy::print_stdout, reason = "the differences are this command's output")]
    fn show(&mut self, seed: u64, history: Vec<Operation>, difference: &Difference) -> Result<()> {
        let mut problem = None;
        let small = shrink::smallest(history, |candidate| match self.traces(seed, candidate) {
            Ok((real, ours)) => matches!(
                difference::compare(candidate, &real, &ours),
                Verdict::Different(other) if other.class == difference.class
            ),
            Err(error) => {
                problem.get_or_insert(error);
                false
            }
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        let (real, ours) = self.traces(seed, &small)?;
        let verdict = difference::compare(&small, &real, &ours);
        let last = match &verdict {
            Verdict::Different(last) => last,
            _ => difference,
        };
        let mut text = format!("== seed {seed}: {}\n", difference.class);
        for operation in &small {
            text.push_str(&operation.shown());
            text.push('\n');
        }
        println!(
            "{text}at {}\n  Kubernetes: {}\n  sandbox:    {}\n",
            last.number, last.real, last.ours
        );
        Ok(())
    }
}

/// Takes away what a history has left on the real server.
fn clean(real: &mut Real, trace: &Trace) -> Result<()> {
    let free = r#"{"metadata":{"finalizers":null}}"#;
    let mut namespaces = vec![format!("/api/v1/namespaces/{}", trace.namespace)];
    for path in &trace.paths {
        if path.starts_with("/api/v1/namespaces/") && path.matches('/').count() == 4 {
            namespaces.push(path.clone());
            continue;
        }
        let gone = real.send(&ApiRequest::new(
            "DELETE",
            &format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background"),
        ))?;
        if gone.status == 200 && is_held(&gone.body) {
            let patch = ApiRequest::new("PATCH", path);
            real.send(&patch.with_body("application/merge-patch+json", free))?;
        }
    }
    namespaces.dedup();
    for path in namespaces {
        let gone = real.send(&ApiRequest::new("DELETE", &path))?;
        if gone.status == 404 {
            continue;
        }
        let patch = ApiRequest::new("PATCH", &path);
        real.send(&patch.with_body("application/merge-patch+json", free))?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let end = format!(
            r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}},"spec":{{"finalizers":[]}}}}"#
        );
        real.send(
            &ApiRequest::new("PUT", &format!("{path}/finalize")).with_body("application/json", end),
        )?;
    }
    Ok(())
}

/// Whether an object that is deleted waits for others.
fn is_held(object: &Value) -> bool {
    object.get_path(["metadata", "finalizers"]).is_some()
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::history::{Action, Body};
    use super::sides::Answer;
    use super::trace::WatchTrace;
    use super::*;

    /// The short form of this command, without a real server: what etcd promises holds for ours.
    #[test]
    fn the_sandbox_keeps_the_promises_of_watches() {
        let mut events = 0;
        for seed in 1..=60 {
            let history = generate::history(seed);
            let mut ours = Ours::new();
            define(&mut ours).unwrap();
            let trace = trace::run(&history, &mut ours, &format!("h{seed}"), None).unwrap();
            assert_eq!(guarantees::broken(&history, &trace), Vec::<String>::new(), "seed {seed}");
            events += trace.watches.iter().map(|watch| watch.events.len()).sum::<usize>();
        }
        assert!(events > 20, "{events}");
    }

    fn object(name: &str, version: u64, data: &str) -> Value {
        value!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": data},
            "metadata": {"name": name, "uid": name, "resourceVersion": (version.to_string())}})
    }

    fn event(kind: &str, object: &Value) -> Value {
        value!({"type": kind, "object": object})
    }

    #[test]
    fn promises_that_are_not_kept_are_found() {
        let operation = |action| Operation {
            number: 0,
            action,
            path: "/api/v1/namespaces/${ns}/configmaps".to_owned(),
            query: Vec::new(),
            accept: None,
            content: "application/json",
            body: Body::Nothing,
        };
        let history = [operation(Action::Watch), operation(Action::Send("POST"))];
        let answer = Answer { status: 201, warnings: Vec::new(), body: object("a", 5, "1") };
        let (added, changed) =
            (event("ADDED", &object("a", 5, "1")), event("MODIFIED", &object("a", 7, "2")));
        let bookmark = event("BOOKMARK", &value!({"metadata": {"resourceVersion": "6"}}));
        let listed = value!({"items": [(object("a", 7, "2"))]});
        let of = |events: &[Value], resumed: Option<&(usize, Vec<Value>)>| {
            let events = events.to_vec();
            let resumed = resumed.cloned();
            let watch = WatchTrace { step: 0, events, resumed, list: listed.clone() };
            let steps = vec![None, Some(answer.clone())];
            let trace =
                Trace { namespace: "n".to_owned(), steps, watches: vec![watch], paths: Vec::new() };
            guarantees::broken(&history, &trace)
        };
        let good = vec![added.clone(), bookmark.clone(), changed.clone()];
        assert!(of(&good, Some(&(2, vec![changed.clone()]))).is_empty());
        for (events, resumed, words) in [
            (vec![changed.clone(), added.clone()], None, "versions do not grow"),
            (vec![added.clone(), changed.clone(), changed.clone()], None, "versions do not grow"),
            (vec![added.clone()], None, "nothing tells of"),
            (vec![event("ADDED", &object("a", 5, "9")), changed.clone()], None, "was written"),
            (vec![added, changed, bookmark], None, "a bookmark at 6"),
            (good, Some((2, vec![])), "a second watch tells"),
        ] {
            let found = of(&events, resumed.as_ref());
            assert!(found.iter().any(|text| text.contains(words)), "{words}: {found:?}");
        }
    }

    #[test]
    fn what_a_server_chooses_makes_no_difference() {
        let history = [Operation {
            number: 0,
            action: Action::Send("POST"),
            path: "/api/v1/namespaces/${ns}/configmaps".to_owned(),
            query: Vec::new(),
            accept: None,
            content: "application/json",
            body: Body::Nothing,
        }];
        let trace = |namespace: &str, body: Value| Trace {
            namespace: namespace.to_owned(),
            steps: vec![Some(Answer { status: 201, warnings: Vec::new(), body })],
            watches: Vec::new(),
            paths: Vec::new(),
        };
        let made = |namespace: &str, end: &str, version: &str, time: &str| {
            value!({"kind": "ConfigMap", "metadata": {"name": (format!("m-{end}")), "generateName": "m-", "namespace": namespace,
                "uid": (format!("uid-{end}")), "resourceVersion": version, "creationTimestamp": time}})
        };
        let real = trace("h1", made("h1", "abcde", "812", "2026-01-02T03:04:05Z"));
        let ours = trace("h2", made("h2", "fghij", "77", "2026-11-16T00:00:00Z"));
        assert!(matches!(difference::compare(&history, &real, &ours), Verdict::Same));
        let other = trace("h2", made("elsewhere", "fghij", "77", "2026-11-16T00:00:00Z"));
        let Verdict::Different(found) = difference::compare(&history, &real, &other) else {
            panic!("no difference")
        };
        assert_eq!(found.class, "POST configmaps  201/body/metadata/namespace");
    }
}
