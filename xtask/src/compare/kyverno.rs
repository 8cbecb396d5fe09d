//! Random policies and resources through `kiln apply` and through Kyverno's own command line.
//!
//! Both are given many cases at once: each has a policy that matches its own resource by name, so that cases do not meet. What is
//! compared is every object afterwards, changed and made. Cases are of what both run: mutate and generate rules with data,
//! without clones and services, which Kyverno's command line does not have.
//!
//! Of a policy with a rule that fails, Kyverno's command line prints nothing; there, both must fail. Policies that it does not
//! take are counted and not compared, and what docs/reference/differences/kyverno.md says of its command line is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

use super::dice::Dice;
use crate::bench::kyverno;

/// So many cases are given to both at once.
const BATCH: u64 = 60;

/// The objects of a case by kind and name, as they are afterwards.
type Objects = BTreeMap<String, Value>;

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
pub(crate) fn run(binary: Option<PathBuf>, cases: u64, seed: u64, show: usize) -> Result<bool> {
    let both = Both {
        kiln: binary.map_or_else(super::kiln, Ok)?,
        kyverno: kyverno::program("cli/kubectl-kyverno")?,
        directory: tempfile::tempdir()?,
    };
    let mut different = Vec::new();
    let (mut changed, mut failed, mut not_taken) = (0, 0, 0);
    let end = seed + cases;
    let mut first = seed;
    while first < end {
        let batch: Vec<Case> = (first..end.min(first + BATCH)).map(Case::of).collect();
        let results = both.apply(&batch)?;
        for (case, (ours, theirs)) in batch.into_iter().zip(results) {
            changed += u64::from(theirs.objects != case.given());
            failed += u64::from(theirs.fails);
            not_taken += u64::from(theirs.not_taken);
            // Kyverno's command line does not say that a generate rule fails, and stops there.
            let in_silence = ours.fails && !theirs.fails && case.generates();
            if ours.differs(&theirs) && !in_silence {
                if different.len() < show {
                    let small = smallest(case.clone(), &both)?;
                    print(&small, &both)?;
                }
                different.push(case.number);
            }
        }
        first += BATCH;
        eprint!("\r{} cases, {} differences ", first.min(end) - seed, different.len());
    }
    eprintln!();
    println!(
        "{cases} cases from seed {seed}: {changed} changed or made something, {failed} fail, {not_taken} are not taken by \
         Kyverno; {} differences{}",
        different.len(),
        if different.is_empty() { String::new() } else { format!(", seeds {different:?}") }
    );
    Ok(different.is_empty())
}

struct Both {
    kiln: PathBuf,
    kyverno: PathBuf,
    directory: tempfile::TempDir,
}

/// What one of them makes of a case.
#[derive(Default)]
struct KyvernoOutcome {
    objects: Objects,
    /// A rule fails.
    fails: bool,
    /// The policy is not taken.
    not_taken: bool,
}

impl KyvernoOutcome {
    fn differs(&self, theirs: &KyvernoOutcome) -> bool {
        let is_same = theirs.not_taken || self.fails && theirs.fails;
        !is_same && self.objects != theirs.objects
    }
}

/// What one of them says of all cases.
struct Said {
    objects: Objects,
    failed: BTreeSet<String>,
    not_taken: BTreeSet<String>,
}

impl Said {
    /// What Kiln prints as JSON.
    fn ours(text: &str) -> Result<Said> {
        let report = json::parse(text)?;
        let list =
            |field: &str| report.get(field).and_then(Value::as_list).cloned().unwrap_or_default();
        let results = list("results");
        let failed = results.iter().filter(|one| one.str_at(["result"]) == Some("error"));
        let failed = failed.filter_map(|result| result.str_at(["policy"]).map(str::to_owned));
        Ok(Said {
            objects: list("objects").iter().map(|object| keyed(object.clone())).collect(),
            failed: failed.collect(),
            not_taken: BTreeSet::new(),
        })
    }

