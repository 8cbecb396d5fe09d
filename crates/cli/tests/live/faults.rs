//! What networks, servers and people do to an engine, and that it ends well each time: the actual state is what rules
//! want, no report is missing, nothing foreign is gone, nothing is there twice, and it took a bounded number of writes.
//!
//! `cargo xtask faults` runs the long form of all; the short form is part of `cargo xtask test`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use http::Method;

use crate::fault_scene::{EACH, Scene, long};
use crate::harness::{PATIENCE, cluster};
use crate::proxy::Fault;

#[test]
fn killed_at_every_step_of_create_update_delete_and_sync() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "killed");
    scene.add(2);
    scene.ends_well(2 * EACH);
    let steps = if long() { 8 } else { 1 };
    let all = ["create", "update", "sync", "made again", "delete"];
    for step in 0..steps {
        for (number, what) in all.into_iter().enumerate() {
            scene.proxy.forget();
            let engine = Arc::clone(&scene.engine);
            let killed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let seen = Arc::clone(&killed);
            let kill = move || {
                drop(engine.lock().unwrap().take());
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
            };
            // Some writes never arrive, and some are done although the answer is lost.
            let lost = if (step + number) % 2 == 0 { Fault::LostBefore } else { Fault::LostAfter };
            let meant = scene.meant();
            let deletes = what == "delete";
            scene.proxy.fault(
                move |method, path| meant(method, path) && (!deletes || *method == Method::DELETE),
                step % 4,
                1,
                Fault::Do(Arc::new(kill), Box::new(lost)),
            );
            let bearable = match what {
                "create" => {
                    scene.add(2);
                    2 * EACH
                }
                "update" => {
                    let data = format!("updated-{step}");
                    scene.set_data(&data);
                    scene.count * 2
                }
                "sync" => {
                    let source = if scene.source == "MQ==" { "Mg==" } else { "MQ==" };
                    scene.set_source(source);
                    scene.count
                }
                "delete" => {
                    // What rules no longer want goes.
                    (0..2).for_each(|number| scene.leave_out(number, true));
                    4
                }
                _ => {
                    // What people delete comes back.
                    for n in 0..scene.count.min(4) {
                        let namespace = format!("killed-{n}");
                        let made = ["delete", "configmap", "made", "-n", &namespace];
                        cluster.kubectl(&made).unwrap();
                    }
                    scene.count.min(4)
                }
            };
            cluster.wait(&format!("{what}, step {step}: it is killed"), || {
                killed.load(std::sync::atomic::Ordering::Relaxed)
            });
            scene.proxy.calm();
            scene.start();
            // One write for each object, and one more for each that was under way: eight at most.
            scene.ends_well(bearable + bearable.min(8));
            if deletes {
                scene.proxy.forget();
                (0..2).for_each(|number| scene.leave_out(number, false));
                scene.ends_well(4);
            }
        }
    }
    scene.clean_up();
}

#[test]
fn too_many_requests_errors_and_slow_answers() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "refused");
    scene.add(2);
    scene.ends_well(2 * EACH);
    let faults = [
        (Fault::Status(429), 3),
        (Fault::LostAfter, 3),
        (Fault::Slow(Duration::from_millis(1500)), 4),
        (Fault::Status(500), 4),
        (Fault::Status(503), 4),
        (Fault::LostBefore, 3),
    ];
    let most = if long() { faults.len() } else { 3 };
    for (fault, times) in faults.into_iter().take(most) {
        scene.proxy.forget();
        scene.proxy.fault(scene.meant(), 0, times, fault);
        scene.add(2);
        scene.ends_well(2 * EACH + times);
        scene.proxy.calm();
    }
    // Everything at once is slow or refused, lists and watches as well, and another client writes meanwhile.
    scene.proxy.forget();
    scene.proxy.fault(|_, path| !path.contains("watch=true"), 0, 60, Fault::Status(503));
    scene.proxy.break_watches();
    let data = "after".to_owned();
    scene.set_data(&data);
    scene.add(1);
    // What is refused is tried again.
    scene.ends_well(scene.count * EACH + 60);
    scene.clean_up();
}

