//! Files to a tree of charts.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_value::{Map, Value};
use kiln_yaml::ReadOptions;

use crate::archive::read_package;
use crate::error::{ChartError, Result};
use crate::files::{ChartFile, ChartFiles, FileBudget, read_directory};
use crate::metadata::Metadata;
use crate::options::{ChartOptions, HelmVersion};
use crate::values::read_values;

/// A chart with its subcharts.
#[derive(Clone, Debug)]
pub struct Chart {
    pub(crate) metadata: Metadata,
    pub(crate) values: Map,
    pub(crate) schema: Option<Arc<[u8]>>,
    pub(crate) templates: Vec<ChartFile>,
    pub(crate) files: Vec<ChartFile>,
    pub(crate) subcharts: Vec<Chart>,
    pub(crate) warnings: Vec<String>,
}

impl Chart {
    /// The chart in a directory.
    ///
    /// # Errors
    /// When it is not a chart, or too large.
    pub fn load(files: &dyn ChartFiles, options: &ChartOptions) -> Result<Chart> {
        let mut budget = FileBudget::new(&options.limits);
        let files = read_directory(files, &mut budget)?;
        Loading { budget, helm: options.helm, at: String::new() }.chart(files, 0)
    }

    /// The chart in a package.
    ///
    /// # Errors
    /// Likewise.
    pub fn load_package(package: &[u8], options: &ChartOptions) -> Result<Chart> {
        let mut budget = FileBudget::new(&options.limits);
        let files = read_package(package, &mut budget)?;
        Loading { budget, helm: options.helm, at: String::new() }.chart(files, 0)
    }

    /// What its `Chart.yaml` says.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its own values.
    pub fn values(&self) -> &Map {
        &self.values
    }

    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }
}

struct Loading {
    budget: FileBudget,
    helm: HelmVersion,
    /// Where the chart lies in the outermost one, for messages.
    at: String,
}

impl Loading {
    fn chart(&mut self, files: Vec<ChartFile>, depth: usize) -> Result<Chart> {
        if depth > self.budget.limits.subchart_depth {
            let limit = self.budget.limits.subchart_depth;
            return Err(ChartError::new(format!("charts nest deeper than {limit} levels")));
        }
        let mut chart = Chart {
            metadata: Metadata::default(),
            values: Map::new(),
            schema: None,
            templates: Vec::new(),
            files: Vec::new(),
            subcharts: Vec::new(),
            warnings: Vec::new(),
        };
        let mut has_metadata = false;
        let described = files.iter().find(|file| file.name == "Chart.yaml").cloned();
        for file in files.iter().filter(|file| file.name == "Chart.yaml") {
            chart
                .metadata
                .read(&self.document(file)?)
                .map_err(|error| unless_invalid(error, "cannot load Chart.yaml"))?;
            if chart.metadata.api_version.is_empty() {
                chart.metadata.api_version = "v1".to_owned();
            }
            has_metadata = true;
        }
        let mut subcharts: BTreeMap<String, Vec<ChartFile>> = BTreeMap::new();
        for file in files {
            match file.name.as_str() {
                "Chart.yaml" | "Chart.lock" => {}
                "values.yaml" => {
                    let shown = self.shown(&file);
                    let values = read_values(&shown, &file.data, self.helm);
                    chart.values =
                        values.map_err(|error| error.within("cannot load values.yaml"))?;
                }
                "values.schema.json" => chart.schema = Some(file.data),
                "requirements.yaml" => {
                    let read = chart.metadata.read(&self.document(&file)?);
                    read.map_err(|error| unless_invalid(error, "cannot load requirements.yaml"))?;
                    has_metadata = true;
                    match chart.metadata.api_version.as_str() {
                        "v1" => chart.files.push(file),
                        _ => chart.warnings.push(
                            "dependencies of apiVersion v2 belong into Chart.yaml; reading requirements.yaml".to_owned(),
                        ),
                    }
                }
                "requirements.lock" => {
                    if chart.metadata.api_version == "v1" {
                        chart.files.push(file);
                    }
                }
                name if name.starts_with("templates/") => chart.templates.push(file),
                name if name.starts_with("charts/") && !name.ends_with(".prov") => {
                    let name = &name["charts/".len()..];
                    let subchart = name.split('/').next().unwrap_or(name).to_owned();
                    let file = ChartFile { name: name.to_owned(), data: file.data };
                    subcharts.entry(subchart).or_default().push(file);
                }
                _ => chart.files.push(file),
            }
        }
        if !has_metadata {
            return Err(ChartError::new("Chart.yaml file is missing")
                .hint("name a directory with a Chart.yaml, or a packaged chart"));
        }
        chart.metadata.validate().map_err(|error| match &described {
            Some(file) => error.in_file(&self.shown(file), &file.data),
            None => error,
        })?;
        for (name, files) in subcharts {
            if name.starts_with(['_', '.']) {
                continue;
            }
            let failed = |error: ChartError, chart: &Chart| {
                error.within(&format!("error unpacking subchart {name} in {}", chart.name()))
            };
            let outer = self.at.len();
            self.at.push_str(&format!("charts/{name}/"));
            let subchart = self.subchart(&name, files, depth);
            self.at.truncate(outer);
            chart.subcharts.push(subchart.map_err(|error| failed(error, &chart))?);
        }
        Ok(chart)
    }

    fn subchart(&mut self, name: &str, files: Vec<ChartFile>, depth: usize) -> Result<Chart> {
        if name.ends_with(".tgz") {
            let file = files.into_iter().find(|file| file.name == name);
            let package = file.ok_or_else(|| {
                ChartError::new(format!("error unpacking subchart tar: {name} is a directory"))
            })?;
            let files = read_package(&package.data, &mut self.budget)?;
            return self.chart(files, depth + 1);
        }
        // What lies in `charts` beside the charts is not one.
        let inner = files.into_iter().filter_map(|file| {
            let (_, path) = file.name.split_once('/')?;
            Some(ChartFile { name: path.to_owned(), data: file.data })
        });
        self.chart(inner.collect(), depth + 1)
    }

    fn shown(&self, file: &ChartFile) -> String {
        format!("{}{}", self.at, file.name)
    }

    /// The first document of a YAML file.
    fn document(&self, file: &ChartFile) -> Result<Value> {
        let read =
            kiln_yaml::read_bytes(&self.shown(file), &file.data, ReadOptions::kustomization());
        let documents = read.map_err(|problem| {
            yaml_error(&problem).within(&format!("cannot load {}", file.name))
        })?;
        Ok(documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value))
    }
}

/// Helm finds out what is invalid once everything is read.
fn unless_invalid(error: ChartError, what: &str) -> ChartError {
    if error.helm_text().starts_with("validation: ") { error } else { error.within(what) }
}

/// A text that is not YAML, in Helm's words and with its place.
pub(crate) fn yaml_error(problem: &Diagnostic) -> ChartError {
    let line = problem.place.as_ref().map_or(1, |place| place.position().line);
    let helm = format!("error converting YAML to JSON: yaml: line {line}: {}", problem.message);
    ChartError::placed(problem.clone(), helm)
}

/// The source of a file, for places in it.
pub(crate) fn source(name: &str, data: &[u8]) -> Arc<Source> {
    Arc::new(Source::new(name, String::from_utf8_lossy(data).into_owned()))
}
