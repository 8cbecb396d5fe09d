//! Inputs: requests that both sides are asked about, and the objects that are there then.

use kiln_engine::{Event, User};
use kiln_object::kinds::usual_plural;
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_offline::Objects;
use kiln_rules::{KindPattern, Operation};
use kiln_value::{Map, Str, Value, value};

use crate::PolicySide;
use crate::chance::Chance;
use crate::sketch::{self, Fullness, Sketch};
use crate::trigger_hints::{self, TriggerHint};
use crate::words::Words;

/// A request, and what the cluster has.
#[derive(Clone, Debug)]
pub struct Input {
    pub operation: Operation,
    /// The kind of the object; for a subresource, of its parent.
    pub kind: Gvk,
    pub subresource: Str,
    /// The object; that which is deleted, for a deletion.
    pub object: Value,
    /// The object before an update.
    pub old_object: Option<Value>,
    pub user: Option<User>,
    /// Objects that are there.
    pub others: Vec<Value>,
}

impl Input {
    /// The input as an event of the engine.
    pub(crate) fn event(&self) -> Event {
        let mut event = match (self.operation, &self.old_object) {
            (Operation::Delete, _) => Event::deleted(self.object.clone()),
            (Operation::Update, Some(old)) => Event::updated(old.clone(), self.object.clone()),
            _ => Event::created(self.object.clone()),
        };
        event.operation = Some(self.operation);
        event.matched_as = self.operation;
        event.kind = self.kind.clone();
        event.subresource = self.subresource.clone();
        event.user.clone_from(&self.user);
        event
    }

    pub(crate) fn view(&self) -> Objects {
        let mut objects = Objects::default();
        for object in &self.others {
            if let Ok(id) = ObjectId::of(object) {
                objects.insert(&id, object.clone());
            }
        }
        objects
    }
}

/// What inputs are made of.
pub(crate) struct InputMaker<'m> {
    pub(crate) words: Words,
    kinds: &'m Kinds,
    targets: Vec<Target>,
    /// Kinds that policies read.
    read: Vec<(Gvk, Sketch)>,
    names: Vec<String>,
    namespaces: Vec<String>,
    users: Vec<User>,
    /// What rules ask of objects besides the kind.
    hints: Vec<TriggerHint>,
    chance: Chance,
    made: usize,
}

struct Target {
    gvk: Gvk,
    subresource: Str,
    sketch: Sketch,
    namespaced: bool,
}

/// So many kinds are tried where rules name more.
const MOST_KINDS: usize = 8;

