//! Whether a policy may be stored: what is wrong with it, what users should know, and the rights it needs.

use std::sync::Arc;

use kiln_cel::{Env, PolicyScope, Type};
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, PolicyHost, compile_for};
use kiln_engine::{Event, User};
use kiln_object::policy_kinds::{self, is_cel};
use kiln_object::{Gvk, Kind, Kinds, metadata};
use kiln_rules::{Operation, Policy, PolicyId, Program, Rule, WebhookTimeout};
use kiln_text::wildcard;
use kiln_value::Value;
use kiln_yaml::{Document, Places, ReadOptions};

use crate::access::{self, AccessQuestion, Need, Without};
use crate::authors::Authors;
use crate::review::Response;
use crate::settings::Settings;

/// Why a policy is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// What the compiler says, all of it.
    #[error("{}", .0.join("; "))]
    Compile(Vec<String>),
    /// The new version changes what must stay.
    #[error("{0}")]
    Change(String),
    // Kyverno's words, as those of the next four.
    #[error("unable to convert GVK to GVR for kinds {0}")]
    FindKind(String),
    #[error(transparent)]
    FindNeeds(#[from] access::UnknownKind),
    #[error("background scan enabled with subresource {0}")]
    ScanSubresource(String),
    #[error("{path}: Invalid value: {written}: the timeout value must be between 1 and 30 seconds")]
    CheckTimeout { path: &'static str, written: i64 },
    #[error(
        "spec.matchConstraints: Required value: a matchConstraints with at least one resource rule is required"
    )]
    FindConstraints,
    #[error("{0}.name: Required value")]
    NameCondition(String),
    #[error("{place}.expression: Invalid value: {expression:?}: {why}")]
    CompileCondition { place: String, expression: String, why: String },
}

impl PolicyRefusal {
    /// Whether kinds that were defined a moment ago may change it. The others are about the text of the policy alone.
    fn depends_on_kinds(&self) -> bool {
        match self {
            PolicyRefusal::Compile(_)
            | PolicyRefusal::FindKind(_)
            | PolicyRefusal::FindNeeds(_) => true,
            PolicyRefusal::Change(_)
            | PolicyRefusal::ScanSubresource(_)
            | PolicyRefusal::CheckTimeout { .. }
            | PolicyRefusal::FindConstraints
            | PolicyRefusal::NameCondition(_)
            | PolicyRefusal::CompileCondition { .. } => false,
        }
    }
}

/// What was found out about a policy without asking the API server.
#[derive(Debug, Default)]
pub struct PolicyCheck {
    /// Why it is refused; none when nothing is wrong so far.
    refusal: Option<PolicyRefusal>,
    /// What users should know.
    warnings: Vec<String>,
    /// The rights that it needs.
    needs: Vec<Need>,
    /// Whose rights these are; none when it needs none.
    policy: Option<PolicyId>,
    /// The rights that the user who stores it needs, if its rules are held to them.
    of_author: Vec<Need>,
    /// Who stores it, if its rules are held to their rights.
    author: Option<User>,
}

