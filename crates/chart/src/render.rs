//! Templates to texts.

use std::collections::BTreeMap;

use kiln_diagnostic::{Diagnostic, SourceLocation};
use kiln_gotemplate::{
    AmbientSources, Data, ErrorKind, FunctionSet, Lookup, MissingKey, NoAmbientSources, NoLookup,
    Numbers, RecordType, TemplateOptions, TemplateSet, ValuesType,
};
use kiln_value::{Map, Value};

use crate::capabilities::API_VERSIONS;
use crate::dependencies;
use crate::error::{ChartError, Result};
use crate::files::ChartFile;
use crate::load::{Chart, source};
use crate::manifest::{self, Manifest, Rendered};
use crate::metadata::Metadata;
use crate::options::{ChartOptions, Release};
use crate::schema;
use crate::values::{Merger, Nulls};

const NOTES: &str = "NOTES.txt";

/// Renders a chart with values, without a cluster, a clock and chance.
///
/// # Errors
/// When dependencies are missing, values do not fit their schema, a template fails, or the budget is used up.
pub fn render(chart: Chart, values: &Map, options: &ChartOptions) -> Result<Rendered> {
    render_with(chart, values, options, &NoAmbientSources, &NoLookup)
}

/// Renders a chart with values.
///
/// # Errors
/// Likewise.
pub fn render_with(
    mut chart: Chart,
    values: &Map,
    options: &ChartOptions,
    sources: &dyn AmbientSources,
    lookup: &dyn Lookup,
) -> Result<Rendered> {
    let (files, warnings) = rendered_files(&mut chart, values, options, sources, lookup)?;
    let (notes, files) = without_notes(files, chart.name());
    let mut rendered = manifest::sort(&files, options)?;
    if options.include_crds {
        crds(&chart, chart.name(), &mut rendered.crds);
    }
    rendered.notes = notes;
    rendered.warnings.splice(0..0, warnings);
    Ok(rendered)
}

/// What each template renders, whether it is YAML or not; those whose names begin with `_` are not among them.
///
/// # Errors
/// Likewise.
pub fn render_templates(
    mut chart: Chart,
    values: &Map,
    options: &ChartOptions,
) -> Result<BTreeMap<String, String>> {
    rendered_files(&mut chart, values, options, &NoAmbientSources, &NoLookup)
        .map(|(files, _)| files)
}

/// What each template renders, and warnings.
fn rendered_files(
    chart: &mut Chart,
    values: &Map,
    options: &ChartOptions,
    sources: &dyn AmbientSources,
    lookup: &dyn Lookup,
) -> Result<(BTreeMap<String, String>, Vec<String>)> {
    check_name(&options.release.name)?;
    if chart.metadata.is_library() {
        return Err(ChartError::new(format!("{} charts are not installable", chart.metadata.kind))
            .hint("name a chart that uses this library"));
    }
    dependencies::check_present(chart)?;
    let mut warnings = std::mem::take(&mut chart.warnings);
    if chart.metadata.deprecated {
        warnings.push("this chart is deprecated".to_owned());
    }
    dependencies::resolve(chart, values, options.helm, &mut warnings)?;
    let mut merger = Merger { helm: options.helm, warnings: &mut warnings };
    let values = merger.all(chart, values, Nulls::Remove)?;
    if !options.skip_schema {
        schema::validate(chart, &values)?;
    }
    let version = options.kube_version.for_constraints();
    let wanted = &chart.metadata.kube_version;
    if !wanted.is_empty() && !kiln_gotemplate::version_meets(wanted, &version) {
        return Err(ChartError::new(format!(
            "chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {version}"
        ))
        .hint("name the version of your cluster with --kube-version"));
    }
    let files = Rendering { options, sources, lookup }.files(chart, &values)?;
    Ok((files, warnings))
}

/// The name that `--name-template` gives a release.
///
/// # Errors
/// When it is not a template, or asks for what is not there.
pub fn release_name(template: &str) -> Result<String> {
    let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
    let environment = kiln_gotemplate::TemplateEnvironment::default();
    kiln_gotemplate::Template::parse("name-template", template, &options)
        .and_then(|parsed| parsed.render(&Value::Null, &environment))
        .map_err(|error| {
            ChartError::placed(diagnostic(&error, template, "nameTemplate"), error.go_text())
        })
}

/// Helm: names of releases are names of Kubernetes, with room for more.
fn check_name(name: &str) -> Result<()> {
    const LONGEST: usize = 53;
    let is_label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= LONGEST && name.split('.').all(is_label) {
        return Ok(());
    }
    Err(ChartError::new(format!(
        "release name {name:?}: invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ and the length must not be longer than {LONGEST}"
    )))
}

/// Takes out the notes; only those of the chart itself are shown.
fn without_notes(files: BTreeMap<String, String>, name: &str) -> (String, Vec<(String, String)>) {
    let own = format!("{name}/templates/{NOTES}");
    let notes = files.get(&own).cloned().unwrap_or_default();
    (notes, files.into_iter().filter(|(path, _)| !path.ends_with(NOTES)).collect())
}

