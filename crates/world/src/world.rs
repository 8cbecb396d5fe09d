//! The world: a cluster in one thread, and the ways to act on it, to let time pass, and to see what happened.

use std::sync::{Arc, Mutex};

use kiln_apiserver::{ApiRequest, Authorization, Record, Response, Server, Settings};
use kiln_cluster::{ApiError, Call, ObjectPatch, Reason, Reply};
use kiln_controller::provenance::Provenance;
use kiln_controller::{Condition, WorkKey};
use kiln_install::{Crds, Grant, Permissions};
use kiln_object::{Gvk, Kinds, ObjectId, Selector};
use kiln_replica::calls::carry_out;
use kiln_replica::path::{Address, path};
use kiln_value::{Str, Value};

use crate::admin::Admin;
use crate::clock::locked;
use crate::connection::now_or_never;
use crate::core::{Core, WorldHost};
use crate::discovery::discover;
use crate::faults::FaultRates;
use crate::replica::{PartName, Replica};
use crate::settling::Settling;
use crate::timeline::{TimelineEntry, TimelineEvent};

/// When worlds begin unless they are told: 2026-01-01T00:00:00Z, in milliseconds since 1970.
pub const USUAL_START: u64 = 1_767_225_600_000;
/// The most turns without a jump of the clock: what is not done by then goes round in a circle.
const MOST_TURNS: usize = 100_000;

/// What a user decides about a world.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The same seed gives the same world.
    pub seed: u64,
    /// The time at which it begins, in milliseconds since 1970.
    pub start: u64,
    /// How many processes of the engine there are.
    pub replicas: usize,
    pub authorization: Authorization,
    /// The parts of replicas have their turns in an order of chance.
    pub shuffled: bool,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions {
            seed: 0,
            start: USUAL_START,
            replicas: 1,
            authorization: Authorization::Rbac,
            shuffled: false,
        }
    }
}

/// What a cluster with the engine installed holds: worlds begin with it, so that it is made once.
#[derive(Clone, Debug)]
pub struct WorldImage {
    records: Arc<Vec<Record>>,
}

/// An object that a cluster was to begin with, and that the server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInstalled {
    /// The number of the definition, if it is one of those that were given.
    pub definition: Option<usize>,
    /// What is refused, and why.
    pub message: String,
}

impl std::fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NotInstalled {}

impl WorldImage {
    /// A cluster with the engine's definitions and roles, and further definitions. Exceptions of these namespaces hold for all
    /// policies; none for the engine's own.
    ///
    /// # Errors
    /// When an object is refused.
    pub fn with_engine(
        definitions: &[Value],
        exceptions: Option<&str>,
    ) -> Result<Self, NotInstalled> {
        let manifests = kiln_install::manifests(&kiln_install::InstallOptions {
            workload: false,
            crds: Crds { own_group: true, ..Crds::default() },
            permissions: Permissions { grant: Grant::Standard, ..Permissions::default() },
            exception_namespaces: exceptions.map(kiln_install::words),
            ..kiln_install::InstallOptions::default()
        });
        let bare = World::bare(&WorldOptions::default(), Vec::new());
        for (number, object) in definitions.iter().chain(&manifests).enumerate() {
            bare.apply(object, "kyverno").map_err(|error| {
                let what = kiln_object::identity::describe(object);
                let definition = (number < definitions.len()).then_some(number);
                NotInstalled { definition, message: format!("{what} is not stored: {error}") }
            })?;
            bare.server.settle();
        }
        Ok(WorldImage { records: Arc::new(bare.server.snapshot()) })
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// A part of a replica, or a built-in controller, did something.
    Worked,
    /// Nothing was to be done, and the clock jumped.
    Jumped,
    /// Nothing is to be done before the time that was given.
    Quiet,
}

/// What can be said of an object.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// The object, if it is there.
    pub object: Option<Value>,
    /// The rule that made it, and what it was made for and from.
    pub made_by: Vec<String>,
    /// What rules wait for, key by key.
    pub waiting: Vec<String>,
    /// What happened to it.
    pub history: Vec<TimelineEntry>,
}

/// A cluster in one thread, in logical time.
#[derive(Debug)]
pub struct World {
    core: Arc<Core>,
    server: Arc<Server>,
    replicas: Vec<Replica>,
    options: WorldOptions,
    /// The turns that are still to be had in this round.
    round: Vec<(usize, PartName)>,
    /// The turns of built-in controllers.
    settling: Settling,
    /// How many processes were started.
    lives: u64,
    /// What was served when it was last asked.
    kinds: Mutex<Kinds>,
}

