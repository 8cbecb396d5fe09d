//! What controllers of a cluster do on their own: ending namespaces, accounts, garbage, quotas, aggregated roles.

pub(crate) mod bootstrap;
mod workloads;

use std::collections::{HashMap, HashSet};

use kiln_object::metadata::is_deleted;
use kiln_object::{Gvk, Kind, Selector};
use kiln_value::{Value, value};

use crate::access::authorization::User;
use crate::admission::quota_status;
use crate::crd::names;
use crate::request::options::{DeleteOptions, Propagation, WriteOptions};
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerState};
use crate::storage::TableKey;
use crate::write::{self, Creation, create_object, remove_object};

/// The most rounds of one settling: what is not stable by then goes on next time.
const ROUNDS: usize = 50;

/// The user that built-in controllers act as.
pub(crate) fn controller() -> User {
    User {
        name: "system:kube-controller-manager".to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..User::default()
    }
}

pub(crate) fn options() -> WriteOptions {
    WriteOptions {
        manager: "kube-controller-manager".to_owned(),
        named_manager: true,
        ..WriteOptions::default()
    }
}

/// Creates an object if the server does not have it; whether it did.
pub(crate) fn ensure(server: &Server, object: Value) -> bool {
    let Some(target) = collection_of(server, &object) else { return false };
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    let is_known =
        server.read().store.get(&ServerState::key(&target), &target.namespace, name).is_some();
    // Another client may have been faster.
    !is_known && create(server, object)
}

/// Creates an object as a controller does; false if it is refused.
pub(super) fn create(server: &Server, object: Value) -> bool {
    let Some(target) = collection_of(server, &object) else { return false };
    let creation = Creation {
        target: &target,
        options: &options(),
        user: &controller(),
        managed: false,
        warnings: &mut Vec::new(),
    };
    create_object(server, creation, object).is_ok()
}

/// Where an object is created; none if the server does not serve its kind.
fn collection_of(server: &Server, object: &Value) -> Option<RequestTarget> {
    let kind = server.read().kinds.get(&Gvk::of(object)?).cloned()?;
    let namespace = object.str_at(["metadata", "namespace"]).unwrap_or_default().to_owned();
    Some(RequestTarget {
        kind,
        namespace,
        name: String::new(),
        subresource: String::new(),
        watch: false,
    })
}

/// Every namespace has an account, and the certificates of the server.
pub(crate) fn accounts(server: &Server) -> bool {
    let missing: Vec<String> = {
        let state = server.read();
        let namespaces = state.store.table(&TableKey::new("", "namespaces"));
        namespaces
            .into_iter()
            .flat_map(|table| table.range("", None))
            .filter(|(_, namespace)| !is_deleted(namespace))
            .map(|((_, name), _)| name.to_string())
            .filter(|name| !is_furnished(server, &state, name))
            .collect()
    };
    // What a webhook refuses is tried again at the next settling: nothing is different before.
    missing.iter().fold(false, |busy, namespace| furnish(server, namespace) | busy)
}

/// The name of the account that pods have if they name none.
const ACCOUNT: &str = "default";
/// The name of the ConfigMap with the certificates of the server.
const AUTHORITY: &str = "kube-root-ca.crt";

fn is_furnished(server: &Server, state: &ServerState, namespace: &str) -> bool {
    let has = |plural: &str, name: &str| {
        state.store.get(&TableKey::new("", plural), namespace, name).is_some()
    };
    has("serviceaccounts", ACCOUNT)
        && (server.settings.ca.is_empty() || has("configmaps", AUTHORITY))
}

/// Gives a namespace what every namespace has. Kubernetes does so a moment after a namespace is answered for, and
/// pods that come in that moment are refused; here no client has to wait.
pub(crate) fn furnish(server: &Server, namespace: &str) -> bool {
    let account = ensure(
        server,
        value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}),
    );
    let authority = !server.settings.ca.is_empty()
        && ensure(
            server,
            value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITY, "namespace": namespace},
                "data": {"ca.crt": (server.settings.ca.as_str())}}),
        );
    account | authority
}

