//! Follows what decides what the process does: kinds, policies, exceptions, configuration.

use std::sync::Arc;

use kiln_object::Gvk;
use kiln_replica::policy_store::{FollowedPolicies, News, PolicyCache};
use kiln_replica::watch_news::Subject;

use crate::around::{Around, Identity, Timers};
use crate::discovery::discover;
use crate::follower::{FollowNews, Follower};

/// Follows definitions, so that new kinds are known at once.
#[derive(Debug)]
pub(crate) struct KindsPart {
    definitions: Follower,
}

impl KindsPart {
    pub(crate) fn new() -> Self {
        let kind = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        KindsPart { definitions: Follower::new(Subject::all(kind)) }
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let news =
            self.definitions.poll(&around.connections.admission, around.knowledge.kinds.get());
        let has_news =
            news.iter().any(|news| matches!(news, FollowNews::All(_) | FollowNews::One(_)));
        if has_news && around.connections.admission.reaches() {
            around.knowledge.kinds.set(discover(&around.core));
        }
        has_news
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::routine(self.definitions.next_time())
    }
}

/// Keeps the registry of policies.
#[derive(Debug)]
pub(crate) struct PoliciesPart {
    followers: Vec<Follower>,
    followed: FollowedPolicies,
    cache: PolicyCache,
    kinds: crate::around::Seen,
}

impl PoliciesPart {
    pub(crate) fn new(identity: &Identity) -> Self {
        let kyverno = identity.names.stands_for_kyverno();
        let followed =
            FollowedPolicies::of(&identity.namespace, &identity.names.config_map(), kyverno);
        PoliciesPart {
            followers: followed.subjects.iter().cloned().map(Follower::new).collect(),
            followed,
            cache: PolicyCache::new(kyverno),
            kinds: Default::default(),
        }
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let recompile = self.kinds.renew(&around.knowledge.kinds);
        let mut progress = recompile;
        for (number, follower) in self.followers.iter_mut().enumerate() {
            let news = follower.poll(&around.connections.admission, around.knowledge.kinds.get());
            progress |= !news.is_empty();
            for one in news {
                self.cache.take(match one {
                    FollowNews::All(listing) => News::All(number, listing.objects),
                    FollowNews::One(event) => News::One(number, event),
                    FollowNews::Unserved => News::Unserved(number),
                    FollowNews::Unreadable(why) => News::Unreadable(why),
                });
            }
        }
        if progress {
            let complete = self.cache.knows(&self.followed.needed);
            // A restarted watch knows less at first than the cluster has.
            if complete || !around.knowledge.registry.get().complete {
                let kinds = around.knowledge.kinds.get().clone();
                let registry = self.cache.registry(&kinds, recompile, complete);
                around.knowledge.registry.set(Arc::new(registry));
            }
        }
        progress
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::routine(self.followers.iter().filter_map(Follower::next_time).min())
    }
}
