//! Starting the binary in a folder of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use kiln_testkit::control_plane::ControlPlane;
use tempfile::TempDir;

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A folder with files in which commands run.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// A folder with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Starts `kiln` here with these arguments, to be ended by the caller.
    pub(crate) fn leave_running(&self, args: &[&str]) -> std::process::Child {
        self.leave_running_with(args, &[])
    }

    /// Starts `kiln` here with these variables set, to be ended by the caller.
    pub(crate) fn leave_running_with(
        &self,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> std::process::Child {
        Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(args)
            .current_dir(self.0.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Runs `kiln` here with these arguments and nothing on standard input.
    pub(crate) fn kiln(&self, args: &[&str]) -> Run {
        self.kiln_with_input(args, b"")
    }

    /// Runs `kiln` here with these bytes on standard input.
    pub(crate) fn kiln_with_input(&self, args: &[&str], input: &[u8]) -> Run {
        self.start(args, &[], input)
    }

    /// Runs `kiln` here with these variables set.
    pub(crate) fn kiln_with_variables(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        self.start(args, variables, b"")
    }

    fn start(&self, args: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(args)
            .current_dir(self.0.path())
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command may end before it has read everything; that is its right.
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        Run {
            code: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs `kiln` in an empty folder.
pub(crate) fn kiln(args: &[&str]) -> Run {
    Folder::with(&[]).kiln(args)
}

/// A policy that makes a ConfigMap in each Namespace of a team.
pub(crate) const SETTINGS_POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: settings}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace], names: ['team-*']}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: '{{request.object.metadata.name}}'
      data: {data: {mode: quiet}}
";

/// Applies what `kiln install` prints, and waits until its kinds are served.
pub(crate) fn install(cluster: &ControlPlane, folder: &Folder, more: &[&str]) {
    let printed = folder.kiln(&[&["install", "--no-workload"], more].concat());
    cluster.apply(&printed.stdout).unwrap();
    let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    cluster.kubectl(&wait).unwrap();
}
