//! `kiln apply`

mod findings;
mod junit;
mod policy_report;
mod show;

use std::path::{Path, PathBuf};

use kiln_chart::NoLookup;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, PolicyHost, is_exception};
use kiln_engine::{EvaluationLimits, HostAllowlist};
use kiln_offline::{
    Given, Job, ObjectChange, Report, UserFile, Values, remark_kind, run as run_offline,
};
use kiln_rules::Payload;
use kiln_services::Services;
use kiln_studio::{SchemasOfServer, Written};
use kiln_value::Value;
use kiln_yaml::{Document, emit_documents};

use super::plan::{KustomizationArgs, PlanArgs, PlanTask, plan};
use crate::addresses::Fetched;
use crate::args::{Global, OutputFormat, form_or_path, separated};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::kustomization::built_documents;
use crate::policy_files::{
    compile_rules, is_clean, kinds_of, objects_of, read_all, read_only, require_policy, rule_set,
};
use crate::system_env::SystemEnv;
use crate::ui::Ui;

/// Apply policies to resources, and show the results
///
/// Every resource counts as just created. Prints a report of what each rule did with each resource, then the objects;
/// with --format yaml only the objects, with --format json everything. Exits with code 1 if a rule failed or rejects a
/// resource; with --strict, also if a rule is not run. A resource that fails is shown with the place of what is wrong in
/// its file, the place in the policy that asks for something else, and the smallest change that makes it pass, if there
/// is only one.
///
/// With --resource - --format yaml, all piped objects are printed in order, changed or not, followed by the generated
/// ones, for use as a Helm post-renderer.
///
/// Policies of which Kiln runs no rule cause a warning; if nothing else was given, the exit code is 1, since nothing
/// was evaluated.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of a command")]
// Only a plan asks what an installation is called.
#[command(mut_arg("name", |name| name.hide(true)))]
pub(crate) struct Args {
    /// Policies: files, directories, URLs of files or git repositories, or - for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<String>,

    /// Resources: files, directories, URLs of files, or - for standard input; repeat or separate with commas
    #[arg(long, short, value_name = "FILES", visible_alias = "resources")]
    resource: Vec<String>,

    #[command(flatten)]
    kustomization: KustomizationArgs,

    /// Objects that rules can read but that do not trigger them (clone sources, ConfigMaps)
    #[arg(long, value_name = "FILES", visible_alias = "target-resources")]
    target_resource: Vec<String>,

    /// File of kind Values, with values of the cluster or the request
    #[arg(long, short = 'f', value_name = "FILE")]
    values_file: Option<String>,

    /// A value, as NAME=VALUE; repeat the option or separate with commas
    #[arg(long, short, value_name = "NAME=VALUE", value_delimiter = ',')]
    set: Vec<String>,

    /// File of kind UserInfo, with the user who sends the requests
    #[arg(long, short, value_name = "FILE")]
    userinfo: Option<String>,

    /// PolicyExceptions: files or directories. Those among RULES apply as well
    #[arg(long, short, value_name = "FILES", visible_alias = "exceptions")]
    exception: Vec<String>,

    /// Also apply PolicyExceptions among the resources
    #[arg(long, alias = "exceptions-with-resources")]
    exceptions_within_resources: bool,

    /// CustomResourceDefinitions: files or directories, separated by commas
    #[arg(long, value_name = "FILES", alias = "crd-path")]
    crd_paths: Vec<String>,

    /// File of kind Context, with objects of the cluster
    #[arg(long, value_name = "FILE")]
    context_file: Option<String>,

    /// Parameter objects of policies
    #[arg(long, value_name = "FILES")]
    parameter_resource: Vec<String>,

    /// Branch of git repositories among RULES whose URL names none
    #[arg(long, short = 'b', value_name = "BRANCH")]
    git_branch: Option<String>,

    /// Host that rules may call, such as prices.shop.svc:8080 or *.example.com
    #[arg(long, value_name = "HOST", value_parser = HostAllowlist::read)]
    allow_service: Vec<HostAllowlist>,

