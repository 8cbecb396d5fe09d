//! Expressions: first line the data, the rest the expression.

use kiln_jmespath::{Expression, JmesPathEnvironment, JmesPathLimits};
use kiln_value::{Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    match Expression::compile(source) {
        Err(error) => assert!(source.get(error.span()).is_some(), "the place is in the text"),
        Ok(expression) => {
            let _ = (expression.print_tree(), expression.roots(), expression.check());
            let limits =
                JmesPathLimits { steps: 100_000, bytes: 1 << 20, ..JmesPathLimits::default() };
            let environment = JmesPathEnvironment { limits, ..JmesPathEnvironment::default() };
            if let Err(error) = expression.search(&data, &environment) {
                assert!(source.get(error.span()).is_some(), "the place is in the text");
            }
        }
    }
}
