//! What rules ask of services, and what authors of policies may read. The host asks, and the rule is looked at again
//! when there is an answer.
//!
//! An answer counts for a while, so that looking at a key again needs no call, and is then forgotten.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use kiln_engine::{
    AccessRequest, ContentHash, ExternalData, ExternalDataError, ReadError, ServiceAnswer,
    ServiceRequest, User,
};
use kiln_object::ObjectId;
use kiln_rules::Method;
use kiln_value::{Str, Value};

use crate::controller::Controller;
use crate::work_queue::WorkKey;
use kiln_engine::author::{is_policy, refusal, refusal_of_policy, signature};

/// How long an answer counts, in milliseconds.
const LIFE: u64 = 30_000;
/// How long it counts what a user may do: rights that are withdrawn end within this time.
const RIGHT_LIFE: u64 = 10_000;
/// How long a failure counts: the call is made again when the work is tried again.
const FAILURE_LIFE: u64 = 1_000;
/// How many answers are kept at most.
const MOST: usize = 10_000;

/// A question for a host to pass on, and to answer under its number.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupQuestion {
    /// The host returns the answer under this number.
    pub number: u64,
    pub asked: Lookup,
}

/// What is asked, and of whom.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// Something of a service.
    Service(ServiceQuestion),
    /// Of the API server, whether a user may do something.
    Access(AccessCheck),
}

/// A service call that a rule waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceQuestion {
    url: String,
    method: Method,
    headers: Vec<(Str, String)>,
    body: Option<Value>,
    ca_bundle: Option<String>,
}

/// An access check of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessCheck {
    pub user: User,
    /// `get`, `list`, `update`, `bind` or `escalate`.
    pub verb: &'static str,
    /// What; all objects of the kind when it has no name.
    pub object: ObjectId,
    /// The part of it; empty for the object itself.
    pub subresource: Str,
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub enum LookupResult {
    /// What a service said.
    Service(Result<ServiceAnswer, ExternalDataError>),
    /// Whether the user may do it, or why that cannot be known.
    Access(Result<bool, String>),
}

impl AccessCheck {
    /// The right that the author of a policy needs for what it wants to read.
    pub fn of(author: &User, access: &AccessRequest<'_>) -> Self {
        let namespace = access.namespace.unwrap_or_default();
        let object = ObjectId::new(access.kind.clone(), namespace, access.name.unwrap_or_default());
        AccessCheck {
            user: author.clone(),
            verb: access.verb,
            object,
            subresource: access.subresource.into(),
        }
    }

    /// What follows from the answer whether the user has it.
    ///
    /// # Errors
    /// When they have not, or that is not known.
    pub fn verdict(&self, has: Result<bool, String>) -> Result<(), ReadError> {
        let AccessCheck { user, verb, object, subresource } = self;
        if *verb == "update" && is_policy(&object.gvk) {
            return Err(ReadError::Denied(refusal_of_policy(user, &object.gvk)));
        }
        let slash = if subresource.is_empty() { "" } else { "/" };
        let what = format!("objects of kind {}{slash}{subresource}", object.gvk.kind);
        match has {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReadError::Denied(refusal(user, verb, &what, &object.namespace))),
            Err(why) => Err(ReadError::Undecided(why)),
        }
    }
}

impl ServiceQuestion {
    fn of(request: &ServiceRequest<'_>) -> Self {
        ServiceQuestion {
            url: request.url.to_owned(),
            method: request.method,
            headers: request.headers.to_vec(),
            body: request.body.cloned(),
            ca_bundle: request.ca_bundle.map(str::to_owned),
        }
    }

    /// What is asked.
    pub fn request(&self) -> ServiceRequest<'_> {
        ServiceRequest {
            url: &self.url,
            method: self.method,
            headers: &self.headers,
            body: self.body.as_ref(),
            ca_bundle: self.ca_bundle.as_deref(),
        }
    }
}

impl Lookup {
    fn hash(&self) -> ContentHash {
        ContentHash::of(&match self {
            Lookup::Service(question) => {
                let headers = question.headers.iter().map(|(name, value)| {
                    Value::from_iter([Value::from(name.clone()), Value::from(value.as_str())])
                });
                Value::from_iter([
                    Value::from(question.url.as_str()),
                    Value::from(question.method.as_str()),
                    Value::from_iter(headers),
                    question.body.clone().unwrap_or(Value::Null),
                    Value::from(question.ca_bundle.clone().unwrap_or_default()),
                ])
            }
            Lookup::Access(right) => Value::from_iter([
                signature(&right.user),
                right.verb.to_owned(),
                right.object.gvk.to_string(),
                right.object.namespace.to_string(),
                right.object.name.to_string(),
                right.subresource.to_string(),
            ]),
        })
    }
}

impl LookupResult {
    fn life(&self) -> u64 {
        match self {
            LookupResult::Service(Ok(_)) => LIFE,
            LookupResult::Access(Ok(_)) => RIGHT_LIFE,
            LookupResult::Service(Err(_)) | LookupResult::Access(Err(_)) => FAILURE_LIFE,
        }
    }
}

/// Pending lookups, and their results.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    answers: HashMap<ContentHash, (u64, LookupResult)>,
    /// By number: what was asked, and who waits for it.
    asked: HashMap<u64, (ContentHash, BTreeSet<WorkKey>)>,
    /// The numbers of what was asked.
    numbers: HashMap<ContentHash, u64>,
    out: Vec<LookupQuestion>,
    next: u64,
}

