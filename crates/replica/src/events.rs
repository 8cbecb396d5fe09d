//! Writes events about what rules did, as Kyverno's users know them.

use std::sync::Arc;

use kiln_admission::{ReviewRequest, ShadowResult, ValidationResult};
use kiln_cleanup::CleanupEvent;
use kiln_controller::ControllerEvent;
use kiln_dialects::PolicyKind;
use kiln_object::policy_kinds::OWN_VERSION;
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_rules::{PolicyId, RuleId};
use kiln_text::time::Time;
use kiln_value::{Map, Str, Value, value};

use crate::policy_store::Registry;
use crate::validation_events::of_results;

/// Who tells of what the controller did, of requests, and of objects that were there before.
const CONTROLLER: &str = "kyverno-generate";
const ADMISSION: &str = "kyverno-admission";
const SCAN: &str = "kyverno-scan";
/// The same for what is deleted on a schedule.
const CLEANUP: &str = "kyverno-cleanup";
/// The reason of events about what went well.
pub(crate) const APPLIED: &str = "PolicyApplied";
/// The longest note that an API server takes.
const LONGEST_NOTE: usize = 1024;

/// What happened that users may want to read of.
#[derive(Clone, Debug)]
pub enum Happened {
    /// The controller tells.
    Told(ControllerEvent),
    /// A rule changed an object before it was stored.
    Mutated { rule: RuleId, object: ObjectId },
    /// Rules checked an object.
    Checked {
        object: CheckedObject,
        results: Arc<[ValidationResult]>,
        /// The request was denied.
        blocked: bool,
        /// There was no request: the object was there before.
        scanned: bool,
    },
    /// A kind that should fire a policy cannot be followed.
    Unreadable {
        policy: ObjectId,
        /// What is wrong.
        what: String,
    },
    /// A policy deleted an object on its schedule, or could not.
    Cleanup(CleanupEvent),
    /// A policy has rules that are not run.
    NotRun { policy: ObjectId, what: String },
    /// A policy and its shadow differ about an object.
    ShadowDiffers { object: CheckedObject, result: ShadowResult },
}

/// An object that rules checked.
#[derive(Clone, Debug)]
pub struct CheckedObject {
    /// Which one.
    pub id: ObjectId,
    /// Its identity, once it has one.
    pub uid: Option<Str>,
}

impl CheckedObject {
    /// The object of a request.
    pub fn of(request: &ReviewRequest, kinds: &Kinds) -> Self {
        let event = &request.event;
        let namespace = match kinds.is_namespaced(&event.kind) {
            Some(false) => "",
            _ => event.namespace.as_deref().unwrap_or_default(),
        };
        CheckedObject {
            id: ObjectId::new(event.kind.clone(), namespace, &event.name),
            uid: event.trigger().and_then(metadata::uid).map(Into::into),
        }
    }
}

/// What an event says.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) regarding: Value,
    pub(crate) related: Option<Value>,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) note: String,
}

/// The events to write about something that happened, as far as users want to read of it.
pub fn events_of(
    happened: &Happened,
    registry: &Registry,
    config: &kiln_admission::Settings,
    reporter: &mut EventReporter,
    now: u64,
) -> Vec<Value> {
    let said = said(happened, registry).into_iter().filter(|said| said.is_wanted(config));
    let source = source(happened);
    said.map(|said| reporter.event(&said, source, now)).collect()
}

/// Who writes events: the host that they name, and how many there were.
#[derive(Clone, Debug)]
pub struct EventReporter {
    host: String,
    number: u64,
}

impl EventReporter {
    pub fn new(host: &str) -> Self {
        EventReporter { host: host.to_owned(), number: 0 }
    }
}

impl Happened {
    /// Whether the admission side tells of it, as itself.
    pub fn is_of_admission(&self) -> bool {
        matches!(
            self,
            Happened::Mutated { .. }
                | Happened::Checked { scanned: false, .. }
                | Happened::ShadowDiffers { .. }
        )
    }
}

/// Who tells of something.
fn source(happened: &Happened) -> &'static str {
    match happened {
        Happened::Mutated { .. }
        | Happened::Checked { scanned: false, .. }
        | Happened::ShadowDiffers { .. } => ADMISSION,
        Happened::Checked { .. } => SCAN,
        Happened::Cleanup(_) => CLEANUP,
        _ => CONTROLLER,
    }
}

