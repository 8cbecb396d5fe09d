//! Which subcharts are rendered, under which names, and what their parents take over from their values.

use kiln_value::{Map, Value};

use crate::error::{ChartError, Result};
use crate::load::Chart;
use crate::metadata::Dependency;
use crate::options::HelmVersion;
use crate::values::{Merger, Nulls, path_value, table};

/// Says which dependencies a chart lacks.
pub(crate) fn check_present(chart: &Chart) -> Result<()> {
    let present = |dependency: &&Dependency| {
        !chart.subcharts.iter().any(|subchart| subchart.name() == dependency.name)
    };
    let missing: Vec<&str> =
        chart.metadata.dependencies.iter().filter(present).map(|d| d.name.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message =
        format!("found in Chart.yaml, but missing in charts/ directory: {}", missing.join(", "));
    let helm = format!(
        "An error occurred while checking for chart dependencies. You may need to run `helm dependency build` to fetch missing dependencies: {message}"
    );
    let diagnostic = kiln_diagnostic::Diagnostic::error(message)
        .hint("run `helm dependency build` to put them into charts/");
    Err(ChartError::placed(diagnostic, helm))
}

/// Takes out the subcharts that values disable, gives others their aliases, and imports values.
pub(crate) fn resolve(
    chart: &mut Chart,
    given: &Map,
    helm: HelmVersion,
    warnings: &mut Vec<String>,
) -> Result<()> {
    enable(chart, given, "", helm, warnings)?;
    import(chart, helm, warnings)
}

fn enable(
    chart: &mut Chart,
    values: &Map,
    path: &str,
    helm: HelmVersion,
    warnings: &mut Vec<String>,
) -> Result<()> {
    // Without a list of dependencies everything in charts/ is rendered as it is.
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    let wanted = |dependency: &Dependency, subchart: &Chart| {
        subchart.name() == dependency.name
            && kiln_gotemplate::version_meets(&dependency.version, &subchart.metadata.version)
    };
    let listed = |subchart: &&Chart| {
        !chart.metadata.dependencies.iter().any(|dependency| wanted(dependency, subchart))
    };
    let mut subcharts: Vec<Chart> = chart.subcharts.iter().filter(listed).cloned().collect();
    for dependency in &chart.metadata.dependencies {
        let found = chart.subcharts.iter().find(|subchart| wanted(dependency, subchart));
        subcharts.extend(found.cloned().map(|mut subchart| {
            if !dependency.alias.is_empty() {
                subchart.metadata.name = dependency.alias.clone();
            }
            subchart
        }));
    }
    chart.subcharts = subcharts;
    for dependency in &mut chart.metadata.dependencies {
        if !dependency.alias.is_empty() {
            dependency.name = dependency.alias.clone();
        }
        dependency.enabled = true;
    }
    let values = Merger { helm, warnings }.all(chart, values, Nulls::Remove)?;
    for dependency in &mut chart.metadata.dependencies {
        dependency.enabled = is_enabled(dependency, &values, path, warnings);
    }
    let disabled: Vec<String> = chart
        .metadata
        .dependencies
        .iter()
        .filter(|dependency| !dependency.enabled)
        .map(|dependency| dependency.name.clone())
        .collect();
    chart.subcharts.retain(|subchart| !disabled.iter().any(|name| name == subchart.name()));
    chart.metadata.dependencies.retain(|dependency| !disabled.contains(&dependency.name));
    for subchart in &mut chart.subcharts {
        let path = format!("{path}{}.", subchart.name());
        enable(subchart, &values, &path, helm, warnings)?;
    }
    Ok(())
}

/// Tags first; the first condition that leads to a truth decides over them.
fn is_enabled(
    dependency: &Dependency,
    values: &Map,
    path: &str,
    warnings: &mut Vec<String>,
) -> bool {
    let mut tags = Vec::new();
    if let Some(Value::Map(set)) = values.get("tags") {
        for tag in &dependency.tags {
            match set.get(tag) {
                Some(Value::Bool(truth)) => tags.push(*truth),
                Some(_) => warnings.push(format!(
                    "tag '{tag}' for chart {} returned non-bool value",
                    dependency.name
                )),
                None => {}
            }
        }
    }
    let by_tags = tags.is_empty() || tags.contains(&true);
    for condition in dependency.condition.trim().split(',').filter(|c| !c.is_empty()) {
        match path_value(values, &format!("{path}{condition}")) {
            Some(Value::Bool(truth)) => return *truth,
            Some(_) => warnings.push(format!(
                "condition path '{condition}' for chart {} returned non-bool value",
                dependency.name
            )),
            None => {}
        }
    }
    by_tags
}

/// Imports values, those of the innermost charts first.
fn import(chart: &mut Chart, helm: HelmVersion, warnings: &mut Vec<String>) -> Result<()> {
    for subchart in &mut chart.subcharts {
        import(subchart, helm, warnings)?;
    }
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    let mut values = Merger { helm, warnings }.all(chart, &Map::new(), Nulls::Keep)?;
    let mut imported = Map::new();
    for dependency in &mut chart.metadata.dependencies {
        for entry in &mut dependency.import_values {
            let (child, parent) = match &*entry {
                Value::Map(entry) => {
                    let text = |key: &str| entry.get(key).map_or_else(|| "<nil>".to_owned(), shown);
                    (text("child"), text("parent"))
                }
                Value::String(name) => (format!("exports.{name}"), ".".to_owned()),
                _ => continue,
            };
            let name = &dependency.name;
            match table(&values, &format!("{name}.{child}")) {
                None => {
                    warnings
                        .push(format!("import-values: the chart {name} has no table {child:?}"));
                }
                Some(found) => {
                    let found = under(&parent, found.clone());
                    Merger { helm, warnings }.tables(&mut imported, &found, "", Nulls::Keep);
                }
            }
            let pair = [("child", child), ("parent", parent)];
            *entry = Value::Map(pair.into_iter().collect());
        }
    }
    Merger { helm, warnings }.tables(&mut values, &imported, "", Nulls::Keep);
    chart.values = values;
    Ok(())
}

fn shown(value: &Value) -> String {
    crate::metadata::scalar_text(value).unwrap_or_default()
}

/// A map under keys with dots between them; a dot alone is the root.
fn under(path: &str, map: Map) -> Map {
    if path == "." {
        return map;
    }
    path.rsplit('.').fold(map, |map, key| [(key, Value::Map(map))].into_iter().collect())
}