    /// File for the objects, or directory, which is created if its name ends with a slash: mutated ones go to
    /// RESOURCE-mutated.yaml, generated ones to POLICY-generated.yaml. A format (json, yaml, table, junit, sarif, github, gitlab, azure, html) means --format
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Show the differences between the given and the resulting objects
    #[arg(long)]
    diff: bool,

    /// Show each step of each rule, also for rules that do not match
    #[arg(long)]
    trace: bool,

    /// Print the results as a PolicyReport
    #[arg(long, short)]
    policy_report: bool,

    /// API group of the PolicyReport
    #[arg(long, value_name = "GROUP", value_enum, default_value_t = ReportGroup::Openreports)]
    report_group: ReportGroup,

    /// Format of the PolicyReport
    #[arg(long, value_name = "FORM", value_parser = ["yaml", "json"], default_value = "yaml")]
    output_format: String,

    /// Data for policies of mode JSON: files, or directories with files
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    json: Vec<String>,

    /// Requests for policies of mode HTTP
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    http_payload: Vec<String>,

    /// Requests for policies of mode Envoy
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    envoy_payload: Vec<String>,

    /// Print only the objects, to pipe them on; same as --format yaml
    #[arg(long, short = 'i')]
    stdin: bool,

    /// Print the results as a table
    #[arg(long, short)]
    table: bool,

    /// Show only results that fail or cannot be evaluated; the summary counts all
    #[arg(long)]
    fail_only: bool,

    /// With --table, add messages
    #[arg(long)]
    detailed_results: bool,

    /// Exit code if rules warn, or with --warn-no-pass, and nothing failed
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    warn_exit_code: u8,

    /// Warn if no rule passes
    #[arg(long)]
    warn_no_pass: bool,

    /// Count it as a warning if a resource fails a rule that only audits
    #[arg(long)]
    audit_warn: bool,

    /// Exit with code 1 on a warning, about a policy or by a rule
    #[arg(long)]
    warnings_as_errors: bool,

    /// Exit with code 1 on warnings about rules, and on rules and policies that Kiln does not run
    #[arg(long)]
    strict: bool,

    /// Apply to all objects of a cluster, and show what would be created, changed and deleted there
    ///
    /// This is `kiln plan --all`: nothing is changed.
    #[arg(long, short, conflicts_with_all = [
        "resource", "kustomize", "target_resource", "values_file", "set", "output", "userinfo", "table", "policy_report", "diff", "trace",
        "detailed_results", "audit_warn", "warn_exit_code", "warn_no_pass", "warnings_as_errors", "strict", "exception",
        "exceptions_within_resources", "crd_paths", "context_file", "parameter_resource", "stdin",
        "json", "http_payload", "envoy_payload", "fail_only",
    ])]
    cluster: bool,

    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    kyverno: Accepted,
}

/// The API groups of policy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReportGroup {
    /// openreports.io, as Kyverno 1.19 has it
    #[value(name = "openreports.io")]
    Openreports,
    /// wgpolicyk8s.io, as it was before
    #[value(name = "wgpolicyk8s.io")]
    Wgpolicy,
}

/// Options of Kyverno's command line that pipelines give, and that need nothing done here or cannot be had.
#[derive(Debug, clap::Args)]
struct Accepted {
    /// One bad policy never stops the others
    #[arg(long, hide = true)]
    continue_on_fail: bool,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    continue_on_error: Option<bool>,
    /// PolicyExceptions among the policies always hold
    #[arg(long, hide = true)]
    exceptions_within_policies: bool,
    /// With --cluster everything is looked at
    #[arg(long, hide = true)]
    cluster_wide_resources: bool,
    #[arg(long, short = 'n', hide = true)]
    namespace: Option<String>,
    #[arg(long, short = 'v', hide = true)]
    v: Option<u32>,
    #[arg(long, hide = true)]
    concurrent: Option<u32>,
    #[arg(long, hide = true)]
    batch_size: Option<u32>,
    #[arg(long, hide = true)]
    show_performance: bool,
    #[arg(long, hide = true)]
    registry: bool,
    #[arg(long, hide = true)]
    username: Option<String>,
    #[arg(long, hide = true)]
    password: Option<String>,
    #[arg(long, hide = true)]
    generate_exceptions: bool,
    #[arg(long, hide = true)]
    generated_exception_ttl: Option<String>,
}

