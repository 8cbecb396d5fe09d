//! Reads any bytes as YAML by both scalar tables: no panic, errors have places, and whatever was
//! read can be located and written.

use kiln_yaml::{ReadOptions, emit, first_comment, read_bytes};

pub(crate) fn check(bytes: &[u8]) {
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
}
