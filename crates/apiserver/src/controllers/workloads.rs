//! What Deployments, ReplicaSets and Jobs ask for: other objects, down to pods that wait for a node.
//!
//! The arithmetic of a rolling update is Kubernetes'. Since no pod ever becomes ready here, a rollout that
//! may not go below its number of pods stops half-way, as it does on a cluster without nodes.

use kiln_object::Gvk;
use kiln_object::metadata::is_deleted;
use kiln_value::{Map, Value, json, value};
use sha2::{Digest as _, Sha256};

use crate::controllers::{controller, create};
use crate::request::options::DeleteOptions;
use crate::request::paths::RequestTarget;
use crate::server::Server;
use crate::storage::{Table, TableKey};
use crate::write::{self, name_end, remove_object};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// One round; whether something changed.
pub(crate) fn reconcile(server: &Server) -> bool {
    let mut busy = false;
    for deployment in all(server, "apps", "deployments").iter().filter(|object| !is_deleted(object))
    {
        busy |= deploy(server, deployment);
    }
    for set in all(server, "apps", "replicasets").iter().filter(|object| !is_deleted(object)) {
        busy |= replicate(server, set);
    }
    for job in all(server, "batch", "jobs").iter().filter(|object| !is_deleted(object)) {
        busy |= run_job(server, job);
    }
    busy | let_pods_go(server)
}

fn all(server: &Server, group: &str, plural: &str) -> Vec<Value> {
    let state = server.read();
    let table = state.store.table(&TableKey::new(group, plural));
    table
        .into_iter()
        .flat_map(|table| table.range("", None))
        .map(|(_, object)| object.clone())
        .collect()
}

fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    object.str_at(path.iter().copied()).unwrap_or_default()
}

fn number(object: &Value, path: &[&str]) -> Option<i64> {
    object.get_path(path.iter().copied()).and_then(Value::as_i64)
}

/// Objects that an object owns.
fn owned(server: &Server, group: &str, plural: &str, owner: &Value) -> Vec<Value> {
    let (uid, namespace) =
        (text(owner, &["metadata", "uid"]), text(owner, &["metadata", "namespace"]));
    let state = server.read();
    let table = state.store.table(&TableKey::new(group, plural));
    table
        .into_iter()
        .flat_map(|table| table.range(namespace, None))
        .map(|(_, object)| object.clone())
        .filter(|object| kiln_object::owner::is_owned_by(object, uid) && !is_deleted(object))
        .collect()
}

fn reference(owner: &Value) -> Value {
    let field = |path: &[&str]| text(owner, path).to_owned();
    value!([{"apiVersion": (field(&["apiVersion"])), "kind": (field(&["kind"])), "name": (field(&["metadata", "name"])),
        "uid": (field(&["metadata", "uid"])), "controller": true, "blockOwnerDeletion": true}])
}

fn delete(server: &Server, object: &Value) -> bool {
    let Some(kind) = Gvk::of(object).and_then(|gvk| server.read().kinds.get(&gvk).cloned()) else {
        return false;
    };
    let field = |name: &str| text(object, &["metadata", name]).to_owned();
    let target = RequestTarget {
        kind,
        namespace: field("namespace"),
        name: field("name"),
        subresource: String::new(),
        watch: false,
    };
    remove_object(server, &target, &controller(), &DeleteOptions::default(), &mut Vec::new())
        .is_ok()
}

