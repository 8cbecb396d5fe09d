#![no_main]

#[path = "../checks/suite.rs"]
mod suite;

libfuzzer_sys::fuzz_target!(|input: &[u8]| suite::check(input));
