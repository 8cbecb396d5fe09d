//! `kiln build`

mod chart;
mod compare_releases;
mod difference;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use kiln_chart::NoLookup;
use kiln_diagnostic::Diagnostic;
use kiln_kustomize::fs::{Disk, FileSystem, Layered};
use kiln_kustomize::{
    BuildOptions, KustomizeVersion, Output, Phase, ReleaseBehavior, Reorder, What,
};
use kiln_object::{Kind, Kinds};

use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::file_watch::{self, RecordedFiles};
use crate::findings::{self, Finding};
use crate::input;
use crate::kustomization::{BuildArgs, BuildHost, build, try_build};
use crate::plugin_options::PluginArgs;
use crate::ui::Ui;

/// Build a kustomization or a chart, as kustomize and Helm do
///
/// Deprecated fields, patches that select nothing and unused vars are warnings on standard error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory with a kustomization file or a chart, packaged chart, or URL of a repository
    #[arg(default_value = ".", value_name = "DIR")]
    directory: String,

    /// Write to this file, or into this existing directory one file for each object
    #[arg(short, long, value_name = "PATH")]
    output: Option<String>,

    #[command(flatten)]
    how: BuildArgs,

    /// The order of the output, unless sortOptions says it
    #[arg(long, value_enum, hide = true)]
    reorder: Option<Order>,

    /// Fetch them, which is the rule
    #[arg(long, alias = "allow-remote", hide = true)]
    enable_remote: bool,

    /// Read standard input in place of this file of DIR, for use as a Helm post-renderer
    #[arg(long, value_name = "FILE")]
    stdin: Option<String>,

    #[command(flatten)]
    plugins: PluginArgs,

    /// Label everything with the kustomize version
    #[arg(long, hide = true)]
    enable_managedby_label: bool,

    /// Print timings and counts of each phase to standard error
    #[arg(long)]
    stats: bool,

    /// Print only which files, generators, patches and transformers touched an object
    #[arg(long, value_name = "KIND/NAME")]
    explain: Option<String>,

    /// Build as another release of kustomize does where releases differ, such as kustomize@5.8.1
    #[arg(long = "as", value_name = "RELEASE", value_parser = release)]
    release: Option<KustomizeVersion>,

    /// With --as, print only which objects differ from a build without it, and by which change of kustomize
    ///
    /// Exits with code 1 if an object differs.
    #[arg(long, requires = "release", conflicts_with_all = ["output", "explain", "stats"])]
    compare: bool,

    /// Print only how the output differs from this file, or from the build at this git revision
    #[arg(long, value_name = "FILE|REVISION", conflicts_with_all = ["output", "explain", "compare"])]
    diff: Option<String>,

    /// With --diff, exit with code 1 if there is a difference
    #[arg(long, requires = "diff")]
    exit_code: bool,

    /// Build again whenever a file changes that the build reads, until interrupted
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    chart: chart::ChartArgs,
}

/// `kustomize@5.8.1`, or the version alone.
fn release(text: &str) -> Result<KustomizeVersion, String> {
    let version = match text.split_once('@') {
        Some(("kustomize", version)) => version,
        Some((other, _)) => {
            return Err(format!("only releases of kustomize are known, not of {other}"));
        }
        None => text,
    };
    KustomizeVersion::parse(version)
}

