//! Generate rules as GeneratingPolicies.

use kiln_object::Kinds;
use kiln_object::kinds::usual_plural;
use kiln_value::{Map, Path, Value, value};

use crate::cel::Cel;
use crate::cel_printer::print;
use crate::conditions_to_cel::conditions;
use crate::context;
use crate::documents::{self, ConvertedDocument};
use crate::jmespath_to_cel::{Scope, translate};
use crate::matching::matching;
use crate::scope::rule_scope;
use crate::templates;
use crate::term::Term;
use crate::to_cel::{API_VERSION, insert_named};
use crate::validate::operations;
use crate::verdict::{Difference, Obstacle};

/// Converts a generate rule to a policy of its own.
pub(crate) fn convert(
    policy: &Value,
    rule: &Value,
    kinds: &Kinds,
    path: &Path,
) -> Result<(ConvertedDocument, Vec<Difference>), Obstacle> {
    let generate = rule.get("generate").unwrap_or(&Value::Null);
    let at = path.join("generate");
    let about = matching(rule, kinds, &Cel::name("object"), path)?;
    let mut found = operations(rule, &about);
    let only_deletes = matching_only_deletes(&about.operations);
    if !only_deletes {
        found.operations.retain(|operation| operation != "DELETE");
    }
    let object = if only_deletes { Cel::name("oldObject") } else { Cel::name("object") };
    let about = if only_deletes { matching(rule, kinds, &object, path)? } else { about };
    let mut scope = rule_scope(&object, &about.shape());
    let mut variables = Vec::new();
    context::add(
        rule.get("context"),
        kinds,
        &mut scope,
        Some(&mut variables),
        &path.join("context"),
    )?;
    let mut match_conditions = about.conditions.clone();
    let mut guard = Cel::bool(true);
    if let Some(preconditions) = &found.preconditions {
        let cel = conditions(preconditions, &scope, &path.join("preconditions"))?;
        // Conditions of a GeneratingPolicy see no variables.
        match cel.mentions("variables") {
            false if cel.is_bool(true) => {}
            false => match_conditions.push(("preconditions".to_owned(), cel)),
            true => guard = cel,
        }
    }
    let mut expressions = Vec::new();
    match generate.get("foreach").and_then(Value::as_list) {
        Some(loops) => {
            for (number, entry) in loops.iter().enumerate() {
                let path = at.join("foreach").join(number);
                expressions.push(each(entry, kinds, &scope, &path)?);
            }
        }
        None => expressions.push(emission(generate, kinds, &scope, &at)?),
    }
    if !guard.is_bool(true) {
        expressions = expressions
            .into_iter()
            .map(|cel| Cel::choose(guard.clone(), cel, Cel::bool(true)))
            .collect();
    }
    let name = format!(
        "{}-{}",
        policy.str_at(["metadata", "name"]).unwrap_or_default(),
        rule.str_at(["name"]).unwrap_or_default()
    );
    let namespaced = policy.str_at(["metadata", "namespace"]).is_some()
        && policy.str_at(["kind"]) == Some("Policy");
    let kind = if namespaced { "NamespacedGeneratingPolicy" } else { "GeneratingPolicy" };
    let mut document = documents::envelope(policy, API_VERSION, kind, &name);
    let mut spec = Map::new();
    let evaluation = evaluation(policy, generate);
    if !evaluation.is_empty() {
        spec.insert("evaluation", evaluation);
    }
    spec.insert("matchConstraints", about.constraints(&found.operations));
    insert_named(
        &mut spec,
        "matchConditions",
        match_conditions.iter().map(|(name, cel)| (name.as_str(), cel)),
    );
    insert_named(
        &mut spec,
        "variables",
        variables.iter().map(|variable| (variable.name.as_str(), &variable.cel)),
    );
    let list: Value = expressions.iter().map(|cel| value!({"expression": print(cel)})).collect();
    spec.insert("generate", list);
    document.insert("spec", spec);
    Ok((ConvertedDocument::of(Value::Map(document)), scope.notes()))
}

