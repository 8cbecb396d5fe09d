//! How requests reach the rules of a policy: when its webhooks are called, how long they may take, what a failure means.
//!
//! None of this changes what a rule does once it is asked. The languages write it in different places; their compilers put
//! it here, so that the code which registers webhooks and takes requests reads no documents.

use std::fmt;

use kiln_value::{Str, Value};

use crate::{Program, Rule};

/// What it means for a request when rules fail, or no replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailurePolicy {
    /// The request goes on.
    Ignore,
    /// The request is refused.
    Fail,
}

impl FailurePolicy {
    /// The word in paths and names.
    pub fn word(self) -> &'static str {
        match self {
            FailurePolicy::Ignore => "ignore",
            FailurePolicy::Fail => "fail",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailurePolicy::Ignore => "Ignore",
            FailurePolicy::Fail => "Fail",
        })
    }
}

/// Which part of a policy a webhook is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdmissionPart {
    /// Rules that change the object of the request.
    Mutate,
    /// Rules that only need to know of the request.
    Observe,
    /// Rules that check the object of the request.
    Validate,
}

/// What a webhook may do with the object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookPurpose {
    /// It changes it.
    Mutate,
    /// It looks at it: it may refuse it, or pass it on to the controller.
    Observe,
}

impl AdmissionPart {
    /// All of them.
    pub const ALL: [AdmissionPart; 3] =
        [AdmissionPart::Mutate, AdmissionPart::Observe, AdmissionPart::Validate];

    /// The part that a rule belongs to.
    pub fn of(rule: &Rule) -> Self {
        match rule.program {
            Program::Validate(_) => AdmissionPart::Validate,
            _ if rule.program.acts_at_admission() => AdmissionPart::Mutate,
            _ => AdmissionPart::Observe,
        }
    }

    /// What its webhook is for.
    pub fn purpose(self) -> WebhookPurpose {
        match self {
            AdmissionPart::Mutate => WebhookPurpose::Mutate,
            AdmissionPart::Observe | AdmissionPart::Validate => WebhookPurpose::Observe,
        }
    }
}

/// Which webhooks serve a policy, and what these are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookFamily {
    /// One webhook for all policies of Kyverno's rules with the same failure policy.
    Rules,
    /// Webhooks for policies of a kind, named by its short name, for the cluster and for namespaces.
    Kind {
        /// The short name of the kind.
        cluster: &'static str,
        /// The short name of its namespaced form.
        namespaced: &'static str,
    },
    /// KubeMod: one webhook for all ModRules, wherever they are, since tiers order them all. The objects that settings keep
    /// from other rules are not kept from them.
    ModRules,
}

/// What a failure means for the parts of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePolicies {
    /// Where rules change or check the object.
    pub acting: FailurePolicy,
    /// Where rules only need to know of the request.
    pub observe: FailurePolicy,
}

impl FailurePolicies {
    /// No request is ever refused, whatever the policy says.
    pub const IGNORE: FailurePolicies =
        FailurePolicies { acting: FailurePolicy::Ignore, observe: FailurePolicy::Ignore };

    /// What a policy says, and what is usual where it says nothing. What a request would have told an observing rule is
    /// found out from what the server stored, too: that is no reason to block users, unless the policy asks for it.
    pub fn of(word: Option<&str>) -> Self {
        let written = match word {
            Some("Ignore") => Some(FailurePolicy::Ignore),
            Some("Fail") => Some(FailurePolicy::Fail),
            _ => None,
        };
        FailurePolicies {
            acting: written.unwrap_or(FailurePolicy::Fail),
            observe: written.unwrap_or(FailurePolicy::Ignore),
        }
    }
}

/// Conditions that an API server checks before it calls a webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchConditions {
    /// Each with name and expression, as a webhook configuration has them.
    pub list: Vec<Value>,
    /// Where the policy holds them, if it wrote them for its webhook: a slip in one is refused when the policy is stored,
    /// because an API server refuses a whole webhook configuration for it. Those that were derived are good.
    pub written_at: Option<&'static str>,
}

/// How many seconds an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookTimeout {
    /// As the policy has it.
    pub written: i64,
    /// Where.
    pub written_at: &'static str,
}

impl WebhookTimeout {
    /// The seconds, or those that an API server takes which are nearest to them.
    pub fn seconds(self) -> u8 {
        u8::try_from(self.written.clamp(1, 30)).unwrap_or(30)
    }

