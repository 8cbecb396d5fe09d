//! `kiln eval pattern`

use std::io::Write;

use kiln_diagnostic::Diagnostic;
use kiln_engine::TraceStep;
use kiln_jmespath::{JmesPathEnvironment, JmesPathLimits};
use kiln_pattern::{Explained, Fix, MatchStep, PatternLimits, StepOutcome, explain, fix};
use kiln_value::{Map, Path, Value};
use kiln_variables::{ContextScope, Substitution, Template};
use kiln_yaml::Document;

use super::{only_document, print_result, read_documents, read_one};
use crate::args::{Global, OutputFormat};
use crate::commands::apply::change_as_value;
use crate::exit::{CommandOutcome, CommandResult};
use crate::system_env::SystemEnv;
use crate::ui::{Paint, Ui, plain};

/// Evaluate a Kyverno pattern on a resource, step by step
///
/// Prints each key of the pattern in the order in which it is asked, what was compared, and the result: yes, no, or
/// nothing where a condition does not hold. The last step is the one that decides. Exits with code 1 if the resource
/// fails the pattern, or if the match takes too much work; a pattern that does not apply to it does not fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the pattern; a list, or a map with the key anyPattern, holds several of which one must match
    file: String,

    /// JSON or YAML file with the resource, in which variables are resolved as request.object [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,
}

/// A pattern, and where it was written.
struct Written {
    name: String,
    path: Path,
    value: Value,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    let document = only_document(read_documents(&args.file, global)?, &args.file)?
        .ok_or_else(|| Diagnostic::error(format!("{} holds no pattern", args.file)))?;
    let patterns = patterns(&document)?;
    let resource = read_one(args.input.as_deref(), global)?;
    let request = Map::from_iter([("object", resource.clone())]);
    let context = Value::from(Map::from_iter([("request", request)]));
    let environment =
        JmesPathEnvironment { sources: &SystemEnv, limits: JmesPathLimits::default() };
    let scope = ContextScope::new(&context, environment);
    let mut judged = Vec::new();
    for pattern in &patterns {
        let template = Template::compile_part(&pattern.value, &pattern.path);
        let filled = match Substitution::new(&scope).run(&template) {
            Ok(filled) => filled,
            Err(error) => {
                let place = document.locate(&error.path);
                let problem = Diagnostic::error(error.to_string()).at(place);
                ui.problem(&problem.maybe_hint(error.hint()));
                return Ok(CommandOutcome::Negative);
            }
        };
        let explained = explain(&filled, &resource, &PatternLimits::default());
        if let Some(too_much) = explained.result.as_ref().err().and_then(|found| found.too_much) {
            let problem = Diagnostic::error(too_much.to_string())
                .at(document.locate(&pattern.path))
                .hint("make the pattern or the lists of the resource smaller");
            ui.problem(&problem);
            return Ok(CommandOutcome::Negative);
        }
        let fix = match &explained.result {
            Err(mismatch) if !mismatch.condition => {
                fix(&filled, &resource, &PatternLimits::default())
            }
            _ => None,
        };
        judged.push(Judged { pattern, explained, fix });
    }
    let outcomes: Vec<StepOutcome> = judged.iter().map(Judged::outcome).collect();
    // Kyverno: one that is met is enough; of the others, one that fails counts more than those that do not apply.
    let all = [StepOutcome::Met, StepOutcome::Failed]
        .into_iter()
        .find(|outcome| outcomes.contains(outcome))
        .unwrap_or(StepOutcome::Skipped);
    match ui.format() {
        OutputFormat::Json | OutputFormat::Yaml => {
            let patterns: Value = judged.iter().map(|one| one.as_value(&document)).collect();
            let fields = [("result", Value::from(word(all))), ("patterns", patterns)];
            print_result(ui, &Map::from_iter(fields).into())?;
        }
        _ => {
            let mut out = ui.stdout();
            for one in &judged {
                one.print(&mut out, &document)?;
            }
            if let [_, _, ..] = judged.as_slice() {
                write!(out, "anyPattern: ")?;
                out.result(word(all))?;
                writeln!(out)?;
            }
            out.flush()?;
        }
    }
    Ok(match all {
        StepOutcome::Failed => CommandOutcome::Negative,
        StepOutcome::Met | StepOutcome::Skipped => CommandOutcome::Done,
    })
}

