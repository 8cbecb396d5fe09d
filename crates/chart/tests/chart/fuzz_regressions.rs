//! Inputs that fuzzing once failed on.

#[path = "../../../../fuzz/checks/chart.rs"]
mod chart;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_that_failed_chart_pass() {
    replay::replay("chart", chart::check);
}
