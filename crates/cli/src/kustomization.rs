//! Kustomizations as commands build them: the options that say how, and the build itself.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::FalseyValueParser;
use kiln_chart::{HelmVersion, Lookup};
use kiln_diagnostic::Diagnostic;
use kiln_kustomize::fs::{Disk, FileSystem};
use kiln_kustomize::local::{Local, Running};
use kiln_kustomize::{Build, BuildOptions, ChartRenderer, Failed, Helm, LoadRestrictions, Output};
use kiln_yaml::{Document, ReadOptions, Reader};

use crate::args::Global;
use crate::exit::CommandFailure;
use crate::fetch::Remote;
use crate::interrupt;
use crate::ui::{Progress, Ui};

/// How a kustomization is built.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    /// Which files a kustomization may read
    #[arg(long, value_enum, default_value_t = Restrictor::RootOnly)]
    pub(crate) load_restrictor: Restrictor,

    /// Deny network access: files over HTTP, and what git, helm and container runtimes would fetch
    ///
    /// For untrusted kustomizations: the URLs that they name would be fetched from this machine.
    #[arg(long, env = "KILN_OFFLINE", value_parser = FalseyValueParser::new())]
    pub(crate) offline: bool,

    /// Allow Helm charts, rendered as this version of Helm does, or by helm itself
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        value_name = "HOW",
        help_heading = "Helm"
    )]
    pub(crate) enable_helm: Option<ChartMode>,

    /// Path of the helm executable; charts are then rendered by it
    #[arg(long, value_name = "PROGRAM", help_heading = "Helm")]
    pub(crate) helm_command: Option<String>,

    /// Text that random values of charts follow from; without it a chart that uses them fails
    #[arg(long, value_name = "TEXT", help_heading = "Helm")]
    pub(crate) helm_seed: Option<String>,

    /// API versions for charts
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS", help_heading = "Helm")]
    pub(crate) helm_api_versions: Vec<String>,

    /// Kubernetes version for charts
    #[arg(long, default_value = "", value_name = "VERSION", help_heading = "Helm")]
    pub(crate) helm_kube_version: String,

    /// Print debug output of helm
    #[arg(long, help_heading = "Helm")]
    pub(crate) helm_debug: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Restrictor {
    /// Files in or below its own directory
    #[value(name = "LoadRestrictionsRootOnly")]
    RootOnly,
    /// Any file
    #[value(name = "LoadRestrictionsNone")]
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartMode {
    /// As Helm 3
    #[value(name = "3")]
    Helm3,
    /// As Helm 4
    #[value(name = "4")]
    Helm4,
    /// By the helm executable
    External,
}

impl ChartMode {
    /// What differs between the versions of Helm; the program knows itself.
    pub(crate) fn version(self) -> HelmVersion {
        if self == ChartMode::Helm4 { HelmVersion::V4 } else { HelmVersion::V3 }
    }
}

impl BuildArgs {
    /// The options of a build that starts where the command does.
    pub(crate) fn options(&self, global: &Global) -> std::io::Result<BuildOptions> {
        let helm = |mode: ChartMode| Helm {
            renderer: match (mode, &self.helm_command) {
                (ChartMode::External, _) | (_, Some(_)) => ChartRenderer::Program,
                (mode, None) => ChartRenderer::InProcess(mode.version()),
            },
            seed: self.helm_seed.clone(),
            command: self.helm_command.clone().unwrap_or_else(|| "helm".to_owned()),
            api_versions: self.helm_api_versions.clone(),
            kube_version: self.helm_kube_version.clone(),
            debug: self.helm_debug,
        };
        Ok(BuildOptions {
            load_restrictions: match self.load_restrictor {
                Restrictor::RootOnly => LoadRestrictions::RootOnly,
                Restrictor::None => LoadRestrictions::None,
            },
            helm: self.enable_helm.map(helm),
            offline: self.offline,
            working_directory: std::env::current_dir()?.display().to_string(),
            max_file_size: usize::try_from(global.max_input_size).unwrap_or(usize::MAX),
            ..BuildOptions::default()
        })
    }
}

/// What a build needs besides its options.
pub(crate) struct BuildHost<'h> {
    pub(crate) files: &'h dyn FileSystem,
    pub(crate) programs: &'h Local,
    pub(crate) lookup: &'h dyn Lookup,
    pub(crate) clock: &'h dyn Fn() -> Duration,
}

/// Builds a kustomization, and shows what is odd in it.
pub(crate) fn build(
    ui: &Ui,
    global: &Global,
    directory: &str,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> Result<Output, CommandFailure> {
    let output = try_build(ui, global, directory, options, host)?.map_err(|failed| {
        for warning in &failed.warnings {
            ui.problem(warning);
        }
        CommandFailure::BadInput(vec![failed.error.into()])
    })?;
    for warning in &output.warnings {
        ui.problem(warning);
    }
    Ok(output)
}

/// Builds a kustomization; what is odd or wrong in it is for the caller to show.
pub(crate) fn try_build(
    ui: &Ui,
    global: &Global,
    directory: &str,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> Result<Result<Output, Box<Failed>>, CommandFailure> {
    let running = host.programs.running.clone();
    let remote = Remote::new(options.offline, global.max_input_size, running.clone());
    let to_end = running.clone();
    interrupt::before_ending(move || to_end.end())?;
    let build = Build::new(host.files, options)
        .programs(host.programs)
        .fetch(&remote)
        .lookup(host.lookup)
        .clock(host.clock);
    let progress = Progress::start(&format!("building {directory}"), ui.format());
    let output = build.run(directory);
    drop(progress);
    while running.is_over() {
        // The signal that ended the build ends the process.
        std::thread::park();
    }
    Ok(output)
}

/// The objects that a kustomization builds, for commands that go on with them: without plugins.
pub(crate) fn built_documents(
    ui: &Ui,
    global: &Global,
    directory: &str,
    args: &BuildArgs,
    lookup: &dyn Lookup,
) -> Result<Vec<Document>, CommandFailure> {
    if !Path::new(directory).is_dir() && !directory.contains(':') {
        return Err(Diagnostic::error(format!("there is no directory {directory}"))
            .hint("name a directory with a kustomization file")
            .into());
    }
    let options = args.options(global)?;
    let programs = Local { running: Running::default(), ..Local::default() };
    let host =
        BuildHost { files: &Disk, programs: &programs, lookup, clock: &|| Duration::default() };
    let output = build(ui, global, directory, &options, &host)?;
    let reading = ReadOptions::kubernetes().max_input_size(output.yaml.len().max(1));
    let name = format!("the build of {directory}");
    Ok(Reader::new(reading).read_bytes(&name, output.yaml.as_bytes())?)
}