impl Accepted {
    /// Says what cannot be had.
    fn check(&self, ui: &Ui, with_cluster: bool) -> Result<(), Diagnostic> {
        if self.username.is_some() || self.password.is_some() {
            return Err(Diagnostic::error("Kiln hands no passwords to git").hint(
                "leave --username and --password out: git asks your credential helper, or use ssh",
            ));
        }
        let exceptions = [
            (self.generate_exceptions, "--generate-exceptions"),
            (self.generated_exception_ttl.is_some(), "--generated-exception-ttl"),
        ];
        if let Some((_, option)) = exceptions.into_iter().find(|(given, _)| *given) {
            return Err(Diagnostic::error(format!("Kiln does not write exceptions: {option}"))
                .hint("use kyverno apply for them"));
        }
        if self.registry {
            ui.problem(
                &Diagnostic::warning("Kiln asks no registries: --registry has no effect")
                    .hint("give what rules want to know of images in a values file"),
            );
        }
        if self.namespace.is_some() && with_cluster {
            ui.problem(
                &Diagnostic::warning("--namespace has no effect: all namespaces are looked at")
                    .hint("give the objects of one with --resource"),
            );
        }
        Ok(())
    }
}

pub(super) use kiln_studio::change_as_value;
pub(super) use show::message;

pub(super) const FORMS: [OutputFormat; 10] = [
    OutputFormat::Text,
    OutputFormat::Table,
    OutputFormat::Yaml,
    OutputFormat::Json,
    OutputFormat::Junit,
    OutputFormat::Sarif,
    OutputFormat::Github,
    OutputFormat::Gitlab,
    OutputFormat::Azure,
    OutputFormat::Html,
];

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    args.kyverno.check(ui, args.cluster)?;
    let mut fetched = Fetched::default();
    let limit = global.max_input_size;
    let rules = fetched.bring(&args.rules, args.git_branch.as_deref(), limit)?;
    if args.cluster {
        let services = super::run::all(&args.allow_service);
        let task = PlanTask { rules: &rules, all: true, services: &services, kustomization: None };
        return plan(ui, global, &task, &args.plan);
    }
    let (form, output) = match args.output.as_deref().map(|path| form_or_path(path, &FORMS)) {
        Some(Ok(form)) => (form, None),
        Some(Err(path)) => (ui.format(), Some(path)),
        None if args.stdin => (OutputFormat::Yaml, None),
        None => (ui.format(), None),
    };
    let ui = &ui.in_form(form);
    ui.has_formats_of("apply")?;
    let (payloads, payload_documents) = payloads(args, global)?;
    let kustomize = args.kustomization.kustomize.as_deref();
    if args.resource.is_empty() && kustomize.is_none() && payloads.is_empty() {
        return Err(Diagnostic::error("there are no resources to apply the policies to")
            .hint(
                "give files or directories with --resource, a kustomization with --kustomize, or use those of a cluster with --cluster",
            )
            .into());
    }
    let paths = fetched.bring(&separated(&args.resource), args.git_branch.as_deref(), limit)?;
    let mut rules = read_all(&rules, global)?;
    let mut resources = read_all(&paths, global)?;
    if let Some(directory) = kustomize {
        let how = &args.kustomization.build;
        resources.extend(built_documents(ui, global, directory, how, &NoLookup)?);
    }
    let mut others = read_all(&separated(&args.target_resource), global)?;
    others.extend(read_all(&separated(&args.parameter_resource), global)?);
    let definitions = read_all(&separated(&args.crd_paths), global)?;
    require_policy(&rules, &args.rules.join(", "))?;
    rules.extend(exceptions(args, global, &mut resources)?);
    if resources.is_empty() && payloads.is_empty() {
        let places = args.resource.iter().map(String::as_str).chain(kustomize);
        let places = places.collect::<Vec<_>>().join(", ");
        let nothing = format!("there is no resource in {places}");
        ui.problem(&Diagnostic::warning(nothing).hint("check the paths; no rule was evaluated"));
    }
    let kinds = kinds_of(rules.iter().chain(&resources).chain(&others).chain(&definitions))?;
    let given = rules.iter().chain(&resources).chain(&others).chain(&definitions);
    let schemas = SchemasOfServer::given(given.map(Document::value));
    let compiled = compile_rules(ui, PolicyHost::Files, &rules, &resources, &kinds);
    let unjudged = warn_of_unjudged(ui, &compiled);
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
    let limits = if args.trace {
        EvaluationLimits::default().traced()
    } else {
        EvaluationLimits::default().explaining_skips()
    };
    let shows_findings = crate::findings::FORMS.contains(&ui.format());
    let shows_fixes = (shows_findings
        || matches!(ui.format(), OutputFormat::Text | OutputFormat::Json | OutputFormat::Html))
        && !(args.table || args.policy_report);
    let limits = if shows_fixes { limits.fixing() } else { limits };
    let mut others = objects_of(others)?;
    others.extend(context_objects(ui, global, args)?);
    let written = Written::new(&rules, &resources, payload_documents);
    let resources = objects_of(resources)?;
    let job = Job {
        rules: &rules,
        kinds: &kinds,
        resources,
        payloads,
        others,
        values: values(ui, global, args)?,
        user,
        limits,
        external_data: &Services::new(super::run::all(&args.allow_service)),
        explain: args.trace,
        only_given_kinds: false,
        audit_warns: args.audit_warn,
        follows_denied: false,
        schemas: Some(&schemas),
    };
    let report = run_offline(&job, &SystemEnv);
    for warning in &report.warnings {
        ui.problem(warning);
    }
    if let Some(path) = &output {
        write_objects(path, &report)?;
    }
    show::report(ui, args, output.is_some(), &report, &written)?;
    if ui.format() == OutputFormat::Yaml {
        show::refusals(ui, &report);
    }
    end(args, &compiled, unjudged, &report)
}

