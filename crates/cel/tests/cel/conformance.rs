//! The recorded conformance cases of the language.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kiln_cel::{Env, EnvBuilder, Map, NoHost, Session, Type, Val};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Str, Value};

/// Two cases whose expressions lost a backslash when they were recorded.
const DAMAGED: [&str; 2] =
    ["triple_single_quoted_unescaped_punctuation", "triple_double_quoted_unescaped_punctuation"];

#[test]
fn the_recorded_conformance_cases_pass() {
    let Some(cases) = corpus_json("cel/conformance.json") else { return };
    let mut tally = Tally::new("CEL conformance");
    let suite = Env::suite();
    for case in cases.as_list().expect("a list of cases") {
        let text = |field: &str| case.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("section") == "bytes_literals" && DAMAGED.contains(&text("name")) {
            tally.leave_out();
            continue;
        }
        let name =
            format!("{}/{}/{}: {}", text("file"), text("section"), text("name"), text("expr"));
        tally.case(&name, || run(&suite, case));
    }
    tally.finish();
}

fn run(suite: &Env, case: &Value) -> Result<(), String> {
    let flag = |field: &str| case.get(field).and_then(Value::as_bool).unwrap_or_default();
    let expr = case.get("expr").and_then(Value::as_str).ok_or("no expression")?;
    let expect = case.get("expect").ok_or("no expectation")?;
    let wants_error = expect.get("error").is_some();
    let env = environment(suite, case);

    if let Some(wanted) = expect.get("type").and_then(Value::as_str) {
        let found = env.check(expr).map_err(|error| error.to_string())?.result;
        if found != read_type(wanted) {
            return Err(format!("type {found}, wanted {wanted}"));
        }
    }
    if flag("check_only") {
        return Ok(());
    }
    let program =
        if flag("disable_check") { env.compile_unchecked(expr) } else { env.compile(expr) };
    let program = match program {
        Ok(program) => program,
        Err(_) if wants_error => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let mut host = NoHost;
    let mut session = Session::new(&env, &mut host);
    if let Some(bindings) = case.get("bindings").and_then(Value::as_map) {
        for (name, value) in bindings {
            session.set(name, read_value(value));
        }
    }
    match (session.eval(&program), expect.get("value")) {
        (Err(_), _) if wants_error => Ok(()),
        (Err(error), _) => Err(format!("failed: {error}")),
        (Ok(found), Some(wanted)) => {
            let wanted = read_value(wanted);
            if same(&found, &wanted) {
                Ok(())
            } else {
                Err(format!("{found:?}, wanted {wanted:?}"))
            }
        }
        (Ok(found), None) => Err(format!("{found:?}, wanted an error")),
    }
}

fn environment(suite: &Env, case: &Value) -> Env {
    let container = case.get("container").and_then(Value::as_str).unwrap_or_default();
    let mut builder: EnvBuilder = suite.extend().container(container);
    let declared = case.get("env").and_then(Value::as_list);
    for declaration in declared.into_iter().flatten() {
        let name = declaration.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(ty) = declaration.get("ident").and_then(Value::as_str) {
            builder = builder.variable(name, read_type(ty));
        }
        for overload in declaration.get("fn").and_then(Value::as_list).into_iter().flatten() {
            let params = overload.get("params").and_then(Value::as_list);
            let params = params.into_iter().flatten().filter_map(Value::as_str).map(read_type);
            let result = overload.get("result").and_then(Value::as_str).unwrap_or("dyn");
            let member = overload.get("inst").and_then(Value::as_bool).unwrap_or_default();
            builder = builder.function(name, params.collect(), read_type(result), member);
        }
    }
    builder.build()
}

/// Types as the cases write them: `map(string,int)`, `param:T`, `abs:tuple(…)`.
fn read_type(text: &str) -> Type {
    let (name, params) = match text.split_once('(') {
        Some((name, rest)) => {
            (name, split_params(rest.strip_suffix(')').expect("a closing bracket")))
        }
        None => (text, Vec::new()),
    };
    match (name, params.as_slice()) {
        ("list", [element]) => Type::list(element.clone()),
        ("map", [key, value]) => Type::map(key.clone(), value.clone()),
        ("bool", []) => Type::Bool,
        ("int", []) => Type::Int,
        ("uint", []) => Type::UInt,
        ("double", []) => Type::Double,
        ("string", []) => Type::String,
        ("bytes", []) => Type::Bytes,
        ("null", []) => Type::Null,
        ("dyn", []) => Type::Dyn,
        ("type", _) => Type::Type,
        (name, _) => match name.split_once(':') {
            Some(("param", name)) => Type::Param(Str::new(name)),
            Some(("abs", name)) => Type::Opaque(Str::new(name), Arc::from(params)),
            _ => panic!("type {text:?}"),
        },
    }
}

fn split_params(text: &str) -> Vec<Type> {
    let (mut depth, mut start, mut params) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                params.push(read_type(&text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    params.push(read_type(&text[start..]));
    params
}

fn read_value(tagged: &Value) -> Val {
    let (tag, value) = tagged.as_map().and_then(|map| map.iter().next()).expect("a tagged value");
    let text = || value.as_str().expect("text");
    match tag.as_str() {
        "null" => Val::Null,
        "bool" => Val::Bool(value.as_bool().expect("a boolean")),
        "int" => Val::Int(text().parse().expect("an integer")),
        "uint" => Val::UInt(text().parse().expect("an unsigned integer")),
        "double" => Val::Double(text().parse().expect("a float")),
        "string" => Val::string(text()),
        "bytes" => Val::Bytes(Arc::from(BASE64_STANDARD.decode(text()).expect("base64"))),
        "type" => Val::Type(Str::new(text())),
        "list" => Val::from_elements(value.as_list().expect("a list").iter().map(read_value)),
        "map" => Val::from_entries(value.as_list().expect("entries").iter().map(|entry| {
            let part = |at| read_value(entry.index(at).expect("key and value"));
            (part(0), part(1))
        })),
        tag => panic!("a value of kind {tag}"),
    }
}

/// Equality of results: kinds count, the order of map entries does not, NaN equals itself.
fn same(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Int(a), Val::Int(b)) => a == b,
        (Val::UInt(a), Val::UInt(b)) => a == b,
        (Val::Double(a), Val::Double(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (Val::String(a), Val::String(b)) | (Val::Type(a), Val::Type(b)) => a == b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::List(a), Val::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(&a, &b))
        }
        (Val::Map(a), Val::Map(b)) => a.len() == b.len() && contains(a, b),
        _ => false,
    }
}

fn contains(a: &Map, b: &Map) -> bool {
    a.iter().all(|(key, value)| {
        b.iter().any(|(other_key, other)| same(&key, &other_key) && same(&value, &other))
    })
}
