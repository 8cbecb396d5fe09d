//! Takes an installation off a cluster, in the order that leaves what rules made.
//!
//! Whoever acts ends first: while a controller runs, a policy that goes takes along what it made. When nobody acts any
//! more, webhooks, rights and definitions can go, and what rules made stays, with its labels.

use std::time::{Duration, Instant};

use kiln_admission::webhooks::CONFIGURATIONS;
use kiln_cluster::{ApiError, Call, Reason};
use kiln_object::{Gvk, Kinds, ObjectId, Selector};
use kiln_value::Value;
use tokio::runtime::Builder;

use crate::calls::carry_out;
use crate::client::{Client, ConnectError};
use crate::discovery::Discovery;
use crate::lease;
use crate::options::Options;

/// How long whoever acts may take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is to be taken off.
#[derive(Clone, Debug)]
pub struct Uninstall {
    /// What was installed, in the order in which it was.
    pub objects: Vec<Value>,
    /// Definitions go too, and with them all policies; and the namespace, with records and keys.
    pub all: bool,
    /// Only say what would go.
    pub dry_run: bool,
}

/// Takes an installation off a cluster, and says what it does as it does it.
///
/// # Errors
/// When the cluster cannot be reached, a right is missing, or somebody still acts.
pub fn uninstall(
    options: &Options,
    plan: &Uninstall,
    said: &mut dyn FnMut(&str),
) -> Result<(), ConnectError> {
    let failed = |message: String, hint: &str| ConnectError { message, hint: hint.to_owned() };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot begin: {error}"), "is the system out of files?"))?;
    runtime.block_on(async {
        let client = Client::connect(options, None).await?;
        let kinds = Discovery::default().refresh(&client).await.map_err(|error| {
            let message =
                format!("{} does not say which kinds it serves: {error}", client.server());
            failed(message, "check that the cluster is up and the credentials are valid")
        })?;
        let remover = Remover {
            client,
            kinds: kinds.unwrap_or_else(Kinds::builtin),
            namespace: &options.namespace,
            dry_run: plan.dry_run,
        };
        remover.remove(plan, said).await.map_err(|(what, error)| {
            let hint = match error.reason {
                Reason::Forbidden => "uninstalling takes the rights of whoever installed",
                _ => "run it again: what is gone already is passed over",
            };
            failed(format!("{what}: {error}"), hint)
        })
    })
}

struct Remover<'o> {
    client: Client,
    kinds: Kinds,
    namespace: &'o str,
    dry_run: bool,
}

type Failed = (String, ApiError);

impl Remover<'_> {
    async fn remove(&self, plan: &Uninstall, said: &mut dyn FnMut(&str)) -> Result<(), Failed> {
        let ids: Vec<ObjectId> =
            plan.objects.iter().filter_map(|object| ObjectId::of(object).ok()).collect();
        let of = |kind: &'static str| move |id: &&ObjectId| id.gvk.kind == kind;
        // Whoever acts ends first.
        for id in ids.iter().filter(of("Deployment")) {
            self.delete(id, said).await?;
        }
        if !self.dry_run {
            self.wait_for_pods().await?;
            self.wait_for_lease().await?;
            said("nobody acts any more");
        }
        for (kind, name) in CONFIGURATIONS {
            let kind = Gvk::new("admissionregistration.k8s.io/v1", kind);
            self.delete(&ObjectId::new(kind, "", name), said).await?;
        }
        let last = |id: &&ObjectId| {
            ["CustomResourceDefinition", "Namespace"].contains(&id.gvk.kind.as_str())
        };
        let rest = ids.iter().rev().filter(|id| !last(id) && id.gvk.kind != "Deployment");
        for id in rest {
            self.delete(id, said).await?;
        }
        for id in ids.iter().filter(last).filter(|_| plan.all) {
            self.delete(id, said).await?;
        }
        Ok(())
    }

    async fn delete(&self, id: &ObjectId, said: &mut dyn FnMut(&str)) -> Result<(), Failed> {
        let call = if self.dry_run { Call::Get(id.clone()) } else { Call::delete(id.clone()) };
        match carry_out(&self.client, &self.kinds, &call).await {
            Ok(_) if self.dry_run => said(&format!("would delete {id}")),
            Ok(_) => said(&format!("deleted {id}")),
            Err(error) if matches!(error.reason, Reason::NotFound | Reason::UnknownKind) => {}
            Err(error) => return Err((format!("cannot delete {id}"), error)),
        }
        Ok(())
    }

    /// Waits until the pods of the engine are gone.
    async fn wait_for_pods(&self) -> Result<(), Failed> {
        let labels = "app.kubernetes.io/name=kiln,app.kubernetes.io/component=engine";
        let selector = Selector::parse(labels).unwrap_or_else(|_| Selector::everything());
        let call = Call::List {
            kind: Gvk::new("v1", "Pod"),
            namespace: Some(self.namespace.into()),
            selector,
            limit: None,
            resume: None,
        };
        let begin = Instant::now();
        loop {
            let listed = carry_out(&self.client, &self.kinds, &call).await;
            let listed =
                listed.map_err(|error| ("cannot see whether pods still run".to_owned(), error))?;
            let left = listed.listing().unwrap_or_default().objects.len();
            if left == 0 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let message = format!("{left} pods of the engine are still there");
                return Err(still_acting(message));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until the Lease runs out, or is given back. Somebody who renews it acts from elsewhere.
    async fn wait_for_lease(&self) -> Result<(), Failed> {
        let call = Call::Get(lease::id(self.namespace));
        let mut seen: Option<(Value, Instant)> = None;
        let mut renewals = 0;
        loop {
            let spec = match carry_out(&self.client, &self.kinds, &call).await {
                Ok(reply) => reply.object().and_then(|object| object.get("spec").cloned()),
                Err(error) if error.reason == Reason::NotFound => None,
                Err(error) => return Err(("cannot see whether somebody acts".to_owned(), error)),
            };
            let Some(spec) = spec else { return Ok(()) };
            let holder = spec.str_at(["holderIdentity"]).unwrap_or_default().to_owned();
            if holder.is_empty() {
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
                let message = format!("{holder} acts on the cluster from elsewhere; end it first");
                return Err(still_acting(message));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn still_acting(message: String) -> Failed {
    let error = ApiError::new(Reason::Conflict, message);
    ("what rules made would go with their policies".to_owned(), error)
}
