//! `kiln run` without a cluster: what it says when there is none.

use crate::harness::Folder;

const NOBODY: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
     clusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\n\
     users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n";

#[test]
fn without_a_cluster_it_says_what_to_do() {
    let folder = Folder::with(&[("config", NOBODY), ("broken", "clusters: 7\n")]);
    for (args, expected) in [
        (&["--kubeconfig", "absent"][..], "cannot use the kubeconfig absent"),
        (&["--kubeconfig", "broken"], "cannot use the kubeconfig broken"),
        (&["--kubeconfig", "config", "--context", "other"], "cannot use the kubeconfig config"),
        (&["--kubeconfig", "config"], "cannot ask http://127.0.0.1:1/ what it serves"),
        (&["--kubeconfig", "config", "--as-controller", "a\nb"], "cannot be the name of a user"),
        (&["--log", "kiln_live=loud"], "--log \"kiln_live=loud\""),
        (&["--log", "foo"], "\"foo\" is no level"),
    ] {
        let args: Vec<&str> = ["run"].into_iter().chain(args.iter().copied()).collect();
        let run = folder.kiln(&args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
}

#[test]
fn only_known_parts_can_be_chosen() {
    let run = crate::harness::kiln(&["run", "--only", "everything"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("admission, controller"), "{}", run.stderr);
}