fn matching_only_deletes(operations: &[String]) -> bool {
    !operations.is_empty() && operations.iter().all(|operation| operation == "DELETE")
}

fn evaluation(policy: &Value, generate: &Value) -> Map {
    let is_on = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let existing = generate.get("generateExisting").or_else(|| spec.get("generateExisting"));
    let mut evaluation = Map::new();
    for (field, on) in [
        ("synchronize", is_on(generate.get("synchronize"))),
        ("generateExisting", is_on(existing)),
        ("orphanDownstreamOnPolicyDelete", is_on(generate.get("orphanDownstreamOnPolicyDelete"))),
    ] {
        if on {
            evaluation.insert(field, value!({"enabled": true}));
        }
    }
    evaluation
}

/// One call of the generator for each element of a list.
fn each(entry: &Value, kinds: &Kinds, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    let mut inner = scope.clone();
    let list = translate(entry.str_at(["list"]).unwrap_or_default(), scope)
        .map_err(|obstacle| obstacle.at(&path.join("list")))?;
    let mut cel = list.list();
    let name = inner.fresh(&cel);
    let element = Term::Value(Cel::name(&name), list.shape().element());
    inner.set("element", element.clone());
    inner.set("element0", element);
    context::add(entry.get("context"), kinds, &mut inner, None, &path.join("context"))?;
    if let Some(found) = entry.get("preconditions") {
        cel = cel.each("filter", &name, conditions(found, &inner, &path.join("preconditions"))?);
    }
    let made = emission(entry, kinds, &inner, path)?;
    Ok(cel.each("map", &name, made))
}

/// What one entry makes.
fn emission(entry: &Value, kinds: &Kinds, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    let text = |field: &str| -> Result<Option<Cel>, Obstacle> {
        let Some(text) = entry.str_at([field]) else { return Ok(None) };
        let term =
            templates::text_term(text, scope).map_err(|obstacle| obstacle.at(&path.join(field)))?;
        Ok(Some(term.strict()))
    };
    let namespace = text("namespace")?.unwrap_or_else(|| Cel::text(""));
    let apply =
        |objects: Cel| Cel::name("generator").call("Apply", vec![namespace.clone(), objects]);
    if let Some(list) = entry.get("cloneList") {
        return clone_list(list, kinds, scope, &path.join("cloneList")).map(apply);
    }
    let (api_version, kind) = (entry.str_at(["apiVersion"]), entry.str_at(["kind"]));
    let (Some(api_version), Some(kind)) = (api_version, kind) else {
        return Err(
            Obstacle::new("a generate rule without apiVersion and kind", "name the kind").at(path)
        );
    };
    let name = text("name")?.unwrap_or_else(|| Cel::text(""));
    if let Some(clone) = entry.get("clone") {
        let source = |field: &str| -> Result<Cel, Obstacle> {
            let text = clone.str_at([field]).unwrap_or_default();
            Ok(templates::text_term(text, scope)
                .map_err(|obstacle| obstacle.at(&path.join("clone")))?
                .strict())
        };
        let get = Cel::name("resource").call(
            "Get",
            vec![
                Cel::text(api_version),
                Cel::text(plural(api_version, kind, kinds)),
                source("namespace")?,
                source("name")?,
            ],
        );
        if source("name")? != name {
            let copy = get.call("setField", vec![Cel::text("metadata.name"), name]);
            return Ok(apply(Cel::List(vec![copy])));
        }
        return Ok(apply(Cel::List(vec![get])));
    }
    let Some(data) = entry.get("data") else {
        return Err(Obstacle::new("this form of generate", "write generator.Apply in CEL").at(path));
    };
    let mut entries = vec![
        (Cel::text("apiVersion"), Cel::text(api_version)),
        (Cel::text("kind"), Cel::text(kind)),
    ];
    let mut metadata = vec![(Cel::text("name"), name)];
    if let Value::Map(map) = data {
        for (key, value) in map {
            match (key.as_str(), value) {
                ("metadata", Value::Map(more)) => {
                    for (key, value) in more {
                        if !matches!(key.as_str(), "name" | "namespace") {
                            metadata.push((
                                Cel::text(key.as_str()),
                                data_cel(value, scope, &path.join("data"))?,
                            ));
                        }
                    }
                }
                ("apiVersion" | "kind", _) => {}
                (key, value) => {
                    entries.push((Cel::text(key), data_cel(value, scope, &path.join("data"))?));
                }
            }
        }
    }
    entries.insert(2, (Cel::text("metadata"), Cel::Map(metadata)));
    Ok(apply(Cel::List(vec![dyn_map(entries)])))
}

