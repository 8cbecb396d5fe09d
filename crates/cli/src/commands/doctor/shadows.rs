//! Policies that are evaluated beside others: what they are compared with, and how they differ.

use std::collections::BTreeMap;

use kiln_dialects::SHADOW_OF;
use kiln_object::metadata;

use super::Checks;
use super::health::HealthEndpoint;
use crate::cluster::connection::stored_policies;
use crate::exit::CommandFailure;
use crate::ui::counted;

const ABOUT: &str = "shadows";
const FAMILY: &str = "kiln_shadow_requests_total{";

/// How often a shadow and its policy came to each result.
type ShadowCounts = BTreeMap<String, u64>;

/// Says of each shadow that is stored how it differs, as the engines that answer count it.
pub(super) fn check(
    checks: &mut Checks<'_>,
    engines: &[HealthEndpoint],
) -> Result<(), CommandFailure> {
    let documents = stored_policies(checks.reader)?;
    let named = |value: &kiln_value::Value| {
        let kind = value.str_at(["kind"]).unwrap_or_default();
        let name = metadata::name(value).unwrap_or_default();
        match metadata::namespace(value) {
            Some(namespace) => format!("{kind}/{namespace}/{name}"),
            None => format!("{kind}/{name}"),
        }
    };
    let known: Vec<String> = documents.iter().map(|document| named(document.value())).collect();
    let shadows: Vec<(String, String)> = documents
        .iter()
        .filter_map(|document| {
            let of = document.value().str_at(["metadata", "annotations", SHADOW_OF])?;
            Some((named(document.value()), of.trim().to_owned()))
        })
        .collect();
    if shadows.is_empty() {
        return Ok(());
    }
    let mut counts: BTreeMap<(String, String), ShadowCounts> = BTreeMap::new();
    for metrics in engines.iter().filter_map(|engine| engine.ask(checks, "metrics").ok()) {
        add(&metrics, &mut counts);
    }
    for (shadow, of) in shadows {
        if !known.contains(&of) {
            checks.doubtful(
                ABOUT,
                format!("{shadow} is a shadow of {of:?}, which is not stored: it has no effect"),
                &format!("name a policy as Kind/name or Kind/namespace/name, or remove the annotation {SHADOW_OF} to put the policy in force"),
            );
            continue;
        }
        let counts = counts.remove(&(of.clone(), shadow.clone())).unwrap_or_default();
        let (message, differs) = words(&shadow, &of, &counts);
        match differs {
            false => checks.good(ABOUT, message),
            true => checks.doubtful(
                ABOUT,
                message,
                "look at its Events (reason ShadowDiffers), and compare both with `kiln diff`",
            ),
        }
    }
    Ok(())
}

fn words(shadow: &str, of: &str, counts: &ShadowCounts) -> (String, bool) {
    let all: u64 = counts.values().sum();
    let requests = counted(usize::try_from(all).unwrap_or(usize::MAX), "request", "requests");
    // What only reports say otherwise is no reason to wait.
    let differing: Vec<String> = counts
        .iter()
        .filter(|(result, _)| *result != "same")
        .map(|(result, count)| format!("{count} {result}"))
        .collect();
    let differs = counts.keys().any(|result| !matches!(result.as_str(), "same" | "report"));
    let message = match differing.is_empty() {
        true if all == 0 => format!("{shadow} is a shadow of {of}: no request was compared yet"),
        true => format!("{shadow} agrees with {of} on {requests}"),
        false => format!("{shadow} differs from {of}: of {requests} {}", differing.join(", ")),
    };
    (message, differs)
}

/// Adds what an engine counts.
fn add(metrics: &str, counts: &mut BTreeMap<(String, String), ShadowCounts>) {
    for line in metrics.lines().filter_map(|line| line.strip_prefix(FAMILY)) {
        let Some((labels, value)) = line.split_once("} ") else { continue };
        let label = |name: &str| {
            let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
            labels[start..].split('"').next().map(str::to_owned)
        };
        if let (Some(policy), Some(shadow), Some(result), Ok(value)) =
            (label("policy"), label("shadow"), label("result"), value.trim().parse::<u64>())
        {
            *counts.entry((policy, shadow)).or_default().entry(result).or_default() += value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_added_up_and_differences_are_named() {
        let engine = |result: &str, count: u64| {
            format!(
                "# HELP x\nkiln_shadow_requests_total{{policy=\"ClusterPolicy/p\",result=\"{result}\",shadow=\"ValidatingPolicy/p\"}} {count}\n"
            )
        };
        let mut counts = BTreeMap::new();
        add(&(engine("same", 3) + &engine("weaker", 1)), &mut counts);
        add(&engine("same", 4), &mut counts);
        let key = ("ClusterPolicy/p".to_owned(), "ValidatingPolicy/p".to_owned());
        let found = counts.remove(&key).unwrap();
        assert_eq!(
            words("ValidatingPolicy/p", "ClusterPolicy/p", &found),
            (
                "ValidatingPolicy/p differs from ClusterPolicy/p: of 8 requests 1 weaker"
                    .to_owned(),
                true
            )
        );
        let none = ShadowCounts::new();
        assert!(!words("a", "b", &none).1);
        let same = ShadowCounts::from([("same".to_owned(), 1)]);
        assert_eq!(words("a", "b", &same), ("a agrees with b on 1 request".to_owned(), false));
    }
}
