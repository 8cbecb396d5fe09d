//! Writes any JSON value as YAML and reads it back.

use kiln_value::{KeyTable, Value, json};
use kiln_yaml::{ReadOptions, emit, read_bytes};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(value) = json::parse_bytes(bytes, &mut KeyTable::new()) else { return };
    let written = emit(&value);
    let documents = read_bytes("written", written.as_bytes(), ReadOptions::kubernetes())
        .unwrap_or_else(|error| panic!("{error}\n{written}"));
    let again = documents.first().map_or(Value::Null, |document| document.value().clone());
    assert_eq!(emit(&again), written);
}
