#![no_main]

#[path = "../checks/jsonpath.rs"]
mod jsonpath;

libfuzzer_sys::fuzz_target!(|input: &[u8]| jsonpath::check(input));
