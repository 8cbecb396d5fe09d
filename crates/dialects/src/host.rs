//! Where rules are run, and which rules are not run there.

use std::sync::Arc;

use kiln_rules::{Dialect, Payload, Policy, Program, Rule};
use kiln_value::Path;

use crate::{Compiled, NotRun};

/// Where rules are run. A rule may be run in one place and not in another; [`Compiled::not_run`] goes by the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyHost {
    /// On files: `kiln apply`, `kiln check`, `kiln test`.
    Files,
    /// On the objects of a cluster: `kiln run`, `kiln up`, and the commands that speak for them.
    Cluster,
}

impl PolicyHost {
    /// Whether it runs a rule.
    pub fn runs(self, rule: &Rule) -> bool {
        let for_files = match rule.program {
            // The API server runs its own policies, and asks about objects alone.
            Program::Validate(_) => {
                rule.id.policy.dialect == Dialect::ValidatingAdmissionPolicy
                    || rule.trigger.payload != Payload::Kubernetes
            }
            Program::Generate(_) | Program::Mutate(_) | Program::Modify(_) | Program::Delete(_) => {
                false
            }
        };
        self == PolicyHost::Files || !for_files
    }

    /// Takes the rules that it does not run out of the policies behind the first ones, and names them.
    pub(crate) fn leave_out(self, compiled: &mut Compiled, (policies, not_run): (usize, usize)) {
        for policy in &mut compiled.policies[policies..] {
            if policy.rules.iter().all(|rule| self.runs(rule)) {
                continue;
            }
            compiled.not_run.extend(named(self, policy));
            let rules = policy.rules.iter().filter(|rule| self.runs(rule)).cloned().collect();
            *policy = Arc::new(Policy { rules, ..Policy::clone(policy) });
        }
        // A policy that is one rule goes with it.
        let is_rule = |policy: &Policy| {
            matches!(
                policy.id.dialect,
                Dialect::ValidatingPolicy | Dialect::ValidatingAdmissionPolicy
            )
        };
        let mut behind = compiled.policies.split_off(policies);
        behind.retain(|policy| !policy.rules.is_empty() || !is_rule(policy));
        compiled.policies.append(&mut behind);
        compiled.not_run[not_run..].sort_by_key(|not_run| not_run.place.span().start);
    }
}

/// The rules of a policy that a host does not run, as they were written: one that was rewritten for the controllers of
/// Pods is not named again.
fn named(host: PolicyHost, policy: &Policy) -> Vec<NotRun> {
    let mut seen: Vec<&Path> = Vec::new();
    let mut not_run = Vec::new();
    for rule in policy.rules.iter().filter(|rule| !host.runs(rule)) {
        if seen.contains(&rule.origin.path()) {
            continue;
        }
        seen.push(rule.origin.path());
        not_run.push(NotRun {
            policy: policy.id.key(),
            // Where the policy is the rule, it has no name of its own.
            rule: (!rule.origin.path().is_root()).then(|| rule.id.rule.clone()),
            what: match (policy.id.dialect, rule.trigger.payload) {
                (Dialect::ValidatingAdmissionPolicy, _) => "validate; the API server runs it",
                (_, Payload::Kubernetes) => rule.program.word(),
                _ => "validate; its evaluation mode is for data, not for objects of a cluster",
            },
            place: rule.origin.place(),
        });
    }
    not_run
}
