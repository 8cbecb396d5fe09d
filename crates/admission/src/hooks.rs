//! Which rules answer at which path, and what they answer.
//!
//! Policies are put together in hooks: those that change objects and those that only need to know, by what a
//! failure means, with hooks of their own for policies that set conditions. A host makes new [`Hooks`] whenever
//! policies, kinds or settings change and puts them in the old ones' place, so that a request sees one set.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kiln_engine::{Effect, EvalEnv, Event, ObservedRequest, RuleOutcome, RuleSet, Verdict};
use kiln_object::Kinds;
use kiln_patch::diff;
pub use kiln_rules::WebhookPurpose as Purpose;
use kiln_rules::{
    AdmissionPart, Delivery, Exception, FailurePolicy, Operation, Policy, PolicyId, RequestFacts,
    Rule, RuleId,
};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Str, Value};

use crate::hook_group::{HookGroup, MODRULES, set_of, with_rules_of};
use crate::review::{Response, ReviewRequest, namespace_of, sent_kind};
use crate::settings::Settings;
use crate::shadows::{ShadowPair, ShadowResult, Shadows};
use crate::validation::{self, Answering, ValidationResult, ValidationRules, Wording};
use crate::webhooks::{joined_selectors, only_in, webhook_rules};

/// One webhook and the rules behind it.
#[derive(Debug)]
pub struct Hook {
    /// Where it is, and when it is called.
    pub webhook: HookCall,
    /// KubeMod: Nodes, ReplicaSets and what nodes send are not kept from rules.
    unfiltered: bool,
    set: RuleSet,
    /// The rules that check objects, and how they answer.
    validation: ValidationRules,
    answering: Answering,
    asks_for_roles: bool,
    /// Policies that warn users about what changed.
    warns: Vec<Str>,
    /// What policies need to know that no watch tells.
    needs: BTreeMap<PolicyId, Needs>,
    /// What is evaluated beside its rules, without effect.
    shadows: Vec<ShadowPair>,
}

/// Where a webhook is, and when it is called: an entry of a webhook configuration.
#[derive(Debug)]
pub struct HookCall {
    /// Its name in a webhook configuration.
    pub name: String,
    /// The path that it is called at.
    pub path: String,
    /// Whether its rules change objects.
    pub purpose: Purpose,
    /// What it means when a rule fails, or no replica answers.
    pub failure: FailurePolicy,
    /// How many seconds an answer may take.
    pub timeout: u8,
    /// What must hold of a request.
    pub match_conditions: Vec<Value>,
    /// Requests in other versions of a kind are not converted.
    pub exact: bool,
    /// The namespaces of the objects, as a label selector.
    pub namespace_selector: Value,
    /// The objects, as a label selector.
    pub object_selector: Value,
    /// The resources and operations, as a webhook configuration has them.
    pub rules: Vec<Value>,
    /// May be called again when others changed the object after it.
    pub reinvoked: bool,
}

/// What a policy needs to know that no watch tells.
#[derive(Clone, Debug)]
struct Needs {
    /// What its rules read of a request.
    facts: RequestFacts,
    /// When the policy was made, if it was not changed since: whatever came later was seen by it.
    since: Option<Str>,
}

impl Needs {
    fn of(policy: &Policy) -> Self {
        let since = policy.delivery.unchanged_since.clone();
        Needs { facts: policy.needed_facts(), since }
    }

    /// Whether a rule of the policy needs what only this request knows, so that it must not be lost.
    ///
    /// Such a request is stored before it is answered, which costs the user a write, and may cost a refusal if that write
    /// fails. So no is the answer wherever a watch or a list tells the controller the same later; yes in doubt, since a request that
    /// is lost loses a trigger without a word.
    fn hold(&self, rule: &Rule, hint: &ObservedRequest) -> bool {
        let operation = hint.operation;
        if hint.stores_nothing() {
            // A change of the status alone triggers nothing.
            return hint.subresource != "status";
        }
        if operation == Operation::Delete {
            return self.facts.user || rule.trigger.named_operations().contains(operation);
        }
        let is_new_to_it = || {
            let born =
                hint.object.as_ref().and_then(|o| o.str_at(["metadata", "creationTimestamp"]));
            // Times of the API server have one form, and sort as they are.
            let seen = self.since.as_deref().zip(born).is_some_and(|(since, born)| since < born);
            !(rule.lifecycle.synchronize && seen)
        };
        self.facts.user
            || (operation == Operation::Update && self.facts.old_object)
            || (hint.changes_nothing() && is_new_to_it())
    }
}

