//! What callers rely on: lazy roots, places of errors, checks without data.

use std::borrow::Cow;
use std::cell::RefCell;

use kiln_jmespath::{ErrorKind, Expression, JmesPathEnvironment, Root, RootFailure};
use kiln_value::{Value, value};

/// Remembers what it was asked for; `broken` cannot be loaded.
#[derive(Default)]
struct Recorder {
    asked: RefCell<Vec<String>>,
    stored: Value,
}

impl Root for Recorder {
    fn field(&self, name: &str) -> Result<Option<Cow<'_, Value>>, RootFailure> {
        self.asked.borrow_mut().push(name.to_owned());
        match name {
            "broken" => Err("the server is away".into()),
            "made" => Ok(Some(Cow::Owned(value!({"x": [1, 2]})))),
            _ => Ok(self.stored.get(name).map(Cow::Borrowed)),
        }
    }

    fn whole(&self) -> Result<Cow<'_, Value>, RootFailure> {
        self.asked.borrow_mut().push("@".to_owned());
        Ok(Cow::Borrowed(&self.stored))
    }
}

fn asked(source: &str) -> (Vec<String>, Result<Value, ErrorKind>) {
    let root = Recorder { stored: value!({"a": {"b": [1, 2]}, "t": true}), ..Default::default() };
    let expression = Expression::compile(source).unwrap();
    let result = expression.search(&root, &JmesPathEnvironment::default());
    (root.asked.into_inner(), result.map_err(|error| error.kind()))
}

#[test]
fn a_root_is_asked_only_for_what_is_reached() {
    for (source, names, result) in [
        ("a.b[0]", vec!["a"], Ok(value!(1))),
        ("t || broken", vec!["t"], Ok(value!(true))),
        ("@.a.b", vec!["a"], Ok(value!([1, 2]))),
        ("@ | a.b[1]", vec!["a"], Ok(value!(2))),
        ("{x: t, y: missing}", vec!["t", "missing"], Ok(value!({"x": true, "y": null}))),
        ("a.b[?@ == `1`]", vec!["a"], Ok(value!([1]))),
        ("made.x[1]", vec!["made"], Ok(value!(2))),
        ("missing", vec!["missing"], Err(ErrorKind::NotFound)),
        ("length(@)", vec!["@"], Ok(value!(2))),
        ("*", vec!["@"], Ok(value!([{"b": [1, 2]}, true]))),
        ("'text'", vec![], Ok(value!("text"))),
    ] {
        let (got, value) = asked(source);
        assert_eq!(
            (got, value),
            (names.into_iter().map(String::from).collect(), result),
            "{source}"
        );
    }
}

#[test]
fn nothing_catches_a_root_that_fails() {
    for source in
        ["broken", "broken || 't'", "broken[?x]", "broken[]", "broken.*", "!broken", "[broken]"]
    {
        assert_eq!(asked(source).1, Err(ErrorKind::Root), "{source}");
    }
    let root = Recorder::default();
    let error = Expression::compile("x || broken.y")
        .unwrap()
        .search(&root, &JmesPathEnvironment::default());
    let error = error.unwrap_err();
    assert_eq!(error.span(), 5..11);
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the server is away");
}

#[test]
fn the_names_at_the_top_are_known_beforehand() {
    for (source, names, whole) in [
        ("request.object.metadata.name", vec!["request"], false),
        ("a[?b == c].d | e", vec!["a"], false),
        ("f(a, b.c, &d)", vec!["a", "b"], false),
        ("{x: a, y: [b, a]} || c && !d", vec!["a", "b", "c", "d"], false),
        ("@.a | b", vec!["a"], false),
        ("a[*].b[] == `1`", vec!["a"], false),
        ("@", vec![], true),
        ("[0]", vec![], true),
        ("keys(@)", vec![], true),
        ("'a'", vec![], false),
    ] {
        let expression = Expression::compile(source).unwrap();
        assert_eq!((expression.roots(), expression.uses_whole_root()), (names, whole), "{source}");
    }
}