impl World {
    /// A cluster with the engine, as an image has it.
    pub fn new(options: &WorldOptions, image: &WorldImage) -> Self {
        let mut world = World::bare(options, image.records.to_vec());
        for replica in 0..world.options.replicas {
            world.start_replica(replica);
        }
        // The engine registers before the first user comes.
        world.run_now();
        world
    }

    /// A cluster without the engine.
    fn bare(options: &WorldOptions, records: Vec<Record>) -> Self {
        let core = Core::new(options.start, options.seed);
        let settings = Settings {
            authorization: options.authorization,
            ca: "a world has no certificates\n".to_owned(),
            ..Settings::default()
        };
        let host = Box::new(WorldHost(Arc::clone(&core)));
        let server = Arc::new(Server::with_records(settings, host, records));
        core.set_server(&server);
        World {
            core,
            server,
            replicas: Vec::new(),
            options: options.clone(),
            round: Vec::new(),
            settling: Settling::default(),
            lives: 0,
            kinds: Mutex::default(),
        }
    }

    fn start_replica(&mut self, replica: usize) {
        self.lives += 1;
        let started = Replica::start(&self.core, replica, self.lives);
        match self.replicas.get_mut(replica) {
            Some(old) => *old = started,
            None => self.replicas.push(started),
        }
    }

    // === acting on it ===

    /// Sends a request as the administrator.
    pub fn send(&self, request: ApiRequest) -> Response {
        self.core.send(request, None)
    }

    /// Sends a request as a user.
    pub fn send_as(&self, user: &str, request: ApiRequest) -> Response {
        self.core.send(request, Some(user))
    }

    fn call(&self, call: &Call) -> Result<Reply, ApiError> {
        now_or_never(carry_out(&Admin(&self.core), &self.kinds_with(&call.about().gvk), call))
    }

    /// The kinds that were served when it was last asked, unless this one is not among them.
    fn kinds_with(&self, gvk: &Gvk) -> Kinds {
        let mut known = locked(&self.kinds);
        if known.get(gvk).is_none() {
            *known = discover(&self.core);
        }
        known.clone()
    }

    /// The kinds that the cluster serves.
    pub fn kinds(&self) -> Kinds {
        discover(&self.core)
    }

    /// Applies an object as `kubectl apply --server-side --force-conflicts` does, in a namespace unless it names one.
    ///
    /// # Errors
    /// What the server says.
    pub fn apply(&self, object: &Value, namespace: &str) -> Result<Value, ApiError> {
        let kinds = self.kinds_with(&Gvk::of(object).unwrap_or_default());
        let object = placed(&kinds, object, namespace);
        let call = Call::Apply { object, manager: "kubectl".into(), force: true };
        let reply = now_or_never(carry_out(&Admin(&self.core), &kinds, &call))?;
        Ok(reply.object().unwrap_or_default())
    }

    /// Creates an object.
    ///
    /// # Errors
    /// What the server says.
    pub fn create(&self, object: &Value, namespace: &str) -> Result<Value, ApiError> {
        let kinds = self.kinds_with(&Gvk::of(object).unwrap_or_default());
        let object = placed(&kinds, object, namespace);
        Ok(self.call(&Call::create(object))?.object().unwrap_or_default())
    }

    /// Changes an object.
    ///
    /// # Errors
    /// What the server says.
    pub fn patch(&self, target: &ObjectId, patch: ObjectPatch) -> Result<Value, ApiError> {
        let call = Call::Patch { target: target.clone(), patch, subresource: Str::default() };
        Ok(self.call(&call)?.object().unwrap_or_default())
    }

    /// Deletes an object; what it owns goes afterwards.
    ///
    /// # Errors
    /// What the server says.
    pub fn delete(&self, target: &ObjectId) -> Result<(), ApiError> {
        self.call(&Call::delete(target.clone())).map(drop)
    }

    /// An object; none if it is not there.
    ///
    /// # Errors
    /// What the server says.
    pub fn get(&self, id: &ObjectId) -> Result<Option<Value>, ApiError> {
        match self.call(&Call::Get(id.clone())) {
            Ok(reply) => Ok(reply.object()),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects of a kind, of one namespace or of all, with labels.
    ///
    /// # Errors
    /// What the server says.
    pub fn list(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        selector: Selector,
    ) -> Result<Vec<Value>, ApiError> {
        let call = Call::List {
            kind: kind.clone(),
            namespace: namespace.map(Str::from),
            selector,
            limit: None,
            resume: None,
        };
        Ok(self.call(&call)?.listing().unwrap_or_default().objects)
    }

    /// Where an object is served; none if its kind is not.
    pub fn path_of(&self, id: &ObjectId) -> Option<String> {
        let kinds = self.kinds_with(&id.gvk);
        let kind = kinds.get(&id.gvk)?;
        let address = Address {
            group: kind.group(),
            version: kind.version(),
            plural: kind.plural(),
            namespace: if kind.is_namespaced() { &id.namespace } else { "" },
            name: &id.name,
            subresource: "",
        };
        path(&address, &[]).ok()
    }

    /// The server itself, for what watches it and keeps its records. What is written there by hand is seen at the next step.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.server.revision()
    }

    // === time ===

    /// The time, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.core.now()
    }

