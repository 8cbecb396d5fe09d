//! Random policies and resources, and smaller ones of each.

use std::fmt::Write as _;

use super::{Objects, objects};
use crate::compare::dice::Dice;

#[derive(Clone)]
pub(super) struct Case {
    pub(super) number: u64,
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
    pub(super) fn of(number: u64) -> Self {
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

    pub(super) fn name(&self) -> String {
        format!("case-{}-", self.number)
    }

    pub(super) fn generates(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.act, Act::Make { .. }))
    }

    /// Its objects among those of all cases.
    pub(super) fn own(&self, all: &Objects) -> Objects {
        let own = |name: &String| {
            name.split_once('/').is_some_and(|(_, name)| name.starts_with(&self.name()))
        };
        let mut found = self.given();
        found.extend(all.iter().filter(|(name, _)| own(name)).map(|(n, o)| (n.clone(), o.clone())));
        found
    }

    /// Its resource as it is given.
    pub(super) fn given(&self) -> Objects {
        objects(&self.resource())
    }

    pub(super) fn resource(&self) -> String {
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

    pub(super) fn policy(&self) -> String {
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
    pub(super) fn smaller(&self) -> Vec<Case> {
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
