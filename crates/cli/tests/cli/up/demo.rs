//! `kiln up --demo`

use std::io::{BufRead as _, BufReader};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::{names, temporary};
use crate::harness::Folder;

/// A line without what differs from run to run: times, the port, the name of the folder.
fn steady(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        if word.starts_with("https://127.0.0.1:") {
            "https://127.0.0.1:PORT".to_owned()
        } else if let Some(path) = word.strip_prefix("KUBECONFIG=") {
            let ends = path.rsplit('/').next().unwrap_or_default();
            format!("KUBECONFIG=…/{ends}")
        } else if !word.is_empty() && word.chars().all(|c| c.is_ascii_digit()) {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

const NARRATION: &str = "\
demo: ClusterPolicy closed-namespaces generates a deny-all NetworkPolicy for each new namespace
demo: created namespace shop
demo: NetworkPolicy shop/default-deny was generated after N ms
demo: deleted NetworkPolicy shop/default-deny
demo: Kiln created it again after N ms
";

#[test]
fn the_demo_tells_what_happens_and_leaves_nothing() {
    let folder = Folder::with(&[]);
    let temporary = temporary(&folder);
    let variables = [("TMPDIR", temporary.to_str().unwrap())];
    let mut child = folder.leave_running_with(&["up", "--demo"], &variables);
    let mut printed = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while !printed.contains("Ctrl-C") {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended after\n{printed}");
        printed.push_str(&steady(&line));
    }
    assert_eq!(
        printed,
        format!(
            "kiln up: https://127.0.0.1:PORT is ready after N ms\n  \
             export KUBECONFIG=…/kubeconfig\n  \
             kubectl get all --all-namespaces\n  \
             kubectl create namespace team-a\n\
             {NARRATION}\
             Ctrl-C stops it. What it does not do: kiln up --limits\n"
        )
    );
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(names(&temporary), Vec::<String>::new());
}

#[test]
fn what_is_there_from_an_earlier_time_is_told_as_that() {
    let folder = Folder::with(&[]);
    let demo = || {
        let run = folder.kiln(&["up", "--demo", "--data", "state", "--", "true"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.split_inclusive('\n').map(steady).collect::<String>()
    };
    assert_eq!(demo(), NARRATION);
    assert_eq!(
        demo(),
        "\
demo: ClusterPolicy closed-namespaces generates a deny-all NetworkPolicy for each new namespace
demo: the namespace shop already exists, with NetworkPolicy shop/default-deny
demo: deleted NetworkPolicy shop/default-deny
demo: Kiln created it again after N ms
"
    );
}

#[test]
fn a_namespace_of_that_name_may_be_there() {
    let shop = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let folder = Folder::with(&[("shop.yaml", shop)]);
    let run = folder.kiln(&["up", "--demo", "--resource", "shop.yaml", "--", "true"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("demo: the namespace shop already exists"), "{}", run.stdout);
}

#[test]
fn with_a_command_the_demo_ends_by_itself() {
    let folder = Folder::with(&[]);
    let run = folder.kiln(&["up", "--demo", "--", "kiln", "explain", "namespace/shop"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let printed: String = run.stdout.split_inclusive('\n').map(steady).collect();
    let explained = "\
v1/Namespace/shop
policy closed-namespaces, rule deny-by-default
  pass
    networking.k8s.io/v1/NetworkPolicy/shop/default-deny exists, created by this rule
";
    assert_eq!(printed, format!("{NARRATION}{explained}"));
    // The README shows it, times aside.
    let readme = std::fs::read_to_string(kiln_testkit::project_root().join("README.md")).unwrap();
    let shown = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(shown.split_inclusive('\n').map(steady).collect::<String>(), printed);
}
