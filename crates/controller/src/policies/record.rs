//! What the controller must not forget, kept in the cluster: one record per policy, and one checkpoint.
//!
//! A record says since when each rule of a policy acts, and how what it made is to be left when the rule
//! goes. It is written before anything is done about a change of the policy, so that a restart in between
//! finds out what was going on.

use std::collections::BTreeMap;

use kiln_cluster::KindKey;
use kiln_engine::ContentHash;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Dialect, OnPolicyDelete, PolicyId, RuleId};
use kiln_value::{Map, Str, Value, json, value};

/// The label that all records carry.
pub(crate) const LABEL: &str = "kiln.dev/record";

/// What is remembered of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// The policy object.
    pub(crate) object: ObjectId,
    /// The policy as rules name it.
    pub(crate) policy: PolicyId,
    /// Its life.
    pub(crate) uid: Str,
    /// Its life in another API group, from which it was moved: claims of that time are its own.
    pub(crate) moved_from: Option<Str>,
    /// Its content, hashed.
    pub(crate) spec: Str,
    /// Its rules by name.
    pub(crate) rules: BTreeMap<Str, RuleRecord>,
    /// Rules that are gone and whose objects are still to be looked after.
    pub(crate) removed: Vec<Removed>,
}

/// What is remembered of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuleRecord {
    /// The revision of the cluster that brought it: what changed later may be its trigger.
    pub(crate) revision: u64,
    /// The time, in seconds.
    pub(crate) time: i64,
    /// Objects that were there before are still to be run for.
    pub(crate) existing: bool,
    pub(crate) leaving: Leaving,
}

/// How what a rule made is to be left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaving {
    pub(crate) synchronize: bool,
    pub(crate) on_policy_delete: OnPolicyDelete,
    /// What it makes, as far as that is written down.
    pub(crate) kinds: Vec<Gvk>,
}

/// A rule that is gone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Removed {
    pub(crate) rule: Str,
    /// The life of its policy.
    pub(crate) uid: Str,
    pub(crate) leaving: Leaving,
}

impl Record {
    pub(crate) fn rule_id(&self, rule: &str) -> RuleId {
        RuleId { policy: self.policy.clone(), rule: rule.into() }
    }