/// Does what is to be done, until nothing is left to do.
pub(crate) fn settle(server: &Server) {
    for _ in 0..ROUNDS {
        let mut busy = accounts(server);
        busy |= end_namespaces(server);
        busy |= end_definitions(server);
        busy |= accept_definitions(server);
        busy |= collect(server);
        busy |= quotas(server);
        busy |= aggregate_roles(server);
        if server.settings.workloads {
            busy |= workloads::reconcile(server);
        }
        if !busy {
            return;
        }
    }
}

fn target_of(kind: &Kind, object: &Value) -> RequestTarget {
    let text = |field: &str| object.str_at(["metadata", field]).unwrap_or_default().to_owned();
    RequestTarget {
        kind: kind.clone(),
        namespace: text("namespace"),
        name: text("name"),
        subresource: String::new(),
        watch: false,
    }
}

fn delete(server: &Server, kind: &Kind, object: &Value, propagation: Propagation) -> bool {
    let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
    let target = target_of(kind, object);
    remove_object(server, &target, &controller(), &options, &mut Vec::new()).is_ok()
}

/// The kind whose objects a table holds, in its stored version.
fn kind_of(state: &ServerState, key: &TableKey, object: &Value) -> Option<Kind> {
    let gvk = Gvk::of(object)?;
    let exact = state.kinds.get(&gvk).filter(|kind| kind.plural() == key.plural.as_str());
    exact.or_else(|| state.kinds.preferred(&gvk.group, &gvk.kind)).cloned()
}

fn end_namespaces(server: &Server) -> bool {
    let ending: Vec<Value> = {
        let state = server.read();
        let namespaces = state.store.table(&TableKey::new("", "namespaces"));
        let all = namespaces.into_iter().flat_map(|table| table.range("", None));
        all.map(|(_, namespace)| namespace.clone()).filter(is_deleted).collect()
    };
    let mut busy = false;
    for namespace in ending {
        let name = namespace.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
        let inside: Vec<(Kind, Value)> = {
            let state = server.read();
            let tables = state.store.tables();
            tables
                .flat_map(|(key, table)| {
                    table.range(&name, None).map(move |(_, object)| (key, object))
                })
                .filter(|(_, object)| {
                    object.str_at(["metadata", "namespace"]) == Some(name.as_str())
                })
                .filter_map(|(key, object)| Some((kind_of(&state, key, object)?, object.clone())))
                .collect()
        };
        for (kind, object) in inside.iter().filter(|(_, object)| !is_deleted(object)) {
            busy |= delete(server, kind, object, Propagation::Background);
        }
        if inside.is_empty() {
            busy |= finalize(server, &name);
        } else {
            busy |= tell_remaining(server, &namespace, &inside);
        }
    }
    busy
}