fn crds(chart: &Chart, path: &str, found: &mut Vec<Manifest>) {
    let is_manifest = |name: &str| {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        ["yaml", "yml", "json"].iter().any(|known| known.eq_ignore_ascii_case(ending))
    };
    for file in &chart.files {
        if file.name.starts_with("crds/") && is_manifest(&file.name) {
            let text = String::from_utf8_lossy(&file.data).into_owned();
            found.push(Manifest::crd(format!("{path}/{}", file.name), text));
        }
    }
    for subchart in &chart.subcharts {
        crds(subchart, &format!("{path}/charts/{}", subchart.name()), found);
    }
}

/// A template file, and what it is rendered with.
struct Renderable<'c> {
    path: String,
    base: String,
    file: &'c ChartFile,
    data: Data,
}

struct Rendering<'r> {
    options: &'r ChartOptions,
    sources: &'r dyn AmbientSources,
    lookup: &'r dyn Lookup,
}

impl Rendering<'_> {
    fn files(&self, chart: &Chart, values: &Map) -> Result<BTreeMap<String, String>> {
        let values = Data::new(&Value::Map(values.clone()), Numbers::AsTyped);
        let mut templates = Vec::new();
        self.collect(chart, chart.name(), true, &values, &mut templates);
        // The ones that lie deepest come first, so that those further up replace their definitions.
        let depth = |path: &str| path.matches('/').count();
        templates.sort_by(|a, b| (depth(&b.path), &b.path).cmp(&(depth(&a.path), &a.path)));
        let limits = &self.options.limits;
        let limits = kiln_gotemplate::TemplateLimits {
            source: limits.template_bytes,
            depth: limits.depth,
            steps: limits.steps,
            bytes: limits.bytes,
            ..kiln_gotemplate::TemplateLimits::default()
        };
        let functions =
            if self.options.helm.is_4 { FunctionSet::Helm4 } else { FunctionSet::Helm3 };
        let options =
            TemplateOptions { functions, missing_key: MissingKey::Zero, numbers: Numbers::AsTyped };
        let mut set = TemplateSet::new(&options, &limits);
        for template in &templates {
            let text = String::from_utf8_lossy(&template.file.data);
            set.add(&template.path, &text).map_err(|error| parse_error(&error, &text))?;
        }
        let renderer = set.renderer(self.sources, self.lookup);
        let mut rendered = BTreeMap::new();
        for template in &templates {
            let name = template.path.rsplit('/').next().unwrap_or_default();
            if name.starts_with('_') {
                continue;
            }
            let about = Data::map([
                ("Name", template.path.as_str().into()),
                ("BasePath", template.base.as_str().into()),
            ]);
            template.data.insert("Template", about.as_values(self.values_type()));
            let text = renderer.render(&template.path, &template.data);
            let text = text.map_err(|error| {
                let inner = set.text(error.file()).or_else(|| set.text(&template.path));
                exec_error(&error, inner.unwrap_or_default(), &template.path)
            })?;
            rendered.insert(template.path.clone(), text);
        }
        Ok(rendered)
    }

    fn values_type(&self) -> ValuesType {
        if self.options.helm.is_4 { ValuesType::Helm4 } else { ValuesType::Helm3 }
    }

    /// The templates of a chart and its subcharts with their data; gives the data of the chart.
    fn collect<'c>(
        &self,
        chart: &'c Chart,
        path: &str,
        is_root: bool,
        values: &Data,
        templates: &mut Vec<Renderable<'c>>,
    ) -> Data {
        let subcharts = Data::map([]);
        let files = chart.files.iter().map(|file| (file.name.as_str(), file.data.clone()));
        let data = Data::map([
            ("Chart", self.chart_data(&chart.metadata, is_root)),
            ("Files", Data::files(files)),
            ("Release", release_data(&self.options.release)),
            ("Capabilities", self.capabilities()),
            ("Values", values.as_values(self.values_type())),
            ("Subcharts", subcharts.clone()),
        ]);
        for subchart in &chart.subcharts {
            let name = subchart.name();
            // What a template changes in the values of a subchart, the subchart sees.
            let inner = values.get(name).filter(Data::is_map).unwrap_or_else(|| Data::map([]));
            let path = format!("{path}/charts/{name}");
            subcharts.insert(name, self.collect(subchart, &path, false, &inner, templates));
        }
        for file in &chart.templates {
            let name = file.name.rsplit('/').next().unwrap_or_default();
            if chart.metadata.is_library() && !name.starts_with('_') {
                continue;
            }
            templates.push(Renderable {
                path: format!("{path}/{}", file.name),
                base: format!("{path}/templates"),
                file,
                data: data.clone(),
            });
        }
        data
    }

    fn capabilities(&self) -> Data {
        let version = self.options.kube_version.for_templates(self.options.helm);
        let given = self.options.api_versions.iter().map(String::as_str);
        let helm = if self.options.helm.is_4 { "v4.2" } else { "v3.21" };
        let build = [
            ("Version", helm.into()),
            ("GitCommit", "".into()),
            ("GitTreeState", "".into()),
            ("GoVersion", "".into()),
        ];
        let entries = [
            ("KubeVersion", Data::kube_version(&version)),
            ("APIVersions", Data::versions(API_VERSIONS.iter().copied().chain(given))),
            ("HelmVersion", Data::record(RecordType::BuildInfo, build)),
        ];
        Data::record(RecordType::Capabilities, entries)
    }

    fn chart_data(&self, metadata: &Metadata, is_root: bool) -> Data {
        let is_map = self.options.helm.chart_is_map;
        let record = |of: RecordType, entries: Vec<(&'static str, Data)>| match is_map {
            true => Data::map(entries),
            false => Data::record(of, entries),
        };
        let texts = |list: &[String]| match is_map {
            true => Data::list(list.iter().map(|text| text.as_str().into())),
            false => Data::texts(list.iter().map(String::as_str)),
        };
        let maintainers = metadata.maintainers.iter().map(|[name, email, url]| {
            let fields = vec![
                ("Name", name.as_str().into()),
                ("Email", email.as_str().into()),
                ("URL", url.as_str().into()),
            ];
            record(RecordType::Maintainer, fields)
        });
        let dependencies = metadata.dependencies.iter().map(|dependency| {
            let imported = &dependency.import_values;
            let fields = vec![
                ("Name", dependency.name.as_str().into()),
                ("Version", dependency.version.as_str().into()),
                ("Repository", dependency.repository.as_str().into()),
                ("Condition", dependency.condition.as_str().into()),
                ("Tags", texts(&dependency.tags)),
                ("Enabled", dependency.enabled.into()),
                (
                    "ImportValues",
                    Data::list(imported.iter().map(|v| Data::new(v, Numbers::Floats))),
                ),
                ("Alias", dependency.alias.as_str().into()),
            ];
            record(RecordType::Dependency, fields)
        });
        let annotations =
            metadata.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let fields = vec![
            ("Name", metadata.name.as_str().into()),
            ("Home", metadata.home.as_str().into()),
            ("Sources", texts(&metadata.sources)),
            ("Version", metadata.version.as_str().into()),
            ("Description", metadata.description.as_str().into()),
            ("Keywords", texts(&metadata.keywords)),
            ("Maintainers", Data::list(maintainers)),
            ("Icon", metadata.icon.as_str().into()),
            ("APIVersion", metadata.api_version.as_str().into()),
            ("Condition", metadata.condition.as_str().into()),
            ("Tags", metadata.tags.as_str().into()),
            ("AppVersion", metadata.app_version.as_str().into()),
            ("Deprecated", metadata.deprecated.into()),
            ("Annotations", Data::text_map(annotations)),
            ("KubeVersion", metadata.kube_version.as_str().into()),
            ("Dependencies", Data::list(dependencies)),
            ("Type", metadata.kind.as_str().into()),
            ("IsRoot", is_root.into()),
        ];
        record(RecordType::Metadata, fields)
    }
}

