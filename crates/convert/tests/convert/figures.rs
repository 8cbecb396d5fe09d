//! The figures of conversions in their long form, printed: `cargo xtask compare convert`.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_convert::{CheckOptions, Target, Verdict, convert, verdicts};
use kiln_equivalence::{Comparison, DifferenceKind, Evidence, Input, PolicySide, compare};
use kiln_object::Kinds;
use kiln_rules::Operation;
use kiln_testkit::corpus;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};

use crate::kyverno::{Kyverno, KyvernoVerdict, ours, reads_more};
use crate::library::policies;
use crate::{suites, twins};

#[test]
#[ignore = "takes minutes: cargo xtask compare convert"]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn figures() {
    let Some(root) = corpus("policy-library") else { return };
    let kinds = Kinds::builtin();
    println!("{}", of_rules(&root, &kinds));
    let suites = suites::tally(&root, &kinds);
    println!("suites: {} of {} resources are treated alike", suites.alike, suites.tried);
    println!("{}", suites.report.trim_end());
    println!("{}", of_twins(&root, &kinds));
    match Kyverno::find() {
        Some(kyverno) => println!("{}", of_kyverno(&kyverno, &root, &kinds)),
        None => println!("Kyverno: not asked (KILN_KYVERNO_CLI names no program)"),
    }
}

/// Rules by verdict, what their requests cover, and the seeded faults that these notice.
fn of_rules(root: &Path, kinds: &Kinds) -> String {
    let options = CheckOptions { small: false, ..CheckOptions::default() };
    let mut by_verdict: BTreeMap<Verdict, usize> = BTreeMap::new();
    let (mut rules, mut surprising, mut inputs) = (0, 0, 0);
    let (mut both_ways, mut one_way, mut made, mut noticed) = (0, 0, 0, 0);
    let mut report = String::new();
    for policy in policies(root) {
        let Ok(conversion) = convert(&policy.document, Target::Cel, kinds) else { continue };
        for found in verdicts(&policy.document, &conversion, kinds, &options) {
            rules += 1;
            *by_verdict.entry(found.verdict).or_default() += 1;
            surprising += usize::from(found.is_surprising());
            if found.is_surprising() {
                report += &format!("  not named: {} {}\n", policy.file, found.rule.rule);
            }
            let Some(evidence) = found.evidence else { continue };
            inputs += evidence.inputs;
            both_ways += evidence.branches;
            one_way += evidence.one_sided.len();
            made += evidence.mutants_made;
            noticed += evidence.mutants_noticed;
            for missed in evidence.mutants_missed.iter().take(2) {
                report +=
                    &format!("  not noticed: {} {}: {missed}\n", policy.file, found.rule.rule);
            }
        }
    }
    let count = |verdict: Verdict| by_verdict.get(&verdict).copied().unwrap_or_default();
    let share = |part: usize, of: usize| {
        let of_thousand = part * 1000 / of.max(1);
        format!("{}.{} %", of_thousand / 10, of_thousand % 10)
    };
    let converted = count(Verdict::Equal) + count(Verdict::EqualExcept);
    format!(
        "{report}{rules} rules: {} equal, {} equal except, {} not convertible ({} converted); {surprising} with a request \
         that is not named\n{inputs} requests; {both_ways} of {} branches seen both ways ({})\n{noticed} of {made} seeded \
         faults noticed ({})",
        count(Verdict::Equal),
        count(Verdict::EqualExcept),
        count(Verdict::NotConvertible),
        share(converted, rules),
        both_ways + one_way,
        share(both_ways, both_ways + one_way),
        share(noticed, made),
    )
}

