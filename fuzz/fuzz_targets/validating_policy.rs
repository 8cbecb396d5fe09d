#![no_main]

#[path = "../checks/validating_policy.rs"]
mod validating_policy;

libfuzzer_sys::fuzz_target!(|input: &[u8]| validating_policy::check(input));
