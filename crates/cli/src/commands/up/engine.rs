//! What `kiln run` does, in the process of the sandbox: its beginning, when rules are at work, its end.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_apiserver::ApiRequest;
use kiln_diagnostic::Diagnostic;
use kiln_install::{Crds, Grant, Permissions};
use kiln_object::{EngineNames, Gvk, ObjectId, metadata};
use kiln_runtime::{ActivityState, AppState, CARRIES};
use kiln_sandbox::Sandbox;
use kiln_value::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::exit::CommandFailure;

/// How long the engine may take to put rules to work.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a kind may take to be served once it is defined.
const KINDS_COME: Duration = Duration::from_secs(2);
/// How long rules may take to do what follows from the first objects.
const FIRST_WORK: Duration = Duration::from_secs(5);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Nothing has happened at so many looks in a row when they have done it. Looks are counted, not time: on a busy
/// machine both take longer.
const STILL: usize = 20;
/// What happens within this time is waited for: schedules have minutes.
const SOON: Duration = Duration::from_secs(62);
/// How long the engine may take to end.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// `kiln run` in the process of the sandbox.
pub(in crate::commands) struct SandboxEngine {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What webhook configurations say of where the engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Reached {
    /// Its address on loopback, which other programs can call as well.
    ByAddress,
    /// Its Service, as in a cluster; the sandbox knows what is behind it.
    ByService,
}

/// The engine's own view of what it does.
pub(in crate::commands) struct View {
    shared: AppState,
    /// It was waited for once for as long as can be: it is not waited for so long again.
    is_late: Cell<bool>,
    /// Policies, by UID and generation, whose kinds were waited for and did not come.
    incomplete: RefCell<HashSet<(String, i64)>>,
}

impl SandboxEngine {
    /// Begins, at the sandbox of this kubeconfig. Exceptions of these namespaces hold for all policies.
    pub(in crate::commands) fn begin(
        sandbox: &Sandbox,
        kubeconfig: &Path,
        exceptions: Option<&str>,
        reached: Reached,
    ) -> Result<(Self, oneshot::Receiver<AppState>), CommandFailure> {
        for object in kiln_install::manifests(&kiln_install::InstallOptions {
            workload: false,
            crds: Crds { own_group: true, ..Crds::default() },
            permissions: Permissions { grant: Grant::Standard, ..Permissions::default() },
            exception_namespaces: exceptions.map(kiln_install::words),
            ..kiln_install::InstallOptions::default()
        }) {
            sandbox.apply(&object, "kyverno").map_err(|why| {
                let what = kiln_object::identity::describe(&object);
                Diagnostic::error(format!("the engine needs {what}, which is not stored: {why}"))
                    .hint("choose another --data, or begin with an empty one")
            })?;
        }
        // The port is free now, and taken a moment later.
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let listen =
            free.map_err(|error| Diagnostic::error(format!("no port is free: {error}")))?;
        let service = EngineNames::default().service();
        let webhook_url = match reached {
            Reached::ByAddress => Some(format!("https://{listen}")),
            Reached::ByService => {
                sandbox.route_service("kyverno", &service, listen);
                None
            }
        };
        // As in a cluster, each side acts as its account: under `--authorization rbac` it may do what the roles say.
        let accounts = kiln_admission::Settings::new("kyverno");
        let options = kiln_runtime::RuntimeOptions {
            kubeconfig: Some(kubeconfig.to_path_buf()),
            as_controller: Some(accounts.background_user()),
            as_admission: Some(accounts.admission_user()),
            as_cleanup: Some(accounts.cleanup_user()),
            listen,
            webhook_url,
            service,
            ..kiln_runtime::RuntimeOptions::default()
        };
        let (end, ended) = oneshot::channel();
        let (show, shown) = oneshot::channel();
        let task = tokio::spawn(async move {
            let ended = async move {
                let _ = ended.await;
            };
            let show = |shared: &AppState| drop(show.send(shared.clone()));
            if let Err(error) = kiln_runtime::run_seen(options, ended, show).await {
                let _ = writeln!(std::io::stderr(), "the engine ended: {}", error.message);
            }
        });
        Ok((SandboxEngine { end, task }, shown))
    }

    /// Comes when it has ended without being asked to, which it has said on standard error.
    pub(in crate::commands) async fn fails(&mut self) {
        let _ = (&mut self.task).await;
    }

