//! A cluster in memory with a controller on it, moved step by step.
// Each test uses a part of it, and writes values in place.
#![allow(dead_code, unreachable_pub, clippy::needless_pass_by_value)]

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_cluster::{Call, Reason};
use kiln_controller::{
    ClaimKey, ClaimKeys, Controller, PolicySnapshot, Settings, StoredPolicy, TriggerReport,
};
use kiln_engine::{ObservedRequest, User};
use kiln_object::{Change, Gvk, Kinds, ObjectId, Selector, metadata};
use kiln_rules::{Operation, Policy};
use kiln_testkit::memory::Memory;
use kiln_value::{Value, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

/// Compiles Kyverno's policies, those in CEL as well.
pub struct Kyverno;

impl Kyverno {
    pub fn kinds(&self) -> Vec<Gvk> {
        let mut kinds: Vec<Gvk> =
            ["ClusterPolicy", "Policy"].map(|kind| Gvk::new("kyverno.io/v1", kind)).into();
        let cel = ["GeneratingPolicy", "NamespacedGeneratingPolicy", "MutatingPolicy"];
        kinds.extend(cel.map(|kind| Gvk::new("policies.kyverno.io/v1", kind)));
        let own = ["ClusterPolicy", "GeneratingPolicy"];
        kinds.extend(own.map(|kind| Gvk::new("kiln.dev/v1", kind)));
        kinds
    }

    pub fn compile(&self, policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, String> {
        let document = Document::from_value("policy", policy.clone(), ReadOptions::kubernetes());
        let compiled = kiln_dialects::compile([&document], kinds);
        let problems = || compiled.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
        compiled.policies.first().cloned().ok_or_else(|| problems().join("; "))
    }
}

pub struct World {
    pub memory: Memory,
    pub controller: Controller,
    /// Milliseconds.
    pub now: u64,
    pub user: String,
    pub settings: Settings,
    /// The policies that are stored, compiled once for each version, as a host keeps them for all its processes.
    stored: BTreeMap<ObjectId, StoredPolicy>,
    /// Policies were told up to this revision.
    told_upto: u64,
    /// Everything the controller asked for, since the last [`World::forget_calls`].
    pub calls: Vec<Call>,
    /// Everything that it told for reports, since the last [`World::forget_calls`].
    pub reports: Vec<TriggerReport>,
}

fn definition(group: &str, version: &str, scope: &str, kind: &str, plural: &str) -> Value {
    value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}}}],
        },
    })
}

