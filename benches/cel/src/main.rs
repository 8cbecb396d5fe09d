//! Six expressions on a Pod, beside the two best-known crates: `cargo run --release`.
//!
//! Each line is the best of many batches, in nanoseconds per evaluation; all three get the Pod
//! bound before, in the form they like best.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use kiln_cel::{NoHost, Session, Type};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-7d9c","namespace":"shop",
"uid":"0c6ab7f1-2b4a-4f8e-9f0e-1d0f6a3f5b11","labels":{"app":"nginx","team":"platform","tier":"front",
"pod-template-hash":"7d9c5b8f6"},"annotations":{"checksum/config":"9a1f3b","prometheus.io/scrape":"true"}},
"spec":{"serviceAccountName":"default","nodeName":"node-3","containers":[{"name":"web","image":
"docker.io/library/nginx:1.27","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"limits":
{"cpu":"500m","memory":"256Mi"}}},{"name":"sidecar","image":"ghcr.io/acme/proxy:2","env":[{"name":"A",
"value":"1"},{"name":"B","value":"2"}]}],"volumes":[{"name":"config","configMap":{"name":"web"}}],
"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"}]}}"#;

const EXPRESSIONS: [&str; 6] = [
    "object.metadata.labels['app'] == 'nginx'",
    "has(object.metadata.labels) && 'team' in object.metadata.labels && object.metadata.labels['team'] == 'platform'",
    "object.spec.containers.all(c, c.image.startsWith('docker.io/') || c.image.startsWith('ghcr.io/'))",
    "object.metadata.?labels.?missing.orValue('none')",
    "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': object.metadata.name + '-config', 'namespace': object.metadata.namespace}), 'data': dyn({'key': 'value'})}",
    "object.spec.containers.map(c, c.name).filter(n, n != 'sidecar').size()",
];

fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..500 {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 500.0);
    }
    best
}

fn main() {
    println!("{:>8} {:>8} {:>8}  expression (ns per evaluation)", "kiln", "cel", "cel-core");
    let pod: serde_json::Value = serde_json::from_str(POD).expect("JSON");

    let env = kiln_cel::Env::suite().extend().variable("object", Type::Dyn).build();
    let object = kiln_value::json::parse(POD).expect("JSON");

    let cel_env = Arc::new(cel::Env::stdlib());
    let mut cel_context = cel::Context::with_env(cel_env.clone());
    cel_context.add_variable("object", pod.clone()).expect("a variable");

    let core_env = cel_core::Env::with_standard_library()
        .with_all_extensions()
        .with_variable("object", cel_core::CelType::Dyn);
    let mut activation = cel_core::MapActivation::new();
    activation.insert("object", core_value(&pod));

    for expression in EXPRESSIONS {
        let program = env.compile(expression).expect("compiles");
        let mut host = NoHost;
        let budget = kiln_cel::Budget { total: u64::MAX, ..Default::default() };
        let mut session = Session::with_budget(&env, &mut host, budget);
        session.set("object", object.clone());
        let ours = best(|| {
            black_box(session.eval(black_box(&program)).expect("runs"));
        });

        let program = cel_env.compile(expression).expect("compiles");
        let cel = best(|| {
            black_box(program.execute(black_box(&cel_context)).expect("runs"));
        });

        let ast = core_env.compile(expression).expect("compiles");
        let program = core_env.program(&ast).expect("a program");
        let core = best(|| {
            black_box(program.eval(black_box(&activation)));
        });
        println!("{ours:8.0} {cel:8.0} {core:8.0}  {expression:.60}");
    }

    println!("\ncompile, microseconds:");
    for expression in EXPRESSIONS {
        let ours = best(|| {
            black_box(env.compile(black_box(expression)).expect("compiles"));
        });
        let cel = best_few(|| {
            black_box(cel_env.compile(black_box(expression)).expect("compiles"));
        });
        let core = best_few(|| {
            black_box(core_env.compile(black_box(expression)).expect("compiles"));
        });
        println!("{:8.1} {:8.1} {:8.1}  {expression:.60}", ours / 1e3, cel / 1e3, core / 1e3);
    }

    let steps = "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))";
    let budget = kiln_cel::Budget { expression: u64::MAX, total: u64::MAX, ..Default::default() };
    let program = env.compile(steps).expect("compiles");
    let mut host = NoHost;
    let mut session = Session::with_budget(&env, &mut host, budget);
    let start = Instant::now();
    black_box(session.eval(&program).expect("runs"));
    println!("\none million comprehension steps: {:?}", start.elapsed());
}

fn best_few(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..20 {
            run();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 20.0);
    }
    best
}

fn core_value(value: &serde_json::Value) -> cel_core::Value {
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
            Value::List(Arc::from(list.iter().map(core_value).collect::<Vec<_>>()))
        }
        serde_json::Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.iter().collect();
            let entries = entries
                .into_iter()
                .map(|(key, value)| (MapKey::String(Arc::from(key.as_str())), core_value(value)));
            Value::Map(Arc::new(ValueMap::from_entries(entries)))
        }
    }
}