/// Changes an object where it lies; whether that made a difference.
fn edit(
    server: &Server,
    group: &str,
    plural: &str,
    object: &Value,
    change: impl Fn(&mut Value),
) -> bool {
    let key = TableKey::new(group, plural);
    let mut state = server.write();
    let found = state.store.get(
        &key,
        text(object, &["metadata", "namespace"]),
        text(object, &["metadata", "name"]),
    );
    let Some(current) = found.cloned() else { return false };
    let mut next = current.clone();
    change(&mut next);
    if next == current {
        return false;
    }
    let spec = |object: &Value| object.get("spec").cloned();
    if spec(&next) != spec(&current) {
        let generation = number(&current, &["metadata", "generation"]).unwrap_or(0);
        let _ = next.set(["metadata", "generation"], generation + 1);
    }
    write::store(&mut state, group, plural, next);
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Tells people what was done.
fn tell(server: &Server, about: &Value, reason: &str, message: &str, component: &str) {
    let name = text(about, &["metadata", "name"]);
    let name = format!("{name}.{:016x}", server.host.random());
    create(server, event(server, about, &name, ("Normal", reason), message, component));
}

fn event(
    server: &Server,
    about: &Value,
    name: &str,
    (kind, reason): (&str, &str),
    message: &str,
    component: &str,
) -> Value {
    let field = |path: &[&str]| text(about, path).to_owned();
    let (namespace, now) = (field(&["metadata", "namespace"]), server.timestamp());
    value!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": (namespace.as_str())},
        "involvedObject": {"kind": (field(&["kind"])), "namespace": (namespace.as_str()), "name": (field(&["metadata", "name"])),
            "uid": (field(&["metadata", "uid"])), "apiVersion": (field(&["apiVersion"])),
            "resourceVersion": (field(&["metadata", "resourceVersion"]))},
        "reason": reason, "message": message, "source": {"component": component}, "reportingComponent": component,
        "firstTimestamp": (now.as_str()), "lastTimestamp": (now.as_str()), "count": 1, "type": kind,
    })
}

/// Whether there may be one more pod. If not, its owner gets one event.
fn has_room(server: &Server, owner: &Value, component: &str) -> bool {
    let most = server.settings.pods;
    let pods = server.read().store.table(&TableKey::new("", "pods")).map_or(0, Table::len);
    if pods < most {
        return true;
    }
    let message =
        format!("a sandbox makes at most {most} pods for workloads, and there are {pods} already");
    let (name, uid) = (text(owner, &["metadata", "name"]), text(owner, &["metadata", "uid"]));
    // A name of its own, so that it is there only once.
    let name = format!("{name}.no-room-{uid}");
    create(server, event(server, owner, &name, ("Warning", "FailedCreate"), &message, component));
    false
}

/// A short name for a template.
fn hash(template: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(json::to_canonical_string(template).as_bytes());
    digest
        .iter()
        .take(10)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect()
}

/// A template without the label that tells sets apart.
fn plain(template: &Value) -> Value {
    let mut template = template.clone();
    template.remove(["metadata", "labels", HASH]);
    template
}

/// A number, or a share of one.
fn amount(value: Option<&Value>, of: i64, up: bool) -> i64 {
    let asked = match value {
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent.saturating_mul(of);
            if up {
                product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0)
            } else {
                product.div_euclid(100)
            }
        }
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    };
    // Whatever share is asked for: there are never more pods.
    asked.clamp(0, i64::from(i32::MAX))
}

fn deploy(server: &Server, deployment: &Value) -> bool {
    let template = deployment.get_path(["spec", "template"]).cloned().unwrap_or_default();
    let mut sets = owned(server, "apps", "replicasets", deployment);
    let revision = |set: &Value| {
        text(set, &["metadata", "annotations", REVISION]).parse::<i32>().map_or(0, i64::from)
    };
    sets.sort_by_key(|set| (revision(set), text(set, &["metadata", "name"]).to_owned()));
    let wanted = number(deployment, &["spec", "replicas"]).unwrap_or(1);
    let rolling = text(deployment, &["spec", "strategy", "type"]) != "Recreate";
    let path =
        |field: &'static str| deployment.get_path(["spec", "strategy", "rollingUpdate", field]);
    let (surge, missing) = if rolling {
        let (surge, missing) =
            (amount(path("maxSurge"), wanted, true), amount(path("maxUnavailable"), wanted, false));
        (surge, if surge == 0 && missing == 0 { 1 } else { missing })
    } else {
        (0, wanted)
    };
    let paused = deployment.get_path(["spec", "paused"]).and_then(Value::as_bool) == Some(true);
    let newest = sets.iter().map(revision).max().unwrap_or(0);
    let same =
        |set: &&Value| set.get_path(["spec", "template"]).map(plain).as_ref() == Some(&template);
    let total: i64 = sets.iter().map(|set| number(set, &["spec", "replicas"]).unwrap_or(0)).sum();
    let Some(current) = sets.iter().find(same).cloned() else {
        if paused {
            return status(server, deployment, &sets, None);
        }
        let first =
            if !rolling && total > 0 { 0 } else { (wanted + surge - total).clamp(0, wanted) };
        let made =
            create(server, replica_set(deployment, &template, first, newest + 1, wanted + surge));
        if made {
            note_revision(server, deployment, newest + 1);
            let name = format!("{}-{}", text(deployment, &["metadata", "name"]), hash(&template));
            tell(
                server,
                deployment,
                "ScalingReplicaSet",
                &format!("Scaled up replica set {name} from 0 to {first}"),
                "deployment-controller",
            );
        }
        return made;
    };
    let mut busy = false;
    if revision(&current) < newest {
        // An old template is the newest again.
        busy |= edit(server, "apps", "replicasets", &current, |set| {
            let _ = set.set(["metadata", "annotations", REVISION], (newest + 1).to_string());
        });
        note_revision(server, deployment, newest + 1);
        return busy;
    }
    busy |= note_revision(server, deployment, revision(&current));
    busy |= scale(server, deployment, &sets, &current, wanted, surge, missing, rolling && !paused);
    busy | status(server, deployment, &sets, Some(&current))
}

