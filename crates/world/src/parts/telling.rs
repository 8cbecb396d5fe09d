//! Tells what rules did and found: events, reports, results of rules that run after the answer.

use kiln_cluster::{Call, Reply};
use kiln_replica::api::at_once;
use kiln_replica::events::{EventReporter, Happened, events_of};
use kiln_replica::report_results::{
    REPORT_DELAY, ReportNews, ReportSwitches, read, reporting, take,
};
use kiln_reports::Reports;

use crate::around::{Around, Seen, Timers};
use crate::clock::locked;
use crate::connection::now_or_never;
use crate::timeline::TimelineEvent;

/// Writes events.
#[derive(Debug)]
pub(crate) struct EventsPart {
    reporter: EventReporter,
}

impl EventsPart {
    pub(crate) fn new(host: &str) -> Self {
        EventsPart { reporter: EventReporter::new(host) }
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let mut happened: Vec<Happened> = around.happened.drain(..).collect();
        happened.extend(locked(&around.desk.output).happened.drain(..));
        if happened.is_empty() {
            return false;
        }
        let config = around.settings();
        for one in &happened {
            let registry = around.knowledge.registry.get();
            let connection = match one.is_of_admission() {
                true => &around.connections.admission,
                false => &around.connections.controller,
            };
            for event in events_of(one, registry, &config, &mut self.reporter, around.now()) {
                let note = event.str_at(["note"]).unwrap_or_default().to_owned();
                let replica = around.identity.replica;
                around.core.tell(TimelineEvent::Told { replica, message: note });
                // Events are for people: one that cannot be written is left out.
                let _ = connection.call(around.knowledge.kinds.get(), &Call::create(event));
            }
        }
        true
    }
}

/// Evaluates the rules that no answer waited for.
pub(crate) fn audit(around: &mut Around) -> bool {
    around.desk.audit()
}

/// Keeps reports.
#[derive(Debug)]
pub(crate) struct ReportsPart {
    machine: Reports,
    switches: ReportSwitches,
    registry: Seen,
}

/// How many reports are written in one turn.
const AT_ONCE: usize = 64;

impl ReportsPart {
    pub(crate) fn new(form: kiln_object::ReportForm) -> Self {
        ReportsPart {
            machine: Reports::new(REPORT_DELAY, form),
            switches: ReportSwitches::default(),
            registry: Seen::default(),
        }
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let now = around.now();
        let stored = around.knowledge.registry.get().clone();
        let mut progress = self.registry.renew(&around.knowledge.registry);
        if progress {
            self.switches = ReportSwitches::of(&around.identity.settings(), &stored);
            self.machine.set_policies(reporting(&stored, &self.switches));
        }
        let mut news: Vec<ReportNews> = around.findings.drain(..).collect();
        news.extend(locked(&around.desk.output).findings.drain(..));
        progress |= !news.is_empty();
        let form = around.identity.report_form();
        let kinds = around.knowledge.kinds.get();
        let is_served = kinds.get(&form.kinds()[0]).is_some();
        // What cannot be written now would pile up. A scan finds it out when it can.
        for one in news.into_iter().filter(|_| is_served) {
            take(&mut self.machine, one, &stored, &self.switches, now);
        }
        // Without policies nothing is known to be gone.
        if !stored.complete || !is_served {
            return progress;
        }
        let connection = &around.connections.admission;
        for id in self.machine.due_unborn(now, AT_ONCE) {
            progress = true;
            let found = connection.call(kinds, &Call::Get(id.clone()));
            let found = found.ok().and_then(Reply::object);
            self.machine.looked_for(&id, found.as_ref(), now);
        }
        for object in self.machine.due(now, AT_ONCE) {
            progress = true;
            let creates = self.machine.has_results(&object.uid);
            let live = match self.machine.must_read(&object.uid) {
                true => now_or_never(read(connection, kinds, &form, &object, creates)),
                false => Ok(None),
            };
            let answer = match live {
                Err(error) => Err(error),
                Ok(live) => match self.machine.call(&object.uid, live.as_ref()) {
                    None => Ok(()),
                    Some(call) => connection.call(kinds, &call).map(drop),
                },
            };
            self.machine.answered(&object.uid, answer.as_ref().copied(), now);
        }
        progress
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::work(self.machine.next_time())
    }
}

/// A short way to run work that asks nothing but this world.
pub(crate) fn run_now<T: Default>(work: impl Future<Output = T>) -> T {
    at_once(work).unwrap_or_default()
}
