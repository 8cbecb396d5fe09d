//! What it leaves on disk, and what it does not touch.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Up;
use crate::harness::Folder;

/// A folder for temporary files, in one of a test.
pub(super) fn temporary(folder: &Folder) -> PathBuf {
    let path = folder.path().join("tmp");
    fs::create_dir_all(&path).unwrap();
    path
}

/// What is in a folder.
pub(super) fn names(path: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_early_end_leaves_nothing() {
    let folder = Folder::with(&[]);
    let temporary = temporary(&folder);
    let variables = [("TMPDIR", temporary.to_str().unwrap())];
    let mut child = folder.leave_running_with(&["up"], &variables);
    let began = Instant::now();
    while names(&temporary).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "no folder was made");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The folder is there, the sandbox is not yet.
    let inner = temporary.join(&names(&temporary)[0]);
    assert_eq!(mode(&inner), 0o700);
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(names(&temporary), Vec::<String>::new());
}

#[test]
fn an_error_leaves_nothing() {
    let folder = Folder::with(&[("state", "a file")]);
    let temporary = temporary(&folder);
    let variables = [("TMPDIR", temporary.to_str().unwrap())];
    let run = folder.kiln_with_variables(&["up", "--data", "state"], &variables);
    assert_eq!(run.code, 2);
    assert_eq!(names(&temporary), Vec::<String>::new());
}

#[test]
fn kubeconfigs_of_others_stay() {
    let folder = Folder::with(&[("config", "apiVersion: v1\nkind: Config\n")]);
    let run = folder.kiln(&["up", "--bare", "--kubeconfig", "config", "--", "true"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("config already exists, and was not written by kiln up"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("choose another --kubeconfig"), "{}", run.stderr);
    assert_eq!(folder.read("config"), "apiVersion: v1\nkind: Config\n");
    // Its own it writes again, for the user alone.
    for _ in 0..2 {
        let run = folder.kiln(&["up", "--bare", "--kubeconfig", "mine", "--", "true"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let mine = folder.path().join("mine");
        assert_eq!(mode(&mine), 0o600);
        fs::set_permissions(&mine, Permissions::from_mode(0o644)).unwrap();
    }
}

#[test]
fn a_kubeconfig_of_others_in_the_data_is_seen_before_anything_is_made() {
    let folder = Folder::with(&[("state/kubeconfig", "apiVersion: v1\nkind: Config\n")]);
    let run = folder.kiln(&["up", "--bare", "--data", "state", "--", "true"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("state/kubeconfig already exists, and was not written by kiln up"),
        "{}",
        run.stderr
    );
    assert_eq!(names(&folder.path().join("state")), ["kubeconfig"]);
}

#[test]
fn data_is_for_the_user_alone() {
    let folder = Folder::with(&[]);
    let run = folder.kiln(&["up", "--bare", "--data", "state", "--", "true"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for (name, wanted) in
        [("state", 0o700), ("state/objects.redb", 0o600), ("state/kubeconfig", 0o600)]
    {
        assert_eq!(mode(&folder.path().join(name)), wanted, "{name}");
    }
    // A folder that was there keeps its mode.
    fs::create_dir(folder.path().join("other")).unwrap();
    fs::set_permissions(folder.path().join("other"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(folder.kiln(&["up", "--bare", "--data", "other", "--", "true"]).code, 0);
    assert_eq!(mode(&folder.path().join("other")), 0o755);
}

#[test]
fn data_that_cannot_be_used_is_explained() {
    let folder = Folder::with(&[("file", "x"), ("broken/objects.redb", "this is not a database")]);
    let up = Up::start(&folder, &["--bare", "--data", "state"], "Ctrl-C");
    fs::create_dir(folder.path().join("closed")).unwrap();
    fs::set_permissions(folder.path().join("closed"), Permissions::from_mode(0o500)).unwrap();
    let mut cases = vec![
        ("state", "the data in state is in use by another process", "stop the other `kiln up`"),
        ("file", "file is not a directory", "give --data a directory"),
        (
            "broken",
            "broken/objects.redb cannot be read as the data of a sandbox",
            "delete the file",
        ),
    ];
    // Nothing is closed to the superuser.
    if fs::File::create(folder.path().join("closed/x")).is_err() {
        cases.push((
            "closed",
            "cannot write to the directory closed: permission denied",
            "that you may write to",
        ));
    }
    for (data, message, hint) in cases {
        let run = folder.kiln(&["up", "--bare", "--data", data, "--", "true"]);
        assert_eq!(run.code, 2, "{data}");
        assert!(run.stderr.contains(message), "{data}: {}", run.stderr);
        assert!(run.stderr.contains(hint), "{data}: {}", run.stderr);
    }
    let address = up.server.strip_prefix("https://").unwrap().to_owned();
    let run = folder.kiln(&["up", "--bare", "--listen", &address, "--", "true"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains(&format!("{address} is taken by another process")),
        "{}",
        run.stderr
    );
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
