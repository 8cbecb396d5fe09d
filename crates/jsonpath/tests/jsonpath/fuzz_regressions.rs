//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/jsonpath.rs"]
mod jsonpath;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_jsonpath_pass() {
    replay::replay("jsonpath", jsonpath::check);
}
