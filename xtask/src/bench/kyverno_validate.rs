//! Policies that check, with `kiln apply` and Kyverno's own command line, as whole processes.
//!
//! Both print their usual text, which ends with the counts of results. The counts must be the same for policies that are
//! written here, and are noted where they are not for those of the policy library.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kiln_testkit::{corpus, corpus_json};
use kiln_value::Value;

use super::kyverno::{self, PEER};
use super::kyverno_cli::{build_peer, verdicts};
use super::report::Report;
use crate::measure;
use crate::root;

/// How many times less Kiln is to need.
const GOALS: [(&str, f64); 2] =
    [("whole process, wall time", 50.0), ("whole process, peak memory", 5.0)];

/// Policies and resources.
struct Workload {
    name: String,
    policies: String,
    resources: String,
    /// Whether both must come to the same counts.
    same: bool,
}

/// Builds both programs, and runs all workloads with both.
pub(crate) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = super::kustomize::kiln()?;
    let peer = build_peer(report);
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    if peer.is_some() {
        report.contender(PEER, &kyverno::version()?);
    }
    let directory = root().join("target/bench-kyverno-validate");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for workload in workloads(report)? {
        eprintln!("   {}", workload.name);
        let policies = directory.join("policies.yaml");
        let resources = directory.join("resources.yaml");
        fs::write(&policies, &workload.policies)?;
        fs::write(&resources, &workload.resources)?;
        let apply = |binary: &Path| {
            let mut command = Command::new(binary);
            command.arg("apply").arg(&policies).arg("--resource").arg(&resources);
            command
        };
        for (measure, at_least) in GOALS {
            report.goal(&workload.name, measure, at_least);
        }
        let contenders: [(&str, Option<&PathBuf>); 2] =
            [("kiln", Some(&kiln)), (PEER, peer.as_ref())];
        let mut counts = Vec::new();
        for (who, binary) in contenders {
            let Some(binary) = binary else { continue };
            counts.push(verdicts(&apply(binary))?.counts);
            for _ in 0..runs.max(1) {
                report.process(&workload.name, who, measure::usage_of_check(&apply(binary))?);
            }
        }
        let [ours, theirs] = counts.as_slice() else { continue };
        match ours == theirs {
            true => report.note(&format!("{}: {ours}", workload.name)),
            false if workload.same => {
                bail!("{}: kiln comes to {ours}, and {PEER} to {theirs}", workload.name)
            }
            false => report
                .note(&format!("{}: kiln comes to {ours}, and {PEER} to {theirs}", workload.name)),
        }
    }
    report.note_load();
    Ok(())
}

fn workloads(report: &mut Report) -> Result<Vec<Workload>> {
    let mut all = Vec::new();
    match corpus("policy-library") {
        Some(library) => {
            all.push(Workload {
                name: "17 Pod Security policies, 1,000 Pods".to_owned(),
                policies: pod_security(&library)?,
                resources: pods(1_000),
                same: false,
            });
            let (policies, count) = whole(&library)?;
            all.push(Workload {
                name: format!("the policy library ({count} policies), 1,000 resources"),
                policies,
                resources: mixed(1_000),
                same: false,
            });
        }
        None => {
            report
                .note("the policy library is missing: set KILN_CORPUS to a directory that has it");
        }
    }
    all.insert(
        all.len().min(1),
        Workload {
            name: "200 validate policies, 1,000 mixed resources".to_owned(),
            policies: many(200),
            resources: mixed(1_000),
            same: true,
        },
    );
    Ok(all)
}

/// The policies of the library for the Pod Security Standards: one for each control, and two for whole levels.
pub(super) fn pod_security(library: &Path) -> Result<String> {
    let chosen =
        entries()?.into_iter().filter(|entry| entry.directory.starts_with("pod-security/"));
    let chosen: Vec<Entry> = chosen.take(17).collect();
    if chosen.len() < 17 {
        bail!("the policy library has {} Pod Security policies", chosen.len());
    }
    texts(library, &chosen)
}

