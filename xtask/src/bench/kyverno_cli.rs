//! `kiln apply` beside Kyverno's own command line, as whole processes.
//!
//! Both run the same policies over the same files, and both must come to the same verdicts: the counts of the
//! last line, and how many objects were made. `xtask/kyverno` pins the peer.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::kyverno::{self, PEER};
use super::report::Report;
use crate::measure;
use crate::root;

/// One workload: files, and how both programs are called on them.
struct Workload {
    name: &'static str,
    policies: String,
    resources: String,
    /// What clones are made of. The peer passes clones without making them, so that only its counts are compared.
    sources: String,
    /// How often each contender runs; large ones take the peer minutes.
    runs: fn(usize) -> usize,
}

/// Builds both programs, and runs all workloads with both.
pub(crate) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = super::kustomize::kiln()?;
    let peer = build_peer(report);
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    if peer.is_some() {
        report.contender(PEER, &kyverno::version()?);
    }
    let directory = root().join("target/bench-kyverno-cli");
    for workload in workloads() {
        let files = Files::write(&directory, &workload)?;
        eprintln!("   {}", workload.name);
        let ours = verdicts(&files.apply(&kiln))?;
        let runs = (workload.runs)(runs);
        for _ in 0..runs {
            report.process(workload.name, "kiln", measure::usage_of(&files.apply(&kiln))?);
        }
        let Some(peer) = &peer else { continue };
        let theirs = verdicts(&files.apply(peer))?;
        let same = match workload.sources.as_str() {
            "" => ours == theirs,
            _ => ours.counts == theirs.counts,
        };
        if !same {
            bail!("{}: kiln comes to {ours:?}, and {PEER} to {theirs:?}", workload.name);
        }
        if ours.objects != theirs.objects {
            let name = workload.name;
            report.note(&format!(
                "{name}: kiln makes {} objects, {PEER} {}",
                ours.objects, theirs.objects
            ));
        }
        for _ in 0..runs {
            report.process(workload.name, PEER, measure::usage_of(&files.apply(peer))?);
        }
    }
    report.note_load();
    Ok(())
}

/// The files of a workload.
struct Files {
    policies: PathBuf,
    resources: PathBuf,
    sources: Option<PathBuf>,
}

impl Files {
    fn write(directory: &Path, workload: &Workload) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            Ok(path)
        };
        Ok(Files {
            policies: write("policies.yaml", &workload.policies)?,
            resources: write("resources.yaml", &workload.resources)?,
            sources: match workload.sources.as_str() {
                "" => None,
                text => Some(write("sources.yaml", text)?),
            },
        })
    }

    /// Both programs take the same options.
    fn apply(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.arg("apply").arg(&self.policies).arg("--resource").arg(&self.resources);
        if let Some(sources) = &self.sources {
            command.arg("--target-resource").arg(sources);
        }
        command
    }
}

/// What a program came to.
#[derive(Debug, PartialEq)]
pub(super) struct Verdicts {
    /// Its last line.
    pub(super) counts: String,
    /// How many objects it printed.
    objects: usize,
}

pub(super) fn verdicts(command: &Command) -> Result<Verdicts> {
    let mut command = {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        same
    };
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = said.lines().rev().find(|line| line.starts_with("pass: "));
    let counts = counts.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let end = said.len().saturating_sub(500);
        format!("{command:?} prints no counts:\n{}\n{errors}", said.get(end..).unwrap_or(&said))
    })?;
    let objects = said.lines().filter(|line| *line == "kind: ConfigMap" || *line == "kind: Secret");
    Ok(Verdicts { counts: counts.trim().to_owned(), objects: objects.count() })
}

/// The peer, or nothing where it cannot be built.
pub(super) fn build_peer(report: &mut Report) -> Option<PathBuf> {
    match kyverno::program("cli/kubectl-kyverno") {
        Ok(binary) => {
            // The first start of a large binary reads it from disk.
            let _ = Command::new(&binary).arg("version").output();
            std::thread::sleep(Duration::from_millis(100));
            Some(binary)
        }
        Err(error) => {
            report.note(&format!("Kyverno's command line is missing: {error:#}"));
            None
        }
    }
}