/// What was in a namespace is gone: the server's own finalizer goes, and the namespace unless other finalizers hold it.
fn finalize(server: &Server, name: &str) -> bool {
    let mut state = server.write();
    let stored = state.store.get(&TableKey::new("", "namespaces"), "", name).cloned();
    let Some(mut namespace) = stored else { return false };
    let old = namespace.clone();
    let finalizers = namespace.get_path_mut(["spec", "finalizers"]).and_then(Value::as_list_mut);
    if let Some(finalizers) = finalizers {
        finalizers.retain(|finalizer| finalizer.as_str() != Some("kubernetes"));
    }
    if write::is_over(&namespace) {
        write::take(&mut state, "", "namespaces", "", name);
    } else if namespace != old {
        write::store(&mut state, "", "namespaces", namespace);
    } else {
        return false;
    }
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Says in a namespace what keeps it from ending.
fn tell_remaining(server: &Server, namespace: &Value, inside: &[(Kind, Value)]) -> bool {
    if namespace.get_path(["status", "conditions"]).is_some() {
        return false;
    }
    let now = server.timestamp();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| value!({"type": kind, "status": status, "lastTransitionTime": (now.as_str()), "reason": reason, "message": message});
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut finalizers: HashMap<String, usize> = HashMap::new();
    for (kind, object) in inside {
        *counts.entry(crate::status::qualified(kind.plural(), kind.group())).or_default() += 1;
        let list = object.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
        for finalizer in list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str) {
            *finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    let mut remaining: Vec<String> =
        counts.iter().map(|(what, n)| format!("{what} has {n} resource instances")).collect();
    let mut waiting: Vec<String> =
        finalizers.iter().map(|(what, n)| format!("{what} in {n} resource instances")).collect();
    remaining.sort();
    waiting.sort();
    let conditions = vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        condition(
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            &format!("Some resources are remaining: {}", remaining.join(", ")),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            &format!(
                "Some content in the namespace has finalizers remaining: {}",
                waiting.join(", ")
            ),
        ),
    ];
    let mut state = server.write();
    let name = namespace.str_at(["metadata", "name"]).unwrap_or_default();
    let key = TableKey::new("", "namespaces");
    let Some(mut current) = state.store.get(&key, "", name).cloned() else { return false };
    let _ = current.set(["status", "conditions"], conditions);
    state.store.put(&key, current);
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Objects of a custom kind go before the kind.
fn end_definitions(server: &Server) -> bool {
    let key = TableKey::new("apiextensions.k8s.io", "customresourcedefinitions");
    let ending: Vec<Value> = {
        let state = server.read();
        let all = state.store.table(&key).into_iter().flat_map(|table| table.range("", None));
        all.map(|(_, definition)| definition.clone()).filter(is_deleted).collect()
    };
    let mut busy = false;
    for definition in ending {
        let text =
            |path: &[&str]| definition.str_at(path.iter().copied()).unwrap_or_default().to_owned();
        let table = TableKey::new(&text(&["spec", "group"]), &text(&["spec", "names", "plural"]));
        let inside: Vec<(Kind, Value)> = {
            let state = server.read();
            // One whose names are already taken has no objects.
            let is_served = state.kinds.custom(&table.group, &table.plural).is_some();
            let stored = state.store.table(&table).filter(|_| is_served);
            let objects = stored.into_iter().flat_map(|table| table.range("", None));
            objects
                .filter_map(|(_, object)| Some((kind_of(&state, &table, object)?, object.clone())))
                .collect()
        };
        for (kind, object) in inside.iter().filter(|(_, object)| !is_deleted(object)) {
            busy |= delete(server, kind, object, Propagation::Background);
        }
        let cleanup = "customresourcecleanup.apiextensions.k8s.io";
        let waits = definition.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
        let waits = waits.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(cleanup)));
        if inside.is_empty() && waits {
            busy |= drop_finalizer(server, &key, &definition, cleanup);
        }
    }
    busy
}

