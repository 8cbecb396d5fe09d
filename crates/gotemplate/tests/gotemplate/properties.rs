//! What holds for every template and every value.

use kiln_gotemplate::{
    FunctionSet, Numbers, Template, TemplateEnvironment, TemplateLimits, TemplateOptions, functions,
};
use kiln_value::{Value, json, value};
use proptest::prelude::*;

fn environment() -> TemplateEnvironment<'static> {
    let limits = TemplateLimits { steps: 20_000, bytes: 1 << 18, ..TemplateLimits::default() };
    TemplateEnvironment { limits, ..TemplateEnvironment::default() }
}

fn options() -> TemplateOptions {
    TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Map(map.into_iter().collect())),
        ]
    })
}

/// Pieces that make templates rather than noise.
fn templates() -> impl Strategy<Value = String> {
    let names =
        functions::functions(FunctionSet::Sprig).into_iter().map(functions::TemplateFunction::name);
    let names: Vec<&'static str> = names.collect();
    let piece = prop_oneof![
        Just("{{ ".to_owned()),
        Just(" }}".to_owned()),
        Just("{{- if . }}".to_owned()),
        Just("{{ range $i, $e := . }}".to_owned()),
        Just("{{ with .a }}".to_owned()),
        Just("{{ else }}".to_owned()),
        Just("{{ end -}}".to_owned()),
        Just("{{ break }}".to_owned()),
        Just(" | ".to_owned()),
        Just(" (".to_owned()),
        Just(") ".to_owned()),
        Just(" .a.b ".to_owned()),
        Just(" . ".to_owned()),
        Just(" $x := ".to_owned()),
        Just(" 1 ".to_owned()),
        Just(" -2 ".to_owned()),
        Just(" 1.5 ".to_owned()),
        Just(" \"%v\" ".to_owned()),
        Just(" nil ".to_owned()),
        proptest::sample::select(names).prop_map(|name| format!(" {name} ")),
        ".{0,5}",
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// A call of a function with some arguments.
fn calls() -> impl Strategy<Value = String> {
    let names =
        functions::functions(FunctionSet::Sprig).into_iter().map(functions::TemplateFunction::name);
    // They are slow on purpose.
    let slow = ["derivePassword", "bcrypt", "htpasswd"];
    let names: Vec<&'static str> = names.filter(|name| !slow.contains(name)).collect();
    let arguments = proptest::sample::select(vec![
        ".",
        ".a",
        ".b",
        "1",
        "-3",
        "100000",
        "0",
        "1.5",
        "\"\"",
        "\"a\"",
        "\"%d %s\"",
        "\"[\"",
        "\"é日\"",
        "nil",
        "true",
        "(list 1 \"a\" nil)",
        "(dict \"a\" (list 2))",
        "(until 3)",
        "(toDate \"2006\" \"2020\")",
        "(semver \"1.2\")",
    ]);
    (proptest::sample::select(names), proptest::collection::vec(arguments, 0..5))
        .prop_map(|(name, arguments)| format!("{{{{ {name} {} }}}}", arguments.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn nothing_panics_and_errors_have_a_place(source in templates(), data in values()) {
        let result = Template::parse("t", &source, &options())
            .and_then(|template| template.render(&data, &environment()));
        if let Err(error) = result {
            prop_assert!(source.get(error.span()).is_some(), "{source:?}: {error}");
            prop_assert!(!error.message().is_empty());
        }
    }

    #[test]
    fn every_function_takes_every_argument(source in calls(), data in values()) {
        if let Ok(template) = Template::parse("t", &source, &options()) {
            let first = template.render(&data, &environment()).map_err(|error| error.go_text());
            let second = template.render(&data, &environment()).map_err(|error| error.go_text());
            prop_assert_eq!(first, second, "a rendering is a function of its data");
        }
    }

    #[test]
    fn text_without_actions_is_itself(text in "[^{]*") {
        let template = Template::parse("t", &text, &options()).unwrap();
        prop_assert_eq!(template.render(&Value::Null, &environment()).unwrap(), text);
    }

    #[test]
    fn json_comes_back(data in values()) {
        let options = TemplateOptions { numbers: Numbers::Integers, ..options() };
        let template = Template::parse("t", "{{ toJson . }}", &options).unwrap();
        let text = template.render(&data, &environment()).unwrap();
        prop_assert_eq!(text, json::to_go_string(&data));
    }

    #[test]
    fn data_stays_as_it_was(data in values()) {
        let data = value!({ "a": serde(&data) });
        let before = data.clone();
        let source = "{{ $_ := set . \"a\" 1 }}{{ $_ := unset . \"a\" }}{{ len . }}";
        let template = Template::parse("t", source, &options()).unwrap();
        prop_assert_eq!(template.render(&data, &environment()).unwrap(), "0");
        prop_assert_eq!(before, data);
    }
}

/// Data whose texts hold a character that no template and no function writes by itself.
fn marked_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::from),
        "[ж\\n\"%: a,]{1,9}".prop_map(Value::from),
        Just(Value::from("ж: 2020-01-01, {\"ж\": [\"ж\"]}")),
        Just(Value::from("{\"ж\": [\"ж\"]}")),
    ];
    leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            proptest::collection::btree_map("[abж]", inner, 1..4)
                .prop_map(|map| Value::Map(map.into_iter().collect())),
        ]
    })
}

