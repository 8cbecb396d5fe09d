//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/pattern.rs"]
mod pattern;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_pattern_pass() {
    replay::replay("pattern", pattern::check);
}