impl<'m> InputMaker<'m> {
    pub(crate) fn new(sides: [&PolicySide; 2], kinds: &'m Kinds, seed: u64) -> Self {
        let words = Words::of(sides.iter().flat_map(|side| &side.documents));
        let named = named_kinds(&sides);
        let mut targets: Vec<Target> = Vec::new();
        for side in sides {
            for rule in side.rules.rules() {
                let filters = rule.trigger.include.filters();
                for pattern in filters.iter().flat_map(|filter| &filter.kinds) {
                    for (gvk, namespaced) in kinds_of(pattern, kinds, &named) {
                        let known = |target: &Target| {
                            target.gvk == gvk && target.subresource == pattern.subresource
                        };
                        if targets.len() >= MOST_KINDS || targets.iter().any(known) {
                            continue;
                        }
                        let (version, kind) = (gvk.api_version(), gvk.kind.to_string());
                        let sketch = sketch::of_kind(&version, &kind, &words);
                        targets.push(Target {
                            gvk,
                            subresource: plain(&pattern.subresource),
                            sketch,
                            namespaced,
                        });
                    }
                }
            }
        }
        let read = kinds
            .iter()
            .filter(|kind| words.names.contains(kind.plural()) || words.names.contains(kind.kind()))
            .filter(|kind| kind.is_storage() || kind.is_served())
            .take(6)
            .map(|kind| {
                let gvk = kind.gvk();
                let sketch = sketch::of_kind(&gvk.api_version(), &gvk.kind, &words);
                (gvk, sketch)
            })
            .collect();
        let is_name = |text: &&String| {
            !text.is_empty()
                && text.len() < 60
                && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        let mut names: Vec<String> = words.texts.iter().filter(is_name).take(12).cloned().collect();
        names.extend(words.keys.iter().filter(is_name).take(12).cloned());
        let mut namespaces = names.clone();
        names.push("test".to_owned());
        namespaces.extend(["default", "kube-system"].map(str::to_owned));
        let mut users = vec![user("alice", &["system:authenticated"])];
        for text in words.texts.iter().chain(&words.names) {
            if text.starts_with("system:")
                || words.names.contains("subjects")
                || words.names.contains("userInfo")
            {
                users.push(user(text, &["system:authenticated"]));
                users.push(user("bob", &[text]));
            }
        }
        if words.names.contains("clusterRoles") || words.names.contains("cluster") {
            let mut admin = user("admin", &["system:masters"]);
            admin.cluster_roles = vec!["cluster-admin".into()];
            users.push(admin);
        }
        let rules = sides.iter().flat_map(|side| side.rules.rules());
        let hints = rules.flat_map(|rule| trigger_hints::of_rule(rule)).collect();
        InputMaker {
            words,
            kinds,
            targets,
            read,
            names,
            namespaces,
            users,
            hints,
            chance: Chance::new(seed),
            made: 0,
        }
    }

    /// The next input: first the least and the most of every kind, then by chance.
    pub(crate) fn next(&mut self) -> Option<Input> {
        let number = self.made;
        self.made += 1;
        let count = self.targets.len();
        if count == 0 {
            return None;
        }
        let at = number % count;
        let round = number / count;
        let fullness = match round {
            0 => Fullness::Least,
            1 => Fullness::Most,
            _ => Fullness::Some,
        };
        let operation = match round {
            0 | 1 => Operation::Create,
            _ => match self.chance.below(10) {
                0 | 1 => Operation::Update,
                2 => Operation::Delete,
                _ => Operation::Create,
            },
        };
        let subresource = self.targets[at].subresource.clone();
        let operation = match subresource.as_str() {
            "exec" | "attach" | "portforward" | "proxy" => Operation::Connect,
            _ => operation,
        };
        let hint = self.hint();
        let object = self.object(at, fullness, hint.as_ref());
        let old_object = (operation == Operation::Update).then(|| {
            let mut old = match self.chance.percent(40) {
                true => object.clone(),
                false => {
                    let hint = self.hint();
                    self.object(at, Fullness::Some, hint.as_ref())
                }
            };
            for field in ["name", "namespace"] {
                if let Some(value) = object.get_path(["metadata", field]).cloned() {
                    let _ = old.set(["metadata", field], value);
                }
            }
            old
        });
        let user = self.chance.pick(&self.users.clone()).cloned();
        let mut others = self.others(&object, hint.as_ref());
        if let Some(user) = &user {
            others.extend(user.cluster_roles.iter().map(|role| binding(user, role)));
        }
        // What changes stored objects runs when the object itself is stored.
        let stores =
            ["targets", "mutateExisting"].iter().any(|name| self.words.names.contains(*name));
        if stores && operation != Operation::Delete && subresource.is_empty() {
            others.push(object.clone());
        }
        Some(Input {
            operation,
            kind: self.targets[at].gvk.clone(),
            subresource,
            object,
            old_object,
            user,
            others,
        })
    }

    /// Mostly something that some rule asks for; of inputs without it, rules see that it is missing.
    fn hint(&mut self) -> Option<TriggerHint> {
        if self.hints.is_empty() || self.chance.percent(25) {
            return None;
        }
        self.chance.pick(&self.hints).cloned()
    }

    fn object(&mut self, at: usize, fullness: Fullness, hint: Option<&TriggerHint>) -> Value {
        let target = &self.targets[at];
        let (gvk, namespaced) = (target.gvk.clone(), target.namespaced);
        let body = target.sketch.fill(fullness, &mut self.chance);
        let name = self.chance.pick(&self.names).cloned().unwrap_or_else(|| "test".to_owned());
        let namespace = match fullness {
            Fullness::Some => self.chance.pick(&self.namespaces).cloned(),
            _ => Some("default".to_owned()),
        };
        let mut object = whole(&gvk, &name, namespace.filter(|_| namespaced), body);
        name_containers_apart(&mut object);
        if let Some(hint) = hint {
            hint.apply(&mut object, namespaced);
        }
        if self.words.names.contains("uid") {
            let _ = object.set(["metadata", "uid"], "11111111-1111-4111-8111-111111111111");
        }
        object
    }

    /// The namespace of an object, and objects that policies read.
    fn others(&mut self, object: &Value, hint: Option<&TriggerHint>) -> Vec<Value> {
        let mut others = Vec::new();
        let namespaces: Vec<String> = object
            .str_at(["metadata", "namespace"])
            .map(str::to_owned)
            .into_iter()
            .chain(["default".to_owned()])
            .collect();
        for namespace in &namespaces {
            let mut labels = Map::new();
            labels.insert("kubernetes.io/metadata.name", namespace.as_str());
            let keys: Vec<String> = self.words.keys.iter().cloned().collect();
            let texts: Vec<String> = self.words.texts.iter().cloned().collect();
            for _ in 0..self.chance.below(3) {
                if let (Some(key), Some(text)) = (self.chance.pick(&keys), self.chance.pick(&texts))
                {
                    labels.insert(key.as_str(), text.as_str());
                }
            }
            let mut stored = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": namespace.as_str(), "labels": labels.clone(), "annotations": labels,
            }});
            if let Some(hint) = hint {
                trigger_hints::add(&mut stored, "labels", &hint.namespace_labels);
            }
            others.push(stored);
        }
        let read = self.read.clone();
        for (gvk, sketch) in &read {
            let namespaced = self.kinds.get(gvk).is_none_or(kiln_object::Kind::is_namespaced);
            if gvk.kind.as_str() == "Namespace" {
                continue;
            }
            for _ in 0..self.chance.below(3) {
                let body = sketch.fill(Fullness::Some, &mut self.chance);
                let name =
                    self.chance.pick(&self.names).cloned().unwrap_or_else(|| "test".to_owned());
                let namespace = match self.chance.percent(70) {
                    true => namespaces.first().cloned(),
                    false => self.chance.pick(&self.namespaces).cloned(),
                };
                others.push(whole(gvk, &name, namespace.filter(|_| namespaced), body));
            }
        }
        others
    }
}