/// Gives custom kinds the names that became free, and tells of those that are not.
fn accept_definitions(server: &Server) -> bool {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    let key = TableKey::new(group, plural);
    let now = server.timestamp();
    let retold = |state: &ServerState, definition: &Value| {
        let mut new = definition.clone();
        names::tell(&state.kinds, &mut new, &now);
        (new.get("status") != definition.get("status")).then_some(new)
    };
    let stale: Vec<String> = {
        let state = server.read();
        let all = state.store.table(&key).into_iter().flat_map(|table| table.range("", None));
        let stale = all.filter(|(_, definition)| retold(&state, definition).is_some());
        stale.map(|((_, name), _)| name.to_string()).collect()
    };
    if stale.is_empty() {
        return false;
    }
    let mut state = server.write();
    for name in &stale {
        let stored = state.store.get(&key, "", name);
        if let Some(new) = stored.and_then(|definition| retold(&state, definition)) {
            write::store(&mut state, group, plural, new);
        }
    }
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Takes a finalizer from an object, and the object with its last one.
pub(crate) fn drop_finalizer(
    server: &Server,
    key: &TableKey,
    object: &Value,
    finalizer: &str,
) -> bool {
    let text = |field: &str| object.str_at(["metadata", field]).unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let mut state = server.write();
    let Some(mut current) = state.store.get(key, &namespace, &name).cloned() else { return false };
    let list = current
        .get_path(["metadata", "finalizers"])
        .and_then(Value::as_list)
        .map(|list| list.to_vec());
    let mut list = list.unwrap_or_default();
    let before = list.len();
    list.retain(|one| one.as_str() != Some(finalizer));
    if list.len() == before {
        return false;
    }
    if list.is_empty() {
        current.remove(["metadata", "finalizers"]);
    } else {
        let _ = current.set(["metadata", "finalizers"], list.clone());
    }
    if list.is_empty() && is_deleted(&current) {
        write::take(&mut state, &key.group, &key.plural, &namespace, &name);
    } else {
        write::store(&mut state, &key.group, &key.plural, current);
    }
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Garbage: what lost its owners goes, what is deleted in the foreground waits for what it owns.
fn collect(server: &Server) -> bool {
    struct Owned {
        key: TableKey,
        kind: Kind,
        object: Value,
        owners: Vec<(String, bool)>,
    }
    let mut uids: HashSet<String> = HashSet::new();
    let mut foreground: Vec<(TableKey, Value)> = Vec::new();
    let mut orphaning: Vec<(TableKey, Value)> = Vec::new();
    let mut owned: Vec<Owned> = Vec::new();
    {
        let state = server.read();
        for (key, table) in state.store.tables() {
            for (_, object) in table.range("", None) {
                uids.insert(object.str_at(["metadata", "uid"]).unwrap_or_default().to_owned());
                if is_deleted(object) {
                    let list = object.get_path(["metadata", "finalizers"]).and_then(Value::as_list);
                    for finalizer in
                        list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str)
                    {
                        match finalizer {
                            "foregroundDeletion" => foreground.push((key.clone(), object.clone())),
                            "orphan" => orphaning.push((key.clone(), object.clone())),
                            _ => {}
                        }
                    }
                }
                let list =
                    object.get_path(["metadata", "ownerReferences"]).and_then(Value::as_list);
                let Some(list) = list.filter(|list| !list.is_empty()) else { continue };
                let Some(kind) = kind_of(&state, key, object) else { continue };
                let owners = list
                    .iter()
                    .map(|owner| {
                        let blocks =
                            owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true);
                        (owner.str_at(["uid"]).unwrap_or_default().to_owned(), blocks)
                    })
                    .collect();
                owned.push(Owned { key: key.clone(), kind, object: object.clone(), owners });
            }
        }
    }
    let mut busy = false;
    let uid_of = |object: &Value| object.str_at(["metadata", "uid"]).unwrap_or_default().to_owned();
    for (key, owner) in &orphaning {
        let uid = uid_of(owner);
        for one in owned.iter().filter(|one| one.owners.iter().any(|(of, _)| *of == uid)) {
            busy |= drop_owner(server, &one.key, &one.object, &uid);
        }
        busy |= drop_finalizer(server, key, owner, "orphan");
    }
    // What was orphaned just now has other owners than were read; the next pass sees them.
    if busy {
        return true;
    }
    let foreground_uids: HashSet<String> =
        foreground.iter().map(|(_, object)| uid_of(object)).collect();
    for one in &owned {
        let lives =
            one.owners.iter().any(|(uid, _)| uids.contains(uid) && !foreground_uids.contains(uid));
        let waits = one.owners.iter().any(|(uid, _)| foreground_uids.contains(uid));
        if !lives && !is_deleted(&one.object) {
            let how = if waits { Propagation::Foreground } else { Propagation::Background };
            // Kubernetes: foreground deletion waits for dependents, and one without any goes at once.
            let how = if how == Propagation::Foreground
                && !owned
                    .iter()
                    .any(|other| other.owners.iter().any(|(uid, _)| *uid == uid_of(&one.object)))
            {
                Propagation::Background
            } else {
                how
            };
            busy |= delete(server, &one.kind, &one.object, how);
        }
    }
    for (key, owner) in &foreground {
        let uid = uid_of(owner);
        let blocked = owned.iter().any(|one| {
            one.owners.iter().any(|(of, blocks)| *of == uid && *blocks)
                && uids.contains(&uid_of(&one.object))
                && still_there(server, &one.key, &one.object)
        });
        if !blocked {
            busy |= drop_finalizer(server, key, owner, "foregroundDeletion");
        }
    }
    busy
}

