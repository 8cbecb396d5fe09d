//! What rules would do to a cluster: a rehearsal of the controller before an audience that is only asked.

use std::sync::Arc;

use kiln_cluster::{ApiError, Call, Reply};
use kiln_controller::rehearsal::{Audience, Rehearsed, rehearse};
use kiln_controller::{Compile, Settings};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::{Exception, Policy};
use kiln_value::Value;

use crate::calls::carry_out;
use crate::drive::now;
use crate::reader::Reader;
use crate::registry;

/// What is to be rehearsed.
#[derive(Debug)]
pub struct Play<'p> {
    /// The kinds that there are.
    pub kinds: &'p Kinds,
    /// The only policies that act; none for those of the cluster.
    pub policies: Option<Vec<Value>>,
    /// What rules leave alone.
    pub exceptions: Vec<Arc<Exception>>,
    /// Rules that act on new objects only act on all.
    pub all: bool,
    /// The namespace that the engine lives in.
    pub namespace: &'p str,
}

/// Finds out what rules would do, and does none of it.
///
/// # Errors
/// When the settings of the engine cannot be read.
pub fn plan(reader: &Reader, play: Play<'_>) -> Result<Rehearsed, ApiError> {
    let config = ObjectId::new(Gvk::new("v1", "ConfigMap"), play.namespace, "kyverno");
    let config = reader.object(&config)?;
    let (config, _) = kiln_admission::Settings::new(play.namespace).read(config.as_ref());
    let mut settings = Settings { namespace: play.namespace.into(), ..Settings::default() };
    settings.filters = config.filters;
    settings.limits.context_bytes = config.limits.context_bytes;
    let compile = Box::new(Stored { all: play.all });
    Ok(rehearse(reader, play.kinds, &settings, compile, play.policies, play.exceptions, now()))
}

impl Audience for Reader {
    fn all(&self, kind: &Gvk) -> Result<Vec<Value>, ApiError> {
        Reader::all(self, kind, "")
    }

    fn dry_run(&self, call: &Call) -> Option<Result<Value, ApiError>> {
        match self.ask(call) {
            Ok(Reply::Object(object)) => Some(Ok(object)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl Reader {
    /// Carries out a call that changes nothing.
    fn ask(&self, call: &Call) -> Result<Reply, ApiError> {
        if call.changes() {
            let message = "a reader changes nothing";
            return Err(ApiError::new(kiln_cluster::Reason::Forbidden, message));
        }
        self.runtime.block_on(carry_out(&self.client, &self.kinds, call))
    }
}

/// Compiles policies as they are stored.
struct Stored {
    all: bool,
}

impl Compile for Stored {
    fn kinds(&self) -> Vec<Gvk> {
        registry::policy_kinds()
    }

    fn compile(&self, policy: &Value, kinds: &Kinds) -> Result<Arc<Policy>, String> {
        let policy = registry::compile(policy, kinds)?;
        if !self.all {
            return Ok(policy);
        }
        let mut policy = Policy::clone(&policy);
        for rule in &mut policy.rules {
            Arc::make_mut(rule).lifecycle.existing = true;
        }
        Ok(Arc::new(policy))
    }
}