fn plain(subresource: &str) -> Str {
    if subresource == "*" { Str::default() } else { subresource.into() }
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        username: name.into(),
        groups: groups.iter().map(|group| Str::from(*group)).collect(),
        ..User::default()
    }
}

/// Containers of a Pod have different names, also across its lists of them.
fn name_containers_apart(value: &mut Value) {
    const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
    if let Value::List(list) = value {
        return list.make_mut().iter_mut().for_each(name_containers_apart);
    }
    let Some(map) = value.as_map_mut() else { return };
    let mut seen: Vec<String> = Vec::new();
    for list in LISTS {
        let Some(Value::List(containers)) = map.get_mut(list) else { continue };
        for container in containers.make_mut() {
            let Some(name) = container.str_at(["name"]).map(str::to_owned) else { continue };
            let name = if seen.contains(&name) { format!("{name}-{}", seen.len()) } else { name };
            let _ = container.set(["name"], name.as_str());
            seen.push(name);
        }
    }
    map.iter_mut().for_each(|(_, value)| name_containers_apart(value));
}

/// What gives a user a role of the cluster.
fn binding(user: &User, role: &str) -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{}-{role}", user.username)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.username.clone()}],
    })
}

/// A whole object.
fn whole(gvk: &Gvk, name: &str, namespace: Option<String>, body: Value) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion", gvk.api_version());
    object.insert("kind", gvk.kind.clone());
    let mut metadata = Map::new();
    metadata.insert("name", name);
    if let Some(namespace) = namespace {
        metadata.insert("namespace", namespace);
    }
    if let Value::Map(fields) = body {
        for (field, value) in &fields {
            match (field.as_str(), value) {
                ("metadata", Value::Map(more)) => {
                    for (key, value) in more {
                        metadata.insert(key.clone(), value.clone());
                    }
                }
                (field, value) => {
                    object.insert(field, value.clone());
                }
            }
        }
    }
    object.insert("metadata", metadata);
    Value::Map(object)
}

