//! What is found by looking at everything again from time to time, and by no event.

use std::sync::Arc;

use kiln_cluster::KindKey;
use kiln_rules::{Program, Rule, RuleId};

use crate::controller::Controller;

impl Controller {
    /// Kyverno: rules that change stored objects, and that no request fires, come to new ones with the next look at
    /// everything.
    pub(crate) fn look_for_new_targets(&mut self) {
        let unasked = |rule: &Rule| {
            let mutates = matches!(rule.program, Program::Mutate(_));
            mutates && rule.lifecycle.existing && rule.trigger.existing_only
        };
        let rules: Vec<Arc<Rule>> =
            self.policies.rules.rules().filter(|rule| unasked(rule)).cloned().collect();
        for rule in rules {
            self.set_existing(&rule.id, true);
            for kind in self.trigger_kinds(&rule) {
                let kind = KindKey::of(&kind);
                if self.cache.is_known(&kind) {
                    self.scan_existing(&rule, &kind);
                }
            }
            self.set_existing(&rule.id, false);
        }
    }

    /// Says whether a rule is to run for existing objects.
    fn set_existing(&mut self, rule: &RuleId, existing: bool) {
        let mut held = self.policies.states.values_mut();
        let held = held.find(|held| held.active && held.record.policy == rule.policy);
        if let Some(record) = held.and_then(|held| held.record.rules.get_mut(&rule.rule)) {
            record.existing = existing;
        }
    }
}
