//! `kiln run` without a cluster: what no transcript can show.

use crate::harness::Folder;

const NOBODY: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
     clusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\n\
     users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n";

#[test]
fn a_user_name_with_a_line_break_is_refused() {
    let folder = Folder::with(&[("config", NOBODY)]);
    let run = folder.kiln(&["run", "--kubeconfig", "config", "--as-controller", "a\nb"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert!(run.stderr.contains("cannot be the name of a user"), "{}", run.stderr);
}
