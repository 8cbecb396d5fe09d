//! `kiln build` of `helmCharts` beside kustomize, which starts helm for each of them: the same trees, the same bytes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::helm;

use super::kustomize::{PATIENCE_SECONDS, PEER, VERSION, kiln, peer};
use super::report::Report;
use crate::{measure, root};

/// The major version of Helm that both stand for.
const HELM: u8 = 3;

pub(super) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = kiln()?;
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    let peers = peer().and_then(|peer| Ok((peer, helm(HELM)?)));
    match &peers {
        Ok(_) => report.contender(PEER, &format!("{VERSION} with Helm {HELM}")),
        Err(error) => report.note(&format!("{PEER} with helm is missing: {error:#}")),
    }
    for (name, charts, templates) in
        [("one chart of 5 objects", 1, 5), ("20 charts of 20 objects each", 20, 20)]
    {
        eprintln!("   {name}");
        let directory = root().join("target/bench-charts").join(name.replace(' ', "-"));
        write(&directory, charts, templates)?;
        let mut command = Command::new(&kiln);
        command.args(["build", "--enable-helm"]).arg(directory.join("root"));
        measure_program(report, name, "kiln", &command, &directory, runs)?;
        let Ok((peer, helm)) = &peers else { continue };
        let mut command = Command::new(peer);
        command.args(["build", "--enable-helm", "--helm-command"]).arg(helm);
        command.arg(directory.join("root"));
        measure_program(report, name, PEER, &command, &directory, runs)?;
        let output = |who| fs::read(kept(&directory, who));
        if output("kiln")? != output(PEER)? {
            bail!("the outputs for {} differ", directory.display());
        }
    }
    Ok(())
}

/// Where the output of a program is kept to be compared.
fn kept(directory: &Path, who: &str) -> PathBuf {
    directory.join(format!("{who}.yaml"))
}

fn measure_program(
    report: &mut Report,
    workload: &str,
    who: &str,
    command: &Command,
    directory: &Path,
    runs: usize,
) -> Result<()> {
    // The first start of a binary reads it from disk.
    let _ = Command::new(command.get_program()).arg("version").output();
    for _ in 0..runs {
        let usage = measure::usage_keeping(command, Some(&kept(directory, who)))?;
        report.process(workload, who, usage);
        if usage.cpu_seconds > PATIENCE_SECONDS {
            report.note(&format!("{who} ran once where it takes more than 5 s"));
            break;
        }
    }
    Ok(())
}

const HELPERS: &str = r#"{{- define "web.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
"#;

const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-NUMBER
  labels: {{- include "web.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}}}
  template:
    metadata:
      labels: {{- include "web.labels" . | nindent 8 }}
    spec:
      containers:
      - name: web
        image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
        env:
        {{- range $name, $value := .Values.env }}
        - name: {{ $name | upper }}
          value: {{ $value | quote }}
        {{- end }}
        resources: {{- toYaml .Values.resources | nindent 10 }}
"#;

const VALUES: &str = "replicas: 2
image: {repository: registry.example.com/web}
env: {level: info, region: north, workers: 4}
resources: {limits: {cpu: 100m, memory: 128Mi}, requests: {cpu: 50m}}
";

fn write(directory: &Path, charts: usize, templates: usize) -> Result<()> {
    let file = |name: &str, text: &str| -> Result<()> {
        let path = directory.join("root").join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    let mut kustomization = "namePrefix: live-\nhelmCharts:\n".to_owned();
    for at in 0..charts {
        let _ = write!(
            kustomization,
            "- name: web\n  releaseName: release-{at}\n  valuesInline: {{replicas: {at}}}\n"
        );
    }
    file("kustomization.yaml", &kustomization)?;
    file("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\nappVersion: '2'\n")?;
    file("charts/web/values.yaml", VALUES)?;
    file("charts/web/templates/_helpers.tpl", HELPERS)?;
    for at in 0..templates {
        let text = DEPLOYMENT.replace("NUMBER", &at.to_string());
        file(&format!("charts/web/templates/deployment-{at}.yaml"), &text)?;
    }
    Ok(())
}
