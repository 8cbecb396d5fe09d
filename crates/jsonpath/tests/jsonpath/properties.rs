//! What holds for every expression and every value, and the messages about exceeded limits.

use kiln_jsonpath::{ErrorKind, Expression, JsonPathLimits};
use kiln_value::{Value, value};
use proptest::prelude::*;

fn limits() -> JsonPathLimits {
    JsonPathLimits { steps: 20_000, ..JsonPathLimits::default() }
}

fn expressions() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "$",
        "@",
        ".a",
        ".b",
        "..",
        ".*",
        "[*]",
        "[0]",
        "[1:2]",
        "[::-1]",
        "[?",
        "]",
        "(",
        ")",
        "==",
        "!=",
        " < ",
        "&&",
        "||",
        "!",
        "-",
        "+",
        " ** ",
        "=~",
        "\"a\"",
        "'x'",
        "1",
        "2.5",
        "true",
        "null",
        "length(",
        "isDefined(",
        ",",
        ":",
        " ? ",
        "??",
        "in",
        "{#: ",
        "}",
        "[",
        "#0",
        "date(",
        " ",
        "é",
        "\"",
        "//",
        "/*",
    ]);
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_panics_and_errors_have_a_place(source in expressions()) {
        let data = value!({"a": [{"b": 1, "a": "x"}, {"b": [1, 2]}, null], "b": {"a": {"b": "2"}}});
        let check = |error: &kiln_jsonpath::Error| {
            assert!(source.get(error.span()).is_some(), "{source:?} {error}: {:?}", error.span());
        };
        match Expression::compile(&source) {
            Err(error) => check(&error),
            Ok(expression) => {
                let first = expression.evaluate(&data, &limits());
                if let Err(error) = &first {
                    check(error);
                }
                let again = expression.evaluate(&data, &limits());
                prop_assert_eq!(format!("{first:?}"), format!("{again:?}"));
                let _ = expression.select(&data, &limits());
            }
        }
    }

    #[test]
    fn a_selection_leads_back_to_its_value(list in proptest::collection::vec(0..9_i64, 0..6)) {
        let data = value!({ "l": list });
        let all = Expression::compile("$.l[? @ > 3]").unwrap().select(&data, &limits()).unwrap();
        for selected in all {
            let index: usize = selected.keys[0].parse().unwrap();
            prop_assert_eq!(selected.item.to_value(), data.get("l").unwrap().index(index).unwrap().clone());
        }
    }
}

#[test]
fn what_wants_too_much_is_stopped() {
    let run = || {
        let wide: Value = (0..2000).map(|i| value!({"a": {"b": i}})).collect();
        let data = value!({ "l": wide.as_list().unwrap().iter().map(kiln_value::json::to_string).collect::<Vec<_>>() });
        let deep =
            (0..490).fold(value!(1), |inner, _| Value::Map([("a", inner)].into_iter().collect()));
        for (source, data, kind) in [
            ("(".repeat(100_000), &data, ErrorKind::Limit),
            ("[".repeat(100_000), &data, ErrorKind::Syntax),
            ("!".repeat(60_000), &data, ErrorKind::Limit),
            ("1".to_owned() + &" + 1".repeat(10_000), &data, ErrorKind::Limit),
            ("$".to_owned() + &"[?@".repeat(10_000), &data, ErrorKind::Limit),
            ("true".to_owned() + &" ? 1 : true".repeat(5_000), &data, ErrorKind::Limit),
            ("$..*..*..*..*".to_owned(), &deep, ErrorKind::Limit),
            ("$.l[? length($.l[? $.l[*] == @]) > 0]".to_owned(), &data, ErrorKind::Limit),
            ("x".repeat(100_000), &data, ErrorKind::Limit),
        ] {
            let result = Expression::compile(&source).and_then(|e| e.evaluate(data, &limits()));
            let error = result.expect_err(&source[..source.len().min(60)]);
            let shown = &source[..source.len().min(60)];
            assert!(error.kind() == kind || error.kind() == ErrorKind::Limit, "{shown}: {error}");
        }
        let found =
            Expression::compile("$..a").unwrap().evaluate(&deep, &JsonPathLimits::default());
        assert_eq!(found.unwrap().elements().unwrap().len(), 490);
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}
