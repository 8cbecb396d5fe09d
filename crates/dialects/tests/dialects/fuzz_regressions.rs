//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/kyverno_policy.rs"]
mod kyverno_policy;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_kyverno_policy_pass() {
    replay::replay("kyverno_policy", kyverno_policy::check);
}