impl World {
    pub fn new() -> Self {
        let mut memory = Memory::new();
        memory.set_time(1_000);
        memory.create(namespace("kyverno", value!({}))).unwrap();
        for (group, kind, plural, scope, version) in [
            ("kyverno.io", "ClusterPolicy", "clusterpolicies", "Cluster", "v1"),
            ("kyverno.io", "Policy", "policies", "Namespaced", "v1"),
            ("kyverno.io", "UpdateRequest", "updaterequests", "Namespaced", "v2"),
            ("policies.kyverno.io", "GeneratingPolicy", "generatingpolicies", "Cluster", "v1"),
            ("policies.kyverno.io", "MutatingPolicy", "mutatingpolicies", "Cluster", "v1"),
            ("kiln.dev", "ClusterPolicy", "clusterpolicies", "Cluster", "v1"),
            ("kiln.dev", "GeneratingPolicy", "generatingpolicies", "Cluster", "v1"),
            (
                "policies.kyverno.io",
                "NamespacedGeneratingPolicy",
                "namespacedgeneratingpolicies",
                "Namespaced",
                "v1",
            ),
        ] {
            memory.create(definition(group, version, scope, kind, plural)).unwrap();
        }
        let settings = Settings { claim_keys: claim_keys(7), ..Settings::default() };
        let controller = Controller::new(settings.clone(), memory.kinds().clone());
        let user = settings.user.to_string();
        let now = 1_000_000;
        World {
            memory,
            controller,
            now,
            user,
            settings,
            stored: BTreeMap::new(),
            told_upto: 0,
            calls: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// The same cluster with the kind of reports, for rules about reports.
    pub fn with_reports() -> Self {
        let mut world = World::new();
        let definition =
            definition("wgpolicyk8s.io", "v1alpha2", "Namespaced", "PolicyReport", "policyreports");
        world.memory.create(definition).unwrap();
        world.restart();
        world
    }

    /// A new process that knows nothing.
    pub fn restart(&mut self) {
        self.controller = Controller::new(self.settings.clone(), self.memory.kinds().clone());
    }

    /// Says which policies are stored.
    fn tell_policies(&mut self) {
        let all = Selector::everything();
        let mut before = std::mem::take(&mut self.stored);
        for kind in Kyverno.kinds() {
            let listed = self.memory.list(&kind, None, &all, None, None);
            for object in listed.map(|listing| listing.objects).unwrap_or_default() {
                let id = ObjectId::of(&object).unwrap();
                let version = metadata::resource_version(&object).map(str::to_owned);
                let known = before.remove(&id).filter(|known| {
                    metadata::resource_version(&known.object) == version.as_deref()
                });
                let stored = known.unwrap_or_else(|| StoredPolicy {
                    id: id.clone(),
                    compiled: Kyverno.compile(&object, self.memory.kinds()),
                    object,
                });
                self.stored.insert(id, stored);
            }
        }
        let snapshot = PolicySnapshot {
            stored: self.stored.values().cloned().collect(),
            ended: self.ended_policies(),
            ..PolicySnapshot::default()
        };
        self.controller.set_policies(snapshot, self.now);
    }

    /// The policies that were deleted since this was last asked, as they were last.
    fn ended_policies(&mut self) -> Vec<StoredPolicy> {
        let after = std::mem::replace(&mut self.told_upto, self.memory.revision());
        let mut ended = Vec::new();
        for kind in Kyverno.kinds() {
            // What a server has forgotten is not told.
            let events = self.memory.changes(&kind, after, usize::MAX).unwrap_or_default();
            for event in events.into_iter().filter(|event| event.change == Change::Deleted) {
                let id = ObjectId::of(&event.object).unwrap();
                let compiled = Kyverno.compile(&event.object, self.memory.kinds());
                ended.push(StoredPolicy { id, object: event.object, compiled });
            }
        }
        ended
    }

    /// Lets watches tell what happened.
    pub fn deliver(&mut self) {
        self.tell_policies();
        for (gvk, after) in self.controller.watches() {
            match self.memory.watch(&self.user, &gvk, after, 1_000) {
                Ok((events, upto)) => {
                    for event in events {
                        self.controller.watched(&gvk, &event, self.now);
                    }
                    self.controller.watched_upto(&gvk, upto);
                }
                Err(error) if error.reason == Reason::Gone => self.controller.watch_lost(&gvk),
                Err(_) => {}
            }
        }
    }

    /// One round: calls are carried out and answered.
    pub fn step(&mut self) -> bool {
        let requests = self.controller.poll(self.now);
        let some = !requests.is_empty();
        for request in requests {
            let answer = self.memory.call(&self.user, &request.call);
            self.calls.push(request.call);
            self.controller.answer(request.ticket, answer, self.now);
        }
        while let Some(told) = self.controller.take_report() {
            self.reports.push(told);
        }
        some
    }

    /// Until nothing is left to do at this time.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            self.memory.set_time(i64::try_from(self.now / 1000).unwrap());
            self.deliver();
            let stepped = self.step();
            self.deliver();
            if !stepped && self.controller.is_idle() {
                return;
            }
        }
        panic!(
            "the controller does not become idle: {:?}",
            self.calls.iter().rev().take(8).collect::<Vec<_>>()
        );
    }

