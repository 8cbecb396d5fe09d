//! Several engines on one cluster: every one answers requests, one acts, and each can go at any time.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kiln_testkit::control_plane::ControlPlane;
use kiln_value::value;

use crate::harness::{
    CONFIG_MAP, Cluster, Engine, KILN, NETWORK_POLICY, cluster, earlier_kiln, free_port, install,
    policy, under_load,
};

/// What a Service is to pods: one address in front of engines, of which the ready ones are asked.
struct Balancer {
    port: u16,
    ends: Arc<Mutex<Vec<u16>>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accept loop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Balancer {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ends, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let balancer = Balancer { port, ends: Arc::clone(&ends), stop: Arc::clone(&stop) };
        let next = AtomicUsize::new(0);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let ends: Vec<u16> = ends.lock().unwrap().clone();
                if ends.is_empty() {
                    continue;
                }
                let end = ends[next.fetch_add(1, Ordering::Relaxed) % ends.len()];
                let Ok(there) = TcpStream::connect((Ipv4Addr::LOCALHOST, end)) else { continue };
                copy(stream.try_clone().unwrap(), there.try_clone().unwrap());
                copy(there, stream);
            }
        });
        balancer
    }

    /// Sends new connections to these engines.
    fn to(&self, engines: &[&Engine]) {
        *self.ends.lock().unwrap() = engines.iter().map(|engine| engine.port).collect();
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// An engine behind a balancer.
fn replica(cluster: &Cluster, balancer: &Balancer, more: &[&str]) -> Engine {
    replica_of(Path::new(KILN), cluster, balancer, more)
}

/// A version of the engine behind a balancer.
fn replica_of(kiln: &Path, cluster: &Cluster, balancer: &Balancer, more: &[&str]) -> Engine {
    let port = free_port();
    let (url, listen) =
        (format!("https://127.0.0.1:{}", balancer.port), format!("127.0.0.1:{port}"));
    let args = ["--webhook-url", &url, "--listen", &listen, "--leave-webhooks"];
    cluster.start(kiln, &cluster.kubeconfig(), &[&args[..], more].concat())
}

fn forget_webhooks(cluster: &Cluster) {
    let all = ["mutatingwebhookconfiguration,validatingwebhookconfiguration", "--all"];
    cluster.kubectl(&[&["delete"], &all[..]].concat()).unwrap();
}

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: replicated}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [replicas]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}
";

#[test]
fn another_one_takes_over_within_twenty_seconds() {
    let Some(cluster) = cluster() else { return };
    // With what users have unless they say otherwise.
    let args = ["--only", "controller", "--lease", "10"];
    let mut first = cluster.engine(&args);
    cluster.wait("the first holds the Lease", || first.said("holds the Lease holder"));
    let second = cluster.engine(&args);
    cluster.wait("the second stands by", || second.said("standing by"));
    cluster.policy(&policy("taken-over", "taken-*", NETWORK_POLICY, true));
    let made = "generate.kyverno.io/policy-name=taken-over";
    cluster.kubectl(&["create", "namespace", "taken-a"]).unwrap();
    cluster.wait("the first acts", || cluster.count("networkpolicies", made) == 1);
    first.kill();
    cluster.kubectl(&["create", "namespace", "taken-b"]).unwrap();
    cluster.wait_for(Duration::from_secs(20), "the second acts", || {
        cluster.count("networkpolicies", made) == 2
    });
    // One that gets SIGTERM releases the Lease: no replica waits for it to expire.
    let third = cluster.engine(&args);
    cluster.wait("the third stands by", || third.said("standing by"));
    let holder = || {
        let path = "jsonpath={.spec.holderIdentity}";
        cluster.kubectl(&["get", "lease", "kiln-controller", "-n", "kyverno", "-o", path]).unwrap()
    };
    let before = holder();
    assert!(second.said(&format!("holder=\"{before}\"")), "the second holds the Lease: {before}");
    let mut second = second;
    second.terminate();
    assert_ne!(holder(), before, "it is given back when the process has ended");
    cluster.kubectl(&["create", "namespace", "taken-c"]).unwrap();
    cluster.wait_for(Duration::from_secs(20), "the third acts", || {
        cluster.count("networkpolicies", made) == 3
    });
    cluster.kubectl(&["delete", "clusterpolicy", "taken-over"]).unwrap();
    cluster.wait("the third cleans up", || cluster.count("networkpolicies", made) == 0);
}