/// What a hook does with a request.
pub(crate) enum Visibility {
    /// Its rules see it.
    Visible,
    /// They do not: the settings keep it from them, by what it is about or by who sent it.
    Excluded { by_user: bool },
    /// Who sent it cannot be found out.
    UserUnknown(String),
}

/// All hooks of a host.
#[derive(Debug, Default)]
pub struct Hooks {
    hooks: Vec<Hook>,
    by_path: BTreeMap<String, usize>,
}

/// What came of a review.
#[derive(Debug, Default)]
pub struct Reviewed {
    /// The response for the API server.
    pub response: Response,
    /// What the controller should know.
    pub hint: Option<ObservedRequest>,
    /// The rules that cannot do without it: for them it must outlive this process. None when it only spares
    /// the controller some waiting.
    pub needed_by: Vec<RuleId>,
    /// Rather than lose what these rules need, the request is refused.
    pub strict: bool,
    /// What rules that change the object did.
    pub ran: Vec<ValidationResult>,
    /// What rules that check objects found.
    pub results: Vec<ValidationResult>,
    /// There are rules that check the object and have no part in the answer: [`Hooks::audit`] evaluates them.
    pub audits: bool,
    /// There are shadows of its rules: [`Hooks::shadows`] compares both.
    pub shadowed: bool,
    /// The request was not evaluated: it is of a kind, or by a user, that is excluded.
    pub passed_over: bool,
    /// Something went wrong in Kiln itself.
    pub panicked: bool,
}

/// How long an answer may take unless a policy says otherwise.
const TIMEOUT: u8 = 10;

impl Hooks {
    /// The hooks of policies.
    pub fn new(
        policies: impl IntoIterator<Item = Arc<Policy>>,
        exceptions: &[Arc<Exception>],
        kinds: &Kinds,
        settings: &Settings,
    ) -> Self {
        let mut groups: BTreeMap<HookGroup, Vec<Arc<Policy>>> = BTreeMap::new();
        let (shadows, policies) = Shadows::taken_from(policies);
        for policy in policies {
            // Cleanup policies run on a schedule: they need no webhook.
            if policy.delivery.off || policy.is_scheduled() {
                continue;
            }
            for part in AdmissionPart::ALL {
                let Some(some) = with_rules_of(&policy, part) else { continue };
                let group = HookGroup::of(&policy, part);
                let members = groups.entry(group).or_default();
                match members.last_mut().filter(|known| known.id == policy.id) {
                    Some(known) => {
                        let rules = known.rules.iter().chain(&some.rules).cloned().collect();
                        *known = Arc::new(Policy { rules, ..Policy::clone(known) });
                    }
                    None => members.push(some),
                }
            }
        }
        let mut hooks = Hooks::default();
        for (group, members) in &groups {
            let distinct = groups.keys().filter(|other| group.would_share_name(other)).count() > 1;
            let mut hook = Hook::new(group, members, distinct, exceptions, kinds, settings);
            hook.shadows = shadows.pairs(members, exceptions);
            // What only a shadow is about is asked about, too.
            let also: Vec<_> = members.iter().flat_map(|policy| shadows.of(policy)).collect();
            if !also.is_empty() {
                let all: Vec<_> = members.iter().chain(also).cloned().collect();
                hook.webhook.rules = webhook_rules(&all, kinds);
            }
            hooks.by_path.insert(hook.webhook.path.clone(), hooks.hooks.len());
            hooks.hooks.push(hook);
        }
        hooks
    }

