//! What a cluster in memory does, call by call.

use std::time::{Duration, Instant};

use kiln_cluster::{Call, KindKey, ObjectPatch, Preconditions, Reason, Verb};
use kiln_object::{Change, Gvk, ObjectId, Selector, metadata};
use kiln_testkit::memory::{CallFault, Decision, Memory, WatchFault};
use kiln_testkit::server;
use kiln_value::{Value, value};

// Values are written in place.
#[allow(clippy::needless_pass_by_value)]
fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}}, "data": data,
    })
}

fn namespace(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn id(kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(Gvk::new("v1", kind), namespace, name)
}

fn names(memory: &Memory, namespace: Option<&str>, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    let listing =
        memory.list(&Gvk::new("v1", "ConfigMap"), namespace, &selector, None, None).unwrap();
    listing.objects.iter().map(|o| metadata::name(o).unwrap().to_owned()).collect()
}

#[test]
fn objects_get_what_only_a_server_gives() {
    let mut memory = Memory::new();
    memory.set_time(1_700_000_000);
    let made = memory.create(config_map("default", "a", value!({"k": "v"}))).unwrap();
    assert_eq!(made.str_at(["metadata", "creationTimestamp"]), Some("2023-11-14T22:13:20Z"));
    assert_eq!(metadata::resource_version(&made), Some(memory.revision().to_string().as_str()));
    assert_eq!(metadata::uid(&made).unwrap().len(), 36);
    let again = memory.create(config_map("default", "a", value!({})));
    assert_eq!(again.unwrap_err().reason, Reason::AlreadyExists);
    let unnamed =
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let named = memory.create(unnamed).unwrap();
    assert!(metadata::name(&named).unwrap().starts_with("x-"));
    assert_eq!(metadata::namespace(&named), Some("default"));
}

#[test]
fn an_update_must_know_the_version_it_replaces() {
    let mut memory = Memory::new();
    let first = memory.create(config_map("default", "a", value!({"k": "1"}))).unwrap();
    let mut second = first.clone();
    second.set(["data", "k"], "2").unwrap();
    let second = memory.update(second).unwrap();
    assert_ne!(metadata::resource_version(&first), metadata::resource_version(&second));
    let mut late = first;
    late.set(["data", "k"], "3").unwrap();
    assert_eq!(memory.update(late).unwrap_err().reason, Reason::Conflict);
    let before = memory.revision();
    assert_eq!(memory.update(second.clone()).unwrap(), second);
    assert_eq!(memory.revision(), before, "an update that changes nothing makes no revision");
    let missing = config_map("default", "b", value!({}));
    assert_eq!(memory.update(missing).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn lists_are_ordered_selected_and_paged() {
    let mut memory = Memory::new();
    memory.create(namespace("other")).unwrap();
    for (space, name) in [("other", "a"), ("default", "c"), ("default", "a"), ("default", "b")] {
        memory.create(config_map(space, name, value!({}))).unwrap();
    }
    assert_eq!(names(&memory, None, ""), ["a", "b", "c", "a"]);
    assert_eq!(names(&memory, Some("default"), ""), ["a", "b", "c"]);
    assert_eq!(names(&memory, None, "app=a"), ["a", "a"]);
    let (kind, all) = (Gvk::new("v1", "ConfigMap"), Selector::everything());
    let (mut resume, mut pages) = (None, Vec::new());
    loop {
        let page = memory.list(&kind, None, &all, Some(3), resume.as_deref()).unwrap();
        pages.push(page.objects.len());
        resume = page.resume;
        if resume.is_none() {
            break;
        }
    }
    assert_eq!(pages, [3, 1]);
}

#[test]
fn every_patch_dialect_changes_the_stored_object() {
    let mut memory = Memory::new();
    let pod = value!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
    });
    memory.create(pod).unwrap();
    let pod = id("Pod", "default", "p");
    let image = |memory: &Memory, at: usize| {
        let pod = memory.get(&pod).unwrap();
        let containers = pod.get_path(["spec", "containers"]).unwrap();
        containers.index(at).unwrap().str_at(["image"]).unwrap().to_owned()
    };
    let strategic = value!({"spec": {"containers": [{"name": "b", "image": "z"}]}});
    memory.patch(&pod, &ObjectPatch::Strategic(strategic), "").unwrap();
    assert_eq!((image(&memory, 0), image(&memory, 1)), ("x".into(), "z".into()));
    let json = value!([{"op": "replace", "path": "/spec/containers/0/image", "value": "w"}]);
    memory.patch(&pod, &ObjectPatch::Json(json), "").unwrap();
    assert_eq!(image(&memory, 0), "w");
    let merge = value!({"metadata": {"labels": {"l": "1"}}, "spec": {"containers": null}});
    let patched = memory.patch(&pod, &ObjectPatch::Merge(merge), "").unwrap();
    assert_eq!(patched.get_path(["spec", "containers"]), None);
    let bad = ObjectPatch::Json(value!([{"op": "test", "path": "/kind", "value": "X"}]));
    assert_eq!(memory.patch(&pod, &bad, "").unwrap_err().reason, Reason::Invalid);
}

#[test]
fn a_subresource_writes_its_part_alone() {
    let mut memory = Memory::new();
    let mut made = memory
        .create(value!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
            "spec": {"replicas": 1}, "status": {"replicas": 9},
        }))
        .unwrap();
    assert_eq!(made.get("status"), None);
    made.set(["spec", "replicas"], 2).unwrap();
    made.set(["status", "replicas"], 2).unwrap();
    let call = Call::Update { object: made.clone(), subresource: "status".into(), dry_run: false };
    let stored = memory.call("u", &call).unwrap().object().unwrap();
    assert_eq!(stored.get_path(["spec", "replicas"]).and_then(Value::as_i64), Some(1));
    assert_eq!(stored.get_path(["metadata", "generation"]).and_then(Value::as_i64), Some(1));
    let mut next = stored;
    next.set(["spec", "replicas"], 3).unwrap();
    next.remove(["status"]);
    let stored = memory.update(next).unwrap();
    assert_eq!(stored.get_path(["status", "replicas"]).and_then(Value::as_i64), Some(2));
    assert_eq!(stored.get_path(["metadata", "generation"]).and_then(Value::as_i64), Some(2));
}

