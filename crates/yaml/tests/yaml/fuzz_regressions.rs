//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/yaml_emit.rs"]
mod yaml_emit;
#[path = "../../../../fuzz/checks/yaml_read.rs"]
mod yaml_read;
#[path = "../../../../fuzz/checks/yaml_rewrite.rs"]
mod yaml_rewrite;

#[test]
fn inputs_that_failed_yaml_emit_pass() {
    replay::replay("yaml_emit", yaml_emit::check);
}

#[test]
fn inputs_that_failed_yaml_read_pass() {
    replay::replay("yaml_read", yaml_read::check);
}

#[test]
fn inputs_that_failed_yaml_rewrite_pass() {
    replay::replay("yaml_rewrite", yaml_rewrite::check);
}