    /// Ends it: what it registered is taken back.
    pub(in crate::commands) async fn end(self) {
        let _ = self.end.send(());
        let _ = tokio::time::timeout(LAST_CALLS, self.task).await;
    }
}

/// Waits for the engine to be connected.
pub(in crate::commands) async fn connected(
    shown: oneshot::Receiver<AppState>,
) -> Result<View, CommandFailure> {
    match shown.await {
        Ok(shared) => {
            Ok(View { shared, is_late: Cell::new(false), incomplete: RefCell::default() })
        }
        Err(_) => Err(Diagnostic::error("the engine does not start")
            .hint("look at it with --log debug")
            .into()),
    }
}

impl View {
    /// Waits until all policies that are stored are at work, and those to come are reviewed; those that are not at work,
    /// with the reason.
    pub(in crate::commands) async fn at_work(&self, sandbox: &Sandbox) -> Vec<(ObjectId, String)> {
        let stored = self.stored(sandbox);
        let began = Instant::now();
        loop {
            let waited = began.elapsed() > KINDS_COME;
            let states: Vec<EngineState> =
                stored.iter().map(|policy| self.state(policy, waited)).collect();
            let reads = *self.shared.progress.work.borrow() == ActivityState::Standby
                || !self.shared.registry.borrow().complete
                || !self.shared.health.keeps_from_answering().is_empty();
            let patience = if self.is_late.get() { Duration::ZERO } else { PATIENCE };
            let late = began.elapsed() > patience;
            self.is_late.set(late || self.is_late.get());
            if late || !reads && !states.contains(&EngineState::Unknown) {
                let why = |state| match state {
                    EngineState::Works => None,
                    EngineState::Broken(why) => Some(why),
                    EngineState::Unknown => Some("the engine has not loaded it yet".to_owned()),
                };
                let all = stored.into_iter().zip(states);
                return all.filter_map(|(policy, state)| Some((policy.id, why(state)?))).collect();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until rules have done what follows from what is stored, as far as it is to be done at once.
    pub(in crate::commands) async fn rests(&self, sandbox: &Sandbox) {
        let began = Instant::now();
        let (mut revision, mut still) = (sandbox.revision(), 0);
        while began.elapsed() < FIRST_WORK && still < STILL {
            tokio::time::sleep(LOOK).await;
            let now = sandbox.revision();
            let happens = now != revision || self.is_busy() || has_stored_requests(sandbox);
            still = if happens { 0 } else { still + 1 };
            revision = now;
        }
    }

    /// Whether rules have something to do at once.
    pub(in crate::commands) fn is_busy(&self) -> bool {
        *self.shared.progress.work.borrow() == ActivityState::Busy
    }

    /// Whether something will be deleted soon because its time has come; `with_ttl` if objects with the TTL label are stored.
    pub(in crate::commands) fn deletes_soon(&self, with_ttl: bool) -> bool {
        let deletions = *self.shared.progress.deletions.borrow();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let soon = u64::try_from((now + SOON).as_millis()).unwrap_or(u64::MAX);
        let is_soon = |time: Option<u64>| time.is_some_and(|time| time < soon);
        is_soon(deletions.policies)
            || with_ttl && (!deletions.follows_ttl || is_soon(deletions.ttl))
    }

    /// Waits until the engine knows a kind that was just defined, and has told the API server where to ask about it.
    pub(in crate::commands) async fn knows(&self, sandbox: &Sandbox, kind: &Gvk) {
        let began = Instant::now();
        while self.shared.kinds.borrow().get(kind).is_none() && began.elapsed() < KINDS_COME {
            tokio::time::sleep(LOOK).await;
        }
        self.rests(sandbox).await;
    }

    fn stored(&self, sandbox: &Sandbox) -> Vec<Stored> {
        let kinds = self.shared.kinds.borrow().clone();
        let mut stored = Vec::new();
        use kiln_runtime::policy_store::{cleanup_kinds, policy_kinds};
        for gvk in policy_kinds(true).into_iter().chain(cleanup_kinds(true)) {
            let Some(kind) = kinds.get(&gvk) else { continue };
            let path = format!("/apis/{}/{}", gvk.api_version(), kind.plural());
            let list = sandbox.send(ApiRequest::new("GET", &path)).value();
            let items = list.get("items").and_then(Value::as_list);
            for item in items.into_iter().flat_map(|items| items.iter()) {
                stored.push(Stored {
                    id: ObjectId::new(
                        gvk.clone(),
                        metadata::namespace(item).unwrap_or_default(),
                        metadata::name(item).unwrap_or_default(),
                    ),
                    uid: metadata::uid(item).unwrap_or_default().to_owned(),
                    generation: generation(item),
                });
            }
        }
        stored
    }

    /// How it is with a policy. Kinds that it names and that were just defined are served in a moment: they are waited for
    /// once.
    fn state(&self, policy: &Stored, waited: bool) -> EngineState {
        let registry = self.shared.registry.borrow();
        let known = registry.policies.iter().find(|known| {
            known.id.same_object(&policy.id)
                && metadata::uid(&known.object) == Some(policy.uid.as_str())
                && generation(&known.object) >= policy.generation
        });
        let Some(known) = known else { return EngineState::Unknown };
        if let Err(why) = &known.compiled {
            return EngineState::Broken(why.to_string());
        }
        let unserved = known.compiled.as_ref().map(|sound| {
            let kinds = self.shared.kinds.borrow();
            sound.unserved_kinds(&kinds)
        });
        let unserved = unserved.unwrap_or_default();
        if !unserved.is_empty() {
            let life = (policy.uid.clone(), policy.generation);
            if waited {
                self.incomplete.borrow_mut().insert(life.clone());
            }
            return match self.incomplete.borrow().contains(&life) {
                true => {
                    EngineState::Broken(format!("the cluster serves no {}", unserved.join(", ")))
                }
                false => EngineState::Unknown,
            };
        }
        let registered = self.shared.progress.webhooks.borrow();
        let upto = registered.get(&known.id).filter(|(uid, _)| *uid == policy.uid);
        match upto {
            Some((_, upto)) if *upto >= policy.generation => EngineState::Works,
            _ => EngineState::Unknown,
        }
    }
}

/// Whether admission requests are stored that the controller has not served: what they cause is still to come, also while
/// it does nothing else.
fn has_stored_requests(sandbox: &Sandbox) -> bool {
    let path = format!("/apis/kyverno.io/v2/updaterequests?labelSelector={CARRIES}");
    let list = sandbox.send(ApiRequest::new("GET", &path)).value();
    list.get("items").and_then(Value::as_list).is_some_and(|items| !items.is_empty())
}

/// A policy that is stored.
struct Stored {
    id: ObjectId,
    uid: String,
    generation: i64,
}

#[derive(PartialEq)]
enum EngineState {
    Unknown,
    Broken(String),
    Works,
}

fn generation(object: &Value) -> i64 {
    object.get_path(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0)
}

/// Takes away what an engine leaves in the data when it is killed: registrations at an address at which nothing
/// answers any more, so that every write would be refused, and its Lease.
///
/// Beside a bare sandbox an engine may run on its own: what answers stays.
pub(super) fn forget_killed(sandbox: &Sandbox, bare: bool) {
    for (kind, name) in EngineNames::default().webhook_configurations() {
        let plural = format!("{}s", kind.to_lowercase());
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        let found = sandbox.send(ApiRequest::new("GET", &path));
        if found.status == 200 && !(bare && answers(&found.value())) {
            sandbox.send(ApiRequest::new("DELETE", &path));
        }
    }
    if !bare {
        let lease = kiln_runtime::lease_id("kyverno", &EngineNames::default());
        let path = format!(
            "/apis/{}/namespaces/{}/leases/{}",
            lease.gvk.api_version(),
            lease.namespace,
            lease.name
        );
        sandbox.send(ApiRequest::new("DELETE", &path));
    }
}

/// Whether a server listens where a configuration says.
fn answers(configuration: &Value) -> bool {
    let webhooks = configuration.get("webhooks").and_then(Value::as_list);
    let mut urls = webhooks
        .into_iter()
        .flat_map(|webhooks| webhooks.iter())
        .filter_map(|webhook| webhook.str_at(["clientConfig", "url"]));
    let address = |url: &str| {
        let rest = url.strip_prefix("https://")?;
        rest.split('/').next()?.parse::<SocketAddr>().ok()
    };
    urls.any(|url| {
        // Names are asked for elsewhere: a user who gave one knows that it answers.
        address(url).is_none_or(|address| {
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
        })
    })
}