fn still_there(server: &Server, key: &TableKey, object: &Value) -> bool {
    let text = |field: &str| object.str_at(["metadata", field]).unwrap_or_default();
    let state = server.read();
    let found = state.store.get(key, text("namespace"), text("name"));
    found.is_some_and(|found| found.str_at(["metadata", "uid"]) == Some(text("uid")))
}

/// Takes an owner from an object.
fn drop_owner(server: &Server, key: &TableKey, object: &Value, uid: &str) -> bool {
    let text = |field: &str| object.str_at(["metadata", field]).unwrap_or_default().to_owned();
    let mut state = server.write();
    let Some(mut current) = state.store.get(key, &text("namespace"), &text("name")).cloned() else {
        return false;
    };
    let list = current
        .get_path(["metadata", "ownerReferences"])
        .and_then(Value::as_list)
        .map(|list| list.to_vec());
    let mut list = list.unwrap_or_default();
    list.retain(|owner| owner.str_at(["uid"]) != Some(uid));
    if list.is_empty() {
        current.remove(["metadata", "ownerReferences"]);
    } else {
        let _ = current.set(["metadata", "ownerReferences"], list);
    }
    state.store.put(key, current);
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    true
}

/// Keeps the status of quotas as it should be.
fn quotas(server: &Server) -> bool {
    let key = TableKey::new("", "resourcequotas");
    let stale: Vec<(Value, Value)> = {
        let state = server.read();
        let all = state.store.table(&key).into_iter().flat_map(|table| table.range("", None));
        all.map(|(_, quota)| (quota.clone(), quota_status(&state, quota)))
            .filter(|(quota, status)| quota.get("status") != Some(status))
            .collect()
    };
    for (quota, status) in &stale {
        let text = |field: &str| quota.str_at(["metadata", field]).unwrap_or_default().to_owned();
        let mut state = server.write();
        let Some(mut current) = state.store.get(&key, &text("namespace"), &text("name")).cloned()
        else {
            continue;
        };
        let _ = current.set(["status"], status.clone());
        state.store.put(&key, current);
        let revision = state.store.revision();
        drop(state);
        server.host.changed(revision);
    }
    !stale.is_empty()
}

/// Roles that are put together from others by their labels.
fn aggregate_roles(server: &Server) -> bool {
    let key = TableKey::new("rbac.authorization.k8s.io", "clusterroles");
    let stale: Vec<(String, Vec<Value>)> = {
        let state = server.read();
        let all: Vec<&Value> = state
            .store
            .table(&key)
            .into_iter()
            .flat_map(|table| table.range("", None))
            .map(|(_, role)| role)
            .collect();
        let rules = |role: &Value| {
            role.get("rules").and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default()
        };
        let mut stale = Vec::new();
        for role in &all {
            let selectors =
                role.get_path(["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_list);
            let Some(selectors) = selectors else { continue };
            let name = role.str_at(["metadata", "name"]).unwrap_or_default();
            let selectors: Vec<Selector> =
                selectors.iter().filter_map(|one| Selector::from_value(one).ok()).collect();
            let mut wanted: Vec<Value> = Vec::new();
            for other in all.iter().filter(|other| other.str_at(["metadata", "name"]) != Some(name))
            {
                if selectors
                    .iter()
                    .any(|selector| selector.matches(crate::read::field_selector::labels(other)))
                {
                    wanted.extend(
                        rules(other)
                            .into_iter()
                            .filter(|rule| !wanted.contains(rule))
                            .collect::<Vec<_>>(),
                    );
                }
            }
            if rules(role) != wanted {
                stale.push((name.to_owned(), wanted));
            }
        }
        stale
    };
    for (name, rules) in &stale {
        let mut state = server.write();
        let Some(mut role) = state.store.get(&key, "", name).cloned() else { continue };
        let _ = role.set(["rules"], rules.clone());
        state.store.put(&key, role);
        let revision = state.store.revision();
        drop(state);
        server.host.changed(revision);
    }
    !stale.is_empty()
}
