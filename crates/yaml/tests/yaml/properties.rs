//! Laws: what was written reads back, no text can do harm, every node has a place.

use kiln_value::{Map, Path, Value, json};
use kiln_yaml::{
    EmitOptions, KeyOrder, ReadOptions, ScalarTable, Writer, emit, emit_documents, emit_into,
    read_bytes,
};
use proptest::prelude::*;

/// Characters and pieces that YAML, Go or both treat in a way of their own.
const NASTY: &[&str] = &[
    "a",
    "b",
    "y",
    "n",
    "0",
    "1",
    "9",
    ".",
    "_",
    "-",
    "+",
    ":",
    "#",
    ",",
    "[",
    "]",
    "{",
    "}",
    "&",
    "*",
    "!",
    "|",
    ">",
    "'",
    "\"",
    "%",
    "@",
    "`",
    "?",
    "=",
    "~",
    " ",
    "/",
    "\\",
    "x",
    "o",
    "e",
    "E",
    "  ",
    "\t",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    "\r",
    "\r\n",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\u{a0}",
    "\u{200b}",
    "\u{fffd}",
    "\u{7f}",
    "\u{80}",
    "\0",
    "\x07",
    "\x1b",
    "é",
    "日本",
    "😀",
    "yes",
    "null",
    "true",
    "0x",
    "0o",
    "0b",
    "1e",
    ".inf",
    "2020-01-02",
    "T03:04:05",
    "Z",
    ": ",
    " #",
    "---",
    "...",
    "word ",
    "longer words than one ",
    "k9",
    "k10",
    "01",
];

fn text() -> impl Strategy<Value = String> {
    let text = prop::collection::vec(prop::sample::select(NASTY), 0..24);
    let text = text.prop_map(|parts| parts.concat());
    // go-yaml: v2, whose bytes are written, takes these for text, and v3 for a number.
    text.prop_filter("a sign in an octal number", |text| {
        let digits = text.replace('_', "");
        !digits.starts_with("0o-") && !digits.starts_with("0o+")
    })
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => text().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        // Integral floats come back as integers.
        1 => any::<f64>()
            .prop_filter("a fraction", |f| f.is_finite() && f.fract() != 0.0)
            .prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 6, |inner| {
        let key = text().prop_filter("a merge key has a meaning of its own", |key| key != "<<");
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

fn read(text: &str, options: ReadOptions) -> Value {
    let mut documents =
        read_bytes("f", text.as_bytes(), options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert!(documents.len() <= 1, "{text}");
    documents.pop().map_or(Value::Null, kiln_yaml::Document::into_value)
}

fn both() -> [ReadOptions; 2] {
    [ReadOptions::kustomize_resource(), ReadOptions::kubernetes()]
}

/// All paths of a value.
fn paths(value: &Value, here: &Path, found: &mut Vec<Path>) {
    found.push(here.clone());
    match value {
        Value::List(list) => {
            for (at, element) in list.iter().enumerate() {
                paths(element, &here.join(at), found);
            }
        }
        Value::Map(map) => {
            for (key, value) in map {
                paths(value, &here.join(key), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_written_reads_back(value in values()) {
        let written = emit(&value);
        for options in both() {
            let again = read(&written, options);
            prop_assert_eq!(&again, &value, "{}", written);
            prop_assert_eq!(emit(&again), written.as_str());
        }
    }

    #[test]
    fn the_order_of_keys_can_be_kept(value in values()) {
        let options = EmitOptions { key_order: KeyOrder::AsIs };
        let mut written = String::new();
        emit_into(&mut written, &value, &options);
        let again = read(&written, ReadOptions::kubernetes());
        prop_assert_eq!(json::to_string(&again), json::to_string(&value));
    }

    #[test]
    fn documents_are_written_one_after_the_other(values in prop::collection::vec(values(), 1..4)) {
        let mut writer = Writer::new(Vec::new(), EmitOptions::default());
        for value in &values {
            writer.write(value).unwrap();
        }
        let written = String::from_utf8(writer.into_inner()).unwrap();
        prop_assert_eq!(&written, &emit_documents(&values));
        let again = read_bytes("f", written.as_bytes(), ReadOptions::kubernetes()).unwrap();
        let again: Vec<Value> = again.into_iter().map(kiln_yaml::Document::into_value).collect();
        prop_assert_eq!(again, values);
    }

    #[test]
    fn json_means_the_same_by_the_short_way_and_the_long(value in values()) {
        let text = json::to_string(&value);
        for options in both() {
            let short = read_bytes("f", text.as_bytes(), options);
            // A document marker keeps the short way from being taken.
            let long = read_bytes("f", format!("--- {text}").as_bytes(), options);
            if let (Ok(short), Ok(long)) = (short, long) {
                let value = |documents: Vec<kiln_yaml::Document>| documents[0].value().clone();
                prop_assert_eq!(value(short), value(long));
            }
        }
    }

    #[test]
    fn every_node_has_a_place_in_its_document(value in values()) {
        let written = format!("first: 1\n---\n{}", emit(&value));
        let documents = read_bytes("f", written.as_bytes(), ReadOptions::kubernetes()).unwrap();
        let places = documents[1].places();
        let mut all = Vec::new();
        paths(&value, &Path::root(), &mut all);
        for path in all {
            let span = places.value(&path).span();
            prop_assert!(span.start >= "first: 1\n---\n".len(), "{} in {}", path, written);
            let key = places.key(&path).span();
            prop_assert!(key.start <= span.start, "{} in {}", path, written);
            // A scalar's own text reads as the scalar (a block of text needs its indentation).
            let found = value.get_path(&path).unwrap();
            let text = &written[span];
            let block = text.starts_with(['|', '>']);
            if !block && !matches!(found, Value::List(_) | Value::Map(_)) && !text.contains('\n') {
                let again = read(&format!("- {text}"), ReadOptions::kubernetes());
                prop_assert_eq!(again.index(0), Some(found), "{} in {}", path, written);
            }
        }
    }

    #[test]
    fn no_text_does_harm(parts in prop::collection::vec(
        prop_oneof![
            prop::sample::select(NASTY).prop_map(str::to_owned),
            prop::sample::select(vec![
                "\n  ", "\n- ", "- ", "? ", ": ", "k: ", "&a ", "*a", "<<: ", "!!int ", "!a", "{",
                "}", "[", "]", ",", "|", ">-\n", "\n---\n", "\n...\n", "%TAG ! x\n", "\"", "'", "\\",
            ]).prop_map(str::to_owned),
            "\\PC{0,3}",
        ],
        0..40,
    )) {
        let text = parts.concat();
        for options in both() {
            match read_bytes("f", text.as_bytes(), options) {
                Ok(documents) => for document in documents {
                    let written = emit(document.value());
                    let again = read(&written, ReadOptions::kubernetes());
                    // U+0085 is folded on the way out, as kustomize does.
                    if !text.contains(['\u{85}', 'N']) && options.scalars == ScalarTable::V2 {
                        prop_assert_eq!(&again, document.value(), "{}", written);
                    }
                    let _ = document.places();
                },
                Err(error) => prop_assert!(error.place.is_some(), "{} has no place", error),
            }
        }
    }
}
