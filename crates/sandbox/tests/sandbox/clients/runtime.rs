//! What controllers written with kube-rs are built of: stores that follow, finalizers, owners, leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kiln_sandbox::{Sandbox, SandboxOptions};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, LogParams, Patch, PatchParams,
    PostParams,
};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

use super::kube_rs::client;

const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_follows_what_is_written() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let maps: Api<ConfigMap> = Api::namespaced(client(&sandbox).await, "default");
    let (reader, writer) = reflector::store();
    let config = watcher::Config::default().labels("app=x");
    let stream = watcher(maps.clone(), config).default_backoff().reflect(writer);
    let following = tokio::spawn(stream.for_each(|_| async {}));
    soon("the first list", reader.wait_until_ready()).await.expect("a list");
    assert!(reader.is_empty());
    let a = object(json!({"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "1"}}));
    maps.create(&PostParams::default(), &a).await.unwrap();
    let at = ObjectRef::new("a").within("default");
    let value = || reader.get(&at).and_then(|found| found.data.clone()?.get("k").cloned());
    let wait = async |wanted: Option<&str>| {
        while value().as_deref() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("a new object", wait(Some("1"))).await;
    let patch = json!({"data": {"k": "2"}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    soon("a change", wait(Some("2"))).await;
    // It no longer matches, so for this store it is gone.
    let patch = json!({"metadata": {"labels": {"app": null}}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    soon("leaving", wait(None)).await;
    following.abort();
    sandbox.stop().await;
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Failed(error.to_string())
    }
}

/// A controller that keeps a copy of each ConfigMap with a label, and counts in the original what it undid.
async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, Failed> {
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), "default");
    let copies = maps.clone();
    let done = finalizer(&maps, "example.com/copies", map, |event| async move {
        match event {
            Event::Apply(map) => {
                let copy = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("{}-copy", map.name_any()),
                                 "ownerReferences": [map.controller_owner_ref(&()).unwrap()]},
                    "data": map.data});
                let name = format!("{}-copy", map.name_any());
                let params = PatchParams::apply("copier").force();
                copies.patch(&name, &params, &Patch::Apply(&copy)).await?;
            }
            Event::Cleanup(map) => {
                let note = json!({"data": {"cleaned": map.name_any()}});
                copies.patch("journal", &PatchParams::default(), &Patch::Merge(&note)).await?;
            }
        }
        Ok::<_, Failed>(Action::await_change())
    });
    done.await.map_err(|error| Failed(error.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_makes_keeps_and_cleans_up() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let client = client(&sandbox).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let post = PostParams::default();
    maps.create(&post, &object(json!({"metadata": {"name": "journal"}}))).await.unwrap();
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels("copy=yes"))
        .owns(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(100)),
            Arc::new(client.clone()),
        );
    let running = tokio::spawn(controller.for_each(|_| async {}));
    let a =
        object(json!({"metadata": {"name": "a", "labels": {"copy": "yes"}}, "data": {"k": "1"}}));
    maps.create(&post, &a).await.unwrap();
    let copied = async |wanted: &str| {
        let wanted = BTreeMap::from([("k".to_owned(), wanted.to_owned())]);
        while maps.get_opt("a-copy").await.unwrap().and_then(|copy| copy.data)
            != Some(wanted.clone())
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a copy", copied("1")).await;
    let patch = json!({"data": {"k": "2"}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    soon("a newer copy", copied("2")).await;
    maps.delete("a-copy", &DeleteParams::default()).await.unwrap();
    soon("another copy", copied("2")).await;
    let uid = maps.get("a").await.unwrap().uid().unwrap();
    let gone = maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.is_left(), "its finalizer holds it");
    let waiting = await_condition(maps.clone(), "a", conditions::is_deleted(&uid));
    soon("the end of the original", waiting).await.unwrap();
    let journal = maps.get("journal").await.unwrap().data.unwrap();
    assert_eq!(journal["cleaned"], "a");
    let collected = async {
        while maps.get_opt("a-copy").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the end of the copy, which lost its owner", collected).await;
    running.abort();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_gets_the_lease() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let leases: Api<Lease> = Api::namespaced(client(&sandbox).await, "default");
    let lease = |holder: &str| -> Lease {
        object(json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": holder,
            "leaseDurationSeconds": 10, "acquireTime": "2026-01-01T00:00:00.000001Z",
            "renewTime": "2026-01-01T00:00:00.000001Z", "leaseTransitions": 0}}))
    };
    let post = PostParams::default();
    let (one, two) = (lease("one"), lease("two"));
    let both = tokio::join!(leases.create(&post, &one), leases.create(&post, &two));
    let refused = match both {
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => error,
        other => panic!("exactly one is made: {other:?}"),
    };
    assert!(matches!(refused, kube::Error::Api(error) if error.reason == "AlreadyExists"));
    // Two that read the same and renew: the second has seen too little.
    let seen = leases.get("leader").await.unwrap();
    assert_eq!(
        serde_json::to_value(&seen).unwrap()["spec"]["renewTime"],
        "2026-01-01T00:00:00.000001Z",
        "all six digits are kept"
    );
    let mut renewed = seen.clone();
    renewed.spec.as_mut().unwrap().holder_identity = Some("one".to_owned());
    renewed.spec.as_mut().unwrap().lease_transitions = Some(1);
    leases.replace("leader", &post, &renewed).await.unwrap();
    let refused = leases.replace("leader", &post, &renewed).await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.reason == "Conflict"));
    // By apply, the other must force it.
    let taken = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "leader"}, "spec": {"holderIdentity": "two"}});
    let refused = leases.patch("leader", &PatchParams::apply("two"), &Patch::Apply(&taken)).await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.reason == "Conflict"));
    let forced = PatchParams::apply("two").force();
    let taken = leases.patch("leader", &forced, &Patch::Apply(&taken)).await.unwrap();
    assert_eq!(taken.spec.unwrap().holder_identity.as_deref(), Some("two"));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_kinds_are_served_as_soon_as_they_are_established() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let client = client(&sandbox).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = object(json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3, "maximum": 9}}},
                "status": {"type": "object", "properties": {"seen": {"type": "integer"}}}}}}}]}}));
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established =
        await_condition(definitions, "widgets.example.com", conditions::is_crd_established());
    soon("a new kind", established).await.unwrap();
    let widget = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &widget);
    let made = DynamicObject::new("w", &widget).data(json!({"spec": {}, "status": {"seen": 1}}));
    let made = widgets.create(&PostParams::default(), &made).await.unwrap();
    assert_eq!(made.data["spec"]["size"], 3);
    assert!(made.data.get("status").is_none(), "only its own path changes it: {}", made.data);
    let (anybody, seen) =
        (PatchParams::default(), json!({"status": {"seen": 2}, "spec": {"size": 7}}));
    let patched = widgets.patch_status("w", &anybody, &Patch::Merge(&seen)).await.unwrap();
    assert_eq!(
        (&patched.data["status"]["seen"], &patched.data["spec"]["size"]),
        (&json!(2), &json!(3))
    );
    let large = json!({"spec": {"size": 10}});
    let refused = widgets.patch("w", &anybody, &Patch::Merge(&large)).await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.code == 422));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_run_have_no_logs() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let pods: Api<Pod> = Api::namespaced(client(&sandbox).await, "default");
    let pod = object(
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}),
    );
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(pods.logs("p", &LogParams::default()).await.unwrap(), "");
    let missing = pods.logs("q", &LogParams::default()).await;
    assert!(matches!(missing, Err(kube::Error::Api(error)) if error.code == 404));
    sandbox.stop().await;
}
