#![no_main]

#[path = "../checks/kyverno_policy.rs"]
mod kyverno_policy;

libfuzzer_sys::fuzz_target!(|input: &[u8]| kyverno_policy::check(input));
