//! Filling templates: results, errors with their places, limits.

use kiln_jmespath::JmesPathEnvironment;
use kiln_value::{Path, Value, value};
use kiln_variables::{
    ContextScope, Limit, Problem, SubstituteError, Substitution, SubstitutionLimits, Template,
    Usage,
};

fn fill_within(
    document: &Value,
    context: &Value,
    limits: SubstitutionLimits,
) -> (Result<Value, SubstituteError>, Usage) {
    let scope = ContextScope::new(context, JmesPathEnvironment::default());
    let mut substitution = Substitution::with_limits(&scope, limits);
    let result = substitution.run(&Template::compile(document));
    (result, substitution.usage())
}

fn fill(document: &Value, context: &Value) -> Result<Value, SubstituteError> {
    fill_within(document, context, SubstitutionLimits::default()).0
}

#[test]
fn text_takes_values_and_whole_text_takes_their_type() {
    let context = value!({"s": "v", "n": 3, "l": ["a"], "e": "", "é": "x", "path": "n"});
    for (text, wanted) in [
        ("{{ n }}", value!(3)),
        (" {{ n }}", value!(" 3")),
        ("{{ l }}!", value!("[\"a\"]!")),
        ("{{s}}{{n}}{{s}}", value!("v3v")),
        // The first pass leaves a text that is one variable.
        ("{{e}}{{n}}", value!(3)),
        ("{{ {{path}} }}", value!(3)),
        ("é{{s}}é{{s}}", value!("évév")),
        (r"\{{s}} {{s}}", value!("{{s}} v")),
        // A pass that ends with a shallow variable is the last one.
        ("{{- s }}{{ n }}", value!("v{{ n }}")),
        ("{{- n }}!", value!("3!")),
        ("{{ {a: {b: s}} }}", value!("{{ {a: {b: s}} }}")),
    ] {
        assert_eq!(fill(&value!(text), &context).unwrap(), wanted, "{text}");
    }
}

#[test]
fn data_is_never_read_again() {
    let context = value!({
        "evil": "{{ secret }}", "half": "{{ sec", "esc": r"\{{ secret }}", "slash": "\\",
        "deep": {"a": ["{{ secret }}"], "{{ secret }}": 1}, "secret": "s3cret", "ref": "$(/a)",
    });
    let document = value!({
        "whole": "{{ evil }}", "text": "x {{ evil }}", "two": "{{ half }}ret }}", "esc": "-{{ esc }}",
        "deep": "{{ deep }}", "printed": "{{ deep }}!", "a{{ evil }}": "{{ ref }} $(/whole)",
        "nested": "{{ length('{{ evil }}') }}", "slash": "{{ slash }}{{ secret }}",
    });
    let wanted = value!({
        "whole": "{{ secret }}", "text": "x {{ secret }}", "two": "{{ secret }}", "esc": r"-\{{ secret }}",
        "deep": {"a": ["{{ secret }}"], "{{ secret }}": 1},
        "printed": r#"{"a":["{{ secret }}"],"{{ secret }}":1}!"#,
        "a{{ secret }}": "$(/a) {{ secret }}", "nested": 12, "slash": r"\s3cret",
    });
    assert_eq!(fill(&document, &context).unwrap(), wanted);
}

#[test]
fn what_holds_no_variables_is_shared() {
    let document = value!({"a": {"b": [1, "x", {"c": "}}"}]}, "d": {"e": "{{ n }}", "f": [1, 2]}});
    let filled = fill(&document, &value!({"n": [7]})).unwrap();
    assert!(filled.get("a").unwrap().same(document.get("a").unwrap()));
    assert!(filled.get_path(["d", "f"]).unwrap().same(document.get_path(["d", "f"]).unwrap()));
    assert_eq!(filled.get_path(["d", "e"]), Some(&value!([7])));

    let plain = document.get("a").unwrap();
    let (result, usage) = fill_within(plain, &value!({}), SubstitutionLimits::default());
    assert!(result.unwrap().same(plain));
    assert_eq!(usage, Usage::default());
    assert!(Template::compile(plain).is_plain());
}

#[test]
fn inserted_values_are_shared() {
    let context = value!({"big": {"x": [1, 2, 3]}});
    let filled = fill(&value!({"a": "{{ big }}", "b": ["{{ big.x }}"]}), &context).unwrap();
    assert!(filled.get("a").unwrap().same(context.get("big").unwrap()));
}

