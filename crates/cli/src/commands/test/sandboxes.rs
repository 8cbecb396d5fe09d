//! Clusters for tests that run programs of the machine: a sandbox on loopback, in real time, with the engine at work.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_apiserver::{ApiRequest, Authorization};
use kiln_cleanup::TTL_LABEL;
use kiln_diagnostic::Diagnostic;
use kiln_object::{EngineNames, Gvk, metadata};
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_suites::chainsaw::{
    ApiResponse, ProgramOutput, TestCluster, TestClusters, TestProgram, Waited,
};
use kiln_value::{Value, json};
use kiln_yaml::Document;
use tokio::runtime::Runtime;

use super::programs;
use crate::commands::up::config;
use crate::commands::up::engine::{self, Reached, SandboxEngine, View};
use crate::commands::up::temp_dir::{PrivateDir, private_dir};
use crate::exit::CommandFailure;

/// How often it is looked whether something happened.
const LOOK: Duration = Duration::from_millis(5);
/// Nothing happens for so long when everything has happened: longer than the engine puts anything off for, also on a busy
/// machine. Only what fails waits for it.
const QUIET: Duration = Duration::from_secs(5);
/// How long the engine may take to register.
const PATIENCE: Duration = Duration::from_secs(10);

/// API groups of policies.
const OF_POLICIES: [&str; 4] =
    ["/apis/kyverno.io/", "/apis/policies.kyverno.io/", "/apis/kiln.dev/", "/apis/api.kubemod.io/"];

/// Sandboxes, as many as there are tests.
pub(super) struct Sandboxes<'d> {
    runtime: Runtime,
    /// Definitions that are there before the first step.
    definitions: &'d [Document],
}

impl<'d> Sandboxes<'d> {
    pub(super) fn new(definitions: &'d [Document]) -> Result<Self, Diagnostic> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Diagnostic::error(format!("cannot start: {error}")))?;
        Ok(Sandboxes { runtime, definitions })
    }
}

impl TestClusters for Sandboxes<'_> {
    fn cluster(&self) -> Result<Box<dyn TestCluster + '_>, Diagnostic> {
        let directory = private_dir()?;
        let begun = self.runtime.block_on(async {
            let options =
                SandboxOptions { authorization: Authorization::Rbac, ..SandboxOptions::default() };
            let sandbox = Sandbox::start(&options)
                .await
                .map_err(|problem| Diagnostic::error(problem.message).hint(problem.hint))?;
            let kubeconfig = directory.path().join(programs::KUBECONFIG);
            config::write(&kubeconfig, sandbox.kubeconfig())?;
            for definition in self.definitions {
                sandbox.apply(definition.value(), "kiln").map_err(|why| {
                    Diagnostic::error(format!("the sandbox refuses the definition: {why}"))
                        .at(definition.place())
                })?;
            }
            // Kyverno: its own runs of such tests take exceptions from everywhere.
            let (engine, shown) =
                SandboxEngine::begin(&sandbox, &kubeconfig, Some("*"), Reached::ByService)?;
            let view = engine::connected(shown).await?;
            view.at_work(&sandbox).await;
            checks_policies(&sandbox).await;
            Ok::<_, CommandFailure>((sandbox, engine, view))
        });
        let (sandbox, engine, view) = begun.map_err(|failure| match failure {
            CommandFailure::BadInput(problems) => {
                problems.into_iter().next().unwrap_or_else(|| Diagnostic::error("cannot start"))
            }
            other => Diagnostic::error(format!("the sandbox does not start: {other:?}")),
        })?;
        let (runtime, engine) = (&self.runtime, Some(engine));
        let sandbox = Arc::new(sandbox);
        let has_ttl = Cell::new(false);
        Ok(Box::new(Cluster { runtime, sandbox, engine, view, has_ttl, directory }))
    }
}

/// Waits until the engine is asked about policies: the first step may have one that is to be refused.
async fn checks_policies(sandbox: &Sandbox) {
    let began = Instant::now();
    let is_registered = |kind: &str, name: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        sandbox.send(ApiRequest::new("GET", &path)).status == 200
    };
    let [_, _, checks, signs, _] = EngineNames::default().webhook_configurations();
    while !(is_registered(checks.0, &checks.1) && is_registered(signs.0, &signs.1))
        && began.elapsed() < PATIENCE
    {
        tokio::time::sleep(LOOK).await;
    }
}