    /// What Kyverno prints.
    fn theirs(text: &str) -> Said {
        let policy =
            |line: &str| Some(line.split_once("policy ")?.1.split_once(" ->")?.0.to_owned());
        let failed = text.lines().filter(|line| line.starts_with("error while applying "));
        let failed: BTreeSet<String> = failed.filter_map(policy).collect();
        let skipped = text.split_once("Policies Skipped:").map_or("", |(_, skipped)| skipped);
        let skipped = skipped.split("----").next().unwrap_or_default().lines();
        let named = |line: &str| Some(line.split_once(". ")?.1.split_once(": ")?.0.to_owned());
        Said { objects: objects(text), failed, not_taken: skipped.filter_map(named).collect() }
    }

    fn of(&self, case: &Case) -> KyvernoOutcome {
        let policy = format!("{}policy", case.name());
        KyvernoOutcome {
            objects: case.own(&self.objects),
            fails: self.failed.contains(&policy),
            not_taken: self.not_taken.contains(&policy),
        }
    }
}

impl Both {
    /// What both make of cases: ours, then theirs.
    fn apply(&self, cases: &[Case]) -> Result<Vec<(KyvernoOutcome, KyvernoOutcome)>> {
        let write = |name: &str, texts: Vec<String>| -> Result<PathBuf> {
            let path = self.directory.path().join(name);
            std::fs::write(&path, texts.join("---\n"))?;
            Ok(path)
        };
        let policies = write("policies.yaml", cases.iter().map(Case::policy).collect())?;
        let resources = write("resources.yaml", cases.iter().map(Case::resource).collect())?;
        let said = |program: &Path, more: &[&str]| -> Result<String> {
            let mut command = Command::new(program);
            command.arg("apply").arg(&policies).arg("--resource").arg(&resources).args(more);
            let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(
                !text.trim().is_empty(),
                "{command:?} prints nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(text)
        };
        let ours = Said::ours(&said(&self.kiln, &["--format", "json"])?)?;
        let theirs = Said::theirs(&said(&self.kyverno, &["--continue-on-fail"])?);
        Ok(cases.iter().map(|case| (ours.of(case), theirs.of(case))).collect())
    }
}

/// The objects in what a program prints. Of one that is printed several times, the last counts.
fn objects(said: &str) -> Objects {
    let mut found = Objects::new();
    let mut block = String::new();
    for line in said.lines().chain([""]) {
        let begins = line.starts_with("apiVersion: ");
        let inside = !block.is_empty() && !line.is_empty() && !line.starts_with("---") && !begins;
        if inside {
            let _ = writeln!(block, "{line}");
            continue;
        }
        if let Ok(documents) = read_bytes("object", block.as_bytes(), ReadOptions::kubernetes()) {
            found.extend(documents.into_iter().map(Document::into_value).map(keyed));
        }
        block.clear();
        if begins {
            let _ = writeln!(block, "{line}");
        }
    }
    found
}

/// An object by its kind and name.
fn keyed(object: Value) -> (String, Value) {
    let kind = object.str_at(["kind"]).unwrap_or_default();
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    (format!("{kind}/{name}"), without_marks(object))
}

/// An object without what engines write down about who made it. Labels and annotations are text, which Kyverno's command
/// line leaves to the API server.
fn without_marks(mut object: Value) -> Value {
    let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map).cloned();
    for (key, _) in labels.iter().flat_map(kiln_value::Map::iter) {
        if key.starts_with("generate.kyverno.io/") || key.as_str() == "app.kubernetes.io/managed-by"
        {
            object.remove(["metadata", "labels", key.as_str()]);
        }
    }
    let empty = |object: &Value, field: &str| {
        let found = object.get_path(["metadata", field]).and_then(Value::as_map);
        found.is_some_and(kiln_value::Map::is_empty)
    };
    for field in ["labels", "annotations"] {
        let pairs = object.get_path(["metadata", field]).and_then(Value::as_map).cloned();
        for (key, value) in pairs.iter().flat_map(kiln_value::Map::iter) {
            if matches!(value, Value::Number(_) | Value::Bool(_)) {
                let _ = object.set(["metadata", field, key.as_str()], json::to_string(value));
            }
        }
        if empty(&object, field) {
            object.remove(["metadata", field]);
        }
    }
    object
}

