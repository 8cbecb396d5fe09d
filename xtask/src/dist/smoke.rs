//! Whether the images start: each one is unpacked by tools that are not ours, and runs as its user, without any
//! capability, on a read-only root. Without arguments it is a KRM function. `kiln run` in it works on a sandbox: a policy is
//! admitted through its webhook, and a downstream is generated.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kiln_testkit::control_plane::{ControlPlane, Watched, free_port};
use serde_json::Value;

use super::{compile, image};

/// Programs that are needed, and what Debian calls their packages.
const TOOLS: [(&str, &str); 3] =
    [("skopeo", "skopeo"), ("umoci", "umoci"), ("bwrap", "bubblewrap")];
/// How long something may take under emulation.
const PATIENCE: Duration = Duration::from_secs(180);
const ACCOUNT: &str = "system:serviceaccount:kyverno:kyverno";

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: from-image}
spec:
  background: false
  rules:
  - name: configmap
    match: {any: [{resources: {kinds: [Namespace], names: [team-*]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: generated
      namespace: '{{request.object.metadata.name}}'
      synchronize: true
      data: {data: {user: '{{request.userInfo.username}}'}}
";

/// What kustomize and kpt give to a function, and the label that the policy in it sets.
const RESOURCE_LIST: &str = "
apiVersion: config.kubernetes.io/v1
kind: ResourceList
functionConfig:
  apiVersion: kyverno.io/v1
  kind: ClusterPolicy
  metadata: {name: team}
  spec:
    rules:
    - name: label
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate: {patchStrategicMerge: {metadata: {labels: {team: shop}}}}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
";
const LABELLED: &str = "labels:\n      team: shop\n";

/// An image that was unpacked.
struct Unpacked {
    arch: String,
    files: PathBuf,
    user: String,
    environment: Vec<String>,
    entrypoint: Vec<String>,
    /// What runs programs of its processor, if this machine does not.
    emulator: Option<PathBuf>,
}

#[expect(clippy::print_stdout, reason = "what happened is this command's output")]
pub(super) fn run(dist: &Path, version: &str) -> Result<bool> {
    let layout = dist.join("image");
    ensure!(layout.is_dir(), "{} is missing: run `cargo xtask dist` first", layout.display());
    for (tool, package) in TOOLS {
        ensure!(
            Command::new(tool).arg("--version").output().is_ok(),
            "{tool} is missing (Debian: apt-get install {package})"
        );
    }
    let work = tempfile::tempdir()?;
    let images = architectures(&layout, version)?
        .iter()
        .map(|arch| unpack(&layout, version, arch, work.path()))
        .collect::<Result<Vec<_>>>()?;
    let host = images.iter().find(|image| image.emulator.is_none());
    let kiln = host.context("none of the images is for this machine")?;
    let kiln = kiln.files.join(image::PROGRAM.trim_start_matches('/'));
    for image in &images {
        println!("{}: {}", image.arch, started(image, &kiln, version)?);
    }
    Ok(true)
}

/// The processors that there are images for.
fn architectures(layout: &Path, version: &str) -> Result<Vec<String>> {
    let name = format!("oci:{}:{version}", layout.display());
    let index: Value = serde_json::from_slice(&compile::output(
        Path::new("skopeo"),
        &["inspect", "--raw", &name],
    )?)?;
    let manifests = index["manifests"].as_array().context("the image has no index")?;
    let arch = |entry: &Value| entry["platform"]["architecture"].as_str().map(str::to_owned);
    Ok(manifests.iter().filter_map(arch).collect())
}

/// Unpacks the image for a processor, and reads how it wants to be run.
fn unpack(layout: &Path, version: &str, arch: &str, work: &Path) -> Result<Unpacked> {
    let all = format!("oci:{}:{version}", layout.display());
    let one = work.join(format!("{arch}-image"));
    let copy = format!("oci:{}:{version}", one.display());
    let chosen = ["--override-os", "linux", "--override-arch", arch];
    let skopeo = |args: &[&str]| compile::output(Path::new("skopeo"), &[&chosen, args].concat());
    skopeo(&["copy", &all, &copy])?;
    let config: Value = serde_json::from_slice(&skopeo(&["inspect", "--config", &copy])?)?;
    ensure!(config["architecture"] == arch, "the image for {arch} says {}", config["architecture"]);
    let bundle = work.join(format!("{arch}-bundle"));
    let (from, into) = (format!("{}:{version}", one.display()), bundle.display().to_string());
    compile::output(Path::new("umoci"), &["unpack", "--rootless", "--image", &from, &into])?;
    let files = bundle.join("rootfs");
    // As container runtimes do, before the root is read-only.
    for mounted in ["proc", "dev"] {
        fs::create_dir_all(files.join(mounted))?;
    }
    let texts = |field: &str| -> Vec<String> {
        let list = config["config"][field].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    Ok(Unpacked {
        arch: arch.to_owned(),
        files,
        user: config["config"]["User"].as_str().unwrap_or_default().to_owned(),
        environment: texts("Env"),
        entrypoint: texts("Entrypoint"),
        emulator: emulator(arch)?,
    })
}

/// What runs programs of a processor that is not this machine's.
fn emulator(arch: &str) -> Result<Option<PathBuf>> {
    let processor = match arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    if processor == std::env::consts::ARCH {
        return Ok(None);
    }
    let name = format!("qemu-{processor}-static");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(&name))
        .find(|file| file.is_file());
    found
        .map(Some)
        .with_context(|| format!("{name} is missing (Debian: apt-get install qemu-user-static)"))
}

impl Unpacked {
    /// A command in the image, with files of this machine at other places, read-only.
    fn command(&self, args: &[String], files: &BTreeMap<&str, PathBuf>) -> Result<Command> {
        let (user, group) =
            self.user.split_once(':').context("the image names no user and group")?;
        ensure!(user.parse::<u32>().is_ok_and(|user| user > 0), "the image runs as {user:?}");
        let mut command = Command::new("bwrap");
        command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--new-session"]);
        command.args(["--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--chdir", "/"]);
        command.args(["--uid", user, "--gid", group, "--ro-bind"]).arg(&self.files).arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev"]);
        for (to, from) in files {
            command.arg("--ro-bind").arg(from).arg(to);
        }
        for variable in &self.environment {
            let (name, value) = variable.split_once('=').context("a variable has a value")?;
            command.args(["--setenv", name, value]);
        }
        if let Some(emulator) = &self.emulator {
            command.arg("--ro-bind").arg(emulator).arg("/dev/emulator");
        }
        command.arg("--");
        if self.emulator.is_some() {
            command.arg("/dev/emulator");
        }
        command.args(&self.entrypoint).args(args);
        Ok(command)
    }
}

/// Starts the image; what was seen.
fn started(image: &Unpacked, kiln: &Path, version: &str) -> Result<String> {
    let run = |args: &[&str]| -> Result<std::process::Output> {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        image.command(&args, &BTreeMap::new())?.output().context("bwrap")
    };
    let said = run(&["version"])?;
    let text = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(
        text == format!("kiln {version}"),
        "{text:?} {}",
        String::from_utf8_lossy(&said.stderr)
    );
    let written = run(&["man", "/tmp/pages"])?;
    let refused = String::from_utf8_lossy(&written.stderr).into_owned();
    ensure!(refused.contains("Read-only file system"), "the root can be written to: {refused}");
    function(image)?;
    engine(image, kiln)?;
    let how = if image.emulator.is_some() { ", emulated" } else { "" };
    Ok(format!(
        "{text} as {} on a read-only root{how}: function, webhook and downstream work",
        image.user
    ))
}

/// Gives the image what it gets as a function, on standard input and without arguments.
fn function(image: &Unpacked) -> Result<()> {
    let mut command = image.command(&[], &BTreeMap::new())?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("bwrap")?;
    let mut stdin = child.stdin.take().context("standard input is piped")?;
    stdin.write_all(RESOURCE_LIST.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let list = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && list.contains(LABELLED),
        "the image is not a function: {list}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Lets `kiln run` in the image work on a sandbox that runs outside.
fn engine(image: &Unpacked, kiln: &Path) -> Result<()> {
    let cluster = ControlPlane::sandbox(kiln)?;
    let manifests = compile::output(kiln, &["install", "--no-workload", "--grant", "standard"])?;
    cluster.apply(&String::from_utf8(manifests)?)?;
    let port = free_port()?;
    let args = [
        "run".to_owned(),
        "--kubeconfig=/dev/kubeconfig".to_owned(),
        format!("--as-admission={ACCOUNT}-admission-controller"),
        format!("--as-controller={ACCOUNT}-background-controller"),
        format!("--listen=127.0.0.1:{port}"),
        format!("--webhook-url=https://127.0.0.1:{port}"),
    ];
    let files = BTreeMap::from([("/dev/kubeconfig", cluster.kubeconfig())]);
    let log = cluster.directory().join("engine.log");
    let engine = Watched::spawn(&image.command(&args, &files)?, &log)?;
    let wait = |what: &str, done: &dyn Fn() -> bool| -> Result<()> {
        let began = Instant::now();
        while !done() {
            if engine.has_ended() || began.elapsed() > PATIENCE {
                let log = fs::read_to_string(&log).unwrap_or_default();
                bail!("{}: {what} did not come; the engine said:\n{log}", image.arch);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    };
    let hook = "kyverno-policy-validating-webhook-cfg";
    wait("the webhook for policies", &|| {
        cluster.kubectl(&["get", "validatingwebhookconfiguration", hook]).is_ok()
    })?;
    // The API server may still be learning of the webhook.
    wait("the policy", &|| cluster.apply(POLICY).is_ok())?;
    let ready = [
        "get",
        "clusterpolicy",
        "from-image",
        "-o",
        "jsonpath={.status.conditions[?(@.type=='Ready')].status}",
    ];
    wait("the policy", &|| cluster.kubectl(&ready).is_ok_and(|status| status.trim() == "True"))?;
    cluster.kubectl(&["create", "namespace", "team-a"])?;
    let user = ["get", "configmap", "generated", "-n", "team-a", "-o", "jsonpath={.data.user}"];
    // Only the admission request knows the user.
    wait("the downstream", &|| cluster.kubectl(&user).is_ok_and(|user| !user.trim().is_empty()))
}