/// The data and requests that were given, each under the name of its file, and their documents.
fn payloads(args: &Args, global: &Global) -> Result<(Vec<Given>, Vec<Document>), CommandFailure> {
    let lists = [
        (Payload::Json, &args.json),
        (Payload::Http, &args.http_payload),
        (Payload::Envoy, &args.envoy_payload),
    ];
    let (mut all, mut documents) = (Vec::new(), Vec::new());
    for (payload, paths) in lists {
        for document in read_all(paths, global)? {
            let name = document.place().source().name().to_owned();
            let name = name.rsplit('/').next().unwrap_or(&name).to_owned();
            all.push(Given { payload, name, value: document.value().clone() });
            documents.push(document);
        }
    }
    Ok((all, documents))
}

/// The exceptions that were given, and, where that is asked for, those among the resources.
fn exceptions(
    args: &Args,
    global: &Global,
    resources: &mut Vec<Document>,
) -> Result<Vec<Document>, CommandFailure> {
    let mut found = read_all(&separated(&args.exception), global)?;
    if let Some(other) = found.iter().find(|document| !is_exception(document)) {
        return Err(Diagnostic::error("this is not a PolicyException").at(other.place()).into());
    }
    if args.exceptions_within_resources {
        let (among, rest) = std::mem::take(resources).into_iter().partition(is_exception);
        *resources = rest;
        found.extend::<Vec<Document>>(among);
    }
    Ok(found)
}

/// Warns about policies none of whose rules is run: Kyverno would have judged the resources by them.
fn warn_of_unjudged(ui: &Ui, compiled: &Compiled) -> Unjudged {
    let is_run = |policy: &str| {
        compiled.policies.iter().any(|p| !p.rules.is_empty() && p.id.key() == policy)
    };
    let mut names: Vec<&str> = Vec::new();
    for not_run in compiled.not_run.iter().filter(|not_run| !is_run(&not_run.policy)) {
        if !names.contains(&not_run.policy.as_str()) {
            names.push(&not_run.policy);
        }
    }
    if names.is_empty() {
        return Unjudged::None;
    }
    let (none, them) = match names.as_slice() {
        [only] => (format!("no rule of policy {only} is run"), "it"),
        _ => (format!("no rule of the policies {} is run", names.join(", ")), "them"),
    };
    ui.problem(&Diagnostic::warning(format!("{none}: nothing here was evaluated by {them}")).hint(
        "Kiln runs rules that generate, mutate, validate and clean up; leave the others to kyverno apply",
    ));
    match compiled.policies.iter().all(|policy| policy.rules.is_empty()) {
        true => Unjudged::All,
        false => Unjudged::Some,
    }
}

