//! One process of the engine: its parts, and what they have around them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kiln_admission::Hooks;
use kiln_controller::{Condition, WorkKey};
use kiln_object::EngineNames;
use kiln_replica::election::Until;

use crate::admission::{Desk, DeskState};
use crate::around::{Around, Connections, Identity, Knowledge, Known, Timers};
use crate::clock::locked;
use crate::connection::{Connection, Link};
use crate::core::{Core, NAMESPACE};
use crate::discovery::discover;
use crate::parts::cleanup::{CleanupPart, TtlPart};
use crate::parts::controller::ControllerPart;
use crate::parts::globals::GlobalsPart;
use crate::parts::leader::LeasePart;
use crate::parts::native_policies::NativePoliciesPart;
use crate::parts::policies::{KindsPart, PoliciesPart};
use crate::parts::scan::ScanPart;
use crate::parts::telling::{EventsPart, ReportsPart, audit};
use crate::parts::webhooks::{StatusPart, WebhooksPart};

/// The parts of a replica, in the order in which they have their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartName {
    Kinds,
    Policies,
    Globals,
    Webhooks,
    Lease,
    Controller,
    Audits,
    Status,
    Scan,
    Cleanup,
    Ttl,
    NativePolicies,
    Reports,
    Events,
}

impl PartName {
    pub(crate) const ALL: [PartName; 14] = [
        PartName::Kinds,
        PartName::Policies,
        PartName::Globals,
        PartName::Webhooks,
        PartName::Lease,
        PartName::Controller,
        PartName::Audits,
        PartName::Status,
        PartName::Scan,
        PartName::Cleanup,
        PartName::Ttl,
        PartName::NativePolicies,
        PartName::Reports,
        PartName::Events,
    ];
}

/// The parts that every replica has.
#[derive(Debug)]
struct Always {
    kinds: KindsPart,
    policies: PoliciesPart,
    globals: GlobalsPart,
    webhooks: WebhooksPart,
    lease: LeasePart,
    status: StatusPart,
    reports: ReportsPart,
    events: EventsPart,
}

/// The parts that only the leader has.
#[derive(Debug)]
struct Leading {
    controller: ControllerPart,
    scan: ScanPart,
    cleanup: CleanupPart,
    ttl: TtlPart,
    native_policies: NativePoliciesPart,
}

/// One process of the engine.
#[derive(Debug)]
pub(crate) struct Replica {
    around: Around,
    link: Arc<Link>,
    always: Always,
    leading: Option<Leading>,
    /// Parts that a fault holds up, and until when.
    late: BTreeMap<PartName, u64>,
}

