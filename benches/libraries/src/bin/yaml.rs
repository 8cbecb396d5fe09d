//! Reading and printing 10,000 resources, the memory their values take, and what a clone costs.

use kiln_bench_libraries::{Contest, KILN, live, main as run, often, once, resources};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};
use serde_json::Value as Json;

const READ: &str = "read 10,000 resources";
const PRINT: &str = "print 10,000 resources";
const VALUES: &str = "hold 10,000 resources";
const CLONE: &str = "clone a Deployment";
const CLONE_LARGE: &str = "clone a list of 1,000 Deployments";
const YAML_SERDE: &str = "0.10";

fn main() {
    let contest = |workload, who, version, peak, run| Contest {
        workload,
        who,
        version,
        peak,
        instructions: workload == READ,
        run,
    };
    run(&[
        contest(READ, "kiln", KILN, true, || {
            let text = resources(10_000);
            once(|| kiln_values(&text))
        }),
        contest(READ, "yaml_serde", YAML_SERDE, true, || {
            let text = resources(10_000);
            once(|| peer_values(&text))
        }),
        contest(PRINT, "kiln", KILN, true, || {
            let values = kiln_values(&resources(10_000));
            once(|| kiln_yaml::emit_documents(&values))
        }),
        contest(PRINT, "yaml_serde", YAML_SERDE, true, || {
            let values = peer_values(&resources(10_000));
            once(|| {
                let mut text = String::new();
                for value in &values {
                    text.push_str("---\n");
                    text.push_str(&yaml_serde::to_string(value).unwrap());
                }
                text
            })
        }),
        contest(VALUES, "kiln", KILN, false, || {
            let text = resources(10_000);
            live(|| kiln_values(&text))
        }),
        contest(VALUES, "serde_json::Value", "1.0", false, || {
            let text = resources(10_000);
            live(|| peer_values(&text))
        }),
        contest(CLONE, "kiln", KILN, false, || {
            let value = kiln_values(&resources(1)).remove(0);
            often(|| value.clone())
        }),
        contest(CLONE, "serde_json::Value", "1.0", false, || {
            let value = peer_values(&resources(1)).remove(0);
            often(|| value.clone())
        }),
        contest(CLONE_LARGE, "kiln", KILN, false, || {
            let values: Value = kiln_values(&resources(1_000)).into();
            often(|| values.clone())
        }),
        contest(CLONE_LARGE, "serde_json::Value", "1.0", false, || {
            let values = Json::Array(peer_values(&resources(1_000)));
            often(|| values.clone())
        }),
    ]);
}

fn kiln_values(text: &str) -> Vec<Value> {
    kiln_yaml::read_bytes("bench.yaml", text.as_bytes(), ReadOptions::kustomize_resource())
        .unwrap()
        .into_iter()
        .map(Document::into_value)
        .collect()
}

fn peer_values(text: &str) -> Vec<Json> {
    use serde_json::value::Value;
    yaml_serde::Deserializer::from_str(text)
        .map(|document| <Value as serde::Deserialize>::deserialize(document).unwrap())
        .collect()
}
