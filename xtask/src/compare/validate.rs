//! Random policies that check, and resources, through `kiln apply` and through Kyverno's own command line.
//!
//! Both are given many cases at once, each with a policy that matches the resources of its own namespace alone, and both print
//! a policy report. Compared is the result of every rule for every resource. Policies that Kyverno does not take are
//! counted and not compared. What docs/reference/differences/kyverno.md says is counted apart, or not made at all.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use kiln_value::{Value, json};
use kiln_yaml::{emit, emit_documents};

use self::cases::Case;
use super::Args;
use super::pattern_errors;
use super::patterns::smaller;
use crate::bench::kyverno;

/// So many cases are given to both at once.
const BATCH: u64 = 10;

/// What each rule says of each resource: by rule and resource, the result and the message.
type Verdicts = BTreeMap<(String, String), (String, String)>;

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
pub(super) fn run(args: &Args) -> Result<bool> {
    let both = Both {
        kiln: args.kiln.clone().map_or_else(super::kiln, Ok)?,
        kyverno: kyverno::program("cli/kubectl-kyverno")?,
        directory: tempfile::tempdir()?,
    };
    let mut tally = Tally::default();
    let end = args.seed + args.cases;
    let mut first = args.seed;
    while first < end {
        let batch: Vec<Case> = (first..end.min(first + BATCH)).map(Case::of).collect();
        let results = both.apply(&batch)?;
        for (case, outcome) in batch.into_iter().zip(results) {
            tally.count(&case, &outcome);
            if outcome.differs(&case) {
                if tally.different.len() < args.show {
                    print(&smallest(case.clone(), &both)?, &both)?;
                }
                tally.different.push(case.number);
            }
        }
        first += BATCH;
        eprint!("\r{} cases, {} differences ", first.min(end) - args.seed, tally.different.len());
    }
    eprintln!();
    println!("{} cases from seed {}: {tally}", args.cases, args.seed);
    Ok(tally.different.is_empty())
}

/// What has come of cases so far.
#[derive(Default)]
struct Tally {
    /// How often Kyverno came to each result.
    results: BTreeMap<String, u64>,
    /// Errors of Kyverno that are failures here.
    known: u64,
    not_taken: u64,
    /// Failures with the same result and another message, and the first few of their cases.
    messages: u64,
    other_words: Vec<u64>,
    different: Vec<u64>,
}