impl Lookups {
    /// Asks for a key, which waits for the answers. What is asked already is not asked again.
    pub(crate) fn ask(&mut self, key: &WorkKey, lookups: Vec<Lookup>) {
        for asked in lookups {
            let hash = asked.hash();
            let known = self.numbers.get(&hash);
            if let Some((_, waiting)) = known.and_then(|number| self.asked.get_mut(number)) {
                waiting.insert(key.clone());
                continue;
            }
            self.next += 1;
            let number = self.next;
            self.asked.insert(number, (hash, BTreeSet::from([key.clone()])));
            self.numbers.insert(hash, number);
            self.out.push(LookupQuestion { number, asked });
        }
    }

    /// What is to be asked now.
    pub(crate) fn poll(&mut self) -> Vec<LookupQuestion> {
        std::mem::take(&mut self.out)
    }

    /// Remembers an answer for a while; the keys that waited for it.
    pub(crate) fn on_reply(
        &mut self,
        number: u64,
        answer: LookupResult,
        now: u64,
    ) -> BTreeSet<WorkKey> {
        let Some((hash, waiting)) = self.asked.remove(&number) else { return BTreeSet::new() };
        self.numbers.remove(&hash);
        if self.answers.len() >= MOST {
            self.answers.retain(|_, (at, answer)| now < *at + answer.life());
            if self.answers.len() >= MOST {
                self.answers.clear();
            }
        }
        self.answers.insert(hash, (now, answer));
        waiting
    }

    fn known(&self, asked: &Lookup, now: u64) -> Option<&LookupResult> {
        let (at, answer) = self.answers.get(&asked.hash())?;
        (now < at + answer.life()).then_some(answer)
    }
}

/// Services and rights as one evaluation sees them: what was answered, and what is still to be asked.
pub(crate) struct KnownAnswers<'c> {
    lookups: &'c Lookups,
    now: u64,
    on: bool,
    pub(crate) missing: RefCell<Vec<Lookup>>,
}

impl KnownAnswers<'_> {
    fn answer(&self, asked: &Lookup) -> Option<&LookupResult> {
        let known = self.lookups.known(asked, self.now);
        let mut missing = self.missing.borrow_mut();
        if known.is_none() && !missing.contains(asked) {
            missing.push(asked.clone());
        }
        known
    }

    /// Whether the author of a policy may read what it wants to read.
    pub(crate) fn permits(
        &self,
        author: &User,
        access: &AccessRequest<'_>,
    ) -> Result<(), ReadError> {
        let right = AccessCheck::of(author, access);
        match self.answer(&Lookup::Access(right.clone())) {
            Some(LookupResult::Access(has)) => right.verdict(has.clone()),
            // The evaluation goes on, to find out what else is to be asked; nothing comes of it.
            _ => Ok(()),
        }
    }
}

impl ExternalData for KnownAnswers<'_> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.exchange(request)?.good(request.url)
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        if !self.on {
            let words =
                format!("the service {} is not called: no services are allowed", request.url);
            return Err(ExternalDataError::refused(words));
        }
        match self.answer(&Lookup::Service(ServiceQuestion::of(request))) {
            Some(LookupResult::Service(answer)) => answer.clone(),
            _ => Err(ExternalDataError::failed(format!(
                "waiting for the response of {}",
                request.url
            ))),
        }
    }
}

impl Controller {
    /// What an evaluation is answered.
    pub(crate) fn known_answers(&self) -> KnownAnswers<'_> {
        KnownAnswers {
            lookups: &self.lookups,
            now: self.now,
            on: self.env.settings.rules.services,
            missing: RefCell::default(),
        }
    }

    /// What services and the API server are to be asked. Questions come once, and each wants an answer.
    pub fn take_questions(&mut self) -> Vec<LookupQuestion> {
        self.lookups.poll()
    }

    /// The answer to a question.
    pub fn answered(&mut self, number: u64, answer: LookupResult, now: u64) {
        self.now = self.now.max(now);
        for key in self.lookups.on_reply(number, answer, self.now) {
            if self.queue.get(&key).is_some() {
                self.queue.enqueue(&key, self.now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_rules::{Dialect, PolicyId, RuleId};

    use super::*;

    fn key(name: &str) -> WorkKey {
        let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
        WorkKey { rule: RuleId { policy, rule: "r".into() }, trigger: name.into() }
    }

    #[test]
    fn what_two_keys_ask_is_asked_once_and_forgotten_in_time() {
        let mut lookups = Lookups::default();
        let right = Lookup::Access(AccessCheck {
            user: User { username: "ann".into(), ..User::default() },
            verb: "get",
            object: ObjectId::new(Gvk::new("v1", "Secret"), "a", "b"),
            subresource: Str::default(),
        });
        lookups.ask(&key("1"), vec![right.clone()]);
        lookups.ask(&key("2"), vec![right.clone()]);
        let asked = lookups.poll();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(lookups.known(&right, 0).is_none());
        let woken = lookups.on_reply(asked[0].number, LookupResult::Access(Ok(true)), 1_000);
        assert_eq!(woken, [key("1"), key("2")].into());
        assert!(lookups.known(&right, 1_000 + RIGHT_LIFE - 1).is_some());
        assert!(lookups.known(&right, 1_000 + RIGHT_LIFE).is_none(), "rights may be withdrawn");
        let late = lookups.on_reply(asked[0].number, LookupResult::Access(Ok(false)), 2_000);
        assert!(late.is_empty(), "an answer counts once");
    }
}