    /// All hooks.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter()
    }

    /// The hooks that answer at a path. For a while after policies change, an API server asks at the paths
    /// that it knew: those of a family are then answered by all hooks of that family.
    fn at(&self, path: &str) -> Vec<&Hook> {
        if let Some(at) = self.by_path.get(path) {
            return vec![&self.hooks[*at]];
        }
        let family = |path: &str| path.split('/').nth(1).unwrap_or_default().to_owned();
        let wanted = family(path);
        if !FAMILIES.contains(&wanted.as_str()) {
            return Vec::new();
        }
        self.hooks.iter().filter(|hook| family(&hook.webhook.path) == wanted).collect()
    }

    /// Whether a path belongs to a hook, or did.
    pub fn knows(path: &str) -> bool {
        let first = path.split('/').nth(1).unwrap_or_default();
        FAMILIES.contains(&first)
            || matches!(
                first,
                "mutate" | "validate" | "mpol-existing" | "nmpol-existing" | "dragnet-webhook"
            )
    }

    /// Answers a request that was sent to a path. Whatever happens, there is an answer.
    pub fn review(
        &self,
        path: &str,
        request: &ReviewRequest,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
    ) -> Reviewed {
        let mut all = Reviewed::default();
        for hook in self.at(path) {
            let one = catch_unwind(AssertUnwindSafe(|| hook.review(request, eval_env, settings)));
            let one = one.unwrap_or_else(|_| Reviewed {
                panicked: true,
                ..hook.gave_up("internal error; see the Kiln log")
            });
            let refused = !one.response.is_allowed();
            all = one.after(all);
            if refused {
                break;
            }
        }
        all
    }

    /// Evaluates the rules that check the object of a request and have no part in the answer.
    pub fn audit(
        &self,
        path: &str,
        request: &ReviewRequest,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
    ) -> Vec<ValidationResult> {
        let mut found = Vec::new();
        for hook in self.at(path) {
            let mut event = request.event.clone();
            if let Visibility::Visible = hook.look(&mut event, eval_env, settings) {
                let auditing = &hook.validation.auditing;
                let audited = catch_unwind(AssertUnwindSafe(|| auditing.mutate(&event, eval_env)));
                found.extend(audited.into_iter().flat_map(|a| validation::results(&a.outcomes)));
            }
        }
        found
    }

    /// Compares the rules that a request reaches with their shadows. Nothing comes of it but these results.
    pub fn shadows(
        &self,
        path: &str,
        request: &ReviewRequest,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
    ) -> Vec<ShadowResult> {
        let mut found = Vec::new();
        for hook in self.at(path).into_iter().filter(|hook| !hook.shadows.is_empty()) {
            let mut event = request.event.clone();
            if let Visibility::Visible = hook.look(&mut event, eval_env, settings) {
                found
                    .extend(hook.shadows.iter().filter_map(|pair| pair.compared(&event, eval_env)));
            }
        }
        found
    }
}

/// The families whose hooks have their policies in their paths.
const FAMILIES: [&str; 6] = ["gpol", "ngpol", "mpol", "nmpol", "vpol", "nvpol"];

impl HookCall {
    /// When and where the rules of a group are asked: whenever any policy of the group is to be, within what the settings
    /// and selectors leave to it.
    fn of(
        group: &HookGroup,
        members: &[Arc<Policy>],
        distinct: bool,
        kinds: &Kinds,
        settings: &Settings,
    ) -> Self {
        let (name, path) = group.called(members, distinct);
        let deliveries = || members.iter().map(|policy| &policy.delivery);
        let mut namespaces: Vec<&str> =
            members.iter().filter_map(|policy| policy.id.namespace.as_deref()).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        // A policy may live in a namespace and reach beyond it.
        let stays = |policy: &Policy| {
            policy.id.namespace.is_some()
                && policy.rules.iter().all(|rule| rule.scope.namespace().is_some())
        };
        let own = members.iter().all(|policy| stays(policy)).then(|| only_in(&namespaces));
        let first = deliveries().next();
        let selector = |key: fn(&Delivery) -> Option<&Value>| first.and_then(key);
        let match_conditions = deliveries().flat_map(|r| r.match_conditions.list.iter());
        HookCall {
            name,
            path,
            purpose: group.purpose,
            failure: group.failure,
            timeout: deliveries().filter_map(Delivery::timeout_seconds).max().unwrap_or(TIMEOUT),
            match_conditions: settings
                .webhooks
                .match_conditions
                .iter()
                .chain(match_conditions)
                .cloned()
                .collect(),
            exact: deliveries().any(|r| r.exact),
            namespace_selector: joined_selectors([
                Some(&settings.webhooks.namespace_selector),
                selector(|r| r.namespace_selector.as_ref()),
                own.as_ref(),
            ]),
            object_selector: joined_selectors([
                Some(&settings.webhooks.object_selector),
                selector(|r| r.object_selector.as_ref()),
                None,
            ]),
            rules: webhook_rules(members, kinds),
            reinvoked: group.purpose == Purpose::Mutate
                && group.family.is_none_or(|family| family == MODRULES),
        }
    }
}

