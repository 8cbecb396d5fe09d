//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/jmespath.rs"]
mod jmespath;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_jmespath_pass() {
    replay::replay("jmespath", jmespath::check);
}