impl Tally {
    fn count(&mut self, case: &Case, outcome: &Outcome) {
        self.not_taken += u64::from(outcome.not_taken);
        if outcome.not_taken {
            return;
        }
        for (key, (theirs, said)) in &outcome.theirs {
            *self.results.entry(theirs.clone()).or_default() += 1;
            let Some((ours, our_words)) = outcome.ours.get(key) else { continue };
            self.known += u64::from(is_known_to_differ(case, key, (ours, theirs), said));
            if ours == theirs && ours == "fail" && said != our_words {
                self.messages += 1;
                if self.other_words.len() < 10 && self.other_words.last() != Some(&case.number) {
                    self.other_words.push(case.number);
                }
            }
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let results: Vec<String> =
            self.results.iter().map(|(result, count)| format!("{count} {result}")).collect();
        write!(
            f,
            "{} ({}), {} errors of Kyverno are failures here, {} policies are not taken by Kyverno; {} failures have another \
             message (seeds {:?}); {} differences, seeds {:?}",
            self.results.values().sum::<u64>(),
            results.join(", "),
            self.known,
            self.not_taken,
            self.messages,
            self.other_words,
            self.different.len(),
            self.different
        )
    }
}

/// Whether two results are those of a row in the table of differences: a pattern that fails where a key with an anchor is
/// nowhere in the resource, a list of lists is too short, or an existence anchor is on no list.
fn is_known_to_differ(
    case: &Case,
    (rule, resource): &(String, String),
    results: (&str, &str),
    their_words: &str,
) -> bool {
    if results != ("fail", "error") || !their_words.contains(" execution error: ") {
        return false;
    }
    let Some(resource) = case.resource(resource) else { return false };
    let name = rule.trim_start_matches("autogen-cronjob-").trim_start_matches("autogen-");
    let rules = case.policy.get_path(["spec", "rules"]).and_then(Value::as_list);
    let mut rules = rules.into_iter().flatten();
    let Some(check) = rules.find(|rule| rule.str_at(["name"]) == Some(name)) else { return false };
    let Some(check) = check.get("validate") else { return false };
    let is_whole = rule == name;
    let patterns = |check: &Value| -> Vec<Value> {
        let several = check.get("anyPattern").and_then(Value::as_list);
        check.get("pattern").into_iter().chain(several.into_iter().flatten()).cloned().collect()
    };
    let own = patterns(check).iter().any(|pattern| match is_whole {
        true => pattern_errors::cause(pattern, resource).is_some(),
        false => pattern_errors::cause_in_parts(pattern, resource).is_some(),
    });
    let loops = check.get("foreach").and_then(Value::as_list).into_iter().flatten();
    own || loops
        .flat_map(patterns)
        .any(|pattern| pattern_errors::cause_in_parts(&pattern, resource).is_some())
}

/// What both say of a case.
struct Outcome {
    ours: Verdicts,
    theirs: Verdicts,
    /// Kyverno does not take the policy.
    not_taken: bool,
}

impl Outcome {
    fn differs(&self, case: &Case) -> bool {
        let same = |key: &(String, String)| match (self.ours.get(key), self.theirs.get(key)) {
            (Some((ours, _)), Some((theirs, said))) => {
                ours == theirs || is_known_to_differ(case, key, (ours, theirs), said)
            }
            _ => false,
        };
        !self.not_taken && !self.ours.keys().chain(self.theirs.keys()).all(same)
    }
}

struct Both {
    kiln: PathBuf,
    kyverno: PathBuf,
    directory: tempfile::TempDir,
}

impl Both {
    fn apply(&self, cases: &[Case]) -> Result<Vec<Outcome>> {
        let write = |name: &str, objects: Vec<&Value>| -> Result<PathBuf> {
            let path = self.directory.path().join(name);
            std::fs::write(&path, emit_documents(objects))?;
            Ok(path)
        };
        let policies = write("policies.yaml", cases.iter().map(|case| &case.policy).collect())?;
        let resources =
            write("resources.yaml", cases.iter().flat_map(|case| &case.resources).collect())?;
        let said = |program: &Path| -> Result<String> {
            let mut command = Command::new(program);
            command.arg("apply").arg(&policies).arg("--resource").arg(&resources).args([
                "--policy-report",
                "--output-format",
                "json",
                "--continue-on-fail",
            ]);
            let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // No report at all is no result: no rule is for any of the resources.
            let is_silent =
                text.lines().all(|line| line.trim().is_empty() || line.starts_with("Warning: "));
            ensure!(
                is_silent || text.contains("\"results\"") || text.contains("Skipped"),
                "{command:?} prints no report: {text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(text)
        };
        let ours = reports(&said(&self.kiln)?)?;
        let text = said(&self.kyverno)?;
        let (theirs, skipped) = (reports(&text)?, not_taken(&text));
        let of = |case: &Case, results: &[Value]| -> Verdicts {
            let own = results.iter().filter(|one| one.str_at(["policy"]) == Some(&case.name()));
            own.filter_map(verdict).filter(|((_, resource), _)| case.holds(resource)).collect()
        };
        Ok(cases
            .iter()
            .map(|case| Outcome {
                ours: of(case, &ours),
                theirs: of(case, &theirs),
                not_taken: skipped.contains(&case.name()),
            })
            .collect())
    }
}

fn verdict(result: &Value) -> Option<((String, String), (String, String))> {
    let text = |key: &str| result.str_at([key]).unwrap_or_default().to_owned();
    let resource = result.get("resources")?.as_list()?.first()?;
    let part = |key: &str| resource.str_at([key]).unwrap_or_default();
    let resource = format!("{}/{}/{}", part("kind"), part("namespace"), part("name"));
    Some(((text("rule"), resource), (text("result"), text("message"))))
}

/// The results of all reports in what a program prints.
fn reports(text: &str) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    let mut rest = text;
    // A report begins a line, and ends where the braces do.
    while let Some(at) = rest.find("{\n").into_iter().chain(rest.find("{\"")).min() {
        let (report, left) = first_document(&rest[at..])?;
        let list = report.get("results").and_then(Value::as_list);
        results.extend(list.into_iter().flatten().cloned());
        rest = left;
    }
    Ok(results)
}

/// The JSON document at the beginning of a text, and what follows it.
fn first_document(text: &str) -> Result<(Value, &str)> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let found = documents.next().context("no document")?.context("unreadable report")?;
    let left = &text[documents.byte_offset()..];
    let document = json::parse(&found.to_string()).map_err(|problem| anyhow!("{problem}"))?;
    Ok((document, left))
}

/// The policies that Kyverno lists as skipped or invalid.
fn not_taken(text: &str) -> BTreeSet<String> {
    let numbered =
        |line: &&str| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
    let named = |line: &str| {
        let (_, rest) = line.split_once(". ")?;
        Some(rest.split(':').next()?.trim().to_owned())
    };
    text.lines().map(str::trim).filter(numbered).filter_map(named).collect()
}

/// The smallest case without one of whose parts both agree.
fn smallest(mut case: Case, both: &Both) -> Result<Case> {
    // Resources first: each of them is half of what a reader has to look at.
    'fewer: while case.resources.len() > 1 {
        for at in 0..case.resources.len() {
            let mut fewer = case.clone();
            fewer.resources.remove(at);
            if both.apply(std::slice::from_ref(&fewer))?.remove(0).differs(&fewer) {
                case = fewer;
                continue 'fewer;
            }
        }
        break;
    }
    'again: loop {
        let policies = smaller(&case.policy).into_iter();
        let policies = policies.map(|policy| Case { policy, ..case.clone() });
        let resources = case.resources.iter().enumerate().flat_map(|(at, resource)| {
            let case = &case;
            smaller(resource).into_iter().map(move |resource| {
                let mut changed = case.clone();
                changed.resources[at] = resource;
                changed
            })
        });
        let candidates: Vec<Case> = policies.chain(resources).filter(Case::is_whole).collect();
        for candidate in candidates {
            // A part that a policy or a resource cannot do without makes no report.
            let Ok(mut outcomes) = both.apply(std::slice::from_ref(&candidate)) else { continue };
            if outcomes.remove(0).differs(&candidate) {
                case = candidate;
                continue 'again;
            }
        }
        return Ok(case);
    }
}

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
fn print(case: &Case, both: &Both) -> Result<()> {
    let outcome = both.apply(std::slice::from_ref(case))?.remove(0);
    println!("== seed {}\n{}", case.number, emit(&case.policy));
    for resource in &case.resources {
        println!("---\n{}", emit(resource));
    }
    for (who, verdicts) in [("Kyverno", &outcome.theirs), ("Kiln", &outcome.ours)] {
        for ((rule, resource), (result, message)) in verdicts {
            println!("{who}: {rule} {resource}: {result}: {message}");
        }
    }
    println!();
    Ok(())
}