// Cases.

#[derive(Clone)]
struct Case {
    number: u64,
    labels: Vec<(&'static str, &'static str)>,
    annotations: Vec<(&'static str, &'static str)>,
    containers: Vec<(&'static str, &'static str)>,
    rules: Vec<Rule>,
}

#[derive(Clone)]
struct Rule {
    /// Conditions, each a line.
    conditions: Vec<String>,
    any: bool,
    act: Act,
}

#[derive(Clone)]
enum Act {
    /// Lines of metadata, and of a Pod's spec.
    Merge { metadata: Vec<String>, spec: Vec<String> },
    /// Operations.
    Json(Vec<String>),
    /// A list, and the operations or the part of the spec for each element.
    Loop {
        list: &'static str,
        merge: Option<String>,
        operations: Vec<String>,
        guard: Option<String>,
    },
    /// Entries of a ConfigMap, for the resource or each element of a list.
    Make { list: Option<&'static str>, data: Vec<String> },
}

const KEYS: [&str; 3] = ["a", "b", "team"];
const WORDS: [&str; 6] = ["red", "green", "Blue", "1", "red,green", "x-1"];
const NAMES: [&str; 4] = ["web", "log", "web-2", "db"];
const IMAGES: [&str; 3] = ["nginx:1.14", "busybox", "example.com/app:v2"];

/// Expressions for values of texts.
fn variable(dice: &mut Dice) -> String {
    let key = dice.one(&KEYS);
    let label = format!("request.object.metadata.labels.{key} || 'none'");
    match dice.roll(11) {
        0 => "{{ request.object.metadata.name }}".into(),
        1 => format!("{{{{ {label} }}}}"),
        2 => format!("{{{{ to_upper({label}) }}}}"),
        3 => format!("{{{{ replace_all({label}, 'e', 'E') }}}}"),
        4 => format!("{{{{ split({label}, ',') | [0] }}}}"),
        5 => format!("x-{{{{ truncate({label}, `3`) }}}}"),
        6 => "{{ length(request.object.spec.containers) }}".into(),
        7 => "{{ join('-', request.object.spec.containers[].name) }}".into(),
        8 => format!("{{{{ request.object.metadata.labels.{key} }}}}"),
        9 => "{{ request.operation }}".into(),
        _ => dice.one(&WORDS).into(),
    }
}

fn condition(dice: &mut Dice) -> String {
    let key = dice.one(&KEYS);
    let (left, right) = match dice.roll(4) {
        0 => (
            format!("{{{{ request.object.metadata.labels.{key} || '' }}}}"),
            format!("'{}'", dice.one(&WORDS)),
        ),
        1 => (
            "{{ request.object.spec.containers[].image }}".into(),
            format!("['{}', 'nginx*']", dice.one(&IMAGES)),
        ),
        2 => ("{{ length(request.object.spec.containers) }}".into(), dice.roll(3).to_string()),
        _ => ("{{ request.object.metadata.name }}".into(), "'case-*'".into()),
    };
    let operator = match right.parse::<u64>() {
        Ok(_) => dice.one(&["Equals", "GreaterThan", "LessThanOrEquals", "NotEquals"]),
        Err(_) if right.starts_with('[') => dice.one(&["AnyIn", "AllIn", "AnyNotIn", "AllNotIn"]),
        Err(_) => dice.one(&["Equals", "NotEquals"]),
    };
    format!("{{key: \"{left}\", operator: {operator}, value: {right}}}")
}

fn operation(dice: &mut Dice, at: &str) -> String {
    let (key, text) = (dice.one(&KEYS), variable(dice));
    match dice.roll(6) {
        0 => format!("{{op: add, path: /metadata/labels/{key}, value: \"{text}\"}}"),
        1 => format!("{{op: replace, path: /metadata/labels/{key}, value: \"{text}\"}}"),
        2 => format!("{{op: remove, path: /metadata/annotations/{key}}}"),
        3 => format!("{{op: add, path: /spec/containers/{at}/imagePullPolicy, value: Always}}"),
        4 => format!("{{op: add, path: /metadata/annotations/{key}, value: \"{text}\"}}"),
        _ => format!("{{op: replace, path: /spec/containers/{at}/image, value: \"{text}\"}}"),
    }
}

fn some(dice: &mut Dice, most: usize, mut make: impl FnMut(&mut Dice) -> String) -> Vec<String> {
    (0..=dice.roll(most)).map(|_| make(dice)).collect()
}

fn rule(dice: &mut Dice) -> Rule {
    let mut conditions = match dice.roll(3) {
        0 => some(dice, 2, condition),
        _ => Vec::new(),
    };
    let metadata = |dice: &mut Dice| {
        let (field, key) = (dice.one(&["labels", "annotations"]), dice.one(&KEYS));
        let value = match dice.roll(6) {
            0 => "null".to_owned(),
            _ => format!("\"{}\"", variable(dice)),
        };
        match dice.roll(3) {
            0 => format!("{field}: {{+({key}): {value}}}"),
            1 => format!("{field}: {{({key}): \"*\", seen: {value}}}"),
            _ => format!("{field}: {{{key}: {value}}}"),
        }
    };
    let spec = |dice: &mut Dice| match dice.roll(4) {
        0 => "containers: [{(name): \"*\", imagePullPolicy: Always}]".to_owned(),
        1 => format!(
            "containers: [{{(image): \"nginx*\", env: [{{name: A, value: \"{}\"}}]}}]",
            variable(dice)
        ),
        2 => format!(
            "containers: [{{name: {}, image: \"{}\"}}]",
            dice.one(&NAMES),
            dice.one(&IMAGES)
        ),
        _ => "+(terminationGracePeriodSeconds): 7".to_owned(),
    };
    let act = match dice.roll(8) {
        0..3 => {
            let mut metadata = some(dice, 1, metadata);
            metadata.sort_by_key(|line| line.starts_with("labels"));
            metadata.dedup_by_key(|line| line.starts_with("labels"));
            let spec = if dice.roll(2) == 0 { vec![spec(dice)] } else { Vec::new() };
            Act::Merge { metadata, spec }
        }
        3 | 4 => Act::Json(some(dice, 2, |dice| operation(dice, "0"))),
        5 | 6 => {
            let merge = (dice.roll(2) == 0).then(|| {
                format!(
                    "containers: [{{name: \"{{{{ element.name }}}}\", workingDir: \"/{}\"}}]",
                    variable(dice)
                )
            });
            let operations = match merge {
                Some(_) => Vec::new(),
                None => some(dice, 1, |dice| operation(dice, "{{ elementIndex }}")),
            };
            let guard = (dice.roll(2) == 0).then(|| {
                let name = dice.one(&NAMES);
                format!("{{key: \"{{{{ element.name }}}}\", operator: NotEquals, value: {name}}}")
            });
            Act::Loop { list: "request.object.spec.containers", merge, operations, guard }
        }
        _ => {
            let list = (dice.roll(2) == 0).then_some("request.object.spec.containers");
            let data = some(dice, 2, variable).into_iter().enumerate();
            Act::Make { list, data: data.map(|(at, text)| format!("k{at}: \"{text}\"")).collect() }
        }
    };
    if matches!(act, Act::Make { list: Some(_), .. }) {
        // Kyverno's command line ignores them there.
        conditions.clear();
    }
    Rule { conditions, any: dice.roll(2) == 0, act }
}

impl Case {
    fn of(number: u64) -> Self {
        let mut dice = Dice::new(number);
        let pairs = |dice: &mut Dice| -> Vec<(&'static str, &'static str)> {
            let chosen: Vec<&'static str> =
                KEYS.into_iter().filter(|_| dice.roll(2) == 0).collect();
            chosen.into_iter().map(|key| (key, dice.one(&WORDS))).collect()
        };
        let (labels, annotations) = (pairs(&mut dice), pairs(&mut dice));
        let count = 1 + dice.roll(3);
        let containers = (0..count).map(|at| (NAMES[at], dice.one(&IMAGES))).collect();
        let rules = (0..=dice.roll(2)).map(|_| rule(&mut dice)).collect();
        Case { number, labels, annotations, containers, rules }
    }

