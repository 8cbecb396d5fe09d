//! Which policies share a webhook, and what it is called.

use std::sync::Arc;

use kiln_engine::RuleSet;
use kiln_rules::{
    AdmissionPart, Exception, FailurePolicy, Policy, Rule, WebhookFamily, WebhookPurpose as Purpose,
};
use kiln_value::{Str, Value, json};

/// The family of ModRules.
pub(crate) const MODRULES: &str = "modrule";

/// The webhook of ModRules and its path, as KubeMod's users know them.
const DRAGNET: &str = "dragnet.kubemod.io";
const DRAGNET_PATH: &str = "/dragnet-webhook";

/// What policies have in common that share a hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HookGroup {
    pub(crate) family: Option<&'static str>,
    pub(crate) purpose: Purpose,
    pub(crate) failure: FailurePolicy,
    /// The only policy, when it has a hook of its own.
    pub(crate) alone: Option<Str>,
    /// Both selectors, as text.
    selectors: String,
}

impl HookGroup {
    pub(crate) fn of(policy: &Policy, part: AdmissionPart) -> Self {
        let delivery = &policy.delivery;
        let own = delivery.is_fine_grained().then(|| Str::from(policy.id.key()));
        let family = family(policy);
        // A namespaced policy with constraints is only asked about its own namespace.
        let apart = family.is_some_and(|family| family != MODRULES);
        let namespace = policy.id.namespace.clone().filter(|_| apart);
        let selectors = [&delivery.namespace_selector, &delivery.object_selector]
            .map(|selector| selector.as_ref().map(json::to_canonical_string).unwrap_or_default());
        HookGroup {
            family,
            purpose: part.purpose(),
            failure: delivery.failure_of(part),
            alone: own,
            selectors: match (family, selectors.iter().all(String::is_empty), namespace) {
                (None | Some(MODRULES), ..) | (_, true, None) => String::new(),
                (_, _, namespace) => {
                    format!("{} {}", selectors.join(" "), namespace.unwrap_or_default())
                }
            },
        }
    }

    pub(crate) fn would_share_name(&self, other: &HookGroup) -> bool {
        (self.family, self.purpose, self.failure, &self.alone)
            == (other.family, other.purpose, other.failure, &other.alone)
    }

    /// Name and path, as Kyverno has them.
    pub(crate) fn called(&self, members: &[Arc<Policy>], distinct: bool) -> (String, String) {
        let failure = self.failure.word();
        let fine = match (&self.alone, members.first()) {
            (Some(_), Some(policy)) => format!("-finegrained-{}", dashed(policy)),
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
        let mut names: Vec<String> = members.iter().map(|policy| policy.id.key()).collect();
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
pub(crate) fn with_rules_of(policy: &Arc<Policy>, part: AdmissionPart) -> Option<Arc<Policy>> {
    if policy.rules.iter().all(|rule| AdmissionPart::of(rule) == part) {
        return (!policy.rules.is_empty()).then(|| Arc::clone(policy));
    }
    let rules: Vec<_> =
        policy.rules.iter().filter(|rule| AdmissionPart::of(rule) == part).cloned().collect();
    let some = !rules.is_empty();
    some.then(|| Arc::new(Policy { rules, ..Policy::clone(policy) }))
}

/// The rules of policies that are wanted, without what exceptions mean.
pub(crate) fn set_of(
    members: &[Arc<Policy>],
    exceptions: &[Arc<Exception>],
    wanted: impl Fn(&Rule) -> bool,
) -> RuleSet {
    let with_wanted = |policy: &Arc<Policy>| {
        if policy.rules.iter().all(|rule| wanted(rule)) {
            return Arc::clone(policy);
        }
        let rules = policy.rules.iter().filter(|rule| wanted(rule)).cloned().collect();
        Arc::new(Policy { rules, ..Policy::clone(policy) })
    };
    RuleSet::new(members.iter().map(with_wanted)).with_exceptions(exceptions.iter().cloned())
}

/// The word that stands in the names of webhooks for the policies that they serve; none for Kyverno's rules.
fn family(policy: &Policy) -> Option<&'static str> {
    match policy.delivery.family {
        WebhookFamily::Rules => None,
        WebhookFamily::Kind { cluster, namespaced } => {
            Some(if policy.id.namespace.is_some() { namespaced } else { cluster })
        }
        WebhookFamily::ModRules => Some(MODRULES),
    }
}

/// The name of a policy as a part of names: `name`, or `namespace-name`.
fn dashed(policy: &Policy) -> String {
    policy.id.key().replace('/', "-")
}
