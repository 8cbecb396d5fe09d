//! Deletes objects whose time has come, as the leader does: runs of policies on schedules, and the TTL label.

use std::collections::HashMap;

use kiln_admission::Settings;
use kiln_cleanup::{
    Cleaner, CleanupEvent, CleanupReply, CleanupRequest, Expired, Judge, Judgement, TTL_LABEL,
    Todo, TtlQueue,
};
use kiln_cluster::{ApiError, KindKey, Preconditions, Reason};
use kiln_engine::{Globals, RuleSet, User};
use kiln_object::{Change, Gvk, Kinds, ObjectId};
use kiln_replica::calls::delete_object;
use kiln_replica::cleanup::{
    LABEL_VERBS, Lacks, asked, cleanup_policies, is_kept, is_permitted, judge, labelled_kinds,
    lacking, status_patch,
};
use kiln_replica::events::Happened;
use kiln_replica::watch_news::Subject;
use kiln_rules::{PolicyId, Propagation, Rule};
use kiln_value::Value;

use super::telling::run_now;
use crate::around::{Around, Seen, Timers};
use crate::connection::{Connection, now_or_never};
use crate::follower::{FollowNews, Follower};
use crate::view::ApiView;

/// How long the permissions of the account count before they are asked for again.
const PERMISSIONS: u64 = 60_000;

/// Runs policies on their schedules.
#[derive(Debug, Default)]
pub(crate) struct CleanupPart {
    cleaner: Cleaner,
    registry: Seen,
    kinds: Seen,
    lacks: Lacks,
    /// When permissions are asked for again.
    asked: u64,
}

impl CleanupPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let now = around.now();
        let knowledge = &around.knowledge;
        let stored = knowledge.registry.get().clone();
        if !stored.complete {
            return false;
        }
        let changed = self.registry.renew(&knowledge.registry) | self.kinds.renew(&knowledge.kinds);
        let scheduled = stored.cleanup.policies();
        if changed || (self.asked <= now && !scheduled.is_empty()) {
            self.asked = now + PERMISSIONS;
            self.lacks = lacks(around);
            let policies = cleanup_policies(&stored, knowledge.kinds.get(), &self.lacks);
            self.cleaner.set_policies(policies);
        }
        let mut progress = changed;
        loop {
            let requests = self.cleaner.poll(now);
            if requests.is_empty() {
                break;
            }
            progress = true;
            for request in requests {
                let ticket = request.ticket;
                let answer = carry_out_todo(around, request);
                let settings = around.settings();
                let judge = WorldJudge {
                    connection: &around.connections.cleanup,
                    kinds: around.knowledge.kinds.get(),
                    rules: &stored.cleanup,
                    authors: stored.authors(settings.authors),
                    globals: around.knowledge.globals.get(),
                    rights: &around.desk.rights,
                    settings,
                };
                self.cleaner.answer(ticket, answer, &judge, now);
            }
        }
        let events: Vec<CleanupEvent> = self.cleaner.take_events();
        progress |= !events.is_empty();
        around.happened.extend(events.into_iter().map(Happened::Cleanup));
        progress
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::work(self.cleaner.next_time())
    }
}

/// What the accounts of policies may not do.
fn lacks(around: &Around) -> Lacks {
    let stored = around.knowledge.registry.get();
    let sound = stored.policies.iter().filter_map(|stored| {
        let policy = stored.compiled.as_ref().ok().filter(|policy| policy.is_scheduled())?;
        Some((&stored.id, policy))
    });
    let settings = around.identity.settings();
    let (connection, kinds) = (&around.connections.cleanup, around.knowledge.kinds.get());
    let lacks = sound
        .map(|(id, policy)| (id.clone(), run_now(lacking(connection, &settings, policy, kinds))));
    lacks.filter(|(_, lacks)| !lacks.is_empty()).collect()
}

fn carry_out_todo(around: &Around, request: CleanupRequest) -> Result<CleanupReply, ApiError> {
    let CleanupRequest { policy, todo, .. } = request;
    match todo {
        Todo::List(list) => {
            let reply = around.fenced(&around.connections.cleanup, &list)?;
            Ok(reply.listing().map_or(CleanupReply::Done, CleanupReply::Listed))
        }
        Todo::Delete { target, preconditions, propagation } => {
            delete(around, &target, &preconditions, propagation)?;
            Ok(CleanupReply::Done)
        }
        Todo::Status(status) => {
            let registry = around.knowledge.registry.get();
            let stored = registry.policies.iter().find(|stored| stored.id == policy);
            let object = stored.map_or(Value::Null, |stored| stored.object.clone());
            let patch = status_patch(&policy, &object, status, around.now());
            // The policies are the engine's own business, not that of the account that deletes.
            around.fenced(&around.connections.controller, &patch)?;
            Ok(CleanupReply::Done)
        }
    }
}

