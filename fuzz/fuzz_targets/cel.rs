#![no_main]

#[path = "../checks/cel.rs"]
mod cel;

libfuzzer_sys::fuzz_target!(|input: &[u8]| cel::check(input));
