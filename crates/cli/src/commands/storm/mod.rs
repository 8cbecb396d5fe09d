//! `kiln storm`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use kiln_diagnostic::Diagnostic;
use kiln_dialects::is_policy;
use kiln_storm::{Finding, Storm, StormError, StormInput, StormReport, Story};
use kiln_value::{Value, json as value_json};
use kiln_yaml::Document;
use serde_json::json;

use crate::args::{Global, OutputFormat, separated};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::policy_files::{objects_of, read_all, read_only, require_policy};
use crate::ui::{Ui, counted};

/// Look for loops, fights and other mistakes in policies
///
/// Plays random lives of a cluster with the policies, in logical time: objects that the rules match come, change and
/// go, downstreams are edited and deleted, the engine is restarted. Reports rules that write without end or against
/// each other, create more and more objects, change their own results, depend on the order of policies, lose or leave
/// downstreams, fail on missing fields, or can never match; each with the shortest story that shows it. The same seed
/// gives the same stories. Exits with code 1 if something was found, with 2 if a policy is invalid.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or directories with policies, or - for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<String>,

    /// Objects to play with besides those made up from the rules: triggers, clone sources, CustomResourceDefinitions
    #[arg(long, short, value_name = "FILES")]
    resource: Vec<String>,

    /// Time to play for, such as 10s or 2m
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    time: std::time::Duration,

    /// Seed of the stories
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Play one saved story and nothing else
    #[arg(long, value_name = "FILE")]
    replay: Option<String>,

    /// Directory for the story of each finding, to replay, and the same as a Chainsaw test
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    let read = kiln_text::Duration::parse(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(read.as_nanos()).map_err(|_| format!("{text:?} is negative"))?;
    Ok(std::time::Duration::from_nanos(nanos))
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("storm")?;
    let documents = read_all(&args.rules, global)?;
    require_policy(&documents, "the files")?;
    let (policies, others): (Vec<Document>, Vec<Document>) =
        documents.into_iter().partition(is_policy);
    let mut resources = objects_of(others)?;
    resources.extend(objects_of(read_all(&separated(&args.resource), global)?)?);
    let stored: Vec<Value> = policies.iter().map(|policy| policy.value().clone()).collect();
    let storm = Storm::new(&StormInput { policies, resources, seed: args.seed });
    let storm = storm.map_err(|error| match error {
        StormError::NoRules => Diagnostic::error("no rule of the files is run by Kiln")
            .hint("kiln check --strict names rules that are not run"),
        StormError::Refused(why) => Diagnostic::error(why)
            .hint("kiln check shows what is wrong with a policy, with its place"),
    })?;
    let report = match &args.replay {
        Some(path) => replay(&storm, path, global)?,
        None => {
            let began = Instant::now();
            storm.run(|_| began.elapsed() < args.time)
        }
    };
    if let Some(directory) = &args.save {
        save(directory, &report.findings, &stored)?;
    }
    show(ui, &report)?;
    Ok(match report.findings.is_empty() {
        true => CommandOutcome::Done,
        false => CommandOutcome::Negative,
    })
}

/// What a saved story shows.
fn replay(storm: &Storm, path: &str, global: &Global) -> Result<StormReport, CommandFailure> {
    let document = read_only(path, global)?;
    let story = Story::read(document.value()).map_err(|bad| {
        Diagnostic::error(format!("cannot read the story: {bad}"))
            .at(document.place())
            .hint("give a file that kiln storm --save wrote")
    })?;
    let actions = u64::try_from(story.actions.len()).unwrap_or(0);
    Ok(StormReport { findings: storm.play(&story), stories: 1, actions })
}

/// Writes the story of each finding, and the same as a Chainsaw test.
fn save(directory: &Path, findings: &[Finding], policies: &[Value]) -> Result<(), CommandFailure> {
    for (number, finding) in findings.iter().enumerate() {
        let name = format!("{:02}-{}", number + 1, finding.kind);
        let below = directory.join(&name);
        std::fs::create_dir_all(&below)
            .map_err(|error| input::cannot("create", &below.display().to_string(), &error))?;
        let write = |file: &str, value: &Value| {
            input::write_file(&below.join(file), &kiln_yaml::emit(value))
        };
        write("story.yaml", &finding.story.to_value())?;
        write("chainsaw-test.yaml", &finding.story.to_chainsaw(policies, &name))?;
    }
    Ok(())
}

fn show(ui: &Ui, report: &StormReport) -> io::Result<()> {
    if ui.format() != OutputFormat::Text {
        let findings: Vec<serde_json::Value> = report
            .findings
            .iter()
            .map(|finding| {
                let story = value_json::to_string(&finding.story.to_value());
                json!({
                    "kind": finding.kind.as_str(), "about": finding.about,
                    "message": finding.message,
                    "story": serde_json::from_str::<serde_json::Value>(&story).unwrap_or_default(),
                })
            })
            .collect();
        return ui.document(&json!({
            "findings": findings, "stories": report.stories, "actions": report.actions,
        }));
    }
    let mut out = ui.stdout();
    for finding in &report.findings {
        writeln!(out, "{}: {}", finding.kind, finding.about)?;
        writeln!(out, "  {}", finding.message)?;
        for (number, action) in finding.story.actions.iter().enumerate() {
            writeln!(out, "  {:>3}. {action}", number + 1)?;
        }
        writeln!(out)?;
    }
    let stories = counted(usize::try_from(report.stories).unwrap_or(0), "story", "stories");
    let found = counted(report.findings.len(), "finding", "findings");
    writeln!(out, "{stories} with {} actions: {found}", report.actions)?;
    out.flush()
}
