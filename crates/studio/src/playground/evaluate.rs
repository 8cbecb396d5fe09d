//! Policies over resources, as the user types.

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{PolicyHost, is_policy, rule_cycles};
use kiln_engine::{EvaluationLimits, NoExternalData};
use kiln_jmespath::AmbientSources;
use kiln_kustomize::{Build, BuildOptions, Helm};
use kiln_object::Kinds;
use kiln_offline::{Job, Report, RuleResult, UserFile, Values, kinds_of, objects_of, run};
use kiln_value::{Map, Value};
use kiln_yaml::{Document, ReadOptions, Reader, emit};

use super::workspace::{FileRole, Workspace};
use crate::compile::compile_given;
use crate::difference::unified_difference;
use crate::html::{HtmlWriter, lineage_picture, plan_sections};
use crate::lineage::Lineage;
use crate::run_report::run_report;
use crate::run_value::{counts_as_value, result_as_value};
use crate::server_schemas::SchemasOfServer;
use crate::written::Written;

/// What is shown of an evaluation besides its results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Every step of every rule, also of rules that do not match.
    pub(super) trace: bool,
    /// The plan as HTML.
    pub(super) plan: bool,
    /// The lineage as HTML.
    pub(super) lineage: bool,
}

/// How many rows of a lineage are drawn.
const LINEAGE_ROWS: usize = 1_000;

/// Everything that can be said about a workspace.
pub(super) fn evaluate(
    workspace: &Workspace,
    wanted: Wanted,
    sources: &dyn AmbientSources,
) -> Value {
    let mut problems = Vec::new();
    let mut fields = Map::new();
    let mut resources = workspace.documents(FileRole::Resources, &mut problems);
    if let Some(built) = built(workspace, &mut problems) {
        fields.insert("build", built.0);
        resources.extend(built.1);
    }
    let given = Given {
        policies: workspace.documents(FileRole::Policies, &mut problems),
        resources,
        others: workspace.documents(FileRole::Cluster, &mut problems),
    };
    let values = first(workspace, FileRole::Values, &mut problems)
        .and_then(|document| keep(Values::read(&document), &mut problems))
        .unwrap_or_default();
    let user = first(workspace, FileRole::User, &mut problems)
        .and_then(|document| keep(UserFile::read(&document), &mut problems));
    let kinds = kinds_of(given.all()).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Kinds::builtin()
    });
    let compiled = compile_given(PolicyHost::Files, &given.policies, &given.resources, &kinds);
    problems.extend(compiled.diagnostics.iter().cloned());
    let rules = compiled.policies.iter().flat_map(|policy| &policy.rules).map(AsRef::as_ref);
    problems.extend(rule_cycles(rules, []).iter().map(|cycle| {
        Diagnostic::warning(cycle.message()).at(cycle.start.origin.place()).hint(cycle.hint())
    }));
    let rules = crate::compile::rule_set(&compiled);
    let written = Written::new(&rules, &given.resources, Vec::new());
    let schemas = SchemasOfServer::given(given.all().map(Document::value));
    let mut read = |documents: &[Document]| {
        objects_of(documents.to_vec()).unwrap_or_else(|wrong| {
            problems.extend(wrong);
            Vec::new()
        })
    };
    let (resources, others) = (read(&given.resources), read(&given.others));
    let limits = match wanted.trace {
        true => EvaluationLimits::default().traced().fixing(),
        false => EvaluationLimits::default().explaining_skips().fixing(),
    };
    let job = Job {
        rules: &rules,
        kinds: &kinds,
        resources,
        payloads: Vec::new(),
        others,
        values,
        user,
        limits,
        external_data: &NoExternalData,
        explain: wanted.trace,
        only_given_kinds: false,
        audit_warns: false,
        follows_denied: false,
        schemas: Some(&schemas),
    };
    let report = run(&job, sources);
    problems.extend(report.warnings.iter().cloned());
    fields.insert("rules", rules.rules().count());
    fields.insert("policies", given.policies.iter().filter(|document| is_policy(document)).count());
    add_run(&mut fields, &report, &written, wanted);
    if let Some(tests) = super::suite::run_tests(workspace, sources, &mut problems) {
        fields.insert("tests", tests);
    }
    fields.insert("problems", problems.iter().map(problem_as_value).collect::<Value>());
    Value::from(fields)
}

/// What was given.
struct Given {
    policies: Vec<Document>,
    resources: Vec<Document>,
    others: Vec<Document>,
}

