//! `cargo xtask chart`: the Helm chart with the real Helm, from lint to uninstall.
//!
//! On a real control plane, whose nodes [`nodes`] plays, a release of the chart is installed over what an earlier version
//! left, upgraded, rolled back, tested, uninstalled and installed again, while a client keeps sending requests. Nothing
//! that rules generated may be deleted or get a new UID, and no request may fail. What was said and done is
//! written to `target/chart/transcript.txt`.

mod nodes;
mod schemas;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kiln_testkit::control_plane::{ControlPlane, helm, kubeconform};

use self::nodes::{NAMESPACE, Nodes};
use crate::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Parts to run; all if left out
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,

    /// The kiln program; target/debug/kiln if left out
    #[arg(long, value_name = "FILE")]
    kiln: Option<PathBuf>,

    /// The kiln program of the version that is upgraded from; the same one if left out
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// The major version of Helm
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=4))]
    helm: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Lint the chart, and hold what Helm renders equal to what `kiln install` prints
    Lint,
    /// Validate what it renders against the API of several Kubernetes versions
    Validate,
    /// Install into `kiln up`, upgrade, roll back, uninstall
    Sandbox,
    /// Upgrade an earlier version by manifests, on a real control plane
    Manifests,
    /// Upgrade an earlier version by the chart, on a real control plane, and everything after that
    Release,
}

const PARTS: [Part; 5] =
    [Part::Lint, Part::Validate, Part::Sandbox, Part::Manifests, Part::Release];

/// The images of the two versions.
const OLD: &str = "registry.example.com/kiln:old";
const NEW: &str = "registry.example.com/kiln:new";

pub(crate) fn run(args: &Args) -> Result<bool> {
    let program = args.kiln.clone().unwrap_or_else(|| root().join("target/debug/kiln"));
    ensure!(program.is_file(), "build {} first: cargo build --workspace", program.display());
    let directory = root().join("target/chart");
    fs::create_dir_all(&directory)?;
    let helm = helm(args.helm)?;
    let from = args.from.clone().unwrap_or_else(|| program.clone());
    // Helm 4 applies on the server's side: fields that kubectl applied before are to be taken over.
    let force: &[_] = if args.helm == 3 { &[] } else { &["--force-conflicts"] };
    let mut story =
        Story { program, from, helm, force, directory: directory.clone(), told: String::new() };
    let parts = if args.parts.is_empty() { PARTS.to_vec() } else { args.parts.clone() };
    let mut outcome = Ok(());
    for part in parts {
        story.say(&format!("\n## {part:?}\n"));
        outcome = match part {
            Part::Lint => story.lint(),
            Part::Validate => story.validate(),
            Part::Sandbox => story.sandbox(),
            Part::Manifests => story.manifests(),
            Part::Release => story.release(),
        };
        if let Err(error) = &outcome {
            story.say(&format!("FAILED: {error:#}"));
            break;
        }
    }
    fs::write(directory.join("transcript.txt"), &story.told)?;
    eprintln!("\nwritten to {}", directory.join("transcript.txt").display());
    outcome.map(|()| true)
}

struct Story {
    program: PathBuf,
    from: PathBuf,
    helm: PathBuf,
    /// What lets Helm take over fields of what it did not install.
    force: &'static [&'static str],
    directory: PathBuf,
    told: String,
}

/// The files of values that the chart is tried with.
fn tables() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in fs::read_dir(root().join("charts/kiln/ci"))? {
        files.push(file?.path());
    }
    files.sort();
    Ok(files)
}

fn chart() -> PathBuf {
    root().join("charts/kiln")
}

impl Story {
    #[expect(clippy::print_stdout, reason = "the story is this command's output")]
    fn say(&mut self, line: &str) {
        println!("{line}");
        let _ = writeln!(self.told, "{line}");
    }

    /// Runs a command and shows it with what it prints; it has to succeed.
    fn step(&mut self, shown: &str, command: &mut Command) -> Result<String> {
        self.say(&format!("$ {shown}"));
        let output = command.stdin(Stdio::null()).output().with_context(|| shown.to_owned())?;
        let printed = printed(&output);
        for line in printed.lines().take(60) {
            self.say(line);
        }
        ensure!(output.status.success(), "{shown}: {}\n{printed}", output.status);
        Ok(printed)
    }