#[test]
fn watches_that_drop_stall_and_are_gone() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "watched");
    scene.add(1);
    scene.ends_well(EACH);
    // Dropped, again and again, while things happen.
    scene.proxy.forget();
    for _ in 0..5 {
        scene.proxy.break_watches();
        scene.add(1);
        sleep(Duration::from_millis(200));
    }
    scene.ends_well(5 * EACH);
    // The server no longer knows what happened since.
    scene.proxy.forget();
    scene.proxy.fault(|_, path| path.contains("watch=true"), 0, 8, Fault::Status(410));
    scene.proxy.break_watches();
    scene.add(2);
    scene.set_source("Mw==");
    scene.ends_well(2 * EACH + scene.count);
    scene.proxy.calm();
    // Connected and silent: no event arrives until it is restarted.
    scene.proxy.forget();
    scene.proxy.fault(
        |_, path| path.contains("watch=true") && path.contains("/api/v1/namespaces?"),
        0,
        1,
        Fault::Stalled,
    );
    scene.proxy.break_watches();
    sleep(Duration::from_millis(800));
    scene.add(1);
    scene.ends_well(EACH);
    scene.clean_up();
}

#[test]
fn whoever_lost_the_lease_writes_no_more() {
    let Some(cluster) = cluster() else { return };
    // No test is to wait for an engine that an earlier test killed.
    let lease = ["lease", "kiln-controller", "-n", "kyverno"];
    cluster.kubectl(&[&["delete", "--ignore-not-found"], &lease[..]].concat()).unwrap();
    // A standby replica goes by the longer of its own time and the Lease's, which is to be longer than a busy machine takes
    // to renew it.
    let mut scene = Scene::with(&cluster, "ousted", &["--lease", "15"]);
    scene.proxy.fault(scene.meant(), 0, usize::MAX, Fault::Busy(3));
    scene.add(2);
    cluster.wait("its writes are put off", || scene.writes().len() >= EACH);
    // Another replica has the Lease, and renews it.
    let mut renewed = 0;
    let mut renew = || {
        renewed += 1;
        let spec = format!(
            r#"{{"spec":{{"holderIdentity":"another","leaseDurationSeconds":15,"leaseTransitions":{renewed}}}}}"#
        );
        let args = ["patch", "lease", "kiln-controller", "-n", "kyverno", "--type=merge", "-p"];
        cluster.kubectl(&[&args[..], &[&spec]].concat()).unwrap();
    };
    cluster.wait("it notices", || {
        renew();
        scene.engine.lock().unwrap().as_ref().unwrap().said("another replica took the Lease")
    });
    scene.proxy.forget();
    scene.proxy.calm();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(if long() { 35 } else { 5 }) {
        renew();
        sleep(Duration::from_millis(200));
    }
    assert_eq!(scene.writes(), [""; 0], "what was put off is not done beside the other one");
    // The other one is gone: it begins anew.
    scene.ends_well(2 * EACH);
    scene.clean_up();
}

#[test]
fn the_api_server_is_restarted() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "restarted");
    scene.add(2);
    scene.ends_well(2 * EACH);
    scene.proxy.forget();
    scene.set_data("2");
    cluster.restart_server().unwrap();
    scene.add(2);
    scene.ends_well(2 * scene.count + 2 * EACH + 2);
    scene.clean_up();
}

#[test]
fn a_storm_of_conflicts_over_one_field() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "contested");
    scene.add(1);
    scene.ends_well(EACH);
    scene.proxy.forget();
    let is_shown = || {
        let messages = "jsonpath={.items[*].status.message}";
        let said = cluster.kubectl(&["get", "updaterequests", "-n", "kyverno", "-o", messages]);
        said.is_ok_and(|said| said.contains("another writer keeps changing"))
    };
    let done = AtomicBool::new(false);
    let edits = AtomicUsize::new(0);
    let mut was_shown = false;
    thread::scope(|scope| {
        let (plane, done, edits) = (&*cluster, &done, &edits);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let number = edits.fetch_add(1, Ordering::Relaxed);
                let patch = format!(r#"{{"data":{{"a":"theirs-{number}"}}}}"#);
                let args =
                    ["patch", "configmap", "made", "-n", "contested-0", "--type=merge", "-p"];
                let _ = plane.kubectl(&[&args[..], &[&patch]].concat());
            }
        });
        let begin = Instant::now();
        let least = Duration::from_secs(if long() { 60 } else { 12 });
        // On a busy machine it takes longer until there were enough of them. The message comes and goes: between two
        // pauses the drift is reverted, and until the next edit nothing is wrong.
        while begin.elapsed() < least
            || (!(was_shown && edits.load(Ordering::Relaxed) > 10) && begin.elapsed() < PATIENCE)
        {
            was_shown = was_shown || is_shown();
            sleep(Duration::from_millis(500));
        }
        done.store(true, Ordering::Relaxed);
    });
    let edits = edits.into_inner();
    assert!(edits > 10, "there was a storm: {edits}");
    let writes = scene.writes().len();
    assert!(
        writes <= 25,
        "it is reverted a few times a minute, not each time: {writes} of {edits}"
    );
    assert!(was_shown, "and it is shown");
    // When the storm is over, the drift is reverted for good.
    scene.ends_well(30);
    scene.clean_up();
}

