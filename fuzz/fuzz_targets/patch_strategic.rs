#![no_main]

#[path = "../checks/patch_strategic.rs"]
mod patch_strategic;

libfuzzer_sys::fuzz_target!(|input: &[u8]| patch_strategic::check(input));
