//! How many reviews are at work at once.
//!
//! Reviews are evaluated on threads, and each thread that ever was at work keeps memory. More threads than processors
//! can serve finish nothing sooner, so there are few, and reviews take turns in the order in which they came. A caller that waits
//! for an answer from elsewhere gives its turn away until there is one; only then another thread takes its place.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kiln_engine::{ExternalData, ExternalDataError, ServiceAnswer, ServiceRequest};
use kiln_services::Services;
use kiln_value::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::client::Client;

/// Turns for each processor: one that reads its review while another one evaluates.
const FOR_EACH_PROCESSOR: usize = 2;
/// No service answers in less.
const LEAST: Duration = Duration::from_millis(1);

type Review = Box<dyn FnOnce(&ReviewPermit<'_>) + Send>;

/// The turns of all reviews of a server.
#[derive(Clone)]
pub(crate) struct ReviewPool(Arc<Threads>);

struct Threads {
    most: usize,
    runtime: Handle,
    state: Mutex<PoolState>,
    /// Wakes threads that have nothing to do.
    work: Condvar,
    /// Wakes those that want their turn back.
    back: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Reviews that have not begun, in the order in which they came.
    waiting: BTreeMap<u64, Review>,
    /// The number of the next review.
    next: u64,
    /// Reviews that have a turn.
    at_work: usize,
    /// Reviews that want their turn back.
    returning: usize,
    /// Threads that have nothing to do, or have not noticed yet that there is something.
    idle: usize,
    closed: bool,
}

/// A caller that waits for a review. When it gives up, a review that has not begun is dropped.
struct Waits<'t> {
    threads: &'t Threads,
    number: u64,
}

/// The turn of one review.
pub(crate) struct ReviewPermit<'t>(&'t Arc<Threads>);

