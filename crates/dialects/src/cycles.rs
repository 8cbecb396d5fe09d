//! Rules that fire on each other's objects, in a cycle.

use kiln_rules::{Program, Rule, RuleId};

/// Rules that fire on each other's objects.
#[derive(Clone, Debug)]
pub struct RuleCycle<'r> {
    /// A rule of the cycle.
    pub start: &'r Rule,
    /// The rules in the order in which they fire, the first one again at the end.
    pub rules: Vec<RuleId>,
}

impl RuleCycle<'_> {
    /// The message for the author.
    pub fn message(&self) -> String {
        let names: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
        format!("rules fire on each other's objects in a cycle: {}", names.join(" -> "))
    }

    pub fn hint(&self) -> &'static str {
        "leave skipBackgroundRequests on, or exclude the objects that they make"
    }
}

/// The cycles that some rules are part of, together with others; each once, for the first rule that is in it. Only
/// rules that see what the engine itself writes can be.
pub fn rule_cycles<'r>(
    own: impl IntoIterator<Item = &'r Rule>,
    others: impl IntoIterator<Item = &'r Rule>,
) -> Vec<RuleCycle<'r>> {
    let sees = |rule: &&Rule| !rule.trigger.ignore_own_requests;
    let own: Vec<&Rule> = own.into_iter().filter(sees).collect();
    let all: Vec<&Rule> = own.iter().copied().chain(others.into_iter().filter(sees)).collect();
    let mut found: Vec<RuleCycle<'r>> = Vec::new();
    for start in own {
        if found.iter().any(|cycle| cycle.rules.contains(&start.id)) {
            continue;
        }
        // What is reached from the rule, and by which rule it was reached first.
        let mut reached: Vec<(&Rule, Option<usize>)> = vec![(start, None)];
        let mut at = 0;
        while at < reached.len() {
            let (rule, _) = reached[at];
            for next in all.iter().filter(|next| makes_triggers_of(rule, next)) {
                // A rule that fires on its own objects alone is reported where it is compiled.
                if next.id == start.id && reached.len() > 1 {
                    found.push(RuleCycle { start, rules: names(&reached, at, &start.id) });
                    at = reached.len();
                    break;
                }
                if !reached.iter().any(|(known, _)| known.id == next.id) {
                    reached.push((next, Some(at)));
                }
            }
            at += 1;
        }
    }
    found
}

fn names(reached: &[(&Rule, Option<usize>)], last: usize, start: &RuleId) -> Vec<RuleId> {
    let mut names = vec![start.clone()];
    let mut at = Some(last);
    while let Some(index) = at {
        names.push(reached[index].0.id.clone());
        at = reached[index].1;
    }
    names.reverse();
    names
}

fn makes_triggers_of(maker: &Rule, fired: &Rule) -> bool {
    let Program::Generate(program) = &maker.program else { return false };
    program
        .emitters()
        .flat_map(|(_, _, emitter)| emitter.target_kinds())
        .any(|kind| fired.trigger.may_fire_for(&kind, ""))
}
