//! The walk on a real cluster that `docs/start` shows, step by step on a real control plane.
//!
//! In its block, a line that starts with `$ ` is a command and the lines up to the next one are what
//! it prints. What a cluster does takes a moment, so a command that only asks is asked again until it prints that.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kiln_testkit::control_plane::{ControlPlane, Watched, free_port};
use kiln_testkit::project_root;

const PAGE: &str = "docs/start/real-cluster.md";

#[test]
fn the_walk_on_a_real_cluster_prints_what_is_shown() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let root = project_root();
    let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
    let block = page
        .split_once("```shell\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .map(|(block, _)| block)
        .expect("the page has the walk");
    let mut engine = None;
    let mut ran = 0;
    for step in block.split("$ ").filter(|step| !step.is_empty()) {
        let (command, wanted) = step.split_once('\n').unwrap();
        // The test has a cluster of its own.
        if command.contains("cargo xtask cluster") {
            continue;
        }
        ran += 1;
        if let Some(program) = command.strip_suffix(" > kiln.log 2>&1 &") {
            engine = Some(start(&cluster, &root, program));
            continue;
        }
        let begin = Instant::now();
        loop {
            let printed = run(&cluster, &root, command);
            if printed.trim() == wanted.trim() {
                break;
            }
            let asks = ["kubectl get ", "kiln explain "].iter().any(|ask| command.starts_with(ask));
            assert!(
                asks && begin.elapsed() < Duration::from_secs(60),
                "$ {command}\nprinted:\n{printed}\nwanted:\n{wanted}\nthe engine:\n{}",
                std::fs::read_to_string(cluster.directory().join("kiln.log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    assert!(engine.is_some() && ran >= 8, "the walk starts the engine and looks at what it does");
}

fn shell(cluster: &ControlPlane, root: &Path, command: &str) -> Command {
    let kiln = Path::new(env!("CARGO_BIN_EXE_kiln"));
    let kubectl = cluster.kubectl_path();
    let path = format!(
        "{}:{}:{}",
        kiln.parent().unwrap().display(),
        kubectl.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("({command}) 2>&1")).current_dir(root);
    shell.env("PATH", path).env("KUBECONFIG", cluster.kubeconfig()).env("NO_COLOR", "1");
    shell
}

fn run(cluster: &ControlPlane, root: &Path, command: &str) -> String {
    String::from_utf8(shell(cluster, root, command).output().unwrap().stdout).unwrap()
}

fn start(cluster: &ControlPlane, root: &Path, program: &str) -> Watched {
    // Another process may hold the port that the page shows.
    let port = free_port().unwrap();
    let program = program.replace("9443", &port.to_string());
    Watched::spawn(
        &shell(cluster, root, &format!("exec {program}")),
        &cluster.directory().join("kiln.log"),
    )
    .unwrap()
}