impl ReviewPool {
    /// As many as the machine has use for. Answers from elsewhere come by this runtime.
    pub(crate) fn for_machine(runtime: Handle) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::at_once(processors * FOR_EACH_PROCESSOR, runtime)
    }

    fn at_once(most: usize, runtime: Handle) -> Self {
        ReviewPool(Arc::new(Threads {
            most,
            runtime,
            state: Mutex::default(),
            work: Condvar::new(),
            back: Condvar::new(),
        }))
    }

    /// What a review comes to when it has had its turn; none when it broke off. A caller that stops waiting ends it only
    /// if it has not begun.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        review: impl FnOnce(&ReviewPermit<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = oneshot::channel();
        let review: Review = Box::new(move |turn| {
            // A caller may have given up this very moment.
            if !tell.is_closed() {
                let _ = tell.send(review(turn));
            }
        });
        let _waits = self.0.add(review);
        told.await.ok()
    }

    /// Lets threads end that have nothing to do.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, review: Review) -> Waits<'_> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, review);
        self.find_somebody(&mut state);
        Waits { threads: self, number }
    }

    fn has_room(&self, state: &PoolState) -> bool {
        // Those who come back go first: others wait for what they hold.
        state.at_work + state.returning < self.most
    }

    /// Lets a thread take the next review, if there is one and it may begin.
    fn find_somebody(self: &Arc<Self>, state: &mut PoolState) {
        if state.waiting.is_empty() || !self.has_room(state) {
            return;
        }
        if state.idle >= state.waiting.len()
            || state.at_work + state.returning + state.idle >= self.most
        {
            self.work.notify_one();
            return;
        }
        let threads = Arc::clone(self);
        let begun = thread::Builder::new().name("reviews".to_owned()).spawn(move || threads.work());
        match begun {
            Ok(_) => state.idle += 1,
            Err(error) => {
                tracing::error!(%error, "no thread for a review; it waits for another one");
            }
        }
    }

    fn work(self: Arc<Self>) {
        // Timers and connections of what is waited for belong to the runtime.
        let _entered = self.runtime.enter();
        let mut state = self.lock();
        loop {
            while state.waiting.is_empty() || !self.has_room(&state) {
                if state.idle > self.most || (state.closed && state.waiting.is_empty()) {
                    state.idle -= 1;
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some((_, review)) = state.waiting.pop_first() else { continue };
            state.idle -= 1;
            state.at_work += 1;
            drop(state);
            // Its caller gets an error.
            if catch_unwind(AssertUnwindSafe(|| review(&ReviewPermit(&self)))).is_err() {
                tracing::error!("a review panicked");
            }
            state = self.lock();
            state.at_work -= 1;
            state.idle += 1;
            self.back.notify_one();
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let review = self.threads.lock().waiting.remove(&self.number);
        // What it holds is given back without holding the lock.
        drop(review);
    }
}

impl ReviewPermit<'_> {
    /// Waits for something while others have their turn.
    pub(crate) fn wait_for<T>(&self, something: impl Future<Output = T>) -> T {
        self.give_away(|| self.0.runtime.block_on(something))
    }

    fn give_away<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        let mut state = self.0.lock();
        state.at_work -= 1;
        self.0.back.notify_one();
        self.0.find_somebody(&mut state);
        drop(state);
        // What breaks off breaks off with its turn.
        let result = catch_unwind(AssertUnwindSafe(meanwhile));
        let mut state = self.0.lock();
        state.returning += 1;
        while state.at_work >= self.0.most {
            state = self.0.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.returning -= 1;
        state.at_work += 1;
        drop(state);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Services that are asked while others have their turn, until the request's time is over.
pub(crate) struct YieldingServices<'s> {
    pub(crate) turn: &'s ReviewPermit<'s>,
    pub(crate) services: &'s Services,
    pub(crate) deadline: Instant,
    /// The API server, for access reviews.
    pub(crate) api_server: Option<&'s Client>,
}

/// Whether something that is sent to the API server changes nothing there: a review of what somebody may do.
fn is_access_review(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/apis/authorization.k8s.io/v1/") else { return false };
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        ["subjectaccessreviews" | "selfsubjectaccessreviews" | "selfsubjectrulesreviews"] => true,
        ["namespaces", namespace, "localsubjectaccessreviews"] => !namespace.is_empty(),
        _ => false,
    }
}

impl YieldingServices<'_> {
    fn ask<T>(
        &self,
        what: impl FnOnce(&Services) -> Result<T, ExternalDataError>,
    ) -> Result<T, ExternalDataError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < LEAST {
            return Err(ExternalDataError::failed(
                "the deadline of the request has passed".to_owned(),
            ));
        }
        let services = self.services.no_longer_than(left);
        self.turn.give_away(|| what(&services))
    }
}

