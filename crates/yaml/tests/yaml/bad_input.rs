//! Hostile and broken input: a clear error with its place, after work that is counted and bounded.

use kiln_yaml::{DuplicateKeys, ReadOptions, YamlLimits, read_bytes};

fn options() -> ReadOptions {
    ReadOptions::kustomize_resource()
}

fn error(text: impl AsRef<[u8]>) -> String {
    error_with(text, options())
}

fn error_with(text: impl AsRef<[u8]>, options: ReadOptions) -> String {
    match read_bytes("f", text.as_ref(), options) {
        Ok(documents) => panic!("accepted as {:?}", documents[0].value()),
        Err(error) => error.to_string(),
    }
}

/// Nine levels of ten aliases each stand for a thousand million nodes.
fn alias_bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..=9 {
        let below = format!("*a{}", level - 1);
        let list = [below.as_str(); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    text
}

#[test]
fn an_alias_bomb_stops_at_the_budget() {
    let wanted = "f:6:20: the aliases of this document stand for more than 400000 nodes \
                  (write the values out, or use fewer levels of aliases)";
    assert_eq!(error(alias_bomb()), wanted);
    let limits = YamlLimits { alias_nodes: 10, ..YamlLimits::default() };
    let few = error_with(alias_bomb(), ReadOptions { limits, ..options() });
    assert!(few.starts_with("f:2:10: the aliases of this document stand for more than 10 nodes"));
}

#[test]
fn aliases_of_long_text_stop_at_the_budget() {
    let text = format!("a: &a {}\nb: [*a, *a, *a]\n", "x".repeat(1000));
    let limits = YamlLimits { alias_bytes: 2500, ..YamlLimits::default() };
    assert!(read_bytes("f", text.as_bytes(), options()).is_ok());
    let error = error_with(&text, ReadOptions { limits, ..options() });
    let wanted = "f:2:13: the aliases of this document stand for more than 2500 bytes of text";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn aliases_cannot_build_what_is_too_deep() {
    let deep = "[".repeat(300) + &"]".repeat(300);
    let text = format!("a: &a {deep}\nb: {}*a{}\n", "[".repeat(250), "]".repeat(250));
    assert_eq!(error(text), "f:2:254: lists and maps nest deeper than 500 levels");
}

#[test]
fn nesting_a_hundred_thousand_deep_stops_at_the_limit() {
    let count = 100_000;
    let cases = [
        ("[".repeat(count), "f:1:501"),
        ("[".repeat(count) + &"]".repeat(count), "f:1:501"),
        ("{a: ".repeat(count), "f:1:2001"),
        ("{\"a\":".repeat(count), "f:1:2501"),
        ("- ".repeat(count), "f:1:1001"),
        ("? ".repeat(count), "f:1:1001"),
        ("[\n".repeat(count), "f:501:1"),
    ];
    for (text, place) in cases {
        let error = error(&text);
        let shown = &text[..10];
        // `? ? ?` makes keys that are maps, which is wrong already.
        let nested = error == format!("{place}: lists and maps nest deeper than 500 levels");
        assert!(nested || error.contains("a map key must be a string"), "{shown:?}: {error}");
    }
    let blocks: String = (0..1000).map(|depth| " ".repeat(depth) + "a:\n").collect();
    assert_eq!(error(blocks), "f:501:501: lists and maps nest deeper than 500 levels");
}

#[test]
fn a_limit_of_depth_can_be_lowered() {
    let limits = YamlLimits { depth: 2, ..YamlLimits::default() };
    let options = ReadOptions { limits, ..options() };
    assert!(read_bytes("f", b"a: [1]", options).is_ok());
    assert_eq!(error_with("a: [[1]]", options), "f:1:5: lists and maps nest deeper than 2 levels");
}

#[test]
fn too_large_input_names_the_flag() {
    let options = options().max_input_size(10);
    assert!(read_bytes("f", b"a: 1234567", options).is_ok());
    let wanted = "f:1:1: the input has 11 bytes, and 10 is the most \
                  (raise the limit with --max-input-size)";
    assert_eq!(error_with("a: 12345678", options), wanted);
}

#[test]
fn bytes_that_are_no_text_are_shown_where_they_are() {
    let cases: [(&[u8], &str); 6] = [
        (b"a: 1\nb: \xff\n", "f:2:4: the byte 0xFF is not UTF-8"),
        (b"a: 1\nb: \xe2\x82", "f:2:4: the text ends in the middle of a UTF-8 character"),
        (b"a: 1\nb: x\0y\n", "f:2:5: the control character U+0000 is not allowed"),
        (b"# \x07\n", "f:1:3: the control character U+0007 is not allowed"),
        (b"\xff\xfea\0:\0\x00\xd8", "f:1:3: half a surrogate pair is not UTF-16"),
        (b"\xfe\xff\0a\0", "f:1:2: the text ends in the middle of a UTF-16 character"),
    ];
    for (bytes, wanted) in cases {
        let error = error(bytes);
        assert!(error.starts_with(wanted), "{error}");
        assert!(error.ends_with(')'), "{error} has no hint");
    }
    let padded = format!("a: '{}'\nb: \u{7f}\n", "é".repeat(200));
    assert!(error(padded).starts_with("f:2:4: the control character U+007F"));
}

#[test]
fn byte_order_marks_and_utf_16_are_read() {
    let utf16: Vec<u8> = "\u{feff}a: é😀\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide: Vec<u8> = "\u{feff}a: é😀\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for bytes in ["\u{feff}a: é😀\n".as_bytes(), &utf16, &wide] {
        let documents = read_bytes("f", bytes, options()).unwrap();
        let path = ["a"].into_iter().collect();
        assert_eq!(documents[0].value().str_at(["a"]), Some("é😀"));
        assert_eq!(documents[0].locate(&path).to_string(), "f:1:4");
    }
}

#[test]
fn syntax_errors_say_where_and_what_to_do() {
    for (text, wanted) in [
        ("a:\n\tb: 1\n", "f:2:1: a tab cannot indent (indent with spaces)"),
        ("a: b: c\n", "f:1:5: mapping values are not allowed in this context"),
        (
            "a: 'b\n",
            "f:2:1: found unexpected end of stream; while scanning a quoted scalar at f:1:4",
        ),
        ("a: [b\n", "f:2:1: did not find expected ',' or ']'"),
        ("a: @b\n", "f:1:4: found character that cannot start any token"),
        ("a: 1\n b: 2\n", "f:2:3: mapping values are not allowed in this context"),
        ("a: 1\nb\n", "f:3:1: could not find expected ':'; while scanning a simple key at f:2:1"),
        ("a: \"\\", "f:1:5: found unknown escape character"),
        ("a: \"\\u12\"", "f:1:5: did not find expected hexdecimal number"),
        ("a: !<x", "f:1:7: did not find the expected '>'"),
        ("a: !%zz b", "f:1:5: did not find URI escaped octet"),
        ("a: &é b", "f:1:5: did not find expected alphabetic or numeric character"),
        ("%YAML 1.2\n---\na: 1\n", "f:1:1: found incompatible YAML document"),
        ("a: {{ b }}\n", "f:1:5: a map key must be a string"),
    ] {
        let error = error(text);
        assert!(error.starts_with(wanted), "{text:?}: {error}");
    }
}

#[test]
fn values_that_cannot_be_say_why() {
    for (text, wanted) in [
        ("a: *b\n", "f:1:4: unknown anchor \"b\" (anchors are written &name"),
        ("x: &base 1\na: *bsae\n", "f:2:4: unknown anchor \"bsae\" (did you mean *base?)"),
        ("a: &b [*b]\n", "f:1:8: the anchor \"b\" contains itself"),
        ("a: .inf\n", "f:1:4: infinity and NaN have no place in JSON"),
        ("a: !!int x\n", "f:1:10: \"x\" is tagged !!int, but is text"),
        ("a: !!binary '*'\n", "f:1:13: the !!binary value is not base64"),
        ("<<: 1\n", "f:1:5: a merge needs a map or a list of maps"),
        ("<<: [{a: 1}, 2]\n", "f:1:5: a merge needs a map or a list of maps"),
        ("<<: {}\n<<: {}\n", "f:2:1: a map can have one merge key << only"),
        ("a: {1: b}\n", "f:1:5: a map key must be a string (put it in quotes: \"1\")"),
        ("null: b\n", "f:1:1: a map key must be a string, not null"),
        ("? [a]\n: b\n", "f:1:3: a map key must be a string"),
    ] {
        let error = error(text);
        assert!(error.starts_with(wanted), "{text:?}: {error}");
    }
}

#[test]
fn duplicate_keys_show_both_places_or_count_last() {
    let text = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n";
    let wanted = "f:5:3: the key \"c\" is already defined; first defined at f:3:3 \
                  (remove or rename one of them)";
    assert_eq!(error(text), wanted);
    assert_eq!(error(r#"{"a": {"x": 1, "x": 2}}"#).split(';').next(), {
        Some("f:1:16: the key \"x\" is already defined")
    });
    let many: String = (0..100).map(|at| format!("k{}: 1\n", at % 99)).collect();
    assert!(error(many).starts_with("f:100:1: the key \"k0\" is already defined"));
    let last = ReadOptions { duplicate_keys: DuplicateKeys::LastWins, ..options() };
    for text in [text, "{\"a\": 1, \"b\": {\"c\": 1, \"d\": 2, \"c\": 3}}"] {
        let documents = read_bytes("f", text.as_bytes(), last).unwrap();
        let inner = documents[0].value().get("b").unwrap();
        assert_eq!(kiln_value::json::to_string(inner), r#"{"c":3,"d":2}"#);
    }
}

#[test]
fn prefixes_of_tags_have_a_most_of_bytes() {
    let text = |length: usize| format!("%TAG !a! {}\n---\n- !a!b x\n", "p".repeat(length));
    assert!(read_bytes("f", text(1024).as_bytes(), options()).is_ok());
    let error = error(text(1025));
    assert!(error.contains("found a %TAG prefix of more than 1024 bytes"), "{error}");
}
