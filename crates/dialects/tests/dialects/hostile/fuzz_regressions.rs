//! Inputs that fuzzing once failed on.

#[path = "../../../../../fuzz/checks/kyverno_policy.rs"]
mod kyverno_policy;
#[path = "../../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../../fuzz/checks/validating_policy.rs"]
mod validating_policy;

#[test]
fn inputs_that_failed_kyverno_policy_pass() {
    replay::replay("kyverno_policy", kyverno_policy::check);
}

#[test]
fn inputs_that_failed_validating_policy_pass() {
    replay::replay("validating_policy", validating_policy::check);
}