impl PolicyCheck {
    /// Looks at the policy of a request. `others` are the rules that are there already.
    pub fn of<'r>(event: &Event, others: impl Iterator<Item = &'r Rule>, kinds: &Kinds) -> Self {
        let Some(object) = event.object.as_ref().filter(|_| is_write(event)) else {
            return PolicyCheck::default();
        };
        let unchanged =
            event.old_object.as_ref().is_some_and(|old| old.get("spec") == object.get("spec"));
        if unchanged || metadata::is_deleted(object) {
            // Finalizers and labels of a policy that was good once, or never, can still be changed.
            return PolicyCheck::default();
        }
        let mut check = PolicyCheck::default();
        if let Err(refusal) = check.look(event, object, others, kinds) {
            check.refusal = Some(refusal);
        }
        check
    }

    fn look<'r>(
        &mut self,
        event: &Event,
        object: &Value,
        others: impl Iterator<Item = &'r Rule>,
        kinds: &Kinds,
    ) -> Result<(), PolicyRefusal> {
        let document = as_document(object);
        let compiled = compile_for(PolicyHost::Cluster, [&document], kinds);
        let of_cel = Gvk::of(object).is_some_and(|gvk| is_cel(&gvk));
        let of_paths = Gvk::of(object).is_some_and(|gvk| gvk.group == "api.kubemod.io");
        let places = of_paths.then(|| document.places());
        self.diagnostics(&compiled, of_cel, places.as_ref())?;
        for policy in &compiled.policies {
            check_conditions(policy)?;
            has_constraints(policy)?;
            if is_rules(object) {
                Self::check_kinds(policy, kinds)?;
            }
        }
        if let Some(old) = event.old_object.as_ref()
            && is_rules(object)
        {
            let mut stale = false;
            for found in kiln_dialects::kyverno::check_update(&as_document(old), &document) {
                match found.severity {
                    Severity::Error => return Err(PolicyRefusal::Change(with_hint(&found))),
                    Severity::Note => self.warnings.push(found.message),
                    Severity::Warning => {
                        stale = true;
                        self.warnings.push(found.message);
                    }
                }
            }
            // Kyverno: nothing else is looked at then.
            if stale {
                return Ok(());
            }
        }
        let others: Vec<&Rule> = others.collect();
        for policy in &compiled.policies {
            let own = policy.rules.iter().map(AsRef::as_ref);
            let others = others.iter().copied().filter(|rule| rule.id.policy != policy.id);
            let cycles = kiln_dialects::rule_cycles(own, others).into_iter();
            self.warnings
                .extend(cycles.map(|cycle| format!("{} ({})", cycle.message(), cycle.hint())));
            let needs = access::needs(policy, kinds)?;
            self.of_author.extend(needs.iter().cloned());
            self.of_author.extend(access::needs_of_author(policy, kinds));
            self.needs.extend(needs);
            self.policy = Some(policy.id.clone());
        }
        Ok(())
    }

    /// Refuses rules that check objects of kinds which the cluster does not serve: they would check nothing.
    fn check_kinds(policy: &Policy, kinds: &Kinds) -> Result<(), PolicyRefusal> {
        let checks = |rule: &&Arc<Rule>| matches!(rule.program, Program::Validate(_));
        let scans = policy.background;
        let filters =
            policy.rules.iter().filter(checks).flat_map(|rule| rule.trigger.include.filters());
        for pattern in filters.flat_map(|filter| &filter.kinds) {
            let sub = pattern.subresource.as_str();
            if sub.is_empty() {
                continue;
            }
            if scans {
                return Err(PolicyRefusal::ScanSubresource(pattern.to_string()));
            }
            let takes = |kind: &Kind| {
                pattern.matches(kind.group(), kind.version(), kind.kind(), sub)
                    && kind.subresource(sub).is_some()
            };
            let is_plain = !wildcard::contains_wildcard(sub) && pattern.names_one_kind();
            if is_plain && !kinds.iter().any(takes) {
                return Err(PolicyRefusal::FindKind(pattern.to_string()));
            }
        }
        let unserved =
            policy.rules.iter().filter(checks).flat_map(|rule| rule.unserved_kinds(kinds));
        match unserved.into_iter().next() {
            Some(first) => {
                Err(PolicyRefusal::FindKind(first.trim_start_matches("kind ").to_owned()))
            }
            None => Ok(()),
        }
    }

    /// With places, each problem is reported with its path; Kyverno's users know them without.
    fn diagnostics(
        &mut self,
        compiled: &Compiled,
        of_cel: bool,
        places: Option<&Places>,
    ) -> Result<(), PolicyRefusal> {
        let mut errors = Vec::new();
        let with_hint = |found: &Diagnostic| match (places, &found.place) {
            (Some(places), Some(place)) => {
                format!("{}: {}", places.path_at(place), with_hint(found))
            }
            _ => with_hint(found),
        };
        for found in &compiled.diagnostics {
            match found.severity {
                // Kyverno: of these policies, errors are reported twice and without advice.
                Severity::Error if of_cel => {
                    self.warnings.push(found.message.clone());
                    errors.push(found.message.clone());
                }
                Severity::Error => errors.push(with_hint(found)),
                Severity::Warning => self.warnings.push(with_hint(found)),
                Severity::Note => self.warnings.push(found.message.clone()),
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(PolicyRefusal::Compile(errors)) }
    }

    /// Holds the policy to the permissions of the user who stores it, if that is to be done.
    #[must_use]
    pub fn held_to_author(mut self, event: &Event, authors: Authors) -> Self {
        let held = event.object.as_ref().is_some_and(|object| authors.hold(object));
        self.author = event.user.clone().filter(|_| held);
        self
    }

    /// Whether another look with the kinds that are there now may end better.
    pub fn may_be_new_kind(&self) -> bool {
        self.refusal.as_ref().is_some_and(PolicyRefusal::depends_on_kinds)
    }

    /// What to ask the API server, in this order; nothing when the policy is refused anyway.
    pub fn questions(&self) -> Vec<AccessQuestion<'_>> {
        if self.refusal.is_some() {
            return Vec::new();
        }
        let mut questions = access::questions(&self.needs);
        if let Some(author) = &self.author {
            questions.extend(access::questions_about(author, &self.of_author));
        }
        questions
    }

    /// The answer, once it is known which of the questions were answered with yes.
    pub fn conclude(self, allowed: &[bool], settings: &Settings) -> Response {
        let own = access::questions(&self.needs).len().min(allowed.len());
        let (own, authors) = allowed.split_at(own);
        let lacking = access::lacking(&self.needs, own);
        let lacks = self.policy.as_ref().zip(lacking.without()).filter(|_| self.refusal.is_none());
        let refusal = lacks
            .filter(|(_, without)| *without == Without::Refused)
            .map(|(policy, _)| lacking.told(policy, settings));
        let warning = lacks.filter(|_| refusal.is_none()).map(|_| lacking.warned(settings));
        let refusal = self
            .refusal
            .map(|refusal| refusal.to_string())
            .or(refusal)
            .or_else(|| access::refusal_to(self.author.as_ref()?, &self.of_author, authors));
        let mut response = refusal.map_or_else(Response::allowed, Response::refused);
        response.warnings = self.warnings;
        response.warnings.extend(warning);
        response
    }
}