    /// Lets time pass, and everything that is due happen.
    pub fn pass_time(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        self.settle();
        for _ in 0..100_000 {
            match self.controller.next_time() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    pub fn seconds(&mut self, seconds: u64) {
        self.pass_time(seconds * 1000);
    }

    pub fn apply(&mut self, yaml: &str) {
        let documents = read_bytes("applied", yaml.as_bytes(), ReadOptions::kubernetes()).unwrap();
        for document in documents {
            self.put(document.value().clone());
        }
    }

    /// Creates or replaces an object.
    pub fn put(&mut self, object: Value) -> Value {
        let id = ObjectId::of(&object).unwrap();
        match self.memory.get(&id) {
            Ok(live) => {
                let mut object = object;
                if object.get_path(["metadata", "resourceVersion"]).is_none() {
                    let version = metadata::resource_version(&live).unwrap().to_owned();
                    object.set(["metadata", "resourceVersion"], version).unwrap();
                }
                self.memory.update(object).unwrap()
            }
            Err(_) => self.memory.create(object).unwrap(),
        }
    }

    /// Puts an object as a user whose request an admission webhook sees.
    pub fn put_as(&mut self, user: &User, object: Value) {
        let id = ObjectId::of(&object).unwrap();
        let old = self.memory.get(&id).ok();
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        self.hint(user, operation, &id, Some(object.clone()), old);
        self.put(object);
    }

    pub fn delete_as(&mut self, user: &User, id: &ObjectId) {
        let old = self.memory.get(id).ok();
        self.hint(user, Operation::Delete, id, None, old);
        self.memory.delete(id).unwrap();
    }

    pub fn hint(
        &mut self,
        user: &User,
        operation: Operation,
        id: &ObjectId,
        object: Option<Value>,
        old_object: Option<Value>,
    ) {
        let hint = hint(user, operation, id, object, old_object);
        self.controller.hint(hint, self.now);
    }

    /// Writes a hint down, as a process does that only answers requests.
    pub fn carry(&mut self, hint: &ObservedRequest) {
        self.memory
            .create(hint.to_request(&Settings::default().requests.kind, "kyverno", &[], "1"))
            .unwrap();
    }

    /// How many hints are written down.
    pub fn carried(&self) -> usize {
        let requests = self.all(&Gvk::new("kyverno.io/v2", "UpdateRequest"));
        requests.iter().filter(|request| ObservedRequest::of_request(request).is_some()).count()
    }

    pub fn get(&self, id: &ObjectId) -> Option<Value> {
        self.memory.get(id).ok()
    }

    pub fn has(&self, id: &ObjectId) -> bool {
        self.memory.has(id)
    }

    pub fn delete(&mut self, id: &ObjectId) {
        self.memory.delete(id).unwrap();
    }

    pub fn edit(&mut self, id: &ObjectId, path: &[&str], value: impl Into<Value>) {
        let mut object = self.memory.get(id).unwrap();
        object.set(path.iter().copied(), value).unwrap();
        self.memory.update(object).unwrap();
    }

    pub fn all(&self, gvk: &Gvk) -> Vec<Value> {
        let all = Selector::everything();
        self.memory.list(gvk, None, &all, None, None).map(|l| l.objects).unwrap_or_default()
    }

    pub fn forget_calls(&mut self) {
        self.calls.clear();
        self.reports.clear();
    }

    /// Writes other than to the controller's own records.
    pub fn writes(&self) -> Vec<&Call> {
        self.calls
            .iter()
            .filter(|call| call.changes())
            .filter(|call| call.about().namespace != "kyverno")
            .collect()
    }

    /// What there is to say when something is not as it should be.
    pub fn explain(&self) -> String {
        let broken: Vec<_> = self.controller.broken_policies().collect();
        let rules: Vec<_> = self.controller.rules().map(ToString::to_string).collect();
        let calls: Vec<_> =
            self.calls.iter().map(|call| format!("{} {}", call.verb(), call.about())).collect();
        let conditions = self.conditions();
        format!("rules {rules:?}, broken {broken:?}, conditions {conditions:?}, calls {calls:#?}")
    }

    pub fn conditions(&self) -> Vec<String> {
        let conditions = self.controller.conditions();
        conditions.map(|(_, c)| format!("{:?}: {}", c.reason, c.message)).collect()
    }
}

/// Keys of which the bytes are all the same, and the name as well.
pub fn claim_keys(byte: u8) -> ClaimKeys {
    ClaimKeys::new(vec![ClaimKey { name: format!("{byte}-key").into(), secret: [byte; 32] }])
}

/// What a request says.
pub fn hint(
    user: &User,
    operation: Operation,
    id: &ObjectId,
    object: Option<Value>,
    old_object: Option<Value>,
) -> ObservedRequest {
    ObservedRequest {
        operation,
        kind: id.gvk.clone(),
        subresource: "".into(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        object,
        old_object,
        user: user.clone(),
        dry_run: false,
        passed_over: false,
        request: None,
    }
}

pub fn namespace(name: &str, labels: Value) -> Value {
    value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": data,
    })
}

pub fn secret(namespace: &str, name: &str, data: Value) -> Value {
    value!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace}, "stringData": data,
    })
}