    fn name(&self) -> String {
        format!("case-{}-", self.number)
    }

    fn generates(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.act, Act::Make { .. }))
    }

    /// Its objects among those of all cases.
    fn own(&self, all: &Objects) -> Objects {
        let own = |name: &String| {
            name.split_once('/').is_some_and(|(_, name)| name.starts_with(&self.name()))
        };
        let mut found = self.given();
        found.extend(all.iter().filter(|(name, _)| own(name)).map(|(n, o)| (n.clone(), o.clone())));
        found
    }

    /// Its resource as it is given.
    fn given(&self) -> Objects {
        objects(&self.resource())
    }

    fn resource(&self) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}pod\n  namespace: shop\n",
            self.name()
        );
        for (field, pairs) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !pairs.is_empty() {
                let _ = writeln!(text, "  {field}:");
            }
            for (key, value) in pairs {
                let _ = writeln!(text, "    {key}: \"{value}\"");
            }
        }
        text.push_str("spec:\n  containers:\n");
        for (name, image) in &self.containers {
            let _ = writeln!(text, "  - name: {name}\n    image: {image}");
        }
        text
    }

    fn policy(&self) -> String {
        let mut text = format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: {}policy\n  annotations:\n    \
             pod-policies.kyverno.io/autogen-controllers: none\nspec:\n  background: false\n  rules:\n",
            self.name()
        );
        for (at, rule) in self.rules.iter().enumerate() {
            let _ = writeln!(
                text,
                "  - name: rule-{at}\n    match: {{any: [{{resources: {{kinds: [Pod], names: ['{}pod']}}}}]}}",
                self.name()
            );
            if !rule.conditions.is_empty() {
                let _ = writeln!(
                    text,
                    "    preconditions:\n      {}:",
                    if rule.any { "any" } else { "all" }
                );
                for condition in &rule.conditions {
                    let _ = writeln!(text, "      - {condition}");
                }
            }
            rule.act.write(&mut text, &self.name(), at);
        }
        text
    }

    /// The case without one of its parts, for each of them.
    fn smaller(&self) -> Vec<Case> {
        let mut all = Vec::new();
        let mut without = |change: &dyn Fn(&mut Case)| {
            let mut case = self.clone();
            change(&mut case);
            all.push(case);
        };
        for at in 0..self.rules.len() {
            if self.rules.len() > 1 {
                without(&|case| drop(case.rules.remove(at)));
            }
            for condition in 0..self.rules[at].conditions.len() {
                without(&|case| drop(case.rules[at].conditions.remove(condition)));
            }
            for part in 0..self.rules[at].act.parts() {
                without(&|case| case.rules[at].act.remove(part));
            }
        }
        for at in 0..self.labels.len() {
            without(&|case| {
                case.labels.remove(at);
            });
        }
        for at in 0..self.annotations.len() {
            without(&|case| {
                case.annotations.remove(at);
            });
        }
        if self.containers.len() > 1 {
            without(&|case| {
                case.containers.pop();
            });
        }
        all
    }
}

