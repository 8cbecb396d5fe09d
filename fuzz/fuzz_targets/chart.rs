#![no_main]

#[path = "../checks/chart.rs"]
mod chart;

libfuzzer_sys::fuzz_target!(|input: &[u8]| chart::check(input));
