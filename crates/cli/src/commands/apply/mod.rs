//! `kiln apply`

mod show;

use std::path::{Path, PathBuf};

use kiln_diagnostic::Diagnostic;
use kiln_dialects::is_policy;
use kiln_engine::Limits;
use kiln_offline::{Job, Report, UserFile, Values, remark_kind, run as run_offline};
use kiln_services::{Allowed, Services};
use kiln_value::Value;
use kiln_yaml::emit_documents;

use super::eval::Surroundings;
use super::plan::{PlanArgs, plan};
use super::rules::{compile_rules, kinds_of, objects_of, read_all, read_only, rule_set};
use crate::args::{Format, Global};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::input;
use crate::ui::Ui;

/// Run rules over resources, and show what they make of them
///
/// Every resource is taken as just created. First comes a report of what each rule did with each resource, then the
/// objects; with --format yaml the objects alone, with --format json everything. Exit code 1 when a rule failed or
/// refuses a resource.
///
/// With --resource - --format yaml, everything that is piped in comes out again in order, changed or not, and what rules
/// make follows: so it can be a post-renderer of Helm.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of a command")]
pub(crate) struct Args {
    /// Policies: files, folders, or - for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<String>,

    /// Resources: files, folders, or - for standard input
    #[arg(long, short, value_name = "FILES", num_args = 1.., visible_alias = "resources")]
    resource: Vec<String>,

    /// Objects that rules may read, but that are no events: sources of clones, configuration
    #[arg(long, value_name = "FILES", num_args = 1.., visible_alias = "target-resources")]
    target_resource: Vec<String>,

    /// A file of kind Values: what a cluster or the request would have known
    #[arg(long, short = 'f', value_name = "FILE")]
    values_file: Option<String>,

    /// A value by hand, as NAME=VALUE; several with commas, or by repeating the option
    #[arg(long, short, value_name = "NAME=VALUE", value_delimiter = ',')]
    set: Vec<String>,

    /// A file of kind UserInfo: who sends the requests
    #[arg(long, short, value_name = "FILE")]
    userinfo: Option<String>,

    /// A service that rules may ask, such as prices.shop.svc:8080 or *.example.com
    #[arg(long, value_name = "HOST", value_parser = Allowed::read)]
    allow_service: Vec<Allowed>,

    /// Write the objects to a file, or into a folder, one file per policy
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Show how objects that were given differ from what rules make of them
    #[arg(long)]
    diff: bool,

    /// Show for each rule and resource what was asked and answered, also where nothing matched
    #[arg(long)]
    trace: bool,

    /// Print the results as a policy report
    #[arg(long, short)]
    policy_report: bool,

    /// Print the results as a table
    #[arg(long, short)]
    table: bool,

    /// With --table, add messages
    #[arg(long)]
    detailed_results: bool,

    /// The exit code when rules warn, or with --warn-no-pass, and nothing failed
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    warn_exit_code: u8,

    /// Take it for a warning when no rule passes
    #[arg(long)]
    warn_no_pass: bool,

