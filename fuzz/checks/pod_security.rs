//! The first line is a rule's `podSecurity`, the rest a Pod: every level and version ends, what is left out only takes
//! away, and a Pod that cannot be read is an error.

use kiln_podsecurity::{
    Control, Exclusion, Level, Pod, PodSecurityVersion, Standard, describe, leave_out,
};
use kiln_value::{Path, Str, Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (first, rest) = text.split_once('\n').unwrap_or(("", text));
    let _ = (first.parse::<PodSecurityVersion>(), first.parse::<Level>(), first.parse::<Control>());
    let Ok(pod) = json::parse(rest) else { return };
    let pod = match Pod::read(pod.get("metadata"), pod.get("spec")) {
        Ok(pod) => pod,
        Err(malformed) => return drop(malformed.to_string()),
    };
    let rule = json::parse(first).unwrap_or_default();
    let exclusions: Vec<Exclusion> = entries(rule.get("exclude")).filter_map(exclusion).collect();
    for level in [Level::Privileged, Level::Baseline, Level::Restricted] {
        for version in [
            PodSecurityVersion::Minor(0),
            PodSecurityVersion::Minor(22),
            PodSecurityVersion::Minor(34),
            PodSecurityVersion::Latest,
        ] {
            let of_rules = Standard::of_rules(level, version).check(&pod);
            let of_kubernetes = Standard::of_kubernetes(level, version).check(&pod);
            assert_eq!(of_rules.is_empty(), of_kubernetes.is_empty());
            let all = of_rules.len();
            let left = leave_out(of_rules, &exclusions, &pod);
            assert!(left.len() <= all);
            let _ = describe(&left, &Path::root());
        }
    }
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
}

fn exclusion(entry: &Value) -> Option<Exclusion> {
    let texts = |key: &str| -> Vec<Str> {
        entries(entry.get(key)).filter_map(Value::as_str).map(Str::from).collect()
    };
    Some(Exclusion {
        control: entry.str_at(["controlName"])?.parse().ok()?,
        images: texts("images"),
        field: entry.str_at(["restrictedField"]).map(Str::from),
        values: texts("values"),
    })
}
