//! Schemas for kubeconform, and rendered manifests as values.
//!
//! The schemas come from where Kubernetes, the Prometheus operator and cert-manager publish their sources, as Go modules:
//! the OpenAPI document of each supported Kubernetes version, and the definitions of the other kinds. They are made strict:
//! a field that the API does not know is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kiln_yaml::{Document, ReadOptions, read_bytes};
use serde_json::{Map, Value, json};

/// The oldest, a middle and the newest Kubernetes that the chart is for.
const KUBERNETES: [&str; 3] = ["1.30.14", "1.33.13", NEWEST];
/// The one that the control plane is built from.
pub(crate) const NEWEST: &str = "1.36.4";
/// Modules with definitions of other kinds, and the files that hold them.
const DEFINITIONS: [(&str, &str, &[&str]); 2] = [
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        &[
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ],
    ),
    (
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        &[
            "deploy/crds/cert-manager.io_certificates.yaml",
            "deploy/crds/cert-manager.io_issuers.yaml",
        ],
    ),
];

/// Writes the schemas of every Kubernetes version, unless they are there, and says where they are.
pub(crate) fn write(directory: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let place = |directory: &Path| {
        format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", directory.display())
    };
    let others = directory.join("definitions");
    if !others.is_dir() {
        let unfinished = directory.join("definitions.new");
        fs::create_dir_all(&unfinished)?;
        for (module, version, files) in DEFINITIONS {
            let module = module_directory(directory, module, version)?;
            for file in files {
                let path = module.join(file);
                let text = fs::read(&path).with_context(|| path.display().to_string())?;
                of_definition(&text, &unfinished)?;
            }
        }
        fs::rename(&unfinished, &others)?;
    }
    let mut written = Vec::new();
    for version in KUBERNETES {
        let own = directory.join(version);
        if !own.is_dir() {
            let module = module_directory(directory, "k8s.io/kubernetes", &format!("v{version}"))?;
            let api = fs::read(module.join("api/openapi-spec/swagger.json"))?;
            let unfinished = directory.join("unfinished");
            fs::create_dir_all(&unfinished)?;
            of_api(serde_json::from_slice(&api)?, &unfinished)?;
            fs::rename(&unfinished, &own)?;
        }
        written.push((version.to_owned(), vec![place(&own), place(&others)]));
    }
    // They are large, and nothing else is taken from them.
    let _ = fs::remove_dir_all(directory.join("modules"));
    Ok(written)
}

/// Where a module's files are.
fn module_directory(directory: &Path, module: &str, version: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .env("GOFLAGS", "-mod=mod -modcacherw")
        .env("GOMODCACHE", directory.join("modules"))
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("{module}@{version}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    ensure!(said["Error"].is_null(), "{module}@{version}: {}", said["Error"]);
    Ok(PathBuf::from(said["Dir"].as_str().context("it has a directory")?))
}

/// A file for each kind of an OpenAPI document.
fn of_api(mut api: Value, directory: &Path) -> Result<()> {
    strict(&mut api["definitions"]);
    let definitions = api["definitions"].as_object().context("it has definitions")?;
    for (name, definition) in definitions {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        for kind in kinds.into_iter().flatten() {
            let mut needed = BTreeSet::new();
            references(definition, definitions, &mut needed);
            needed.insert(name.clone());
            let inside: Map<String, Value> = needed
                .iter()
                .filter_map(|name| Some((name.clone(), definitions.get(name)?.clone())))
                .collect();
            let schema = json!({"$ref": format!("#/definitions/{name}"), "definitions": inside});
            store(directory, kind, &schema)?;
        }
    }
    Ok(())
}

/// A file for each version of a CustomResourceDefinition.
fn of_definition(text: &[u8], directory: &Path) -> Result<()> {
    for document in documents(text)? {
        for version in document["spec"]["versions"].as_array().into_iter().flatten() {
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            strict(&mut schema);
            // Checked elsewhere, and with fields of its own.
            schema["properties"]["metadata"] = json!({"type": "object"});
            let kind = json!({
                "group": document["spec"]["group"], "version": version["name"],
                "kind": document["spec"]["names"]["kind"],
            });
            store(directory, &kind, &schema)?;
        }
    }
    Ok(())
}

/// Writes a schema under the name that kubeconform asks for.
fn store(directory: &Path, kind: &Value, schema: &Value) -> Result<()> {
    let part = |name: &str| kind[name].as_str().unwrap_or_default().to_lowercase();
    let group = part("group");
    let group = group.split('.').next().unwrap_or_default();
    let suffix = if group.is_empty() { String::new() } else { format!("-{group}") };
    let name = format!("{}{suffix}-{}.json", part("kind"), part("version"));
    fs::write(directory.join(name), schema.to_string())?;
    Ok(())
}

/// The definitions that a schema refers to, also by others.
fn references(schema: &Value, definitions: &Map<String, Value>, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                let name = name.trim_start_matches("#/definitions/");
                if found.insert(name.to_owned())
                    && let Some(definition) = definitions.get(name)
                {
                    references(definition, definitions, found);
                }
            }
            map.values().for_each(|value| references(value, definitions, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, definitions, found)),
        _ => {}
    }
}

/// Leaves no room for fields that a schema does not name, and says what OpenAPI says in words of its own.
fn strict(schema: &mut Value) {
    if let Value::Object(map) = schema {
        let is_number_or_text = map.get("format").is_some_and(|format| format == "int-or-string")
            || map.get("x-kubernetes-int-or-string").is_some_and(|yes| yes == true);
        if is_number_or_text {
            map.remove("format");
            map.remove("anyOf");
            map.insert("type".to_owned(), json!(["integer", "string"]));
        }
        let keeps = map.get("x-kubernetes-preserve-unknown-fields").is_some_and(|yes| yes == true);
        if map.get("properties").is_some_and(Value::is_object)
            && map.get("type").is_some_and(|kind| kind == "object")
            && !map.contains_key("additionalProperties")
            && !keeps
        {
            map.insert("additionalProperties".to_owned(), json!(false));
        }
        map.values_mut().for_each(strict);
    } else if let Value::Array(list) = schema {
        list.iter_mut().for_each(strict);
    }
}

fn documents(text: &[u8]) -> Result<Vec<Value>> {
    let read = read_bytes("manifests", text, ReadOptions::kubernetes());
    let read = read.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let mut values = Vec::new();
    for value in read.into_iter().map(Document::into_value).filter(|value| !value.is_null()) {
        values.push(serde_json::to_value(&value)?);
    }
    Ok(values)
}

/// Manifests by what they are called, in a form that can be compared: without what Helm alone has, and with JSON inside
/// of texts read.
pub(crate) fn by_name(text: &str, is_chart: bool) -> Result<BTreeMap<String, Value>> {
    let mut named = BTreeMap::new();
    for mut object in documents(text.as_bytes())? {
        if object["kind"] == "Namespace" {
            continue;
        }
        if is_chart && let Some(metadata) = object["metadata"].as_object_mut() {
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            let empty = annotations.is_some_and(|annotations| {
                annotations.remove("helm.sh/resource-policy").is_some() && annotations.is_empty()
            });
            if empty {
                metadata.remove("annotations");
            }
        }
        let part = |path: &str| {
            object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name =
            format!("{} {}/{}", part("/kind"), part("/metadata/namespace"), part("/metadata/name"));
        named.insert(name, plain(object));
    }
    Ok(named)
}

fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        Value::Array(list) => list.into_iter().map(plain).collect(),
        Value::String(text) if text.starts_with(['{', '[']) => {
            serde_json::from_str(&text).map_or(Value::String(text), plain)
        }
        other => other,
    }
}
