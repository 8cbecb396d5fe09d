//! An example that tells what happens as it happens.

use std::time::{Duration, Instant};

use kiln_apiserver::ApiRequest;
use kiln_diagnostic::Diagnostic;
use kiln_sandbox::Sandbox;
use kiln_value::{Value, value};

use crate::exit::CommandFailure;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/default-deny";

/// The rule of the example.
pub(super) fn rule() -> Value {
    value!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "closed-namespaces"},
        "spec": {"rules": [{
            "name": "deny-by-default",
            "match": {"any": [{"resources": {"kinds": ["Namespace"]}}]},
            "exclude": {"any": [{"resources": {"namespaces": ["kube-*", "kyverno", "default"]}}]},
            "generate": {
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": "default-deny",
                "namespace": "{{request.object.metadata.name}}", "synchronize": true, "generateExisting": true,
                "data": {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
            },
        }]},
    })
}

/// Creates a namespace, watches the rule work, takes away what it made, watches it come back.
pub(super) async fn narrate(
    sandbox: &Sandbox,
    say: impl Fn(&str) -> Result<(), CommandFailure>,
) -> Result<(), CommandFailure> {
    say(
        "demo: ClusterPolicy closed-namespaces generates a deny-all NetworkPolicy for each new namespace",
    )?;
    let shop = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let is_there = sandbox.send(ApiRequest::new("GET", "/api/v1/namespaces/shop")).status == 200;
    if is_there {
        until(sandbox, "be there", |answer| answer.is_some()).await?;
        say("demo: the namespace shop already exists, with NetworkPolicy shop/default-deny")?;
    } else {
        sandbox
            .apply(&shop, "")
            .map_err(|why| Diagnostic::error(format!("the demo cannot go on: {why}")))?;
        say("demo: created namespace shop")?;
        let took = until(sandbox, "be made", |answer| answer.is_some()).await?;
        say(&format!(
            "demo: NetworkPolicy shop/default-deny was generated after {} ms",
            took.as_millis()
        ))?;
    }
    let uid =
        current(sandbox).and_then(|object| object.str_at(["metadata", "uid"]).map(str::to_owned));
    sandbox.send(ApiRequest::new("DELETE", POLICY));
    say("demo: deleted NetworkPolicy shop/default-deny")?;
    let took = until(sandbox, "come back", |answer| {
        answer.is_some_and(|object| object.str_at(["metadata", "uid"]).map(str::to_owned) != uid)
    })
    .await?;
    say(&format!("demo: Kiln created it again after {} ms", took.as_millis()))
}

fn current(sandbox: &Sandbox) -> Option<Value> {
    let response = sandbox.send(ApiRequest::new("GET", POLICY));
    (response.status == 200).then(|| response.value())
}

async fn until(
    sandbox: &Sandbox,
    what: &str,
    holds: impl Fn(Option<Value>) -> bool,
) -> Result<Duration, CommandFailure> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if holds(current(sandbox)) {
            return Ok(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let message = format!(
        "the demo waited {} seconds for NetworkPolicy shop/default-deny to {what}",
        PATIENCE.as_secs()
    );
    let hint = "run `kiln up --demo --log debug` to see what the engine does";
    Err(Diagnostic::error(message).hint(hint).into())
}
