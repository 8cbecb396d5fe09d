//! What documents are, how the two scalar tables differ, and where everything is.

use kiln_value::{Path, Segment, Value, json, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

fn read(text: &str, options: ReadOptions) -> Vec<Document> {
    read_bytes("f.yaml", text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn one(text: &str, options: ReadOptions) -> Document {
    let mut documents = read(text, options);
    assert_eq!(documents.len(), 1, "{text:?}");
    documents.remove(0)
}

#[test]
fn the_tables_give_different_types() {
    for (text, v3, v2) in [
        ("yes", value!("yes"), value!(true)),
        ("on", value!("on"), value!(true)),
        ("n", value!("n"), value!(false)),
        ("0777", value!(511), value!(511)),
        ("0o17", value!(15), value!(15)),
        ("1_000", value!(1000), value!(1000)),
        ("1.0", value!(1.0), value!(1)),
        ("1e3", value!(1000.0), value!(1000)),
        ("1.5", value!(1.5), value!(1.5)),
        ("2020-01-02", value!("2020-01-02T00:00:00Z"), value!("2020-01-02")),
        ("12:30:45", value!("12:30:45"), value!("12:30:45")),
        ("!!str 1", value!("1"), value!("1")),
        ("!!int '1'", value!(1), value!(1)),
        ("!!float 1", value!(1.0), value!(1)),
        ("!!binary Zm9v", value!("foo"), value!("foo")),
        ("!!timestamp 2020-1-2", value!("2020-01-02T00:00:00Z"), value!("2020-1-2")),
        ("! 12", value!(12), value!("12")),
        ("! '12'", value!("12"), value!("12")),
        ("{a: }", value!({"a": ""}), value!({"a": null})),
        ("{a:}", value!({"a:": ""}), value!({"a:": null})),
        ("", value!(null), value!(null)),
    ] {
        let text = format!("v: {text}\n");
        let read = |options| one(&text, options).value().get("v").unwrap().clone();
        assert_eq!(read(ReadOptions::kustomize_resource()), v3, "{text:?}");
        assert_eq!(read(ReadOptions::kubernetes()), v2, "{text:?}");
    }
}

#[test]
fn the_tables_take_keys_differently() {
    let text = "1: a\ntrue: b\n1.5: c\n0x10: d\n2020-01-01: e\n";
    let keys = |options| {
        let document = one(text, options);
        document.value().as_map().unwrap().keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    // kustomize takes the keys of the top level as they are written.
    let v3 = ["1", "true", "1.5", "0x10", "2020-01-01"];
    assert_eq!(keys(ReadOptions::kustomize_resource()), v3);
    assert_eq!(keys(ReadOptions::kubernetes()), ["1", "true", "1.5", "16", "2020-01-01"]);
    let on = one("on: {yes: 1, 1.0: 2}\n", ReadOptions::kubernetes());
    assert_eq!(on.value(), &value!({"true": {"true": 1, "1": 2}}));
}

#[test]
fn merges_have_the_precedence_of_go() {
    let text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\n\
                v: {a: own, <<: [*x, *y], c: own}\nw: {<<: *x, b: own}\n";
    let v3 = one(text, ReadOptions::kustomize_resource());
    let own_wins = r#"{"a":"own","c":"own","b":1}"#;
    assert_eq!(json::to_string(v3.value().get("v").unwrap()), own_wins);
    assert_eq!(v3.value().get("w"), Some(&value!({"a": 1, "b": "own"})));
    // go-yaml v2: keys before the merge lose to it.
    let v2 = one(text, ReadOptions::kubernetes());
    assert_eq!(v2.value().get("v"), Some(&value!({"a": 1, "b": 1, "c": "own"})));
}

#[test]
fn a_key_that_only_looks_like_a_merge_is_kept_by_v2_and_dropped_by_kustomize() {
    let text = "v: {'<<': 1, a: 2}\n";
    assert_eq!(one(text, ReadOptions::kubernetes()).value(), &value!({"v": {"<<": 1, "a": 2}}));
    for text in [text, r#"{"v": {"<<": 1, "a": 2}}"#] {
        let v3 = one(text, ReadOptions::kustomize_resource());
        assert_eq!(v3.value(), &value!({"v": {"a": 2}}));
    }
}

#[test]
fn documents_are_separate_and_empty_ones_are_left_out() {
    let text = "# nothing\n---\na: &x 1\n---\n# nothing\n---\n\nb: 2\n...\n---\nnull\n";
    let documents = read(text, ReadOptions::kustomize_resource());
    let values: Vec<&Value> = documents.iter().map(Document::value).collect();
    assert_eq!(values, [&value!({"a": 1}), &value!({"b": 2}), &Value::Null]);
    let places: Vec<_> = documents.iter().map(|d| d.place().to_string()).collect();
    assert_eq!(places, ["f.yaml:3:1", "f.yaml:8:1", "f.yaml:11:1"]);
    // Anchors do not reach into the next document.
    assert!(read_bytes("f", b"a: &x 1\n---\nb: *x\n", ReadOptions::kubernetes()).is_err());
    assert!(read("", ReadOptions::kubernetes()).is_empty());
    assert!(read("# only this", ReadOptions::kubernetes()).is_empty());
}

#[test]
fn a_tab_may_indent_a_comment_below_a_comment() {
    let document = one("a: 1\n# x\n\t # y\n\t# z\nb: 2\n", ReadOptions::kustomize_resource());
    assert_eq!(document.value(), &value!({"a": 1, "b": 2}));
    let tab = "a: 1 # x\n\t# y\nb: 2\n";
    assert!(read_bytes("f", tab.as_bytes(), ReadOptions::kustomize_resource()).is_err());
}

#[test]
fn line_ends_of_windows_read_as_line_ends() {
    let document = one("a: |\r\n  x\r\n  y\r\nb: 'c\r\n  d'\r\n", ReadOptions::kubernetes());
    assert_eq!(document.value(), &value!({"a": "x\ny\n", "b": "c d"}));
}

fn path(text: &str) -> Path {
    let segment = |part: &str| part.parse::<usize>().map_or_else(|_| part.into(), Segment::Index);
    text.split('/').filter(|part| !part.is_empty()).map(segment).collect()
}

#[test]
fn every_key_and_value_has_a_place() {
    let text = "---\nfirst: 1\n---\n# comment\nspec: &s\n  list:\n  - a\n  - {k: \"v\", é: [x, y]}\n  \
                text: |\n    one\n    two\nalias: *s\nmerged:\n  <<: *s\n  own: 1\nempty:\n";
    let documents = read(text, ReadOptions::kustomize_resource());
    let document = &documents[1];
    for (at, key, value, written) in [
        ("", "5:1", "5:1", None),
        ("spec", "5:1", "6:3", None),
        ("spec/list", "6:3", "7:3", None),
        ("spec/list/0", "7:5", "7:5", Some("a")),
        ("spec/list/1", "8:5", "8:5", Some("{k: \"v\", é: [x, y]}")),
        ("spec/list/1/k", "8:6", "8:9", Some("\"v\"")),
        ("spec/list/1/é", "8:14", "8:17", Some("[x, y]")),
        ("spec/list/1/é/1", "8:21", "8:21", Some("y")),
        ("spec/text", "9:3", "9:9", None),
        ("alias", "12:1", "12:8", Some("*s")),
        ("alias/list/0", "7:5", "7:5", Some("a")),
        ("merged/list/0", "7:5", "7:5", Some("a")),
        ("merged/list", "6:3", "7:3", None),
        ("merged/own", "15:3", "15:8", Some("1")),
        ("empty", "16:1", "16:7", Some("")),
        // What is missing is missing in the last thing that is there.
        ("spec/list/9", "6:3", "7:3", None),
        ("nowhere/at/all", "5:1", "5:1", None),
    ] {
        let path = path(at);
        let shown = |place: kiln_diagnostic::SourceLocation| place.position().to_string();
        assert_eq!(shown(document.locate_key(&path)), key, "key of {at}");
        assert_eq!(shown(document.locate(&path)), value, "value of {at}");
        if let Some(written) = written {
            assert_eq!(document.written(&path), Some(written), "text of {at}");
        }
    }
    assert_eq!(document.written(&path("spec/nothing")), None);
    assert_eq!(documents[0].locate(&path("first")).to_string(), "f.yaml:2:8");
}

#[test]
fn json_has_places_too() {
    let document = one("{\n  \"a\": {\"b\": [1.50]}\n}\n", ReadOptions::kubernetes());
    assert_eq!(document.value(), &value!({"a": {"b": [1.5]}}));
    assert_eq!(document.locate(&path("a/b/0")).to_string(), "f.yaml:2:15");
    assert_eq!(document.written(&path("a/b/0")), Some("1.50"));
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    #[expect(dead_code, reason = "only errors are looked at")]
    name: String,
    #[serde(default)]
    #[expect(dead_code, reason = "only errors are looked at")]
    match_kinds: Vec<Kind>,
}

#[derive(Debug, serde::Deserialize)]
enum Kind {
    Pod,
    Service,
}

#[test]
fn type_errors_say_where_and_what_was_meant() {
    for (text, wanted) in [
        (
            "name: a\nmatchKind:\n- Pod\n",
            "f.yaml:2:1: matchKind: unknown field \"matchKind\" (did you mean \"matchKinds\"?)",
        ),
        (
            "name: a\nother: 1\n",
            "f.yaml:2:1: other: unknown field \"other\" (the fields here are name, matchKinds)",
        ),
        ("matchKinds: []\n", "f.yaml:1:1: missing field \"name\" (add \"name\" here)"),
        ("name: 5\n", "f.yaml:1:7: name: expected a string, found the number 5"),
        (
            "name: a\nmatchKinds: [Pod, Servcie]\n",
            "f.yaml:2:19: matchKinds[1]: \"Servcie\" is not one of Pod, Service \
             (did you mean \"Service\"?)",
        ),
    ] {
        let error = one(text, ReadOptions::kubernetes()).read::<Rule>().unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
    let rule: Rule =
        one("name: a\nmatchKinds: [Pod, Service]\n", ReadOptions::kubernetes()).read().unwrap();
    assert!(format!("{rule:?}").contains("[Pod, Service]"));
}

#[test]
fn a_value_without_a_text_gets_one_when_a_place_is_asked_for() {
    let value = value!({"kind": "A", "spec": {"list": [1, {"deep": "text"}]}});
    let document =
        Document::from_value("a of the cluster", value.clone(), ReadOptions::kubernetes());
    assert_eq!(document.value(), &value);
    let path = Path::from_iter(["spec", "list"]).join(1_usize).join("deep");
    let place = document.locate(&path);
    assert_eq!(place.to_string(), "a of the cluster:7:17");
    assert_eq!(&place.source().text()[place.span()], "\"text\"");
    // Clones share the text, and it says what the value says.
    let clone = document.clone();
    assert!(std::sync::Arc::ptr_eq(clone.source(), document.source()));
    assert_eq!(json::parse(document.source().text()).unwrap(), value);
}