/// The patterns of a file: below their keys as in a rule, or without.
fn patterns(document: &Document) -> Result<Vec<Written>, Diagnostic> {
    let value = document.value();
    let alone = value.as_map().filter(|map| map.len() == 1);
    let below = |key: &str| alone.and_then(|map| map.get(key)).cloned();
    let root = Path::root();
    let several = |list: &Value, path: &Path| {
        let list = list.as_list().into_iter().flat_map(|list| list.iter());
        let written = list.enumerate().map(|(at, value)| Written {
            name: format!("anyPattern[{at}]"),
            path: path.join(at),
            value: value.clone(),
        });
        written.collect::<Vec<_>>()
    };
    let one = |value: Value, path: Path| vec![Written { name: "pattern".to_owned(), path, value }];
    let found = match (below("pattern"), below("anyPattern"), value) {
        (Some(pattern), _, _) => one(pattern, root.join("pattern")),
        (_, Some(list), _) => several(&list, &root.join("anyPattern")),
        (_, _, Value::List(_)) => several(value, &root),
        (_, _, Value::Map(_)) => one(value.clone(), root),
        _ => Vec::new(),
    };
    let is_tree = |written: &Written| matches!(written.value, Value::Map(_) | Value::List(_));
    if found.is_empty() || !found.iter().all(is_tree) {
        return Err(Diagnostic::error("there is no pattern here")
            .at(document.place())
            .hint("write what stands below pattern or anyPattern in a rule"));
    }
    Ok(found)
}

struct Judged<'p> {
    pattern: &'p Written,
    explained: Explained,
    fix: Option<Fix>,
}

impl Judged<'_> {
    fn outcome(&self) -> StepOutcome {
        match &self.explained.result {
            Ok(()) => StepOutcome::Met,
            Err(mismatch) if mismatch.condition => StepOutcome::Skipped,
            Err(_) => StepOutcome::Failed,
        }
    }

    /// Where in the file the pattern decides.
    fn decided_at(&self, document: &Document) -> Option<String> {
        let mismatch = self.explained.result.as_ref().err()?;
        let steps = self.pattern.path.segments().iter().chain(mismatch.pattern.segments());
        let place = document.locate(&steps.cloned().collect());
        Some(format!("{place}: {mismatch}"))
    }

    fn print(&self, out: &mut impl Paint, document: &Document) -> std::io::Result<()> {
        let tree = TraceStep {
            what: self.pattern.name.clone(),
            steps: TraceStep::of_match(self.explained.clone()),
            ..TraceStep::default()
        };
        for line in tree.to_string().lines() {
            out.trace(&plain(line))?;
            writeln!(out)?;
        }
        out.result(word(self.outcome()))?;
        match self.decided_at(document) {
            Some(place) => writeln!(out, ": {}", plain(&place))?,
            None => writeln!(out)?,
        }
        match &self.fix {
            Some(fix) => writeln!(out, "help: {}", plain(&fix.to_string())),
            None => Ok(()),
        }
    }

    fn as_value(&self, document: &Document) -> Value {
        let steps = self.explained.steps.iter().map(step_as_value).collect::<Value>();
        let mut fields = Map::from_iter([
            ("pattern", Value::from(self.pattern.name.clone())),
            ("result", Value::from(word(self.outcome()))),
            ("steps", steps),
        ]);
        if self.explained.is_cut {
            fields.insert("stepsLeftOut", true);
        }
        if let Some(why) = self.decided_at(document) {
            fields.insert("why", why);
        }
        if let Some(fix) = &self.fix {
            fields.insert("fix", fix.changes.iter().map(change_as_value).collect::<Value>());
        }
        fields.into()
    }
}

fn word(outcome: StepOutcome) -> &'static str {
    match outcome {
        StepOutcome::Met => "pass",
        StepOutcome::Failed => "fail",
        StepOutcome::Skipped => "skip",
    }
}

fn step_as_value(step: &MatchStep) -> Value {
    let mut fields = Map::from_iter([
        ("key", Value::from(step.what.clone())),
        ("path", Value::from(step.at.to_string())),
        ("result", Value::from(word(step.outcome))),
    ]);
    if let Some(why) = &step.why {
        fields.insert("why", why.clone());
    }
    if !step.steps.is_empty() {
        fields.insert("steps", step.steps.iter().map(step_as_value).collect::<Value>());
    }
    fields.into()
}
