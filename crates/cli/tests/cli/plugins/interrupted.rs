//! Builds that are asked to end while a plugin runs.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{CONFIG_MAP, Case, running};

/// Ignores the polite signal, and has a child in another session.
const STUBBORN: &str = "#!/bin/sh\ntrap '' TERM INT\nsetsid sleep 1000 &\necho $$ > here\nwhile :; do sleep 0.1; done\n";

fn start(case: &Case) -> Child {
    std::fs::create_dir_all(case.0.path().join("tmp")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["build", "app", "--enable-alpha-plugins"])
        .current_dir(case.0.path())
        .envs(case.variables())
        .env("TMPDIR", case.0.path().join("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < patience, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn neither_processes_nor_folders_are_left() {
    for (signal, number) in [("TERM", 15), ("INT", 2)] {
        let case = Case::of_team("generators", STUBBORN);
        let build = start(&case);
        let written = |name: &str| {
            std::fs::read_to_string(case.0.path().join("app").join(name)).unwrap_or_default()
        };
        wait_for("the start of the plugin", || written("here").ends_with('\n'));
        let folders = || std::fs::read_dir(case.0.path().join("tmp")).unwrap().count();
        assert_eq!(folders(), 1);
        let pid = build.id().to_string();
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success()
        );
        let output = build.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(folders(), 0, "folders are left after {signal}");
        assert_eq!(running(&case), [""; 0], "after {signal}");
    }
}

/// No process is left to clean up: the kernel has to.
#[test]
fn no_process_is_left_when_the_build_is_killed() {
    let case = Case::of_team("generators", STUBBORN);
    let mut build = start(&case);
    wait_for("the start of the plugin", || case.0.path().join("app/here").exists());
    wait_for("the start of its child", || {
        running(&case).iter().any(|words| words.starts_with("sleep 1000"))
    });
    build.kill().unwrap();
    build.wait().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    let mut left = running(&case);
    while !left.is_empty() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
        left = running(&case);
    }
    if Case::has_processes() {
        assert_eq!(left, [""; 0]);
    }
}

#[test]
fn containers_are_killed() {
    let runtime = "#!/bin/sh\ncase $1 in run) sleep 100 & echo \"$*\" > called; wait;;\nkill) echo \"$*\" > killed;;\nesac\n";
    let function = "apiVersion: example.com/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: 'container: {image: example.com/fn}'\n";
    let case = Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", function)],
    )
    .executable("bin/docker", runtime);
    let build = start(&case);
    let called = case.0.path().join("app/called");
    let name = || -> Option<String> {
        let called = std::fs::read_to_string(&called).ok()?;
        called.split_whitespace().find(|word| word.starts_with("kiln-")).map(str::to_owned)
    };
    wait_for("the start of the container", || name().is_some());
    Command::new("kill").arg(build.id().to_string()).status().unwrap();
    assert_eq!(build.wait_with_output().unwrap().status.signal(), Some(15));
    assert_eq!(case.0.read("killed"), format!("kill {}\n", name().unwrap()));
}
