//! The tables in `tests/cases`: what Helm 3 and Helm 4 make of each chart.
//!
//! A case with `template` is about one file, `templates/t.yaml`, and its result is the text of that file. A case with
//! `files` alone is about what `helm template` prints. `helm` names a version where the two differ.

use kiln_chart::{
    Chart, ChartOptions, HelmVersion, KubeVersion, MemoryFiles, Release, SetKind, render,
    render_templates, set_value,
};
use kiln_testkit::{Case, Expected};
use kiln_value::{Map, Number, Value};

/// Cases that fail, and why. The list only shrinks.
const KNOWN: &[(&str, &str)] = &[
    (
        "real-templates.yaml: semver that is wrong",
        "the message is that of the version of the library that ModRules use",
    ),
    ("real-templates.yaml: a constraint that is wrong", "likewise"),
];

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.2.3\nappVersion: 4.5.6\n";

#[test]
fn charts_render_as_in_helm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("chart", folder, KNOWN, run);
}

fn run(case: &Case) -> Result<(), String> {
    let versions = match case.get("helm").and_then(Value::as_i64) {
        None => &[HelmVersion::V3, HelmVersion::V4][..],
        Some(3) => &[HelmVersion::V3],
        Some(4) => &[HelmVersion::V4],
        Some(other) => panic!("{}: there is no Helm {other}", case.place()),
    };
    for helm in versions {
        let got = rendered(case, *helm);
        let fits = match (&got, case.expected()) {
            (Ok(got), Expected::Output(wanted)) => Some(got.as_str()) == wanted.as_str(),
            // Helm 4 words errors of templates in several lines.
            (Err(_), Expected::Error(_)) if helm.is_4 => true,
            (Err(got), Expected::Error(wanted)) => got == wanted,
            _ => false,
        };
        if !fits {
            let wanted = case.expected();
            let version = if helm.is_4 { 4 } else { 3 };
            return Err(format!("Helm {version}\n  wanted {wanted:?}\n  got    {got:?}"));
        }
    }
    Ok(())
}

fn rendered(case: &Case, helm: HelmVersion) -> Result<String, String> {
    let options = options(case, helm)?;
    let said = |error: kiln_chart::ChartError| error.helm_text().to_owned();
    let chart = Chart::load(&files(case), &options).map_err(said)?;
    let mut values = match case.get("values") {
        None | Some(Value::Null) => Map::new(),
        Some(values) => floats(values).as_map().cloned().unwrap_or_default(),
    };
    for line in texts(case.get("set")) {
        set_value(&mut values, &line, SetKind::Typed).map_err(said)?;
    }
    if case.get("template").is_some() {
        let files = render_templates(chart, &values, &options).map_err(said)?;
        return Ok(files["app/templates/t.yaml"].clone());
    }
    let rendered = render(chart, &values, &options).map_err(said)?;
    let notes = case.get("options").and_then(|options| options.get("notes"));
    Ok(if notes == Some(&Value::Bool(true)) { rendered.notes } else { rendered.text() })
}

fn files(case: &Case) -> MemoryFiles {
    let mut files = vec![("Chart.yaml", CHART)];
    for (field, path) in [("template", "templates/t.yaml"), ("helpers", "templates/_helpers.tpl")] {
        files.extend(case.get(field).and_then(Value::as_str).map(|text| (path, text)));
    }
    if let Some(Value::Map(given)) = case.get("files") {
        files.extend(
            given.iter().map(|(path, text)| (path.as_str(), text.as_str().unwrap_or_default())),
        );
    }
    MemoryFiles::new(files)
}

fn options(case: &Case, helm: HelmVersion) -> Result<ChartOptions, String> {
    let none = Value::map();
    let given = case.get("options").unwrap_or(&none);
    let text = |field: &str| given.get(field).and_then(Value::as_str);
    let is = |field: &str| given.get(field).and_then(Value::as_bool).unwrap_or_default();
    let usual = ChartOptions::default();
    let kube_version = match text("kubeVersion") {
        None => usual.kube_version,
        Some(version) => {
            KubeVersion::parse(version).map_err(|error| error.helm_text().to_owned())?
        }
    };
    Ok(ChartOptions {
        helm,
        release: Release {
            name: text("release").map_or(usual.release.name, str::to_owned),
            namespace: text("namespace").map_or(usual.release.namespace, str::to_owned),
            is_upgrade: is("isUpgrade"),
        },
        kube_version,
        api_versions: texts(given.get("apiVersions")),
        include_crds: is("includeCRDs"),
        skip_tests: is("skipTests"),
        no_hooks: is("noHooks"),
        ..ChartOptions::default()
    })
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_list).into_iter().flat_map(|list| list.iter());
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Numbers of files are floats.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(Number::Float(number.as_f64())),
        Value::List(list) => list.iter().map(floats).collect(),
        Value::Map(map) => {
            Value::Map(map.iter().map(|(key, value)| (key.clone(), floats(value))).collect())
        }
        other => other.clone(),
    }
}
