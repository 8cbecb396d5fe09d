//! Random histories: a few kinds, few names and few values, so that requests meet.

mod lifecycles;

use kiln_value::{Value, json, value};

use super::history::{Action, Body, Operation};
use super::objects::{KINDS, Kind};
use crate::compare::dice::Dice;

/// The managers of fields.
const MANAGERS: [&str; 3] = ["ann", "bob", "kubectl"];

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The history of a seed.
pub(super) fn history(seed: u64) -> Vec<Operation> {
    let mut maker = Maker { dice: Dice::new(seed), operations: Vec::new(), generates: false };
    for _ in 0..8 {
        // The first numbers of neighboring seeds are alike.
        maker.dice.roll(2);
    }
    match maker.dice.roll(60) {
        0 => maker.definition(),
        1..=3 => maker.ending_namespace(),
        _ => maker.usual(),
    }
    maker.operations
}

struct Maker {
    dice: Dice,
    operations: Vec<Operation>,
    /// Whether names are made up: then lists have no order that both servers share, and are not cut.
    generates: bool,
}

impl Maker {
    fn push(
        &mut self,
        action: Action,
        path: String,
        content: &'static str,
        body: Body,
    ) -> &mut Operation {
        let number = self.operations.len();
        self.operations.push(Operation {
            number,
            action,
            path,
            query: Vec::new(),
            accept: None,
            content,
            body,
        });
        &mut self.operations[number]
    }

    fn send(
        &mut self,
        method: &'static str,
        path: String,
        content: &'static str,
        body: Body,
    ) -> &mut Operation {
        self.push(Action::Send(method), path, content, body)
    }

    /// Life and death of a few objects.
    fn usual(&mut self) {
        let first = self.kind();
        let second = if self.dice.once_in(3) { self.kind() } else { first };
        self.generates = self.dice.once_in(5);
        let length = 4 + self.dice.roll(10);
        self.create(first);
        while self.operations.len() < length {
            let kind = if self.dice.once_in(2) { first } else { second };
            match self.dice.roll(22) {
                0..=3 => self.create(kind),
                4..=5 => self.update(kind),
                6..=10 => self.patch(kind),
                11..=12 => self.apply(kind),
                13..=14 => self.delete(kind),
                15 => self.delete_many(kind),
                16..=17 => self.list(kind),
                18 => self.get(kind),
                19 => self.watch(kind),
                _ => self.subresource(kind),
            }
        }
    }