fn replica_set(
    deployment: &Value,
    template: &Value,
    replicas: i64,
    revision: i64,
    most: i64,
) -> Value {
    let hash = hash(template);
    let field = |name: &str| text(deployment, &["metadata", name]).to_owned();
    let wanted = number(deployment, &["spec", "replicas"]).unwrap_or(1);
    let mut template = template.clone();
    let _ = template.set(["metadata", "labels", HASH], hash.as_str());
    let mut selector =
        deployment.get_path(["spec", "selector"]).cloned().unwrap_or_else(Value::map);
    let _ = selector.set(["matchLabels", HASH], hash.as_str());
    let mut annotations = deployment
        .get_path(["metadata", "annotations"])
        .and_then(Value::as_map)
        .cloned()
        .unwrap_or_default();
    annotations.remove(kiln_object::metadata::LAST_APPLIED);
    annotations.insert(DESIRED, wanted.to_string());
    annotations.insert(MAXIMUM, most.to_string());
    annotations.insert(REVISION, revision.to_string());
    let mut set = value!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": (format!("{}-{hash}", field("name"))), "namespace": (field("namespace"))}});
    let labels = template.get_path(["metadata", "labels"]).cloned();
    let _ = set.set(["metadata", "labels"], labels);
    let _ = set.set(["metadata", "annotations"], Value::Map(annotations));
    let _ = set.set(["metadata", "ownerReferences"], reference(deployment));
    let _ = set.set(["spec", "replicas"], replicas);
    let _ = set.set(["spec", "selector"], selector);
    let _ = set.set(["spec", "template"], template);
    set
}

fn note_revision(server: &Server, deployment: &Value, revision: i64) -> bool {
    edit(server, "apps", "deployments", deployment, |object| {
        let _ = object.set(["metadata", "annotations", REVISION], revision.to_string());
    })
}