impl Args {
    /// The old flags among them, with what kustomize says of each.
    fn deprecated(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let reorder = ("reorder", "use the new 'sortOptions' field in kustomization.yaml instead.");
        let label = (
            "enable-managedby-label",
            "The flag `enable-managedby-label` has been deprecated. Use the `managedByLabel` option in the `buildMetadata` field instead.",
        );
        let old = [
            self.reorder.is_some().then_some(reorder),
            self.enable_managedby_label.then_some(label),
        ];
        old.into_iter().flatten()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Legacy,
    None,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("build")?;
    for (flag, instead) in args.deprecated() {
        ui.status(&format!("Flag --{flag} has been deprecated, {instead}"));
    }
    if args.watch {
        return watch(ui, global, args);
    }
    once(ui, global, args, &Disk)
}

/// Builds again and again. What is watched is what the last build asked the disk for, also outside of its directory.
fn watch(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    if args.stdin.is_some() {
        return Err(Diagnostic::error("standard input cannot be watched").into());
    }
    let disk = RecordedFiles::over(&Disk);
    if chart::is_chart(&args.directory) {
        let directory = [args.directory.clone()];
        return file_watch::run(ui, &directory, || once(ui, global, args, &disk));
    }
    file_watch::run_recorded(ui, &disk, || once(ui, global, args, &disk))
}

fn once(ui: &Ui, global: &Global, args: &Args, disk: &dyn FileSystem) -> CommandResult {
    if chart::is_chart(&args.directory) {
        return chart::run(ui, global, args);
    }
    args.chart.refuse()?;
    let options = options(args, global)?;
    let mut files = Layered::over(disk);
    if let Some(name) = &args.stdin {
        let contents = input::read("-", global.max_input_size)?.bytes;
        files = files.with(&format!("{}/{name}", real(&args.directory)), contents);
    }
    let programs = args.plugins.programs();
    let start = Instant::now();
    let host = BuildHost {
        files: &files,
        programs: &programs,
        lookup: &NoLookup,
        clock: &|| start.elapsed(),
    };
    if args.compare {
        return compare_releases::run(ui, global, &args.directory, &options, &host);
    }
    if let Some(against) = &args.diff {
        let differs = difference::run(ui, global, args, against, &options, &host)?;
        return Ok(if differs && args.exit_code {
            CommandOutcome::Negative
        } else {
            CommandOutcome::Done
        });
    }
    if findings::FORMS.contains(&ui.format()) {
        return annotate(ui, global, args, &options, &host);
    }
    let output = build(ui, global, &args.directory, &options, &host)?;
    match (&args.explain, &args.output) {
        (Some(object), _) => explain(ui, object, &output)?,
        (None, Some(path)) => write_to(path, &output)?,
        (None, None) => print(ui, &output)?,
    }
    if args.stats {
        report(ui, &output);
    }
    Ok(CommandOutcome::Done)
}

/// Prints what is odd or wrong, for code scanning and forges; the objects go to --output.
fn annotate(
    ui: &Ui,
    global: &Global,
    args: &Args,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> CommandResult {
    let built = try_build(ui, global, &args.directory, options, host)?;
    let (warnings, error) = match &built {
        Ok(output) => (&output.warnings, None),
        Err(failed) => (&failed.warnings, Some(Diagnostic::from(failed.error.clone()))),
    };
    for problem in warnings.iter().chain(&error) {
        ui.problem(problem);
    }
    let found: Vec<Finding> =
        error.iter().chain(warnings).map(|found| Finding::of_problem("build", found)).collect();
    let mut out = ui.data();
    findings::write(&mut out, ui.format(), &found)?;
    out.flush()?;
    match (built, &args.output) {
        // What is wrong has been shown already.
        (Err(_), _) => Err(CommandFailure::BadInput(Vec::new())),
        (Ok(output), Some(path)) => write_to(path, &output).map(|()| CommandOutcome::Done),
        (Ok(_), None) => Ok(CommandOutcome::Done),
    }
}

/// A directory without links in its path, as the build names files.
fn real(directory: &str) -> String {
    let resolved = std::fs::canonicalize(directory).ok();
    let text = resolved.as_deref().and_then(Path::to_str).map(str::to_owned);
    text.unwrap_or_else(|| directory.to_owned())
}

fn options(args: &Args, global: &Global) -> Result<BuildOptions, CommandFailure> {
    let label = std::env::var("KUSTOMIZE_ENABLE_MANAGEDBY_LABEL").is_ok_and(|on| on == "on");
    let mut options = BuildOptions {
        reorder: match args.reorder {
            None => Reorder::Unspecified,
            Some(Order::Legacy) => Reorder::Legacy,
            Some(Order::None) => Reorder::None,
        },
        managed_by_label: args.enable_managedby_label || label,
        explain: args.explain.is_some(),
        behavior: args.release.map_or_else(ReleaseBehavior::default, ReleaseBehavior::of),
        ..args.how.options(global)?
    };
    args.plugins.set(&mut options);
    Ok(options)
}

fn print(ui: &Ui, output: &Output) -> Result<(), CommandFailure> {
    let mut out = ui.data();
    if ui.format() == OutputFormat::Json {
        for object in &output.objects {
            writeln!(out, "{}", kiln_value::json::to_string(object))?;
        }
    } else {
        out.write_all(output.yaml.as_bytes())?;
    }
    Ok(out.flush()?)
}

fn write_to(path: &str, output: &Output) -> Result<(), CommandFailure> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|error| {
            CommandFailure::from(Diagnostic::error(format!(
                "cannot write {}: {error}",
                path.display()
            )))
        })
    };
    let path = Path::new(path);
    if !path.is_dir() {
        return write(path, &output.yaml);
    }
    for (name, object) in output.file_names.iter().zip(&output.objects) {
        // Names of objects may hold anything, file names may not.
        let name = name.replace(['/', '\\', '\0'], "_");
        write(&path.join(name), &kiln_yaml::emit(object))?;
    }
    Ok(())
}