impl Said {
    /// Whether users want to read of it: of what went well, only if they say so, and of which actions.
    fn is_wanted(&self, config: &kiln_admission::Settings) -> bool {
        if config.reporting.omitted_events.iter().any(|reason| reason == self.reason) {
            return false;
        }
        let actions = &config.events.actions;
        self.reason != APPLIED
            || (config.events.success
                && (actions.is_empty() || actions.iter().any(|action| action == self.action)))
    }
}

fn said(happened: &Happened, registry: &Registry) -> Vec<Said> {
    match happened {
        Happened::Told(news) => reconciled(news, registry),
        Happened::Mutated { rule, object } => vec![mutated(rule, object, registry)],
        Happened::Checked { object, results, blocked, .. } => {
            of_results(object, results, *blocked, registry)
        }
        Happened::Cleanup(event) => cleaned(event, registry),
        Happened::ShadowDiffers { object, result } => {
            shadowed(object, result, registry).into_iter().collect()
        }
        Happened::Unreadable { policy, what } | Happened::NotRun { policy, what } => {
            let stored = registry.policies.iter().find(|stored| stored.id.same_object(policy));
            let uid = stored.and_then(|stored| metadata::uid(&stored.object));
            vec![Said {
                regarding: reference(policy, uid),
                related: None,
                reason: match happened {
                    Happened::NotRun { .. } => "RulesNotRun",
                    _ => "PolicyError",
                },
                action: "None",
                note: format!("policy {}: {what}", policy.name),
            }]
        }
    }
}

/// A policy and its shadow differ about an object; none if they do not.
fn shadowed(object: &CheckedObject, result: &ShadowResult, registry: &Registry) -> Option<Said> {
    let difference = result.difference?;
    let what = match difference.as_str() {
        "weaker" => "would be let through",
        "stricter" => "would be refused",
        "object" => "would be changed otherwise",
        "generated" => "would make rules generate other objects",
        _ => "would have another result in reports",
    };
    let mut note = format!(
        "{} {} {what}: the policy in force says {}, its shadow {}",
        object.id.gvk.kind,
        place(&object.id),
        result.old,
        result.new
    );
    if !result.message.is_empty() {
        note += &format!("; {}", result.message);
    }
    Some(Said {
        regarding: policy(&result.shadow, registry),
        related: Some(reference(&object.id, object.uid.as_deref())),
        reason: "ShadowDiffers",
        action: "None",
        note,
    })
}

/// A rule changed an object.
fn mutated(rule: &RuleId, object: &ObjectId, registry: &Registry) -> Said {
    Said {
        regarding: policy(&rule.policy, registry),
        related: Some(reference(object, None)),
        reason: APPLIED,
        action: "Resource Mutated",
        note: format!("{} {}: rule {} changed it", object.gvk.kind, place(object), rule.rule),
    }
}

/// What the controller did, or could not do.
fn reconciled(news: &ControllerEvent, registry: &Registry) -> Vec<Said> {
    match news {
        ControllerEvent::Made { rule, target } => {
            let key = rule.policy.key();
            vec![
                Said {
                    regarding: reference(target, None),
                    related: None,
                    reason: APPLIED,
                    action: "None",
                    note: format!(
                        "Created {} {} as a result of applying policy {key}/{}",
                        target.gvk.kind, target.name, rule.rule
                    ),
                },
                Said {
                    regarding: policy(&rule.policy, registry),
                    related: Some(reference(target, None)),
                    reason: APPLIED,
                    action: "Resource Generated",
                    note: "resource generated".to_owned(),
                },
            ]
        }
        ControllerEvent::Changed { rule, target } => vec![mutated(rule, target, registry)],
        ControllerEvent::Failed { rule, trigger, condition } => vec![Said {
            regarding: policy(&rule.policy, registry),
            related: trigger.as_ref().map(|trigger| reference(trigger, None)),
            reason: "PolicyError",
            action: "None",
            note: format!("policy {}/{} error: {}", rule.policy.name, rule.rule, condition.message),
        }],
        ControllerEvent::SourceMissing { rule, trigger, message } => {
            let note = format!("policy {}/{} waits: {message}", rule.policy.name, rule.rule);
            let said = |regarding: Value, related: Option<Value>| Said {
                regarding,
                related,
                reason: "PolicyError",
                action: "None",
                note: note.clone(),
            };
            let policy = policy(&rule.policy, registry);
            let trigger = trigger.as_ref().map(|trigger| reference(trigger, None));
            // Users look at the trigger to see why nothing is generated.
            let of_trigger = trigger.clone().map(|trigger| said(trigger, Some(policy.clone())));
            [said(policy, trigger)].into_iter().chain(of_trigger).collect()
        }
        ControllerEvent::OwnerElsewhere { rule, target, owner } => vec![Said {
            regarding: policy(&rule.policy, registry),
            related: Some(reference(target, None)),
            reason: "PolicyError",
            action: "None",
            note: format!(
                "policy {}/{}: Kubernetes does not honour the owner {owner} of {target}, which is in another \
                 namespace; the garbage collector will delete the object",
                rule.policy.name, rule.rule
            ),
        }],
    }
}

