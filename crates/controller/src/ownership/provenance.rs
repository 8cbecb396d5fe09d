//! What can be said of an object afterwards, from what the cluster holds: which rule made it and for which trigger, or
//! why no rule made anything of it. For commands that only read.

use kiln_engine::{ClaimLabels, Event, Ownership, SOURCE, SOURCE_SEPARATOR};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Operation, Rule, RuleId};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_text::time::Time;
use kiln_value::Value;

use crate::policies::record::{Checkpoint, Record};
use crate::reconcile::compare::{covers, live_form, wanted_form};

/// What the claim on an object says. A user who may write the object may have written the claim, so this is only as true
/// as they are.
#[derive(Clone, Debug)]
pub struct Provenance {
    mark: Ownership,
    sources: Vec<String>,
}

impl Provenance {
    /// Reads the claim on an object; none when it carries none.
    pub fn read(object: &Value) -> Option<Self> {
        let mark = Ownership::read(object)?;
        let sources = metadata::annotation(object, SOURCE).into_iter();
        let sources = sources.flat_map(|sources| sources.split(SOURCE_SEPARATOR));
        Some(Provenance { mark, sources: sources.map(str::to_owned).collect() })
    }

    /// What the labels say.
    pub fn labels(&self) -> &ClaimLabels {
        &self.mark.labels
    }

    /// Whether a rule is the one named.
    pub fn names(&self, rule: &RuleId) -> bool {
        self.mark.is_of(rule)
    }

    /// What it was copied from, or made of.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// The trigger, as far as the claim says what it is called.
    pub fn trigger(&self) -> Option<ObjectId> {
        self.mark.trigger().or_else(|| {
            let labels = self.labels();
            let namespace = labels.trigger_namespace.as_deref().unwrap_or_default();
            let name = labels.trigger_name.as_ref()?;
            Some(ObjectId::new(labels.trigger_kind.clone(), namespace, name))
        })
    }

    /// Whether an object is the trigger, and not another one of its name.
    pub fn is_trigger(&self, object: &Value) -> bool {
        let uid = self.labels().trigger_uid.as_deref();
        uid.is_none() || uid == metadata::uid(object)
    }

    /// What fired the rule, with the trigger as it is now. None for a trigger that was one only in passing, so that
    /// nothing follows it.
    pub fn event(&self, trigger: Value) -> Option<Event> {
        if self.mark.is_final() {
            return None;
        }
        let mut event = match self.mark.operation {
            Some(Operation::Update) => Event::updated(trigger.clone(), trigger),
            Some(_) => Event::created(trigger),
            None => Event::existing(trigger),
        };
        event.user.clone_from(&self.mark.user);
        Some(event)
    }
}

/// Whether a stored object holds what a rule wants of it.
pub fn is_in_step(wanted: &Value, live: &Value) -> bool {
    let schema = Schema::builtin(KubernetesVersion::NEWEST);
    covers(&wanted_form(wanted), &live_form(live, wanted), &schema)
}

/// What the engine wrote down about rules and triggers.
#[derive(Clone, Debug, Default)]
pub struct Books {
    records: Vec<Record>,
    checkpoint: Checkpoint,
}

impl Books {
    /// Reads the ConfigMaps of the engine's namespace; those that are not books are skipped.
    pub fn read<'v>(objects: impl IntoIterator<Item = &'v Value>) -> Self {
        let mut books = Books::default();
        for object in objects {
            books.records.extend(Record::read(object));
            if let Some(checkpoint) = Checkpoint::read(object) {
                books.checkpoint = checkpoint;
            }
        }
        books
    }

    /// Why the engine made nothing of a trigger that a rule would make something of; none when the books do not say.
    /// `policy` is the policy as it is stored.
    pub fn why_nothing(&self, rule: &Rule, policy: &Value, trigger: &Value) -> Option<String> {
        if rule.trigger.ignore_own_requests && Ownership::read(trigger).is_some() {
            return Some(
                "the engine made this object itself, and the policy ignores such objects \
                 (skipBackgroundRequests: false changes that)"
                    .to_owned(),
            );
        }
        let uid = metadata::uid(trigger).unwrap_or_default();
        let revision = revision_of(trigger);
        let passed_over = self.checkpoint.passed_over.get(uid);
        if passed_over.zip(revision).is_some_and(|(upto, revision)| *upto >= revision) {
            return Some(
                "the ConfigMap excludes the user who wrote it last (excludeGroups, excludeUsernames)"
                    .to_owned(),
            );
        }
        if rule.lifecycle.existing || !self.is_older(rule, policy, trigger) {
            return None;
        }
        let field = rule.lifecycle.existing_switch;
        Some(format!(
            "the object is older than the rule, which acts on new and changed objects only ({field}: true changes that)"
        ))
    }

    /// Whether an object was last written before a rule came.
    fn is_older(&self, rule: &Rule, policy: &Value, trigger: &Value) -> bool {
        let uid = metadata::uid(policy).unwrap_or_default();
        let mut records = self.records.iter();
        let record = records.find(|record| record.policy == rule.id.policy && record.uid == uid);
        match record.and_then(|record| record.rules.get(&rule.id.rule)).zip(revision_of(trigger)) {
            Some((since, revision)) => revision <= since.revision,
            // Without books, by the clock; later changes are unknown then.
            None => {
                born(trigger).zip(born(policy)).is_some_and(|(trigger, policy)| trigger < policy)
            }
        }
    }
}

fn revision_of(object: &Value) -> Option<u64> {
    metadata::resource_version(object)?.parse().ok()
}

fn born(object: &Value) -> Option<i64> {
    let text = object.str_at(["metadata", "creationTimestamp"])?;
    Time::parse_rfc3339(text).ok().map(|time| time.unix())
}