/// The kinds of a CustomResourceDefinition; none for another object.
fn defined_kinds(object: &Value) -> Vec<Gvk> {
    let text = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default();
    if text(&["kind"]) != "CustomResourceDefinition" || metadata::is_deleted(object) {
        return Vec::new();
    }
    let (group, kind) = (text(&["spec", "group"]), text(&["spec", "names", "kind"]));
    let versions = object.get_path(["spec", "versions"]).and_then(Value::as_list);
    let versions = versions.into_iter().flat_map(|versions| versions.iter());
    let served = versions.filter(|version| version.get("served") == Some(&Value::from(true)));
    let version = |version: &Value| version.str_at(["name"]).map(str::to_owned);
    served
        .filter_map(version)
        .map(|version| Gvk::new(&format!("{group}/{version}"), kind))
        .collect()
}

/// Whether an answer is about a policy.
fn is_policy(answer: &ApiResponse) -> bool {
    let kind = Gvk::of(&answer.value);
    kind.is_some_and(|kind| {
        use kiln_runtime::policy_store::{cleanup_kinds, policy_kinds};
        let mut known = policy_kinds(true).into_iter().chain(cleanup_kinds(true));
        known.any(|known| known.group == kind.group && known.kind == kind.kind)
    })
}

/// A sandbox with the engine at work.
struct Cluster<'r> {
    runtime: &'r Runtime,
    sandbox: Arc<Sandbox>,
    engine: Option<SandboxEngine>,
    view: View,
    /// Whether something was written that is to be deleted when it is old enough.
    has_ttl: Cell<bool>,
    /// Holds the kubeconfig that programs use.
    directory: PrivateDir,
}

impl TestCluster for Cluster<'_> {
    fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> ApiResponse {
        let mut request = ApiRequest::new(method, path);
        if let Some(body) = body {
            self.has_ttl.set(self.has_ttl.get() || metadata::label(body, TTL_LABEL).is_some());
            request = request.with_body(content_type, json::to_string(body));
        }
        let response = self.sandbox.send(request);
        if method != "GET" {
            // What controllers do about it is done before the next step: roles that are put together, say.
            self.sandbox.server().settle();
            if OF_POLICIES.iter().any(|group| path.starts_with(group)) {
                // The next step finds the policy at work; what is wrong with it, its status says.
                self.runtime.block_on(self.view.at_work(&self.sandbox));
            }
        }
        let answer = ApiResponse { status: response.status, value: response.value() };
        if method != "GET" && answer.status < 300 {
            for kind in defined_kinds(&answer.value) {
                self.runtime.block_on(self.view.knows(&self.sandbox, &kind));
            }
        }
        if matches!(method, "POST" | "PUT" | "PATCH") && answer.status < 300 && is_policy(&answer) {
            // A policy that was stored counts for the next step.
            self.runtime.block_on(self.view.at_work(&self.sandbox));
        }
        answer
    }

    fn revision(&self) -> u64 {
        self.sandbox.revision()
    }

    fn wait(&self, mut revision: u64, at_most: Duration) -> Waited {
        let began = Instant::now();
        let mut still = Instant::now();
        loop {
            if began.elapsed() >= at_most {
                return Waited { revision: None, took: began.elapsed() };
            }
            let now = self.sandbox.revision();
            if now == revision + 1 && self.lease_version() == now {
                revision = now;
            }
            if now > revision {
                return Waited { revision: Some(now), took: began.elapsed() };
            }
            if self.view.is_busy() || self.view.deletes_soon(self.has_ttl.get()) {
                still = Instant::now();
            } else if still.elapsed() >= QUIET {
                return Waited { revision: None, took: began.elapsed() };
            }
            std::thread::sleep(LOOK);
        }
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn run_program(&self, program: &TestProgram) -> Option<ProgramOutput> {
        Some(programs::run(program, self.directory.path()))
    }
}

impl Cluster<'_> {
    /// The revision at which the engine last said that it lives, which says nothing about rules.
    fn lease_version(&self) -> u64 {
        let lease = kiln_runtime::lease_id("kyverno", &EngineNames::default());
        let (version, namespace, name) = (lease.gvk.api_version(), lease.namespace, lease.name);
        let path = format!("/apis/{version}/namespaces/{namespace}/leases/{name}");
        let found = self.send("GET", &path, "", None).value;
        let version = found.str_at(["metadata", "resourceVersion"]);
        version.and_then(|version| version.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.runtime.block_on(async {
            if let Some(engine) = self.engine.take() {
                engine.end().await;
            }
            self.sandbox.end().await;
        });
    }
}
