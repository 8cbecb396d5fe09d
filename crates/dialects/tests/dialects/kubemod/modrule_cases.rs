//! The tables of ModRules: rules and an object, and what KubeMod's own code makes of them.
//!
//! The request is a CREATE in the namespace of the object, unless `operation` and `namespace` say otherwise. Rules
//! without a namespace are in that of the object, or in `ruleNamespace`. `others` are further objects in the cluster.

use kiln_dialects::compile;
use kiln_engine::{EvalEnv, Event, Mutated, RuleSet};
use kiln_object::Kinds;
use kiln_rules::Operation;
use kiln_testkit::{Case, Expected};
use kiln_value::Value;

use crate::kubemod::modrule_recorded::{rejections, rules_of, same};
use crate::support::{Fixed, Objects};

/// Cases that do not give yet what KubeMod gives.
const KNOWN: &[(&str, &str)] = &[
    (
        "match.yaml: list with an undefined element is not all",
        "undefined elements of a list that an expression makes are left out, also for All",
    ),
    (
        "references-and-last-applied.yaml: node is there for pods only",
        "the annotation names a node of any object",
    ),
    (
        "references-and-last-applied.yaml: last applied configuration patched by a rule itself",
        "the patch goes into what the rule wrote, not into what was there before",
    ),
    ("reject.yaml: message with fields", "quotes in a message are escaped"),
    ("reject.yaml: message over several lines", "line breaks in a message are escaped"),
    (
        "reject.yaml: message with a placeholder of patches",
        "the placeholders of values are read in messages, too, where they find no keys",
    ),
    ("reject.yaml: quotes in the message", "quotes in a message are escaped"),
    (
        "tiers-and-scope.yaml: same name again replaces the rule",
        "two documents with one name are two rules",
    ),
    (
        "values.yaml: text with a colon from the object becomes a map",
        "on purpose: what an object says is text",
    ),
    ("values.yaml: number beyond 64 bits", "keeps all digits, where KubeMod makes it a float"),
];

#[test]
fn cases_of_modrules_act_as_in_kubemod() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/modrules");
    kiln_testkit::cases("modrules", folder, KNOWN, run);
}

fn run(case: &Case) -> Result<(), String> {
    let text = |field: &str| case.get(field).and_then(Value::as_str);
    let mut object = case.get("resource").ok_or("`resource` must be there")?.clone();
    let own = object.str_at(["metadata", "namespace"]).map(str::to_owned);
    let home = text("ruleNamespace").or(own.as_deref()).unwrap_or("default");

    let kinds = Kinds::builtin();
    let compiled = compile(&rules_of(case.text("modrules"), home), &kinds);
    let wanted = match (case.expected(), compiled.has_errors()) {
        (Expected::Error(error), true) if error.starts_with("load: ") => return Ok(()),
        (Expected::Error(error), _) => return Err(format!("instead of {error}: the rules load")),
        (Expected::Output(_), true) => return Err(format!("{:?}", compiled.diagnostics)),
        (Expected::Output(wanted), false) => wanted,
    };

    // The request says which namespace the object is in, whatever the object says.
    if let Some(namespace) = text("namespace") {
        object.set(["metadata", "namespace"], namespace).map_err(|error| error.to_string())?;
    }
    let event = match text("operation").unwrap_or("CREATE").parse::<Operation>() {
        Ok(Operation::Update) => Event::updated(object.clone(), object.clone()),
        Ok(Operation::Delete) => Event::deleted(object.clone()),
        _ => Event::created(object.clone()),
    };
    let list = |value: Option<&Value>| value.and_then(Value::as_list).cloned().unwrap_or_default();
    let view = Objects(list(case.get("others")).to_vec());
    let sources = Fixed(std::cell::Cell::new(0));
    let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
    let Mutated { object: after, outcomes } =
        RuleSet::new(compiled.policies).mutate(&event, &eval_env);

    // KubeMod leaves the order of rejections within a tier open.
    let mut rejected = rejections(&outcomes);
    rejected.sort();
    let texts = list(wanted.get("rejections"));
    if !rejected.iter().map(String::as_str).eq(texts.iter().filter_map(Value::as_str)) {
        return Err(format!("{rejected:?} instead of {texts:?}"));
    }
    match wanted.str_at(["outcome"]) {
        // What is rejected or goes away is not changed.
        Some("rejected") => Ok(()),
        Some("unchanged") if after.is_null() => Ok(()),
        Some("unchanged" | "error-allowed-unchanged") => same(&object, &after, &outcomes),
        Some("patched") => same(wanted.get("object").unwrap_or(&Value::Null), &after, &outcomes),
        other => Err(format!("{other:?} is not an outcome of Kiln: {outcomes:?}")),
    }
}