impl Act {
    fn write(&self, text: &mut String, name: &str, rule: usize) {
        let list = |text: &mut String, indent: &str, lines: &[String]| {
            let _ = writeln!(text, "{indent}patchesJson6902: |-");
            for line in lines {
                let _ = writeln!(text, "{indent}  - {line}");
            }
        };
        match self {
            Act::Merge { metadata, spec } => {
                text.push_str("    mutate:\n      patchStrategicMerge:\n");
                for (field, lines) in [("metadata", metadata), ("spec", spec)] {
                    if !lines.is_empty() {
                        let _ = writeln!(text, "        {field}:");
                    }
                    for line in lines {
                        let _ = writeln!(text, "          {line}");
                    }
                }
            }
            Act::Json(operations) => {
                text.push_str("    mutate:\n");
                list(text, "      ", operations);
            }
            Act::Loop { list: elements, merge, operations, guard } => {
                let _ = writeln!(text, "    mutate:\n      foreach:\n      - list: {elements}");
                if let Some(guard) = guard {
                    let _ = writeln!(text, "        preconditions: {{all: [{guard}]}}");
                }
                match merge {
                    Some(merge) => {
                        let _ = writeln!(
                            text,
                            "        patchStrategicMerge:\n          spec:\n            {merge}"
                        );
                    }
                    None => list(text, "        ", operations),
                }
            }
            Act::Make { list, data } => {
                text.push_str("    generate:\n      synchronize: false\n");
                let (indent, index) = match list {
                    Some(list) => {
                        let _ = writeln!(text, "      foreach:\n      - list: {list}");
                        ("        ", "-{{ elementIndex }}")
                    }
                    None => ("      ", ""),
                };
                let _ = writeln!(
                    text,
                    "{indent}apiVersion: v1\n{indent}kind: ConfigMap\n{indent}name: \"{name}made-{rule}{index}\"\n{indent}namespace: shop\n{indent}data:\n{indent}  data:"
                );
                for line in data {
                    let _ = writeln!(text, "{indent}    {line}");
                }
            }
        }
    }