fn explain(ui: &Ui, wanted: &str, output: &Output) -> Result<(), CommandFailure> {
    let (kind, name) = wanted.split_once('/').unwrap_or(("", wanted));
    // As kubectl takes kinds: `deploy`, `deployments`, `deployment.apps`.
    let kinds = Kinds::builtin();
    let known = kinds.find(kind).map_or(kind, Kind::kind);
    let named = |k: &str, n: &str| {
        let is_kind = |kind: &str| k.eq_ignore_ascii_case(kind);
        n == name && (kind.is_empty() || is_kind(kind) || is_kind(known))
    };
    // An object is known by any name it had.
    let originals: Vec<&str> = output
        .touches
        .iter()
        .filter(|touch| named(&touch.kind, &touch.name))
        .map(|touch| touch.original.as_str())
        .collect();
    let mut out = ui.stdout();
    let mut any = false;
    for touch in output.touches.iter().filter(|t| originals.contains(&t.original.as_str())) {
        any = true;
        let what = match touch.what {
            What::Read => "read from",
            What::Generated => "made by",
            What::Changed => "changed by",
            What::Deleted => "deleted by",
            What::Hashed => "renamed by",
            What::References => "names of other objects updated",
            What::Vars => "vars replaced",
        };
        let by = [touch.by.as_str(), touch.file.as_str()].map(str::trim);
        let by: Vec<&str> = by.into_iter().filter(|part| !part.is_empty()).collect();
        // Nothing that has a name did these.
        let place = match touch.what {
            What::References | What::Vars => "in ",
            What::Read | What::Generated | What::Changed | What::Deleted | What::Hashed => "",
        };
        writeln!(out, "{}: {what} {place}{}", touch.id, by.join(" in "))?;
    }
    out.flush()?;
    if any {
        return Ok(());
    }
    Err(Diagnostic::error(format!("this build has no object {wanted}"))
        .hint("write KIND/NAME (deploy/web) with a name that the object has or had")
        .into())
}

fn report(ui: &Ui, output: &Output) {
    let stats = &output.stats;
    for phase in Phase::ALL {
        let took = stats.time(phase).as_secs_f64() * 1e3;
        ui.status(&format!("{:12} {took:10.3} ms", phase.as_str()));
    }
    ui.status(&format!(
        "{} kustomizations, {} documents, {} bytes read; {} transformers; {} objects, {} bytes written",
        stats.kustomizations,
        stats.documents,
        stats.bytes_read,
        stats.transformers,
        stats.objects,
        stats.bytes_written
    ));
}