    /// Whether an API server takes it as it is written.
    pub fn is_valid(self) -> bool {
        (1..=30).contains(&self.written)
    }
}

/// How requests reach the rules of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Its rules are not to see requests at all.
    pub off: bool,
    /// What a failure means.
    pub failure: FailurePolicies,
    /// How many seconds an answer may take, as the policy has it; the first counts. A timeout that no API server takes is
    /// refused when the policy is stored.
    pub timeouts: Vec<WebhookTimeout>,
    /// What must hold of a request.
    pub match_conditions: MatchConditions,
    /// Requests in other versions of a kind are not converted.
    pub exact: bool,
    /// The resources that the policy itself names, as a webhook names them.
    pub resource_rules: Option<Vec<Value>>,
    /// Namespaces of the objects, as a label selector.
    pub namespace_selector: Option<Value>,
    /// Labels of the objects, as a label selector.
    pub object_selector: Option<Value>,
    /// Users get a warning about what rules changed.
    pub warns: bool,
    /// Which webhooks serve it.
    pub family: WebhookFamily,
    /// When the policy was stored, if it was not changed since: it has seen whatever came later.
    pub unchanged_since: Option<Str>,
    /// It is evaluated beside the rules of another policy, to compare both; nothing that it decides has an effect.
    pub shadow_of: Option<ShadowOf>,
}

/// The rules that a shadow is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowOf {
    /// Their policy, as `Kind/name` or `Kind/namespace/name`. What names no policy makes a shadow all the same: a slip here
    /// must not put a policy in force.
    pub policy: Str,
    /// Their names; all rules of the policy if it is empty.
    pub rules: Vec<Str>,
}

impl Delivery {
    /// How requests reach a policy that says nothing about it.
    pub fn usual(family: WebhookFamily) -> Self {
        Delivery {
            off: false,
            failure: FailurePolicies::of(None),
            timeouts: Vec::new(),
            match_conditions: MatchConditions::default(),
            exact: false,
            resource_rules: None,
            namespace_selector: None,
            object_selector: None,
            warns: false,
            family,
            unchanged_since: None,
            shadow_of: None,
        }
    }

    /// How many seconds an answer may take, if the policy says.
    pub fn timeout_seconds(&self) -> Option<u8> {
        self.timeouts.first().map(|timeout| timeout.seconds())
    }

    /// Whether the policy needs a webhook of its own.
    pub fn is_fine_grained(&self) -> bool {
        let of_constraints = self.resource_rules.is_some();
        // Kyverno: rules share the longest time; a policy with constraints keeps its own.
        !self.match_conditions.list.is_empty()
            || (of_constraints && (self.exact || !self.timeouts.is_empty()))
    }

    /// What a failure means for a part of the policy.
    pub fn failure_of(&self, part: AdmissionPart) -> FailurePolicy {
        match part {
            AdmissionPart::Mutate | AdmissionPart::Validate => self.failure.acting,
            AdmissionPart::Observe => self.failure.observe,
        }
    }
}

/// What expressions read that only a request tells, and no watch does.
///
/// A fact too many costs a stored request; one too few loses triggers without a word. Compilers say yes in doubt: where an
/// expression takes the request as a whole, or is put together when it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// Who sent it.
    pub user: bool,
    /// The roles that are bound to that user.
    pub roles: bool,
    /// What the object was before.
    pub old_object: bool,
}

impl RequestFacts {
    /// Whatever a request tells.
    pub const ALL: RequestFacts = RequestFacts { user: true, roles: true, old_object: true };

    /// What two expressions read together.
    #[must_use]
    pub fn and(self, other: RequestFacts) -> Self {
        RequestFacts {
            user: self.user || other.user,
            roles: self.roles || other.roles,
            old_object: self.old_object || other.old_object,
        }
    }

    /// What is read by a field of the request; all of it where no field is named.
    pub fn of_field(field: Option<&str>) -> Self {
        let none = RequestFacts::default();
        match field {
            None => RequestFacts::ALL,
            Some("userInfo") => RequestFacts { user: true, ..none },
            Some("roles" | "clusterRoles") => RequestFacts { user: true, roles: true, ..none },
            Some("oldObject") => RequestFacts { old_object: true, ..none },
            Some(_) => none,
        }
    }
}

impl FromIterator<RequestFacts> for RequestFacts {
    fn from_iter<T: IntoIterator<Item = RequestFacts>>(facts: T) -> Self {
        facts.into_iter().fold(RequestFacts::default(), RequestFacts::and)
    }
}
