//! The TTL label: follows every kind that may be listed, watched and deleted everywhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_cleanup::{Expired, TTL_LABEL, TtlQueue};
use kiln_cluster::{ApiError, Call, KindKey, Listing, Reason, WatchEvent};
use kiln_object::{Change, Gvk, Kinds, ObjectId, Selector};
use kiln_replica::cleanup::{LABEL_VERBS, asked, is_permitted, labelled_kinds};
use kiln_rules::Propagation;
use kiln_value::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::judge::described;
use super::read;
use crate::calls::delete_object;
use crate::controller_loop::now;
use crate::election::Fence;
use crate::state::AppState;
use crate::supervisor::caught;
use crate::watch::{Subject, WatchNews, Watcher};

/// How often the kinds and permissions are looked at again, as in Kyverno.
const LOOK: Duration = Duration::from_secs(60);
/// The same while there are none yet: the roles may be on their way.
const FIRST_LOOKS: Duration = Duration::from_secs(5);
/// How long to wait before the first look, and between two questions about permissions: nothing is in a hurry here, and
/// everything else that begins is.
const FIRST_LOOK: Duration = Duration::from_secs(5);
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// The first and the longest pause after a list that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How many objects a page of a list holds.
const PAGE: usize = 500;

/// What is told of a kind.
enum News {
    /// All of its objects with the label.
    All(Gvk, Vec<Value>),
    One(WatchEvent),
    /// What came of a deletion.
    Deleted(ObjectId, Result<(), ApiError>),
    /// The kinds that may be followed.
    Kinds(Vec<Gvk>),
}

/// Deletes objects with the label when their time has come.
pub(super) async fn keep(shared: AppState, fence: Arc<Fence>) {
    let (news, mut told) = mpsc::channel(256);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_kinds(shared.clone(), news.clone()));
    let mut queue = TtlQueue::default();
    let mut followed: HashMap<KindKey, AbortHandle> = HashMap::new();
    loop {
        while tasks.try_join_next().is_some() {}
        for expired in queue.poll(now()) {
            let (shared, fence, news) = (shared.clone(), Arc::clone(&fence), news.clone());
            tasks.spawn(async move {
                let target = expired.target.clone();
                let deleting = caught(&shared.metrics, "call", delete(&shared, &fence, expired));
                let broken = || Err(ApiError::new(Reason::Unavailable, "this engine failed at it"));
                let answer = deleting.await.unwrap_or_else(broken);
                let _ = news.send(News::Deleted(target, answer)).await;
            });
        }
        let next = queue.next_time();
        shared.progress.deletions.send_modify(|deletions| deletions.ttl = next);
        let wait = next.map_or(LOOK, |time| {
            Duration::from_millis(time.saturating_sub(now()).max(1)).min(LOOK)
        });
        let heard = tokio::select! {
            heard = told.recv() => heard,
            () = tokio::time::sleep(wait) => continue,
        };
        match heard {
            None => return,
            Some(News::All(kind, objects)) => {
                queue.forget_kind(&KindKey::of(&kind));
                objects.iter().for_each(|object| observe(&mut queue, object));
            }
            Some(News::One(event)) if event.change == Change::Deleted => {
                if let Ok(id) = ObjectId::of(&event.object) {
                    queue.forget(&id);
                }
            }
            Some(News::One(event)) => observe(&mut queue, &event.object),
            Some(News::Deleted(id, answer)) => {
                queue.answered(&id, &answer, now());
                tell(&shared, &id, &answer);
            }
            Some(News::Kinds(kinds)) => {
                let is_wanted = |key: &KindKey| kinds.iter().any(|kind| KindKey::of(kind) == *key);
                followed.retain(|key, task| {
                    let keeps = is_wanted(key) && !task.is_finished();
                    if !keeps {
                        task.abort();
                        queue.forget_kind(key);
                    }
                    keeps
                });
                for kind in kinds {
                    followed.entry(KindKey::of(&kind)).or_insert_with(|| {
                        let following = follow(shared.clone(), kind, news.clone());
                        let metrics = Arc::clone(&shared.metrics);
                        tasks.spawn(async move {
                            let _ = caught(&metrics, "watch", following).await;
                        })
                    });
                }
                shared.progress.deletions.send_modify(|deletions| deletions.follows_ttl = true);
                shared.metrics.clear("kyverno_ttl_controller_info");
                let known = shared.kinds.borrow().clone();
                for key in followed.keys() {
                    let Some(kind) = known.preferred(&key.group, &key.kind) else { continue };
                    let labels = [
                        ("resource_group", kind.group()),
                        ("resource_version", kind.version()),
                        ("resource_resource", kind.plural()),
                    ];
                    shared.metrics.set("kyverno_ttl_controller_info", &labels, 1.0);
                }
            }
        }
    }
}

fn observe(queue: &mut TtlQueue, object: &Value) {
    if let Some(wrong) = queue.observe(object) {
        let kind = Gvk::of(object).map(|gvk| gvk.kind).unwrap_or_default();
        tracing::warn!(%kind, object = described(object), "cannot read {TTL_LABEL}: {wrong}");
    }
}