fn workloads() -> Vec<Workload> {
    let few = |runs: usize| runs;
    let once = |_: usize| 1;
    let data = generate("data", DATA);
    vec![
        Workload {
            name: "cold start: one policy, one Namespace",
            policies: data.clone(),
            resources: namespaces(1),
            sources: String::new(),
            runs: few,
        },
        Workload {
            name: "data: one policy, 10,000 Namespaces",
            policies: data,
            resources: namespaces(10_000),
            sources: String::new(),
            runs: once,
        },
        Workload {
            name: "clone: one policy, 10,000 Namespaces",
            policies: generate("clone", CLONE),
            resources: namespaces(10_000),
            sources: SOURCE.to_owned(),
            runs: once,
        },
        Workload {
            name: "foreach: one policy, 10,000 Namespaces, two objects each",
            policies: generate("foreach", FOREACH),
            resources: namespaces(10_000),
            sources: String::new(),
            runs: once,
        },
        Workload {
            name: "GeneratingPolicy: one policy, 10,000 Namespaces",
            policies: GENERATING.to_owned(),
            resources: namespaces(10_000),
            sources: String::new(),
            runs: once,
        },
        Workload {
            name: "200 policies, 1,000 resources",
            policies: many(200),
            resources: deployments(1_000),
            sources: String::new(),
            runs: once,
        },
    ]
}

const DATA: &str = "      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: \"{{request.object.metadata.name}}\"
      synchronize: false
      data:
        data:
          owner: \"{{request.object.metadata.labels.owner}}\"
";

/// The same in CEL.
const GENERATING: &str = r#"apiVersion: policies.kyverno.io/v1beta1
kind: GeneratingPolicy
metadata:
  name: settings
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [namespaces]
  matchConditions:
  - name: has-owner
    expression: has(object.metadata.labels) && 'owner' in object.metadata.labels
  variables:
  - name: name
    expression: object.metadata.name
  - name: settings
    expression: >-
      [{
        "apiVersion": dyn("v1"),
        "kind": dyn("ConfigMap"),
        "metadata": dyn({"name": "settings", "namespace": string(variables.name)}),
        "data": dyn({"owner": string(object.metadata.labels['owner'])})
      }]
  generate:
  - expression: generator.Apply(variables.name, variables.settings)
"#;

const CLONE: &str = "      apiVersion: v1
      kind: Secret
      name: pull-secret
      namespace: \"{{request.object.metadata.name}}\"
      synchronize: false
      clone:
        namespace: platform
        name: pull-secret
";

const FOREACH: &str = "      synchronize: false
      foreach:
      - list: request.object.metadata.annotations.parts | split(@, ',')
        apiVersion: v1
        kind: ConfigMap
        name: \"part-{{element}}\"
        namespace: \"{{request.object.metadata.name}}\"
        data:
          data:
            part: \"{{element}}\"
";

const SOURCE: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: pull-secret, namespace: platform}
type: Opaque
data: {token: c2VjcmV0}
";

fn generate(name: &str, program: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: {name}\nspec:\n  rules:\n  - name: {name}\n    \
         match:\n      any:\n      - resources:\n          kinds: [Namespace]\n    generate:\n{program}"
    )
}

fn namespaces(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-{number}\n  labels:\n    owner: owner-{number}\n  \
             annotations:\n    parts: a,b\n"
        );
    }
    text
}

/// Policies that each label the Deployments of one application.
fn many(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(
            text,
            "---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: policy-{number}\nspec:\n  rules:\n  \
             - name: label\n    match:\n      any:\n      - resources:\n          kinds: [Deployment]\n          selector:\n            \
             matchLabels:\n              app: app-{number}\n    mutate:\n      patchStrategicMerge:\n        metadata:\n          \
             labels:\n            policy: \"{{{{request.object.metadata.name}}}}-{number}\"\n"
        );
    }
    text
}

fn deployments(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(
            text,
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{number}\n  namespace: shop\n  labels:\n    \
             app: app-{}\nspec:\n  replicas: 1\n  selector:\n    matchLabels:\n      app: app-{}\n  template:\n    metadata:\n      \
             labels:\n        app: app-{}\n    spec:\n      containers:\n      - name: main\n        image: example.com/web:1.0\n",
            number % 200,
            number % 200,
            number % 200
        );
    }
    text
}