/// Calls of functions on the results of functions.
fn piped_calls() -> impl Strategy<Value = String> {
    let call = || calls().prop_map(|call| call.replace("{{", "").replace("}}", ""));
    proptest::collection::vec(call(), 1..4).prop_map(|calls| {
        format!("{{{{ . | {} }}}}{{{{ {} }}}}", calls.join(" | "), calls.join(" | "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_comes_from_the_data_is_marked(source in piped_calls(), a in marked_values(), b in marked_values()) {
        use kiln_gotemplate::TemplateField;
        let fields = [("a", &a), ("b", &b)]
            .map(|(name, value)| TemplateField { name, value, numbers: Numbers::Floats });
        let Ok(template) = Template::parse("t", &source, &options()) else { return Ok(()) };
        let Ok(made) = template.render_fields(&fields, &environment()) else { return Ok(()) };
        let mut end = 0;
        for part in &made.data {
            prop_assert!(end <= part.at.start && part.at.start < part.at.end, "{source}: {made:?}");
            let own = &made.text[end..part.at.start];
            prop_assert!(!own.contains(['ж', 'Ж']), "{source}: {made:?}");
            end = part.at.end;
        }
        prop_assert!(!made.text[end..].contains(['ж', 'Ж']), "{source}: {made:?}");
    }
}

#[test]
fn the_texts_of_a_template_keep_apart_from_those_of_the_data() {
    use kiln_gotemplate::TemplateField;
    let data = value!({"v": "ж\nж", "q": "ж\"", "n": 5});
    let fields = [TemplateField { name: "D", value: &data, numbers: Numbers::Floats }];
    // Brackets around what is marked.
    for (source, shown) in [
        ("a: {{ .D.v }}!", "a: [ж\nж]!"),
        ("{{ .D.n }} {{ .D.none }} {{ \"own\" }}", "5 <no value> own"),
        ("{{ printf \"%s: %s\" \"k\" .D.q }}", "k: [ж\"]"),
        ("{{ printf \"%5s\" .D.q }}", "[   ж\"]"),
        ("{{ .D.q | quote }}", "\"[ж\\\"]\""),
        ("{{ .D.v | nindent 2 }}", "\n  [ж]\n  [ж]"),
        ("{{ list \"a\" .D.q | join \"-\" }}", "a-[ж\"]"),
        ("{{ .D.v | replace \"\\n\" \", \" }}", "[ж], [ж]"),
        ("{{ .D.q | upper }}", "[Ж\"]"),
        ("{{ dict \"k\" .D.q | toJson }}", "{\"[k]\":\"[ж\\\"]\"}"),
        ("{{ range $k, $e := .D }}{{ $k }}{{ end }}", "[n][q][v]"),
        ("{{ printf \"%c\" 1078 }}", "[ж]"),
        ("{{ default \"own\" .D.none }}", "own"),
        ("{{ cat \"a\" .D.n .D.q | trim }}", "a 5 [ж\"]"),
    ] {
        let template = Template::parse("t", source, &options()).unwrap();
        let made = template.render_fields(&fields, &environment()).unwrap();
        let mut marked = made.text.clone();
        for part in made.data.iter().rev() {
            marked.insert(part.at.end, ']');
            marked.insert(part.at.start, '[');
        }
        assert_eq!(marked, shown, "{source}");
    }
}

/// The value as the macro takes it.
fn serde(data: &Value) -> String {
    json::to_string(data)
}
