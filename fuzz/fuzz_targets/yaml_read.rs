#![no_main]

#[path = "../checks/yaml_read.rs"]
mod yaml_read;

libfuzzer_sys::fuzz_target!(|input: &[u8]| yaml_read::check(input));
