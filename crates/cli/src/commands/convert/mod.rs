//! `kiln convert`

mod cluster_plan;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kiln_convert::{
    CheckOptions, Conversion, ConvertedDocument, RuleVerdict, Target, Verdict, convert, verdicts,
};
use kiln_diagnostic::Diagnostic;
use kiln_dialects::{SHADOW_OF, SHADOW_OF_RULES, is_exception, is_policy};
use kiln_equivalence::{DifferenceKind, FoundDifference};
use kiln_object::Kinds;
use kiln_yaml::Document;
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::cluster::connection::{Connection, stored_policies};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::policy_files::{kinds_of, read_all, require_policy};
use crate::ui::{Ui, counted};

/// Convert policies to CEL policies, with evidence
///
/// Reads ClusterPolicies, Policies and ModRules, and prints ValidatingPolicies, MutatingPolicies and GeneratingPolicies
/// that mean the same; with --to native, Kubernetes' own admission policies with their bindings; with --to kyverno, CEL
/// policies as ClusterPolicies. Says of each rule on standard error whether it is equal, equal except for named inputs, or
/// not convertible and why. Both sides are run on generated requests unless --no-check is given. Exits with code 1 if a
/// rule is not convertible, or if a request is decided otherwise that the conversion does not name; with --strict, if a
/// rule is not equal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, directories (every .yaml, .yml and .json file below), or - for standard input
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster", value_name = "FILES")]
    files: Vec<String>,

    /// Convert the policies and exceptions that a cluster has, and say in which order to replace them; changes nothing
    #[arg(long)]
    cluster: bool,

    /// Language of the new policies
    #[arg(long, value_enum, default_value_t = To::Cel)]
    to: To,

    /// Directory for the new policies, one file each; standard output if left out
    #[arg(short, long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,

    /// Overwrite files that exist
    #[arg(long, requires = "output")]
    force: bool,

    /// Annotate the new policies as shadows: a cluster evaluates them beside the old ones, and nothing comes of it
    #[arg(long)]
    shadow: bool,

    /// Do not run both sides to compare them
    #[arg(long)]
    no_check: bool,

    /// Number of generated requests for each new policy, at most
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    inputs: usize,

    /// Seed of the generated requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Exit with code 1 unless every rule is equal
    #[arg(long)]
    strict: bool,

    /// Write what the verdicts rest on to this file: hashes, seed, coverage, seeded faults, differences
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_check", "verify"])]
    certificate: Option<PathBuf>,

    /// Convert and check again, and compare with this certificate; prints no policies
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_check", "output"])]
    verify: Option<PathBuf>,

    #[command(flatten)]
    connection: Connection,
}

/// The languages that policies are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// ValidatingPolicy, MutatingPolicy and GeneratingPolicy
    Cel,
    /// ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with bindings
    Native,
    /// ClusterPolicy
    Kyverno,
}

impl From<To> for Target {
    fn from(to: To) -> Self {
        match to {
            To::Cel => Target::Cel,
            To::Native => Target::Native,
            To::Kyverno => Target::Kyverno,
        }
    }
}

