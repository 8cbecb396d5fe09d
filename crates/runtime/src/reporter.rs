//! Keeps reports about what rules that check objects found: reads and writes for [`kiln_reports::Reports`].
//! [`kiln_replica::report_results`] says what stands in them.

use std::sync::Arc;
use std::time::Duration;

use kiln_admission::{ReviewRequest, ValidationResult};
use kiln_cluster::{ApiError, Call, Reply};
use kiln_object::{Kinds, ObjectId, ReportForm};
pub use kiln_replica::report_results::{FoundBy, ReportNews, ReportSwitches};
use kiln_replica::report_results::{REPORT_DELAY, read, reporting, take};
use kiln_reports::Reports;
use kiln_value::{Str, Value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::calls::carry_out;
use crate::client::Client;
use crate::controller_loop::now;
use crate::events::CheckedObject;
use crate::policy_store::Registry;
use crate::state::AppState;

/// How many reports are read or written at once.
const AT_ONCE: usize = 8;

/// Passes on what rules found out about the object of a request, or did to it, if it will be stored.
pub(crate) fn admitted(
    shared: &AppState,
    request: &ReviewRequest,
    object: &CheckedObject,
    results: &[ValidationResult],
    blocked: bool,
) {
    let found = kiln_replica::report_results::admitted(request, object, results, blocked);
    // A scan finds out what is left out now.
    if let Some(found) = found
        && shared.news.findings.try_send(found).is_err()
    {
        tracing::debug!("too many results wait to be reported");
    }
}

/// What a task found out or did about the report of an object.
enum Done {
    LookedFor(ObjectId, Option<Value>),
    Read(Str, Result<Option<Value>, ApiError>),
    Wrote(Str, Result<(), ApiError>),
}

/// Begins what is due: looks for objects that were not stored yet, and reads reports before they are written.
fn begin_due(
    machine: &mut Reports,
    tasks: &mut JoinSet<Done>,
    client: &Client,
    served: &Kinds,
    form: &ReportForm,
    room: usize,
) {
    for id in machine.due_unborn(now(), room) {
        let (client, served) = (client.clone(), served.clone());
        tasks.spawn(async move {
            let found = carry_out(&client, &served, &Call::Get(id.clone())).await;
            Done::LookedFor(id, found.ok().and_then(Reply::object))
        });
    }
    for object in machine.due(now(), room) {
        let (client, served, form) = (client.clone(), served.clone(), form.clone());
        let creates = machine.has_results(&object.uid);
        let reads = machine.must_read(&object.uid);
        tasks.spawn(async move {
            let read = match reads {
                true => read(&client, &served, &form, &object, creates).await,
                false => Ok(None),
            };
            Done::Read(object.uid, read)
        });
    }
}

/// Keeps reports until the process is to end.
pub(crate) async fn keep(
    shared: AppState,
    client: Client,
    news: Arc<Mutex<mpsc::Receiver<ReportNews>>>,
) {
    let mut news = news.lock().await;
    let mut registry = shared.registry.clone();
    let form = shared.options.report_form();
    let mut machine = Reports::new(REPORT_DELAY, form.clone());
    let mut tasks: JoinSet<Done> = JoinSet::new();
    let mut stored = Arc::new(Registry::default());
    let mut switches = ReportSwitches::of(&shared.options.settings(), &stored);
    let mut is_stale = true;
    loop {
        if is_stale {
            stored = registry.borrow_and_update().clone();
            switches = ReportSwitches::of(&shared.options.settings(), &stored);
            machine.set_policies(reporting(&stored, &switches));
        }
        let served = shared.kinds.borrow().clone();
        let is_served = served.get(&form.kinds()[0]).is_some();
        let room = AT_ONCE.saturating_sub(tasks.len());
        // Without policies nothing is known to be gone.
        if stored.complete && is_served {
            begin_due(&mut machine, &mut tasks, &client, &served, &form, room);
        }
        let next = machine.next_time().filter(|_| room > 0).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(next.saturating_sub(now()).clamp(50, 5_000));
        is_stale = false;
        tokio::select! {
            told = news.recv() => {
                let Some(told) = told else { return };
                let mut told = Some(told);
                while let Some(news_of) = told.take().or_else(|| news.try_recv().ok()) {
                    // What cannot be written now would pile up. A scan finds it out when it can.
                    if is_served {
                        take(&mut machine, news_of, &stored, &switches, now());
                    }
                }
            }
            Some(Ok(done)) = tasks.join_next() => match done {
                Done::LookedFor(id, found) => machine.looked_for(&id, found.as_ref(), now()),
                Done::Read(uid, Err(error)) => machine.answered(&uid, Err(&error), now()),
                Done::Read(uid, Ok(live)) => match machine.call(&uid, live.as_ref()) {
                    None => machine.answered(&uid, Ok(()), now()),
                    Some(call) => {
                        let client = client.clone();
                        tasks.spawn(async move {
                            let wrote = carry_out(&client, &served, &call).await.map(drop);
                            Done::Wrote(uid, wrote)
                        });
                    }
                },
                Done::Wrote(uid, wrote) => {
                    if let Err(error) = &wrote {
                        tracing::debug!(%error, %uid, "cannot write a report");
                    }
                    machine.answered(&uid, wrote.as_ref().copied(), now());
                }
            },
            changed = registry.changed() => {
                if changed.is_err() {
                    return;
                }
                is_stale = true;
            }
            () = tokio::time::sleep(pause) => {}
        }
        #[allow(clippy::cast_precision_loss, reason = "a count for people")]
        shared.metrics.set("kiln_reports_waiting", &[], machine.waiting() as f64);
    }
}
