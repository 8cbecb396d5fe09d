#![no_main]

#[path = "../checks/yaml_rewrite.rs"]
mod yaml_rewrite;

libfuzzer_sys::fuzz_target!(|input: &[u8]| yaml_rewrite::check(input));
