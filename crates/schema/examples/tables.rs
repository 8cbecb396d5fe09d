//! Writes the built-in table of Kubernetes 1.21 anew:
//! `cargo run -p kiln-schema --example tables -- MERGE_SCHEMA_1_21.json`.
//!
//! The input is its OpenAPI document, reduced to what merging needs: field descriptions (`ref`, `items`, `values`,
//! `strategy`, `key`, `keys`) and resources with their scope. The tables of newer versions are written by
//! `cargo xtask kubernetes`.

use std::error::Error;
use std::path::Path;

use kiln_schema::{Schema, generate};
use kiln_value::{Map, Value, json, value};

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [old] = files.as_slice() else {
        return Err("give the merge schema of 1.21".into());
    };
    let read = |file: &String| -> Result<Value, Box<dyn Error>> {
        Ok(json::parse(&std::fs::read_to_string(file)?)?)
    };
    let into = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/builtin");
    let schema = Schema::empty().with_openapi(&document_1_21(&read(old)?))?;
    let about = "Merge rules and scopes of Kubernetes 1.21.2.";
    std::fs::write(into.join("v1_21.rs"), generate::rust_source(&schema, about))?;
    Ok(())
}

/// The field descriptions of 1.21 as OpenAPI.
fn document_1_21(reduced: &Value) -> Value {
    let mut definitions = Map::new();
    for (name, fields) in entries(reduced.get("definitions")) {
        let properties: Map = entries(Some(fields))
            .map(|(name, field)| (name.clone(), property_1_21(field)))
            .collect();
        definitions.insert(name.clone(), value!({ "properties": properties }));
    }
    let mut paths = Map::new();
    for resource in reduced.get("resources").and_then(Value::as_list).into_iter().flatten() {
        let text = |key| resource.get(key).and_then(Value::as_str);
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else { continue };
        let gvk = gvk(api_version, kind);
        if let Some(scope) = text("scope") {
            add_path(&mut paths, &gvk, scope == "Namespaced");
        }
        let definition = text("def").and_then(|name| definitions.get_mut(name));
        if let Some(definition) = definition {
            add_gvk(definition, gvk);
        }
    }
    value!({ "definitions": definitions, "paths": paths })
}

fn property_1_21(field: &Value) -> Value {
    let mut property = Map::new();
    let reference = |name: &Value| value!({ "$ref": name.as_str() });
    if let Some(name) = field.get("ref") {
        property.insert("$ref", name.clone());
    }
    if let Some(name) = field.get("items") {
        property.insert("items", reference(name));
    }
    if let Some(name) = field.get("values") {
        property.insert("additionalProperties", reference(name));
    }
    for (ours, theirs) in [
        ("strategy", "x-kubernetes-patch-strategy"),
        ("key", "x-kubernetes-patch-merge-key"),
        ("keys", "x-kubernetes-list-map-keys"),
    ] {
        if let Some(value) = field.get(ours) {
            property.insert(theirs, value.clone());
        }
    }
    let merges = field.get("strategy").and_then(Value::as_str) == Some("merge");
    let keyed = field.get("key").is_some() || field.get("keys").is_some();
    if keyed || (merges && field.get("ref").is_none()) {
        property.insert("type", "array");
    }
    Value::Map(property)
}

fn entries(map: Option<&Value>) -> impl Iterator<Item = (&kiln_value::Key, &Value)> {
    map.and_then(Value::as_map).into_iter().flatten()
}

fn gvk(api_version: &str, kind: &str) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    value!({"group": group, "version": version, "kind": kind})
}

fn add_gvk(definition: &mut Value, gvk: Value) {
    let Some(definition) = definition.as_map_mut() else { return };
    let kinds = definition.get_or_insert_with("x-kubernetes-group-version-kind", Value::list);
    if let Some(kinds) = kinds.as_list_mut() {
        kinds.push(gvk);
    }
}

fn add_path(paths: &mut Map, gvk: &Value, namespaced: bool) {
    let place = if namespaced { "namespaces/{namespace}" } else { "cluster" };
    let path = format!("/{}/{place}", json::to_string(gvk));
    paths.insert(path, value!({ "get": { "x-kubernetes-group-version-kind": gvk } }));
}
