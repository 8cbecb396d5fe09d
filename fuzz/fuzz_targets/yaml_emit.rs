//! Writes any JSON value as YAML and reads it back.
#![no_main]

use kiln_value::{KeyTable, Value, json};
use kiln_yaml::{ReadOptions, emit, read_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = json::parse_bytes(bytes, &mut KeyTable::new()) else { return };
    let written = emit(&value);
    let documents = read_bytes("written", written.as_bytes(), ReadOptions::kubernetes())
        .unwrap_or_else(|error| panic!("{error}\n{written}"));
    let again = documents.first().map_or(Value::Null, |document| document.value().clone());
    assert_eq!(emit(&again), written);
});