impl ExternalData for YieldingServices<'_> {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.ask(|services| services.call(request))
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        self.ask(|services| services.exchange(request))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ExternalDataError> {
        let Some(client) = self.api_server.filter(|_| is_access_review(path)) else {
            let message = format!("nothing is sent to {path}: rules send access reviews alone");
            return Err(ExternalDataError::refused(message));
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let sending = client.send(http::Method::POST, path, Some(body), "");
        let sent = self.turn.wait_for(async { tokio::time::timeout(left, sending).await });
        match sent {
            Ok(answer) => answer.map_err(|error| ExternalDataError::failed(error.message)),
            Err(_) => Err(ExternalDataError::failed("the deadline of the request has passed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kiln_engine::HostAllowlist;
    use kiln_rules::Method;
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    fn turns(most: usize) -> ReviewPool {
        ReviewPool::at_once(most, Handle::current())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_are_at_work_than_have_a_turn() {
        let turns = turns(2);
        let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut reviews = JoinSet::new();
        for number in 0..100 {
            let (turns, at_work, most) = (turns.clone(), Arc::clone(&at_work), Arc::clone(&most));
            let work = move || {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(200));
                at_work.fetch_sub(1, Ordering::SeqCst);
            };
            reviews.spawn(async move {
                let review = move |turn: &ReviewPermit<'_>| {
                    work();
                    if number % 2 == 0 {
                        turn.wait_for(tokio::time::sleep(Duration::from_millis(2)));
                        work();
                    }
                };
                turns.take(review).await.unwrap();
            });
        }
        assert_eq!(reviews.join_all().await.len(), 100);
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_waits_for_nobody_needs_no_further_threads() {
        let turns = turns(3);
        let mut reviews = JoinSet::new();
        for _ in 0..200 {
            let turns = turns.clone();
            reviews.spawn(async move { turns.take(|_| thread::current().id()).await.unwrap() });
        }
        let mut threads = reviews.join_all().await;
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert!(threads.len() <= 3, "{threads:?}");
        turns.close();
        while turns.0.lock().idle > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_waits_for_an_answer_holds_nobody_up() {
        let turns = turns(1);
        let (answer, answered) = oneshot::channel();
        let other = turns.clone();
        let first =
            tokio::spawn(
                async move { other.take(move |turn| turn.wait_for(answered).unwrap()).await },
            );
        // It gets the only turn, and gives what the first one waits for.
        turns.take(move |_| answer.send("there").unwrap()).await.unwrap();
        assert_eq!(first.await.unwrap(), Some("there"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_breaks_off_costs_no_turn() {
        let turns = turns(1);
        assert_eq!(turns.take(|_| -> u8 { panic!("a bug") }).await, None);
        let waits = |turn: &ReviewPermit<'_>| -> u8 { turn.give_away(|| panic!("another bug")) };
        assert_eq!(turns.take(waits).await, None);
        let late = turns.take(|turn| turn.wait_for(std::future::pending::<()>()));
        assert!(tokio::time::timeout(Duration::from_millis(1), late).await.is_err());
        assert_eq!(turns.take(|_| 7).await, Some(7));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_gives_up_drops_what_has_not_begun_and_nothing_else() {
        let turns = turns(1);
        let permits = Arc::new(Semaphore::new(2));
        let take = || Arc::clone(&permits).try_acquire_owned().unwrap();
        let moment = Duration::from_millis(20);
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let permit = take();
        let (begin, has_begun) = oneshot::channel();
        // One that goes on, whether or not a caller waits.
        let at_work = turns.take(move |_| {
            begin.send(()).unwrap();
            let _ = may_go_on.recv();
            permit
        });
        tokio::select! {
            _ = at_work => panic!("it was not released"),
            begun = has_begun => begun.unwrap(),
        }
        assert_eq!(permits.available_permits(), 1, "it counts until it is over");
        // One that waits for its turn.
        let permit = take();
        let waits = turns.take(move |_| permit);
        assert!(tokio::time::timeout(moment, waits).await.is_err());
        assert_eq!(permits.available_permits(), 1, "it is dropped at once");
        assert!(turns.0.lock().waiting.is_empty());
        go_on.send(()).unwrap();
        let back = tokio::time::timeout(Duration::from_secs(20), permits.acquire_many(2)).await;
        assert!(back.is_ok(), "it is over");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn services_are_asked_while_there_is_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let services = Services::new(HostAllowlist::read(&address.to_string()).unwrap());
        let turns = turns(1);
        let asked = async |left: Duration| {
            let services = services.clone();
            let review = move |turn: &ReviewPermit<'_>| {
                let deadline = Instant::now() + left;
                let external_data =
                    YieldingServices { turn, services: &services, deadline, api_server: None };
                let url = format!("http://{address}/");
                let request = ServiceRequest {
                    url: &url,
                    method: Method::Get,
                    headers: &[],
                    body: None,
                    ca_bundle: None,
                };
                external_data.call(&request).unwrap_err().message
            };
            turns.take(review).await.unwrap()
        };
        assert_eq!(asked(Duration::ZERO).await, "the deadline of the request has passed");
        assert!(listener.accept().is_err(), "no call is made any more");
        // Nothing answers here, and the request does not wait for longer than it has time.
        let message = asked(Duration::from_secs(1)).await;
        assert!(message.contains("does not answer"), "{message}");
        assert!(listener.accept().is_ok());
    }

    #[test]
    fn only_access_reviews_are_sent() {
        for (path, sent) in [
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", true),
            ("/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", true),
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews/x", false),
            ("/apis/authorization.k8s.io/v1/namespaces//localsubjectaccessreviews", false),
            ("/api/v1/namespaces/a/configmaps", false),
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews?dryRun=All", false),
        ] {
            assert_eq!(is_access_review(path), sent, "{path}");
        }
    }
}
