//! `kiln test`

mod definitions;
mod programs;
mod sandboxes;
mod show;
mod side_by_side;
mod worlds;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_engine::HostAllowlist;
use kiln_services::Services;
use kiln_suites::{Files, Report, Selector, Suite, SuiteOptions};
use kiln_world::WorldImage;
use kiln_yaml::{Document, ReadOptions};

use crate::addresses::Fetched;
use crate::args::{Global, OutputFormat, form_or_path, separated};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::file_watch;
use crate::input;
use crate::policy_files::kinds_of;
use crate::system_env::SystemEnv;
use crate::ui::{Counter, Ui};

/// Run policy tests (kyverno-test.yaml, chainsaw-test.yaml)
///
/// A suite is a file kyverno-test.yaml in the format of Kyverno's command line, or a file chainsaw-test.yaml in the
/// format of Chainsaw, whose steps run on a cluster in this process with the engine; directories are searched for both.
/// Time in that cluster is logical: sleeps and timeouts take no time, and results are the same in every run. Prints a
/// table of all results, each suite as soon as it is done, and the differences between actual and expected objects.
/// Exits with code 1 if a test failed, with 2 if a suite is invalid; the other suites still run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories to search for test suites, test suites, or URLs of git repositories
    #[arg(value_name = "DIR", default_value = ".")]
    paths: Vec<String>,

    /// File name of test suites [default: kyverno-test.yaml and chainsaw-test.yaml]
    #[arg(long, short, value_name = "NAME")]
    file_name: Option<String>,

    /// Select results by policy=P,rule=R,resource=N, with wildcards
    #[arg(long, short, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    test_case_selector: String,

    /// Show only failures
    #[arg(long)]
    fail_only: bool,

    /// Add the message of each rule
    #[arg(long)]
    detailed_results: bool,

    /// Fail if there is no suite, or if a result was not run
    #[arg(long)]
    require_tests: bool,

    /// Fail if a result was not run because Kiln does not run the rule
    #[arg(long)]
    strict: bool,

    /// Host that rules may call, such as prices.shop.svc:8080 or *.example.com
    #[arg(long, value_name = "HOST", value_parser = HostAllowlist::read)]
    allow_service: Vec<HostAllowlist>,

    /// Run scripts and commands of Chainsaw tests on this machine, against a sandbox on loopback in real time
    #[arg(long)]
    allow_scripts: bool,

    /// CustomResourceDefinitions for all suites and their sandboxes: files, directories, or names of common ones, such as
    /// argo, cert-manager or istio, separated by commas; an unknown name lists them all
    #[arg(long, value_name = "FILES|NAMES", alias = "crd-paths")]
    crds: Vec<String>,

    /// Branch of git repositories among DIR whose URL names none
    #[arg(long, short = 'b', value_name = "BRANCH")]
    git_branch: Option<String>,

    /// Exit with code 1 on a warning about a suite or a policy
    #[arg(long)]
    warnings_as_errors: bool,

    /// Number of suites to run in parallel [default: number of processors]
    #[arg(long, short, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,

    /// Run again whenever a file below the directories changes, until interrupted
    #[arg(long, conflicts_with = "output")]
    watch: bool,

    /// File for the report; a format (json, yaml, junit, markdown, table, sarif, github, gitlab, azure) means --format
    #[arg(long, short, value_name = "PATH", alias = "output-format")]
    output: Option<PathBuf>,

    /// Accepted for compatibility: no registry is asked
    #[arg(long, hide = true)]
    registry: bool,

    /// Accepted for compatibility
    #[arg(long, short = 'v', hide = true)]
    v: Option<u32>,
}

/// The names of suites by default.
const USUAL: [&str; 2] = ["kyverno-test.yaml", "chainsaw-test.yaml"];

pub(super) const FORMS: [OutputFormat; 10] = [
    OutputFormat::Text,
    OutputFormat::Table,
    OutputFormat::Yaml,
    OutputFormat::Json,
    OutputFormat::Junit,
    OutputFormat::Markdown,
    OutputFormat::Sarif,
    OutputFormat::Github,
    OutputFormat::Gitlab,
    OutputFormat::Azure,
];

/// What is the same for all suites of a run.
struct Run<'r> {
    args: &'r Args,
    global: &'r Global,
    selector: Selector,
    definitions: Vec<Document>,
    /// The cluster that tests with live steps begin with, made when the first one needs it.
    image: OnceLock<Result<WorldImage, Diagnostic>>,
    read: ReadOptions,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let (form, output) = match args.output.as_deref().map(|path| form_or_path(path, &FORMS)) {
        Some(Ok(form)) => (form, None),
        Some(Err(path)) => (ui.format(), Some(path)),
        None => (ui.format(), None),
    };
    let ui = &ui.in_form(form);
    ui.has_formats_of("test")?;
    if args.registry {
        ui.problem(
            &Diagnostic::warning("Kiln asks no registries: --registry has no effect")
                .hint("say in a suite's context what registries know of images"),
        );
    }
    let selector = Selector::parse(&args.test_case_selector)
        .map_err(|error| Diagnostic::error(format!("--test-case-selector: {error}")))?;
    let mut fetched = Fetched::default();
    let paths = fetched.bring(&args.paths, args.git_branch.as_deref(), global.max_input_size)?;
    let definitions = definitions::read(&separated(&args.crds), global)?;
    // Those that cannot be used are reported once, and not by every suite.
    kinds_of(&definitions)?;
    let run = Run {
        args,
        global,
        selector,
        definitions,
        image: OnceLock::new(),
        read: ReadOptions::kubernetes()
            .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX)),
    };
    if args.watch {
        return file_watch::run(ui, &paths, || run.once(ui, &paths, None));
    }
    run.once(ui, &paths, output.as_deref())
}