/// All policies of the library that need no registry, and that are run: of twins with one name, the first.
fn whole(library: &Path) -> Result<(String, usize)> {
    const KINDS: [&str; 4] =
        ["ClusterPolicy", "ValidatingPolicy", "MutatingPolicy", "GeneratingPolicy"];
    let mut known = BTreeSet::new();
    let mut chosen = entries()?;
    chosen.retain(|entry| {
        KINDS.contains(&entry.kind.as_str())
            && !entry.needs_registry
            && known.insert((entry.kind.clone(), entry.name.clone()))
    });
    Ok((texts(library, &chosen)?, chosen.len()))
}

/// A policy of the library.
struct Entry {
    directory: String,
    file: String,
    kind: String,
    name: String,
    needs_registry: bool,
}

fn entries() -> Result<Vec<Entry>> {
    let index = corpus_json("policy-library/index.json").context("the library has no index")?;
    let policies = index.get("policies").and_then(Value::as_list).context("no policies")?;
    let text = |entry: &Value, key: &str| entry.str_at([key]).unwrap_or_default().to_owned();
    Ok(policies
        .iter()
        .map(|entry| Entry {
            directory: text(entry, "dir"),
            file: text(entry, "file"),
            kind: text(entry, "kind"),
            name: text(entry, "name"),
            needs_registry: entry.get("registry").and_then(Value::as_bool) == Some(true),
        })
        .collect())
}

fn texts(library: &Path, chosen: &[Entry]) -> Result<String> {
    let mut all = String::new();
    for entry in chosen {
        let path = library.join(&entry.directory).join(&entry.file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let _ = writeln!(all, "---\n{}", text.trim_end());
    }
    Ok(all)
}

/// Checks of eight forms, each with a number that makes it another one.
fn many(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (kinds, validate) = form(number);
        let _ = write!(
            text,
            "---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: check-{number}\nspec:\n  \
             validationFailureAction: Audit\n  rules:\n  - name: check\n    match:\n      any:\n      - resources:\n          \
             kinds: [{kinds}]\n    validate:\n      message: \"check {number} of {{{{request.object.kind}}}}\"\n{validate}"
        );
    }
    text
}

fn form(number: usize) -> (&'static str, String) {
    match number % 8 {
        0 => (
            "Pod",
            format!("      pattern:\n        metadata:\n          labels:\n            team-{}: \"?*\"\n", number % 7),
        ),
        1 => ("Pod", "      pattern:\n        spec:\n          containers:\n          - image: \"!*:latest\"\n".to_owned()),
        2 => (
            "Pod",
            format!(
                "      pattern:\n        spec:\n          containers:\n          - resources:\n              limits:\n                \
                 memory: \"<={}Mi\"\n",
                128 + number
            ),
        ),
        3 => (
            "Pod",
            "      pattern:\n        spec:\n          =(hostNetwork): false\n          =(hostPID): false\n          \
             =(volumes):\n          - X(hostPath): \"null\"\n"
                .to_owned(),
        ),
        4 => (
            "Service",
            "      deny:\n        conditions:\n          any:\n          - key: \"{{ request.object.spec.type || '' }}\"\n            \
             operator: AnyIn\n            value: [NodePort, LoadBalancer]\n"
                .to_owned(),
        ),
        5 => (
            "Pod",
            format!(
                "      foreach:\n      - list: request.object.spec.containers\n        deny:\n          conditions:\n            any:\n            \
                 - key: \"{{{{ element.image }}}}\"\n              operator: Equals\n              value: \"registry-{}.example/*\"\n",
                number % 5
            ),
        ),
        6 => (
            "Pod",
            "      anyPattern:\n      - spec:\n          securityContext:\n            runAsNonRoot: true\n      \
             - spec:\n          containers:\n          - securityContext:\n              runAsNonRoot: true\n"
                .to_owned(),
        ),
        _ => (
            "Pod",
            format!(
                "      cel:\n        expressions:\n        - expression: object.spec.containers.size() < {}\n          \
                 message: too many containers\n",
                1 + number % 4
            ),
        ),
    }
}

