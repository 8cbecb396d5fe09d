//! One control plane with one engine, cleaned between tests.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::{ControlPlane, Watched, free_port};

use super::trial::{self, TrialOutcome};
use super::{On, Settings, must};

/// `kubectl evict`, which one test calls.
const EVICT: &str = r#"#!/bin/sh
# usage: kubectl evict POD [-n NAMESPACE]
namespace=default
while [ $# -gt 0 ]; do
  case "$1" in
    -n | --namespace) namespace=$2; shift 2 ;;
    -*) shift ;;
    *) pod=$1; shift ;;
  esac
done
echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$pod\",\"namespace\":\"$namespace\"}}" |
  kubectl create --raw "/api/v1/namespaces/$namespace/pods/$pod/eviction" -f -
"#;

/// The Node that tests about nodes expect by name. Nothing runs on it.
const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: kind-control-plane, labels: {foo: empty}}
spec: {taints: [{key: kiln.dev/no-pods, effect: NoSchedule}]}
";

/// A kind of Kyverno's own bookkeeping, which tests ask for to see that there are none.
const EPHEMERAL_REPORTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ephemeralreports.reports.kyverno.io}
spec:
  group: reports.kyverno.io
  names: {kind: EphemeralReport, listKind: EphemeralReportList, plural: ephemeralreports, singular: ephemeralreport, shortNames: [ephr]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A policy that an engine refuses.
const REFUSED: &str = "
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: refused}
spec: {schedule: never, match: {any: [{resources: {kinds: [Pod]}}]}}
";

/// The port that webhooks of a Service are called at.
const SERVICE_PORT: u16 = 443;
/// Where the API server finds the engine.
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: kyverno-svc, namespace: kyverno}
spec: {type: ExternalName, externalName: ADDRESS}
";

/// What every cluster of the peers' runs has outside of tests: some of them count on a Deployment that breaks rules.
const WORKLOAD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 0
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec: {containers: [{name: coredns, image: registry.k8s.io/coredns/coredns}]}
";

/// Kinds of the engine, by scope.
const CLUSTER_KINDS: &str = "clusterpolicies.kyverno.io,generatingpolicies.policies.kyverno.io,\
    mutatingpolicies.policies.kyverno.io,validatingpolicies.policies.kyverno.io,deletingpolicies.policies.kyverno.io,\
    globalcontextentries.kyverno.io,clustercleanuppolicies.kyverno.io,\
    clusterpolicyreports.wgpolicyk8s.io";
const NAMESPACED_KINDS: &str = "policies.kyverno.io,namespacedgeneratingpolicies.policies.kyverno.io,\
    namespacedmutatingpolicies.policies.kyverno.io,namespacedvalidatingpolicies.policies.kyverno.io,\
    namespaceddeletingpolicies.policies.kyverno.io,cleanuppolicies.kyverno.io,policyexceptions.kyverno.io,\
    policyexceptions.policies.kyverno.io,modrules.api.kubemod.io,updaterequests.kyverno.io,\
    policyreports.wgpolicyk8s.io,events";
/// Kinds that tests and rules leave in the namespace `default`.
const LEFT_IN_DEFAULT: &str = "deployments,daemonsets,statefulsets,replicasets,jobs,cronjobs,pods,configmaps,secrets,services,\
     ingresses,networkpolicies,resourcequotas,limitranges,roles,rolebindings,poddisruptionbudgets,persistentvolumeclaims";
/// What the API server itself keeps in that namespace.
const KEPT_IN_DEFAULT: &str = "metadata.name!=kubernetes";
/// Kinds outside namespaces whose new objects go.
const OUTSIDE: &str = "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,persistentvolumes,\
     validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses,storageclasses,ingressclasses";

pub(super) struct Shard {
    number: usize,
    engine: Option<Watched>,
    engine_log: PathBuf,
    cluster: ControlPlane,
    /// What was there before the first test.
    before: BTreeSet<String>,
}

impl Shard {
    pub(super) fn start(number: usize, settings: &Settings) -> Result<Self> {
        let cluster = match settings.on {
            On::ControlPlane => ControlPlane::start()?,
            On::Sandbox => ControlPlane::sandbox(&settings.kiln)?,
        };
        let engine_log = cluster.directory().join("engine.log");
        let mut shard =
            Shard { number, engine: None, engine_log, cluster, before: BTreeSet::new() };
        shard.install(settings)?;
        shard.before = shard.outside()?;
        if !settings.engine_off {
            shard.start_engine(settings)?;
        }
        Ok(shard)
    }

    /// Programs that tests call, and what the engine needs in the cluster.
    fn install(&self, settings: &Settings) -> Result<()> {
        let bin = self.cluster.directory().join("bin");
        fs::create_dir_all(&bin)?;
        symlink(self.cluster.kubectl_path(), bin.join("kubectl"))?;
        fs::write(bin.join("kubectl-evict"), EVICT)?;
        fs::set_permissions(bin.join("kubectl-evict"), fs::Permissions::from_mode(0o755))?;
        // The peers' own runs grant what their standard configuration lists.
        let manifests = must(Command::new(&settings.kiln).args([
            "install",
            "--no-workload",
            "--grant=standard",
            "--exceptions=*",
        ]))?;
        self.cluster.apply(&manifests)?;
        self.cluster.apply(EPHEMERAL_REPORTS)?;
        self.cluster.apply(NODE)?;
        self.cluster.apply(WORKLOAD)?;
        let status = r#"{"status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}"#;
        self.cluster.kubectl(&[
            "patch",
            "node",
            "kind-control-plane",
            "--subresource=status",
            "--type=merge",
            "--patch",
            status,
        ])?;
        Ok(())
    }

