#![no_main]

#[path = "../checks/pod_security.rs"]
mod pod_security;

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_security::check(input));
