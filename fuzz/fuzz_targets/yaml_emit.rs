#![no_main]

#[path = "../checks/yaml_emit.rs"]
mod yaml_emit;

libfuzzer_sys::fuzz_target!(|input: &[u8]| yaml_emit::check(input));