/// One policy, with what became of it.
struct Converted {
    source: Document,
    conversion: Conversion,
    verdicts: Vec<RuleVerdict>,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("convert")?;
    if args.shadow && args.to != To::Cel {
        let problem = Diagnostic::error("only policies in CEL can be shadows");
        return Err(problem.hint("leave out --to, or --shadow").into());
    }
    let (documents, kinds) = match args.cluster {
        true => {
            let reader = args.connection.reader()?;
            (convertible(stored_policies(&reader)?, args.to), reader.kinds().clone())
        }
        false => {
            let documents = read_all(&args.files, global)?;
            require_policy(&documents, "these files")?;
            let kinds = kinds_of(&documents)?;
            (documents, kinds)
        }
    };
    let (exceptions, documents): (Vec<Document>, Vec<Document>) =
        documents.into_iter().partition(is_exception);
    let policies: Vec<Document> = documents.into_iter().filter(is_policy).collect();
    if policies.is_empty() {
        ui.status("the cluster has no policy to convert");
        return Ok(CommandOutcome::Done);
    }
    let mut all = Vec::new();
    let mut problems = Vec::new();
    let mut seed = args.seed;
    let mut inputs = args.inputs;
    if let Some(certificate) = &args.verify {
        (seed, inputs) = certificate_options(certificate, global)?;
    }
    let options = CheckOptions {
        seed,
        inputs,
        mutants: args.certificate.is_some() || args.verify.is_some(),
        small: true,
    };
    for source in policies {
        match convert(&source, args.to.into(), &kinds) {
            Ok(conversion) => {
                all.push(checked(source, conversion, &kinds, &options, args.no_check));
            }
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    if let Some(path) = &args.verify {
        return verify(ui, path, global, &all, &options);
    }
    let conversions: Vec<&Conversion> = all.iter().map(|one| &one.conversion).collect();
    let (mut excepted, mut unconverted) = (Vec::new(), Vec::new());
    for exception in &exceptions {
        match kiln_convert::convert_exception(exception, &conversions) {
            Ok(converted) => excepted.push(converted),
            Err(obstacle) => unconverted.push(
                Diagnostic::warning(format!(
                    "the exception is not converted: {}",
                    obstacle.construct
                ))
                .at(exception.locate(&obstacle.path))
                .hint(obstacle.advice),
            ),
        }
    }
    let certified = args.certificate.as_ref().map(|path| (path, certificate(&all, &options)));
    if args.shadow {
        all.iter_mut().for_each(mark_as_shadows);
    }
    write_policies(ui, args, &all, &excepted)?;
    unconverted.iter().for_each(|problem| ui.problem(problem));
    if let Some((path, certified)) = certified {
        input::write_file(path, &format!("{certified:#}\n"))?;
    }
    show_verdicts(ui, &all);
    if args.cluster {
        cluster_plan::show(ui, &all, &excepted);
    }
    let is_bad = |found: &RuleVerdict| {
        found.verdict == Verdict::NotConvertible
            || found.is_surprising()
            || (args.strict && found.verdict != Verdict::Equal)
    };
    let is_negative =
        !unconverted.is_empty() || all.iter().flat_map(|one| &one.verdicts).any(is_bad);
    Ok(if is_negative { CommandOutcome::Negative } else { CommandOutcome::Done })
}

/// Of what a cluster has: the policies of the languages that are converted, and their exceptions.
fn convertible(documents: Vec<Document>, to: To) -> Vec<Document> {
    let is_old = |document: &Document| {
        matches!(document.value().str_at(["kind"]), Some("ClusterPolicy" | "Policy" | "ModRule"))
    };
    let is_wanted = |document: &Document| match to {
        To::Cel | To::Native => is_old(document) || is_exception(document),
        To::Kyverno => !is_old(document) && is_policy(document),
    };
    documents.into_iter().filter(is_wanted).collect()
}

fn checked(
    source: Document,
    conversion: Conversion,
    kinds: &Kinds,
    options: &CheckOptions,
    unchecked: bool,
) -> Converted {
    let verdicts = match unchecked {
        true => kiln_convert::unchecked_verdicts(&conversion),
        false => verdicts(&source, &conversion, kinds, options),
    };
    Converted { source, conversion, verdicts }
}

/// Annotates policies so that a cluster compares them with the rules that they came of.
fn mark_as_shadows(one: &mut Converted) {
    let source = one.source.value();
    let text = |path: &[&str]| source.str_at(path.iter().copied()).unwrap_or_default().to_owned();
    let (kind, name) = (text(&["kind"]), text(&["metadata", "name"]));
    let of = match text(&["metadata", "namespace"]) {
        namespace if namespace.is_empty() => format!("{kind}/{name}"),
        namespace => format!("{kind}/{namespace}/{name}"),
    };
    let Conversion { documents, rules } = &mut one.conversion;
    for (number, document) in documents.iter_mut().enumerate() {
        let own: Vec<&str> = rules
            .iter()
            .filter(|rule| rule.documents.contains(&number))
            .map(|rule| rule.rule.as_str())
            .collect();
        let some = (own.len() < rules.len()).then(|| own.join(", "));
        let annotations = [(SHADOW_OF, Some(of.clone())), (SHADOW_OF_RULES, some)];
        for (key, value) in annotations {
            if let Some(value) = value {
                let _ = document.value.set(["metadata", "annotations", key], value);
            }
        }
    }
}

/// Prints the policies, or writes them to files that are not there yet.
fn write_policies(
    ui: &Ui,
    args: &Args,
    all: &[Converted],
    exceptions: &[ConvertedDocument],
) -> Result<(), CommandFailure> {
    let documents = || all.iter().flat_map(|one| &one.conversion.documents).chain(exceptions);
    if let Some(directory) = &args.output {
        let path =
            |document: &ConvertedDocument| directory.join(format!("{}.yaml", document.file_stem()));
        let taken: Vec<Diagnostic> = documents()
            .map(path)
            .filter(|path| !args.force && path.exists())
            .map(|path| {
                Diagnostic::error(format!("{} exists", path.display()))
                    .hint("give --force to overwrite it")
            })
            .collect();
        if !taken.is_empty() {
            return Err(taken.into());
        }
        std::fs::create_dir_all(directory)
            .map_err(|error| input::cannot("create", &directory.display().to_string(), &error))?;
        for document in documents() {
            input::write_file(&path(document), &document.text())?;
        }
        return Ok(());
    }
    if ui.format() != OutputFormat::Text {
        let listed: Vec<_> = all.iter().map(as_json).collect();
        let exceptions: Vec<_> =
            exceptions.iter().map(|exception| exception.value.clone()).collect();
        ui.document(&json!({ "policies": listed, "exceptions": exceptions }))?;
        return Ok(());
    }
    let mut out = ui.data();
    for (number, document) in documents().enumerate() {
        if number > 0 {
            out.write_all(b"---\n")?;
        }
        out.write_all(document.text().as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn as_json(one: &Converted) -> serde_json::Value {
    let documents: Vec<_> =
        one.conversion.documents.iter().map(|document| document.value.clone()).collect();
    json!({
        "policy": one.source.value().str_at(["metadata", "name"]),
        "documents": documents,
        "rules": one.verdicts.iter().map(rule_json).collect::<Vec<_>>(),
    })
}

fn rule_json(found: &RuleVerdict) -> serde_json::Value {
    json!({
        "rule": found.rule.rule,
        "form": found.rule.form,
        "verdict": found.verdict,
        "obstacle": found.rule.obstacle.as_ref().map(|obstacle| json!({
            "construct": obstacle.construct,
            "path": obstacle.path.to_string(),
            "advice": obstacle.advice,
        })),
        "declared": found.rule.differences.iter().zip(&found.examples).map(|(difference, example)| json!({
            "inputs": difference.inputs,
            "effect": difference.effect,
            "weaker": difference.weaker,
            "example": example.as_ref().map(found_json),
        })).collect::<Vec<_>>(),
        "found": found.found.iter().map(found_json).collect::<Vec<_>>(),
        "evidence": found.evidence,
    })
}

pub(super) fn found_json(found: &FoundDifference) -> serde_json::Value {
    json!({
        "kind": found.kind,
        "count": found.count,
        "operation": found.input.operation.as_str(),
        "object": found.input.object,
        "oldObject": found.input.old_object,
        "user": found.input.user.as_ref().map(|user| user.username.as_str()),
        "old": found.old.word,
        "new": found.new.word,
    })
}

/// Says of each rule on standard error what became of it.
fn show_verdicts(ui: &Ui, all: &[Converted]) {
    if ui.format() != OutputFormat::Text {
        return;
    }
    let mut counts = [0usize; 3];
    for one in all {
        for found in &one.verdicts {
            counts[found.verdict as usize] += 1;
            ui.status(in_words(one, found).trim_end());
        }
    }
    let [equal, except, not] = counts;
    let total = counted(equal + except + not, "rule", "rules");
    ui.status(&format!("{total}: {equal} equal, {except} equal except, {not} not convertible"));
}

fn in_words(one: &Converted, found: &RuleVerdict) -> String {
    let rule = &found.rule;
    let name = match rule.rule == rule.policy || rule.rule.is_empty() {
        true => rule.policy.clone(),
        false => format!("{}/{}", rule.policy, rule.rule),
    };
    let mut text = format!("{name} ({}): {}", rule.form, found.verdict.as_str());
    if let Some(obstacle) = &rule.obstacle {
        let place = one.source.locate(&obstacle.path);
        let _ = write!(text, ": {} ({place})\n  {}", obstacle.construct, obstacle.advice);
        return text;
    }
    match &found.evidence {
        Some(evidence) => {
            let inputs = counted(evidence.inputs, "request", "requests");
            let branches = counted(evidence.branches, "branch", "branches");
            let _ = write!(text, " ({inputs}, {branches} both ways)");
        }
        None => text.push_str(" (not checked)"),
    }
    for (number, difference) in rule.differences.iter().enumerate() {
        let _ = write!(text, "\n  {}: {}", difference.inputs, difference.effect);
        if let Some(Some(example)) = found.examples.get(number) {
            let (operation, object) = (example.input.operation.as_str(), &example.input.object);
            let object = kiln_value::json::to_string(object);
            let _ = write!(text, "\n    for example {operation} {object}");
        }
    }
    for difference in &found.found {
        let _ = write!(text, "\n{}", found_in_words(difference));
    }
    text
}

/// A counter-example: what both sides make of which request.
pub(super) fn found_in_words(found: &FoundDifference) -> String {
    let what = match found.kind {
        DifferenceKind::Weaker => "the new policy lets through what the old one refuses",
        DifferenceKind::Stricter => "the new policy refuses what the old one lets through",
        DifferenceKind::Object => "the object comes out otherwise",
        DifferenceKind::Generated => "other objects are generated",
        DifferenceKind::Report => "only reports differ",
    };
    let times = counted(found.count, "request", "requests");
    let mut text = format!("  {what} ({times}): old {}, new {}\n", found.old.word, found.new.word);
    let _ = writeln!(text, "  - {} of", found.input.operation.as_str());
    let indented = |value: &kiln_value::Value| -> String {
        kiln_yaml::emit(value).lines().map(|line| format!("      {line}\n")).collect()
    };
    text.push_str(&indented(&found.input.object));
    if let Some(old) = found.input.old_object.as_ref().filter(|old| **old != found.input.object) {
        let _ = writeln!(text, "    which was");
        text.push_str(&indented(old));
    }
    if found.kind == DifferenceKind::Object {
        let sides = [("old", &found.old.object), ("new", &found.new.object)];
        for (word, object) in sides {
            if let Some(object) = object {
                let _ = writeln!(text, "    {word}:");
                text.push_str(&indented(object));
            }
        }
    }
    if found.kind == DifferenceKind::Generated {
        for (word, made) in [("old", &found.old.made), ("new", &found.new.made)] {
            for object in made.values() {
                let _ = writeln!(text, "    {word} generates:");
                text.push_str(&indented(object));
            }
        }
    }
    if let Some(message) = found.old.messages.first() {
        let _ = writeln!(text, "    old says: {}", message.lines().next().unwrap_or_default());
    }
    if let Some(message) = found.new.messages.first() {
        let _ = writeln!(text, "    new says: {}", message.lines().next().unwrap_or_default());
    }
    text.trim_end().to_owned()
}

/// What verdicts rest on, for a file.
fn certificate(all: &[Converted], options: &CheckOptions) -> serde_json::Value {
    let hash = |text: &str| kiln_convert::hash(text);
    let policies: Vec<_> = all
        .iter()
        .map(|one| {
            let new: Vec<_> = one
                .conversion
                .documents
                .iter()
                .map(|document| json!({"name": document.file_stem(), "sha256": hash(&kiln_value::json::to_canonical_string(&document.value))}))
                .collect();
            json!({
                "policy": one.source.value().str_at(["metadata", "name"]),
                "old": hash(&kiln_value::json::to_canonical_string(one.source.value())),
                "new": new,
                "rules": one.verdicts.iter().map(rule_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "certificate": "kiln convert",
        "engine": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "inputs": options.inputs,
        "policies": policies,
    })
}

fn read_certificate(path: &Path, global: &Global) -> Result<serde_json::Value, Diagnostic> {
    let shown = path.display().to_string();
    let read = input::read(&shown, global.max_input_size)?;
    serde_json::from_slice(&read.bytes).map_err(|error| {
        Diagnostic::error(format!("{shown} is not a certificate: {error}"))
            .hint("give a file that kiln convert --certificate wrote")
    })
}

/// The seed and the number of requests of a certificate.
fn certificate_options(path: &Path, global: &Global) -> Result<(u64, usize), Diagnostic> {
    let found = read_certificate(path, global)?;
    let number = |field: &str| found.get(field).and_then(serde_json::Value::as_u64);
    match (number("seed"), number("inputs")) {
        (Some(seed), Some(inputs)) => Ok((seed, usize::try_from(inputs).unwrap_or(usize::MAX))),
        _ => Err(Diagnostic::error(format!("{} has no seed and inputs", path.display()))
            .hint("give a file that kiln convert --certificate wrote")),
    }
}

/// Holds what was found now against a certificate.
fn verify(
    ui: &Ui,
    path: &Path,
    global: &Global,
    all: &[Converted],
    options: &CheckOptions,
) -> CommandResult {
    let wanted = read_certificate(path, global)?;
    // Through text, as the certificate went: numbers and orders are then alike.
    let found = certificate(all, options).to_string();
    let found: serde_json::Value = serde_json::from_str(&found)
        .map_err(|error| Diagnostic::error(format!("cannot write the certificate: {error}")))?;
    // Another version that finds the same is as good.
    let mut now = found.clone();
    if wanted.get("engine") != found.get("engine") {
        let (was, is) = (&wanted["engine"], &found["engine"]);
        ui.problem(&Diagnostic::warning(format!("the engine was {was} and is {is}")));
        now["engine"] = wanted["engine"].clone();
    }
    if wanted == now {
        let policies = counted(all.len(), "policy", "policies");
        ui.status(&format!("{} holds: {policies}", path.display()));
        return Ok(CommandOutcome::Done);
    }
    let fields = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
    };
    for field in fields(&wanted).union(&fields(&now)).filter(|field| *field != "policies") {
        if wanted.get(field) != now.get(field) {
            ui.problem(&Diagnostic::error(format!(
                "the certificate was changed: {field} is not what kiln convert writes"
            )));
        }
    }
    let empty = Vec::new();
    let known = wanted.get("policies").and_then(serde_json::Value::as_array).unwrap_or(&empty);
    for policy in found["policies"].as_array().unwrap_or(&empty) {
        let same = known.iter().find(|known| known["policy"] == policy["policy"]);
        match same {
            Some(same) if same == policy => {}
            Some(same) => {
                let parts =
                    ["old", "new", "rules"].into_iter().filter(|part| same[part] != policy[part]);
                let parts: Vec<&str> = parts.collect();
                ui.problem(&Diagnostic::error(format!(
                    "policy {} is not what was certified: {}",
                    policy["policy"],
                    parts.join(", ")
                )));
            }
            None => ui.problem(&Diagnostic::error(format!(
                "policy {} is not in the certificate",
                policy["policy"]
            ))),
        }
    }
    let given = found["policies"].as_array().unwrap_or(&empty);
    for known in
        known.iter().filter(|known| !given.iter().any(|one| one["policy"] == known["policy"]))
    {
        ui.problem(&Diagnostic::error(format!(
            "policy {} is in the certificate and not among the files",
            known["policy"]
        )));
    }
    Ok(CommandOutcome::Negative)
}