    /// Nothing is left to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.removed.is_empty()
    }

    /// The ConfigMap that holds it.
    pub(crate) fn to_object(&self, namespace: &str) -> Value {
        let gvk = |gvk: &Gvk| Value::from(gvk.to_string());
        let leaving = |leaving: &Leaving, map: &mut Map| {
            map.insert("synchronize", leaving.synchronize);
            map.insert("onPolicyDelete", word(leaving.on_policy_delete));
            map.insert("kinds", Value::from_iter(leaving.kinds.iter().map(gvk)));
        };
        let mut rules = Map::new();
        for (name, rule) in &self.rules {
            let mut map = Map::new();
            map.insert("revision", rule.revision);
            map.insert("time", rule.time);
            map.insert("existing", rule.existing);
            leaving(&rule.leaving, &mut map);
            rules.insert(name.as_str(), map);
        }
        let removed = self.removed.iter().map(|removed| {
            let mut map = Map::new();
            map.insert("rule", removed.rule.clone());
            map.insert("uid", removed.uid.clone());
            leaving(&removed.leaving, &mut map);
            Value::Map(map)
        });
        let record = value!({
            "dialect": self.policy.dialect.as_str(),
            "apiVersion": self.object.gvk.api_version(), "kind": self.object.gvk.kind.as_str(),
            "namespace": self.object.namespace.as_str(), "name": self.object.name.as_str(),
            "uid": self.uid.as_str(), "spec": self.spec.as_str(),
        });
        let Value::Map(mut record) = record else { return record };
        if let Some(uid) = &self.moved_from {
            record.insert("movedFrom", uid.clone());
        }
        record.insert("rules", rules);
        record.insert("removed", Value::from_iter(removed));
        config_map(namespace, &self.object_name(), &Value::Map(record))
    }

    pub(crate) fn object_name(&self) -> String {
        let hash = ContentHash::of(&Value::from(format!("{}", self.object))).to_string();
        format!("kiln-policy-{}", &hash[..16])
    }

    /// Reads the ConfigMap that holds a record.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let record = json::parse(object.str_at(["data", "record"])?).ok()?;
        let text = |key: &str| record.str_at([key]).map(Str::from);
        let dialect = Dialect::read(record.str_at(["dialect"])?)?;
        let namespace = text("namespace")?;
        let name = text("name")?;
        let gvk = Gvk::new(record.str_at(["apiVersion"])?, record.str_at(["kind"])?);
        let leaving = |value: &Value| {
            Some(Leaving {
                synchronize: value.get("synchronize")?.as_bool()?,
                on_policy_delete: read_word(value.str_at(["onPolicyDelete"])?)?,
                kinds: value
                    .get("kinds")?
                    .as_list()?
                    .iter()
                    .filter_map(|v| Gvk::parse(v.as_str()?))
                    .collect(),
            })
        };
        let rule = |value: &Value| {
            Some(RuleRecord {
                revision: u64::try_from(value.get("revision")?.as_i64()?).ok()?,
                time: value.get("time")?.as_i64()?,
                existing: value.get("existing")?.as_bool()?,
                leaving: leaving(value)?,
            })
        };
        let removed = |value: &Value| {
            Some(Removed {
                rule: value.str_at(["rule"])?.into(),
                uid: value.str_at(["uid"])?.into(),
                leaving: leaving(value)?,
            })
        };
        Some(Record {
            policy: PolicyId {
                dialect,
                namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
                name: name.clone(),
            },
            object: ObjectId::new(gvk, &namespace, &name),
            uid: text("uid")?,
            moved_from: text("movedFrom"),
            spec: text("spec")?,
            rules: record
                .get("rules")?
                .as_map()?
                .iter()
                .filter_map(|(name, value)| Some((name.as_str().into(), rule(value)?)))
                .collect(),
            removed: record.get("removed")?.as_list()?.iter().filter_map(removed).collect(),
        })
    }
}

fn word(on: OnPolicyDelete) -> &'static str {
    match on {
        OnPolicyDelete::DeleteMade => "deleteMade",
        OnPolicyDelete::Delete => "delete",
        OnPolicyDelete::Keep => "keep",
    }
}

fn read_word(word: &str) -> Option<OnPolicyDelete> {
    [OnPolicyDelete::DeleteMade, OnPolicyDelete::Delete, OnPolicyDelete::Keep]
        .into_iter()
        .find(|on| self::word(*on) == word)
}

fn config_map(namespace: &str, name: &str, record: &Value) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kiln.dev/record": "true"}},
        "data": {"record": json::to_string(record)},
    })
}

/// The ConfigMap that an object of this module is.
pub(crate) fn record_id(object: &Value) -> ObjectId {
    ObjectId::new(
        Gvk::new("v1", "ConfigMap"),
        metadata::namespace(object).unwrap_or_default(),
        metadata::name(object).unwrap_or_default(),
    )
}

/// Up to where rules that do not synchronise have been served.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checkpoint {
    /// The revision up to which changes of a kind were looked at.
    pub(crate) seen: BTreeMap<KindKey, u64>,
    /// Triggers below that which are not served yet: rule, UID, and the operation if there was one.
    pub(crate) waiting: Vec<(String, Str, Option<Str>)>,
    /// Triggers whose latest change is ignored because its author is excluded: UID and revision.
    pub(crate) passed_over: BTreeMap<Str, u64>,
    /// Downstreams in a user's name that have ended: UID and rule, and the revision of the trigger.
    pub(crate) ended: BTreeMap<Str, u64>,
}

