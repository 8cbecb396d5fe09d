//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/cel.rs"]
mod cel;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_cel_pass() {
    replay::replay("cel", cel::check);
}
