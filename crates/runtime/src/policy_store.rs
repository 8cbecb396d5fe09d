//! Follows the policies, exceptions and configuration that are stored: [`kiln_replica::policy_store`] makes a registry of them.

use std::sync::Arc;
use std::time::Duration;

use kiln_cluster::{ApiError, Listing, Reason};
pub use kiln_replica::policy_store::*;
use tokio::sync::{mpsc, watch};

use crate::calls::list_all;
use crate::options::RuntimeOptions;
use crate::supervisor::pass_on;
use crate::watch::{Subject, WatchNews, Watcher};

/// What the watches of policies that are not run are called.
const ASIDE: &str = "not run";

/// Keeps the registry as the cluster has it, for as long as there is a listener.
pub async fn keep(
    watcher: Watcher,
    options: Arc<RuntimeOptions>,
    registry: watch::Sender<Arc<Registry>>,
) {
    let kyverno = options.runs_kyverno();
    let FollowedPolicies { subjects, needed } =
        FollowedPolicies::of(&options.namespace, &options.config_map, kyverno);
    let (news, mut told) = mpsc::channel(256);
    let mut tasks = tokio::task::JoinSet::new();
    watcher.health.can_do_without(ASIDE);
    for (number, subject) in subjects.into_iter().enumerate() {
        let mut watcher = watcher.clone();
        if !needed.contains(&number) {
            watcher.purpose = ASIDE.into();
        }
        tasks.spawn(follow(watcher, number, subject, news.clone()));
    }
    let mut kinds = watcher.kinds.clone();
    let mut shelf = PolicyCache::new(kyverno);
    loop {
        let recompile = tokio::select! {
            news = told.recv() => {
                let Some(news) = news else { return };
                shelf.take(news);
                while let Ok(more) = told.try_recv() {
                    shelf.take(more);
                }
                false
            }
            changed = kinds.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
            Some(ended) = tasks.join_next() => {
                let _ = pass_on(ended);
                continue;
            }
            () = registry.closed() => return,
        };
        let complete = shelf.knows(&needed);
        if complete {
            // Whatever cannot be read from now on, the rules that were read go on to count.
            watcher.health.can_do_without("rules");
        }
        let known = kinds.borrow_and_update().clone();
        // A restarted watch knows less at first than the cluster has.
        if !complete && registry.borrow().complete {
            continue;
        }
        registry.send_replace(Arc::new(shelf.registry(&known, recompile, complete)));
    }
}

/// Lists and watches one subject, again and again.
pub(crate) async fn follow(
    watcher: Watcher,
    number: usize,
    subject: Subject,
    news: mpsc::Sender<News>,
) {
    let mut pause = Duration::from_millis(500);
    let standing = watcher.standing(&subject);
    while !news.is_closed() {
        let kinds = watcher.kinds.borrow().clone();
        let listed: Result<Listing, ApiError> =
            list_all(&watcher.client, &kinds, &subject.gvk, &subject.namespace, &subject.fields)
                .await;
        let listing = match listed {
            Ok(listing) => listing,
            Err(error) => {
                let absent = error.reason == Reason::UnknownKind;
                if absent {
                    standing.rests();
                    // Kinds that are not installed have no objects either.
                    let _ = news.send(News::Unserved(number)).await;
                } else {
                    tracing::warn!(what = %subject, %error, "cannot be listed");
                    standing.bad(error.to_string());
                    let _ = news.send(News::Unreadable(error.to_string())).await;
                }
                // A kind that is defined later is listed at once.
                let mut known = watcher.kinds.clone();
                let is_new = kinds.get(&subject.gvk).is_none();
                let comes = known.wait_for(|known| is_new && known.get(&subject.gvk).is_some());
                tokio::select! {
                    come = comes => if come.is_err() { return },
                    () = news.closed() => return,
                    () = tokio::time::sleep(pause), if !(absent && is_new) => {}
                }
                pause = (pause * 2).min(Duration::from_secs(if absent { 2 } else { 20 }));
                continue;
            }
        };
        pause = Duration::from_millis(500);
        standing.rests();
        if news.send(News::All(number, listing.objects)).await.is_err() {
            return;
        }
        let (sender, mut told) = mpsc::channel(256);
        let watching = watcher.follow(&subject, listing.revision, &sender, &standing);
        let passing = async {
            while let Some((_, told)) = told.recv().await {
                let WatchNews::Event(event) = told else { continue };
                if news.send(News::One(number, event)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = watching => {}, () = passing => {} }
    }
}
