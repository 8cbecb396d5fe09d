//! The Helm chart and `kiln install` are one thing: for every file of values in `charts/kiln/ci`, the chart's templates
//! render what `kiln install --values` prints. Rendered here with our own templates; `cargo xtask chart` does the same
//! with Helm.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_gotemplate::{FunctionSet, Template, TemplateEnvironment};
use kiln_install::{InstallOptions, chart, manifests, over_defaults};
use kiln_testkit::project_root;
use kiln_value::{Value, json, value};
use kiln_yaml::{Document, ReadOptions, read};

fn folder() -> PathBuf {
    project_root().join("charts/kiln")
}

fn text(path: &str) -> String {
    let path = folder().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(name: &str, text: &str) -> Vec<Value> {
    let source = Arc::new(Source::new(name, text));
    let documents = read(&source, ReadOptions::kubernetes());
    let documents = documents.unwrap_or_else(|error| panic!("{name}: {error:?}\n{text}"));
    documents.into_iter().map(Document::into_value).filter(|value| !value.is_null()).collect()
}

fn document(path: &str) -> Value {
    documents(path, &text(path)).remove(0)
}

/// The files of values that the chart is tried with.
fn tables() -> Vec<(String, Value)> {
    let files = fs::read_dir(folder().join("ci")).unwrap().flatten();
    let mut names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), document(&format!("ci/{name}")))).collect()
}

/// What the chart renders with these values, or why it does not.
fn rendered(values: &Value, namespace: &str) -> Result<Vec<Value>, String> {
    let chart = document("Chart.yaml");
    let data = value!({
        "Values": over_defaults(values),
        "Release": {"Name": "kiln", "Namespace": namespace, "Service": "Helm"},
        "Chart": {
            "Name": "kiln", "Version": chart.get("version").unwrap().clone(),
            "AppVersion": chart.get("appVersion").unwrap().clone(),
        },
    });
    let helpers = text("templates/_helpers.tpl");
    let mut objects = Vec::new();
    let files = ["templates", "templates/tests"].map(|at| fs::read_dir(folder().join(at)).unwrap());
    for path in files.into_iter().flatten().flatten().map(|file| file.path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".yaml") && name != "NOTES.txt" {
            continue;
        }
        let source = format!("{helpers}{}", fs::read_to_string(&path).unwrap());
        let options = kiln_gotemplate::TemplateOptions {
            functions: FunctionSet::Sprig,
            ..kiln_gotemplate::TemplateOptions::default()
        };
        let template = Template::parse(name, &source, &options).unwrap_or_else(|e| panic!("{e}"));
        let text = template
            .render(&data, &TemplateEnvironment::default())
            .map_err(|error| error.to_string())?;
        if name.ends_with(".yaml") {
            objects.extend(documents(name, &text));
        } else {
            assert!(text.contains("helm uninstall"), "{text}");
        }
    }
    Ok(objects)
}

fn is_hook(object: &Value) -> bool {
    object.get_path(["metadata", "annotations", "helm.sh/hook"]).is_some()
}

/// Objects by what they are called, in a form that can be compared: JSON inside of texts is read.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, serde_json::Value> {
    let mut named = BTreeMap::new();
    for object in objects {
        let of = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default();
        let name = format!(
            "{} {}/{}",
            of(&["kind"]),
            of(&["metadata", "namespace"]),
            of(&["metadata", "name"])
        );
        let value: serde_json::Value = serde_json::from_str(&json::to_string(&object)).unwrap();
        assert!(named.insert(name.clone(), plain(value)).is_none(), "{name} twice");
    }
    named
}

fn plain(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => {
            let sorted: BTreeMap<String, serde_json::Value> =
                map.into_iter().map(|(key, value)| (key, plain(value))).collect();
            sorted.into_iter().collect()
        }
        serde_json::Value::Array(list) => list.into_iter().map(plain).collect(),
        serde_json::Value::String(text) if text.starts_with(['{', '[']) => {
            serde_json::from_str(&text).map_or(serde_json::Value::String(text), plain)
        }
        other => other,
    }
}

