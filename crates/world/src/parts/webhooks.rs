//! Keeps what answers webhooks, and the webhook configurations, as policies need them; and the status of policies.

use std::sync::Arc;

use kiln_admission::Hooks;
use kiln_admission::webhooks::{Address, configurations};
use kiln_replica::api::at_once;
use kiln_replica::native_policies::is_generated;
use kiln_replica::scan_permissions::COUNTS;
use kiln_replica::status::{Admission, StatusBasis, StatusRound, StatusWriter};
use kiln_replica::webhooks::{COMPARE, PublishedWebhooks, registered};

use crate::admission::DeskState;
use crate::around::{Around, Seen, Timers};

/// How long to wait after a failure.
const AGAIN: u64 = 2_000;
/// What the configurations say of certificates, which a world has none of: `world` in base64.
const CA_BUNDLE: &str = "d29ybGQ=";

/// Registers policies at the server.
#[derive(Debug, Default)]
pub(crate) struct WebhooksPart {
    published: PublishedWebhooks,
    registry: Seen,
    kinds: Seen,
    globals: Seen,
    /// When something failed, when to try again.
    again: Option<u64>,
    compare: u64,
}

impl WebhooksPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let knowledge = &around.knowledge;
        let changed = [
            self.registry.renew(&knowledge.registry),
            self.kinds.renew(&knowledge.kinds),
            self.globals.renew(&knowledge.globals),
        ];
        let now = around.now();
        let due = self.again.is_some_and(|at| at <= now) || self.compare <= now;
        if !knowledge.registry.get().complete || !(due || changed.contains(&true)) {
            return false;
        }
        self.compare = now + COMPARE;
        let wanted = lay_out(around);
        let mut failed = false;
        for configuration in &wanted {
            let (connection, kinds) = (&around.connections.admission, around.knowledge.kinds.get());
            let ensured = at_once(self.published.ensure(connection, kinds, configuration));
            failed |= !matches!(ensured, Some(Ok(_)));
        }
        self.again = failed.then_some(now + AGAIN);
        if !failed {
            around.knowledge.webhooks_begun = true;
            let stored = around.knowledge.registry.get();
            let registered = registered(stored, around.knowledge.kinds.get());
            if registered != *around.knowledge.registered.get() {
                around.knowledge.registered.set(registered);
            }
        }
        changed.contains(&true)
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers { work: self.again, routine: Some(self.compare) }
    }
}

/// Puts the rules that are stored in the place of those that answered before; the configurations that they need.
fn lay_out(around: &Around) -> Vec<kiln_value::Value> {
    let stored = Arc::clone(around.knowledge.registry.get());
    let kinds = around.knowledge.kinds.get().clone();
    let settings = around.settings();
    // The API server checks objects for these itself.
    let others = stored.policies.iter().filter(|policy| !is_generated(&policy.object));
    let sound = others.filter_map(|policy| policy.compiled.clone().ok());
    let exceptions = settings.in_force(&stored.exceptions);
    let hooks = Hooks::new(sound, &exceptions, &kinds, &settings);
    let address = Address::Service {
        namespace: around.identity.namespace.as_str().into(),
        name: around.identity.names.service().into(),
        port: 443,
    };
    let wanted = configurations(&hooks, &settings, &address, CA_BUNDLE);
    around.desk.set(DeskState {
        hooks,
        authors: stored.authors(settings.authors),
        settings,
        registry: stored,
        kinds,
        globals: Arc::clone(around.knowledge.globals.get()),
    });
    wanted
}

/// Writes the status of policies.
#[derive(Debug, Default)]
pub(crate) struct StatusPart {
    writer: StatusWriter,
    registry: Seen,
    registered: Seen,
    troubles: Seen,
    kinds: Seen,
    again: Option<u64>,
    permissions: Option<u64>,
}

impl StatusPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let knowledge = &around.knowledge;
        let changed = [
            self.registry.renew(&knowledge.registry),
            self.registered.renew(&knowledge.registered),
            self.troubles.renew(&knowledge.troubles),
            self.kinds.renew(&knowledge.kinds),
        ];
        let mut times = self.again.into_iter().chain(self.permissions);
        let due = times.any(|at| at <= around.now());
        if !(due || changed.contains(&true)) {
            return false;
        }
        let basis = StatusBasis {
            stored: knowledge.registry.get(),
            admission: Admission::Here(knowledge.registered.get()),
            troubles: knowledge.troubles.get().as_ref(),
            kinds: knowledge.kinds.get(),
        };
        let round = at_once(self.writer.write(
            &around.connections.admission,
            &around.connections.controller,
            &basis,
        ));
        let StatusRound { happened, failed, lacks, .. } = round.unwrap_or_default();
        self.again = (!failed.is_empty()).then(|| around.now() + AGAIN);
        // Nothing tells when permissions come.
        self.permissions = lacks.then(|| around.now() + COUNTS);
        around.happened.extend(happened);
        changed.contains(&true)
    }

    pub(crate) fn timers(&self) -> Timers {
        Timers::work(self.again.into_iter().chain(self.permissions).min())
    }
}
