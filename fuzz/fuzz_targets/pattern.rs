#![no_main]

#[path = "../checks/pattern.rs"]
mod pattern;

libfuzzer_sys::fuzz_target!(|input: &[u8]| pattern::check(input));