fn plural(api_version: &str, kind: &str, kinds: &Kinds) -> String {
    let gvk = kiln_object::Gvk::new(api_version, kind);
    kinds.get(&gvk).map_or_else(|| usual_plural(kind), |kind| kind.plural().to_owned())
}

/// The body of an object. Maps whose values are of several types say so.
fn data_cel(value: &Value, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    match value {
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map {
                let key_cel = templates::text_term(key, scope)
                    .map_err(|obstacle| obstacle.at(path))?
                    .strict();
                entries.push((key_cel, data_cel(value, scope, &path.join(key))?));
            }
            Ok(dyn_map(entries))
        }
        Value::List(list) => {
            let parts: Result<Vec<Cel>, Obstacle> = list
                .iter()
                .enumerate()
                .map(|(at, value)| data_cel(value, scope, &path.join(at)))
                .collect();
            Ok(Cel::List(parts?))
        }
        scalar => Ok(templates::term(scalar, scope, path)?.strict()),
    }
}

/// A map literal, with `dyn( )` where its values are of several types.
fn dyn_map(entries: Vec<(Cel, Cel)>) -> Cel {
    let kind = |cel: &Cel| match cel {
        Cel::Map(inner) => format!("map:{}", inner.len().min(1)),
        Cel::List(_) => "list".to_owned(),
        Cel::Literal(value) => value.type_name().to_owned(),
        _ => "?".to_owned(),
    };
    let mut kinds: Vec<String> = entries.iter().map(|(_, value)| kind(value)).collect();
    kinds.sort();
    kinds.dedup();
    let all_texts =
        entries.iter().all(|(_, value)| matches!(value, Cel::Literal(Value::String(_))));
    if entries.len() < 2 || all_texts {
        return Cel::Map(entries);
    }
    Cel::Map(
        entries.into_iter().map(|(key, value)| (key, Cel::function("dyn", vec![value]))).collect(),
    )
}

/// All objects of some kinds with labels, copied.
fn clone_list(list: &Value, kinds: &Kinds, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    let namespace = list.str_at(["namespace"]).unwrap_or_default();
    let namespace =
        templates::text_term(namespace, scope).map_err(|obstacle| obstacle.at(path))?.strict();
    let labels = list.get_path(["selector", "matchLabels"]).and_then(Value::as_map);
    if list.get_path(["selector", "matchExpressions"]).is_some() {
        return Err(
            Obstacle::new("matchExpressions in cloneList", "filter the items in CEL").at(path)
        );
    }
    let mut found: Option<Cel> = None;
    for kind in
        list.get("kinds").and_then(Value::as_list).into_iter().flat_map(|kinds| kinds.iter())
    {
        let text = kind.as_str().unwrap_or_default();
        let Some((version, kind)) = text.rsplit_once('/') else { continue };
        let mut args =
            vec![Cel::text(version), Cel::text(plural(version, kind, kinds)), namespace.clone()];
        if let Some(labels) = labels {
            let labels = labels
                .iter()
                .map(|(key, value)| (Cel::text(key.as_str()), Cel::Literal(value.clone())));
            args.push(Cel::Map(labels.collect()));
        }
        let items = Cel::name("resource").call("List", args).select("items");
        found = Some(match found {
            Some(before) => before.plus(items),
            None => items,
        });
    }
    found.ok_or_else(|| Obstacle::new("cloneList without kinds", "list the kinds").at(path))
}