#[test]
fn keys_are_filled_and_must_stay_keys() {
    let context = value!({"s": "v", "n": 3, "null": null});
    let filled =
        fill(&value!({"x": 0, "{{s}}": "{{n}}", "{{ \"null\" }}": 1, r"\{{s}}": 2}), &context);
    assert_eq!(filled.unwrap(), value!({"x": 0, "v": 3, "{{ \"null\" }}": 1, "{{s}}": 2}));

    let error = fill(&value!({"a": {"{{n}}": 1}}), &context).unwrap_err();
    assert!(matches!(error.problem, Problem::KeyNotText("number")));
    assert_eq!(
        error.to_string(),
        "cannot rename the key \"{{n}}\" in a key of a: a key must be a string, and this is a number"
    );
    let error = fill(&value!({"v": 1, "{{s}}": 2}), &context).unwrap_err();
    assert!(matches!(error.problem, Problem::DuplicateKey(key) if key == "v"));
}

#[test]
fn errors_say_where_and_what_to_do() {
    let context = value!({"m": {"a": 1}, "inner": "zz"});
    let document = |text: &str| value!({"spec": {"list": [text]}});
    for (text, message, span, hint) in [
        ("x {{ m.b }}", "cannot resolve {{ m.b }} at spec.list[0]: no key \"b\"", Some("b"), None),
        (
            "{{ m.{{ inner }} }}",
            "cannot resolve {{ m.zz }} at spec.list[0]: no key \"zz\"",
            Some("{{ m.{{ inner }} }}"),
            None,
        ),
        (
            "a {{  }}",
            "cannot resolve {{ }} at spec.list[0]: the expression is empty",
            Some("{{  }}"),
            Some(r"write an expression between the braces, or \{{ for plain braces"),
        ),
        (
            "echo $(HOME)",
            "cannot resolve $(HOME) at spec.list[0]: there is nothing at this place of the document",
            Some("$(HOME)"),
            Some(r"write \$(HOME) to keep it as text"),
        ),
    ] {
        let error = fill(&document(text), &context).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert_eq!(error.span.clone().map(|span| &text[span]), span, "{text}");
        match hint {
            Some(hint) => assert_eq!(error.hint().as_deref(), Some(hint)),
            None => assert!(error.hint().is_some(), "{text}"),
        }
    }
    let key = fill(&value!({"a": {"k{{ zz }}": 1}}), &context).unwrap_err();
    assert!(key.to_string().starts_with("cannot resolve {{ zz }} in a key of a: "), "{key}");
}

#[test]
fn references_are_resolved_before_variables() {
    let context = value!({"v": "{{ x }} $(/a)"});
    let document = value!({"a": "$(/b)!", "b": "{{ v }}", "c": "$(../a)"});
    let filled = fill(&document, &context).unwrap();
    // Each reference brings in the text as written, and is not followed further.
    assert_eq!(filled, value!({"a": "{{ x }} $(/a)!", "b": "{{ x }} $(/a)", "c": "$(/b)!"}));
    let template = Template::compile(&value!({"a": "$(HOME)"}));
    assert!(template.check_references().is_err() && !template.is_plain());
}

#[test]
fn a_part_knows_its_place() {
    let context = value!({"request": {"object": {"spec": {"n": 5}}}});
    let scope = ContextScope::new(&context, JmesPathEnvironment::default());
    let place: Path = ["mutate", "patchStrategicMerge"].into_iter().collect();
    let template = Template::compile_part(&value!({"spec": {"n": "{{@}}", "m": "{{zz}}"}}), &place);
    let error = Substitution::new(&scope).run(&template).unwrap_err();
    assert_eq!(error.path.to_string(), "mutate.patchStrategicMerge.spec.m");
    let template = Template::compile_part(&value!({"spec": {"n": "{{@}}"}}), &place);
    let filled = Substitution::new(&scope).run(&template).unwrap();
    assert_eq!(filled, value!({"spec": {"n": 5}}));
}