    fn helm(&mut self, cluster: Option<&Path>, args: &[&str]) -> Result<String> {
        let shown =
            args.iter().map(|arg| arg.replace(&chart().display().to_string(), "charts/kiln"));
        let shown = format!("helm {}", shown.collect::<Vec<_>>().join(" "));
        let mut command = Command::new(&self.helm);
        command.args(args);
        for place in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{place}_HOME"), self.directory.join("helm"));
        }
        command.env("KUBECONFIG", cluster.unwrap_or(Path::new("/dev/null")));
        self.step(&shown, &mut command)
    }

    /// What Helm renders with a file of values.
    fn rendered(&self, values: &Path) -> Result<String> {
        let output = Command::new(&self.helm)
            .args(["template", "kiln"])
            .arg(chart())
            .args(["--namespace", NAMESPACE, "--no-hooks", "--skip-tests"])
            .args(["--kube-version", schemas::NEWEST, "--values"])
            .arg(values)
            .env("HELM_CACHE_HOME", self.directory.join("helm"))
            .output()?;
        ensure!(output.status.success(), "helm template: {}", printed(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What `kiln install` prints with the same file.
    fn installed(&self, values: &Path) -> Result<String> {
        let output =
            Command::new(&self.program).arg("install").arg("--values").arg(values).output()?;
        ensure!(output.status.success(), "kiln install: {}", printed(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn lint(&mut self) -> Result<()> {
        let chart = chart().display().to_string();
        for values in tables()? {
            let file = values.display().to_string();
            self.helm(None, &["lint", "--strict", "--quiet", &chart, "--values", &file])?;
            let name = values.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let (helm, kiln) = (self.rendered(&values)?, self.installed(&values)?);
            let (helm, kiln) = (schemas::by_name(&helm, true)?, schemas::by_name(&kiln, false)?);
            for (id, object) in &kiln {
                let rendered =
                    helm.get(id).with_context(|| format!("{name}: Helm renders no {id}"))?;
                ensure!(rendered == object, "{name}: {id} differs:\n{rendered:#}\n{object:#}");
            }
            ensure!(helm.len() == kiln.len(), "{name}: Helm renders more than kiln install prints");
            self.say(&format!(
                "{name}: helm template and kiln install agree on {} objects",
                kiln.len()
            ));
        }
        for (what, args) in [
            ("without an image", vec![]),
            ("with a value that does not exist", vec!["--set", "image.repository=a,replica=3"]),
            ("with a value of another type", vec!["--set", "image.repository=a,replicas=many"]),
        ] {
            let output = Command::new(&self.helm)
                .args(["template", "kiln", &chart, "--kube-version", schemas::NEWEST])
                .args(&args)
                .output()?;
            ensure!(!output.status.success(), "{what} the chart renders");
            let why = printed(&output).replace(&root().display().to_string(), ".");
            self.say(&format!(
                "$ helm template kiln charts/kiln {}\n{}",
                args.join(" "),
                why.trim()
            ));
        }
        Ok(())
    }

    fn validate(&mut self) -> Result<()> {
        let kubeconform = kubeconform()?;
        let directory = self.directory.join("schemas");
        for (version, place) in schemas::write(&directory)? {
            for values in tables()? {
                let rendered = self.directory.join("rendered.yaml");
                // With hooks and tests: they are stored as well.
                let output = Command::new(&self.helm)
                    .args(["template", "kiln"])
                    .arg(chart())
                    .args(["--namespace", NAMESPACE, "--kube-version", &version, "--values"])
                    .arg(&values)
                    .output()?;
                ensure!(output.status.success(), "helm template: {}", printed(&output));
                fs::write(&rendered, &output.stdout)?;
                let name = values.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let mut command = Command::new(&kubeconform);
                command.args(["-strict", "-summary", "-kubernetes-version", &version]);
                for place in &place {
                    command.arg("-schema-location").arg(place);
                }
                self.step(
                    &format!("helm template … --kube-version {version} --values ci/{name} | kubeconform -strict -summary"),
                    command.arg(&rendered),
                )?;
            }
        }
        Ok(())
    }

    /// `kiln up` has no nodes: pods are stored and do not run, and hooks that need them are left out.
    fn sandbox(&mut self) -> Result<()> {
        let directory = self.directory.join("sandbox");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("policies.yaml"), POLICIES)?;
        let script = format!(
            r#"set -euo pipefail
helm() {{ echo "\$ helm $*" | sed 's#{chart}#charts/kiln#'; '{helm}' "$@" 2>&1 | sed '/^NOTES/,$d'; }}
made() {{ kubectl get configmaps --all-namespaces --selector=generate.kyverno.io/policy-name --output='jsonpath={{range .items[*]}}{{.metadata.namespace}}/{{.metadata.name}} {{.metadata.uid}}{{"\n"}}{{end}}'; }}
kubectl create namespace team-a
for i in $(seq 50); do [ -n "$(made)" ] && break; sleep 0.2; done
made > before; cat before; [ -s before ]
helm install kiln {chart} --namespace kyverno --take-ownership {force} --set image.repository=registry.example.com/kiln,permissions.grant=standard
helm upgrade kiln {chart} --namespace kyverno {force} --reuse-values --set replicas=3,monitoring.dashboard=true
[ "$(kubectl get deployment kiln -n kyverno -o 'jsonpath={{.spec.replicas}}')" = 3 ]
helm rollback kiln 1 --namespace kyverno {force}
[ "$(kubectl get deployment kiln -n kyverno -o 'jsonpath={{.spec.replicas}}')" = 2 ]
helm uninstall kiln --namespace kyverno --no-hooks
kubectl get clusterpolicies --output=name
made > after; diff before after && echo "the same objects, with the same UIDs"
"#,
            chart = chart().display(),
            helm = self.helm.display(),
            force = self.force.join(" "),
        );
        fs::write(directory.join("story.sh"), &script)?;
        let kubectl = kiln_testkit::control_plane::Binaries::find()?.path("kubectl").to_owned();
        let bin = kubectl.parent().context("it is in a directory")?.to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(&self.program);
        command
            .args(["up", "policies.yaml", "--", "bash", "story.sh"])
            .current_dir(&directory)
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HELM_CACHE_HOME", self.directory.join("helm"));
        self.step("kiln up policies.yaml -- bash story.sh", &mut command)?;
        Ok(())
    }

    /// A control plane with nodes, an earlier version that was installed from manifests, and what its rules generated.
    fn earlier(&mut self) -> Result<Cluster> {
        let cluster = Arc::new(ControlPlane::start()?);
        let images = BTreeMap::from([
            (OLD.to_owned(), self.from.clone()),
            (NEW.to_owned(), self.program.clone()),
        ]);
        let nodes = Nodes::start(&cluster, images)?;
        let mut cluster = Cluster { cluster, nodes: Some(nodes), made: String::new() };
        let version = Command::new(&self.from).arg("version").output()?;
        self.say(&format!("# the earlier version: {}", printed(&version).trim()));
        let args = ["install", "--image", OLD, "--replicas", "2", "--grant", "standard"];
        self.say(&format!("$ kiln {} | kubectl apply --server-side -f -", args.join(" ")));
        let manifests = Command::new(&self.from).args(args).output()?;
        cluster.apply(&String::from_utf8(manifests.stdout)?)?;
        cluster.rolled_out(self, &["kiln"])?;
        self.say("$ kubectl apply -f policies.yaml");
        cluster.retried(|cluster| cluster.apply(POLICIES))?;
        cluster.kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "clusterpolicy",
            "--all",
        ])?;
        for namespace in ["team-a", "team-b", "team-c"] {
            cluster.kubectl(&["create", "namespace", namespace])?;
        }
        cluster.made = cluster.wait_for_made(3)?;
        let made = cluster.made.clone();
        self.say(&format!("# generated, with their UIDs:\n{}", made.trim()));
        Ok(cluster)
    }

    fn manifests(&mut self) -> Result<()> {
        let cluster = self.earlier()?;
        let client = Client::start(&cluster.cluster);
        let args = ["install", "--image", NEW, "--replicas", "2", "--grant", "standard"];
        self.say(&format!("$ kiln {} | kubectl apply --server-side -f -", args.join(" ")));
        let manifests = Command::new(&self.program).args(args).output()?;
        cluster.apply(&String::from_utf8(manifests.stdout)?)?;
        cluster.rolled_out(self, &["kiln"])?;
        sleep(Duration::from_secs(10));
        client.end(self, &cluster)?;
        cluster.same(self, "after the upgrade by manifests")
    }

    fn release(&mut self) -> Result<()> {
        let cluster = self.earlier()?;
        let config = cluster.cluster.kubeconfig();
        let chart = chart().display().to_string();
        let values =
            "image.repository=registry.example.com/kiln,image.tag=new,permissions.grant=standard";
        let in_namespace = ["--namespace", NAMESPACE];
        let wait = ["--wait", "--timeout", "5m"];

        let client = Client::start(&cluster.cluster);
        let mut install = vec!["install", "kiln", &chart, "--take-ownership", "--set", values];
        install.extend(self.force);
        install.extend(in_namespace.iter().chain(&wait));
        self.helm(Some(&config), &install)?;
        cluster.same(self, "after helm install over the earlier version")?;

        let mut upgrade = vec!["upgrade", "kiln", &chart, "--reuse-values", "--set"];
        upgrade.extend(["replicas=3,logging.json=true,monitoring.dashboard=true"]);
        upgrade.extend(in_namespace.iter().chain(&wait).chain(self.force));
        self.helm(Some(&config), &upgrade)?;
        cluster.same(self, "after helm upgrade")?;

        let mut rollback = vec!["rollback", "kiln", "1"];
        rollback.extend(in_namespace.iter().chain(&wait).chain(self.force));
        self.helm(Some(&config), &rollback)?;
        let replicas = cluster.kubectl(&[
            "get",
            "deployment",
            "kiln",
            "--namespace",
            NAMESPACE,
            "--output=jsonpath={.spec.replicas}",
        ])?;
        ensure!(replicas == "2", "rolled back to {replicas} replicas");
        cluster.same(self, "after helm rollback")?;
        self.helm(Some(&config), &["test", "kiln", "--namespace", NAMESPACE, "--timeout", "3m"])?;
        client.end(self, &cluster)?;

        self.helm(
            Some(&config),
            &["uninstall", "kiln", "--namespace", NAMESPACE, "--wait", "--timeout", "5m"],
        )?;
        cluster.same(self, "after helm uninstall")?;
        let left = cluster.kubectl(&["get", "clusterpolicies", "--output=name"])?;
        ensure!(left.lines().count() == 2, "policies are left: {left}");
        let hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let webhooks = cluster.kubectl(&["get", hooks, "--output=name"])?;
        ensure!(webhooks.trim().is_empty(), "webhooks are left: {webhooks}");
        let rest = cluster.kubectl(&[
            "get",
            "deployments,serviceaccounts,roles,clusterroles,clusterrolebindings,jobs",
            "--all-namespaces",
            "--selector=app.kubernetes.io/name=kiln",
            "--output=name",
        ])?;
        // Accounts and roles of controllers that do not exist, which later versions do not install.
        let is_old = |name: &&str| {
            ["reports-controller", "cleanup-controller"].iter().any(|old| name.contains(old))
        };
        let (old, rest): (Vec<&str>, Vec<&str>) = rest.lines().partition(is_old);
        ensure!(rest.is_empty(), "the release leaves {rest:?}");
        let many = old.len();
        self.say(&format!("# left: nothing of the release, {many} objects of the earlier version"));
        self.say(&format!("# policies are still there:\n{}", left.trim()));
        cluster.kubectl(&["create", "configmap", "without", "--namespace=team-a"])?;
        self.say("# requests go through without Kiln");

        self.helm(Some(&config), &install)?;
        cluster.kubectl(&["create", "namespace", "team-d"])?;
        cluster.wait_for_made(4)?;
        cluster.same(self, "after helm install once more")
    }
}

struct Cluster {
    cluster: Arc<ControlPlane>,
    nodes: Option<Nodes>,
    made: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Before the servers.
        drop(self.nodes.take());
    }
}

impl Cluster {
    fn kubectl(&self, args: &[&str]) -> Result<String> {
        Ok(self.cluster.kubectl(args)?)
    }

    fn apply(&self, documents: &str) -> Result<()> {
        self.cluster.apply(documents)?;
        Ok(())
    }

    /// What may fail until webhooks are registered, or definitions known.
    fn retried(&self, attempt: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let began = Instant::now();
        loop {
            match attempt(self) {
                Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error),
                Err(_) => sleep(Duration::from_secs(1)),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn rolled_out(&self, story: &mut Story, deployments: &[&str]) -> Result<()> {
        for name in deployments {
            story.say(&format!(
                "$ kubectl rollout status deployment {name} --namespace {NAMESPACE}"
            ));
            let said = self.kubectl(&[
                "rollout",
                "status",
                "deployment",
                name,
                "--namespace",
                NAMESPACE,
                "--timeout=5m",
            ])?;
            story.say(said.lines().last().unwrap_or_default());
        }
        Ok(())
    }

    /// What rules generated, with UIDs.
    fn generated(&self) -> Result<String> {
        self.kubectl(&[
            "get", "configmaps", "--all-namespaces", "--selector=generate.kyverno.io/policy-name=settings",
            r#"--output=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.uid}{"\n"}{end}"#,
        ])
    }

    fn wait_for_made(&self, wanted: usize) -> Result<String> {
        let began = Instant::now();
        loop {
            let made = self.generated()?;
            if made.lines().count() >= wanted {
                return Ok(made);
            }
            ensure!(began.elapsed() < Duration::from_secs(120), "only {made:?} was generated");
            sleep(Duration::from_secs(1));
        }
    }

    /// What was generated before is there, with the same UIDs.
    fn same(&self, story: &mut Story, when: &str) -> Result<()> {
        let now = self.generated()?;
        for line in self.made.lines() {
            ensure!(
                now.lines().any(|there| there == line),
                "{when} {line} is gone; there is {now}"
            );
        }
        let many = self.made.lines().count();
        story.say(&format!("# {when}: all {many} generated objects are there, with the same UIDs"));
        Ok(())
    }
}

/// Sends requests that a policy with `failurePolicy: Fail` mutates.
struct Client {
    end: Arc<AtomicBool>,
    sends: JoinHandle<(usize, Vec<String>)>,
}

impl Client {
    fn start(cluster: &Arc<ControlPlane>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (told, cluster) = (Arc::clone(&end), Arc::clone(cluster));
        let sends = thread::spawn(move || {
            let (mut sent, mut refused) = (0, Vec::new());
            while !told.load(Ordering::Relaxed) {
                let name = format!("request-{sent}");
                sent += 1;
                let args = ["create", "configmap", &name, "--namespace=team-a"];
                if let Err(error) = cluster.kubectl(&args) {
                    refused.push(error.to_string());
                }
                sleep(Duration::from_millis(200));
            }
            (sent, refused)
        });
        Client { end, sends }
    }

    /// All requests were answered, and none was answered without the policy.
    fn end(self, story: &mut Story, cluster: &Cluster) -> Result<()> {
        self.end.store(true, Ordering::Relaxed);
        let Ok((sent, refused)) = self.sends.join() else { bail!("the client panicked") };
        let mutated = cluster.kubectl(&[
            "get",
            "configmaps",
            "--namespace=team-a",
            "--selector=seen=yes",
            "--output=name",
        ])?;
        let mutated = mutated.lines().filter(|name| name.contains("/request-")).count();
        story.say(&format!(
            "# {sent} requests meanwhile: {} refused, {mutated} mutated",
            refused.len()
        ));
        ensure!(refused.is_empty(), "{}", refused.join("\n"));
        ensure!(mutated == sent, "{} requests were answered without the policy", sent - mutated);
        Ok(())
    }
}

fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

const POLICIES: &str = r#"apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: settings
spec:
  rules:
  - name: make
    match:
      any:
      - resources:
          kinds: [Namespace]
          names: [team-*]
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{request.object.metadata.name}}"
      synchronize: true
      data:
        data:
          owner: "{{request.object.metadata.name}}"
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: seen
spec:
  failurePolicy: Fail
  rules:
  - name: label
    match:
      any:
      - resources:
          kinds: [ConfigMap]
          names: [request-*]
    mutate:
      patchStrategicMerge:
        metadata:
          labels:
            seen: "yes"
"#;
