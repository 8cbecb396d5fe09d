//! What leaves the controller: calls with the purpose of their answers, and events for users.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use kiln_cluster::{Call, KindKey};
use kiln_engine::User;
use kiln_object::ObjectId;
use kiln_rules::RuleId;
use kiln_value::Str;

use crate::controller::{CallRequest, ControllerEvent};
use crate::work_queue::WorkKey;

/// How many events wait at most to be taken.
const MOST_EVENTS: usize = 4_096;

/// What an answer is for.
#[derive(Debug, PartialEq)]
pub(crate) enum Purpose {
    Records,
    List(KindKey),
    Step(WorkKey),
    Refresh(WorkKey, ObjectId),
    Record(ObjectId),
    RecordRead(ObjectId),
    Checkpoint,
    CheckpointRead,
    UpdateRequest(String),
    InboxEntry(Str),
}

/// Calls that wait to be carried out or answered, and events that wait to be told.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// By ticket: what the answers are for that have not come yet.
    purposes: HashMap<u64, Purpose>,
    last_ticket: u64,
    calls: Vec<CallRequest>,
    events: VecDeque<ControllerEvent>,
    /// How often work on a key panicked. Evaluations count here, which change nothing else.
    panics: Cell<u64>,
}

impl Outbox {
    /// Asks for a call. Its answer comes once, under its ticket.
    pub(crate) fn ask(
        &mut self,
        purpose: Purpose,
        call: Call,
        author: Option<User>,
        rule: Option<RuleId>,
    ) {
        self.last_ticket += 1;
        self.purposes.insert(self.last_ticket, purpose);
        self.calls.push(CallRequest { ticket: self.last_ticket, call, author, rule });
    }

    /// What an answer is for; none for one that came before.
    pub(crate) fn on_reply(&mut self, ticket: u64) -> Option<Purpose> {
        self.purposes.remove(&ticket)
    }

    /// The calls that are to be carried out now.
    pub(crate) fn poll(&mut self) -> Vec<CallRequest> {
        std::mem::take(&mut self.calls)
    }

    /// Whether no answer is awaited.
    pub(crate) fn is_idle(&self) -> bool {
        self.purposes.is_empty()
    }

    /// Tells of something that happened. When nothing is taken for long, the oldest are forgotten.
    pub(crate) fn tell(&mut self, event: ControllerEvent) {
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn take_events(&mut self) -> Vec<ControllerEvent> {
        std::mem::take(&mut self.events).into()
    }

    pub(crate) fn count_panic(&self) {
        self.panics.set(self.panics.get() + 1);
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;

    use super::*;

    #[test]
    fn a_call_goes_out_once_and_its_answer_counts_once() {
        let mut outbox = Outbox::default();
        let call = || Call::list(Gvk::new("v1", "ConfigMap"));
        outbox.ask(Purpose::Records, call(), None, None);
        outbox.ask(Purpose::Checkpoint, call(), None, None);
        let tickets: Vec<u64> = outbox.poll().iter().map(|request| request.ticket).collect();
        assert!(outbox.poll().is_empty() && !outbox.is_idle());
        assert_eq!(outbox.on_reply(tickets[1]), Some(Purpose::Checkpoint));
        assert_eq!(outbox.on_reply(tickets[1]), None, "it was answered");
        assert_eq!(outbox.on_reply(tickets[0]), Some(Purpose::Records));
        assert!(outbox.is_idle());
    }

    #[test]
    fn events_that_nobody_takes_do_not_fill_the_memory() {
        let mut outbox = Outbox::default();
        let target = ObjectId::new(Gvk::new("v1", "Secret"), "a", "b");
        let policy = kiln_rules::PolicyId {
            dialect: kiln_rules::Dialect::Kyverno,
            namespace: None,
            name: "p".into(),
        };
        for number in 0..MOST_EVENTS + 7 {
            let rule = RuleId { policy: policy.clone(), rule: number.to_string().into() };
            outbox.tell(ControllerEvent::Made { rule, target: target.clone() });
        }
        let events = outbox.take_events();
        assert_eq!(events.len(), MOST_EVENTS);
        assert!(matches!(&events[0], ControllerEvent::Made { rule, .. } if rule.rule == "7"));
    }
}