#[test]
fn watches_see_what_happened_in_order_until_it_is_forgotten() {
    let mut memory = Memory::new();
    let kind = Gvk::new("v1", "ConfigMap");
    let start = memory.revision();
    let made = memory.create(config_map("default", "a", value!({"k": "1"}))).unwrap();
    let mut next = made;
    next.set(["data", "k"], "2").unwrap();
    memory.update(next).unwrap();
    memory.delete(&id("ConfigMap", "default", "a")).unwrap();
    let told = memory.changes(&kind, start, 100).unwrap();
    let changes: Vec<Change> = told.iter().map(|event| event.change).collect();
    assert_eq!(changes, [Change::Added, Change::Modified, Change::Deleted]);
    assert_eq!(told[2].object.str_at(["data", "k"]), Some("2"));
    assert_eq!(memory.changes(&kind, told[0].revision, 100).unwrap().len(), 2);
    memory.compact(told[1].revision);
    assert_eq!(memory.changes(&kind, start, 100).unwrap_err().reason, Reason::Gone);
    assert_eq!(memory.changes(&kind, told[1].revision, 100).unwrap().len(), 1);
}

#[test]
fn watches_drop_and_repeat_events_when_told_to() {
    let mut memory = Memory::new();
    let (kind, start) = (Gvk::new("v1", "ConfigMap"), memory.revision());
    for name in ["a", "b", "c"] {
        memory.create(config_map("default", name, value!({}))).unwrap();
    }
    memory.faults.falsify_next(None, WatchFault::Drop);
    memory.faults.falsify_next(Some(KindKey::new("", "ConfigMap")), WatchFault::Repeat);
    let (told, upto) = memory.watch("u", &kind, start, 100).unwrap();
    let told: Vec<_> = told.iter().map(|e| metadata::name(&e.object).unwrap()).collect();
    assert_eq!(told, ["b", "b", "c"]);
    assert_eq!(upto, memory.revision());
}

#[test]
fn finalizers_hold_an_object_until_they_are_gone() {
    let mut memory = Memory::new();
    let mut object = config_map("default", "a", value!({}));
    object.set(["metadata", "finalizers"], value!(["x.io/wait"])).unwrap();
    memory.create(object).unwrap();
    let a = id("ConfigMap", "default", "a");
    memory.delete(&a).unwrap();
    let mut held = memory.get(&a).unwrap();
    assert!(metadata::is_deleted(&held));
    held.set(["metadata", "finalizers"], Value::list()).unwrap();
    memory.update(held).unwrap();
    assert!(!memory.has(&a));
}

