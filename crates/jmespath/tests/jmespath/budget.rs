//! Whatever is asked, it ends: within counted steps and bytes, on the 2 MB stack of a test thread.

use kiln_jmespath::{
    Error, ErrorKind, Expression, JmesPathEnvironment, JmesPathLimits, Meter, NoAmbientSources,
};
use kiln_value::{Value, value};

fn search(source: &str, data: &Value) -> Result<Value, Error> {
    Expression::compile(source)?.search(data, &JmesPathEnvironment::default())
}

/// The steps and bytes of a search, and how it ended.
fn cost(source: &str, data: &Value) -> (u64, u64, Result<Value, Error>) {
    let meter = Meter::new(&JmesPathLimits::default());
    let result =
        Expression::compile(source).unwrap().search_metered(data, &NoAmbientSources, &meter);
    (meter.steps_used(), meter.bytes_used(), result)
}

fn numbers(count: usize) -> Value {
    (0..count).map(|at| Value::from(at as i64)).collect()
}

#[test]
fn deep_sources_are_refused() {
    for (open, middle, close) in [
        ("[", "a", "]"),
        ("(", "a", ")"),
        ("!", "a", ""),
        ("&", "a", ""),
        ("a[?", "a", "]"),
        ("{a: ", "a", "}"),
        ("abs(", "a", ")"),
        ("a.*.", "a", ""),
        ("a[*].", "a", ""),
        ("[*]", "", ""),
        ("a[", "", ""),
        ("{a:", "", ""),
        ("a == ", "a", ""),
    ] {
        let source = open.repeat(50_000) + middle + &close.repeat(50_000);
        let error = Expression::compile(&source).unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::Limit | ErrorKind::Syntax), "{open}: {error}");
    }
}

#[test]
fn long_sources_are_fine_or_refused() {
    // Left-associative operators are not depth, only length.
    let data = value!({"a": true});
    for operator in [" || ", " && ", " | ", "."] {
        let source = vec!["a"; 20_000].join(operator);
        search(&source, &data).unwrap();
    }
    for source in ["a.".repeat(300_000) + "a", "a || ".repeat(200_000) + "a", "x".repeat(2 << 20)] {
        assert_eq!(Expression::compile(&source).unwrap_err().kind(), ErrorKind::Limit);
    }
    // A name or text of almost a megabyte is one token.
    let long = "x".repeat(1_000_000);
    assert!(search(&long, &value!({})).unwrap_err().is_not_found());
    assert_eq!(search(&format!("length('{long}')"), &Value::Null).unwrap(), value!(1_000_000));
}

#[test]
fn the_deepest_allowed_expression_runs_on_a_small_stack() {
    let deep = (0..499).fold(value!(1), |inner, _| Value::from(vec![inner]));
    let nested =
        |open: &str, close: &str, times: usize| open.repeat(times) + "@" + &close.repeat(times);
    for source in [
        nested("to_array(", ")", 60),
        nested("not_null(", ")", 60),
        nested("[?", "]", 100),
        nested("(", ")", 100) + " == @",
        nested("!", "", 100),
        nested("map(&", ", @)", 40),
        nested("[", "]", 60),
        "[*]".repeat(120),
        "[*][]".repeat(60),
    ] {
        if let Err(error) = Expression::compile(&source).and_then(|compiled| {
            let _ = compiled.print_tree();
            compiled.search(&deep, &JmesPathEnvironment::default())
        }) {
            assert!(
                matches!(error.kind(), ErrorKind::Limit | ErrorKind::Type),
                "{source}: {error}"
            );
        }
    }
}

#[test]
fn results_cannot_grow_without_bound() {
    // Each stage doubles, and memory would not show it.
    let doubling = vec!["[@, @]"; 60].join(" | ");
    for source in [
        doubling.clone(),
        format!("to_string({doubling})"),
        format!("({doubling}) == ({doubling})"),
        vec!["{a: @, b: @}"; 60].join(" | "),
        vec!["map(&[@, @], @)"; 40].join(" | "),
        vec!["[@, @] | []"; 40].join(" | "),
    ] {
        let data = value!([1, 2]);
        let kind = search(&source, &data).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Limit, "{source}");
    }
    // Nor can they nest without bound, however the stages are put together.
    let mut wrapping = "[@]".to_owned();
    for _ in 0..10 {
        wrapping = format!("({wrapping}) | ({wrapping})");
    }
    assert_eq!(Expression::compile(&wrapping).unwrap_err().kind(), ErrorKind::Limit);
    let pairs = vec!["to_array({a: @})"; 40].join(" | ");
    assert_eq!(Expression::compile(&pairs).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn large_data_costs_steps_in_proportion() {
    let list = numbers(10_000);
    for (source, most) in [
        ("[*]", 20_100),
        ("[?@ > `1`]", 60_100),
        ("map(&abs(@), @)", 40_100),
        ("sort(@)", 150_000),
        ("sort_by(@, &@)", 160_000),
        ("contains(@, `-1`)", 20_100),
        ("sum(@)", 10_100),
        ("reverse(@)", 10_100),
        ("max(@)", 10_100),
        ("to_string(@)", 10_000),
        ("[0]", 10),
        ("length(@)", 10),
    ] {
        let (steps, _, result) = cost(source, &list);
        result.unwrap();
        assert!(steps <= most, "{source}: {steps}");
    }
    let million = numbers(1_000_000);
    for source in ["map(&abs(@), @)", "[?@ > `1`]", "sort_by(@, &@)", "sort(@)", "[*].[@, @]"] {
        let (steps, _, result) = cost(source, &million);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Limit, "{source}");
        assert_eq!(steps, JmesPathLimits::default().steps, "{source}");
    }
}

