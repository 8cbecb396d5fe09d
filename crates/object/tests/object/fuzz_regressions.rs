//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/text_types.rs"]
mod text_types;

#[test]
fn inputs_that_failed_text_types_pass() {
    replay::replay("text_types", text_types::check);
}
