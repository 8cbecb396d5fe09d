//! `kiln test`

mod live;
mod show;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};

use kiln_diagnostic::Diagnostic;
use kiln_services::{Allowed, Services};
use kiln_suites::{Files, Options, Report, Selector};
use kiln_yaml::ReadOptions;

use super::eval::Surroundings;
use crate::args::{Format, Global};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::input;
use crate::ui::Ui;

/// Run test suites: what rules are expected to make of resources, against what they make of them
///
/// A suite is a file kyverno-test.yaml in the format of Kyverno's command line, or a file chainsaw-test.yaml in the
/// format of chainsaw, whose steps run on a sandbox with the engine at work; folders are searched for both.
/// Prints a table of all results, and how objects differ from the expected ones. Exit code 1 when a test failed,
/// 2 when a suite cannot be used; the other suites run all the same.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folders that are searched for suites, or suites
    #[arg(value_name = "DIR", default_value = ".")]
    paths: Vec<String>,

    /// The name of the files that are suites; otherwise kyverno-test.yaml and chainsaw-test.yaml
    #[arg(long, short, value_name = "NAME")]
    file_name: Option<String>,

    /// Only some results: policy=P,rule=R,resource=N, with wildcards; what is not named may be anything
    #[arg(long, short, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    test_case_selector: String,

    /// Show only what failed
    #[arg(long)]
    fail_only: bool,

    /// Add what each rule did or said
    #[arg(long)]
    detailed_results: bool,

    /// Fail when there is no suite, and when a result was not run
    #[arg(long)]
    require_tests: bool,

    /// A service that rules may ask, such as prices.shop.svc:8080 or *.example.com
    #[arg(long, value_name = "HOST", value_parser = Allowed::read)]
    allow_service: Vec<Allowed>,

    /// Run again whenever a file below the folders changes, until interrupted
    #[arg(long, conflicts_with = "output")]
    watch: bool,

    /// Write the report to a file
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Accepted for compatibility: NO_COLOR and --color are honoured
    #[arg(long, hide = true)]
    remove_color: bool,
}

/// The names of suites if nobody says.
const USUAL: [&str; 2] = ["kyverno-test.yaml", "chainsaw-test.yaml"];

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Table, Format::Yaml, Format::Json, Format::Junit])?;
    let selector = Selector::parse(&args.test_case_selector)
        .map_err(|error| Diagnostic::error(format!("--test-case-selector: {error}")))?;
    let services = Services::new(super::run::all(&args.allow_service));
    let options = Options {
        services: &services,
        sources: &Surroundings,
        selector,
        read: ReadOptions::kubernetes()
            .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX)),
    };
    if args.watch {
        return watch::run(ui, &args.paths, || once(ui, global, args, &options));
    }
    once(ui, global, args, &options)
}

/// One run of all suites.
fn once(ui: &Ui, global: &Global, args: &Args, options: &Options<'_>) -> CommandResult {
    let names: Vec<&str> = match &args.file_name {
        Some(name) => vec![name],
        None => USUAL.to_vec(),
    };
    let suites = suites(&args.paths, &names)?;
    if suites.is_empty() {
        let problem = Diagnostic::new(
            kiln_diagnostic::Severity::Warning,
            format!("there is no {} below {}", names[0], args.paths.join(", ")),
        );
        ui.problem(&problem.hint("--file-name says how suites are called"));
    }
    let disk = Disk { limit: global.max_input_size };
    let mut sandboxes = None;
    let mut report = Report::default();
    for path in &suites {
        if !kiln_suites::live::is_live(path, &disk, options.read) {
            report.suites.push(kiln_suites::run(path, &disk, options));
            continue;
        }
        let beds = match &sandboxes {
            Some(beds) => beds,
            None => sandboxes.insert(live::Sandboxes::new()?),
        };
        report.suites.push(kiln_suites::live::run(path, &disk, options.read, beds));
    }
    for problem in report.suites.iter().flat_map(|suite| &suite.problems) {
        ui.problem(problem);
    }
    match &args.output {
        Some(path) => {
            let mut text = Vec::new();
            show::report(&mut text, ui.format(), args, &report)?;
            input::write_file(path, &String::from_utf8_lossy(&text))?;
        }
        None => show::report(&mut ui.stdout(), ui.format(), args, &report)?,
    }
    let counts = report.counts();
    if counts.broken > 0 {
        // What is wrong has been shown already.
        return Err(Failure::BadInput(Vec::new()));
    }
    let nothing = counts.passed + counts.failed + counts.excluded == 0 || counts.not_run > 0;
    Ok(if counts.failed > 0 || (args.require_tests && nothing) {
        Outcome::No
    } else {
        Outcome::Done
    })
}

/// The suites at or below paths, in the order of the paths, then of names.
fn suites(paths: &[String], names: &[&str]) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if path.contains("://") {
            return Err(Diagnostic::error(format!("{path} is not on this machine"))
                .hint("clone the repository, and name its folder")
                .into());
        }
        if !Path::new(path).is_dir() {
            // A missing one is named when it is read.
            fs::metadata(path).map_err(|error| input::cannot("read", path, &error))?;
            found.push(path.clone());
            continue;
        }
        let is_suite = |file: &&String| {
            let name = file.rsplit('/').next().unwrap_or_default();
            // Kyverno's users write both endings.
            let stem = name.strip_suffix(".yml");
            names.contains(&name)
                || names.iter().any(|known| stem.is_some() && known.strip_suffix(".yaml") == stem)
        };
        let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
        let below = input::files_below(path)?;
        found.extend(
            below
                .iter()
                .filter(is_suite)
                .map(|file| file.strip_prefix("./").unwrap_or(file).to_owned()),
        );
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    Ok(found)
}

/// The files of this machine.
struct Disk {
    limit: u64,
}

impl Files for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        Ok(input::read(path, self.limit)?.bytes)
    }

    fn below(&self, folder: &str) -> Option<Vec<String>> {
        if !Path::new(folder).is_dir() {
            return None;
        }
        let files = input::files_below(folder).ok()?;
        Some(
            files
                .into_iter()
                .map(|file| file.strip_prefix("./").unwrap_or(&file).to_owned())
                .collect(),
        )
    }
}
