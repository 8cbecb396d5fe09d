//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/pod_security.rs"]
mod pod_security;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_pod_security_pass() {
    replay::replay("pod_security", pod_security::check);
}
