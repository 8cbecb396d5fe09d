//! Plugins of `kiln build`: real executables, well-behaved and otherwise.

mod containers;
mod escapes;
mod examples;
mod exec;
mod fn_run;
mod groups;
mod interrupted;
mod misbehaving;
mod sandbox;

use std::os::unix::fs::PermissionsExt;

use crate::harness::{Folder, Run};

/// The place for the plugin of the group `team.example.com`.
const TEAM: &str = "config/kustomize/plugins/team.example.com";

/// A virtual resource of that group, as people write them down.
const APP: &str = "groupVersion: team.example.com/v1beta1\nkind: CommonApp\ngenerate:\n  image: foo\n  size: big\n";

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n";

/// A folder with a kustomization in `app` and plugins in `config`.
struct Case(Folder);

impl Case {
    fn new(kustomization: &str, files: &[(&str, &str)]) -> Self {
        let case = Case(Folder::with(&[("app/kustomization.yaml", kustomization)]));
        case.0.write("config/.keep", "");
        case.0.write("home/.keep", "");
        for (name, text) in files {
            case.0.write(name, text);
        }
        case
    }

    /// A kustomization with one ConfigMap and an entry for the group `team.example.com`.
    fn of_team(field: &str, script: &str) -> Self {
        Case::new(
            &format!("resources: [a.yaml]\n{field}: [app.yaml]\n"),
            &[("app/a.yaml", CONFIG_MAP), ("app/app.yaml", APP)],
        )
        .executable(TEAM, script)
    }

    fn executable(self, name: &str, script: &str) -> Self {
        self.0.write(name, script);
        let path = self.0.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Builds `app` with plugins allowed.
    fn build(&self, flags: &[&str]) -> Run {
        let mut args = vec!["build", "app", "--enable-alpha-plugins"];
        args.extend(flags);
        self.kiln(&args)
    }

    fn kiln(&self, args: &[&str]) -> Run {
        let variables = self.variables();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
        self.0.kiln_with_variables(args, &variables)
    }

    /// The environment of a build here.
    fn variables(&self) -> [(&'static str, String); 5] {
        let root = self.0.path().display();
        let path = std::env::var("PATH").unwrap_or_default();
        [
            ("XDG_CONFIG_HOME", format!("{root}/config")),
            ("HOME", format!("{root}/home")),
            ("KUSTOMIZE_PLUGIN_HOME", format!("{root}/exec")),
            ("PATH", format!("{root}/bin:{path}")),
            ("NO_COLOR", "1".to_owned()),
        ]
    }

    /// Whether this system lets a plugin have a world of processes of its own.
    fn has_processes() -> bool {
        let can = |words: &[&str]| {
            let words = [words, &["--mount", "--pid", "--fork", "true"]].concat();
            let status = std::process::Command::new("unshare")
                .args(words)
                .stderr(std::process::Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let has = can(&[]) || can(&["--user", "--map-root-user"]);
        if !has {
            kiln_testkit::skip(
                "this user can make no namespace for processes",
                "run the tests as a superuser, or where user namespaces are allowed",
            );
        }
        has
    }

    /// What a build prints.
    fn builds(&self, flags: &[&str]) -> String {
        let run = self.build(flags);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    }

    /// What a build that fails says.
    fn fails(&self, flags: &[&str]) -> String {
        let run = self.build(flags);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
        run.stderr
    }
}

/// What was said besides what this system lacks for the sandbox.
fn besides_landlock(said: &str) -> String {
    let warning = "warning: this system cannot keep plugins from";
    said.lines().filter(|line| !line.starts_with(warning)).collect::<Vec<_>>().join("\n")
}

/// Whether a process runs.
fn is_there(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// What runs in the folder of the kustomization. In the sandbox, processes know each other by other numbers.
fn running(case: &Case) -> Vec<String> {
    let folder = case.0.path().canonicalize().unwrap().join("app");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let is_in = |place: std::path::PathBuf| place.starts_with(&folder);
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(is_in) {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&words).replace('\0', " "));
        }
    }
    found
}

#[track_caller]
fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}
