//! What rules ask of services. The host asks, and the rule is looked at again when there is an answer.
//!
//! An answer counts for a while, so that looking at a key again asks nobody, and is then forgotten.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use kiln_engine::{ContentHash, Outside, OutsideError, ServiceAnswer, ServiceRequest};
use kiln_rules::Method;
use kiln_value::{Str, Value};

use crate::controller::Controller;
use crate::keys::Key;

/// How long an answer counts, in milliseconds.
const LIFE: u64 = 30_000;
/// How long a failure counts: whoever failed is asked again when the work is tried again.
const FAILURE_LIFE: u64 = 1_000;
/// How many answers are kept at most.
const MOST: usize = 1_000;

/// A question for a host to pass on, and to answer under its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The number.
    pub number: u64,
    url: String,
    method: Method,
    headers: Vec<(Str, String)>,
    body: Option<Value>,
    ca_bundle: Option<String>,
}

impl Question {
    fn of(request: &ServiceRequest<'_>) -> Self {
        Question {
            number: 0,
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

    fn hash(&self) -> ContentHash {
        let headers = self.headers.iter().map(|(name, value)| {
            Value::from_iter([Value::from(name.clone()), Value::from(value.as_str())])
        });
        ContentHash::of(&Value::from_iter([
            Value::from(self.url.as_str()),
            Value::from(self.method.as_str()),
            Value::from_iter(headers),
            self.body.clone().unwrap_or(Value::Null),
            Value::from(self.ca_bundle.clone().unwrap_or_default()),
        ]))
    }
}

/// Questions that are on their way, and answers.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    answers: HashMap<ContentHash, (u64, Result<ServiceAnswer, OutsideError>)>,
    /// By number: what was asked, and who waits for it.
    asked: HashMap<u64, (ContentHash, BTreeSet<Key>)>,
    out: Vec<Question>,
    next: u64,
}

impl Questions {
    fn known(&self, hash: ContentHash, now: u64) -> Option<&Result<ServiceAnswer, OutsideError>> {
        let (at, answer) = self.answers.get(&hash)?;
        let life = if answer.is_ok() { LIFE } else { FAILURE_LIFE };
        (now < at + life).then_some(answer)
    }
}

/// Services as one evaluation sees them: what was answered, and what is still to be asked.
pub(crate) struct Services<'c> {
    questions: &'c Questions,
    now: u64,
    on: bool,
    pub(crate) missing: RefCell<Vec<Question>>,
}

impl Outside for Services<'_> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, OutsideError> {
        self.exchange(request)?.good(request.url)
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, OutsideError> {
        if !self.on {
            let words =
                format!("the service {} is not asked: no services are allowed", request.url);
            return Err(OutsideError::refused(words));
        }
        let question = Question::of(request);
        if let Some(answer) = self.questions.known(question.hash(), self.now) {
            return answer.clone();
        }
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&question) {
            missing.push(question);
        }
        Err(OutsideError::failed(format!("{} is being asked", request.url)))
    }
}

impl Controller {
    /// The services as an evaluation sees them.
    pub(crate) fn services(&self) -> Services<'_> {
        Services {
            questions: &self.questions,
            now: self.now,
            on: self.settings.services,
            missing: RefCell::default(),
        }
    }

    /// Asks for a key, which waits for the answers.
    pub(crate) fn ask_services(&mut self, key: &Key, questions: Vec<Question>) {
        for question in questions {
            let hash = question.hash();
            let waiting = self.questions.asked.values_mut().find(|(known, _)| *known == hash);
            if let Some((_, waiting)) = waiting {
                waiting.insert(key.clone());
                continue;
            }
            self.questions.next += 1;
            let number = self.questions.next;
            self.questions.asked.insert(number, (hash, BTreeSet::from([key.clone()])));
            self.questions.out.push(Question { number, ..question });
        }
    }

    /// What services are to be asked. Questions come once, and each wants an answer.
    pub fn take_questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions.out)
    }

    /// The answer to a question.
    pub fn answered(&mut self, number: u64, answer: Result<ServiceAnswer, OutsideError>, now: u64) {
        self.now = self.now.max(now);
        let Some((hash, waiting)) = self.questions.asked.remove(&number) else { return };
        if self.questions.answers.len() >= MOST {
            let now = self.now;
            self.questions.answers.retain(|_, (at, _)| now < *at + LIFE);
            if self.questions.answers.len() >= MOST {
                self.questions.answers.clear();
            }
        }
        self.questions.answers.insert(hash, (self.now, answer));
        for key in waiting {
            if self.keys.get(&key).is_some() {
                self.keys.enqueue(&key, self.now);
            }
        }
    }
}