/// What policies on a schedule did, in Kyverno's words.
fn cleaned(event: &CleanupEvent, registry: &Registry) -> Vec<Said> {
    let (policy, object, reason, action, end) = match event {
        CleanupEvent::Deleted { policy, object, .. } => {
            (policy, object, APPLIED, "Resource Cleaned Up", String::new())
        }
        CleanupEvent::Failed { policy, object, why, is_told: true, .. } => {
            (policy, object, "PolicyError", "None", format!(": {why}"))
        }
        CleanupEvent::Failed { .. } | CleanupEvent::Ran { .. } => return Vec::new(),
    };
    let in_cel = kiln_object::policy_kinds::is_cel(&policy.gvk);
    let begin = match (in_cel, reason == APPLIED) {
        (false, true) => "successfully cleaned up the target resource",
        (false, false) => "failed to clean up the target resource",
        (true, true) => "successfully deleted the target resource",
        (true, false) => "failed to delete the target resource",
    };
    let stored = registry.policies.iter().find(|stored| stored.id.same_object(policy));
    let uid = stored.and_then(|stored| metadata::uid(&stored.object));
    vec![Said {
        regarding: reference(policy, uid),
        related: Some(reference(object, None)),
        reason,
        action,
        note: format!("{begin} {}/{}{end}", object.gvk.kind, place(object)),
    }]
}

pub(crate) fn place(id: &ObjectId) -> String {
    match id.namespace.as_str() {
        "" => id.name.to_string(),
        namespace => format!("{namespace}/{}", id.name),
    }
}

pub(crate) fn policy(policy: &PolicyId, registry: &Registry) -> Value {
    let kind = PolicyKind::of(policy.dialect, policy.namespace.is_some());
    let (version, kind) = match kind {
        Some(kind) => (kind.stored_api_version(), kind.kind),
        // Kubernetes' own policies are in no namespace, ModRules always in one.
        None => (String::new(), policy.dialect.as_str()),
    };
    let namespace = policy.namespace.as_deref().unwrap_or_default();
    let id = ObjectId::new(Gvk::new(&version, kind), namespace, &policy.name);
    let own = ObjectId { gvk: Gvk::new(OWN_VERSION, kind), ..id.clone() };
    let stored = |id: &ObjectId| registry.policies.iter().find(|held| held.id.same_object(id));
    // The one of Kiln's own group is the one that is run.
    let (id, stored) = match stored(&own) {
        Some(found) => (own, Some(found)),
        None => (id.clone(), stored(&id)),
    };
    reference(&id, stored.and_then(|stored| metadata::uid(&stored.object)))
}

pub(crate) fn reference(id: &ObjectId, uid: Option<&str>) -> Value {
    let mut map = Map::new();
    map.insert("apiVersion", id.gvk.api_version());
    map.insert("kind", id.gvk.kind.clone());
    if !id.namespace.is_empty() {
        map.insert("namespace", id.namespace.clone());
    }
    map.insert("name", id.name.clone());
    if let Some(uid) = uid {
        map.insert("uid", uid);
    }
    Value::Map(map)
}

impl EventReporter {
    fn event(&mut self, said: &Said, source: &str, now: u64) -> Value {
        self.number += 1;
        event(said, source, &self.instance(source), now, self.number)
    }