#[test]
fn texts_cannot_grow_without_bound() {
    let long = "x".repeat(100_000);
    let data = value!({"long": long, "list": vec!["a"; 10_000]});
    for source in [
        "join(long, list)",
        "replace_all(long, '', long)",
        "regex_replace_all('x', long, long)",
        "regex_replace_all('x', long, '$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0')",
    ] {
        let (_, bytes, result) = cost(source, &data);
        let kind = result.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Limit | ErrorKind::Failed), "{source}: {kind:?}");
        assert!(bytes <= JmesPathLimits::default().bytes);
    }
    // A literal that is repeated for every element counts every time.
    let literal = format!("list[*].[`\"{}\"`]", "y".repeat(10_000));
    assert_eq!(search(&literal, &data).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn whatever_looks_at_text_pays_by_its_length() {
    let text = "1".repeat(160_000);
    let tags: String = (0..9_000).map(|at| format!("%TAG !t{at}! tag:a\n")).collect();
    let same = text.clone();
    let data = value!({"t": text, "same": same, "tags": tags + "---\na: x\n"});
    for source in [
        "length(t)",
        "reverse(t)",
        "contains(t, 'x')",
        "starts_with(t, 'x')",
        "ends_with(t, 'x')",
        "to_upper(t)",
        "to_lower(t)",
        "trim(t, 'x')",
        "trim_prefix(t, '1')",
        "truncate(t, `100000`)",
        "split(t, 'x')",
        "replace_all(t, 'x', 'y')",
        "equal_fold(t, same)",
        "base64_encode(t)",
        "sha256(t)",
        "path_canonicalize(t)",
        "regex_match('x', t)",
        "pattern_match('*', t)",
        "parse_yaml(t)",
        "parse_yaml(tags)",
        "parse_json(join('', ['[', t, ']']))",
        "join('', [t])",
        "max([t])",
        "t == same",
    ] {
        let (steps, _, _) = cost(source, &data);
        assert!(steps >= 10_000, "{source}: {steps}");
    }
}

#[test]
fn sorting_pays_for_the_texts_that_it_compares() {
    // The elements share one text, so that memory would not show it.
    let element = value!({"t": "x".repeat(100_000)});
    let data: Value = (0..1_000).map(|_| element.clone()).collect();
    for source in ["sort([*].t)", "sort_by(@, &t)", "max_by(@, &t)"] {
        assert_eq!(search(source, &data).unwrap_err().kind(), ErrorKind::Limit, "{source}");
    }
}

#[test]
fn patterns_are_no_trap() {
    let data = value!({"text": "a".repeat(50_000)});
    for source in [
        "regex_match('(a*)*b', text)",
        "regex_match('(a|aa)+$', text)",
        "regex_match('(.*)(.*)(.*)x', text)",
    ] {
        let (steps, _, result) = cost(source, &data);
        result.unwrap();
        assert!(steps < 10_000, "{source}: {steps}");
    }
    for source in ["regex_match('(a{1000}){1000}', 'a')", "regex_match('((a{99}){99}){99}', 'a')"] {
        assert_eq!(search(source, &data).unwrap_err().kind(), ErrorKind::Failed, "{source}");
    }
    let stars = "*a".repeat(2_000) + "b";
    let (steps, _, result) = cost(&format!("pattern_match('{stars}', text)"), &data);
    assert!(result.is_err() || steps <= JmesPathLimits::default().steps);
}

#[test]
fn hostile_documents_in_texts_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let aliases = vec![format!("*a{}", at - 1); 9].join(", ");
        bomb.push_str(&format!("a{at}: &a{at} [{aliases}]\n"));
    }
    let brackets = "[".repeat(100_000);
    let broken = "-----BEGIN A-----\n".repeat(20_000);
    let data = value!({"bomb": bomb, "brackets": brackets, "broken": broken});
    for source in
        ["parse_yaml(bomb)", "parse_json(brackets)", "parse_yaml(brackets)", "x509_decode(broken)"]
    {
        let error = search(source, &data).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Failed | ErrorKind::Limit), "{source}: {error}");
    }
}

#[test]
fn limits_can_be_chosen_and_shared() {
    let limits = JmesPathLimits { steps: 50, ..JmesPathLimits::default() };
    let expression = Expression::compile("[*]").unwrap();
    let environment = JmesPathEnvironment { limits, ..JmesPathEnvironment::default() };
    assert!(expression.search(&numbers(20), &environment).is_ok());
    assert_eq!(
        expression.search(&numbers(100), &environment).unwrap_err().kind(),
        ErrorKind::Limit
    );
    let shared = Meter::new(&limits);
    assert!(expression.search_metered(&numbers(20), &NoAmbientSources, &shared).is_ok());
    assert!(expression.search_metered(&numbers(20), &NoAmbientSources, &shared).is_ok());
    assert!(expression.search_metered(&numbers(20), &NoAmbientSources, &shared).is_err());
    let short = JmesPathLimits { source: 10, depth: 2, ..JmesPathLimits::default() };
    assert!(Expression::compile_within("a.b", &short).is_ok());
    assert!(Expression::compile_within("a.b.c.d.e.f", &short).is_err());
    assert!(Expression::compile_within("[[[a]]]", &short).is_err());
    // Nothing in the language catches a spent budget.
    let caught = Expression::compile("([*] || 'x')[] || 'y'").unwrap();
    assert!(caught.search(&numbers(100), &environment).is_err());
}
