//! KubeMod's expressions: first line the data, the rest the expression.
#![no_main]

use kiln_jsonpath::{Expression, Limits};
use kiln_value::{Value, json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    let limits = Limits { steps: 100_000, ..Limits::default() };
    match Expression::compile(source) {
        Err(error) => assert!(source.get(error.span()).is_some(), "the place is in the text"),
        Ok(expression) => {
            if let Err(error) = expression.evaluate(&data, &limits) {
                assert!(source.get(error.span()).is_some(), "the place is in the text");
            }
            let _ = expression.select(&data, &limits);
        }
    }
});