#[allow(clippy::too_many_arguments, reason = "the numbers of one rollout")]
fn scale(
    server: &Server,
    deployment: &Value,
    sets: &[Value],
    current: &Value,
    wanted: i64,
    surge: i64,
    missing: i64,
    rolls: bool,
) -> bool {
    let size = |set: &Value| number(set, &["spec", "replicas"]).unwrap_or(0);
    let name = |set: &Value| text(set, &["metadata", "name"]).to_owned();
    let total: i64 = sets.iter().map(size).sum();
    let resize = |set: &Value, to: i64| {
        let from = size(set);
        let changed = edit(server, "apps", "replicasets", set, |object| {
            let _ = object.set(["spec", "replicas"], to);
            let _ = object.set(["metadata", "annotations", DESIRED], wanted.to_string());
            let _ = object.set(["metadata", "annotations", MAXIMUM], (wanted + surge).to_string());
        });
        if changed && from != to {
            let how = if to > from { "up" } else { "down" };
            let message = format!("Scaled {how} replica set {} from {from} to {to}", name(set));
            tell(server, deployment, "ScalingReplicaSet", &message, "deployment-controller");
        }
        changed
    };
    let active: Vec<&Value> = sets.iter().filter(|set| size(set) > 0).collect();
    let asked = |set: &Value| text(set, &["metadata", "annotations", DESIRED]).parse::<i64>().ok();
    let rescaled = active.iter().any(|set| asked(set).is_some_and(|asked| asked != wanted));
    if rescaled || active.is_empty() {
        // The number itself changed: each owner of pods gets its share.
        if active.len() <= 1 {
            let only = active.first().copied().unwrap_or(current);
            return if wanted == size(only) && !rescaled { false } else { resize(only, wanted) };
        }
        let allowed = if wanted > 0 { wanted + surge } else { 0 };
        let mut left = allowed - total;
        let mut order: Vec<&Value> = active.clone();
        order.sort_by_key(|set| if left > 0 { -size(set) } else { size(set) });
        let mut busy = false;
        let last = order.len() - 1;
        for (i, set) in order.iter().enumerate() {
            let most = text(set, &["metadata", "annotations", MAXIMUM])
                .parse::<i32>()
                .map_or(total, i64::from)
                .max(1);
            let share = if i == last || left == 0 {
                left
            } else {
                // Two numbers of pods are multiplied.
                let grown = i128::from(size(set)) * i128::from(allowed) * 2 + i128::from(most);
                let grown = i64::try_from(grown / (i128::from(most) * 2)).unwrap_or(i64::MAX);
                let part = grown.saturating_sub(size(set));
                if left > 0 { part.clamp(0, left) } else { part.clamp(left, 0) }
            };
            left -= share;
            busy |= resize(set, (size(set) + share).max(0));
        }
        return busy;
    }
    if !rolls {
        let others: i64 = total - size(current);
        let is_recreate = text(deployment, &["spec", "strategy", "type"]) == "Recreate";
        if is_recreate && others > 0 {
            return sets
                .iter()
                .filter(|set| name(set) != name(current) && size(set) > 0)
                .fold(false, |busy, set| resize(set, 0) | busy);
        }
        return is_recreate && size(current) != wanted && resize(current, wanted);
    }
    if size(current) > wanted {
        return resize(current, wanted);
    }
    if size(current) < wanted && total < wanted + surge {
        let more = (wanted + surge - total).min(wanted - size(current));
        return resize(current, size(current) + more);
    }
    // No pod is ever ready: all of the old ones are dispensable, up to what must be there.
    let mut spare = total - (wanted - missing) - size(current);
    let mut busy = false;
    for set in sets.iter().filter(|set| name(set) != name(current) && size(set) > 0) {
        let less = spare.clamp(0, size(set));
        if less > 0 {
            busy |= resize(set, size(set) - less);
            spare -= less;
        }
    }
    busy
}

fn status(server: &Server, deployment: &Value, sets: &[Value], current: Option<&Value>) -> bool {
    let have = |set: &Value| number(set, &["status", "replicas"]).unwrap_or(0);
    let total: i64 = sets.iter().map(have).sum();
    let updated = current.map_or(0, have);
    let now = server.timestamp();
    edit(server, "apps", "deployments", deployment, |object| {
        let generation = number(object, &["metadata", "generation"]).unwrap_or(0);
        let mut next = object.get("status").and_then(Value::as_map).cloned().unwrap_or_default();
        next.insert("observedGeneration", generation);
        for (field, count) in
            [("replicas", total), ("updatedReplicas", updated), ("unavailableReplicas", total)]
        {
            if count == 0 {
                next.remove(field);
            } else {
                next.insert(field, count);
            }
        }
        let set =
            current.map(|set| text(set, &["metadata", "name"]).to_owned()).unwrap_or_default();
        let wanted = number(object, &["spec", "replicas"]).unwrap_or(1);
        let available = if wanted == 0 {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.".to_owned(),
            )
        };
        let progress =
            ("True", "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."));
        let before = next
            .get("conditions")
            .and_then(Value::as_list)
            .map(|list| list.to_vec())
            .unwrap_or_default();
        let conditions: Vec<Value> = [("Available", available), ("Progressing", progress)]
            .into_iter()
            .map(|(kind, (state, reason, message))| {
                let known = before.iter().find(|one| text(one, &["type"]) == kind && text(one, &["status"]) == state && text(one, &["message"]) == message);
                known.cloned().unwrap_or_else(|| {
                    value!({"type": kind, "status": state, "lastUpdateTime": (now.as_str()), "lastTransitionTime": (now.as_str()), "reason": reason, "message": message})
                })
            })
            .collect();
        next.insert("conditions", conditions);
        let _ = object.set(["status"], Value::Map(next));
    })
}

