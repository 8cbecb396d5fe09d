//! What tasks of the runtime do for the controller: its calls and questions, of which each is answered whatever happens.

use std::time::{Duration, Instant};

use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_object::Kinds;
use kiln_rules::RuleId;
use tokio::sync::{SemaphorePermit, mpsc};

use crate::calls::carry_out;
use crate::client::Client;
use crate::election::Fence;
use crate::kyverno_metrics;
use crate::metrics::Metrics;
use crate::supervisor::{caught, pass_on};

/// How often a call is tried again at once because the server asked for a moment of patience.
const PATIENT_TRIES: u32 = 3;

/// What is said of what panicked; standard error has the rest.
const PANICKED: &str = "internal error; see the Kiln log";

/// What comes of asking. A question that is never answered would be waited for for ever, so one that panics is answered
/// with a failure.
pub(crate) async fn answer_or<T>(
    metrics: &Metrics,
    asking: impl Future<Output = T>,
    failure: impl FnOnce(&str) -> T,
) -> T {
    caught(metrics, "call", asking).await.unwrap_or_else(|| failure(PANICKED))
}

/// The same for what takes a thread to itself.
pub(crate) async fn answer_in_thread<T: Send + 'static>(
    metrics: &Metrics,
    asking: impl FnOnce() -> T + Send + 'static,
    failure: impl FnOnce(&str) -> T,
) -> T {
    let asking = async { pass_on(tokio::task::spawn_blocking(asking).await) };
    caught(metrics, "call", asking).await.flatten().unwrap_or_else(|| failure(PANICKED))
}

/// Passes an answer on. The receiver counts, when the process ends, permits to see whether it was the last one.
pub(crate) async fn tell_answer<T>(
    permit: SemaphorePermit<'_>,
    answers: &mpsc::Sender<T>,
    answer: T,
) {
    drop(permit);
    // Nothing waits for it when the process ends.
    let _ = answers.send(answer).await;
}

/// Carries out a call; when the server asks for a moment of patience, it gets one. Nothing is written but through the
/// fence.
pub(crate) async fn call(
    client: &Client,
    kinds: &Kinds,
    call: &Call,
    rule: Option<&RuleId>,
    metrics: &Metrics,
    fence: &Fence,
) -> Result<Reply, ApiError> {
    let mut tries = 0;
    loop {
        let began = Instant::now();
        let carried_out = carry_out(client, kinds, call);
        let answer = match call.changes() {
            true => fence.write(carried_out).await,
            false => carried_out.await,
        };
        let verb = [("verb", call.verb().as_str())];
        metrics.observe("kiln_api_call_seconds", &verb, began.elapsed().as_secs_f64());
        let outcome = answer.as_ref().map_or_else(|error| error.reason.as_str(), |_| "ok");
        let about = call.about();
        let labels = [
            ("verb", call.verb().as_str()),
            ("kind", about.gvk.kind.as_str()),
            ("outcome", outcome),
        ];
        metrics.count("kiln_api_calls_total", &labels);
        kyverno_metrics::count_call(metrics, call.verb().as_str(), &about.gvk.kind);
        match &answer {
            Err(error) => {
                // Rules that are fired by what cannot be listed would wait in silence.
                if matches!(call, Call::List { .. }) && error.reason != Reason::UnknownKind {
                    tracing::warn!(kind = %about.gvk, %error, "cannot be listed");
                } else {
                    tracing::debug!(verb = %call.verb(), object = %about, %error, "a call failed");
                }
                let patience =
                    error.retry_after_seconds.filter(|_| error.reason == Reason::Unavailable);
                if let Some(seconds) = patience
                    && tries < PATIENT_TRIES
                {
                    tries += 1;
                    tokio::time::sleep(Duration::from_secs(u64::from(seconds.clamp(1, 10)))).await;
                    continue;
                }
            }
            // Books of our own.
            Ok(_) if call.changes() && about.name.starts_with("kiln-") => {
                tracing::debug!(verb = %call.verb(), object = %about, "wrote an object");
            }
            Ok(_) if call.changes() => {
                let policy = rule.map(|rule| rule.policy.key());
                let rule = rule.map(|rule| rule.rule.as_str());
                tracing::info!(verb = %call.verb(), object = %about, policy, rule, "wrote an object");
            }
            Ok(_) => {}
        }
        return answer;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use kiln_object::ObjectId;
    use kiln_value::value;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::election::Until;
    use crate::options::RuntimeOptions;

    #[tokio::test]
    async fn what_panics_is_answered_with_a_failure() {
        let failure = |why: &str| Err(why.to_owned());
        for panics in [true, false] {
            let ask = move || {
                assert!(!panics, "as a task may");
                Ok("answer")
            };
            // Not at once: a task panics in the middle of its work.
            let asking = async {
                tokio::task::yield_now().await;
                ask()
            };
            let wanted = if panics { Err(PANICKED.to_owned()) } else { Ok("answer") };
            let metrics = Metrics::default();
            assert_eq!(answer_or(&metrics, asking, failure).await, wanted);
            assert_eq!(answer_in_thread(&metrics, ask, failure).await, wanted);
            let counted = metrics.text().contains("kiln_panics_total{part=\"call\"} 2\n");
            assert_eq!(counted, panics, "{}", metrics.text());
        }
    }

    #[tokio::test]
    async fn a_permit_is_free_before_the_answer_is_told() {
        let permits = Semaphore::new(1);
        let (answers, mut answered) = mpsc::channel(1);
        answers.send(1).await.unwrap();
        let mut telling =
            std::pin::pin!(tell_answer(permits.acquire().await.unwrap(), &answers, 2));
        let told = telling.as_mut().now_or_never();
        assert!(told.is_none(), "the first was not reported");
        assert_eq!(permits.available_permits(), 1);
        assert_eq!(answered.recv().await, Some(1));
        telling.await;
        assert_eq!(answered.recv().await, Some(2));
    }

    #[tokio::test]
    async fn nothing_is_sent_that_changes_something_unless_the_lease_is_held() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {{token: t}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        );
        std::fs::write(&file, config).unwrap();
        let options = RuntimeOptions { kubeconfig: Some(file), ..RuntimeOptions::default() };
        let client = Client::connect(&options, None).await.unwrap();
        let (kinds, metrics, fence) = (Kinds::builtin(), Metrics::default(), Fence::new());
        let object = value!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"},
        });
        let id = ObjectId::of(&object).unwrap();
        for write in
            [Call::create(object.clone()), Call::update(object.clone()), Call::delete(id.clone())]
        {
            let error = call(&client, &kinds, &write, None, &metrics, &fence).await.unwrap_err();
            assert!(error.to_string().contains("does not hold the Lease"), "{error}");
        }
        assert!(listener.accept().is_err(), "no connection was made");
        // Nothing answers here: that it was sent is enough.
        let moment = Duration::from_millis(500);
        let read = Call::Get(id);
        let reading = call(&client, &kinds, &read, None, &metrics, &fence);
        assert!(tokio::time::timeout(moment, reading).await.is_err());
        assert!(listener.accept().is_ok(), "a reader disturbs no other");
        fence.set(Until::Unlimited);
        let write = Call::create(object);
        let writing = call(&client, &kinds, &write, None, &metrics, &fence);
        assert!(tokio::time::timeout(moment, writing).await.is_err());
        assert!(listener.accept().is_ok());
    }
}
