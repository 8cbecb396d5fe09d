//! `kiln up … -- COMMAND`

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::{names, temporary};
use super::{SETTINGS, SHOP};
use crate::harness::Folder;

#[test]
fn the_exit_code_of_the_command_is_ours() {
    let folder = Folder::with(&[]);
    let temporary = temporary(&folder);
    let variables = [("TMPDIR", temporary.to_str().unwrap())];
    for (command, code) in [("exit 0", 0), ("exit 1", 1), ("exit 7", 7), ("kill -KILL $$", 137)] {
        let args = ["up", "--bare", "--", "sh", "-c", command];
        let run = folder.kiln_with_variables(&args, &variables);
        assert_eq!(run.code, code, "{command}");
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""), "{command}");
    }
    for (command, code, words) in [
        ("no-such-command", 127, "cannot run no-such-command: no such command"),
        ("/", 126, "cannot run /: permission denied"),
    ] {
        let run = folder.kiln_with_variables(&["up", "--bare", "--", command], &variables);
        assert_eq!(run.code, code, "{command}");
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    assert_eq!(names(&temporary), Vec::<String>::new());
}

#[test]
fn the_command_finds_the_sandbox_and_kiln() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS), ("shop.yaml", SHOP)]);
    let args =
        ["up", "rules.yaml", "--resource", "shop.yaml", "--", "kiln", "explain", "namespace/shop"];
    let run = folder.kiln(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        run.stdout,
        "v1/Namespace/shop\npolicy settings, rule make-settings\n  pass\n    v1/ConfigMap/shop/settings exists, created by this rule\n"
    );
    assert_eq!(run.stderr, "");
    // Options of the command are its own, and paths are from the root.
    let args = [
        "up",
        "--bare",
        "--kubeconfig",
        "config",
        "--",
        "sh",
        "-c",
        "echo \"$KUBECONFIG $0 $1\"",
        "--bare",
        "-x",
    ];
    let run = folder.kiln(&args);
    let config = std::fs::canonicalize(folder.path()).unwrap().join("config");
    assert_eq!(run.stdout, format!("{} --bare -x\n", config.display()));
}

/// Writes `begun`, and `told` on SIGTERM.
const WAITS: &str =
    "trap 'echo told > told; exit 3' TERM; echo > begun; while :; do sleep 0.1; done";

/// Runs a command that waits on a sandbox, and sends a signal to the sandbox when it has begun.
fn signalled(folder: &Folder, signal: Signal) -> ExitStatus {
    let temporary = temporary(folder);
    let variables = [("TMPDIR", temporary.to_str().unwrap())];
    let mut child =
        folder.leave_running_with(&["up", "--bare", "--", "sh", "-c", WAITS], &variables);
    while !folder.path().join("begun").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    child.wait().unwrap()
}

#[test]
fn the_command_hears_when_we_are_told_to_end() {
    let folder = Folder::with(&[]);
    assert_eq!(signalled(&folder, Signal::SIGTERM).code(), Some(3));
    assert_eq!(folder.read("told"), "told\n");
    assert_eq!(names(&temporary(&folder)), Vec::<String>::new());
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_is_told_to_end_when_we_are_killed() {
    let folder = Folder::with(&[]);
    assert_eq!(signalled(&folder, Signal::SIGKILL).code(), None);
    let began = Instant::now();
    while !folder.path().join("told").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "the command goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}
