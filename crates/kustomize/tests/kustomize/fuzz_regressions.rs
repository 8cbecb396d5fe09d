//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/kustomize_build.rs"]
mod kustomize_build;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_kustomize_build_pass() {
    replay::replay("kustomize_build", kustomize_build::check);
}
