//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/gotemplate.rs"]
mod gotemplate;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_gotemplate_pass() {
    replay::replay("gotemplate", gotemplate::check);
}