/// Every pair of hand-made twins: equal, or the first counter-example.
fn of_twins(root: &Path, kinds: &Kinds) -> String {
    let kyverno = Kyverno::find();
    let (mut compared, mut equal) = (0, 0);
    let (mut asked, mut confirmed) = (0, 0);
    let mut report = String::new();
    for twin in twins::twins(root, kinds) {
        compared += 1;
        let evidence = compare_sides(&twin.old, &twin.new, kinds, true);
        let decided: Vec<_> = evidence
            .differences
            .iter()
            .filter(|found| found.kind != DifferenceKind::Report)
            .collect();
        if decided.is_empty() {
            equal += 1;
            continue;
        }
        let mut line = format!("  {}: different\n", twin.name);
        for found in decided {
            let object = kiln_value::json::to_string(&found.input.object);
            line += &format!(
                "    {} {}: old {}, new {}: {object}\n",
                found.kind.as_str(),
                found.input.operation.as_str(),
                found.old.word,
                found.new.word
            );
            // What needs nothing but the object, the command line can be asked.
            let Some(kyverno) = kyverno.as_ref().filter(|_| asked < 10) else { continue };
            let alone = found.input.operation == Operation::Create
                && found.input.subresource.is_empty()
                && !twin.documents.iter().any(reads_more);
            let sides = [&twin.old, &twin.new].map(|side| ours(side, &found.input, kinds));
            if !alone || sides[0] == sides[1] {
                continue;
            }
            let object = [found.input.object.clone()];
            let theirs: Vec<Option<KyvernoVerdict>> = [&twin.documents[0], &twin.documents[1]]
                .map(|policy| verdict_of(kyverno, policy, &object))
                .to_vec();
            let [Some(old), Some(new)] = theirs.as_slice() else { continue };
            asked += 1;
            let agree = [*old, *new] == sides;
            confirmed += usize::from(agree);
            line += &format!(
                "    Kyverno: old {old:?}, new {new:?}{}\n",
                if agree { ", as here" } else { ": NOT as here" }
            );
            break;
        }
        report += &line;
    }
    format!(
        "{report}twins: {equal} of {compared} pairs equal, {} different; {confirmed} of {asked} counter-examples are decided \
         alike by Kyverno, with both policies",
        compared - equal
    )
}

fn verdict_of(kyverno: &Kyverno, policy: &Value, objects: &[Value]) -> Option<KyvernoVerdict> {
    let verdicts = kyverno.apply(std::slice::from_ref(policy), objects)?;
    Some(verdicts.values().next().copied().unwrap_or(KyvernoVerdict::Good))
}

fn compare_sides(old: &PolicySide, new: &PolicySide, kinds: &Kinds, small: bool) -> Evidence {
    let given = Vec::new();
    compare(&Comparison { old, new, kinds, seed: 1, inputs: 200, given, small })
}

/// Converted policies that check, on the objects that their conversion was checked with, run by Kyverno itself.
fn of_kyverno(kyverno: &Kyverno, root: &Path, kinds: &Kinds) -> String {
    let most: usize =
        std::env::var("KILN_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let (mut cases, mut run, mut not_taken) = (0, 0, 0);
    let mut report = String::new();
    let mut differences = 0;
    for policy in policies(root) {
        let Ok(conversion) = convert(&policy.document, Target::Cel, kinds) else { continue };
        for converted in &conversion.documents {
            let checks = converted.value.str_at(["kind"]) == Some("ValidatingPolicy");
            if cases >= most || !checks || reads_more(&converted.value) {
                continue;
            }
            let document =
                Document::from_value("new", converted.value.clone(), ReadOptions::kubernetes());
            let compiled = kiln_dialects::compile([&document], kinds);
            let values = vec![converted.value.clone()];
            let side = PolicySide::new(compiled.policies, [], values);
            let evidence = compare_sides(&side, &side, kinds, false);
            let inputs = distinct(&evidence.kept);
            let objects: Vec<Value> = inputs.iter().map(|input| input.object.clone()).collect();
            let Some(theirs) = kyverno.apply(std::slice::from_ref(&converted.value), &objects)
            else {
                not_taken += 1;
                continue;
            };
            run += 1;
            for input in &inputs {
                cases += 1;
                let name = input.object.str_at(["metadata", "name"]).unwrap_or_default();
                let said = theirs.get(name).copied().unwrap_or(KyvernoVerdict::Good);
                let our = ours(&side, input, kinds);
                if said != our {
                    differences += 1;
                    let object = kiln_value::json::to_string(&input.object);
                    report +=
                        &format!("  {}: Kyverno {said:?}, Kiln {our:?}: {object}\n", policy.file);
                }
            }
        }
    }
    format!(
        "{report}Kyverno: {run} converted policies on {cases} objects: {differences} disagreements; {not_taken} policies not taken"
    )
}

/// Objects of Pods and other kinds under names of their own.
fn distinct(inputs: &[Input]) -> Vec<Input> {
    let plain = inputs.iter().filter(|input| input.subresource.is_empty()).take(12);
    plain
        .enumerate()
        .map(|(number, input)| {
            let mut input = input.clone();
            let _ = input.object.set(["metadata", "name"], format!("case-{number}"));
            input
        })
        .collect()
}
