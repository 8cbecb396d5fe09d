//! The dialect against the reference crate, where both speak the standard language.

use kiln_jmespath::{Expression, JmesPathEnvironment};
use kiln_value::{Number, Value, json};
use proptest::prelude::*;

/// Expressions over objects that all have the keys `a`, `b` and `c`, so that none is ever missing.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "@",
        "a.b",
        "b[0]",
        "`1`",
        "`-2`",
        "`null`",
        "`true`",
        "'x'",
        "`[3, 1, 2]`",
        "`{\"a\": 1, \"b\": [1, [2]], \"c\": \"x\"}`",
        "`[\"q\", \"p\"]`",
        "`[]`",
        "`\"\"`",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let name = prop::sample::select(vec!["a", "b", "c"]);
        let postfix = prop::sample::select(vec![
            "[0]",
            "[-1]",
            "[1:]",
            "[::-1]",
            "[:2].a",
            "[*]",
            "[*].b",
            "[]",
            "[].a",
            ".*",
            ".*.c",
            ".a",
            ".b",
            "[?a]",
            "[?a > `0`].b",
            "[?@ == `1`]",
            "[?!b]",
            " | a",
            " | [0]",
        ]);
        let binary =
            prop::sample::select(vec![" || ", " && ", " == ", " != ", " < ", " >= ", " | "]);
        let unary = prop::sample::select(vec![
            "length",
            "keys",
            "values",
            "type",
            "to_array",
            "reverse",
            "sort",
            "max",
            "min",
            "abs",
            "floor",
            "ceil",
            "not_null",
            "to_number",
        ]);
        let by = prop::sample::select(vec!["sort_by", "max_by", "min_by"]);
        prop_oneof![
            (inner.clone(), postfix).prop_map(|(x, p)| format!("{x}{p}")),
            inner.clone().prop_map(|x| format!("({x})")),
            inner.clone().prop_map(|x| format!("!({x})")),
            (inner.clone(), binary, inner.clone()).prop_map(|(x, op, y)| format!("{x}{op}{y}")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("[{x}, {y}]")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(x, y, z)| format!("{{a: {x}, b: {y}, c: {z}}}")),
            (unary, inner.clone()).prop_map(|(f, x)| format!("{f}({x})")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("contains({x}, {y})")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("not_null({x}, {y})")),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("map(&{x}, {y})")),
            (by, inner.clone(), name).prop_map(|(f, x, k)| format!("{f}({x}, &{k})")),
            inner.prop_map(|x| format!("join('-', {x})")),
        ]
    })
}

fn data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        prop::sample::select(vec!["", "x", "y", "zé"]).prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| object(a, b, c)),
        ]
    });
    (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| object(a, b, c))
}

fn object(a: Value, b: Value, c: Value) -> Value {
    Value::Map([("a", a), ("b", b), ("c", c)].into_iter().collect())
}

/// All numbers as floats, so that 1 and 1.0 are alike.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(n) => Value::Number(Number::Float(n.as_f64())),
        Value::List(list) => list.iter().map(floats).collect(),
        Value::Map(map) => Value::Map(map.iter().map(|(k, v)| (k.clone(), floats(v))).collect()),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_standard(source in expression(), data in data()) {
        let ours = Expression::compile(&source)
            .and_then(|compiled| compiled.search(&data, &JmesPathEnvironment::default()));
        let json: serde_json::Value = serde_json::from_str(&json::to_string(&data)).unwrap();
        let theirs = jmespath::compile(&source).and_then(|compiled| compiled.search(&json));
        match (ours, theirs) {
            // go-jmespath: what follows `.*.name` is no longer part of the projection.
            (Ok(_), Ok(_)) if source.contains(".*") => {}
            (Ok(ours), Ok(theirs)) => {
                let theirs = json::parse(&theirs.to_string()).unwrap();
                prop_assert_eq!(floats(&ours), floats(&theirs), "{}", source);
            }
            (Err(_), Err(_)) => {}
            // Kyverno: an error on the left side of a filter, `[]` or `.*` is null, and with a single
            // element there is nothing to compare by.
            (Ok(_), Err(_)) if ["[?", "[]", ".*", "_by("].iter().any(|p| source.contains(p)) => {}
            (ours, theirs) => prop_assert!(false, "{source}: {ours:?} but {theirs:?}"),
        }
    }

    #[test]
    fn any_text_compiles_or_is_refused_at_a_place_in_it(source in "\\PC{0,40}|[a-c.*@&|\\[\\]?(){}'`\"!=<>,:0-9 -]{0,24}") {
        match Expression::compile(&source) {
            Ok(compiled) => {
                let _ = (compiled.print_tree(), compiled.roots(), compiled.check());
                let _ = compiled.search(&Value::map(), &JmesPathEnvironment::default());
            }
            Err(error) => {
                prop_assert!(source.get(error.span()).is_some(), "{:?} in {source:?}", error.span());
            }
        }
    }
}