impl Run<'_> {
    /// One run of all suites.
    fn once(&self, ui: &Ui, paths: &[String], output: Option<&Path>) -> CommandResult {
        let args = self.args;
        let names: Vec<&str> = match &args.file_name {
            Some(name) => vec![name],
            None => USUAL.to_vec(),
        };
        let suites = suites(paths, &names)?;
        if suites.is_empty() {
            let problem = Diagnostic::new(
                Severity::Warning,
                format!("there is no {} below {}", names[0], paths.join(", ")),
            );
            ui.problem(&problem.hint(match args.file_name {
                Some(_) => "--file-name says how suites are called",
                None => {
                    "`kiln new test DIR` writes one for the policies in DIR, from what they do now"
                }
            }));
        }
        let mut report = Report::default();
        let mut shown = show::Shown::new(ui, args, output.is_none());
        let progress = Counter::start(suites.len(), ui.format());
        let mut failed = None;
        side_by_side::run(
            &suites,
            args.jobs,
            |path| self.suite(path),
            |suite| {
                progress.hide();
                for problem in &suite.problems {
                    ui.problem(problem);
                }
                if let Err(error) = shown.suite(&suite) {
                    failed.get_or_insert(error);
                }
                report.suites.push(suite);
                progress.done();
                failed.is_none()
            },
        );
        drop(progress);
        if let Some(error) = failed {
            return Err(error.into());
        }
        match output {
            Some(path) => {
                let mut text = Vec::new();
                show::report(&mut text, ui.format(), args, &report)?;
                input::write_file(path, &String::from_utf8_lossy(&text))?;
            }
            None => shown.end(&report)?,
        }
        self.end(&report)
    }

    /// What comes of one suite. It may run on a thread of its own, and so has services of its own.
    fn suite(&self, path: &str) -> Suite {
        let disk = Disk { limit: self.global.max_input_size };
        if kiln_suites::chainsaw::is_chainsaw_test(path, &disk, self.read) {
            return self.live_suite(path, &disk);
        }
        let services = Services::new(super::run::all(&self.args.allow_service));
        let options = SuiteOptions {
            services: &services,
            sources: &SystemEnv,
            selector: self.selector.clone(),
            read: self.read,
            definitions: &self.definitions,
        };
        kiln_suites::run(path, &disk, &options)
    }

    /// What comes of a suite with live steps.
    fn live_suite(&self, path: &str, disk: &Disk) -> Suite {
        use kiln_suites::chainsaw::{has_programs, run};
        let broken = |problem: Diagnostic| Suite {
            path: path.to_owned(),
            name: None,
            problems: vec![problem],
            rows: Vec::new(),
        };
        if self.args.allow_scripts && has_programs(path, disk, self.read) {
            return match sandboxes::Sandboxes::new(&self.definitions) {
                Ok(clusters) => run(path, disk, self.read, true, &clusters),
                Err(problem) => broken(problem),
            };
        }
        match self.image.get_or_init(|| worlds::image(&self.definitions)) {
            Ok(image) => run(path, disk, self.read, false, &worlds::Worlds { image }),
            Err(problem) => broken(problem.clone()),
        }
    }

    fn end(&self, report: &Report) -> CommandResult {
        let counts = report.counts();
        if counts.broken > 0 {
            // What is wrong has been shown already.
            return Err(CommandFailure::BadInput(Vec::new()));
        }
        // What is excluded has proved nothing.
        let nothing = counts.passed + counts.failed == 0 || counts.not_run > 0;
        let warned = || {
            let mut problems = report.suites.iter().flat_map(|suite| &suite.problems);
            problems.any(|problem| problem.severity == Severity::Warning)
        };
        let failed = counts.failed > 0
            || (self.args.require_tests && nothing)
            || (self.args.strict && counts.not_run > 0)
            || (self.args.warnings_as_errors && warned());
        Ok(if failed { CommandOutcome::Negative } else { CommandOutcome::Done })
    }
}

/// The suites at or below paths, in the order of the paths, then of names.
fn suites(paths: &[String], names: &[&str]) -> Result<Vec<String>, CommandFailure> {
    let mut found = Vec::new();
    for path in paths {
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

    fn below(&self, directory: &str) -> Option<Vec<String>> {
        if !Path::new(directory).is_dir() {
            return None;
        }
        let files = input::files_below(directory).ok()?;
        Some(
            files
                .into_iter()
                .map(|file| file.strip_prefix("./").unwrap_or(&file).to_owned())
                .collect(),
        )
    }
}
