//! `kiln run` on a sandbox and a world: the same inputs lead to the same objects, by the same writes in the same order.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_apiserver::{ApiRequest, Authorization, Record, Server};
use kiln_install::{Crds, Grant, InstallOptions, Permissions};
use kiln_object::{EngineNames, metadata};
use kiln_runtime::{ActivityState, AppState, RuntimeOptions};
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_value::{Map, Value};
use kiln_world::{World, WorldImage, WorldOptions};
use kiln_yaml::{Document, ReadOptions, read_bytes};
use tokio::sync::oneshot;

/// Nothing is written for so long when everything is done: results for reports wait for others for two seconds.
const QUIET: Duration = Duration::from_millis(2_700);
/// The longest that a step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Objects that are applied, and paths that are deleted, in steps: after each, everything has happened that is to happen.
const STORY: [(&str, &[&str]); 5] = [
    (
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: quotas}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: quota
      namespace: "{{request.object.metadata.name}}"
      data: {data: {pods: "{{request.object.metadata.annotations.pods || '10'}}"}}
  - name: registry
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: registry
      namespace: "{{request.object.metadata.name}}"
      clone: {namespace: default, name: registry}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: teams}
spec:
  background: true
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap], names: [app-*]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): a}}}}
  - name: mode
    match: {any: [{resources: {kinds: [ConfigMap], names: [app-*]}}]}
    validate: {failureAction: Audit, message: a mode is needed, pattern: {data: {mode: "?*"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: registry, namespace: default}, data: {host: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: app-one, namespace: default}}
"#,
        &[],
    ),
    (
        r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {quota: "yes"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: app-two, namespace: default}, data: {mode: quiet}}
"#,
        &["/api/v1/namespaces/default/configmaps/app-one"],
    ),
    (
        r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {quota: "yes"}, annotations: {pods: "20"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: registry, namespace: default}, data: {host: b}}
"#,
        &[],
    ),
    ("", &["/api/v1/namespaces/shop/configmaps/registry"]),
    ("", &["/apis/kyverno.io/v1/clusterpolicies/quotas"]),
];

/// What happens to objects on the way is the business of the process: certificates and addresses, its own books, words for
/// people with the time in their names.
const OWN: [&str; 7] = [
    "leases",
    "secrets",
    "events",
    "updaterequests",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "endpointslices",
];

fn objects(text: &str) -> Vec<Value> {
    let documents = read_bytes("story", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    documents.into_iter().map(Document::into_value).filter(|value| !value.is_null()).collect()
}

fn install() -> InstallOptions {
    InstallOptions {
        workload: false,
        crds: Crds { own_group: true, ..Crds::default() },
        permissions: Permissions { grant: Grant::Standard, ..Permissions::default() },
        ..InstallOptions::default()
    }
}

/// The writes of a world.
fn in_a_world() -> Vec<Record> {
    let image = WorldImage::with_engine(&[], None).unwrap();
    let mut world = World::new(&WorldOptions::default(), &image);
    world.server().keep_records();
    for (text, gone) in STORY {
        for object in objects(text) {
            world.apply(&object, "default").unwrap();
            world.run_now();
        }
        for path in gone {
            assert!(world.send(ApiRequest::new("DELETE", path)).status < 300, "{path}");
            world.run_now();
        }
        let limit = world.now() + 30_000;
        assert!(world.run_until_quiet(limit));
    }
    world.server().take_records()
}

/// The writes of `kiln run` on a sandbox.
async fn in_a_sandbox() -> Vec<Record> {
    let options =
        SandboxOptions { authorization: Authorization::Rbac, ..SandboxOptions::default() };
    let sandbox = Sandbox::start(&options).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.kubeconfig()).unwrap();
    for object in kiln_install::manifests(&install()) {
        sandbox.apply(&object, "kyverno").unwrap();
        sandbox.server().settle();
    }
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let service = EngineNames::default().service();
    sandbox.route_service("kyverno", &service, listen);
    let accounts = kiln_admission::Settings::new("kyverno");
    let options = RuntimeOptions {
        kubeconfig: Some(kubeconfig),
        as_controller: Some(accounts.background_user()),
        as_admission: Some(accounts.admission_user()),
        as_cleanup: Some(accounts.cleanup_user()),
        listen,
        service,
        ..RuntimeOptions::default()
    };
    let (end, ended) = oneshot::channel::<()>();
    let (show, shown) = oneshot::channel();
    let running = tokio::spawn(async move {
        let ended = async move { drop(ended.await) };
        let show = |shared: &AppState| drop(show.send(shared.clone()));
        kiln_runtime::run_seen(options, ended, show).await
    });
    let shared = shown.await.unwrap();
    rest(&sandbox, &shared).await;
    sandbox.server().keep_records();
    for (text, gone) in STORY {
        for object in objects(text) {
            let is_policy = object.str_at(["kind"]) == Some("ClusterPolicy");
            sandbox.apply(&object, "default").unwrap();
            if is_policy {
                rest(&sandbox, &shared).await;
            }
        }
        for path in gone {
            assert!(sandbox.send(ApiRequest::new("DELETE", path)).status < 300, "{path}");
        }
        rest(&sandbox, &shared).await;
    }
    let records = sandbox.server().take_records();
    let _ = end.send(());
    running.await.unwrap().unwrap();
    sandbox.end().await;
    records
}