    /// Take all objects of a cluster for resources, and say what would be created, changed and deleted there
    ///
    /// This is `kiln plan --all`: nothing is changed.
    #[arg(long, short, conflicts_with_all = [
        "resource", "target_resource", "values_file", "set", "output", "userinfo", "table", "policy_report", "diff", "trace",
        "detailed_results", "warn_exit_code", "warn_no_pass",
    ])]
    cluster: bool,

    #[command(flatten)]
    plan: PlanArgs,

    /// Accepted for compatibility: one bad policy never stops the others
    #[arg(long, hide = true)]
    continue_on_fail: bool,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    if args.cluster {
        let services = super::run::all(&args.allow_service);
        return plan(ui, global, &args.rules, true, &services, &args.plan);
    }
    ui.has_forms(&[Format::Text, Format::Table, Format::Yaml, Format::Json])?;
    let rules = read_all(&args.rules, global)?;
    let resources = read_all(&args.resource, global)?;
    let others = read_all(&args.target_resource, global)?;
    if !rules.iter().any(is_policy) {
        return Err(Diagnostic::error(format!("there is no policy in {}", args.rules.join(", ")))
            .hint(
                "Kiln reads ClusterPolicy and Policy, GeneratingPolicy, MutatingPolicy, MutatingAdmissionPolicy and ModRule",
            )
            .into());
    }
    if resources.is_empty() && !args.resource.is_empty() {
        let nothing = format!("there is no resource in {}", args.resource.join(", "));
        ui.problem(&Diagnostic::warning(nothing).hint("rules are tried on nothing"));
    }
    let kinds = kinds_of(rules.iter().chain(&resources).chain(&others))?;
    let compiled = compile_rules(ui, &rules, &resources, &kinds);
    let rules = rule_set(&compiled);
    let user = match &args.userinfo {
        Some(path) => {
            let document = read_only(path, global)?;
            remark_kind(&document, "user file", "UserInfo")
                .iter()
                .for_each(|said| ui.problem(said));
            Some(UserFile::read(&document)?)
        }
        None => None,
    };
    let limits =
        if args.trace { Limits::default().traced() } else { Limits::default().explaining_skips() };
    let job = Job {
        rules: &rules,
        kinds: &kinds,
        resources: objects_of(resources)?,
        others: objects_of(others)?,
        values: values(ui, global, args)?,
        user,
        limits,
        outside: &Services::new(super::run::all(&args.allow_service)),
        explain: args.trace,
        only_given_kinds: false,
    };
    let report = run_offline(&job, &Surroundings);
    for warning in &report.warnings {
        ui.problem(warning);
    }
    if let Some(path) = &args.output {
        write_objects(path, &report)?;
    }
    show::report(ui, args, &report)?;
    if ui.format() == Format::Yaml {
        show::refusals(ui, &report);
    }
    end(args, &compiled, &report)
}

fn values(ui: &Ui, global: &Global, args: &Args) -> Result<Values, Failure> {
    let mut values = match &args.values_file {
        Some(path) => {
            let document = read_only(path, global)?;
            remark_kind(&document, "values file", "Values")
                .iter()
                .for_each(|said| ui.problem(said));
            Values::read(&document)?
        }
        None => Values::default(),
    };
    for pair in &args.set {
        let Some((name, text)) = pair.split_once('=') else {
            return Err(Diagnostic::error(format!("--set {pair} has no value"))
                .hint("write --set NAME=VALUE")
                .into());
        };
        values.set(name.trim(), Value::from(text))?;
    }
    Ok(values)
}

/// Writes the objects: to one file, or for a folder to one file per policy, as Kyverno does.
fn write_objects(path: &Path, report: &Report) -> Result<(), Failure> {
    if !path.is_dir() {
        let text = emit_documents(report.objects().iter().map(|made| &made.object));
        return Ok(input::write_file(path, &text)?);
    }
    // Each object belongs to the policy that made it first.
    let mut files: Vec<(String, Vec<Value>)> = Vec::new();
    for made in report.objects() {
        let maker = report.results.iter().find(|r| r.made.iter().any(|m| m.id == made.id));
        let Some(maker) = maker else { continue };
        // Names of policies may hold anything, file names may not.
        let policy = maker.rule.policy.name.replace(['/', '\\', '\0'], "_");
        match files.iter_mut().find(|(name, _)| *name == policy) {
            Some((_, objects)) => objects.push(made.object),
            None => files.push((policy, vec![made.object])),
        }
    }
    for (policy, objects) in files {
        let text = emit_documents(&objects);
        input::write_file(&path.join(format!("{policy}-generated.yaml")), &text)?;
    }
    Ok(())
}

fn end(args: &Args, compiled: &kiln_dialects::Compiled, report: &Report) -> CommandResult {
    let counts = report.counts();
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(Failure::BadInput(Vec::new()));
    }
    if counts.fail + counts.error > 0 {
        return Ok(Outcome::No);
    }
    let warned = counts.warn > 0 || (args.warn_no_pass && counts.pass == 0);
    Ok(if warned { Outcome::Code(args.warn_exit_code) } else { Outcome::Done })
}