fn is_write(event: &Event) -> bool {
    matches!(event.operation, Some(Operation::Create | Operation::Update))
        && event.subresource.is_empty()
}

fn is_rules(object: &Value) -> bool {
    Gvk::of(object).is_some_and(|gvk| policy_kinds::is_rules(&gvk))
}

fn as_document(object: &Value) -> Document {
    Document::from_value("policy", object.clone(), ReadOptions::kubernetes())
}

fn with_hint(found: &Diagnostic) -> String {
    match &found.hint {
        Some(hint) => format!("{} ({hint})", found.message),
        None => found.message.clone(),
    }
}

/// On files, a policy without constraints judges data; a cluster has none.
fn has_constraints(policy: &Policy) -> Result<(), PolicyRefusal> {
    let is_without = |rule: &&std::sync::Arc<Rule>| {
        rule.program.is_scheduled() && rule.trigger.include.filters().is_empty()
    };
    match policy.rules.iter().any(|rule| is_without(&rule)) {
        true => Err(PolicyRefusal::FindConstraints),
        false => Ok(()),
    }
}

/// An API server refuses a webhook configuration as a whole for one bad condition.
fn check_conditions(policy: &Policy) -> Result<(), PolicyRefusal> {
    let invalid = policy.delivery.timeouts.iter().rfind(|timeout| !timeout.is_valid());
    if let Some(WebhookTimeout { written, written_at }) = invalid {
        return Err(PolicyRefusal::CheckTimeout { path: written_at, written: *written });
    }
    let conditions = &policy.delivery.match_conditions;
    let Some(path) = conditions.written_at.filter(|_| !conditions.list.is_empty()) else {
        return Ok(());
    };
    let env = Env::policies(PolicyScope::Cluster)
        .extend()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::Dyn)
        .variable("authorizer", Type::Dyn)
        .build();
    for (at, condition) in conditions.list.iter().enumerate() {
        let place = format!("{path}[{at}]");
        if condition.str_at(["name"]).is_none_or(str::is_empty) {
            return Err(PolicyRefusal::NameCondition(place));
        }
        let expression = condition.str_at(["expression"]).unwrap_or_default();
        if let Err(error) = env.compile_as(expression, &[Type::Bool]) {
            let (expression, why) = (expression.to_owned(), error.to_string());
            return Err(PolicyRefusal::CompileCondition { place, expression, why });
        }
    }
    Ok(())
}
