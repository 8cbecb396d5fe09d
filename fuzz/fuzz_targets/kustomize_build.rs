#![no_main]

#[path = "../checks/kustomize_build.rs"]
mod kustomize_build;

libfuzzer_sys::fuzz_target!(|input: &[u8]| kustomize_build::check(input));