#[test]
fn templates_list_their_variables() {
    let template = Template::compile(&value!({
        "a": "x {{ m.{{ k }} }}{{- v }}", "k{{ w }}": ["{{ {a: {b: c}} }}", "plain"], "r": "$(/s)", "s": "{{ t }}",
    }));
    let listed: Vec<String> = template
        .variables()
        .iter()
        .map(|v| {
            let key = if v.in_key { "key of " } else { "" };
            let marks =
                format!("{}{}", if v.nested { "N" } else { "" }, if v.shallow { "-" } else { "" });
            format!("{key}{} {:?} {}{marks}", v.path, v.span, v.expression)
        })
        .collect();
    assert_eq!(
        listed,
        [
            "a Some(7..14) k",
            "a Some(17..25) v-",
            "a Some(2..17) m.{{ k }}N",
            "key of  Some(1..8) w",
            "r None t",
            "s Some(0..7) t",
        ]
    );
    let lookalikes = template.lookalikes();
    assert_eq!(lookalikes.len(), 1);
    assert_eq!(lookalikes[0].text, "{{ {a: {b: c}} }}");
}

#[test]
fn deleting_means_the_old_object() {
    let document = value!(["{{ request.object.x }}", "{{ 'request.object' }}", "{{@}}"]);
    let context =
        value!({"request": {"operation": "DELETE", "object": null, "oldObject": {"x": 1}}});
    let wanted = value!([1, "request.oldObject", {"x": 1}]);
    assert_eq!(fill(&document, &context).unwrap(), wanted);
}

fn limit(document: &Value, context: &Value, limits: SubstitutionLimits) -> Option<Limit> {
    match fill_within(document, context, limits).0.map_err(|error| error.problem) {
        Err(Problem::Limit(limit)) => Some(limit),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

#[test]
fn variables_inside_variables_are_limited() {
    let nested =
        |depth: usize| value!("{{ to_string(".repeat(depth) + "'x'" + &") }}".repeat(depth));
    // Each level pastes its result without quotes, so it is looked up as a name.
    let context = value!({"x": "x"});
    assert_eq!(fill(&nested(1), &context).unwrap(), value!("x"));
    assert_eq!(limit(&nested(64), &context, SubstitutionLimits::default()), None);
    assert_eq!(
        limit(&nested(65), &context, SubstitutionLimits::default()),
        Some(Limit::Rounds(64))
    );
    assert_eq!(
        limit(&nested(5_000), &context, SubstitutionLimits::default()),
        Some(Limit::Rounds(64))
    );
}

#[test]
fn the_size_of_results_is_limited_and_counted() {
    let context = value!({"kb": "x".repeat(1000), "list": ["ab", {"c": "de"}]});
    let (_, usage) = fill_within(&value!("12{{ kb }}34"), &context, SubstitutionLimits::default());
    assert_eq!(usage, Usage { queries: 1, bytes: 12 + 1000 });
    let (_, usage) =
        fill_within(&value!(["{{ list }}", "{{ kb }}"]), &context, SubstitutionLimits::default());
    // Two bytes for the list, two for the map, and the text in them.
    assert_eq!(usage, Usage { queries: 2, bytes: 2 + 2 + 2 + 1 + 2 + 1000 });

    let limits = SubstitutionLimits { bytes: 10_000, ..SubstitutionLimits::default() };
    assert_eq!(limit(&value!("{{ kb }} ".repeat(9)), &context, limits), None);
    assert_eq!(
        limit(&value!("{{ kb }} ".repeat(10)), &context, limits),
        Some(Limit::Bytes(10_000))
    );
    let whole = |count: usize| Value::from(vec!["{{ kb }}"; count]);
    assert_eq!(limit(&whole(10), &context, limits), None);
    assert_eq!(limit(&whole(11), &context, limits), Some(Limit::Bytes(10_000)));
}

#[test]
fn the_depth_of_results_is_limited() {
    let deep = |levels: usize, leaf: Value| (0..levels).fold(leaf, |v, _| Value::from(vec![v]));
    let context = value!({"deep": deep(300, value!(1))});
    assert_eq!(
        limit(&deep(199, value!("{{ deep }}")), &context, SubstitutionLimits::default()),
        None
    );
    assert_eq!(
        limit(&deep(200, value!("{{ deep }}")), &context, SubstitutionLimits::default()),
        None
    );
    let over = limit(&deep(201, value!("{{ deep }}")), &context, SubstitutionLimits::default());
    assert_eq!(over, Some(Limit::Depth(500)));
}

#[test]
fn many_variables_cost_what_they_are() {
    let document = value!("{{ n }}-".repeat(50_000));
    let (result, usage) = fill_within(&document, &value!({"n": 7}), SubstitutionLimits::default());
    assert_eq!(result.unwrap(), value!("7-".repeat(50_000)));
    assert_eq!(usage, Usage { queries: 50_000, bytes: 50_000 * 8 + 50_000 });
}
