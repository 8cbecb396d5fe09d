//! A chart alone: what `helm template` prints of it.

use std::io::Write;
use std::path::Path;

use kiln_chart::{
    Chart, ChartOptions, KubeVersion, NoAmbientSources, NoLookup, Release, SeededSources, SetKind,
};
use kiln_diagnostic::Diagnostic;
use kiln_kustomize::ChartDirectory;
use kiln_kustomize::fs::Disk;
use kiln_value::Map;

use super::Args;
use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::kustomization::{ChartMode, Restrictor};
use crate::ui::Ui;

/// Options that mean something for a chart alone.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Charts")]
pub(super) struct ChartArgs {
    /// File with values for the chart; the last one wins
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Vec<String>,

    /// Values as KEY=VALUE, with commas between them
    #[arg(long, value_name = "VALUES")]
    set: Vec<String>,

    /// The same, but every value is text
    #[arg(long, value_name = "VALUES")]
    set_string: Vec<String>,

    /// The same, but every value is JSON
    #[arg(long, value_name = "VALUES")]
    set_json: Vec<String>,

    /// Name of the release
    #[arg(long, value_name = "NAME")]
    release_name: Option<String>,

    /// Namespace of the release
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Print the definitions of custom resources as well
    #[arg(long)]
    include_crds: bool,

    /// Leave out hooks
    #[arg(long)]
    no_hooks: bool,

    /// Leave out tests
    #[arg(long)]
    skip_tests: bool,
}

impl ChartArgs {
    /// Says so if options for charts are given where there is none.
    pub(super) fn refuse(&self) -> Result<(), Diagnostic> {
        if *self == ChartArgs::default() {
            return Ok(());
        }
        Err(Diagnostic::error("values and releases are for charts, and this is not one")
            .hint("name a directory with a Chart.yaml, or use helmCharts in the kustomization"))
    }
}

/// Whether a path is a chart rather than a kustomization: a package, or a directory with a `Chart.yaml` and nothing
/// for kustomize.
pub(super) fn is_chart(path: &str) -> bool {
    let path = Path::new(path);
    if path.is_file() {
        return path.extension().is_some_and(|ending| ending == "tgz");
    }
    let has = |name: &str| path.join(name).is_file();
    let kustomized = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    has("Chart.yaml") && !kustomized.into_iter().any(has)
}

pub(super) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    if args.how.helm_command.is_some() || args.how.enable_helm == Some(ChartMode::External) {
        return Err(Diagnostic::error("a chart alone is rendered by kiln")
            .hint("use `helm template` to see what Helm renders")
            .into());
    }
    let options = options(args)?;
    let chart = load(args, global, &options)?;
    let values = values(&args.chart, global, &options)?;
    let seeded =
        args.how.helm_seed.as_deref().map(|seed| SeededSources::new(seed, &options.release));
    let sources: &dyn kiln_chart::AmbientSources = match &seeded {
        Some(seeded) => seeded,
        None => &NoAmbientSources,
    };
    let rendered = kiln_chart::render_with(chart, &values, &options, sources, &NoLookup)
        .map_err(Diagnostic::from)?;
    for warning in &rendered.warnings {
        ui.problem(&Diagnostic::warning(warning));
    }
    if seeded.is_some_and(|seeded| seeded.was_used()) {
        ui.problem(
            &Diagnostic::warning(
                "random values follow from the seed: every user who knows it knows them",
            )
            .hint("give passwords and keys as values"),
        );
    }
    let text = rendered.text();
    let text = match ui.format() {
        OutputFormat::Json => as_json(&text)?,
        _ => text,
    };
    match &args.output {
        Some(path) => input::write_file(Path::new(path), &text)?,
        None => {
            let mut out = ui.data();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(CommandOutcome::Done)
}

fn options(args: &Args) -> Result<ChartOptions, Diagnostic> {
    let chart = &args.chart;
    let kube_version = match args.how.helm_kube_version.as_str() {
        "" => KubeVersion::default(),
        version => KubeVersion::parse(version)?,
    };
    let usual = Release::default();
    Ok(ChartOptions {
        helm: args.how.enable_helm.unwrap_or(ChartMode::Helm3).version(),
        release: Release {
            name: chart.release_name.clone().unwrap_or(usual.name),
            namespace: chart.namespace.clone().unwrap_or(usual.namespace),
            is_upgrade: false,
        },
        kube_version,
        api_versions: args.how.helm_api_versions.clone(),
        include_crds: chart.include_crds,
        skip_tests: chart.skip_tests,
        no_hooks: chart.no_hooks,
        ..ChartOptions::default()
    })
}

fn load(args: &Args, global: &Global, options: &ChartOptions) -> Result<Chart, Diagnostic> {
    if Path::new(&args.directory).is_file() {
        let package = input::read(&args.directory, global.max_input_size)?;
        return Chart::load_package(&package.bytes, options).map_err(|error| {
            let mut problem = Diagnostic::from(error);
            problem.message = format!("{}: {}", package.name, problem.message);
            problem
        });
    }
    let path = super::real(&args.directory);
    let within = match args.how.load_restrictor {
        Restrictor::RootOnly => Some(path.as_str()),
        Restrictor::None => None,
    };
    Ok(Chart::load(&ChartDirectory { files: &Disk, path: &path, within }, options)?)
}

fn values(args: &ChartArgs, global: &Global, options: &ChartOptions) -> Result<Map, Diagnostic> {
    let mut values = Map::new();
    for path in &args.values {
        let file = input::read(path, global.max_input_size)?;
        let read = kiln_chart::read_values(&file.name, &file.bytes, options.helm)?;
        kiln_chart::merge_values(&mut values, &read);
    }
    let lines = [
        (&args.set_json, SetKind::Json),
        (&args.set, SetKind::Typed),
        (&args.set_string, SetKind::Text),
    ];
    for (lines, kind) in lines {
        for line in lines {
            kiln_chart::set_value(&mut values, line, kind)?;
        }
    }
    Ok(values)
}

/// One object in each line.
fn as_json(text: &str) -> Result<String, CommandFailure> {
    let documents =
        kiln_yaml::read_bytes("chart", text.as_bytes(), kiln_yaml::ReadOptions::kustomization())?;
    let objects = documents.iter().map(kiln_yaml::Document::value).filter(|value| !value.is_null());
    Ok(objects.map(|value| kiln_value::json::to_string(value) + "\n").collect())
}
