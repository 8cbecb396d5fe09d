//! What the next run of each policy on a schedule would delete.

use std::time::{SystemTime, UNIX_EPOCH};

use kiln_cleanup::target_kinds;
use kiln_engine::{Effect, EvalEnv, Event, RuleSet};
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_rules::{Program, Rule, RuleId};
use kiln_runtime::{LiveReader, RuleEnvironment};
use kiln_text::Time;
use kiln_value::Value;

use crate::system_env::SystemEnv;

/// The next run of a policy.
pub(super) struct NextRun {
    pub(super) rule: RuleId,
    /// When it comes; none if the schedule has no time.
    pub(super) time: Option<String>,
    /// What it would delete if it came now, and what users should know of each.
    pub(super) deletes: Vec<(ObjectId, Option<String>)>,
    /// What it could not list or judge, and why.
    pub(super) failed: Vec<(String, String)>,
}

/// The next run of each policy that deletes objects on a schedule, with the objects as they are now.
pub(super) fn all(
    reader: &LiveReader,
    rules: &RuleSet,
    kinds: &Kinds,
    around: &RuleEnvironment,
) -> Vec<NextRun> {
    let scheduled = rules.rules().filter(|rule| rule.program.is_scheduled());
    scheduled.map(|rule| next_run(reader, rules, rule, kinds, around)).collect()
}

fn next_run(
    reader: &LiveReader,
    rules: &RuleSet,
    rule: &Rule,
    kinds: &Kinds,
    around: &RuleEnvironment,
) -> NextRun {
    let external_data = around.external_data();
    let eval_env = EvalEnv {
        view: reader,
        kinds,
        sources: &SystemEnv,
        external_data: &external_data,
        limits: around.settings.limits,
        protected_namespaces: &around.settings.protected_namespaces,
        home: &around.settings.namespace,
    };
    let (mut deletes, mut failed) = (Vec::new(), Vec::new());
    for kind in target_kinds(rule, kinds) {
        let namespace = rule.scope.namespace().unwrap_or_default();
        let objects = match reader.all(&kind, namespace) {
            Ok(objects) => objects,
            Err(error) => {
                failed.push((kind.to_string(), format!("cannot be listed: {error}")));
                continue;
            }
        };
        for object in objects.into_iter().filter(|object| !metadata::is_deleted(object)) {
            let Ok(id) = ObjectId::of(&object) else { continue };
            let mut filters = around.settings.filters.iter();
            if filters.any(|filter| filter.matches(&id.gvk, &id.namespace, &id.name)) {
                continue;
            }
            let event = Event::existing(object);
            let Some(outcome) = rules.evaluate_rule(&rule.id, &event, &eval_env) else { continue };
            if let Some(failure) = outcome.failures.first() {
                failed.push((id.to_string(), failure.message.clone()));
                continue;
            }
            let is_end = |effect: &Effect| matches!(effect, Effect::DeleteObject(_));
            if outcome.effects.iter().any(is_end) {
                let warning = outcome.effects.iter().find_map(|effect| match effect {
                    Effect::Warn(warning) => Some(warning.message.clone()),
                    _ => None,
                });
                deletes.push((id, warning));
            }
        }
    }
    NextRun { rule: rule.id.clone(), time: next_time(rule), deletes, failed }
}

/// When a policy runs next. One that is not stored counts as stored now.
fn next_time(rule: &Rule) -> Option<String> {
    let Program::Delete(delete) = &rule.program else { return None };
    let policy: &Value = rule.origin.document().value();
    let time = |path: [&str; 2]| Some(Time::parse_rfc3339(policy.str_at(path)?).ok()?.unix());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let after = time(["status", "lastExecutionTime"]);
    let after = after.or_else(|| time(["metadata", "creationTimestamp"])).unwrap_or(now);
    // A run that was missed is made up at once.
    let next = delete.schedule.next(after)?.max(now);
    Time::from_unix(next, 0).map(|time| time.rfc3339())
}
