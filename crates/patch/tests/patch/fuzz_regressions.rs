//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/patch_json.rs"]
mod patch_json;
#[path = "../../../../fuzz/checks/patch_strategic.rs"]
mod patch_strategic;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_patch_json_pass() {
    replay::replay("patch_json", patch_json::check);
}

#[test]
fn inputs_that_failed_patch_strategic_pass() {
    replay::replay("patch_strategic", patch_strategic::check);
}