    fn parts(&self) -> usize {
        match self {
            Act::Merge { metadata, spec } if metadata.len() + spec.len() > 1 => {
                metadata.len() + spec.len()
            }
            Act::Json(lines) | Act::Make { data: lines, .. } if lines.len() > 1 => lines.len(),
            Act::Loop { operations, guard, .. } => {
                usize::from(guard.is_some())
                    + if operations.len() > 1 { operations.len() } else { 0 }
            }
            _ => 0,
        }
    }

    fn remove(&mut self, part: usize) {
        match self {
            Act::Merge { metadata, spec } => match part.checked_sub(metadata.len()) {
                Some(part) => drop(spec.remove(part)),
                None => drop(metadata.remove(part)),
            },
            Act::Json(lines) | Act::Make { data: lines, .. } => drop(lines.remove(part)),
            Act::Loop { operations, guard, .. } => match (guard.is_some(), part) {
                (true, 0) => *guard = None,
                (guarded, part) => drop(operations.remove(part - usize::from(guarded))),
            },
        }
    }
}

/// The smallest case without one of whose parts both agree.
fn smallest(mut case: Case, both: &Both) -> Result<Case> {
    'again: loop {
        for smaller in case.smaller() {
            let (ours, theirs) = both.apply(std::slice::from_ref(&smaller))?.remove(0);
            if ours.differs(&theirs) {
                case = smaller;
                continue 'again;
            }
        }
        return Ok(case);
    }
}

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
fn print(case: &Case, both: &Both) -> Result<()> {
    let (ours, theirs) = both.apply(std::slice::from_ref(case))?.remove(0);
    println!("== seed {}\n{}---\n{}", case.number, case.policy(), case.resource());
    println!("fails: Kyverno {}, Kiln {}", theirs.fails, ours.fails);
    let (ours, theirs) = (ours.objects, theirs.objects);
    for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
        let text = |objects: &Objects| objects.get(name).map(emit).unwrap_or_default();
        if let Some(difference) = kiln_testkit::difference(&text(&theirs), &text(&ours)) {
            println!(">> {name}: Kyverno, then Kiln:\n{difference}");
        }
    }
    println!();
    Ok(())
}
