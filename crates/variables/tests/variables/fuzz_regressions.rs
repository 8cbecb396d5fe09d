//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/variables.rs"]
mod variables;

#[test]
fn inputs_that_failed_variables_pass() {
    replay::replay("variables", variables::check);
}