#[test]
fn the_chart_renders_what_kiln_install_prints() {
    let tables = tables();
    assert!(tables.len() >= 5);
    for (file, values) in tables {
        for namespace in ["kyverno", "rules"] {
            let mut chart = rendered(&values, namespace).unwrap();
            for definition in &mut chart {
                // Helm alone deletes what was installed, and must not delete these.
                if definition.str_at(["kind"]) == Some("CustomResourceDefinition") {
                    let annotations = definition.get_mut("metadata").and_then(Value::as_map_mut);
                    let annotations = annotations.unwrap().get_mut("annotations").unwrap();
                    let annotations = annotations.as_map_mut().unwrap();
                    let kept = annotations.remove("helm.sh/resource-policy").unwrap();
                    assert_eq!(kept.as_str(), Some("keep"));
                    if annotations.is_empty() {
                        let metadata = definition.get_mut("metadata").unwrap();
                        metadata.as_map_mut().unwrap().remove("annotations");
                    }
                }
            }
            chart.retain(|object| !is_hook(object));
            let mut options = InstallOptions::from_values(&values).unwrap();
            options.namespace = namespace.to_owned();
            let mut printed = manifests(&options);
            // Helm makes the namespace of a release.
            printed.retain(|object| object.str_at(["kind"]) != Some("Namespace"));
            let (chart, printed) = (by_name(chart), by_name(printed));
            let names = |objects: &BTreeMap<String, serde_json::Value>| -> Vec<String> {
                objects.keys().cloned().collect()
            };
            assert_eq!(names(&chart), names(&printed), "{file} in {namespace}");
            for (name, object) in printed {
                let shown = |value| serde_json::to_string_pretty(value).unwrap();
                let (left, right) = (shown(&chart[&name]), shown(&object));
                assert_eq!(left, right, "{name} of {file} in {namespace}: chart, kiln install");
            }
        }
    }
}

/// Whether a generated file is as it is generated now; `cargo xtask accept` writes it.
fn is_current(path: &Path, wanted: &str) {
    if std::env::var_os("KILN_ACCEPT").is_some() {
        fs::write(path, wanted).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{} is out of date: cargo xtask accept", path.display());
}

#[test]
fn generated_templates_are_current() {
    for (name, wanted) in chart::templates() {
        is_current(&folder().join("templates").join(name), &wanted);
    }
}

#[test]
fn values_have_the_defaults_of_kiln_install() {
    assert_eq!(InstallOptions::from_values(&Value::map()).unwrap(), InstallOptions::default());
    let everything = kiln_value::from_value::<InstallOptions>(&document("values.yaml")).unwrap();
    assert_eq!(everything, InstallOptions::default());
}

#[test]
fn chart_and_binary_have_one_version() {
    let chart = document("Chart.yaml");
    for field in ["version", "appVersion"] {
        assert_eq!(chart.str_at([field]), Some(env!("CARGO_PKG_VERSION")), "{field}");
    }
}

/// The paths of values that the chart has.
fn paths(values: &Value, schema: &Value, at: &str, missing: &mut Vec<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_map) else { return };
    assert_eq!(schema.get("additionalProperties"), Some(&Value::from(false)), "{at} is strict");
    let values = values.as_map().unwrap();
    for (key, part) in properties.iter() {
        let path = format!("{at}.{key}");
        assert!(part.str_at(["description"]).is_some(), "{path} is described");
        match values.get(key.as_str()) {
            Some(value) if value.as_map().is_some_and(|map| !map.is_empty()) => {
                paths(value, part, &path, missing);
            }
            Some(_) => {}
            None => missing.push(path),
        }
    }
    for key in values.keys() {
        assert!(properties.contains_key(key.as_str()), "{at}.{key} is in the schema");
    }
}

#[test]
fn the_schema_describes_every_value_and_no_other() {
    let schema = json::parse(&text("values.schema.json")).unwrap();
    let mut missing = Vec::new();
    paths(&document("values.yaml"), &schema, "", &mut missing);
    // Helm itself gives it to subcharts.
    assert_eq!(missing, [".global"]);
}

#[test]
fn the_page_about_values_is_current() {
    let page = project_root().join("docs/reference/helm-values.md");
    let wanted = chart::reference(&text("values.schema.json"), &document("values.yaml"));
    is_current(&page, &wanted);
}

#[test]
fn the_chart_says_what_is_missing() {
    let nothing = rendered(&Value::map(), "kyverno").unwrap_err();
    assert!(nothing.contains("image.repository is required"), "{nothing}");
    let idle = value!({
        "image": {"repository": "kiln"}, "features": {"admission": false, "controller": false},
    });
    let idle_chart = rendered(&idle, "kyverno").unwrap_err();
    let idle = InstallOptions::from_values(&idle).unwrap().check().unwrap_err();
    assert!(idle_chart.contains(idle), "{idle_chart}");
    let misspelt =
        InstallOptions::from_values(&value!({"networkPolicy": {"apiServer": []}})).unwrap_err();
    assert_eq!(misspelt.path.to_string(), "networkPolicy.apiServer");
}
