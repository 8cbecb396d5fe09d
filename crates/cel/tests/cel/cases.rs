//! The tables of this crate: expressions, and what Kyverno's own environments make of them.

use std::fmt::Write;

use kiln_cel::{
    Env, Host, HostError, HostResult, PolicyScope, Program, Session, Timestamp, Type, Val,
};
use kiln_testkit::{Case, Expected};
use kiln_value::{Value, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

/// Cases that do not give yet what Kyverno gives.
const KNOWN: &[(&str, &str)] = &[
    ("addresses.yaml: the language itself: a zone", LATE),
    ("addresses.yaml: the language itself: an IPv4 address within IPv6", LATE),
];

const LATE: &str = "Kiln reads literals of addresses when they run";

#[test]
fn cases_give_what_kyverno_gives() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("CEL", folder, KNOWN, run);
}

/// What libraries need from outside, in the plainest form.
struct Outside;

impl Host for Outside {
    fn parse_yaml(&mut self, text: &str) -> HostResult<Value> {
        let documents = read_bytes("yaml.parse", text.as_bytes(), ReadOptions::kubernetes())
            .map_err(|error| HostError::new(error.to_string()))?;
        Ok(documents.into_iter().next().map_or(Value::Null, Document::into_value))
    }

    fn now(&mut self) -> HostResult<Timestamp> {
        Timestamp::parse("2026-05-01T00:00:00Z").ok_or_else(|| HostError::new("no clock"))
    }

    fn random(&mut self) -> HostResult<u64> {
        Ok(7)
    }
}

/// Of an error the stage is compared, not the words: what does not compile is refused with its policy, what fails
/// later fails a request.
fn run(case: &Case) -> Result<(), String> {
    match (evaluate(case), case.expected()) {
        (Ok(got), Expected::Output(wanted)) => {
            let wanted = wanted.as_str().ok_or("`output` must be text")?;
            kiln_testkit::difference(wanted, &got).map_or(Ok(()), Err)
        }
        (Err(got), Expected::Error(wanted)) => {
            let stage = |text: &str| text.split(": ").next().map(str::to_owned);
            // Where the original panics, any error is right.
            let same = wanted.starts_with("panic: ") || stage(&got) == stage(wanted);
            if same { Ok(()) } else { Err(format!("{got}, wanted {wanted}")) }
        }
        (Ok(got), Expected::Error(wanted)) => Err(format!("{got}, wanted {wanted}")),
        (Err(got), Expected::Output(wanted)) => Err(format!("{got}, wanted {wanted:?}")),
    }
}

fn evaluate(case: &Case) -> Result<String, String> {
    let given = case.get("variables").and_then(Value::as_map);
    let given = || given.into_iter().flatten();
    let policies = Env::policies(PolicyScope::Cluster);
    let mut env = match case.get("environment").and_then(Value::as_str) {
        None | Some("policy") => policies.extend().homogeneous_literals(true).build(),
        Some("generating") => policies,
        Some("standard") => Env::suite(),
        Some(other) => panic!("{}: there is no environment {other}", case.place()),
    };
    for (name, _) in given() {
        if !env.variable_names().any(|known| known == name.as_str()) {
            env = env.extend().variable(name, Type::Dyn).build();
        }
    }
    let mut composed: Vec<(&str, Program)> = Vec::new();
    for entry in case.get("policyVariables").and_then(Value::as_list).into_iter().flatten() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).expect("text");
        let program = compile(&env, text("expression"))?;
        env = env.extend().policy_variable(text("name"), program.result_type().clone()).build();
        composed.push((text("name"), program));
    }
    let program = compile(&env, case.text("expression"))?;
    let mut outside = Outside;
    let mut session = Session::new(&env, &mut outside);
    if env.variable_names().any(|known| known == "exceptions") {
        session.set("exceptions", value!({"allowedImages": [], "allowedValues": []}));
    }
    for (name, value) in given() {
        session.set(name, value);
    }
    for (name, program) in composed {
        session.set_policy_variable(name, program);
    }
    let value = session.eval(&program).map_err(|error| format!("evaluate: {error}"))?;
    Ok(literal(&value))
}

fn compile(env: &Env, source: &str) -> Result<Program, String> {
    env.compile(source).map_err(|error| format!("compile: {}", error.issues[0].message))
}

/// Writes a value so that types stay apart, as CEL would write it where it can.
fn literal(value: &Val) -> String {
    match value {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::UInt(u) => format!("{u}u"),
        Val::Double(x) => double(*x),
        Val::String(text) => quoted(text),
        Val::Bytes(bytes) => bytes_literal(bytes),
        Val::List(list) => {
            let elements: Vec<String> = list.iter().map(|element| literal(&element)).collect();
            format!("[{}]", elements.join(", "))
        }
        Val::Map(map) => {
            let entry =
                |(key, value): (Val, Val)| format!("{}: {}", literal(&key), literal(&value));
            let mut entries: Vec<String> = map.iter().map(entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Duration(span) => format!("duration(\"{}\")", seconds(span.as_nanos())),
        Val::Timestamp(moment) => format!("timestamp(\"{moment}\")"),
        Val::Type(name) => format!("type({name})"),
        Val::Optional(None) => "optional.none()".to_owned(),
        Val::Optional(Some(nested)) => format!("optional.of({})", literal(nested.value())),
        Val::Struct(message) if message.name() == "JSONPatch" => {
            let field =
                |name: &&str| message.get(name).map(|v| format!("\"{name}\": {}", literal(v)));
            let fields: Vec<String> =
                ["from", "op", "path", "value"].iter().filter_map(field).collect();
            format!("JSONPatch{{{}}}", fields.join(", "))
        }
        Val::Struct(message) => match value.to_json(10_000) {
            Ok(fields) => format!("{}{}", message.name(), literal(&Val::from(fields))),
            Err(error) => format!("no literal: {error}"),
        },
        Val::Opaque(opaque) => {
            let text = opaque.to_text().map(|text| format!("({})", quoted(&text)));
            format!("{}{}", opaque.type_name(), text.unwrap_or_default())
        }
    }
}

/// A float with a point or an exponent, which an integer never has.
fn double(x: f64) -> String {
    let magnitude = x.abs();
    if x.is_nan() {
        "double(\"NaN\")".to_owned()
    } else if x.is_infinite() {
        format!("double(\"{}Infinity\")", if x < 0.0 { "-" } else { "" })
    } else if magnitude != 0.0 && magnitude < 1e-7 || magnitude >= 1e21 {
        format!("{x:e}")
    } else {
        let text = x.to_string();
        if text.contains('.') { text } else { text + ".0" }
    }
}

fn seconds(nanos: i64) -> String {
    let (whole, fraction) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).abs());
    let sign = if nanos < 0 && whole == 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:09}");
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c < ' ' || c == '\x7f' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("room for text");
            }
            c => out.push(c),
        }
    }
    out + "\""
}

fn bytes_literal(bytes: &[u8]) -> String {
    let mut out = String::from("b\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            other => write!(out, "\\x{other:02x}").expect("room for text"),
        }
    }
    out + "\""
}