fn pods(count: usize) -> String {
    (0..count)
        .map(|number| {
            format!("---\napiVersion: v1\nkind: Pod\n{}{}", metadata(number), pod_spec(number, ""))
        })
        .collect()
}

/// Resources as a repository has them: half of them run Pods.
fn mixed(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (head, below) = (metadata(number), "  ");
        let _ = match number % 8 {
            0 | 1 => write!(text, "---\napiVersion: v1\nkind: Pod\n{head}{}", pod_spec(number, "")),
            2 | 3 => write!(
                text,
                "---\napiVersion: apps/v1\nkind: Deployment\n{head}spec:\n  replicas: {}\n  selector:\n    matchLabels:\n      \
                 app: app-{}\n  template:\n    metadata:\n      labels:\n        app: app-{}\n{}",
                number % 5,
                number % 50,
                number % 50,
                pod_spec(number, &below.repeat(2))
            ),
            4 => write!(
                text,
                "---\napiVersion: batch/v1\nkind: CronJob\n{head}spec:\n  schedule: \"0 * * * *\"\n  jobTemplate:\n    spec:\n      \
                 template:\n{}",
                pod_spec(number, &below.repeat(4))
            ),
            5 => write!(
                text,
                "---\napiVersion: v1\nkind: Service\n{head}spec:\n  type: {}\n  selector:\n    app: app-{}\n  ports:\n  - port: 80\n",
                ["ClusterIP", "NodePort", "LoadBalancer"][number % 3],
                number % 50
            ),
            6 => write!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\n{head}data:\n  key: value-{number}\n"
            ),
            _ => write!(
                text,
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n{head}spec:\n  rules:\n  - host: h{number}.example.com\n    \
                 http:\n      paths:\n      - path: /\n        pathType: Prefix\n        backend:\n          service:\n            \
                 name: web\n            port:\n              number: 80\n"
            ),
        };
    }
    text
}

fn metadata(number: usize) -> String {
    format!(
        "metadata:\n  name: r-{number}\n  namespace: team-{}\n  labels:\n    app: app-{}\n    team-{}: a\n",
        number % 20,
        number % 50,
        number % 9
    )
}

fn pod_spec(number: usize, indent: &str) -> String {
    let mut lines = vec!["spec:".to_owned()];
    if number.is_multiple_of(11) {
        lines.push("  hostNetwork: true".to_owned());
    }
    if number.is_multiple_of(3) {
        lines.push("  securityContext:".to_owned());
        lines.push("    runAsNonRoot: true".to_owned());
        lines.push("    seccompProfile:".to_owned());
        lines.push("      type: RuntimeDefault".to_owned());
    }
    lines.push("  containers:".to_owned());
    for container in 0..=number % 3 {
        lines.push(format!("  - name: c{container}"));
        let image = match (number + container) % 4 {
            0 => "nginx:latest".to_owned(),
            rest => format!("registry-{rest}.example/app:{number}"),
        };
        lines.push(format!("    image: {image}"));
        lines.push("    resources:".to_owned());
        lines.push("      limits:".to_owned());
        lines.push(format!("        memory: {}Mi", 100 + number % 300));
        if number.is_multiple_of(4) {
            lines.push("    securityContext:".to_owned());
            lines.push("      allowPrivilegeEscalation: false".to_owned());
            lines.push("      capabilities:".to_owned());
            lines.push("        drop: [ALL]".to_owned());
        }
    }
    if number.is_multiple_of(7) {
        lines.push("  volumes:".to_owned());
        lines.push("  - name: host".to_owned());
        lines.push("    hostPath:".to_owned());
        lines.push("      path: /var/log".to_owned());
    }
    lines.into_iter().fold(String::new(), |text, line| format!("{text}{indent}{line}\n"))
}
