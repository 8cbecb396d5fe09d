//! `kiln build` beside kustomize: the same trees, the same bytes.
//!
//! The peer is built once from its Go module, into the user's cache directory. Both outputs of a tree are compared; a
//! tree on which they differ is an error, not a figure.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::report::Report;
use super::{instructions, measure};
use crate::{cache, root};

pub(super) const PEER: &str = "kustomize";
pub(super) const VERSION: &str = "5.8.2";
const MODULE: &str = "sigs.k8s.io/kustomize/kustomize/v5";

/// A peer that takes longer than this runs once.
pub(super) const PATIENCE_SECONDS: f64 = 5.0;

pub(super) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = kiln()?;
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    let peer = peer();
    match &peer {
        Ok(_) => report.contender(PEER, VERSION),
        Err(error) => report.note(&format!("{PEER} is missing: {error:#}")),
    }
    let into = root().join("target/bench-kustomize");
    for (name, tree) in workloads() {
        eprintln!("   {name}");
        let directory = into.join(name.replace([' ', ','], "-"));
        tree.write(&directory)?;
        let directory = directory.join("root");
        measure_program(report, name, "kiln", &kiln, &directory, runs)?;
        if let Ok(peer) = &peer {
            measure_program(report, name, PEER, peer, &directory, runs)?;
            let output = |who| fs::read(kept(&directory, who));
            if output("kiln")? != output(PEER)? {
                bail!("the outputs for {} differ", directory.display());
            }
        }
    }
    growth(&kiln, &into, report)?;
    origins(&kiln, &into, report)
}

/// The exponent with which the work grows from 1,000 to 8,000 resources.
fn growth(kiln: &Path, into: &Path, report: &mut Report) -> Result<()> {
    let (small, large) = (1_000, 8_000);
    for (name, overlay) in [("plain", ""), ("mixed", MIXED)] {
        let mut counts = Vec::new();
        for size in [small, large] {
            let directory = into.join(format!("growth-{name}-{size}"));
            Tree::new(&resources(size), overlay).write(&directory)?;
            counts.extend(instructions(&build(kiln, &directory.join("root"))));
        }
        let [few, many] = counts.as_slice() else {
            report.note("valgrind is missing, so instructions were not counted");
            return Ok(());
        };
        let exponent = (many / few).ln() / (large as f64 / small as f64).ln();
        let workload = format!("{name}, 1,000 to 8,000 resources");
        report.figure(&workload, "growth exponent of instructions", "kiln", exponent);
    }
    Ok(())
}

/// What origin annotations cost for each byte that comes out.
fn origins(kiln: &Path, into: &Path, report: &mut Report) -> Result<()> {
    let origin = "buildMetadata: [originAnnotations]\n";
    for (name, overlay) in [("without", ""), ("with", origin)] {
        let directory = into.join(format!("origin-{name}"));
        Tree::new(&resources(1_000), overlay).write(&directory)?;
        let mut command = build(kiln, &directory.join("root"));
        let bytes = command.output()?.stdout.len().max(1);
        if let Some(count) = instructions(&command) {
            let workload = format!("1,000 resources {name} origin annotations");
            report.figure(&workload, "instructions per output byte", "kiln", count / bytes as f64);
        }
    }
    Ok(())
}

fn build(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("build").arg(directory);
    command
}

/// Where the output of a program is kept to be compared.
fn kept(directory: &Path, who: &str) -> PathBuf {
    directory.with_file_name(format!("{who}.yaml"))
}

fn measure_program(
    report: &mut Report,
    workload: &str,
    who: &str,
    program: &Path,
    directory: &Path,
    runs: usize,
) -> Result<()> {
    let command = build(program, directory);
    // The first start of a binary reads it from disk.
    let _ = Command::new(program).arg("version").output();
    for _ in 0..runs {
        let usage = measure::usage_keeping(&command, Some(&kept(directory, who)))?;
        report.process(workload, who, usage);
        if usage.cpu_seconds > PATIENCE_SECONDS {
            report.note(&format!("{who} ran once where it takes more than 5 s"));
            break;
        }
    }
    Ok(())
}

/// The release binary: built now, or the one that `KILN_BINARY` names.
pub(super) fn kiln() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("KILN_BINARY") {
        return Ok(binary.into());
    }
    let status = Command::new("cargo")
        .args(["build", "--profile", "dist", "-p", "kiln"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("kiln cannot be built");
    }
    Ok(root().join("target/dist/kiln"))
}

