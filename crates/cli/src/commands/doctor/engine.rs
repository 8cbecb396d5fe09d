//! Whether the cluster knows the kinds of rules, and whether somebody acts on them.

use std::time::{Duration, Instant};

use kiln_object::{Gvk, metadata};
use kiln_text::time::Time;
use kiln_value::Value;

use super::{Examination, address};

/// What is over by then was the beginning of an engine.
const PASSING: Duration = Duration::from_secs(2);
/// How often it is asked meanwhile.
const LOOK: Duration = Duration::from_millis(200);
const INSTALL: &str = "kiln install | kubectl apply --server-side -f -";

/// Whether the cluster knows policies at all.
pub(super) fn definitions(look: &mut Examination<'_>) -> bool {
    let about = "definitions";
    let missing: Vec<&str> = ["ClusterPolicy", "Policy", "UpdateRequest", "PolicyException"]
        .into_iter()
        .filter(|kind| look.reader.kinds().preferred("kyverno.io", kind).is_none())
        .collect();
    if missing.is_empty() {
        look.good(about, "the cluster knows policies, exceptions and UpdateRequests");
        return true;
    }
    look.bad(about, format!("the cluster does not know {}", missing.join(", ")), INSTALL);
    look.reader.kinds().preferred("kyverno.io", "ClusterPolicy").is_some()
}

/// Whether somebody holds the Lease, and has renewed it.
pub(super) fn lease(look: &mut Examination<'_>) {
    let about = "controller";
    let gvk = Gvk::new("coordination.k8s.io/v1", "Lease");
    let Some(lease) = look.object(about, gvk, "kiln-controller") else {
        let hint = format!(
            "start `kiln run`, or look at its pods: kubectl get pods -n {}",
            look.settings.namespace
        );
        return look.bad(about, "nobody holds the Lease kiln-controller", &hint);
    };
    let text = |field: &str| lease.str_at(["spec", field]).unwrap_or_default().to_owned();
    let life =
        lease.get_path(["spec", "leaseDurationSeconds"]).and_then(Value::as_i64).unwrap_or(15);
    let renewed = Time::parse_rfc3339(&text("renewTime")).ok().map(|time| time.unix());
    let (holder, age) = (text("holderIdentity"), renewed.map(|time| look.now - time));
    match age {
        _ if holder.is_empty() => {
            look.bad(about, "the Lease is held by nobody", "start `kiln run`");
        }
        Some(age) if age <= life * 2 => {
            look.good(about, format!("{holder} acts, and renewed the Lease {age} seconds ago"));
        }
        Some(age) => look.bad(
            about,
            format!("{holder} held the Lease, and renewed it {age} seconds ago"),
            "it has ended or cannot reach the API server: look at its logs",
        ),
        None => {
            look.doubtful(about, format!("the Lease of {holder} says no time"), "look at its logs");
        }
    }
}

/// What the engine says of its watches, webhooks and server.
pub(super) fn health(look: &mut Examination<'_>) {
    let about = "watches";
    let address = address::of_webhooks(look.reader);
    let ask = || match &address {
        Some(address) => address.health(),
        None => {
            let said = look.reader.health(&look.settings.namespace, look.service);
            said.map_err(|error| error.to_string())
        }
    };
    let began = Instant::now();
    let mut said = ask();
    while said.as_ref().is_ok_and(|said| said.trim() != "ok") && began.elapsed() < PASSING {
        std::thread::sleep(LOOK);
        said = ask();
    }
    let place = address.map_or_else(
        || "through its Service".to_owned(),
        |address| format!("at {}", address.origin),
    );
    match said {
        Ok(said) if said.trim() == "ok" => look.good(about, "the engine says that all is well"),
        Ok(said) => {
            for line in said.lines().filter(|line| !line.trim().is_empty()) {
                let hint = "look at the logs of the engine";
                match line.ends_with("it has not read everything yet") {
                    // It may have begun a moment ago.
                    true => look.doubtful(about, line, hint),
                    false => look.bad(about, line, hint),
                }
            }
        }
        Err(error) => look.doubtful(
            about,
            format!("the engine cannot be asked {place}: {error}"),
            "GET /health at the address that it listens on says which watches are stale",
        ),
    }
}

/// Engines that act on the same rules.
pub(super) fn others(look: &mut Examination<'_>) {
    let about = "other engines";
    let deployments = look.all(about, &Gvk::new("apps/v1", "Deployment"), "");
    let mut found = 0;
    for (name, engine) in deployments.iter().filter_map(other_engine) {
        found += 1;
        look.bad(
            about,
            format!("{engine} runs too: Deployment {name}"),
            "scale it to 0: two engines would both act on the same rules",
        );
    }
    if found == 0 {
        look.good(about, "neither Kyverno nor KubeMod runs");
    }
}

/// The last name of an image, without registry, tag and digest: mirrors keep it.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split(':').next().unwrap_or(name)
}

/// The name of a Deployment that runs another engine, and of that engine.
pub(in crate::commands) fn other_engine(deployment: &Value) -> Option<(String, &'static str)> {
    let replicas = deployment.get_path(["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(1);
    let containers = deployment.get_path(["spec", "template", "spec", "containers"])?.as_list()?;
    let runs = |wanted: &str| {
        let mut images = containers.iter().filter_map(|container| container.str_at(["image"]));
        images.any(|image| repository(image) == wanted)
    };
    let engine = match () {
        () if replicas == 0 => return None,
        () if runs("kyverno") || runs("background-controller") => "Kyverno",
        () if runs("kubemod") => "KubeMod",
        () => return None,
    };
    let namespace = metadata::namespace(deployment).unwrap_or_default();
    Some((format!("{namespace}/{}", metadata::name(deployment)?), engine))
}