/// How many of the policies have no rule that is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unjudged {
    None,
    Some,
    All,
}

/// The objects of a file of kind Context.
fn context_objects(ui: &Ui, global: &Global, args: &Args) -> Result<Vec<Value>, CommandFailure> {
    let Some(path) = &args.context_file else { return Ok(Vec::new()) };
    let document = read_only(path, global)?;
    remark_kind(&document, "context file", "Context").iter().for_each(|said| ui.problem(said));
    let spec = document.value().get("spec");
    if spec.is_some_and(|spec| spec.get("images").is_some_and(|images| !images.is_null())) {
        ui.problem(
            &Diagnostic::warning(
                "images of a context file apply to `kiln test` only; ignored here",
            )
            .at(document.place()),
        );
    }
    let objects = spec.and_then(|spec| spec.get("resources")).and_then(Value::as_list);
    let objects: Vec<Value> = objects.into_iter().flatten().cloned().collect();
    match objects.iter().find_map(|object| kiln_object::ObjectId::of(object).err()) {
        None => Ok(objects),
        Some(missing) => {
            Err(Diagnostic::error(format!("spec.resources holds no Kubernetes object: {missing}"))
                .at(document.place())
                .into())
        }
    }
}

fn values(ui: &Ui, global: &Global, args: &Args) -> Result<Values, CommandFailure> {
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

/// Writes the objects: to one file, or into a directory under the names that Kyverno gives them.
fn write_objects(path: &Path, report: &Report) -> Result<(), CommandFailure> {
    let is_directory = path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/');
    if !is_directory {
        let text = emit_documents(report.objects().iter().map(|made| &made.object));
        return Ok(input::write_file(path, &text)?);
    }
    std::fs::create_dir_all(path)
        .map_err(|error| input::cannot("make", &path.display().to_string(), &error))?;
    let mut files: Vec<(String, Vec<Value>)> = Vec::new();
    for made in report.objects() {
        // What was patched belongs to the resource; what was made, to the policy that made it first.
        let file = match made.change {
            ObjectChange::Patched => format!("{}-mutated", made.id.name),
            _ => {
                let maker = report.results.iter().find(|r| r.made.iter().any(|m| m.id == made.id));
                let Some(maker) = maker else { continue };
                format!("{}-generated", maker.rule.policy.name)
            }
        };
        // Names may hold anything, file names may not.
        let file = file.replace(['/', '\\', '\0', ':'], "_");
        match files.iter_mut().find(|(name, _)| *name == file) {
            Some((_, objects)) => objects.push(made.object),
            None => files.push((file, vec![made.object])),
        }
    }
    for (file, objects) in files {
        input::write_file(&path.join(format!("{file}.yaml")), &emit_documents(&objects))?;
    }
    Ok(())
}

fn end(args: &Args, compiled: &Compiled, unjudged: Unjudged, report: &Report) -> CommandResult {
    let counts = report.counts();
    if compiled.has_errors() {
        // What is wrong has been shown already.
        return Err(CommandFailure::BadInput(Vec::new()));
    }
    let warned = counts.warn > 0 || (args.warn_no_pass && counts.pass == 0);
    let remarked = || {
        let mut told = compiled.diagnostics.iter().chain(&report.warnings);
        warned
            || unjudged != Unjudged::None
            || told.any(|found| found.severity == Severity::Warning)
    };
    if counts.fail + counts.error > 0
        || unjudged == Unjudged::All
        || (args.warnings_as_errors && remarked())
        || (args.strict && !is_clean(compiled))
    {
        return Ok(CommandOutcome::Negative);
    }
    Ok(if warned { CommandOutcome::Code(args.warn_exit_code) } else { CommandOutcome::Done })
}
