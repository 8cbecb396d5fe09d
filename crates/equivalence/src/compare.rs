//! Both sides on the same inputs, until nothing new is seen.

use std::collections::BTreeMap;

use kiln_object::Kinds;
use kiln_rules::Operation;
use serde::Serialize;

use crate::PolicySide;
use crate::inputs::{Input, InputMaker};
use crate::minimise::minimised;
use crate::outcome::{Branches, PolicyOutcome, Word, run};

/// What is to be compared.
pub struct Comparison<'c> {
    pub old: &'c PolicySide,
    pub new: &'c PolicySide,
    pub kinds: &'c Kinds,
    pub seed: u64,
    /// At most so many inputs.
    pub inputs: usize,
    /// Inputs that are tried besides those that are made.
    pub given: Vec<Input>,
    /// Whether counter-examples are made small.
    pub small: bool,
}

/// In which way an input is treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    /// The new side lets something through that the old one refuses.
    Weaker,
    /// The new side refuses something that the old one lets through.
    Stricter,
    /// Both let it through, and leave another object.
    Object,
    /// Both let it through, and generate other objects.
    Generated,
    /// Both decide alike; reports have another word for it.
    Report,
}

/// Inputs of one kind that both sides treat differently.
#[derive(Clone, Debug)]
pub struct FoundDifference {
    pub kind: DifferenceKind,
    /// The smallest of them.
    pub input: Input,
    pub old: PolicyOutcome,
    pub new: PolicyOutcome,
    /// How many there were.
    pub count: usize,
}

/// What was found out.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// How many inputs were tried.
    pub inputs: usize,
    pub differences: Vec<FoundDifference>,
    /// Steps of both traces that gave both answers.
    pub covered: usize,
    /// Steps that only ever gave one answer.
    pub one_sided: Vec<String>,
    /// The inputs that were worth keeping: each showed something new.
    pub kept: Vec<Input>,
}

impl DifferenceKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DifferenceKind::Weaker => "weaker",
            DifferenceKind::Stricter => "stricter",
            DifferenceKind::Object => "object",
            DifferenceKind::Generated => "generated",
            DifferenceKind::Report => "report",
        }
    }
}

impl Evidence {
    /// Whether both sides decide every input alike and leave the same objects.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// So many inputs without anything new end the search.
const PATIENCE: usize = 120;

/// Compares both sides.
pub fn compare(comparison: &Comparison<'_>) -> Evidence {
    let mut maker =
        InputMaker::new([comparison.old, comparison.new], comparison.kinds, comparison.seed);
    let mut branches = Branches::new();
    let mut found: BTreeMap<(DifferenceKind, Word, Word, bool), FoundDifference> = BTreeMap::new();
    let mut kept = Vec::new();
    let (mut tried, mut quiet, mut seen) = (0, 0, 0);
    let judges = comparison.old.judges() || comparison.new.judges();
    let mut given = comparison.given.iter().cloned();
    while tried < comparison.inputs && (quiet < PATIENCE || tried < comparison.inputs / 3) {
        let Some(input) = given.next().or_else(|| maker.next()) else { break };
        tried += 1;
        let old = run(comparison.old, &input, comparison.kinds, Some(&mut branches));
        let new = run(comparison.new, &input, comparison.kinds, Some(&mut branches));
        let answers: usize = branches.values().flatten().filter(|answer| **answer).count();
        let is_news = answers > seen;
        seen = answers;
        quiet = if is_news { 0 } else { quiet + 1 };
        if is_news || kept.len() < 40 {
            kept.push(input.clone());
        }
        let Some(kind) = difference(&old, &new, judges) else { continue };
        let deletes = input.operation == Operation::Delete;
        found
            .entry((kind, old.word, new.word, deletes))
            .and_modify(|known| known.count += 1)
            .or_insert(FoundDifference { kind, input, old, new, count: 1 });
    }
    let differences = found
        .into_values()
        .map(|mut found| {
            if !comparison.small {
                return found;
            }
            let still = |input: &Input| {
                let old = run(comparison.old, input, comparison.kinds, None);
                let new = run(comparison.new, input, comparison.kinds, None);
                let same = (old.word, new.word) == (found.old.word, found.new.word);
                (difference(&old, &new, judges) == Some(found.kind) && same).then_some((old, new))
            };
            let (input, old, new) = minimised(&found.input, still).unwrap_or((
                found.input.clone(),
                found.old.clone(),
                found.new.clone(),
            ));
            found.input = input;
            found.old = old;
            found.new = new;
            found
        })
        .collect();
    let covered =
        branches.values().filter(|answers| answers[0] && (answers[1] || answers[2])).count();
    let one_sided = branches
        .iter()
        .filter(|(_, answers)| !(answers[0] && (answers[1] || answers[2])))
        .map(|(name, _)| name.clone())
        .collect();
    Evidence { inputs: tried, differences, covered, one_sided, kept }
}

/// In which way two outcomes differ. Words in reports count where some rule checks objects: elsewhere they only say what
/// became of the object.
pub fn difference(
    old: &PolicyOutcome,
    new: &PolicyOutcome,
    judges: bool,
) -> Option<DifferenceKind> {
    match (old.refuses(), new.refuses()) {
        (true, false) => return Some(DifferenceKind::Weaker),
        (false, true) => return Some(DifferenceKind::Stricter),
        (true, true) => return (old.word != new.word).then_some(DifferenceKind::Report),
        (false, false) => {}
    }
    if old.object != new.object {
        return Some(DifferenceKind::Object);
    }
    if old.made != new.made {
        return Some(DifferenceKind::Generated);
    }
    (judges && old.word != new.word).then_some(DifferenceKind::Report)
}

/// Runs one side on an input.
pub fn outcome(side: &PolicySide, input: &Input, kinds: &Kinds) -> PolicyOutcome {
    run(side, input, kinds, None)
}
