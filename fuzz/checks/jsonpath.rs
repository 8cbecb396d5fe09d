//! KubeMod's expressions: first line the data, the rest the expression.

use kiln_jsonpath::{Expression, JsonPathLimits};
use kiln_value::{Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    let limits = JsonPathLimits { steps: 100_000, ..JsonPathLimits::default() };
    match Expression::compile(source) {
        Err(error) => assert!(source.get(error.span()).is_some(), "the place is in the text"),
        Ok(expression) => {
            if let Err(error) = expression.evaluate(&data, &limits) {
                assert!(source.get(error.span()).is_some(), "the place is in the text");
            }
            let _ = expression.select(&data, &limits);
        }
    }
}
