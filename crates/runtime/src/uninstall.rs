//! Takes an installation off a cluster, in the order that leaves what rules made.
//!
//! First everything that speaks against it is looked for, so that nothing is gone when the answer is no. Then the replica that
//! acts ends: while a controller runs, a policy that goes takes along what it made. When no replica acts any more,
//! webhooks, rights and definitions can go, and what rules made stays, with its labels.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kiln_cluster::{ApiError, Call, Reason};
use kiln_object::{EngineNames, Gvk, Kinds, ObjectId, Selector, metadata};
use kiln_value::Value;
use tokio::runtime::Builder;

use crate::calls::{carry_out, try_delete};
use crate::client::{Client, ConnectError};
use crate::discovery::Discovery;
use crate::lease;
use crate::options::RuntimeOptions;

/// How long the leader may take to stop.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long Kubernetes may take to tell pods to end whose Deployment is gone.
const COLLECTING: Duration = Duration::from_secs(10);
/// The pods that act or answer.
const PODS: &str =
    "app.kubernetes.io/name=kiln,app.kubernetes.io/component in (engine,admission,controller)";

/// What is to be taken off.
#[derive(Clone, Debug)]
pub struct Uninstall {
    /// What was installed, in the order in which it was.
    pub objects: Vec<Value>,
    /// What stays although it was installed or is called as what was, each with the reason.
    pub kept: BTreeMap<ObjectId, String>,
    /// Definitions go too, and with them all policies; and the namespace, with records and keys.
    pub all: bool,
    /// Only say what would go: the answer is the same, and nothing is deleted.
    pub dry_run: bool,
}

/// The webhook configurations that engines register.
pub fn webhook_configurations(names: &EngineNames) -> impl Iterator<Item = ObjectId> + use<> {
    names.webhook_configurations().into_iter().map(|(kind, name)| {
        ObjectId::new(Gvk::new("admissionregistration.k8s.io/v1", kind), "", &name)
    })
}

/// Takes an installation off a cluster, and says what it does as it does it.
///
/// # Errors
/// When the cluster cannot be reached, a permission is missing, or a replica still acts.
pub fn uninstall(
    options: &RuntimeOptions,
    plan: &Uninstall,
    said: &mut dyn FnMut(&str),
) -> Result<(), ConnectError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
        stopped(format!("cannot start: {error}"), "check the limit of open files (`ulimit -n`)")
    })?;
    runtime.block_on(async {
        let client = Client::connect(options, None).await?;
        let kinds = Discovery::default().refresh(&client).await.map_err(|error| {
            let message =
                format!("cannot discover the kinds that {} serves: {error}", client.server());
            stopped(message, "check that the cluster is up and the credentials are valid")
        })?;
        let kinds = kinds.unwrap_or_else(Kinds::builtin);
        let remover =
            Remover { client, kinds, namespace: &options.namespace, names: &options.names, plan };
        remover.remove(said).await
    })
}

/// What becomes of something that may have been installed.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing to delete.
    Gone,
    /// It stays, for this reason.
    Stays(String),
    Goes,
}

struct Remover<'o> {
    client: Client,
    kinds: Kinds,
    namespace: &'o str,
    names: &'o EngineNames,
    plan: &'o Uninstall,
}

