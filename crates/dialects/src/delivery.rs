//! What policies of all languages say alike about webhooks and reports.

use kiln_rules::{Delivery, FailurePolicies, ReportWords, ShadowOf, WebhookFamily, WebhookTimeout};
use kiln_value::{Str, Value};

/// A label that keeps results of a policy from reports.
const REPORTS_OFF: &str = "reports.kyverno.io/disabled";
/// An annotation that names the policy whose rules a policy is compared with; it has no other effect then.
pub const SHADOW_OF: &str = "kiln.dev/shadow-of";
/// An annotation that names some rules of that policy, with commas between them.
pub const SHADOW_OF_RULES: &str = "kiln.dev/shadow-of-rules";
const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "info"];

/// How requests reach a policy, as far as the languages write it in one place.
pub(crate) fn common(document: &Value, family: WebhookFamily) -> Delivery {
    let spec = document.get("spec").unwrap_or(&Value::Null);
    let hook = spec.get("webhookConfiguration").unwrap_or(&Value::Null);
    let either = |new: &str, old: &str| {
        hook.get(new).or_else(|| spec.get(old)).filter(|value| !value.is_null())
    };
    let timeouts = [
        (hook.get("timeoutSeconds"), "spec.webhookConfiguration.timeoutSeconds"),
        (spec.get("webhookTimeoutSeconds"), "spec.webhookTimeoutSeconds"),
    ];
    let timeouts = timeouts.into_iter().filter_map(|(value, written_at)| {
        Some(WebhookTimeout { written: value?.as_i64()?, written_at })
    });
    let enabled = spec.get_path(["evaluation", "admission", "enabled"]).and_then(Value::as_bool);
    let admission = spec.get("admission").and_then(Value::as_bool);
    let failure = either("failurePolicy", "failurePolicy").and_then(Value::as_str);
    Delivery {
        failure: FailurePolicies::of(failure),
        off: enabled == Some(false) || admission == Some(false),
        timeouts: timeouts.collect(),
        warns: spec.get("emitWarning").and_then(Value::as_bool) == Some(true),
        unchanged_since: unchanged_since(document),
        shadow_of: shadow_of(document),
        ..Delivery::usual(family)
    }
}

/// The rules that a policy is to be compared with instead of being run, if it says so.
fn shadow_of(document: &Value) -> Option<ShadowOf> {
    let annotation = |key: &str| document.str_at(["metadata", "annotations", key]);
    let rules = annotation(SHADOW_OF_RULES).unwrap_or_default().split(',').map(str::trim);
    Some(ShadowOf {
        policy: annotation(SHADOW_OF)?.trim().into(),
        rules: rules.filter(|rule| !rule.is_empty()).map(Str::from).collect(),
    })
}

/// When a stored policy was made, if it is still the first one of its name.
pub(crate) fn unchanged_since(document: &Value) -> Option<Str> {
    let generation = document.get_path(["metadata", "generation"]).and_then(Value::as_i64);
    let made = document.str_at(["metadata", "creationTimestamp"]);
    made.filter(|_| generation == Some(1)).map(Str::from)
}

/// Whether rules that check objects are also run on what is stored already. The languages write it in two places.
pub(crate) fn background(document: &Value) -> bool {
    let spec = document.get("spec").unwrap_or(&Value::Null);
    let flag = |path: &[&str]| spec.get_path(path.iter().copied()).and_then(Value::as_bool);
    flag(&["background"]).or(flag(&["evaluation", "background", "enabled"])).unwrap_or(true)
}

/// What a policy says about itself in reports.
pub(crate) fn report_words(document: &Value) -> ReportWords {
    let about = |key: &str| {
        document.str_at(["metadata", "annotations", &format!("policies.kyverno.io/{key}")])
    };
    let labels = document.get_path(["metadata", "labels"]);
    ReportWords {
        category: about("category").map(Str::from),
        severity: about("severity").filter(|word| SEVERITIES.contains(word)).map(Str::from),
        scored: about("scored") != Some("false"),
        off: labels.is_some_and(|labels| labels.get(REPORTS_OFF).is_some()),
    }
}