/// The peer's binary, built if it is not there yet.
pub(super) fn peer() -> Result<PathBuf> {
    let into = cache()?.join(format!("{PEER}-{VERSION}"));
    let binary = into.join(PEER);
    if binary.exists() {
        return Ok(binary);
    }
    fs::create_dir_all(&into)?;
    let status = Command::new("go")
        .args(["install", &format!("{MODULE}@v{VERSION}")])
        .env("GOBIN", &into)
        .env("GOFLAGS", "-mod=mod")
        .current_dir(&into)
        .status()
        .context("go is not installed")?;
    if !status.success() {
        bail!("its module cannot be built");
    }
    Ok(binary)
}

/// A base with resources in one file, and an overlay.
struct Tree {
    resources: String,
    overlay: String,
}

impl Tree {
    fn new(resources: &str, overlay: &str) -> Self {
        Tree { resources: resources.to_owned(), overlay: overlay.to_owned() }
    }

    fn write(&self, directory: &Path) -> Result<()> {
        let files = [
            ("base/all.yaml", self.resources.clone()),
            ("base/kustomization.yaml", "resources:\n- all.yaml\n".to_owned()),
            ("root/kustomization.yaml", format!("resources:\n- ../base\n{}", self.overlay)),
        ];
        for (name, text) in files {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

const MIXED: &str = "namePrefix: live-
namespace: live
labels:
- pairs:
    stage: live
  includeSelectors: true
images:
- name: nginx
  newTag: '1.29'
patches:
- target:
    kind: Deployment
  patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: all
    spec:
      replicas: 4
- target:
    kind: Service
  patch: |-
    - op: add
      path: /spec/type
      value: ClusterIP
";

fn workloads() -> Vec<(&'static str, Tree)> {
    let mut patches = "patches:\n".to_owned();
    for at in 0..200 {
        let _ = write!(
            patches,
            "- target:\n    kind: Deployment\n    name: web-{at}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    \
             metadata:\n      name: web-{at}\n    spec:\n      replicas: 2\n      template:\n        spec:\n          \
             containers:\n          - name: main\n            env:\n            - name: MORE\n              value: x\n"
        );
    }
    vec![
        ("one Service", Tree::new(&service(0), "")),
        ("1,000 resources, mixed overlay", Tree::new(&resources(1_000), MIXED)),
        ("800 resources, 200 targeted merge patches", Tree::new(&resources(800), &patches)),
        ("5,000 resources, plain", Tree::new(&resources(5_000), "")),
    ]
}

/// A kustomization of one Service, where starting counts for most; the directory to build.
pub(super) fn write_one_service(directory: &Path) -> Result<PathBuf> {
    Tree::new(&service(0), "").write(directory)?;
    Ok(directory.join("root"))
}

/// Deployments, Services, ConfigMaps and ServiceAccounts, a quarter of each.
pub(super) fn resources(count: usize) -> String {
    let mut text = String::new();
    for at in 0..count {
        if at > 0 {
            text.push_str("---\n");
        }
        let name = at / 4;
        match at % 4 {
            0 => {
                let _ = write!(
                    text,
                    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{name}\n  labels:\n    app: web-{name}\n\
                     spec:\n  replicas: 1\n  selector:\n    matchLabels:\n      app: web-{name}\n  template:\n    \
                     metadata:\n      labels:\n        app: web-{name}\n    spec:\n      containers:\n      - name: main\n        \
                     image: registry.example.com/web-{name}:v1\n        ports:\n        - containerPort: 8080\n        \
                     env:\n        - name: CONFIG\n          valueFrom:\n            configMapKeyRef:\n              \
                     name: web-{name}\n              key: config\n      - name: proxy\n        image: nginx:1.25\n"
                );
            }
            1 => text.push_str(&service(name)),
            2 => {
                let _ = write!(
                    text,
                    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web-{name}\ndata:\n  config: \"value-{name}\"\n  \
                     other: text\n"
                );
            }
            _ => {
                let _ = write!(
                    text,
                    "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web-{name}\n"
                );
            }
        }
    }
    text
}

fn service(name: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web-{name}\nspec:\n  selector:\n    app: web-{name}\n  ports:\n  \
         - port: 80\n    targetPort: 8080\n"
    )
}