#[test]
fn a_namespace_ends_with_everything_in_it() {
    let mut memory = Memory::new();
    memory.create(namespace("team")).unwrap();
    memory.create(config_map("team", "a", value!({}))).unwrap();
    let mut held = config_map("team", "b", value!({}));
    held.set(["metadata", "finalizers"], value!(["x.io/wait"])).unwrap();
    memory.create(held).unwrap();
    let team = id("Namespace", "", "team");
    memory.delete(&team).unwrap();
    let refused = memory.create(config_map("team", "c", value!({}))).unwrap_err();
    assert_eq!(refused.reason, Reason::NamespaceTerminating);
    memory.collect();
    assert!(memory.has(&team), "a held object holds its namespace");
    let mut held = memory.get(&id("ConfigMap", "team", "b")).unwrap();
    held.remove(["metadata", "finalizers"]);
    memory.update(held).unwrap();
    memory.collect();
    assert!(!memory.has(&team));
    let missing = memory.create(config_map("team", "a", value!({}))).unwrap_err();
    assert_eq!(missing.reason, Reason::NotFound);
}

#[test]
fn what_lost_its_owner_is_collected() {
    let mut memory = Memory::new();
    let owner = memory.create(config_map("default", "owner", value!({}))).unwrap();
    let reference = value!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": metadata::uid(&owner).unwrap()}]);
    let mut owned = config_map("default", "owned", value!({}));
    owned.set(["metadata", "ownerReferences"], reference).unwrap();
    memory.create(owned).unwrap();
    memory.collect();
    assert_eq!(names(&memory, None, ""), ["owned", "owner"]);
    memory.delete(&id("ConfigMap", "default", "owner")).unwrap();
    memory.create(config_map("default", "owner", value!({}))).unwrap();
    memory.collect();
    assert_eq!(names(&memory, None, ""), ["owner"], "a new object of the name is another owner");
}

#[test]
fn a_definition_brings_a_kind_and_takes_it_along() {
    let mut memory = Memory::new();
    let widget = value!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    assert_eq!(memory.create(widget.clone()).unwrap_err().reason, Reason::UnknownKind);
    let definition = value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {"name": "v1", "served": true, "storage": true},
                {"name": "v2", "served": true, "storage": false},
            ],
        },
    });
    memory.create(definition).unwrap();
    memory.create(widget).unwrap();
    let second = ObjectId::new(Gvk::new("x.io/v2", "Widget"), "default", "w");
    assert_eq!(memory.get(&second).unwrap().str_at(["apiVersion"]), Some("x.io/v2"));
    let crd = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    memory.delete(&ObjectId::new(crd, "", "widgets.x.io")).unwrap();
    assert_eq!(memory.get(&second).unwrap_err().reason, Reason::UnknownKind);
}

#[test]
fn what_a_server_refuses_is_refused() {
    let mut memory = Memory::new();
    for bad in [
        config_map("default", "No_Name", value!({})),
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default"}}),
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": 1}}}),
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a": "b=c"}}}),
        value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "namespace": "b"}}),
        value!({"metadata": {"name": "a"}}),
    ] {
        assert_eq!(memory.create(bad.clone()).unwrap_err().reason, Reason::Invalid, "{bad:?}");
    }
    let secret = value!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"k": "v"},
    });
    let mut stored = memory.create(secret).unwrap();
    assert_eq!(stored.str_at(["data", "k"]), Some("dg=="));
    assert_eq!(stored.str_at(["type"]), Some("Opaque"));
    stored.set(["type"], "other").unwrap();
    assert_eq!(memory.update(stored).unwrap_err().reason, Reason::Invalid);
}

