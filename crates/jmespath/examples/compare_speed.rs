//! Compares the speed of searches with the `jmespath` crate.
//!
//! `cargo run --release -p kiln-jmespath --example compare_speed`

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::hint::black_box;
use std::time::Instant;

use kiln_jmespath::{Expression, JmesPathEnvironment};
use kiln_value::{Value, json, value};

/// An admission request with a pod of four containers, as object and old object: about 6 kB.
fn request() -> Value {
    let container = |at: usize| {
        value!({
            "name": format!("c{at}"),
            "image": format!("registry.example/team/app-{at}:1.{at}"),
            "args": ["--port", "8080", "--verbose"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]
        })
    };
    let mut pod = value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "0", "generation": 3,
            "labels": {"app": "web", "tier": "front", "team": "shop"}, "annotations": {"note": "x"}},
        "spec": {"serviceAccountName": "web", "containers": [], "nodeSelector": {"disk": "ssd"}}
    });
    let containers: Vec<Value> = (0..4).map(container).collect();
    pod.set(["spec", "containers"], containers).unwrap();
    let mut context = value!({"request": {"uid": "u", "operation": "UPDATE", "userInfo": {"username": "dev", "groups": ["a", "b"]}}});
    context.set(["request", "object"], pod.clone()).unwrap();
    context.set(["request", "oldObject"], pod).unwrap();
    context
}

/// A list of 2,500 objects.
fn many() -> Value {
    let items: Vec<Value> = (0..2500)
        .map(|at| {
            value!({
                "metadata": {"name": format!("object-{at}"), "labels": {"app": "web", "shard": format!("{}", at % 7)}},
                "spec": {"replicas": at % 5, "image": "nginx:1.25"},
                "status": {"ready": at % 3 == 0}
            })
        })
        .collect();
    let mut list = Value::map();
    list.set(["items"], items).unwrap();
    list
}

/// Nanoseconds per run: the best of several rounds.
fn time(mut run: impl FnMut()) -> f64 {
    let mut count = 1_u32;
    loop {
        let start = Instant::now();
        for _ in 0..count {
            run();
        }
        if start.elapsed().as_millis() > 20 || count > 1 << 24 {
            break;
        }
        count *= 2;
    }
    let round = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..count {
            run();
        }
        start.elapsed().as_nanos() as f64 / f64::from(count)
    };
    (0..7).map(|_| round(&mut run)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let (request, many) = (request(), many());
    println!("context of {} bytes", json::to_string(&request).len());
    println!(
        "{:<66} {:>11} {:>11} {:>11}",
        "nanoseconds per search", "kiln", "interpret", "search"
    );
    for (source, data) in [
        ("request.object.metadata.name", &request),
        ("request.object.metadata.labels.app || 'none'", &request),
        ("request.object.spec.containers[*].image", &request),
        ("request.object.spec.containers[?name=='c2'].image | [0]", &request),
        ("length(request.object.spec.containers)", &request),
        ("request.object.spec", &request),
        (
            "merge(request.object.metadata.labels, {ns: request.object.metadata.namespace})",
            &request,
        ),
        ("join('-', [request.object.metadata.namespace, request.object.metadata.name])", &request),
        ("items[*].metadata.name", &many),
        ("items[?spec.replicas > `2`].metadata.name", &many),
        ("items[?metadata.labels.shard == '3' && status.ready].metadata.name", &many),
        ("items[].metadata.labels.shard | sort(@)", &many),
        ("sort_by(items, &metadata.name)[0].metadata.name", &many),
    ] {
        let ours = Expression::compile(source).unwrap();
        let environment = JmesPathEnvironment::default();
        let kiln = time(|| {
            black_box(ours.search(black_box(data), &environment).unwrap());
        });
        let theirs = jmespath::compile(source).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json::to_string(data)).unwrap();
        let prepared = jmespath::Rcvar::new(jmespath::Variable::try_from(&json).unwrap());
        let runtime = &jmespath::DEFAULT_RUNTIME;
        let interpret = time(|| {
            let mut context = jmespath::Context::new(source, runtime);
            black_box(
                jmespath::interpret(black_box(&prepared), theirs.as_ast(), &mut context).unwrap(),
            );
        });
        let search = time(|| {
            black_box(theirs.search(black_box(&json)).unwrap());
        });
        println!("{source:<66} {kiln:>11.0} {interpret:>11.0} {search:>11.0}");
    }
    let sources = ["request.object.metadata.name", "items[?spec.replicas > `2`].metadata.name"];
    for source in sources {
        let kiln = time(|| drop(black_box(Expression::compile(black_box(source)).unwrap())));
        let theirs = time(|| drop(black_box(jmespath::compile(black_box(source)).unwrap())));
        println!("compile {source:<58} {kiln:>11.0} {theirs:>11.0}");
    }
}