impl Hook {
    fn new(
        group: &HookGroup,
        members: &[Arc<Policy>],
        distinct: bool,
        exceptions: &[Arc<Exception>],
        kinds: &Kinds,
        settings: &Settings,
    ) -> Self {
        let webhook = HookCall::of(group, members, distinct, kinds, settings);
        Hook {
            webhook,
            unfiltered: group.family == Some(MODRULES),
            set: set_of(members, exceptions, |rule| {
                AdmissionPart::of(rule) != AdmissionPart::Validate
            }),
            validation: ValidationRules {
                answering: set_of(members, exceptions, |rule| {
                    AdmissionPart::of(rule) == AdmissionPart::Validate
                        && (group.alone.is_some() || validation::may_answer(rule))
                }),
                auditing: set_of(members, exceptions, |rule| {
                    let answers = group.alone.is_some() || validation::may_answer(rule);
                    AdmissionPart::of(rule) == AdmissionPart::Validate && !answers
                }),
            },
            answering: Answering {
                wording: match group.family {
                    None => Wording::Rules,
                    Some(_) => Wording::Policies,
                },
                failure: group.failure,
                alone: group.alone.is_some(),
            },
            asks_for_roles: members.iter().any(|policy| policy.needed_facts().roles),
            warns: members
                .iter()
                .filter(|policy| policy.delivery.warns)
                .map(|policy| policy.id.key().into())
                .collect(),
            needs: members.iter().map(|policy| (policy.id.clone(), Needs::of(policy))).collect(),
            shadows: Vec::new(),
        }
    }

    fn review(
        &self,
        request: &ReviewRequest,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
    ) -> Reviewed {
        let mut event = request.event.clone();
        match self.look(&mut event, eval_env, settings) {
            Visibility::Visible => {
                let reviewed = match self.webhook.purpose {
                    Purpose::Mutate => self.mutate(&event, eval_env),
                    Purpose::Observe => {
                        let validated = self.validate(&event, eval_env);
                        match validated.response.is_allowed() {
                            true => self.observe(&event, eval_env.kinds, false).after(validated),
                            false => validated,
                        }
                    }
                };
                let shadowed = self.shadows.iter().any(|pair| pair.concerns(&event));
                Reviewed { shadowed, ..reviewed }
            }
            // The stored object does not say that it is excluded.
            Visibility::Excluded { by_user: true } if self.webhook.purpose == Purpose::Observe => {
                Reviewed { passed_over: true, ..self.observe(&event, eval_env.kinds, true) }
            }
            Visibility::Excluded { .. } => Reviewed { passed_over: true, ..Reviewed::default() },
            Visibility::UserUnknown(why) => self.gave_up(&why),
        }
    }

    /// Whether rules are to see a request, once it is known who sent it.
    pub(crate) fn look(
        &self,
        event: &mut Event,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
    ) -> Visibility {
        let namespace = event.namespace.clone().unwrap_or_default();
        if !self.unfiltered
            && settings.filters_out(&event.kind, &event.subresource, &namespace, &event.name)
        {
            return Visibility::Excluded { by_user: false };
        }
        event.context.own = false;
        if let Some(user) = &mut event.user {
            event.context.own = user.username == settings.background_user();
            let asks = !self.unfiltered && settings.excluded.asks_for_roles();
            if self.asks_for_roles || asks {
                let resolved = user.resolve_roles(eval_env.view, event.namespace.as_deref());
                if let Err(error) = resolved {
                    // A user whose roles are unknown must not be treated as a user without roles.
                    return Visibility::UserUnknown(format!(
                        "the roles of {}: {error}",
                        user.username
                    ));
                }
            }
            if !self.unfiltered && settings.excluded.holds(user) {
                return Visibility::Excluded { by_user: true };
            }
        }
        Visibility::Visible
    }

