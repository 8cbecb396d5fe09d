#![no_main]

#[path = "../checks/jmespath.rs"]
mod jmespath;

libfuzzer_sys::fuzz_target!(|input: &[u8]| jmespath::check(input));