    /// Does the next thing that is to be done; if there is none, the clock jumps to the next time at which there is, unless
    /// that is after `limit`.
    pub fn step(&mut self, limit: u64) -> Stepped {
        if self.work() {
            return Stepped::Worked;
        }
        // What is due and does nothing must not hold up the clock.
        let soon = self.now() + 1;
        match self.next_time().map(|next| next.max(soon)).filter(|next| *next <= limit) {
            None => Stepped::Quiet,
            Some(next) => {
                self.jump(next);
                Stepped::Jumped
            }
        }
    }

    /// Does everything that is to be done without letting time pass.
    pub fn run_now(&mut self) {
        for _ in 0..MOST_TURNS {
            if !self.work() {
                return;
            }
        }
    }

    /// Lets everything happen that is to happen until a time, which it is then; false if something goes round in a
    /// circle.
    pub fn run_until(&mut self, time: u64) -> bool {
        for _ in 0..MOST_TURNS {
            if self.step(time) == Stepped::Quiet {
                if self.now() < time {
                    self.jump(time);
                }
                if self.now() >= time && !self.work() {
                    return true;
                }
            }
        }
        false
    }

    /// Lets everything happen until nothing is to be done before a time; the clock stays where the last thing was done.
    /// False if something goes round in a circle.
    pub fn run_until_quiet(&mut self, limit: u64) -> bool {
        for _ in 0..MOST_TURNS {
            if self.step(limit) == Stepped::Quiet {
                return true;
            }
        }
        false
    }

    /// The next time at which something is to be done; looks that heal lost events do not count.
    pub fn next_time(&self) -> Option<u64> {
        let timers = self.replicas.iter().map(Replica::timers);
        timers.filter_map(|timers| timers.work).chain(self.settling.next_time()).min()
    }

    /// The next time at which a replica looks whether all is well.
    fn next_routine(&self) -> Option<u64> {
        self.replicas.iter().map(Replica::timers).filter_map(|timers| timers.routine).min()
    }

    /// Puts the clock forward. Whatever replicas look at regularly meanwhile, such as the Lease, they look at in time.
    fn jump(&mut self, time: u64) {
        let before = self.now();
        while self.now() < time {
            let routine = self.next_routine().filter(|routine| *routine < time);
            self.core.ambience.jump_to(routine.map_or(time, |at| at.max(self.now() + 1)));
            if self.now() < time && self.work() {
                break;
            }
        }
        let milliseconds = self.now() - before;
        self.core.tell(TimelineEvent::Jumped { milliseconds });
    }

    /// One thing that is to be done without letting time pass; whether there was one.
    fn work(&mut self) -> bool {
        if self.settle() {
            return true;
        }
        // What is left of this round, and a whole one: parts that had their turn may have something to do again.
        for _ in 0..2 {
            if self.round.is_empty() {
                self.begin_round();
            }
            while let Some((replica, part)) = self.round.pop() {
                if self.turn(replica, part) {
                    return true;
                }
            }
        }
        false
    }

    fn begin_round(&mut self) {
        let replicas = 0..self.replicas.len();
        let mut all: Vec<(usize, PartName)> = replicas
            .flat_map(|replica| PartName::ALL.into_iter().map(move |part| (replica, part)))
            .collect();
        all.reverse();
        if self.options.shuffled {
            self.core.ambience.decide(|chance| {
                for at in (1..all.len()).rev() {
                    let other = chance.below(u64::try_from(at + 1).unwrap_or(1));
                    all.swap(at, usize::try_from(other).unwrap_or(0));
                }
            });
        }
        self.round = all;
    }

    fn turn(&mut self, replica: usize, part: PartName) -> bool {
        let rates = self.core.rates();
        let now = self.now();
        let Some(process) = self.replicas.get_mut(replica) else { return false };
        if !rates.are_none() {
            let comes =
                |rate: u64| rate > 0 && self.core.ambience.decide(|chance| chance.one_in(rate));
            if comes(rates.late_part) {
                let wait = self.core.ambience.decide(|chance| chance.below(2_000));
                process.hold_up(part, now + wait);
            }
            if comes(rates.partition) {
                let wait = self.core.ambience.decide(|chance| chance.below(30_000));
                process.link().cut(now + wait);
                let what = format!("replica {replica} cannot reach the server for {wait} ms");
                self.core.tell(TimelineEvent::Fault { what });
            }
        }
        let worked = process.run(part);
        self.restart_crashed() || worked
    }

