//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/apiserver.rs"]
mod apiserver;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_apiserver_pass() {
    replay::replay("apiserver", apiserver::check);
}
