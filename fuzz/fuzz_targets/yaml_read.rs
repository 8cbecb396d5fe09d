//! Reads any bytes as YAML by both scalar tables: no panic, errors have places, and whatever was
//! read can be located and written.
#![no_main]

use kiln_yaml::{ReadOptions, emit, first_comment, read_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for options in [ReadOptions::kustomize_resource(), ReadOptions::kubernetes()] {
        match read_bytes("input", bytes, options) {
            Err(error) => assert!(error.place.is_some(), "{error}"),
            Ok(documents) => {
                for document in documents {
                    let _ = (document.places(), first_comment(document.source()));
                    emit(document.value());
                }
            }
        }
    }
});
