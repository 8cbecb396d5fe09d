//! The verdict on each rule: both sides are run, and what was declared is held against what was found.

use kiln_equivalence::{
    Comparison, DifferenceKind, Evidence, FoundDifference, Mutants, PolicySide, Word, compare,
    mutants,
};
use kiln_object::Kinds;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};
use serde::Serialize;

use crate::verdict::{ConvertedRule, CoveredRequests, Difference};
use crate::{Conversion, ConvertedDocument};

/// How conversions are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// What chance begins with.
    pub seed: u64,
    /// At most so many inputs for each new policy.
    pub inputs: usize,
    /// Whether faults are seeded into the new policy, to see whether the inputs notice them.
    pub mutants: bool,
    /// Whether counter-examples are made small.
    pub small: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { seed: 1, inputs: 400, mutants: true, small: true }
    }
}

/// Whether the conversion of a rule means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    #[serde(rename = "equal")]
    Equal,
    #[serde(rename = "equal except")]
    EqualExcept,
    #[serde(rename = "not convertible")]
    NotConvertible,
}

impl Verdict {
    /// The words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::EqualExcept => "equal except",
            Verdict::NotConvertible => "not convertible",
        }
    }
}

/// What is known of the conversion of a rule.
#[derive(Clone, Debug)]
pub struct RuleVerdict {
    pub rule: ConvertedRule,
    pub verdict: Verdict,
    /// An example for each difference that the rule declares, if one was found.
    pub examples: Vec<Option<FoundDifference>>,
    /// What was found and not declared.
    pub found: Vec<FoundDifference>,
    /// What the verdict rests on; none if nothing was run.
    pub evidence: Option<EvidenceSummary>,
}

impl RuleVerdict {
    /// Whether some request is decided otherwise, or leaves another object, and that was not declared.
    pub fn is_surprising(&self) -> bool {
        self.found.iter().any(|found| found.kind != DifferenceKind::Report)
    }
}

/// How much was tried.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EvidenceSummary {
    pub inputs: usize,
    /// Branches of both sides that were seen both ways.
    pub branches: usize,
    /// Branches that were only ever seen one way.
    #[serde(rename = "unreached")]
    pub one_sided: Vec<String>,
    #[serde(rename = "mutants")]
    pub mutants_made: usize,
    #[serde(rename = "mutantsNoticed")]
    pub mutants_noticed: usize,
    #[serde(rename = "mutantsMissed")]
    pub mutants_missed: Vec<String>,
}

/// Runs both sides of a conversion, and says of each rule whether they mean the same.
pub fn verdicts(
    document: &Document,
    conversion: &Conversion,
    kinds: &Kinds,
    options: &CheckOptions,
) -> Vec<RuleVerdict> {
    let checked: Vec<Option<(Evidence, Mutants)>> = (0..conversion.documents.len())
        .map(|number| check(document, conversion, number, kinds, options))
        .collect();
    conversion
        .rules
        .iter()
        .map(|rule| {
            if rule.obstacle.is_some() {
                let verdict = Verdict::NotConvertible;
                return RuleVerdict {
                    rule: rule.clone(),
                    verdict,
                    examples: Vec::new(),
                    found: Vec::new(),
                    evidence: None,
                };
            }
            let parts = rule.documents.iter().filter_map(|number| checked.get(*number)?.as_ref());
            let mut rule = rule.clone();
            let mut examples = vec![None; rule.differences.len()];
            let mut found = Vec::new();
            let mut summary = EvidenceSummary::default();
            for (evidence, mutants) in parts {
                summary.inputs += evidence.inputs;
                summary.branches += evidence.covered;
                summary.one_sided.extend(evidence.one_sided.iter().cloned());
                summary.mutants_made += mutants.made;
                summary.mutants_noticed += mutants.noticed;
                summary.mutants_missed.extend(mutants.missed.iter().cloned());
                for difference in &evidence.differences {
                    let holds = |known: &Difference| known.covers.hold(difference);
                    let mut known = rule.differences.iter().position(holds);
                    if known.is_none()
                        && let Some(at) = rule.possible.iter().position(holds)
                    {
                        known = Some(rule.differences.len());
                        rule.differences.push(rule.possible.remove(at));
                        examples.push(None);
                    }
                    match (known, failing(difference)) {
                        (Some(known), _) => {
                            examples[known].get_or_insert_with(|| difference.clone());
                        }
                        (None, Some(named)) => {
                            rule.differences.push(named);
                            examples.push(Some(difference.clone()));
                        }
                        (None, None) => found.push(difference.clone()),
                    }
                }
            }
            let is_equal = found.is_empty() && rule.differences.is_empty();
            let verdict = if is_equal { Verdict::Equal } else { Verdict::EqualExcept };
            RuleVerdict { rule, verdict, examples, found, evidence: Some(summary) }
        })
        .collect()
}

