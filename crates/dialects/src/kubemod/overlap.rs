//! Rules that write the same place of the same objects: the last one wins, which is rarely meant.

use kiln_diagnostic::Diagnostic;
use kiln_rules::{
    MatchItem, Modify, ModifyAction, PatchAction, PatchItem, Policy, Program, Rule, ValueTest,
};

/// How many rules are compared with each other; more warnings would not be read.
const MOST: usize = 300;

/// A warning for each pair of rules that can match one object and write the same place.
pub(crate) fn warnings<'p>(policies: impl Iterator<Item = &'p Policy>) -> Vec<Diagnostic> {
    let rules: Vec<(&Rule, &Modify, &[PatchItem])> = policies
        .flat_map(|policy| &policy.rules)
        .filter_map(|rule| match &rule.program {
            Program::Modify(modify) => match &modify.action {
                ModifyAction::Patch(items) => Some((&**rule, &**modify, items.as_slice())),
                ModifyAction::Reject(_) => None,
            },
            _ => None,
        })
        .take(MOST)
        .collect();
    let mut warnings = Vec::new();
    for (at, (first, one, writes)) in rules.iter().enumerate() {
        for (second, other, overwrites) in &rules[at + 1..] {
            // Tiers say who is meant to win.
            if one.tier != other.tier || first.scope != second.scope || exclusive(one, other) {
                continue;
            }
            let clash =
                overwrites.iter().find(|item| writes.iter().any(|written| clash(written, item)));
            let Some(item) = clash else { continue };
            let (a, b) = (first.id.policy.key(), second.id.policy.key());
            let last = (&first.id).max(&second.id).policy.key();
            let warning = Diagnostic::warning(format!(
                "rules {a} and {b} can both write {} of one object, and {last} comes last",
                item.pointer
            ));
            warnings.push(
                warning.at(second.origin.place_of(&item.path)).hint(
                    "give them different tiers, or make their match blocks exclude each other",
                ),
            );
        }
    }
    warnings
}

/// Whether two operations write different things to one place.
fn clash(a: &PatchItem, b: &PatchItem) -> bool {
    let appends = |item: &PatchItem| item.pointer.ends_with("/-1") || item.pointer.ends_with("/-");
    let source = |item: &PatchItem| item.value.as_ref().map(|value| value.source().to_owned());
    let writes = |item: &PatchItem| item.action != PatchAction::Remove;
    let tests = |item: &PatchItem| item.action == PatchAction::Test;
    a.pointer == b.pointer
        && a.select.is_none()
        && b.select.is_none()
        && !appends(a)
        && !tests(a)
        && !tests(b)
        && (writes(a) || writes(b))
        && (a.action != b.action || a.from != b.from || source(a) != source(b))
}

/// Whether no object can match both: they ask for different texts in one place, or for opposite things.
fn exclusive(a: &Modify, b: &Modify) -> bool {
    let opposed = |x: &MatchItem, y: &MatchItem| {
        let (x_path, y_path) = (x.select.source().trim(), y.select.source().trim());
        if x_path != y_path {
            return false;
        }
        match (&x.test, &y.test) {
            (ValueTest::Values(x_values), ValueTest::Values(y_values)) => {
                match (x.negate, y.negate) {
                    (false, false) => !x_values.iter().any(|value| y_values.contains(value)),
                    (false, true) => x_values.iter().all(|value| y_values.contains(value)),
                    (true, false) => y_values.iter().all(|value| x_values.contains(value)),
                    (true, true) => false,
                }
            }
            (ValueTest::Any, _) | (_, ValueTest::Any) => x.negate != y.negate,
            _ => false,
        }
    };
    // A path with several values can hold both texts.
    let single = |item: &MatchItem| !item.select.source().contains(['*', '?', ':', ',']);
    a.items.iter().filter(|item| single(item)).any(|x| b.items.iter().any(|y| opposed(x, y)))
}