fn pod_of(owner: &Value, server: &Server) -> Value {
    let template = owner.get_path(["spec", "template"]).cloned().unwrap_or_default();
    let name = text(owner, &["metadata", "name"]).to_owned();
    let mut metadata =
        template.get("metadata").and_then(Value::as_map).cloned().unwrap_or_else(Map::new);
    metadata.remove("creationTimestamp");
    metadata.insert("generateName", format!("{name}-"));
    metadata.insert("name", format!("{name}-{}", name_end(server)));
    metadata.insert("namespace", text(owner, &["metadata", "namespace"]));
    metadata.insert("ownerReferences", reference(owner));
    let mut pod = value!({"apiVersion": "v1", "kind": "Pod"});
    let _ = pod.set(["metadata"], Value::Map(metadata));
    let _ = pod.set(["spec"], template.get("spec").cloned());
    pod
}

fn replicate(server: &Server, set: &Value) -> bool {
    let mut pods = owned(server, "", "pods", set);
    let wanted = usize::try_from(number(set, &["spec", "replicas"]).unwrap_or(1)).unwrap_or(0);
    let mut busy = false;
    for _ in pods.len()..wanted {
        if !has_room(server, set, "replicaset-controller") {
            break;
        }
        let pod = pod_of(set, server);
        let name = text(&pod, &["metadata", "name"]).to_owned();
        if !create(server, pod) {
            // A quota or a rule says no; the set stays short.
            break;
        }
        tell(
            server,
            set,
            "SuccessfulCreate",
            &format!("Created pod: {name}"),
            "replicaset-controller",
        );
        busy = true;
    }
    pods.sort_by_key(|pod| {
        std::cmp::Reverse(text(pod, &["metadata", "creationTimestamp"]).to_owned())
    });
    let surplus = pods.len().saturating_sub(wanted);
    for pod in pods.iter().take(surplus) {
        busy |= delete(server, pod);
        let name = text(pod, &["metadata", "name"]);
        tell(
            server,
            set,
            "SuccessfulDelete",
            &format!("Deleted pod: {name}"),
            "replicaset-controller",
        );
    }
    let have = owned(server, "", "pods", set).len();
    busy | edit(server, "apps", "replicasets", set, |object| {
        let generation = number(object, &["metadata", "generation"]).unwrap_or(0);
        let _ = object.set(["status", "observedGeneration"], generation);
        let _ = object.set(["status", "replicas"], have);
        if have == 0 {
            object.remove(["status", "fullyLabeledReplicas"]);
        } else {
            let _ = object.set(["status", "fullyLabeledReplicas"], have);
        }
    })
}

fn run_job(server: &Server, job: &Value) -> bool {
    if job.get_path(["spec", "suspend"]).and_then(Value::as_bool) == Some(true) {
        return false;
    }
    let parallel = number(job, &["spec", "parallelism"]).unwrap_or(1);
    let wanted = number(job, &["spec", "completions"])
        .map_or(parallel, |completions| parallel.min(completions));
    let mut busy = false;
    let have = owned(server, "", "pods", job).len();
    for _ in have..usize::try_from(wanted).unwrap_or(0) {
        if !has_room(server, job, "job-controller") {
            break;
        }
        let mut pod = pod_of(job, server);
        let _ = pod.set(["metadata", "finalizers"], value!([TRACKING]));
        let name = text(&pod, &["metadata", "name"]).to_owned();
        if !create(server, pod) {
            break;
        }
        tell(server, job, "SuccessfulCreate", &format!("Created pod: {name}"), "job-controller");
        busy = true;
    }
    let active = owned(server, "", "pods", job).len();
    let now = server.timestamp();
    busy | edit(server, "batch", "jobs", job, |object| {
        if object.get_path(["status", "startTime"]).is_none() {
            let _ = object.set(["status", "startTime"], now.as_str());
        }
        let _ = object.set(["status", "active"], active);
        for field in ["ready", "terminating"] {
            let _ = object.set(["status", field], 0);
        }
        let _ = object.set(["status", "uncountedTerminatedPods"], Value::map());
    })
}

/// Pods of Jobs that are deleted are not waited for here.
fn let_pods_go(server: &Server) -> bool {
    let mut busy = false;
    for pod in all(server, "", "pods").iter().filter(|pod| is_deleted(pod)) {
        let list = pod.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
        if list.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(TRACKING))) {
            busy |= crate::controllers::drop_finalizer(
                server,
                &TableKey::new("", "pods"),
                pod,
                TRACKING,
            );
        }
    }
    busy
}