#[test]
fn a_namespace_ends_while_it_is_generated_into() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "ending");
    scene.add(2);
    scene.ends_well(2 * EACH);
    scene.proxy.forget();
    // It cannot end before the test lets it.
    let hold = r#"{"metadata":{"finalizers":["test.example/hold"]}}"#;
    scene.add(1);
    cluster.kubectl(&["patch", "namespace", "ending-2", "--type=merge", "-p", hold]).unwrap();
    cluster.kubectl(&["delete", "namespace", "ending-2", "--wait=false"]).unwrap();
    // What is made anew meanwhile goes everywhere but there.
    scene.foreign.remove("ending-2");
    scene.count = 2;
    scene.set_data("2");
    cluster.wait("the others follow", || {
        let made = scene.made();
        scene.wanted().iter().all(|wanted| made.contains(wanted))
    });
    let free = r#"{"metadata":{"finalizers":null}}"#;
    cluster.kubectl(&["patch", "namespace", "ending-2", "--type=merge", "-p", free]).unwrap();
    cluster.wait("it is gone", || cluster.object(&["namespace", "ending-2"]).is_none());
    scene.ends_well(30);
    // And one of the same name is a new one.
    scene.proxy.forget();
    scene.add(1);
    scene.ends_well(EACH);
    scene.clean_up();
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lanterns.faults.example}
spec:
  group: faults.example
  scope: Namespaced
  names: {plural: lanterns, singular: lantern, kind: Lantern}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

#[test]
fn the_definition_of_what_is_made_comes_goes_and_comes_back() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "defined");
    cluster.grant("lanterns", "faults.example", "lanterns");
    let made = "      apiVersion: faults.example/v1\n      kind: Lantern\n      name: made\n      data: {spec: {a: b}}\n";
    cluster.apply(&crate::harness::policy("lanterns", "defined-*", made, true)).unwrap();
    scene.add(3);
    // Rules that make other things are not held up.
    scene.ends_well(3 * EACH);
    let lanterns =
        || cluster.count("lanterns.faults.example", "generate.kyverno.io/policy-name=lanterns");
    for _ in 0..if long() { 3 } else { 1 } {
        scene.proxy.forget();
        cluster.apply(DEFINITION).unwrap();
        cluster.wait("what was waited for is made", || lanterns() == 3);
        sleep(Duration::from_secs(1));
        let writes = scene.proxy.writes("/lanterns").len();
        assert!(writes <= 6, "one for each, and none in vain: {writes}");
        cluster.kubectl(&["delete", "crd", "lanterns.faults.example"]).unwrap();
        cluster
            .wait("it is gone", || cluster.kubectl(&["get", "lanterns.faults.example"]).is_err());
        sleep(Duration::from_secs(3));
    }
    scene.proxy.forget();
    scene.set_data("2");
    scene.ends_well(2 * scene.count + 1);
    cluster.kubectl(&["delete", "clusterpolicy", "lanterns"]).unwrap();
    cluster.kubectl(&["delete", "clusterrole", "lanterns"]).unwrap();
    scene.clean_up();
}

#[test]
fn rights_are_withdrawn_and_returned() {
    let Some(cluster) = cluster() else { return };
    let mut scene = Scene::new(&cluster, "forbidden");
    scene.add(2);
    scene.ends_well(2 * EACH);
    let role = "kyverno:background-controller:standard";
    let kept = cluster.kubectl(&["get", "clusterrole", role, "-o", "yaml"]).unwrap();
    let kept: String = kept
        .lines()
        .filter(|line| {
            !["resourceVersion:", "uid:", "creationTimestamp:"]
                .iter()
                .any(|w| line.trim_start().starts_with(w))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    cluster.kubectl(&["delete", "clusterrole", role]).unwrap();
    // Until the right is gone in fact.
    let may = || {
        let account = format!("--as={}", crate::harness::CONTROLLER);
        cluster.kubectl(&["auth", "can-i", "create", "secrets", "-A", &account]).is_ok()
    };
    cluster.wait("the rights are gone", || !may());
    scene.proxy.forget();
    scene.add(2);
    scene.set_source("NA==");
    let failed = || {
        let path = "jsonpath={.items[*].status.message}";
        let args = ["get", "updaterequests", "-n", "kyverno", "-o", path];
        cluster.kubectl(&args).unwrap_or_default()
    };
    cluster.wait("the missing right is named", || failed().contains("cannot create resource"));
    sleep(Duration::from_secs(3));
    cluster.apply(&kept).unwrap();
    // One for each object of the new Namespaces, one for each copy, and those that were tried in vain.
    scene.ends_well(2 * EACH + scene.count + 40);
    scene.clean_up();
}
