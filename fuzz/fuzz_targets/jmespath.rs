//! Expressions: first line the data, the rest the expression.
#![no_main]

use kiln_jmespath::{Environment, Expression, Limits};
use kiln_value::{Value, json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    match Expression::compile(source) {
        Err(error) => assert!(source.get(error.span()).is_some(), "the place is in the text"),
        Ok(expression) => {
            let _ = (expression.print_tree(), expression.roots(), expression.check());
            let limits = Limits { steps: 100_000, bytes: 1 << 20, ..Limits::default() };
            let environment = Environment { limits, ..Environment::default() };
            if let Err(error) = expression.search(&data, &environment) {
                assert!(source.get(error.span()).is_some(), "the place is in the text");
            }
        }
    }
});
