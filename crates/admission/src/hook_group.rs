//! Which policies share a webhook, and what it is called.

use std::sync::Arc;

use kiln_engine::RuleSet;
use kiln_rules::{Exception, Policy, Rule};
use kiln_value::{Str, Value, json};

use crate::webhook_needs::{FailurePolicy, MODRULES, Part, Purpose, WebhookNeeds, dashed, family};

/// A policy with the rules that a hook runs, and what it asks of webhooks.
pub(crate) type Member = (Arc<Policy>, WebhookNeeds);

/// The webhook of ModRules and its path, as KubeMod's users know them.
const DRAGNET: &str = "dragnet.kubemod.io";
const DRAGNET_PATH: &str = "/dragnet-webhook";

/// What policies have in common that share a hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) family: Option<&'static str>,
    pub(crate) purpose: Purpose,
    pub(crate) failure: FailurePolicy,
    /// The only policy, when it has a hook of its own.
    pub(crate) alone: Option<Str>,
    /// Both selectors, as text.
    selectors: String,
}

impl Group {
    pub(crate) fn of(policy: &Policy, registration: &WebhookNeeds, part: Part) -> Self {
        let own = registration.is_fine_grained().then(|| Str::from(policy.id.key()));
        let family = family(policy);
        // A namespaced policy with constraints is only asked about its own namespace.
        let apart = family.is_some_and(|family| family != MODRULES);
        let namespace = policy.id.namespace.clone().filter(|_| apart);
        let selectors = [&registration.namespace_selector, &registration.object_selector]
            .map(|selector| selector.as_ref().map(json::to_canonical_string).unwrap_or_default());
        Group {
            family,
            purpose: part.purpose(),
            failure: registration.failure_of(policy, part),
            alone: own,
            selectors: match (family, selectors.iter().all(String::is_empty), namespace) {
                (None | Some(MODRULES), ..) | (_, true, None) => String::new(),
                (_, _, namespace) => {
                    format!("{} {}", selectors.join(" "), namespace.unwrap_or_default())
                }
            },
        }
    }

    pub(crate) fn would_share_name(&self, other: &Group) -> bool {
        (self.family, self.purpose, self.failure, &self.alone)
            == (other.family, other.purpose, other.failure, &other.alone)
    }

    /// Name and path, as Kyverno has them.
    pub(crate) fn called(&self, members: &[Member], distinct: bool) -> (String, String) {
        let failure = self.failure.word();
        let fine = match (&self.alone, members.first()) {
            (Some(_), Some((policy, _))) => format!("-finegrained-{}", dashed(policy)),
            _ => String::new(),
        };
        let Some(family) = self.family else {
            let word = match self.purpose {
                Purpose::Mutate => "mutate",
                Purpose::Observe => "validate",
            };
            let alone =
                self.alone.as_ref().map(|key| format!("/finegrained/{key}")).unwrap_or_default();
            return (
                format!("{word}.kyverno.svc-{failure}{fine}"),
                format!("/{word}/{failure}{alone}"),
            );
        };
        if family == MODRULES {
            return (DRAGNET.to_owned(), DRAGNET_PATH.to_owned());
        }
        let hash = match distinct {
            true => {
                let hash = kiln_engine::ContentHash::of(&Value::from(self.selectors.as_str()));
                format!("-{}", &hash.to_string()[..8])
            }
            false => String::new(),
        };
        let mut names: Vec<String> = members.iter().map(|(policy, _)| policy.id.key()).collect();
        names.sort();
        // A policy that changes objects may also need to observe requests.
        let (word, base) = match (self.purpose, family) {
            (Purpose::Observe, "mpol" | "nmpol") => ("observe", format!("{family}-existing")),
            _ => ("validate", family.to_owned()),
        };
        (
            format!("{family}.{word}.kyverno.svc-{failure}{fine}{hash}"),
            format!("/{base}/{}", names.join("/")),
        )
    }
}

/// A policy with the rules of one part; none when it has no such rule.
pub(crate) fn with_rules_of(policy: &Arc<Policy>, part: Part) -> Option<Arc<Policy>> {
    if policy.rules.iter().all(|rule| Part::of(rule) == part) {
        return (!policy.rules.is_empty()).then(|| Arc::clone(policy));
    }
    let rules: Vec<_> =
        policy.rules.iter().filter(|rule| Part::of(rule) == part).cloned().collect();
    let some = !rules.is_empty();
    some.then(|| Arc::new(Policy { rules, ..Policy::clone(policy) }))
}

/// The rules of policies that are wanted, without what exceptions mean.
pub(crate) fn set_of(
    members: &[Member],
    exceptions: &[Arc<Exception>],
    wanted: impl Fn(&Rule) -> bool,
) -> RuleSet {
    let with_wanted = |(policy, _): &Member| {
        if policy.rules.iter().all(|rule| wanted(rule)) {
            return Arc::clone(policy);
        }
        let rules = policy.rules.iter().filter(|rule| wanted(rule)).cloned().collect();
        Arc::new(Policy { rules, ..Policy::clone(policy) })
    };
    RuleSet::new(members.iter().map(with_wanted)).with_exceptions(exceptions.iter().cloned())
}