pub fn id(kind: &str, namespace: &str, name: &str) -> ObjectId {
    let api_version = match kind {
        "ClusterPolicy" | "Policy" => "kyverno.io/v1",
        "GeneratingPolicy" | "NamespacedGeneratingPolicy" => "policies.kyverno.io/v1",
        "UpdateRequest" => "kyverno.io/v2",
        "PolicyReport" | "ClusterPolicyReport" => "wgpolicyk8s.io/v1alpha2",
        _ => "v1",
    };
    ObjectId::new(Gvk::new(api_version, kind), namespace, name)
}

/// A policy with one generate rule.
pub fn policy(name: &str, matching: &str, generate: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: {name}}}
spec:
  background: false
  rules:
  - name: r
    match: {{any: [{{resources: {matching}}}]}}
    generate: {generate}
"
    )
}

/// Triggers that carry a label.
pub const ON: &str = "{kinds: [ConfigMap], selector: {matchLabels: {app: 'on'}}}";

/// A policy that makes a Secret of each trigger.
pub fn made_secret(synchronize: bool) -> String {
    let generate = format!(
        "{{synchronize: {synchronize}, apiVersion: v1, kind: Secret, name: '{{{{request.object.metadata.name}}}}-made',
      namespace: default, data: {{stringData: {{k: '{{{{request.object.data.k}}}}'}}}}}}"
    );
    policy("p", ON, &generate)
}

/// A trigger of [`made_secret`].
pub fn trigger(name: &str, k: &str) -> Value {
    let mut trigger = config_map("default", name, value!({"k": k}));
    metadata::set_label(&mut trigger, "app", "on").unwrap();
    trigger
}

/// What [`made_secret`] makes of the trigger `t`.
pub fn made() -> ObjectId {
    id("Secret", "default", "t-made")
}

/// A user.
pub fn nancy() -> User {
    User { username: "nancy".into(), ..User::default() }
}

/// A user whom [`creator_policy`] leaves alone.
pub fn admin() -> User {
    User {
        username: "admin".into(),
        cluster_roles: vec!["cluster-admin".into()],
        ..User::default()
    }
}

/// A policy that makes `t-made` of each trigger, unless an administrator sent it.
pub fn creator_policy() -> String {
    policy(
        "p",
        ON,
        "{synchronize: true, apiVersion: v1, kind: Secret, name: t-made, namespace: default, data: {stringData: {by: '{{request.userInfo.username}}'}}}",
    )
    .replace("    generate:", "    exclude: {any: [{clusterRoles: [cluster-admin]}]}\n    generate:")
}
