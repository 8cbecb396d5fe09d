//! How requests reach policies in CEL: `matchConstraints` and `matchConditions` as a webhook has them.
//!
//! Everything here narrows which requests the API server sends, so a mistake towards less loses triggers silently, while
//! one towards more only costs a call: the engine matches again in any case. In doubt it asks for more.

use kiln_cel::{Env, Type};
use kiln_rules::{Delivery, MatchConditions, WebhookFamily};
use kiln_value::{Value, value};

use super::pod_controllers::Variant;
use crate::delivery;

/// An API server takes so many conditions.
const MOST_CONDITIONS: usize = 64;
/// What expressions may read of an object and its request that only the engine knows.
const OF_THE_ENGINE: [&str; 4] = ["namespaceObject", "variables", "exceptions", "images"];

/// By what a condition tells whether a request is for a policy or for a variant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariantGuard {
    /// By the kind that the request is for.
    Kind,
    /// In Kyverno's words for validating policies, by the object, if every request has one.
    Object,
}

/// How requests reach a policy and its variants for the controllers of Pods.
///
/// Conditions of the policy are copied into the webhook, where the API server evaluates them, only if they mean the same
/// there. With `synchronize` they are widened by the old object: an object that stops matching has to be seen, or its
/// downstreams would stay.
pub(super) fn of(
    document: &Value,
    family: WebhookFamily,
    variants: &[Variant],
    guard: VariantGuard,
) -> Delivery {
    let spec = document.get("spec").unwrap_or(&Value::Null);
    let common = delivery::common(document, family);
    let Some(constraints) = spec.get("matchConstraints").filter(|value| !value.is_null()) else {
        return common;
    };
    let conditions = list(spec, "matchConditions");
    let own_rules = resource_rules(constraints);
    let conditions = match (variants, guard) {
        ([], _) => {
            let synchronize = spec.get_path(["evaluation", "synchronize", "enabled"]);
            copied(&conditions, synchronize.and_then(Value::as_bool) == Some(true))
        }
        (variants, VariantGuard::Object) if own_rules.as_deref().is_some_and(have_objects) => {
            by_object(&conditions, variants)
        }
        (variants, _) => by_kind(&conditions, variants),
    };
    let resource_rules = own_rules.map(|mut rules| {
        rules.extend(variants.iter().flat_map(Variant::joined_resource_rules));
        rules
    });
    Delivery {
        match_conditions: MatchConditions { list: conditions, written_at: None },
        exact: constraints.str_at(["matchPolicy"]) == Some("Exact"),
        resource_rules,
        namespace_selector: constraints.get("namespaceSelector").cloned(),
        object_selector: constraints.get("objectSelector").cloned(),
        ..common
    }
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value.get(key).and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default()
}

fn resource_rules(constraints: &Value) -> Option<Vec<Value>> {
    constraints.get("resourceRules").and_then(Value::as_list).map(|rules| rules.to_vec())
}

/// Whether every request that rules name has an object, which conditions may then look at.
fn have_objects(rules: &[Value]) -> bool {
    rules.iter().all(|rule| {
        let operations = rule.get("operations").and_then(Value::as_list);
        operations.is_some_and(|list| {
            list.iter().all(|word| matches!(word.as_str(), Some("CREATE" | "UPDATE")))
        })
    })
}

/// The conditions of a policy for Pods and of its variants, each with what its expression is about: all of them, or none.
fn of_each<'v>(
    conditions: &[Value],
    variants: &'v [Variant],
) -> Vec<(Option<&'v Variant>, Vec<Value>)> {
    let of_variants = variants
        .iter()
        .map(|variant| (Some(variant), copied(&list(&variant.spec, "matchConditions"), false)));
    let all: Vec<_> =
        std::iter::once((None, copied(conditions, false))).chain(of_variants).collect();
    let count: usize = all.iter().map(|(_, list)| list.len()).sum();
    let is_whole =
        all.iter().all(|(_, list)| list.len() == conditions.len()) && count <= MOST_CONDITIONS;
    if is_whole { all } else { Vec::new() }
}

/// The conditions of a policy for Pods and of its variants, each for its own kinds.
fn by_kind(conditions: &[Value], variants: &[Variant]) -> Vec<Value> {
    let all = of_each(conditions, variants);
    let guarded = all.iter().flat_map(|(variant, list)| {
        let kinds = variant.map_or(&["Pod"][..], |variant| &variant.kinds[..]);
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("\"{kind}\"")).collect();
        let prefix = variant.map_or("", |variant| variant.prefix);
        list.iter().map(move |condition| {
            let text = |key: &str| condition.str_at([key]).unwrap_or_default().to_owned();
            let (name, expression) = (text("name"), text("expression"));
            let kinds = kinds.join(", ");
            value!({
                "name": format!("{prefix}{name}"),
                "expression": format!("!(request.kind.kind in [{kinds}]) || ({expression}\n)"),
            })
        })
    });
    guarded.collect()
}

/// The same in Kyverno's words, which look at the object: for requests that have one.
fn by_object(conditions: &[Value], variants: &[Variant]) -> Vec<Value> {
    let all = of_each(conditions, variants);
    let guarded = all.iter().flat_map(|(variant, list)| {
        let kinds: Vec<(String, &str)> = match variant {
            None => vec![("v1".to_owned(), "Pod")],
            Some(variant) => {
                let versions = variant.groups.iter().map(|group| format!("{group}/v1"));
                versions.zip(variant.kinds.iter().copied()).collect()
            }
        };
        let kinds = kinds.into_iter().map(|(version, kind)| {
            format!("(object.apiVersion == '{version}' && object.kind =='{kind}')")
        });
        let kinds = kinds.collect::<Vec<_>>().join(" || ");
        let config = match variant {
            None => "",
            Some(variant) if variant.kinds == ["CronJob"] => "cronjobs-",
            Some(_) => "defaults-",
        };
        list.iter().map(move |condition| {
            let text = |key: &str| condition.str_at([key]).unwrap_or_default().to_owned();
            let (name, expression) = (text("name"), text("expression"));
            // A comment would swallow what follows.
            let end = if expression.contains("//") { "\n" } else { "" };
            value!({
                "name": format!("autogen-{config}{name}"),
                "expression": format!("!({kinds}) || ({expression}{end})"),
            })
        })
    });
    let mut guarded: Vec<Value> = guarded.collect();
    guarded.sort_by(|a, b| a.str_at(["name"]).cmp(&b.str_at(["name"])));
    guarded
}

/// The conditions that an API server can check itself: all of them, or none.
fn copied(conditions: &[Value], synchronize: bool) -> Vec<Value> {
    if conditions.is_empty() {
        return Vec::new();
    }
    let env = Env::suite()
        .extend()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::Dyn)
        .build();
    let text = |condition: &Value| condition.str_at(["expression"]).map(str::to_owned);
    let plain = |condition: &Value| {
        let program = text(condition).and_then(|text| env.compile_as(&text, &[Type::Bool]).ok());
        program.is_some_and(|program| {
            !OF_THE_ENGINE.iter().any(|variable| program.uses(variable).is_any())
        })
    };
    if !conditions.iter().all(plain) {
        return Vec::new();
    }
    let mut conditions = conditions.to_vec();
    if synchronize {
        for condition in &mut conditions {
            // Kyverno: a trigger that stops matching must still be heard of.
            if let Some(old) = text(condition)
                && let Some(map) = condition.as_map_mut()
            {
                map.insert("expression", format!("request.operation != 'CREATE' || ({old})"));
            }
        }
    }
    conditions
}