impl Given {
    fn all(&self) -> impl Iterator<Item = &Document> {
        self.policies.iter().chain(&self.resources).chain(&self.others)
    }
}

fn add_run(fields: &mut Map, report: &Report, written: &Written<'_>, wanted: Wanted) {
    let shown: Vec<&RuleResult> = report.results.iter().collect();
    let results = shown.iter().map(|result| {
        let mut value = result_as_value(result, written, wanted.trace);
        if let Some(value) = value.as_map_mut() {
            value.insert("word", result.word());
            if let Some(place) = written.resource(result) {
                value.insert("place", span(&place));
            }
            if let Some(place) = written.rule(result) {
                value.insert("rulePlace", span(&place));
            }
            if let Some(violation) = &result.violation {
                value.insert("message", violation.message.as_str());
            }
        }
        value
    });
    fields.insert("results", results.collect::<Value>());
    fields.insert("summary", counts_as_value(report));
    let untouched = report.untouched.iter().map(|id| Value::from(id.to_string()));
    fields.insert("untouched", untouched.collect::<Value>());
    let objects = report.objects();
    let objects = objects.iter().map(|made| {
        let diff = unified_difference(None, made.before.as_ref(), Some(&made.object));
        Value::from(Map::from_iter([
            ("object", Value::from(made.id.to_string())),
            ("change", Value::from(made.change.as_str())),
            ("yaml", Value::from(emit(&made.object))),
            ("diff", Value::from(diff)),
        ]))
    });
    fields.insert("objects", objects.collect::<Value>());
    if wanted.lineage {
        let mut html = HtmlWriter::new();
        lineage_picture(&mut html, &Lineage::of_run(report), LINEAGE_ROWS);
        fields.insert("lineageHtml", html.finish());
    }
    if wanted.plan {
        fields.insert("planHtml", plan_sections(&run_report(report, &shown, written)).finish());
    }
}

/// The kustomization of the tree, built: what is shown of it, and its objects.
fn built(workspace: &Workspace, problems: &mut Vec<Diagnostic>) -> Option<(Value, Vec<Document>)> {
    let is_kustomization = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization")
    };
    // The first is the one that is built: in a tree with bases, the overlay is written first.
    let root = workspace.of(FileRole::Tree).find(|file| is_kustomization(&file.path))?;
    let tree = workspace.tree();
    let directory =
        root.path.rsplit_once('/').map_or("/".to_owned(), |(path, _)| format!("/{path}"));
    let options = BuildOptions {
        offline: true,
        working_directory: "/".to_owned(),
        helm: Some(Helm::default()),
        ..BuildOptions::default()
    };
    match Build::new(&tree, &options).run(&directory) {
        Ok(output) => {
            problems.extend(output.warnings);
            let mut reader = Reader::new(ReadOptions::kubernetes());
            let read = reader.read_bytes("(built)", output.yaml.as_bytes()).unwrap_or_default();
            Some((Value::from(output.yaml), read))
        }
        Err(failed) => {
            problems.extend(failed.warnings);
            problems.push(failed.error.into());
            Some((Value::from(""), Vec::new()))
        }
    }
}

/// The first document of a role.
fn first(
    workspace: &Workspace,
    role: FileRole,
    problems: &mut Vec<Diagnostic>,
) -> Option<Document> {
    workspace.documents(role, problems).into_iter().next()
}

fn keep<T>(read: Result<T, Diagnostic>, problems: &mut Vec<Diagnostic>) -> Option<T> {
    read.map_err(|problem| problems.push(problem)).ok()
}

/// A problem with its place from beginning to end, in lines and columns.
pub(super) fn problem_as_value(problem: &Diagnostic) -> Value {
    let mut fields = Map::from_iter([
        ("severity", Value::from(problem.severity.as_str())),
        ("message", Value::from(problem.message.as_str())),
    ]);
    if problem.severity == Severity::Note {
        fields.insert("severity", "info");
    }
    if let Some(place) = &problem.place {
        fields.insert("place", span(place));
    }
    if let Some(hint) = &problem.hint {
        fields.insert("hint", hint.as_str());
    }
    Value::from(fields)
}

fn span(place: &kiln_diagnostic::SourceLocation) -> Value {
    let (start, end) = (place.position(), place.source().position(place.span().end));
    Value::from(Map::from_iter([
        ("file", Value::from(place.source().name())),
        ("line", Value::from(start.line)),
        ("column", Value::from(start.column)),
        ("endLine", Value::from(end.line)),
        ("endColumn", Value::from(end.column)),
    ]))
}