    fn instance(&self, source: &str) -> String {
        format!("{source}-{}", self.host).chars().take(128).collect()
    }
}

fn event(said: &Said, source: &str, instance: &str, milliseconds: u64, number: u64) -> Value {
    let part = |key: &str| said.regarding.str_at([key]).filter(|text| !text.is_empty());
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let nanos = u32::try_from(rest * 1_000_000).unwrap_or(0);
    let time = Time::from_unix(i64::try_from(seconds).unwrap_or(0), nanos);
    let time = time.map(|time| time.format("2006-01-02T15:04:05.000000Z07:00")).unwrap_or_default();
    // Names of events are stricter than those of some objects.
    let name: String = part("name")
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' })
        .take(200)
        .collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let name = format!("{name}.{:x}", milliseconds * 1_000_000 + number % 1_000_000);
    let applied = matches!(said.reason, APPLIED | "PolicySkipped");
    let note: String = said.note.chars().take(LONGEST_NOTE).collect();
    let mut event = value!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": part("namespace").unwrap_or("default")},
        "eventTime": time, "reportingController": source, "reportingInstance": instance,
        "reason": said.reason, "action": said.action, "note": note,
        "type": if applied { "Normal" } else { "Warning" },
    });
    if let Some(map) = event.as_map_mut() {
        map.insert("regarding", said.regarding.clone());
        if let Some(related) = &said.related {
            map.insert("related", related.clone());
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_controller::{Condition, Waiting};
    use kiln_rules::Dialect;

    #[test]
    fn a_failure_is_told_about_the_policy() {
        let policy =
            PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "Rbac:Policy".into() };
        let news = ControllerEvent::Failed {
            rule: RuleId { policy, rule: "r".into() },
            trigger: Some(ObjectId::new(Gvk::new("v1", "Namespace"), "", "a")),
            condition: Condition { reason: Waiting::Failed, message: "x".repeat(2_000) },
        };
        let said = said(&Happened::Told(news), &Registry::default());
        let event = event(&said[0], CONTROLLER, "kiln", 1_700_000_000_000, 1);
        let text =
            |path: &[&str]| event.str_at(path.iter().copied()).unwrap_or_default().to_owned();
        assert_eq!(text(&["reason"]), "PolicyError");
        assert_eq!(text(&["type"]), "Warning");
        assert_eq!(text(&["metadata", "namespace"]), "default");
        assert!(text(&["metadata", "name"]).starts_with("rbac-policy."));
        assert_eq!(text(&["regarding", "kind"]), "ClusterPolicy");
        assert_eq!(text(&["related", "kind"]), "Namespace");
        assert_eq!(text(&["note"]).len(), LONGEST_NOTE);
    }

    #[test]
    fn what_went_well_is_told_as_users_decide() {
        let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
        let rule = RuleId { policy, rule: "r".into() };
        let target = ObjectId::new(Gvk::new("v1", "Secret"), "a", "b");
        let made = ControllerEvent::Made { rule: rule.clone(), target: target.clone() };
        let changed = ControllerEvent::Changed { rule: rule.clone(), target: target.clone() };
        let at_admission = Happened::Mutated { rule, object: target };
        let told = |happened: &Happened, on: &str, actions: &str| -> Vec<&'static str> {
            let config =
                value!({"data": {"generateSuccessEvents": on, "successEventActions": actions}});
            let (config, warnings) = kiln_admission::Settings::new("kyverno").read(Some(&config));
            assert!(warnings.is_empty());
            let said = said(happened, &Registry::default());
            said.iter().filter(|said| said.is_wanted(&config)).map(|said| said.action).collect()
        };
        for (happened, on, actions, expected) in [
            (Happened::Told(made.clone()), "false", "", &[][..]),
            (Happened::Told(made.clone()), "true", "", &["None", "Resource Generated"]),
            (Happened::Told(made), "true", "Resource Generated", &["Resource Generated"]),
            (Happened::Told(changed.clone()), "true", "Resource Generated", &[]),
            (Happened::Told(changed), "true", "Resource Mutated", &["Resource Mutated"]),
            (at_admission.clone(), "true", "", &["Resource Mutated"]),
            (at_admission, "false", "Resource Mutated", &[]),
        ] {
            assert_eq!(told(&happened, on, actions), expected, "{happened:?} {on} {actions}");
        }
    }
}