impl Replica {
    /// Starts a process, which takes the place of the one with its number.
    pub(crate) fn start(core: &Arc<Core>, replica: usize, life: u64) -> Self {
        let identity = Identity {
            replica,
            name: format!("kiln-{replica}-{life}"),
            namespace: NAMESPACE.to_owned(),
            names: EngineNames::default(),
        };
        let link = Arc::new(Link::default());
        let settings = identity.settings();
        let connection =
            |user: String| Connection { core: Arc::clone(core), user, link: Arc::clone(&link) };
        let connections = Connections {
            controller: connection(settings.background_user()),
            admission: connection(settings.admission_user()),
            cleanup: connection(settings.cleanup_user()),
        };
        let kinds = discover(core);
        let state = DeskState {
            hooks: Hooks::default(),
            settings,
            authors: Default::default(),
            registry: Arc::default(),
            kinds: kinds.clone(),
            globals: Arc::default(),
        };
        let desk = Arc::new(Desk::new(replica, connections.admission.clone(), state));
        {
            let mut desks = locked(&core.desks);
            match desks.get_mut(replica) {
                Some(old) => {
                    old.close();
                    *old = Arc::clone(&desk);
                }
                None => desks.push(Arc::clone(&desk)),
            }
        }
        let always = Always {
            kinds: KindsPart::new(),
            policies: PoliciesPart::new(&identity),
            globals: GlobalsPart::default(),
            webhooks: WebhooksPart::default(),
            lease: LeasePart::new(&identity),
            status: StatusPart::default(),
            reports: ReportsPart::new(identity.report_form()),
            events: EventsPart::new(&identity.name),
        };
        let around = Around {
            core: Arc::clone(core),
            identity,
            connections,
            desk,
            knowledge: Knowledge { kinds: Known::new(kinds), ..Knowledge::default() },
            fence: Until::Over,
            happened: VecDeque::new(),
            findings: VecDeque::new(),
        };
        Replica { around, link, always, leading: None, late: BTreeMap::new() }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// Holds a part up until a time.
    pub(crate) fn hold_up(&mut self, part: PartName, until: u64) {
        self.late.insert(part, until);
    }

    fn is_late(&mut self, part: PartName, now: u64) -> bool {
        match self.late.get(&part) {
            Some(until) if *until > now => true,
            Some(_) => {
                self.late.remove(&part);
                false
            }
            None => false,
        }
    }

    /// Gives a part its turn; whether it did something.
    pub(crate) fn run(&mut self, part: PartName) -> bool {
        let now = self.around.now();
        if self.link.is_crashed() || self.is_late(part, now) {
            return false;
        }
        let Replica { around, always, leading, .. } = self;
        match (part, leading) {
            (PartName::Kinds, _) => always.kinds.run(around),
            (PartName::Policies, _) => always.policies.run(around),
            (PartName::Globals, _) => always.globals.run(around),
            (PartName::Webhooks, _) => always.webhooks.run(around),
            (PartName::Status, _) => always.status.run(around),
            (PartName::Reports, _) => always.reports.run(around),
            (PartName::Events, _) => always.events.run(around),
            (PartName::Audits, _) => audit(around),
            (PartName::Lease, _) => {
                let changed = always.lease.run(around);
                self.take_or_leave_office();
                changed
            }
            (PartName::Controller, Some(leading)) => leading.controller.run(around),
            (PartName::Scan, Some(leading)) => leading.scan.run(around),
            (PartName::Cleanup, Some(leading)) => leading.cleanup.run(around),
            (PartName::Ttl, Some(leading)) => leading.ttl.run(around),
            (PartName::NativePolicies, Some(leading)) => leading.native_policies.run(around),
            (PartName::Controller, None) => {
                // A standby replica has nothing to do with requests.
                locked(&around.desk.output).hints.clear();
                false
            }
            (
                PartName::Scan | PartName::Cleanup | PartName::Ttl | PartName::NativePolicies,
                None,
            ) => false,
        }
    }

    fn take_or_leave_office(&mut self) {
        match (self.always.lease.leads(), self.leading.is_some()) {
            (true, false) => {
                self.leading = Some(Leading {
                    controller: ControllerPart::new(&self.around),
                    scan: ScanPart::default(),
                    cleanup: CleanupPart::default(),
                    ttl: TtlPart::default(),
                    native_policies: NativePoliciesPart::default(),
                });
            }
            (false, true) => {
                self.leading = None;
                self.around.knowledge.troubles.set(None);
            }
            _ => {}
        }
    }

    /// When the process wants to run again.
    pub(crate) fn timers(&self) -> Timers {
        let always = &self.always;
        let now = self.around.now();
        let mut timers = always
            .kinds
            .timers()
            .and(always.policies.timers())
            .and(always.globals.timers())
            .and(always.webhooks.timers())
            .and(always.lease.timers())
            .and(always.status.timers())
            .and(always.reports.timers())
            .and(Timers::work(self.late.values().copied().min()));
        if let Some(leading) = &self.leading {
            timers = timers
                .and(leading.controller.timers(now))
                .and(leading.scan.timers())
                .and(leading.cleanup.timers())
                .and(leading.ttl.timers())
                .and(leading.native_policies.timers());
        }
        timers
    }

    /// Why work is not done, key by key.
    pub(crate) fn conditions(&self) -> Vec<(WorkKey, Condition)> {
        self.leading.as_ref().map(|leading| leading.controller.conditions()).unwrap_or_default()
    }

    /// Whether it knows what is stored, and the server knows where it answers.
    pub(crate) fn is_ready(&self) -> bool {
        self.around.knowledge.registry.get().complete
    }
}