    fn kind(&mut self) -> &'static Kind {
        // The first ones hold most of what there is to differ.
        let few = if self.dice.once_in(2) { 4 } else { KINDS.len() };
        &KINDS[self.dice.roll(few)]
    }

    /// The path of an object.
    fn object_path(&mut self, kind: &Kind) -> String {
        let made: Vec<usize> = self
            .operations
            .iter()
            .filter(|one| matches!(&one.body, Body::Value(body) if one.path == kind.collection() && body.get_path(["metadata", "generateName"]).is_some()))
            .map(|one| one.number)
            .collect();
        if !made.is_empty() && self.dice.once_in(2) {
            let number = made[self.dice.roll(made.len())];
            return format!("{}/${{made {number}}}", kind.collection());
        }
        if kind.kind == "Namespace" && self.dice.once_in(2) {
            return "/api/v1/namespaces/${ns}".to_owned();
        }
        format!("{}/{}", kind.collection(), kind.name(&mut self.dice))
    }

    fn write_options(&mut self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.dice.once_in(3) {
            query.push(("fieldManager", self.dice.one(&MANAGERS).to_owned()));
        }
        if self.dice.once_in(8) {
            query.push(("dryRun", self.dice.one(&["All", "All", "Some"]).to_owned()));
        }
        if self.dice.once_in(4) {
            let validation = self.dice.one(&["Strict", "Warn", "Ignore", "Other"]);
            query.push(("fieldValidation", validation.to_owned()));
        }
        query
    }

    fn create(&mut self, kind: &Kind) {
        let name = kind.name(&mut self.dice);
        let mut body = kind.object(&mut self.dice, &name);
        if self.generates && self.dice.once_in(2) {
            body.remove(["metadata", "name"]);
            let prefix =
                if kind.is_namespaced { "made-".to_owned() } else { "${ns}-made-".to_owned() };
            let _ = body.set(["metadata", "generateName"], prefix);
        }
        if self.dice.once_in(8) && !self.operations.is_empty() {
            let owner = self.object_path(kind);
            let name = owner.rsplit('/').next().unwrap_or_default().to_owned();
            let reference = value!({"apiVersion": (kind.api_version), "kind": (kind.kind), "name": name, "uid": (format!("${{uid {owner}}}"))});
            let _ = body.set(["metadata", "ownerReferences"], value!([reference]));
        }
        let query = self.write_options();
        let accept = self
            .dice
            .once_in(12)
            .then_some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        let operation = self.send("POST", kind.collection(), JSON, Body::Value(body));
        (operation.query, operation.accept) = (query, accept);
    }

    fn versioned(&mut self, path: &str, mut edit: Value) -> Value {
        let version = match self.dice.roll(8) {
            0 => Value::Null,
            1 => Value::from(format!("${{old {path}}}")),
            2 => Value::from(self.dice.one(&["0", "1", "x", "99999999"])),
            _ => return edit,
        };
        let _ = edit.set(["metadata", "resourceVersion"], version);
        edit
    }

    fn update(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        let edit = kind.edit(&mut self.dice);
        let mut edit = self.versioned(&path, edit);
        match self.dice.roll(14) {
            0 => drop(edit.set(["metadata", "uid"], "00000000-0000-4000-8000-000000000000")),
            1 => drop(edit.set(["metadata", "managedFields"], Value::list())),
            2 => drop(edit.set(["metadata", "deletionTimestamp"], Value::Null)),
            3 => drop(edit.set(["metadata", "creationTimestamp"], Value::Null)),
            4 => drop(edit.set(["metadata", "generation"], 17)),
            _ => {}
        }
        let body = if self.dice.once_in(5) {
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            Body::Value(kind.object(&mut self.dice, &name))
        } else {
            Body::Seen(path.clone(), edit)
        };
        let query = self.write_options();
        self.send("PUT", path, JSON, body).query = query;
    }

    fn patch(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        let query = self.write_options();
        let (content, body) = self.patch_body(kind, &path);
        self.send("PATCH", path, content, Body::Value(body)).query = query;
    }

    fn patch_body(&mut self, kind: &Kind, path: &str) -> (&'static str, Value) {
        match self.dice.roll(5) {
            0 | 1 => {
                let edit = kind.edit(&mut self.dice);
                (MERGE, self.versioned(path, edit))
            }
            2 | 3 if kind.is_builtin || self.dice.once_in(8) => {
                let edit = kind.edit(&mut self.dice);
                let mut edit = self.versioned(path, edit);
                if self.dice.once_in(6) {
                    let _ = edit.set(
                        ["metadata", "$deleteFromPrimitiveList/finalizers"],
                        value!(["example.com/hold"]),
                    );
                }
                (STRATEGIC, edit)
            }
            _ => (JSON_PATCH, self.json_patch(kind)),
        }
    }

    fn json_patch(&mut self, kind: &Kind) -> Value {
        let operations: Vec<Value> = (0..=self.dice.roll(2))
            .map(|_| match self.dice.roll(9) {
                0 => value!({"op": "add", "path": "/metadata/labels/app", "value": "z"}),
                1 => value!({"op": "remove", "path": "/metadata/labels/app"}),
                2 => value!({"op": "remove", "path": "/metadata/finalizers"}),
                3 => value!({"op": "test", "path": "/metadata/labels/app", "value": "a"}),
                4 => value!({"op": "replace", "path": "/metadata/annotations", "value": {"note": "9"}}),
                5 => value!({"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/name"}),
                6 => value!({"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/moved"}),
                7 => value!({"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/more"}),
                _ => {
                    let edit = kind.edit(&mut self.dice);
                    let field = edit.as_map().and_then(|map| map.iter().next()).map(|(key, value)| (key.as_str().to_owned(), value.clone()));
                    let (field, value) = field.unwrap_or_else(|| ("data".to_owned(), value!({"a": "5"})));
                    value!({"op": "add", "path": (format!("/{field}")), "value": (plain(&value))})
                }
            })
            .collect();
        Value::from(operations)
    }

    fn apply(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let body = if self.dice.once_in(2) {
            kind.object(&mut self.dice, &name)
        } else {
            let mut body = value!({"apiVersion": (kind.api_version), "kind": (kind.kind), "metadata": {"name": name}});
            let edit = kind.edit(&mut self.dice);
            kiln_patch::merge_patch(&mut body, &edit, kiln_patch::MergeRules::kubernetes());
            body
        };
        let mut query = self.write_options();
        query.retain(|(name, _)| *name != "fieldManager");
        if !self.dice.once_in(15) {
            query.push(("fieldManager", self.dice.one(&MANAGERS).to_owned()));
        }
        if self.dice.once_in(3) {
            query.push(("force", self.dice.one(&["true", "false"]).to_owned()));
        }
        self.send("PATCH", path, APPLY, Body::Value(body)).query = query;
    }

    fn delete_options(&mut self, path: &str) -> (Vec<(&'static str, String)>, Body) {
        let mut query = Vec::new();
        if self.dice.once_in(8) {
            query.push(("dryRun", "All".to_owned()));
        }
        let policy = self.dice.one(&["Foreground", "Background", "Orphan", "Other"]);
        let mut body = value!({"apiVersion": "v1", "kind": "DeleteOptions"});
        match self.dice.roll(8) {
            0..=2 => return (query, Body::Nothing),
            3 => {
                query.push(("propagationPolicy", policy.to_owned()));
                return (query, Body::Nothing);
            }
            4 | 5 => drop(body.set(["propagationPolicy"], policy)),
            6 => {
                let which = self.dice.one(&["rv", "old"]);
                let _ = body.set(
                    ["preconditions"],
                    value!({"resourceVersion": (format!("${{{which} {path}}}"))}),
                );
            }
            _ => {
                let uid = if self.dice.once_in(2) {
                    format!("${{uid {path}}}")
                } else {
                    "other".to_owned()
                };
                let _ = body.set(["preconditions"], value!({"uid": uid}));
            }
        }
        if self.dice.once_in(6) {
            let _ = body.set(["gracePeriodSeconds"], value!(self.dice.roll(2)));
        }
        (query, Body::Value(body))
    }

    fn delete(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        let (query, body) = self.delete_options(&path);
        self.send("DELETE", path, JSON, body).query = query;
    }

    fn selection(&mut self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.dice.once_in(2) {
            let labels = [
                "app=a",
                "app!=a",
                "app in (a,b)",
                "app notin (a)",
                "app",
                "!app",
                "app=a,history",
                "app ==",
                "x in",
            ];
            query.push(("labelSelector", self.dice.one(&labels).to_owned()));
        } else if self.dice.once_in(2) {
            let fields = [
                "metadata.name=a",
                "metadata.name!=a",
                "metadata.namespace=${ns}",
                "spec.color=blue",
                "status.phase=Pending",
                "type=Opaque",
                "spec.x=1",
            ];
            query.push(("fieldSelector", self.dice.one(&fields).to_owned()));
        }
        query
    }

    /// A selection of objects of this history.
    fn selection_of(&mut self, kind: &Kind) -> Vec<(&'static str, String)> {
        if kind.is_namespaced {
            return self.selection();
        }
        // Histories share what lies in no namespace.
        let rest = self.dice.one(&["", ",app=a", ",app!=b"]);
        vec![("labelSelector", format!("history=${{ns}}{rest}"))]
    }

    fn delete_many(&mut self, kind: &Kind) {
        if kind.plural == "services" || kind.plural == "serviceaccounts" || kind.kind == "Namespace"
        {
            return;
        }
        let (mut query, body) = self.delete_options("");
        query.extend(self.selection_of(kind));
        self.send("DELETE", kind.collection(), JSON, body).query = query;
    }

    fn list(&mut self, kind: &Kind) {
        if kind.plural == "serviceaccounts" {
            return;
        }
        let mut query = self.selection_of(kind);
        let is_cut = !self.generates && self.dice.once_in(3);
        if is_cut {
            query.push(("limit", self.dice.one(&["1", "2", "x"]).to_owned()));
        }
        if self.dice.once_in(5) {
            let version = self.dice.one(&["0", "1", "99999999", "${list 3}", "x"]);
            query.push(("resourceVersion", version.to_owned()));
            if self.dice.once_in(2) {
                query.push((
                    "resourceVersionMatch",
                    self.dice.one(&["Exact", "NotOlderThan", "Other"]).to_owned(),
                ));
            }
        }
        let accept = match self.dice.roll(8) {
            0 => Some("application/json;as=Table;v=v1;g=meta.k8s.io"),
            1 => Some("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
            _ => None,
        };
        let number = self.operations.len();
        let operation = self.send("GET", kind.collection(), JSON, Body::Nothing);
        (operation.query, operation.accept) = (query.clone(), accept);
        if is_cut {
            if self.dice.once_in(2) {
                self.create(kind);
            }
            query.retain(|(name, _)| !name.starts_with("resourceVersion"));
            query.push(("continue", format!("${{next {number}}}")));
            self.send("GET", kind.collection(), JSON, Body::Nothing).query = query;
        }
    }

    fn get(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        let accept = self.dice.once_in(5).then_some("application/json;as=Table;v=v1;g=meta.k8s.io");
        self.send("GET", path, JSON, Body::Nothing).accept = accept;
    }

    fn watch(&mut self, kind: &Kind) {
        if kind.plural == "serviceaccounts" {
            return;
        }
        let mut query = self.selection_of(kind);
        let lists: Vec<usize> = self
            .operations
            .iter()
            .filter(|one| one.action == Action::Send("GET") && one.path == kind.collection())
            .map(|one| one.number)
            .collect();
        match self.dice.roll(6) {
            0 => query.push(("resourceVersion", "0".to_owned())),
            1 => query.extend([
                ("sendInitialEvents", "true".to_owned()),
                ("resourceVersionMatch", "NotOlderThan".to_owned()),
                ("allowWatchBookmarks", "true".to_owned()),
            ]),
            2 | 3 if !lists.is_empty() => {
                let number = lists[self.dice.roll(lists.len())];
                query.push(("resourceVersion", format!("${{list {number}}}")));
            }
            4 => {
                let path = self.object_path(kind);
                query.push(("resourceVersion", format!("${{rv {path}}}")));
            }
            _ => {}
        }
        let accept = self
            .dice
            .once_in(8)
            .then_some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        let operation = self.push(Action::Watch, kind.collection(), JSON, Body::Nothing);
        (operation.query, operation.accept) = (query, accept);
    }

    fn subresource(&mut self, kind: &Kind) {
        let path = self.object_path(kind);
        if kind.has_scale && self.dice.once_in(2) {
            return self.scale(&path);
        }
        if !kind.has_status {
            return self.patch(kind);
        }
        let query = self.write_options();
        let status = self.status(kind);
        let at = format!("{path}/status");
        if self.dice.once_in(3) {
            let edit = self.versioned(
                &path,
                value!({"status": status, "metadata": {"labels": {"from": "status"}}}),
            );
            self.send("PUT", at, JSON, Body::Seen(path, edit)).query = query;
            return;
        }
        let mut body = value!({"status": status});
        if self.dice.once_in(4) {
            let _ = body.set(["metadata"], value!({"annotations": {"from": "status"}}));
        }
        if self.dice.once_in(4) {
            let name = path.rsplit('/').next().unwrap_or_default();
            let mut body = body.clone();
            let _ = body.set(["apiVersion"], kind.api_version);
            let _ = body.set(["kind"], kind.kind);
            let _ = body.set(["metadata", "name"], name);
            let operation = self.send("PATCH", at, APPLY, Body::Value(body));
            operation.query = vec![("fieldManager", "ann".to_owned())];
            return;
        }
        let content = if kind.is_builtin && self.dice.once_in(2) { STRATEGIC } else { MERGE };
        self.send("PATCH", at, content, Body::Value(body)).query = query;
    }

    fn status(&mut self, kind: &Kind) -> Value {
        let text = match kind.kind {
            "Widget" => self.dice.one(&[
                r#"{"phase":"Ready"}"#,
                r#"{"phase":"Odd"}"#,
                r#"{"replicas":2,"selector":"app=a","x":1}"#,
            ]),
            "Deployment" => self.dice.one(&[
                r#"{"replicas":2,"readyReplicas":1}"#,
                r#"{"observedGeneration":1,"conditions":[{"type":"Available","status":"True"}]}"#,
                r#"{"replicas":-1}"#,
            ]),
            "Namespace" => r#"{"conditions":[{"type":"Odd","status":"True"}]}"#,
            "Pod" => self.dice.one(&[
                r#"{"phase":"Running","podIP":"10.0.0.1"}"#,
                r#"{"conditions":[{"type":"Ready","status":"True"}]}"#,
            ]),
            "PersistentVolumeClaim" => r#"{"phase":"Bound"}"#,
            "ReplicaSet" | "StatefulSet" => {
                self.dice.one(&[r#"{"replicas":1}"#, r#"{"replicas":1,"readyReplicas":2}"#])
            }
            _ => "{}",
        };
        json::parse(text).unwrap_or_else(|_| Value::map())
    }

    fn scale(&mut self, path: &str) {
        let at = format!("{path}/scale");
        let name = path.rsplit('/').next().unwrap_or_default();
        let replicas = value!(self.dice.roll(5) as i64 - 1);
        let query = self.write_options();
        match self.dice.roll(4) {
            0 => drop(self.send("GET", at, JSON, Body::Nothing)),
            1 => {
                let mut body = value!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": "${ns}"}, "spec": {"replicas": replicas}});
                if self.dice.once_in(3) {
                    let _ = body.set(["metadata", "resourceVersion"], format!("${{old {path}}}"));
                }
                self.send("PUT", at, JSON, Body::Value(body)).query = query;
            }
            2 => {
                let body = value!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": replicas}});
                let operation = self.send("PATCH", at, APPLY, Body::Value(body));
                operation.query = vec![("fieldManager", "bob".to_owned())];
            }
            _ => {
                self.send(
                    "PATCH",
                    at,
                    MERGE,
                    Body::Value(value!({"spec": {"replicas": replicas}})),
                )
                .query = query;
            }
        }
    }
}

/// The value without `null`s, which JSON patches would write.
fn plain(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Map(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        other => other.clone(),
    }
}
