#![no_main]

#[path = "../checks/text_types.rs"]
mod text_types;

libfuzzer_sys::fuzz_target!(|input: &[u8]| text_types::check(input));
