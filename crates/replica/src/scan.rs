//! Which objects that are there are checked, by which rules, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_admission::{Reporting, Settings, ValidationResult};
use kiln_engine::{ContentHash, Effect, EvalEnv, Event, RuleOutcome, RuleSet, Status, Verdict};
use kiln_object::report_form::is_report_group;
use kiln_object::{Gvk, Kinds, ObjectId, ReportForm, metadata};
use kiln_reports::ReportedObject;
use kiln_rules::Policy;
use kiln_value::{Str, Value};

use crate::events::{CheckedObject, Happened};
use crate::policy_store::Registry;
use crate::report_results::ReportSwitches;

/// What a rule says that has nothing to change.
const UNCHANGED: &str = "no patches applied";

/// What a scan goes by: another one begins when this is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanBasis {
    policies: Vec<(String, String)>,
    /// The kinds whose objects are checked.
    pub kinds: Vec<Gvk>,
    /// What is reported, and how often everything is checked again.
    pub reporting: Reporting,
    /// Reports can be written.
    reports: bool,
}

/// The policies whose rules are run on objects that are there.
fn scanned_policies(registry: &Registry, switches: &ReportSwitches) -> Vec<Arc<Policy>> {
    let with_scanned = |policy: &Arc<Policy>| {
        let rules = policy.rules.iter().filter(|rule| switches.scans(policy, rule));
        let rules: Vec<_> = rules.cloned().collect();
        (!rules.is_empty()).then(|| Arc::new(Policy { rules, ..Policy::clone(policy) }))
    };
    registry.rules.policies().iter().filter_map(with_scanned).collect()
}

/// What a scan of what is stored now goes by, in a process with these settings.
pub fn basis(
    settings: &Settings,
    form: &ReportForm,
    registry: &Registry,
    kinds: &Kinds,
) -> ScanBasis {
    let life = |object: &Value| {
        let generation = object.get_path(["metadata", "generation"]).and_then(Value::as_i64);
        format!("{} {}", metadata::uid(object).unwrap_or_default(), generation.unwrap_or_default())
    };
    let policies =
        registry.policies.iter().map(|policy| (policy.id.to_string(), life(&policy.object)));
    let exceptions = registry
        .exceptions
        .iter()
        .map(|exception| (exception.name.to_string(), format!("{:p}", Arc::as_ptr(exception))));
    let reporting = settings.clone().read(registry.config.as_ref()).0.reporting;
    let scanned = scanned_policies(registry, &ReportSwitches::of(settings, registry));
    let rules = || scanned.iter().flat_map(|policy| &policy.rules);
    let mut found: Vec<Gvk> = kinds
        .iter()
        .filter(|kind| kind.verbs().contains(&"watch") && !is_report_group(kind.group()))
        .filter_map(|kind| kinds.preferred(kind.group(), kind.kind()))
        .map(kiln_object::Kind::gvk)
        .filter(|gvk| !is_noise(gvk) && rules().any(|rule| rule.trigger.may_fire_for(gvk, "")))
        .collect();
    found.sort();
    found.dedup();
    ScanBasis {
        policies: policies.chain(exceptions).collect(),
        kinds: found,
        reporting,
        reports: form.kinds().iter().all(|kind| kinds.get(kind).is_some()),
    }
}

/// What changes all the time and is the business of no policy.
fn is_noise(gvk: &Gvk) -> bool {
    matches!(gvk.kind.as_str(), "Event" | "Lease" | "UpdateRequest")
}

/// The objects of a scan that were checked already, as they were then: a change of the status alone is no reason to check an
/// object again.
#[derive(Debug, Default)]
pub struct ScannedObjects {
    seen: BTreeMap<Str, ContentHash>,
}

impl ScannedObjects {
    /// Whether an object is to be checked: it is new, or another one than before.
    pub fn is_new(&mut self, object: &Value) -> bool {
        if metadata::is_deleted(object) {
            return false;
        }
        let uid: Str = metadata::uid(object).unwrap_or_default().into();
        let hash = ContentHash::of(&looked_at(object));
        self.seen.insert(uid, hash) != Some(hash)
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.seen.remove(uid);
    }