fn tell(shared: &AppState, id: &ObjectId, answer: &Result<(), ApiError>) {
    let name = match answer {
        Ok(()) => {
            tracing::info!(object = %id, "deleted an object whose {TTL_LABEL} is over");
            "kyverno_ttl_controller_deletedobjects_total"
        }
        Err(error) if matches!(error.reason, Reason::NotFound | Reason::Conflict) => return,
        Err(error) => {
            tracing::warn!(object = %id, %error, "cannot delete an object whose {TTL_LABEL} is over");
            "kyverno_ttl_controller_errors_total"
        }
    };
    let known = shared.kinds.borrow().clone();
    let labels = [
        ("resource_namespace", id.namespace.as_str()),
        ("resource_group", id.gvk.group.as_str()),
        ("resource_version", id.gvk.version.as_str()),
        ("resource_resource", known.get(&id.gvk).map_or("", kiln_object::Kind::plural)),
    ];
    shared.metrics.count(name, &labels);
}

async fn delete(shared: &AppState, fence: &Fence, expired: Expired) -> Result<(), ApiError> {
    let kinds = shared.kinds.borrow().clone();
    let propagation = expired.propagation.map(Propagation::as_str);
    let Expired { target, preconditions, .. } = expired;
    let deleting =
        delete_object(&shared.clients.cleanup, &kinds, &target, &preconditions, propagation);
    fence.write(deleting).await
}

/// Lists and watches the objects of a kind with the label, again and again.
async fn follow(shared: AppState, kind: Gvk, news: mpsc::Sender<News>) {
    let watcher = Watcher {
        client: shared.clients.cleanup.clone(),
        kinds: shared.kinds.clone(),
        stale_after: shared.options.stale_after,
        health: Arc::clone(&shared.health),
        purpose: TTL.into(),
        metrics: Arc::clone(&shared.metrics),
    };
    let subject = Subject { labels: TTL_LABEL.to_owned(), ..Subject::all(kind.clone()) };
    let standing = watcher.standing(&subject);
    let mut pause = PAUSES.0;
    while !news.is_closed() {
        let kinds = shared.kinds.borrow().clone();
        let listing = match list(&shared, &kinds, &kind).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::debug!(%kind, %error, "objects with {TTL_LABEL} cannot be listed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
                continue;
            }
        };
        pause = PAUSES.0;
        standing.rests();
        let revision = listing.revision;
        if news.send(News::All(kind.clone(), listing.objects)).await.is_err() {
            return;
        }
        let (sender, mut told) = mpsc::channel(256);
        let watching = watcher.follow(&subject, revision, &sender, &standing);
        let passing = async {
            while let Some((_, told)) = told.recv().await {
                let WatchNews::Event(event) = told else { continue };
                if news.send(News::One(event)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = watching => {}, () = passing => {} }
    }
}

async fn list(shared: &AppState, kinds: &Kinds, kind: &Gvk) -> Result<Listing, ApiError> {
    let selector = Selector::parse(TTL_LABEL)
        .map_err(|error| ApiError::new(Reason::Invalid, error.to_string()))?;
    let mut all = Listing::default();
    loop {
        let call = Call::List {
            kind: kind.clone(),
            namespace: None,
            selector: selector.clone(),
            limit: Some(PAGE),
            resume: all.resume.take(),
        };
        let page = read(shared, kinds, &call).await?.listing().unwrap_or_default();
        all.objects.extend(page.objects);
        (all.revision, all.resume) = (page.revision, page.resume);
        if all.resume.is_none() {
            return Ok(all);
        }
    }
}

/// What the watches are called where their health is told. Nothing else waits for them.
const TTL: &str = "ttl";

/// Finds out again and again which kinds may be followed: a new kind, or a new permission, counts within a minute.
async fn follow_kinds(shared: AppState, news: mpsc::Sender<News>) {
    shared.health.can_do_without(TTL);
    let mut kinds = shared.kinds.clone();
    tokio::time::sleep(FIRST_LOOK).await;
    loop {
        let known = kinds.borrow_and_update().clone();
        let found = permitted(&shared, &known).await;
        let pause = if found.is_empty() { FIRST_LOOKS } else { LOOK };
        if news.send(News::Kinds(found)).await.is_err() {
            return;
        }
        tokio::select! {
            changed = kinds.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The kinds whose objects may be listed, watched and deleted everywhere, each in the version that the server prefers.
async fn permitted(shared: &AppState, kinds: &Kinds) -> Vec<Gvk> {
    let mut found = Vec::new();
    for kind in labelled_kinds(kinds) {
        let mut may = true;
        for verb in LABEL_VERBS {
            // Without an answer nothing is deleted.
            may =
                may && is_permitted(&shared.clients.cleanup, asked(kind, verb)).await == Some(true);
            tokio::time::sleep(BETWEEN_QUESTIONS).await;
        }
        if may {
            found.push(kind.gvk());
        }
    }
    found
}
