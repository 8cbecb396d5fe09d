//! JMESPath beside the `jmespath` crate: its `search` converts the input on every call, its `interpret` needs
//! input that was converted before, which no caller with other needs has at hand. Both are shown.

use kiln_bench_libraries::{Contest, KILN, Outcome, main as run, often};
use kiln_jmespath::{JmesPathEnvironment, Expression};
use kiln_value::{Value, json};
use kiln_variables::{ContextScope, Substitution, Template};

const FIELD: &str = "request.object.metadata.name";
const LABEL: &str = "request.object.metadata.labels.app || 'none'";
const IMAGES: &str = "request.object.spec.containers[*].image";
const LARGE_FILTER: &str = "items[?spec.replicas > `3`].metadata.name";
const LARGE_PROJECTION: &str = "items[*].spec.template.spec.containers[].image";
const SUBSTITUTE: &str = "fill a template of 200 lines with 60 variables";
const PEER: &str = "0.5";

fn main() {
    let mut contests = Vec::new();
    macro_rules! contest {
        ($expression:expr, $context:expr) => {
            contests.push(Contest {
                workload: $expression,
                who: "kiln",
                version: KILN,
                peak: false,
                instructions: false,
                run: || kiln($expression, &$context),
            });
            contests.push(Contest {
                workload: $expression,
                who: "jmespath interpret",
                version: PEER,
                peak: false,
                instructions: false,
                run: || interpret($expression, &$context),
            });
            contests.push(Contest {
                workload: $expression,
                who: "jmespath search",
                version: PEER,
                peak: false,
                instructions: false,
                run: || search($expression, &$context),
            });
        };
    }
    contest!(FIELD, request());
    contest!(LABEL, request());
    contest!(IMAGES, request());
    contest!(LARGE_FILTER, deployments(2_500));
    contest!(LARGE_PROJECTION, deployments(2_500));
    contests.push(Contest {
        workload: SUBSTITUTE,
        who: "kiln",
        version: KILN,
        peak: false,
        instructions: false,
        run: substitute,
    });
    run(&contests);
}

fn kiln(expression: &str, context: &str) -> Outcome {
    let expression = Expression::compile(expression).unwrap();
    let context = json::parse(context).unwrap();
    let environment = JmesPathEnvironment::default();
    let result = expression.search(&context, &environment).unwrap();
    often(|| expression.search(&context, &environment).unwrap()).check(json::to_canonical_string(&result))
}

fn interpret(expression: &str, context: &str) -> Outcome {
    let compiled = jmespath::compile(expression).unwrap();
    let context = jmespath::Rcvar::new(jmespath::Variable::from_json(context).unwrap());
    let find = || {
        let mut state = jmespath::Context::new(expression, &jmespath::DEFAULT_RUNTIME);
        jmespath::interpret(&context, compiled.as_ast(), &mut state).unwrap()
    };
    let result = find();
    often(find).check(canonical(&result))
}

fn search(expression: &str, context: &str) -> Outcome {
    let compiled = jmespath::compile(expression).unwrap();
    let context: serde_json::Value = serde_json::from_str(context).unwrap();
    let result = compiled.search(&context).unwrap();
    often(|| compiled.search(&context).unwrap()).check(canonical(&result))
}

fn canonical(result: &jmespath::Rcvar) -> String {
    json::to_canonical_string(&json::parse(&serde_json::to_string(result).unwrap()).unwrap())
}

/// An admission request with a Pod of four containers, as old and as new object.
fn request() -> String {
    let containers: Vec<_> = (0..4)
        .map(|i| {
            serde_json::json!({
                "name": format!("c{i}"), "image": format!("registry.example.com/team/app-{i}:1.{i}"),
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            })
        })
        .collect();
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
        "spec": {"serviceAccountName": "web", "containers": containers},
    });
    serde_json::json!({"request": {"operation": "UPDATE", "userInfo": {"username": "jane", "groups": ["dev"]},
        "object": pod, "oldObject": pod}})
    .to_string()
}

fn deployments(count: usize) -> String {
    let items: Vec<_> = (0..count)
        .map(|i| {
            serde_json::json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": format!("web-{i}"), "labels": {"app": format!("web-{i}")}},
                "spec": {"replicas": i % 7, "template": {"spec": {"containers": [
                    {"name": "main", "image": format!("registry.example.com/web:{i}")},
                    {"name": "proxy", "image": "registry.example.com/proxy:2"}]}}},
            })
        })
        .collect();
    serde_json::json!({ "items": items }).to_string()
}

fn substitute() -> Outcome {
    let mut lines = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: '{{ request.object.metadata.name }}-settings'\ndata:\n");
    for i in 0..196 {
        match i % 10 {
            0 => lines.push_str(&format!("  name-{i}: '{{{{ request.object.metadata.name }}}}'\n")),
            3 => lines.push_str(&format!("  image-{i}: 'from {{{{ request.object.spec.containers[0].image }}}} on'\n")),
            7 => lines.push_str(&format!("  app-{i}: '{{{{ request.object.metadata.labels.app || ''none'' }}}}'\n")),
            _ => lines.push_str(&format!("  plain-{i}: some text that stays as it is\n")),
        }
    }
    let document: Value =
        kiln_yaml::read_bytes("bench.yaml", lines.as_bytes(), kiln_yaml::ReadOptions::kubernetes())
            .unwrap()
            .remove(0)
            .into_value();
    let template = Template::compile(&document);
    let context = json::parse(&request()).unwrap();
    let scope = ContextScope::new(&context, JmesPathEnvironment::default());
    often(|| Substitution::new(&scope).run(&template).unwrap())
}
