#![no_main]

#[path = "../checks/patch_json.rs"]
mod patch_json;

libfuzzer_sys::fuzz_target!(|input: &[u8]| patch_json::check(input));