#[test]
fn errors_point_at_their_place() {
    let data = value!({"a": {"b": "text"}, "list": [1, 2], "s": "x"});
    for (source, kind, at, hint) in [
        ("a.missing.b", ErrorKind::NotFound, "missing", "default"),
        ("x || lenght(list)", ErrorKind::UnknownFunction, "lenght", "length"),
        ("[lenght(list)]", ErrorKind::UnknownFunction, "lenght", "length"),
        ("x || abs(a.b)", ErrorKind::Type, "a.b", "to_number"),
        ("x || length(list, s)", ErrorKind::Arity, "length(list, s)", "length("),
        ("x || add(s, `1`)", ErrorKind::Failed, "add(s, `1`)", ""),
        ("list[::0]", ErrorKind::Failed, "[::0]", ""),
        ("a.b ==", ErrorKind::Syntax, "", ""),
        ("a.b = s", ErrorKind::Syntax, "=", "=="),
        ("a-b", ErrorKind::Syntax, "-", "quote"),
        ("a.5", ErrorKind::Syntax, "5", ""),
        ("5 == s", ErrorKind::Syntax, "5", "`5`"),
        ("`word`", ErrorKind::Syntax, "`word`", "'word'"),
        ("a.'b'", ErrorKind::Syntax, "'b'", ""),
        ("sort_by(list, &", ErrorKind::Syntax, "", ""),
    ] {
        let result = Expression::compile(source)
            .and_then(|expression| expression.search(&data, &JmesPathEnvironment::default()));
        let error = result.unwrap_err();
        assert_eq!((error.kind(), &source[error.span()]), (kind, at), "{source}: {error}");
        assert!(error.hint_text().unwrap_or_default().contains(hint), "{source}: {error}");
        assert!(
            !error.message().is_empty() && !error.message().ends_with('.'),
            "{source}: {error}"
        );
        assert!(error.diagnose("rule", source).to_string().starts_with("rule:1:"), "{source}");
    }
}

#[test]
fn calls_are_checked_without_data() {
    let kinds = |source: &str| {
        let errors = Expression::compile(source).unwrap().check();
        errors.iter().map(|error| error.kind()).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds("a[?no_such(@)] || length() || merge(a)"),
        [ErrorKind::UnknownFunction, ErrorKind::Arity]
    );
    assert_eq!(kinds("time_now('ignored') | length(@)"), []);
    assert_eq!(kinds("merge()"), [ErrorKind::Arity]);
}

#[test]
fn documents_pass_through_unchanged() {
    let data = value!({"big": 9_007_199_254_740_993_i64, "unsigned": 18_446_744_073_709_551_615_u64, "float": 1.0, "m": {"x": [1]}});
    for key in ["big", "unsigned", "float", "m"] {
        let found = Expression::compile(key)
            .unwrap()
            .search(&data, &JmesPathEnvironment::default())
            .unwrap();
        assert!(found.same(data.get(key).unwrap()), "{key}");
    }
    let written = |source: &str| {
        let value =
            Expression::compile(source).unwrap().search(&data, &JmesPathEnvironment::default());
        kiln_value::json::to_string(&value.unwrap())
    };
    // Where they are computed with, they are floats.
    assert_eq!(written("to_string(big)"), "\"9007199254740992\"");
    assert_eq!(written("big == `9007199254740992`"), "true");
    assert_eq!(written("float == `1`"), "true");
    assert_eq!(written("add(`1`, `2.0`)"), "3");
}

#[test]
fn value_projections_also_run_on_nulls_as_in_kyverno() {
    let data = value!({"m": {"x": "a", "y": "b"}});
    let search = |source: &str| {
        let result =
            Expression::compile(source).unwrap().search(&data, &JmesPathEnvironment::default());
        result.map_err(|error| error.kind())
    };
    assert_eq!(search("m.*.type(@)"), Ok(value!(["null", "null", "string", "string"])));
    assert_eq!(search("m.*.length(@)"), Err(ErrorKind::Type));
    assert_eq!(search("m.* | [*].length(@)"), Ok(value!([1, 1])));
    assert_eq!(search("m.*.[@]"), Ok(value!([["a"], ["b"]])));
}

#[test]
fn arguments_of_functions_without_parameters_are_ignored() {
    struct Epoch;
    impl kiln_jmespath::AmbientSources for Epoch {
        fn now(&self) -> Option<std::time::SystemTime> {
            Some(std::time::UNIX_EPOCH)
        }
    }
    let environment = JmesPathEnvironment { sources: &Epoch, ..JmesPathEnvironment::default() };
    for source in ["time_now()", "time_now('x', missing)", "time_now_utc(`1`)"] {
        let found = Expression::compile(source).unwrap().search(&Value::map(), &environment);
        assert_eq!(found.unwrap(), value!("1970-01-01T00:00:00Z"), "{source}");
    }
    let refused = Expression::compile("time_now()").unwrap();
    let refused = refused.search(&Value::map(), &JmesPathEnvironment::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Failed);
}
