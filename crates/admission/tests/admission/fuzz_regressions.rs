//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/admission_review.rs"]
mod admission_review;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_admission_review_pass() {
    replay::replay("admission_review", admission_review::check);
}