fn release_data(release: &Release) -> Data {
    Data::map([
        ("Name", release.name.as_str().into()),
        ("Namespace", release.namespace.as_str().into()),
        ("IsUpgrade", release.is_upgrade.into()),
        ("IsInstall", (!release.is_upgrade).into()),
        ("Revision", 1_i64.into()),
        ("Service", "Helm".into()),
    ])
}

fn diagnostic(error: &kiln_gotemplate::Error, text: &str, file: &str) -> Diagnostic {
    let span = error.span();
    let span = span.start.min(text.len())..span.end.min(text.len());
    Diagnostic::error(error.message())
        .at(SourceLocation::new(source(file, text.as_bytes()), span))
        .maybe_hint(error.hint_text().map(str::to_owned))
}

fn parse_error(error: &kiln_gotemplate::Error, text: &str) -> ChartError {
    let go = error.go_text();
    let mut parts = go.split(": ");
    let location = parts.nth(1).unwrap_or_default().to_owned();
    let last = go.rsplit(": ").next().unwrap_or_default();
    let helm = format!("parse error at ({location}): {last}");
    ChartError::placed(diagnostic(error, text, error.file()), helm)
}

fn exec_error(error: &kiln_gotemplate::Error, text: &str, template: &str) -> ChartError {
    let go = error.go_text();
    let helm = match error.kind() {
        ErrorKind::Stopped => {
            let location = go.split(": ").nth(1).unwrap_or_default();
            format!("execution error at ({location}): {}", error.message())
        }
        _ => go,
    };
    let file = if error.file().is_empty() { template } else { error.file() };
    ChartError::placed(diagnostic(error, text, file), helm)
}