impl Remover<'_> {
    async fn remove(&self, said: &mut dyn FnMut(&str)) -> Result<(), ConnectError> {
        let ids: Vec<ObjectId> =
            self.plan.objects.iter().filter_map(|object| ObjectId::of(object).ok()).collect();
        let (deployments, rest): (Vec<_>, Vec<_>) =
            ids.iter().partition(|id| id.gvk.kind == "Deployment");
        let mut fates = BTreeMap::new();
        for id in &deployments {
            fates.insert(id.name.as_str(), self.fate(id).await?);
        }
        let ending = self.ending_pods(&fates).await?;
        for namespace in self.leases().await? {
            self.wait_for_lease(&namespace, &ending).await?;
        }

        for id in deployments {
            self.delete(id, said).await?;
        }
        if !self.plan.dry_run {
            self.wait_for_pods().await?;
            if !ending.is_empty() {
                self.wait_for_lease(self.namespace, &[]).await?;
            }
            said("no leader remains");
        }
        for id in webhook_configurations(self.names) {
            self.delete(&id, said).await?;
        }
        let (last, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|id| {
            ["CustomResourceDefinition", "Namespace"].contains(&id.gvk.kind.as_str())
        });
        for id in rest.into_iter().rev() {
            self.delete(id, said).await?;
        }
        for id in last.into_iter().filter(|_| self.plan.all) {
            self.delete(id, said).await?;
        }
        Ok(())
    }

    /// What becomes of an object of the installation. One that is called the same and belongs to others stays.
    async fn fate(&self, id: &ObjectId) -> Result<Fate, ConnectError> {
        let found = match carry_out(&self.client, &self.kinds, &Call::Get(id.clone())).await {
            Ok(reply) => reply.object().unwrap_or(Value::Null),
            Err(error) if is_gone(&error) => return Ok(Fate::Gone),
            Err(error) => return Err(failed(&format!("cannot delete {id}"), &error)),
        };
        if let Some(why) = self.plan.kept.get(id) {
            return Ok(Fate::Stays(why.clone()));
        }
        // Who made a webhook configuration cannot be seen in it: its name and labels are Kyverno's.
        let is_ours = metadata::label(&found, "app.kubernetes.io/name") == Some("kiln")
            || webhook_configurations(self.names).any(|webhooks| webhooks == *id);
        if !is_ours {
            let why = "it does not carry the label app.kubernetes.io/name: kiln";
            return Ok(Fate::Stays(why.to_owned()));
        }
        Ok(Fate::Goes)
    }

    /// Deletes an object of the installation, or tries to.
    async fn delete(&self, id: &ObjectId, said: &mut dyn FnMut(&str)) -> Result<(), ConnectError> {
        match self.fate(id).await? {
            Fate::Gone => return Ok(()),
            Fate::Stays(why) => {
                said(&format!("leaves {id}: {why}"));
                return Ok(());
            }
            Fate::Goes => {}
        }
        let (done, word) = if self.plan.dry_run {
            (try_delete(&self.client, &self.kinds, id).await, "would delete")
        } else {
            let done = carry_out(&self.client, &self.kinds, &Call::delete(id.clone())).await;
            (done.map(|_| ()), "deleted")
        };
        match done {
            Ok(()) => said(&format!("{word} {id}")),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(failed(&format!("cannot delete {id}"), &error)),
        }
        Ok(())
    }

    /// The names of the pods that end when their Deployments go. One that would go on is a reason not to begin.
    async fn ending_pods(
        &self,
        deployments: &BTreeMap<&str, Fate>,
    ) -> Result<Vec<String>, ConnectError> {
        let begin = Instant::now();
        loop {
            let pods = self.pods().await?;
            let mut ending = Vec::new();
            let mut is_told = true;
            for pod in &pods {
                let deployment = self.deployment_of(pod);
                let goes_on = match deployment.and_then(|name| deployments.get_key_value(name)) {
                    Some((_, Fate::Goes)) => None,
                    Some((_, Fate::Gone)) if metadata::is_deleted(pod) => None,
                    Some((_, Fate::Gone)) if begin.elapsed() < COLLECTING => {
                        is_told = false;
                        None
                    }
                    Some((name, Fate::Stays(why))) => {
                        Some(format!("its Deployment {name} stays: {why}"))
                    }
                    _ => Some("belongs to no Deployment that is deleted".to_owned()),
                };
                let name = metadata::name(pod).unwrap_or_default();
                if let Some(why) = goes_on {
                    let namespace = metadata::namespace(pod).unwrap_or_default();
                    let message = format!("the pod {namespace}/{name} runs the engine, and {why}");
                    return Err(still_acting(&message));
                }
                ending.push(name.to_owned());
            }
            if is_told {
                return Ok(ending);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The name of the Deployment that a pod in our namespace belongs to.
    fn deployment_of<'p>(&self, pod: &'p Value) -> Option<&'p str> {
        if metadata::namespace(pod) != Some(self.namespace) {
            return None;
        }
        let owners = pod.get_path(["metadata", "ownerReferences"]).and_then(Value::as_list)?;
        let owner = owners.iter().find(|owner| owner.str_at(["kind"]) == Some("ReplicaSet"))?;
        // A ReplicaSet is named after its Deployment, and after the pods that it makes.
        let (name, _) = owner.str_at(["name"])?.rsplit_once('-')?;
        Some(name)
    }

    /// The pods of the engine that have not ended.
    async fn pods(&self) -> Result<Vec<Value>, ConnectError> {
        let call = Call::List {
            kind: Gvk::new("v1", "Pod"),
            // One that was installed elsewhere acts on the same cluster.
            namespace: None,
            selector: Selector::parse(PODS).unwrap_or_else(|_| Selector::everything()),
            limit: None,
            resume: None,
        };
        let listed = carry_out(&self.client, &self.kinds, &call).await;
        let listed =
            listed.map_err(|error| failed("cannot find out whether pods still run", &error))?;
        let mut pods = listed.listing().unwrap_or_default().objects;
        pods.retain(|pod| !matches!(pod.str_at(["status", "phase"]), Some("Succeeded" | "Failed")));
        Ok(pods)
    }

    /// Waits until the pods of the engine are gone.
    async fn wait_for_pods(&self) -> Result<(), ConnectError> {
        let begin = Instant::now();
        loop {
            let left = self.pods().await?.len();
            if left == 0 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(still_acting(&format!("{left} pods of the engine do not stop")));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The namespaces in which engines hold Leases.
    async fn leases(&self) -> Result<Vec<String>, ConnectError> {
        let ours = lease::id(self.namespace, self.names);
        let call = Call::List {
            kind: ours.gvk.clone(),
            namespace: None,
            selector: Selector::everything(),
            limit: None,
            resume: None,
        };
        let listed = carry_out(&self.client, &self.kinds, &call).await;
        let listed = listed
            .map_err(|error| failed("cannot find out whether a replica is the leader", &error))?;
        let found = listed.listing().unwrap_or_default().objects;
        let named = found.iter().filter(|lease| metadata::name(lease) == Some(ours.name.as_str()));
        Ok(named.filter_map(metadata::namespace).map(str::to_owned).collect())
    }

    /// Waits until the Lease runs out or is given back, or is held by a pod that will end. Another replica that renews it
    /// acts from elsewhere.
    async fn wait_for_lease(&self, namespace: &str, ending: &[String]) -> Result<(), ConnectError> {
        let call = Call::Get(lease::id(namespace, self.names));
        let mut seen: Option<(Value, Instant)> = None;
        let mut renewals = 0;
        loop {
            let spec = match carry_out(&self.client, &self.kinds, &call).await {
                Ok(reply) => reply.object().and_then(|object| object.get("spec").cloned()),
                Err(error) if error.reason == Reason::NotFound => None,
                Err(error) => {
                    return Err(failed("cannot find out whether a replica is the leader", &error));
                }
            };
            let Some(spec) = spec else { return Ok(()) };
            let holder = spec.str_at(["holderIdentity"]).unwrap_or_default().to_owned();
            // Holders are called after their host, which is called as its pod.
            let is_ending = |pod: &String| {
                holder.strip_prefix(pod.as_str()).is_some_and(|rest| rest.starts_with('-'))
            };
            if holder.is_empty() || ending.iter().any(is_ending) {
                return Ok(());
            }
            let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(10);
            let life = Duration::from_secs(u64::try_from(seconds).unwrap_or(10));
            match &seen {
                Some((known, since)) if *known == spec && since.elapsed() > life => return Ok(()),
                Some((known, _)) if *known == spec => {}
                known => {
                    renewals += u32::from(known.is_some());
                    seen = Some((spec, Instant::now()));
                }
            }
            if renewals > 3 {
                let who = format!(
                    "{holder} is the leader, with its Lease in {namespace}, outside this cluster"
                );
                return Err(still_acting(&who));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn is_gone(error: &ApiError) -> bool {
    matches!(error.reason, Reason::NotFound | Reason::UnknownKind)
}

fn stopped(message: String, hint: &str) -> ConnectError {
    ConnectError { message, hint: hint.to_owned() }
}

fn failed(what: &str, error: &ApiError) -> ConnectError {
    let hint = match error.reason {
        Reason::Forbidden => "uninstalling needs the same permissions as installing",
        _ => "run it again: what is already gone is skipped",
    };
    stopped(format!("{what}: {error}"), hint)
}

fn still_acting(who: &str) -> ConnectError {
    let message = format!(
        "{who}; it would go on reconciling, and with --all it would delete downstreams along with their policies"
    );
    stopped(message, "stop it first, then uninstall")
}