    /// Starts the engine as the account of its pod: it may act as the two accounts of Kyverno, and nothing else.
    fn start_engine(&mut self, settings: &Settings) -> Result<()> {
        let kubeconfig = self.cluster.kubeconfig_of_account("kyverno", "kiln")?;
        let address = free_address(self.number)?;
        let place = address.to_string();
        let reached = if address.port() == SERVICE_PORT {
            // API servers call a Service of this type at the name that it gives, at the webhook's port.
            self.cluster.apply(&SERVICE.replace("ADDRESS", &address.ip().to_string()))?;
            "--service=kyverno-svc".to_owned()
        } else {
            eprintln!(
                "shard {}: tests that look at the Service of webhooks fail, because port {SERVICE_PORT} \
                       cannot be had",
                self.number
            );
            format!("--webhook-url=https://{place}")
        };
        let mut command = Command::new(&settings.kiln);
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).args([
            "--as-admission=system:serviceaccount:kyverno:kyverno-admission-controller",
            "--as-controller=system:serviceaccount:kyverno:kyverno-background-controller",
            "--as-cleanup=system:serviceaccount:kyverno:kyverno-cleanup-controller",
            &format!("--listen={place}"),
            &reached,
            &format!("--log={}", settings.log),
        ]);
        let engine = Watched::spawn(&command, &self.engine_log)?;
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() || !self.refuses_policies() {
            if engine.has_ended() || begin.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(&self.engine_log).unwrap_or_default();
                bail!("the engine does not start: {}", log.trim());
            }
            sleep(Duration::from_millis(100));
        }
        self.engine = Some(engine);
        Ok(())
    }

    /// Whether the API server asks the engine about policies: the first test may have one that is to be refused.
    fn refuses_policies(&self) -> bool {
        let args = ["create", "--dry-run=server", "--filename=-"];
        let said = self.cluster.kubectl_with_input(&args, REFUSED);
        said.is_err_and(|why| why.to_string().contains("denied the request"))
    }

    /// Runs one test and cleans up after it.
    pub(super) fn try_test(&mut self, settings: &Settings, test: &str) -> Result<TrialOutcome> {
        let log_before = self.log_length();
        let mut outcome = trial::run(settings, &self.cluster, test, self.number)?;
        if self.engine.as_ref().is_some_and(Watched::has_ended) {
            outcome.fail("the engine", "it has ended by itself");
        }
        if !outcome.passed && !outcome.switched_off {
            let directory = super::join(&settings.results, test);
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("chainsaw.log"), &outcome.output)?;
            let log = fs::read(&self.engine_log).unwrap_or_default();
            fs::write(directory.join("engine.log"), log.get(log_before..).unwrap_or_default())?;
        }
        if let Err(problem) = self.clean() {
            // A cluster that cannot be cleaned would spoil the tests that follow.
            eprintln!("shard {}: a new control plane, because: {problem:#}", self.number);
            *self = Shard::start(self.number, settings).context("cannot start a shard again")?;
        } else if self.engine.as_ref().is_some_and(Watched::has_ended) {
            self.start_engine(settings)?;
        }
        Ok(outcome)
    }

    fn log_length(&self) -> usize {
        fs::metadata(&self.engine_log).map_or(0, |file| usize::try_from(file.len()).unwrap_or(0))
    }

    /// Removes what a test and its rules left behind. The policies go first, so that nothing comes back.
    fn clean(&self) -> Result<()> {
        let delete = |args: &[&str]| {
            let mut all = vec!["delete", "--ignore-not-found", "--wait=false"];
            all.extend(args);
            self.cluster.kubectl(&all).map(|_| ())
        };
        delete(&[CLUSTER_KINDS, "--all"])?;
        delete(&[NAMESPACED_KINDS, "--all", "--all-namespaces"])?;
        let now = self.outside()?;
        let new: Vec<&str> = now.difference(&self.before).map(String::as_str).collect();
        if !new.is_empty() {
            delete(&new)?;
        }
        let selected = format!("--field-selector={KEPT_IN_DEFAULT}");
        delete(&[LEFT_IN_DEFAULT, &selected, "--namespace=default"])?;
        let begin = Instant::now();
        while self.outside()?.difference(&self.before).next().is_some() {
            if begin.elapsed() > Duration::from_secs(60) {
                bail!(
                    "after a minute there are still {:?}",
                    self.outside()?.difference(&self.before)
                );
            }
            sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    fn outside(&self) -> Result<BTreeSet<String>> {
        let names = self.cluster.kubectl(&["get", OUTSIDE, "--output=name"])?;
        Ok(names.lines().map(str::to_owned).collect())
    }
}

/// An address on loopback for one engine: at the port of webhooks if that may be had, otherwise at any.
fn free_address(shard: usize) -> Result<SocketAddr> {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let own = |last: u8| SocketAddr::from((Ipv4Addr::new(127, high, low, last), SERVICE_PORT));
    // A shard that is started again may have its last address still.
    let mut own = (2..=254).skip(shard % 64).step_by(64).map(own);
    let free = own.find(|address| TcpListener::bind(address).is_ok());
    match free {
        Some(address) => Ok(address),
        None => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?))),
    }
}
