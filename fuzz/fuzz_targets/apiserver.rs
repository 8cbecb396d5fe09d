#![no_main]

#[path = "../checks/apiserver.rs"]
mod apiserver;

libfuzzer_sys::fuzz_target!(|input: &[u8]| apiserver::check(input));
