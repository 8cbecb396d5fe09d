//! Policies as they come to the controller: stored objects, each with what came of compiling it.
//!
//! A host watches and compiles policies once for all its parts, and says what is stored whenever that changes. The
//! controller finds the differences itself, so that a host may repeat itself and nothing depends on the order of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kiln_cluster::KindKey;
use kiln_object::{Change, ObjectId, metadata};
use kiln_rules::Policy;
use kiln_value::Value;

/// A policy as it is stored, and what came of compiling it.
#[derive(Clone, Debug)]
pub struct StoredPolicy {
    /// Which one.
    pub id: ObjectId,
    /// The object: its life, version and author. Rules are not read from it.
    pub object: Value,
    /// Its rules, or what is wrong with them.
    pub compiled: Result<Arc<Policy>, String>,
}

/// All that is stored of policies at one time.
#[derive(Clone, Debug, Default)]
pub struct PolicySnapshot {
    pub stored: Vec<StoredPolicy>,
    /// Policies that were deleted of late, in their last version. A policy that is changed and deleted at once leaves its
    /// downstreams as its last version says, which no snapshot before may have had.
    pub ended: Vec<StoredPolicy>,
    /// The kinds of policies that are not served right now.
    pub unserved: BTreeSet<KindKey>,
}

impl StoredPolicy {
    /// Whether it is the same life of the same policy.
    pub(crate) fn is_life_of(&self, other: &StoredPolicy) -> bool {
        metadata::uid(&self.object) == metadata::uid(&other.object)
    }

    /// Whether it is the same version, compiled to the same rules.
    pub(crate) fn is(&self, other: &StoredPolicy) -> bool {
        let version = |policy: &StoredPolicy| {
            let text = metadata::resource_version(&policy.object);
            (metadata::uid(&policy.object).map(str::to_owned), text.map(str::to_owned))
        };
        let same_rules = match (&self.compiled, &other.compiled) {
            (Ok(one), Ok(other)) => Arc::ptr_eq(one, other),
            (Err(one), Err(other)) => one == other,
            _ => false,
        };
        same_rules && version(self) == version(other)
    }
}

/// What compiles a stored policy; otherwise what is wrong with it.
pub type CompilePolicy<'c> = dyn Fn(&Value) -> Result<Arc<Policy>, String> + 'c;

/// The stored policies of a host that has no store of its own. Each is compiled once when it comes, and once for every
/// version of it that follows.
pub struct PolicyFeed<'c> {
    compile: &'c CompilePolicy<'c>,
    stored: BTreeMap<ObjectId, StoredPolicy>,
}

impl fmt::Debug for PolicyFeed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyFeed").field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl<'c> PolicyFeed<'c> {
    /// No policies yet.
    pub fn new(compile: &'c CompilePolicy<'c>) -> Self {
        PolicyFeed { compile, stored: BTreeMap::new() }
    }

    /// Takes note of a policy that came, changed or went.
    pub fn note(&mut self, object: &Value, change: Change) {
        let Ok(id) = ObjectId::of(object) else { return };
        if change == Change::Deleted {
            self.stored.remove(&id);
            return;
        }
        let version = metadata::resource_version(object);
        let known = self.stored.get(&id).map(|known| metadata::resource_version(&known.object));
        if version.is_none() || known != Some(version) {
            let compiled = (self.compile)(object);
            self.stored.insert(id.clone(), StoredPolicy { id, object: object.clone(), compiled });
        }
    }

    /// All policies that are stored.
    pub fn policies(&self) -> PolicySnapshot {
        PolicySnapshot { stored: self.stored.values().cloned().collect(), ..Default::default() }
    }
}
