//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/suite.rs"]
mod suite;

#[test]
fn inputs_that_failed_suite_pass() {
    replay::replay("suite", suite::check);
}
