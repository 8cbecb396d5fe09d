#![no_main]

#[path = "../checks/variables.rs"]
mod variables;

libfuzzer_sys::fuzz_target!(|input: &[u8]| variables::check(input));
