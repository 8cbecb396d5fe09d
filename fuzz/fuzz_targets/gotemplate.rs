#![no_main]

#[path = "../checks/gotemplate.rs"]
mod gotemplate;

libfuzzer_sys::fuzz_target!(|input: &[u8]| gotemplate::check(input));