#[test]
fn deletions_can_insist_on_what_they_delete() {
    let mut memory = Memory::new();
    let made = memory.create(config_map("default", "a", value!({}))).unwrap();
    let target = id("ConfigMap", "default", "a");
    let delete = |uid: &str, version: Option<&str>| Call::Delete {
        target: target.clone(),
        preconditions: Preconditions {
            uid: Some(uid.into()),
            resource_version: version.map(Into::into),
        },
    };
    let uid = metadata::uid(&made).unwrap();
    assert_eq!(memory.call("u", &delete("other", None)).unwrap_err().reason, Reason::Conflict);
    assert_eq!(memory.call("u", &delete(uid, Some("1"))).unwrap_err().reason, Reason::Conflict);
    memory.call("u", &delete(uid, metadata::resource_version(&made))).unwrap();
    assert_eq!(memory.call("u", &delete(uid, None)).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn applied_fields_belong_to_their_manager() {
    let mut memory = Memory::new();
    let apply = |memory: &mut Memory, manager: &str, data: Value, force| {
        let mut object = config_map("default", "a", data);
        object.remove(["metadata", "labels"]);
        memory.apply(object, manager, force)
    };
    apply(&mut memory, "kiln", value!({"a": "1", "b": "1"}), true).unwrap();
    apply(&mut memory, "user", value!({"c": "1"}), false).unwrap();
    let refused = apply(&mut memory, "user", value!({"c": "1", "a": "2"}), false);
    assert_eq!(refused.unwrap_err().reason, Reason::Conflict);
    let stored = apply(&mut memory, "kiln", value!({"a": "3"}), true).unwrap();
    assert_eq!(stored.get("data"), Some(&value!({"a": "3", "c": "1"})));
}

#[test]
fn calls_fail_when_told_to_and_are_counted() {
    let mut memory = Memory::new();
    let a = id("ConfigMap", "default", "a");
    let create = Call::create(config_map("default", "a", value!({})));
    memory.faults.fail_next(Some(Verb::Create), None, CallFault::Unavailable);
    memory.faults.fail_next(Some(Verb::Create), None, CallFault::LostAnswer);
    assert_eq!(memory.call("u", &create).unwrap_err().reason, Reason::Unavailable);
    assert!(!memory.has(&a));
    assert_eq!(memory.call("u", &create).unwrap_err().reason, Reason::Unavailable);
    assert!(memory.has(&a), "it was done, and the answer was lost");
    memory.access.set(Decision::Deny, "u", Some(Verb::Get), "ConfigMap", "*");
    assert_eq!(memory.call("u", &Call::Get(a.clone())).unwrap_err().reason, Reason::Forbidden);
    memory.call("v", &Call::Get(a.clone())).unwrap();
    let tally = memory.counts.of(&a);
    assert_eq!((tally.reads, tally.writes, tally.trials), (2, 2, 0));
    let trial = Call::Create { object: config_map("default", "b", value!({})), dry_run: true };
    memory.call("u", &trial).unwrap();
    assert_eq!(memory.counts.total().trials, 1);
    assert!(!memory.has(&id("ConfigMap", "default", "b")));
}

/// Why there is a second cluster besides the API server of the sandbox: simulations start one per seed, and most of their
/// time would go into it. `cargo test --workspace --test memory -- --ignored --nocapture` prints the figures.
#[test]
#[ignore = "compares two speeds, and a busy machine decides the result; cargo test --test memory -- --ignored"]
#[allow(clippy::print_stdout, reason = "figures are what it is for")]
fn a_simulated_cluster_costs_a_fraction_of_the_sandbox_server() {
    const CLUSTERS: u32 = 40;
    const OBJECTS: usize = 60;
    let objects = || (0..OBJECTS).map(|at| config_map("default", &format!("c{at}"), value!({})));
    let path = "/api/v1/namespaces/default/configmaps";
    let of_memory = timed(CLUSTERS, || {
        let mut memory = Memory::new();
        for object in objects() {
            let stored = memory.create(object).unwrap();
            let id = ObjectId::of(&stored).unwrap();
            memory.update(memory.get(&id).unwrap()).unwrap();
        }
        let listed =
            memory.list(&Gvk::new("v1", "ConfigMap"), None, &Selector::default(), None, None);
        assert_eq!(listed.unwrap().objects.len(), OBJECTS);
    });
    let of_server = timed(CLUSTERS, || {
        let server = server::start();
        for object in objects() {
            let stored = server::create(&server, path, &object);
            let own = format!("{path}/{}", metadata::name(&stored).unwrap());
            let read = server::get(&server, &own).value();
            assert_eq!(server::send(&server, "PUT", &own, &read).status, 200);
        }
        // The server makes one of its own in each namespace.
        let listed = server::get(&server, path).value();
        assert!(listed.get("items").and_then(Value::as_list).unwrap().len() >= OBJECTS);
    });
    println!(
        "a cluster with {OBJECTS} objects: {of_memory:?} in memory, {of_server:?} by the server"
    );
}

/// The mean time that something takes.
fn timed(times: u32, mut run: impl FnMut()) -> Duration {
    let begin = Instant::now();
    (0..times).for_each(|_| run());
    begin.elapsed() / times
}
