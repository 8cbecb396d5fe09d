//! Templates that want too much: a clear error, inside the budget, on a small stack.

use kiln_gotemplate::{
    Error, ErrorKind, FunctionSet, Template, TemplateEnvironment, TemplateLimits, TemplateOptions,
};
use kiln_value::{Value, value};

fn render(source: &str, data: &Value) -> Result<String, Error> {
    let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
    let limits = TemplateLimits { bytes: 4 << 20, steps: 600_000, ..TemplateLimits::default() };
    Template::parse("main", source, &options)?
        .render(data, &TemplateEnvironment { limits, ..TemplateEnvironment::default() })
}

/// Runs on a stack of two megabytes.
fn small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn what_wants_too_much_is_stopped() {
    small_stack(|| {
        let nested = |open: &str, close: &str, count: usize| {
            format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count))
        };
        let blocks = "{{ if true }}".repeat(20_000) + &"{{ end }}".repeat(20_000);
        let else_ifs =
            "{{ if false }}".to_owned() + &"{{ else if false }}".repeat(20_000) + "{{ end }}";
        let deep = r#"{{ $x := list }}{{ range until 20000 }}{{ $x = list $x }}{{ end }}"#;
        let doubled = r#"{{ $x := list 1 }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}"#;
        for (source, said) in [
            (r#"{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#.to_owned(), "deeper than"),
            (r#"{{ define "a" }}{{ if true }}{{ with 1 }}{{ template "a" (print (print 1)) }}{{ end }}{{ end }}{{ end }}{{ template "a" . }}"#.to_owned(), "deeper than"),
            ("{{ range until 1000000 }}x{{ end }}".to_owned(), "more than"),
            ("{{ range 1000000 }}x{{ end }}".to_owned(), "steps"),
            ("{{ range until 900 }}{{ range until 900 }}x{{ end }}{{ end }}".to_owned(), "more than"),
            (r#"{{ repeat 1000000000 "x" }}"#.to_owned(), "bytes"),
            (r#"{{ printf "%1000000d" 1 }}{{ range until 9 }}{{ printf "%1000000d" 1 }}{{ end }}"#.to_owned(), "bytes"),
            (r#"{{ $x := "0123456789" }}{{ range until 30 }}{{ $x = cat $x $x }}{{ end }}"#.to_owned(), "more than"),
            (r#"{{ indent 100000000 "a\nb" }}"#.to_owned(), "bytes"),
            (format!("{deep}{{{{ $x }}}}"), "nests deeper"),
            (format!("{deep}{{{{ toJson $x }}}}"), "nests deeper"),
            (format!("{deep}{{{{ deepEqual $x (list $x) }}}}"), "nests deeper"),
            (format!("{doubled}{{{{ $x }}}}"), "more than"),
            (format!("{doubled}{{{{ toJson $x | len }}}}"), "more than"),
            (format!("{doubled}{{{{ deepCopy $x | len }}}}"), "more than"),
            (r#"{{ $d := dict }}{{ $_ := set $d "self" (list $d) }}{{ $d }}"#.to_owned(), "cannot hold itself"),
            (r#"{{ $d := dict "a" 1 }}{{ $_ := merge $d (dict "b" (dict "c" $d)) }}"#.to_owned(), "cannot hold itself"),
            (r#"{{ regexMatch "(((a{500}){2}){2}){2}" "aaaa" | printf "%v" }}{{ mustRegexMatch "((a{1000}){1000}){1000}" "a" }}"#.to_owned(), "repeat"),
            (nested("(", ")", 100_000), "nests deeper"),
            (blocks, "nests deeper"),
            (else_ifs, "nests deeper"),
            ("x".repeat(2 << 20), "longer than"),
        ] {
            let error = render(&source, &Value::Null).expect_err(&source[..source.len().min(80)]);
            let shown = error.to_string();
            assert!(shown.contains(said), "{}: {shown}", &source[..source.len().min(80)]);
            assert!(source.get(error.span()).is_some(), "the place is in the text: {shown}");
        }
    });
}

#[test]
fn whatever_looks_at_text_pays_by_its_length() {
    let data = value!({"t": "1".repeat(200_000), "one": "1"});
    let limits = TemplateLimits { steps: 10_000, ..TemplateLimits::default() };
    for source in [
        "{{ len .t }}",
        "{{ contains .one .t }}",
        "{{ hasPrefix .one .t }}",
        "{{ hasSuffix .one .t }}",
        "{{ trimAll .one .t }}",
        "{{ trunc 3 .t }}",
        "{{ lower .t | len }}",
        "{{ replace .one .one .t | len }}",
        "{{ splitList `x` .t | len }}",
        "{{ b64enc .t | len }}",
        "{{ sha256sum .t }}",
        "{{ adler32sum .t }}",
        "{{ fromJson .t }}",
        "{{ regexMatch `x` .t }}",
        "{{ eq .t .one }}",
        "{{ has .t (list .t) }}",
        "{{ int64 .t }}",
        "{{ semver .t }}",
        "{{ list .t | sortAlpha | len }}",
    ] {
        let options =
            TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
        let template = Template::parse("main", source, &options).unwrap();
        let environment = TemplateEnvironment { limits, ..TemplateEnvironment::default() };
        let error = template.render(&data, &environment).expect_err(source);
        assert!(error.to_string().contains("more than 10000 steps"), "{source}: {error}");
    }
}

#[test]
fn deep_values_are_made_and_dropped_without_a_stack() {
    small_stack(|| {
        let source = r#"{{ $x := list }}{{ range until 30000 }}{{ $x = list $x }}{{ end }}{{ $d := dict }}{{ range until 3000 }}{{ $n := dict }}{{ $_ := set $n "d" $d }}{{ $d = $n }}{{ end }}{{ len $x }}{{ len $d }}"#;
        let limits = TemplateLimits { steps: 10_000_000, ..TemplateLimits::default() };
        let options =
            TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
        let template = Template::parse("main", source, &options).unwrap();
        let environment = TemplateEnvironment { limits, ..TemplateEnvironment::default() };
        assert_eq!(template.render(&Value::Null, &environment).unwrap(), "11");
    });
}

#[test]
fn the_deepest_that_is_allowed_fits_the_stack() {
    small_stack(|| {
        let source = "{{ if true }}".repeat(99) + "x" + &"{{ end }}".repeat(99);
        assert_eq!(render(&source, &Value::Null).unwrap(), "x");
        let parens = format!("{{{{ {}len \"abc\"{} }}}}", "(".repeat(99), ")".repeat(99));
        assert_eq!(render(&parens, &Value::Null).unwrap(), "3");
        let data = (0..490).fold(value!(1), |inner, _| value!({ "a": inner }));
        assert!(render("{{ . }}", &data).unwrap().starts_with("map[a:map[a:"));
        assert!(render("{{ toJson . }}", &data).unwrap().starts_with(r#"{"a":{"a":"#));
        assert!(render("{{ toPrettyJson . }}", &data).is_ok());
    });
}

#[test]
fn what_the_caller_does_not_supply_is_refused() {
    for (source, said) in [
        ("{{ now }}", "no clock"),
        ("{{ uuidv4 }}", "no randomness"),
        ("{{ randAlpha 3 }}", "no randomness"),
        ("{{ genCA \"x\" 1 }}", "not made while rendering"),
        ("{{ genPrivateKey \"rsa\" }}", "not made while rendering"),
        ("{{ getHostByName \"localhost\" }}", "do not use the network"),
        (
            "{{ range until 12 }}{{ derivePassword 1 \"no\" \"a\" \"b\" \"c\" }}{{ end }}{{ bcrypt \"x\" }}",
            "no randomness",
        ),
    ] {
        let error = render(source, &Value::Null).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exec, "{source}");
        assert!(error.message().contains(said) && error.hint_text().is_some(), "{source}: {error}");
    }
}

#[test]
fn fields_are_all_there_is() {
    use kiln_gotemplate::{Numbers, TemplateField};
    let target = value!({"n": 3});
    let parts = value!([0]);
    let fields = [
        TemplateField { name: "Target", value: &target, numbers: Numbers::Floats },
        TemplateField { name: "Parts", value: &parts, numbers: Numbers::Integers },
    ];
    let run = |source: &str| {
        let template = Template::parse("t", source, &TemplateOptions::default()).unwrap();
        template.render_fields(&fields, &TemplateEnvironment::default()).map(|made| made.text)
    };
    assert_eq!(
        run("{{ .Target.n }} {{ index .Parts 0 }} {{ .Target.no }}").unwrap(),
        "3 0 <no value>"
    );
    assert_eq!(run(r#"{{ printf "%T %T" .Target.n (index .Parts 0) }}"#).unwrap(), "float64 int");
    let error = run("{{ .Nope }}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "can't evaluate field Nope in this template (the fields are .Parts, .Target)"
    );
}