fn delete(
    around: &Around,
    target: &ObjectId,
    preconditions: &Preconditions,
    propagation: Option<Propagation>,
) -> Result<(), ApiError> {
    if !around.may_write() {
        let why = "this replica does not hold the Lease; writing nothing";
        return Err(ApiError::new(Reason::Unavailable, why));
    }
    let (connection, kinds) = (&around.connections.cleanup, around.knowledge.kinds.get());
    let propagation = propagation.map(Propagation::as_str);
    now_or_never(delete_object(connection, kinds, target, preconditions, propagation))
}

/// Judges objects by policies that are stored.
struct WorldJudge<'j> {
    connection: &'j Connection,
    kinds: &'j Kinds,
    rules: &'j RuleSet,
    authors: HashMap<PolicyId, User>,
    globals: &'j Globals,
    rights: &'j kiln_replica::author_access::Rights,
    settings: Settings,
}

impl Judge for WorldJudge<'_> {
    fn judge(&self, rule: &Rule, object: &Value) -> Judgement {
        if is_kept(&self.settings, object) {
            return Judgement::Keep;
        }
        let view = ApiView {
            connection: self.connection,
            kinds: self.kinds,
            authors: &self.authors,
            rights: self.rights,
        };
        view.with_env(&self.settings, self.globals, |env| judge(self.rules, rule, object, env))
    }
}

/// Deletes objects with the TTL label when their time has come.
#[derive(Debug, Default)]
pub(crate) struct TtlPart {
    kinds: Seen,
    queue: TtlQueue,
    followers: Vec<Follower>,
    /// When permissions are asked for again.
    asked: u64,
}

impl TtlPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        // Beside Kyverno, the label is for its cleanup controller.
        if !around.identity.names.stands_for_kyverno() {
            return false;
        }
        let now = around.now();
        if self.kinds.renew(&around.knowledge.kinds) || self.asked <= now {
            self.asked = now + PERMISSIONS;
            self.follow(permitted(around));
        }
        let mut progress = false;
        for follower in &mut self.followers {
            let kind = follower.subject.gvk.clone();
            let connection = &around.connections.cleanup;
            for news in follower.poll(connection, around.knowledge.kinds.get()) {
                match news {
                    FollowNews::All(listing) => {
                        self.queue.forget_kind(&KindKey::of(&kind));
                        for object in &listing.objects {
                            progress = true;
                            self.queue.observe(object);
                        }
                    }
                    FollowNews::One(event) if event.change == Change::Deleted => {
                        progress = true;
                        if let Ok(id) = ObjectId::of(&event.object) {
                            self.queue.forget(&id);
                        }
                    }
                    FollowNews::One(event) => {
                        progress = true;
                        self.queue.observe(&event.object);
                    }
                    FollowNews::Unserved | FollowNews::Unreadable(_) => {}
                }
            }
        }
        for Expired { target, preconditions, propagation, .. } in self.queue.poll(now) {
            progress = true;
            let answer = delete(around, &target, &preconditions, propagation);
            self.queue.answered(&target, &answer, now);
        }
        progress
    }

    /// Follows these kinds, and no others.
    fn follow(&mut self, kinds: Vec<Gvk>) {
        let (mut kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.followers)
            .into_iter()
            .partition(|follower| kinds.contains(&follower.subject.gvk));
        for follower in gone {
            self.queue.forget_kind(&KindKey::of(&follower.subject.gvk));
        }
        for gvk in kinds {
            if !kept.iter().any(|follower| follower.subject.gvk == gvk) {
                let labels = TTL_LABEL.to_owned();
                kept.push(Follower::new(Subject { labels, ..Subject::all(gvk) }));
            }
        }
        self.followers = kept;
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers { work: self.queue.next_time(), routine: Some(self.asked) }
    }
}

/// The kinds whose objects may be listed, watched and deleted everywhere.
fn permitted(around: &Around) -> Vec<Gvk> {
    let connection = &around.connections.cleanup;
    let may = |kind: &&kiln_object::Kind| {
        LABEL_VERBS
            .iter()
            // Without an answer nothing is deleted.
            .all(|verb| run_now(is_permitted(connection, asked(kind, verb))) == Some(true))
    };
    labelled_kinds(around.knowledge.kinds.get()).filter(may).map(kiln_object::Kind::gvk).collect()
}