/// Waits until nothing is written any more but that the process lives.
async fn rest(sandbox: &Sandbox, shared: &AppState) {
    let began = Instant::now();
    let (mut written, mut still) = (writes(sandbox.server()), Instant::now());
    while still.elapsed() < QUIET {
        assert!(began.elapsed() < PATIENCE, "it does not come to rest");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = writes(sandbox.server());
        let is_busy = *shared.progress.work.borrow() != ActivityState::Idle
            || !shared.health.keeps_from_answering().is_empty();
        if now != written || is_busy {
            (written, still) = (now, Instant::now());
        }
    }
}

/// The revision of the newest write that is not a renewed Lease.
fn writes(server: &Arc<Server>) -> Vec<(String, u64)> {
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for record in server.snapshot().into_iter().filter(|record| record.plural != "leases") {
        let version = record.object.as_ref().and_then(metadata::resource_version);
        let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
        let known = newest.entry(record.plural.to_string()).or_default();
        *known = version.max(*known);
    }
    newest.into_iter().collect()
}

/// What each object was made, one after the other; times and what chance decides are left out.
fn histories(records: &[Record]) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for record in records {
        let Some(uid) = record.object.as_ref().and_then(metadata::uid) else { continue };
        let name = match names.contains_key(record.name.as_str()) {
            true => "its object",
            false => record.name.as_str(),
        };
        let name = format!("<{} {}/{name}>", record.plural, record.namespace);
        names.entry(uid.to_owned()).or_insert(name);
    }
    let mut histories: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records.iter().filter(|record| !OWN.contains(&record.plural.as_str())) {
        // The engine's books, and the certificate of the server.
        if record.namespace == "kyverno" || record.name == "kube-root-ca.crt" {
            continue;
        }
        let key = format!("{} {}/{}", record.plural, record.namespace, named(&record.name, &names));
        let what = record.object.as_ref().map_or_else(
            || "gone".to_owned(),
            |object| kiln_value::json::to_string(&plain(object, &names)),
        );
        histories.entry(key).or_default().push(what);
    }
    histories
}

/// A text in which identities stand for what they are of.
fn named(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (uid, name) in names {
        if text.contains(uid.as_str()) {
            text = text.replace(uid.as_str(), name);
        }
    }
    text
}

fn plain(value: &Value, names: &BTreeMap<String, String>) -> Value {
    const LEFT_OUT: [&str; 9] = [
        "resourceVersion",
        "managedFields",
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "timestamp",
        "kiln.dev/signature",
        "kiln.dev/trigger-content",
        "uid",
    ];
    match value {
        Value::Map(map) => {
            let mut plain_map = Map::new();
            for (key, value) in map.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str())) {
                plain_map.insert(key.clone(), plain(value, names));
            }
            Value::Map(plain_map)
        }
        Value::List(list) => Value::from_iter(list.iter().map(|one| plain(one, names))),
        Value::String(text) => Value::from(named(text, names)),
        other => other.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_inputs_lead_to_the_same_writes_in_a_world_and_in_a_sandbox() {
    let live = histories(&in_a_sandbox().await);
    let world = histories(&in_a_world());
    let mut differences = Vec::new();
    let keys: std::collections::BTreeSet<&String> = live.keys().chain(world.keys()).collect();
    for key in keys {
        let of = |all: &BTreeMap<String, Vec<String>>| all.get(key).cloned().unwrap_or_default();
        let (live, world) = (of(&live), of(&world));
        if live != world {
            differences.push(format!(
                "{key}\n  kiln run: {}\n  world:    {}",
                live.join("\n            "),
                world.join("\n            ")
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let of = |name: &str| world.get(name).map(Vec::len);
    assert!(of("configmaps shop/quota") >= Some(2), "{:?}", world.keys().collect::<Vec<_>>());
    assert!(world.keys().any(|key| key.starts_with("policyreports ")), "reports are compared");
}