    /// Starts processes again that have crashed; whether there were some.
    fn restart_crashed(&mut self) -> bool {
        let crashed: Vec<usize> = (0..self.replicas.len())
            .filter(|number| self.replicas[*number].link().is_crashed())
            .collect();
        for replica in &crashed {
            self.start_replica(*replica);
        }
        !crashed.is_empty()
    }

    /// Lets built-in controllers do their work; whether something was written since they last did.
    fn settle(&mut self) -> bool {
        let (before, now) = (self.server.revision(), self.now());
        if !self.settling.is_due(before, now) {
            return false;
        }
        self.server.settle();
        let after = self.server.revision();
        self.settling.had(after);
        after != before
    }

    // === faults ===

    /// Says how often things go wrong from now on.
    pub fn set_faults(&mut self, rates: FaultRates) {
        *locked(&self.core.faults) = rates;
    }

    /// Ends a process and starts another one in its place.
    pub fn restart(&mut self, replica: usize) {
        if let Some(process) = self.replicas.get(replica) {
            process.link().crash();
        }
        self.restart_crashed();
    }

    /// Forgets the history of objects, so that watches which are behind must list again.
    pub fn compact(&mut self) {
        self.server.compact(self.server.revision());
    }

    // === seeing ===

    /// The replicas that act as the leader. There is one, or none; after a Lease was lost by a replica that has not noticed yet,
    /// its writes are fenced.
    pub fn leaders(&self) -> Vec<usize> {
        (0..self.replicas.len()).filter(|number| self.replicas[*number].leads()).collect()
    }

    /// Whether all replicas know what is stored.
    pub fn is_ready(&self) -> bool {
        self.replicas.iter().all(Replica::is_ready)
    }

    /// What happened from an entry on, by its number; and the number of the next one.
    pub fn timeline(&self, since: usize) -> (Vec<TimelineEntry>, usize) {
        locked(&self.core.timeline).since(since)
    }

    /// Every object that is stored.
    pub fn objects(&self) -> Vec<Value> {
        self.server.snapshot().into_iter().filter_map(|record| record.object).collect()
    }

    /// Why work of rules is not done, rule by rule and trigger by trigger.
    pub fn conditions(&self) -> Vec<(WorkKey, Condition)> {
        self.replicas.iter().flat_map(Replica::conditions).collect()
    }

    /// The same in words.
    pub fn waiting(&self) -> Vec<String> {
        self.conditions()
            .into_iter()
            .map(|(key, why)| format!("{}: {}: {}", key.rule, why.reason.as_str(), why.message))
            .collect()
    }

    /// What can be said of an object: which rule made it, what it waits for, what happened to it.
    pub fn explain(&self, id: &ObjectId) -> Explanation {
        let object = self.get(id).ok().flatten();
        let claim = object.as_ref().and_then(Provenance::read);
        let made_by = claim.map(|claim| {
            let labels = claim.labels();
            let rule = labels.rule.as_deref().map(|rule| format!("/{rule}")).unwrap_or_default();
            let mut words = vec![format!("rule {}{rule}", labels.policy)];
            words.extend(claim.trigger().map(|trigger| format!("for {trigger}")));
            words.extend(claim.sources().iter().map(|source| format!("from {source}")));
            words
        });
        let (entries, _) = self.timeline(0);
        let is_about = |entry: &TimelineEntry| match &entry.what {
            TimelineEvent::Write { path, .. } => {
                path.ends_with(&format!("/{}", id.name))
                    && (id.namespace.is_empty()
                        || path.contains(&format!("/namespaces/{}/", id.namespace)))
            }
            TimelineEvent::Review { object, .. } => object.same_object(id),
            TimelineEvent::Told { message, .. } => message.contains(id.name.as_str()),
            _ => false,
        };
        Explanation {
            object,
            made_by: made_by.unwrap_or_default(),
            waiting: self.waiting(),
            history: entries.into_iter().filter(is_about).collect(),
        }
    }
}

/// An object with the namespace that it is stored in.
fn placed(kinds: &Kinds, object: &Value, namespace: &str) -> Value {
    let gvk = Gvk::of(object).unwrap_or_default();
    let mut object = object.clone();
    if kinds.is_namespaced(&gvk) == Some(true)
        && object.str_at(["metadata", "namespace"]).is_none_or(str::is_empty)
    {
        let _ = object.set(["metadata", "namespace"], namespace);
    }
    object
}