/// Whether an engine patches a ConfigMap that a review at its own port is about.
fn patches(engine: &Engine) -> bool {
    let object = value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "asked", "namespace": "replicas"},
    });
    let kind = value!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = value!({"group": "", "version": "v1", "resource": "configmaps"});
    let review = value!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": kind, "resource": resource, "operation": "CREATE", "dryRun": true,
            "name": "asked", "namespace": "replicas", "object": object, "oldObject": null,
            "userInfo": {"username": "jane", "groups": []},
        },
    });
    let answer = engine.review("/mutate/fail", &review);
    answer.get_path(["response", "patch"]).is_some()
}

/// Also from an earlier version: `cargo xtask upgrade`.
#[test]
fn an_upgrade_denies_no_request() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "replicas"]).unwrap();
    let balancer = Balancer::start();
    let earlier = earlier_kiln();
    let mut old = [
        replica_of(&earlier, &cluster, &balancer, &["--linger", "2"]),
        replica_of(&earlier, &cluster, &balancer, &["--linger", "2"]),
    ];
    cluster.wait("both are ready", || old.iter().all(|one| one.get("/readyz").is_some()));
    balancer.to(&[&old[0], &old[1]]);
    cluster.policy(LABEL);
    cluster.policy(&policy("upgraded", "upgraded-*", CONFIG_MAP, true));

    // Every replica answers, whichever holds the Lease.
    let same_version = earlier == Path::new(KILN);
    assert!(
        !same_version || old.iter().any(|one| one.said("standing by")),
        "one of them does not act"
    );
    for one in &old {
        cluster.wait("it answers reviews by itself", || patches(one));
    }

    let downstreams = "generate.kyverno.io/policy-name=upgraded";
    for name in ["upgraded-1", "upgraded-2", "upgraded-3"] {
        cluster.kubectl(&["create", "namespace", name]).unwrap();
    }
    cluster.wait("the old ones act", || cluster.count("configmaps", downstreams) == 3);
    let uids = || {
        let fields = "jsonpath={range .items[*]}{.metadata.namespace}={.metadata.uid} {end}";
        cluster.kubectl(&["get", "configmaps", "-A", "-l", downstreams, "-o", fields]).unwrap()
    };
    let before = uids();
    install(&cluster);

    // They outlive those who ask.
    let new = [
        replica(&cluster, &balancer, &["--shutdown-grace-period", "2"]),
        replica(&cluster, &balancer, &["--shutdown-grace-period", "2"]),
    ];
    // Clients that create objects do not notice; the webhook's failurePolicy is Fail.
    let plane: &ControlPlane = &cluster;
    let send = |name: &str| {
        let args = ["create", "configmap", name, "-n", "replicas", "-o"];
        match plane.kubectl(&[&args[..], &["jsonpath={.metadata.labels.seen}"]].concat()) {
            Ok(label) if label == "yes" => Ok(()),
            other => Err(format!("{name}: {other:?}")),
        }
    };
    under_load(send, || {
        for (at, old) in old.iter_mut().enumerate() {
            cluster.wait("the new one is ready", || new[at].get("/readyz").is_some());
            // What a Service does when a pod gets SIGTERM: nothing at once, and soon no new connections.
            match at {
                0 => balancer.to(&[&new[0], old]),
                _ => balancer.to(&[&new[0], &new[1], old]),
            }
            thread::scope(|scope| {
                let ending = scope.spawn(|| old.terminate());
                thread::sleep(Duration::from_millis(700));
                let ready: Vec<&Engine> = new[..=at].iter().collect();
                balancer.to(&ready);
                ending.join().unwrap();
            });
        }
        cluster.kubectl(&["create", "namespace", "upgraded-a"]).unwrap();
        cluster.wait("the new ones act", || cluster.count("configmaps", downstreams) == 4);
    });
    // What the old ones generated is neither deleted nor created again, and is synchronized by the new ones.
    let edit = ["patch", "configmap", "made", "-n", "upgraded-1", "--type=merge", "-p"];
    cluster.kubectl(&[&edit[..], &[r#"{"data":{"a":"edited"}}"#]].concat()).unwrap();
    let value = ["get", "configmap", "made", "-n", "upgraded-1", "-o", "jsonpath={.data.a}"];
    cluster.wait("the edit is reverted", || cluster.kubectl(&value).unwrap() == "1");
    let after = uids();
    let kept = before.split_whitespace().filter(|uid| after.contains(uid)).count();
    assert_eq!(kept, 3, "before: {before}\nafter: {after}");
    cluster.kubectl(&["delete", "clusterpolicy", "replicated", "upgraded"]).unwrap();
    forget_webhooks(&cluster);
    cluster.kubectl(&["delete", "namespace", "replicas", "--wait=false"]).unwrap();
}