    /// The rules that it runs.
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.set
    }

    /// What its rules that check objects make of a request, and the answer of those that answer.
    pub(crate) fn validate(&self, event: &Event, eval_env: &EvalEnv<'_>) -> Reviewed {
        let ValidationRules { answering, auditing } = &self.validation;
        let results = validation::results(&answering.mutate(event, eval_env).outcomes);
        let response = self.answering.answer(event, &results);
        let audits = response.is_allowed() && auditing.candidates(event).next().is_some();
        Reviewed { response, results, audits, ..Reviewed::default() }
    }

    fn mutate(&self, event: &Event, eval_env: &EvalEnv<'_>) -> Reviewed {
        let mutated = self.set.mutate(event, eval_env);
        let mut reviewed = Reviewed::default();
        let subject = subject_of(event);
        let ran = mutated.outcomes.iter();
        reviewed.ran.extend(ran.filter_map(|o| ValidationResult::of_change(o, &subject)));
        let rejections: Vec<&str> =
            mutated.outcomes.iter().filter_map(RuleOutcome::refusal).collect();
        if !rejections.is_empty() {
            // KubeMod: all rules that reject are named.
            let rules = rejections.join(", ");
            let message = format!("operation rejected by the following ModRule(s): {rules}");
            reviewed.response = Response::refused(message);
            return reviewed;
        }
        let Some(before) = event.object.clone() else { return reviewed };
        let failed: Vec<&RuleOutcome> =
            mutated.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Error).collect();
        if let Some(first) = failed.first() {
            let of_policy = failed.iter().filter(|o| o.rule.policy == first.rule.policy);
            let rules: Vec<String> = of_policy.map(|outcome| describe_failure(outcome)).collect();
            let policy = first.rule.policy.key();
            let message = format!(
                "mutation policy {policy} error: failed to apply policy {policy} rules [{}]",
                rules.join(", ")
            );
            if self.webhook.failure == FailurePolicy::Fail {
                reviewed.response = Response::refused(message);
                return reviewed;
            }
            reviewed.response.warnings.push(message);
        }
        for outcome in &mutated.outcomes {
            let (policy, rule) = (outcome.rule.policy.key(), &outcome.rule.rule);
            let changed = outcome.effects.iter().any(|effect| matches!(effect, Effect::Patch(_)));
            if changed && self.warns.iter().any(|warns| *warns == policy) {
                let warning = format!("policy {policy}.{rule}: mutated {subject}");
                reviewed.response.warnings.push(warning);
            }
            for effect in &outcome.effects {
                if let Effect::Warn(diagnostic) = effect {
                    let warning = format!("policy {policy}.{rule}: {}", diagnostic.message);
                    reviewed.response.warnings.push(warning);
                }
            }
        }
        if mutated.object != before {
            let schema = Schema::builtin(KubernetesVersion::NEWEST);
            reviewed.response.patch = Some(diff(&before, &mutated.object, &schema));
        }
        reviewed
    }

    /// Allows the request, and tells the controller about it if one of its rules may care.
    fn observe(&self, event: &Event, kinds: &Kinds, passed_over: bool) -> Reviewed {
        let rules = || self.set.candidates(event);
        let cares = !event.request.dry_run && rules().next().is_some();
        let observed = || ObservedRequest::of(event, namespace_of(event, kinds), passed_over);
        let Some(hint) = cares.then(observed).flatten() else { return Reviewed::default() };
        let operation = hint.operation;
        let needs = |rule: &Rule| {
            if passed_over {
                // A watch tells what happened, and the rule would fire on it.
                return !hint.stores_nothing()
                    && (operation != Operation::Delete
                        || rule.trigger.named_operations().contains(operation));
            }
            self.needs.get(&rule.id.policy).is_some_and(|needs| needs.hold(rule, &hint))
        };
        let needed_by: Vec<RuleId> =
            rules().filter(|rule| needs(rule)).map(|rule| rule.id.clone()).collect();
        let strict = self.webhook.failure == FailurePolicy::Fail && !needed_by.is_empty();
        Reviewed { hint: Some(hint), needed_by, strict, ..Reviewed::default() }
    }

    /// The answer when the rules could not be asked.
    fn gave_up(&self, why: &str) -> Reviewed {
        let message = format!("{} could not evaluate the request: {why}", self.webhook.name);
        let response = match self.webhook.failure {
            FailurePolicy::Fail => Response::failed(message),
            FailurePolicy::Ignore => Response { warnings: vec![message], ..Response::allowed() },
        };
        Reviewed { response, ..Reviewed::default() }
    }
}

impl Reviewed {
    /// Joins what came of another hook for the same request. Only one of them changes objects.
    fn after(mut self, earlier: Reviewed) -> Self {
        let mut warnings = earlier.response.warnings;
        warnings.append(&mut self.response.warnings);
        self.response.warnings = warnings;
        self.response.patch = self.response.patch.or(earlier.response.patch);
        self.hint = earlier.hint.or(self.hint);
        self.needed_by.splice(0..0, earlier.needed_by);
        self.strict |= earlier.strict;
        self.ran.splice(0..0, earlier.ran);
        self.results.splice(0..0, earlier.results);
        self.audits |= earlier.audits;
        self.shadowed |= earlier.shadowed;
        self.panicked |= earlier.panicked;
        self
    }
}

fn describe_failure(outcome: &RuleOutcome) -> String {
    let failures: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    format!("{}: {}", outcome.rule.rule, failures.join("; "))
}

/// `Kind/name`, and its namespace if it is known.
fn subject_of(event: &Event) -> String {
    let kind = sent_kind(event).kind;
    match &event.namespace {
        Some(namespace) => format!("{kind}/{} in namespace {namespace}", event.name),
        None => format!("{kind}/{}", event.name),
    }
}