    /// How many objects are known.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

/// The rules that objects which are there are checked by.
#[derive(Debug, Default)]
pub struct ScanRules {
    checking: RuleSet,
    /// Policies that change what is sent, each for itself: none sees what another would have changed.
    changing: Vec<RuleSet>,
}

impl ScanRules {
    /// Those of a process that begins with `settings`. `read` is what came of them with the stored ConfigMap.
    pub fn of(settings: &Settings, read: &Settings, registry: &Registry) -> Self {
        let exceptions = read.in_force(&registry.exceptions);
        let policies = scanned_policies(registry, &ReportSwitches::of(settings, registry));
        let (changing, checking): (Vec<_>, Vec<_>) = policies
            .into_iter()
            .partition(|policy| policy.rules.iter().any(|rule| rule.program.changes_trigger()));
        let alone = |policy| RuleSet::new(vec![policy]).with_exceptions(exceptions.clone());
        ScanRules {
            changing: changing.into_iter().map(alone).collect(),
            checking: RuleSet::new(checking).with_exceptions(exceptions.clone()),
        }
    }

    /// What rules find out about objects that are there.
    pub fn check(
        &self,
        objects: Vec<Value>,
        settings: &Settings,
        eval_env: &EvalEnv<'_>,
    ) -> Vec<(ReportedObject, Vec<ValidationResult>)> {
        let mut found = Vec::with_capacity(objects.len());
        for object in objects {
            let (Ok(id), Some(uid)) = (ObjectId::of(&object), metadata::uid(&object)) else {
                continue;
            };
            let uid = Str::from(uid);
            if filters_out(settings, &id) {
                // What an earlier scan said of it goes.
                found.push((ReportedObject { id, uid }, Vec::new()));
                continue;
            }
            // Kyverno: as if it were created, by no user.
            let event = Event::created(object);
            let checked = self.checking.mutate(&event, eval_env);
            let mut results: Vec<_> =
                checked.outcomes.iter().filter_map(ValidationResult::of).collect();
            for policy in &self.changing {
                let changed = policy.mutate(&event, eval_env);
                results.extend(changed.outcomes.iter().filter_map(of_changed));
            }
            found.push((ReportedObject { id, uid }, results));
        }
        found
    }
}

/// Whether an object is kept from rules. Kyverno scans what its webhooks never see, unless told otherwise.
fn filters_out(settings: &Settings, id: &ObjectId) -> bool {
    settings.reporting.filtered && settings.filters_out(&id.gvk, "", &id.namespace, &id.name)
}

/// What a policy that changes what is sent says of a stored object.
// Kyverno: in these words.
fn of_changed(outcome: &RuleOutcome) -> Option<ValidationResult> {
    let result = ValidationResult::of(outcome)?;
    if outcome.is_excepted() {
        return Some(result);
    }
    let changes = outcome.effects.iter().any(|effect| matches!(effect, Effect::Patch(_)));
    let (status, message) = match outcome.verdict {
        Verdict::Error => return Some(result),
        _ if changes => (Status::Fail, "mutation is not applied"),
        // What it would change is as it wants it.
        Verdict::Pass => (Status::Pass, "success"),
        Verdict::Skip if outcome.why.as_deref() == Some(UNCHANGED) => (Status::Pass, "success"),
        _ => return None,
    };
    Some(ValidationResult { status, message: message.to_owned(), ..result })
}

/// What users are to hear of a scanned object: what it fails.
pub fn happened(object: &ReportedObject, results: &[ValidationResult]) -> Option<Happened> {
    let bad: Vec<_> = results.iter().filter(|result| result.is_bad()).cloned().collect();
    (!bad.is_empty()).then(|| Happened::Checked {
        object: CheckedObject { id: object.id.clone(), uid: Some(object.uid.clone()) },
        results: bad.into(),
        blocked: false,
        scanned: true,
    })
}

/// An object without what changes by itself.
fn looked_at(object: &Value) -> Value {
    let mut object = object.clone();
    object.remove(["status"]);
    object.remove(["metadata", "resourceVersion"]);
    object.remove(["metadata", "managedFields"]);
    object.remove(["metadata", "generation"]);
    object
}