impl Checkpoint {
    pub(crate) const NAME: &'static str = "kiln-checkpoint";

    pub(crate) fn to_object(&self, namespace: &str) -> Value {
        let seen: Map = self
            .seen
            .iter()
            .map(|(kind, revision)| {
                (format!("{}/{}", kind.group, kind.kind), Value::from(*revision))
            })
            .collect();
        let waiting = self.waiting.iter().map(|(rule, uid, operation)| {
            Value::from_iter([
                Value::from(rule.as_str()),
                Value::from(uid.clone()),
                Value::from(operation.clone().unwrap_or_default()),
            ])
        });
        let mut record = Map::new();
        record.insert("seen", seen);
        record.insert("waiting", Value::from_iter(waiting));
        let passed_over: Map =
            self.passed_over.iter().map(|(uid, upto)| (uid.as_str(), Value::from(*upto))).collect();
        record.insert("passedOver", passed_over);
        let ended: Map =
            self.ended.iter().map(|(key, at)| (key.as_str(), Value::from(*at))).collect();
        record.insert("ended", ended);
        config_map(namespace, Self::NAME, &Value::Map(record))
    }

    pub(crate) fn read(object: &Value) -> Option<Self> {
        if metadata::name(object) != Some(Self::NAME) {
            return None;
        }
        let record = json::parse(object.str_at(["data", "record"])?).ok()?;
        let seen = record.get("seen")?.as_map()?.iter().filter_map(|(kind, revision)| {
            let (group, kind) = kind.as_str().split_once('/')?;
            Some((KindKey::new(group, kind), u64::try_from(revision.as_i64()?).ok()?))
        });
        let waiting = record.get("waiting")?.as_list()?.iter().filter_map(|entry| {
            let text = |at: usize| entry.index(at).and_then(Value::as_str);
            let operation = text(2).filter(|word| !word.is_empty()).map(Str::from);
            Some((text(0)?.to_owned(), text(1)?.into(), operation))
        });
        let revisions = |field: &str| -> BTreeMap<Str, u64> {
            let known = record.get(field).and_then(Value::as_map);
            let known = known.into_iter().flat_map(Map::iter);
            known
                .filter_map(|(name, upto)| {
                    Some((Str::from(name.as_str()), u64::try_from(upto.as_i64()?).ok()?))
                })
                .collect()
        };
        Some(Checkpoint {
            seen: seen.collect(),
            waiting: waiting.collect(),
            passed_over: revisions("passedOver"),
            ended: revisions("ended"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let leaving = Leaving {
            synchronize: true,
            on_policy_delete: OnPolicyDelete::Keep,
            kinds: vec![
                Gvk::new("networking.k8s.io/v1", "NetworkPolicy"),
                Gvk::new("v1", "Secret"),
            ],
        };
        let record = Record {
            object: ObjectId::new(Gvk::new("kyverno.io/v1", "Policy"), "team", "p"),
            policy: PolicyId {
                dialect: Dialect::Kyverno,
                namespace: Some("team".into()),
                name: "p".into(),
            },
            uid: "u".into(),
            moved_from: Some("t".into()),
            spec: "s".into(),
            rules: [(
                "r".into(),
                RuleRecord { revision: 7, time: -1, existing: true, leaving: leaving.clone() },
            )]
            .into(),
            removed: vec![Removed { rule: "old".into(), uid: "v".into(), leaving }],
        };
        assert_eq!(Record::read(&record.to_object("kyverno")), Some(record));
        let checkpoint = Checkpoint {
            seen: [(KindKey::new("apps", "Deployment"), 12)].into(),
            waiting: vec![("kyverno:p/r".into(), "u".into(), Some("CREATE".into()))],
            passed_over: [("v".into(), 9)].into(),
            ended: [("v kyverno:p/r".into(), 11)].into(),
        };
        assert_eq!(Checkpoint::read(&checkpoint.to_object("kyverno")), Some(checkpoint));
    }
}