fn check(
    document: &Document,
    conversion: &Conversion,
    number: usize,
    kinds: &Kinds,
    options: &CheckOptions,
) -> Option<(Evidence, Mutants)> {
    let converted = conversion.documents.get(number)?;
    let compiled = kiln_dialects::compile([document], kinds);
    let policy = compiled.policies.first()?;
    let is_native = |one: &ConvertedDocument| {
        one.value
            .str_at(["apiVersion"])
            .is_some_and(|version| version.starts_with("admissionregistration"))
    };
    let names: Vec<&str> = conversion
        .rules
        .iter()
        .filter(|rule| {
            rule.documents.contains(&number) || (is_native(converted) && !rule.documents.is_empty())
        })
        .map(|rule| rule.rule.as_str())
        .collect();
    let has_rules = document.value().get_path(["spec", "rules"]).is_some();
    let old = match has_rules {
        true => PolicySide::of_rules(policy, &names, document.value().clone()),
        false => PolicySide::new(compiled.policies.clone(), [], vec![document.value().clone()]),
    };
    let together: Vec<&ConvertedDocument> = match is_native(converted) {
        // A binding says nothing without its policy, and variants belong to it.
        true if number > 0 => return None,
        true => conversion.documents.iter().collect(),
        false => vec![converted],
    };
    let new = side_of(&together, kinds)?;
    let comparison = Comparison {
        old: &old,
        new: &new,
        kinds,
        seed: options.seed,
        inputs: options.inputs,
        given: Vec::new(),
        small: options.small,
    };
    let evidence = compare(&comparison);
    let seeded = match options.mutants {
        true => mutants(&converted.value, &evidence.kept, kinds),
        false => Mutants::default(),
    };
    Some((evidence, seeded))
}

/// Converted policies, compiled.
fn side_of(converted: &[&ConvertedDocument], kinds: &Kinds) -> Option<PolicySide> {
    let values: Vec<Value> = converted.iter().map(|one| one.value.clone()).collect();
    let read: Vec<Document> = values
        .iter()
        .map(|value| Document::from_value("converted", value.clone(), ReadOptions::kubernetes()))
        .collect();
    let compiled = kiln_dialects::compile(&read, kinds);
    if compiled.has_errors() {
        return None;
    }
    Some(PolicySide::new(compiled.policies, [], values))
}

/// A request that is refused only because a rule cannot be evaluated for it. What the rule fails at, an expression often
/// does without: `&&` and `||` of CEL need one side only, and variables that decide nothing are not read.
fn failing(found: &FoundDifference) -> Option<Difference> {
    if found.kind != DifferenceKind::Weaker || found.old.word != Word::Error {
        return None;
    }
    let message = found.old.messages.first()?;
    let cause = message.lines().next().unwrap_or_default();
    Some(Difference::weaker(
        format!("requests for which the rule itself fails ({cause})"),
        "the rule refuses them if it enforces; the new policy decides without what the rule misses",
        CoveredRequests::OldError,
    ))
}
