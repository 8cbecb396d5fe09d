//! CEL on a Pod beside the two best-known crates; cel-go competes from a program of its own, which keeps
//! the expressions and the Pod.
//!
//! Every contender gets the Pod bound before, in the form it likes best. Compiling is all that it takes from
//! the text to something that runs: `cel` checks no types and plans nothing, the others do both.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use kiln_bench_libraries::{Contest, KILN, Outcome, main as run, often, once};
use kiln_cel::{Budget, NoHost, Session, Type};
use kiln_value::json;

const EXPRESSIONS: &str = include_str!("../../cel-go/expressions.txt");
const POD: &str = include_str!("../../cel-go/pod.json");
const COMPILE: &str = "compile the six, 1,000 times";
const ROUNDS: usize = 1_000;

fn main() {
    let contest = |workload, who, version, instructions, run| Contest {
        workload,
        who,
        version,
        peak: false,
        instructions,
        run,
    };
    let mut contests = Vec::new();
    for expression in EXPRESSIONS.lines() {
        contests.push(contest(expression, "kiln", KILN, false, kiln));
        contests.push(contest(expression, "cel", "0.15", false, cel));
        contests.push(contest(expression, "cel-core", "0.5", false, core));
    }
    contests.push(contest(COMPILE, "kiln", KILN, true, kiln_compile));
    contests.push(contest(COMPILE, "cel", "0.15", false, cel_compile));
    contests.push(contest(COMPILE, "cel-core", "0.5", true, core_compile));
    run(&contests);
}

/// The workload that was asked for, which is the expression itself.
fn expression() -> String {
    std::env::args().nth(1).expect("a contest was chosen by its workload")
}

fn kiln() -> Outcome {
    let env = kiln_env();
    let program = env.compile(&expression()).unwrap();
    let mut host = NoHost;
    // Each evaluation counts against its own budget; only their sum must not end.
    let budget = Budget { total: u64::MAX, ..Budget::default() };
    let mut session = Session::with_budget(&env, &mut host, budget);
    session.set("object", json::parse(POD).unwrap());
    let result = session.eval_json(&program).unwrap();
    often(|| session.eval(&program).unwrap()).check(json::to_canonical_string(&result))
}

fn cel() -> Outcome {
    let env = Arc::new(cel::Env::stdlib());
    let program = env.compile(&expression()).unwrap();
    let mut context = cel::Context::with_env(env);
    context.add_variable("object", pod()).unwrap();
    let result = program.execute(&context).unwrap().json().unwrap();
    often(|| program.execute(&context).unwrap()).check(canonical(&result))
}

fn core() -> Outcome {
    let env = core_env();
    let ast = env.compile(&expression()).unwrap();
    let program = env.program(&ast).unwrap();
    let mut activation = cel_core::MapActivation::new();
    activation.insert("object", to_core(&pod()));
    let result = from_core(&program.eval(&activation));
    often(|| program.eval(&activation)).check(canonical(&result))
}

fn kiln_compile() -> Outcome {
    let env = kiln_env();
    compile(|expression| env.compile(expression).unwrap())
}

fn cel_compile() -> Outcome {
    let env = cel::Env::stdlib();
    compile(|expression| env.compile(expression).unwrap())
}

fn core_compile() -> Outcome {
    let env = core_env();
    compile(|expression| {
        let ast = env.compile(expression).unwrap();
        env.program(&ast).unwrap()
    })
}

/// So many rounds that making the environment hardly counts among the instructions of the process.
fn compile<T>(compile: impl Fn(&str) -> T) -> Outcome {
    once(|| {
        for _ in 0..ROUNDS {
            for expression in EXPRESSIONS.lines() {
                black_box(compile(black_box(expression)));
            }
        }
    })
}

fn kiln_env() -> kiln_cel::Env {
    kiln_cel::Env::suite().extend().variable("object", Type::Dyn).build()
}

fn core_env() -> cel_core::Env {
    cel_core::Env::with_standard_library()
        .with_all_extensions()
        .with_variable("object", cel_core::CelType::Dyn)
}

fn pod() -> serde_json::Value {
    serde_json::from_str(POD).unwrap()
}

fn canonical(result: &serde_json::Value) -> String {
    json::to_canonical_string(&json::parse(&result.to_string()).unwrap())
}

fn to_core(value: &serde_json::Value) -> cel_core::Value {
    use cel_core::{MapKey, Value, ValueMap};
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(i) => Value::Int(i),
            None => Value::Double(n.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::String(Arc::from(text.as_str())),
        serde_json::Value::Array(list) => {
            Value::List(Arc::from(list.iter().map(to_core).collect::<Vec<_>>()))
        }
        serde_json::Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.iter().collect();
            let entries = entries
                .into_iter()
                .map(|(key, value)| (MapKey::String(Arc::from(key.as_str())), to_core(value)));
            Value::Map(Arc::new(ValueMap::from_entries(entries)))
        }
    }
}

/// The kinds of value that the expressions come to.
fn from_core(value: &cel_core::Value) -> serde_json::Value {
    use cel_core::{MapKey, Value};
    match value {
        Value::Bool(b) => (*b).into(),
        Value::Int(i) => (*i).into(),
        Value::String(text) => (**text).into(),
        Value::Map(map) => map
            .iter()
            .map(|(key, value)| match key {
                MapKey::String(key) => (key.to_string(), from_core(value)),
                other => panic!("a key that JSON has not: {other:?}"),
            })
            .collect(),
        other => panic!("no expression should come to {other:?}"),
    }
}