/// A name of a kind that policies write out, with its group and version as far as they say.
struct NamedKind {
    plural: String,
    kind: Option<String>,
    group: Option<String>,
    version: Option<String>,
}

/// What both sides together say of the kinds that they name: one names the kind, the other its group and plural.
fn named_kinds(sides: &[&PolicySide]) -> Vec<NamedKind> {
    let mut named: Vec<NamedKind> = Vec::new();
    let rules = sides.iter().flat_map(|side| side.rules.rules());
    for pattern in rules.flat_map(|rule| rule.trigger.include.filters()).flat_map(|f| &f.kinds) {
        let known = |text: &str| (!text.contains(['*', '?'])).then(|| text.to_owned());
        let kind = known(&pattern.kind).filter(|_| pattern.plural.is_none());
        let plural = match (&pattern.plural, &kind) {
            (Some(plural), _) => plural.to_string(),
            (None, Some(kind)) => usual_plural(kind),
            (None, None) => continue,
        };
        let (group, version) = (known(&pattern.group), known(&pattern.version));
        match named.iter_mut().find(|known| known.plural == plural) {
            Some(found) => {
                found.kind = found.kind.take().or(kind);
                found.group = found.group.take().or(group);
                found.version = found.version.take().or(version);
            }
            None => named.push(NamedKind { plural, kind, group, version }),
        }
    }
    named
}

/// The kinds that a pattern means, each with whether it lives in namespaces.
fn kinds_of(pattern: &KindPattern, kinds: &Kinds, named: &[NamedKind]) -> Vec<(Gvk, bool)> {
    if pattern.kind.as_str() == "*" && pattern.plural.is_none() {
        let usual = [("v1", "ConfigMap"), ("v1", "Pod"), ("v1", "Namespace")];
        let matched = usual.into_iter().map(|(version, kind)| Gvk::new(version, kind));
        return matched
            .filter(|gvk| {
                pattern.matches(&gvk.group, &gvk.version, &gvk.kind, &pattern.subresource)
            })
            .map(|gvk| {
                let namespaced = gvk.kind.as_str() != "Namespace";
                (gvk, namespaced)
            })
            .collect();
    }
    let found: Vec<(Gvk, bool)> = kinds
        .iter()
        .filter(|kind| {
            pattern.matches(kind.group(), kind.version(), kind.kind(), &pattern.subresource)
        })
        .map(|kind| (kind.gvk(), kind.is_namespaced()))
        .take(4)
        .collect();
    if !found.is_empty() {
        return found;
    }
    // A kind that is not known is one that its own pattern means, as far as it and the other policies say.
    let plural = match &pattern.plural {
        Some(plural) => plural.to_string(),
        None => usual_plural(&pattern.kind),
    };
    let other = named.iter().find(|known| known.plural == plural);
    let word = |text: &str, other: Option<&String>, default: &str| match text {
        "*" | "" => other.cloned().unwrap_or_else(|| default.to_owned()),
        text => crate::words::instance(text),
    };
    let group = match pattern.group.as_str() {
        "" => String::new(),
        group => word(group, other.and_then(|other| other.group.as_ref()), "example.com"),
    };
    let version = word(&pattern.version, other.and_then(|other| other.version.as_ref()), "v1");
    let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
    let kind = match &pattern.plural {
        Some(plural) => {
            other.and_then(|other| other.kind.clone()).unwrap_or_else(|| singular_kind(plural))
        }
        None => pattern.kind.to_string(),
    };
    vec![(Gvk::new(&api_version, &kind), true)]
}

/// The kind whose plural this would be.
fn singular_kind(plural: &str) -> String {
    let stem = plural.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let stem = stem.unwrap_or_else(|| plural.strip_suffix('s').unwrap_or(plural).to_owned());
    let mut chars = stem.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
