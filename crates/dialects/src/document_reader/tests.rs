//! The tables of fields say what is read where: for every field of every kind, a document that has it is read with the
//! table that the reference shows at its place.

use std::cell::RefCell;

use kiln_fields::{
    DocumentKind, Field, FieldTable, FieldType, Support, kubemod, kyverno, policies, validating,
};
use kiln_object::Kinds;
use kiln_value::{Map, Path, Value, value};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

use crate::compile;

thread_local! {
    static READ: RefCell<Vec<(String, &'static FieldTable)>> = RefCell::default();
}

/// Remembers that a map was read with a table.
pub(super) fn note(path: &Path, table: &'static FieldTable) {
    READ.with_borrow_mut(|read| read.push((path.to_string(), table)));
}

/// Kinds that are compiled, and parts that are read by other means than [`super::DocumentNode::fields`]: selectors and conditions
/// have readers of their own, metadata is open, and webhooks are the business of admission.
fn is_compiled(kind: &DocumentKind) -> bool {
    !matches!(kind.name, "GlobalContextEntry" | "UpdateRequest")
}

fn is_read_elsewhere(table: &'static FieldTable) -> bool {
    [
        &kiln_fields::METADATA,
        &kiln_fields::LABEL_SELECTOR,
        &kiln_fields::LABEL_REQUIREMENT,
        &kyverno::CONDITIONS,
        &kyverno::CONDITION,
        &kyverno::WEBHOOK_CONFIGURATION,
        &kyverno::REGISTRY_CREDENTIALS,
        &policies::POLICY_WEBHOOK,
        &policies::AUTOGEN,
        &policies::POD_CONTROLLERS,
    ]
    .iter()
    .any(|other| std::ptr::eq(*other, table))
}

/// One way from the document to a field.
type Way = Vec<(&'static FieldTable, &'static Field)>;

/// All ways to all fields, through each table once.
fn ways(table: &'static FieldTable, before: &Way, all: &mut Vec<Way>) {
    for field in table.fields {
        let mut way = before.clone();
        way.push((table, field));
        // What has no effect is not read any deeper.
        let is_read = matches!(field.support, Support::Full | Support::Deprecated(_));
        for next in field.holds.tables().into_iter().filter(|_| is_read) {
            if !is_read_elsewhere(next) && way.iter().all(|(seen, _)| !std::ptr::eq(*seen, next)) {
                ways(next, &way, all);
            }
        }
        all.push(way);
    }
}

fn example(text: &str) -> Value {
    let documents = read_bytes("example", text.as_bytes(), ReadOptions::kubernetes());
    documents.unwrap().into_iter().next().map(Document::into_value).unwrap_or_default()
}

/// A map with what a table requires, with the field on the way, and with what must stand beside it to be read at all.
fn written(table: &'static FieldTable, way: &[(&'static FieldTable, &'static Field)]) -> Value {
    let mut map = Map::new();
    let next = way.first().map(|(_, field)| *field);
    for field in table.fields.iter().filter(|field| field.is_required) {
        map.insert(field.name, value_of(field, &[]));
    }
    let is_next = |names: &[&str]| next.is_some_and(|field| names.contains(&field.name));
    let is = |other: &'static FieldTable| std::ptr::eq(table, other);
    if is(&kyverno::RULE) && is_next(&["celPreconditions"]) {
        map.insert("validate", value!({"cel": {"expressions": [{"expression": "true"}]}}));
    } else if is(&kyverno::RULE) && !is_next(&["generate", "mutate", "validate", "verifyImages"]) {
        map.insert("mutate", value!({"patchStrategicMerge": {}}));
    }
    let checks =
        ["pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests", "assert"];
    if (is(&kyverno::VALIDATE) || is(&kyverno::VALIDATE_FOREACH)) && !is_next(&checks) {
        map.insert("pattern", value!({"metadata": {"name": "?*"}}));
    }
    if is(&validating::CEL_RULE) && !is_next(&["expressions"]) {
        map.insert("expressions", value!([{"expression": "true"}]));
    }
    if is(&validating::CEL_RULE) && is_next(&["paramKind"]) {
        let reference = value!({"name": "limits", "parameterNotFoundAction": "Deny"});
        map.insert("paramRef", reference);
    }
    if is(&validating::CEL_RULE) && is_next(&["paramRef"]) {
        map.insert("paramKind", value!({"apiVersion": "v1", "kind": "ConfigMap"}));
    }
    if is(&kyverno::CONTEXT_ENTRY)
        && !is_next(&["configMap", "apiCall", "imageRegistry", "variable", "globalReference"])
    {
        map.insert("variable", value!({"value": 1}));
    }
    if is(&policies::GENERATE_ENTRY) && !is_next(&["expression", "template"]) {
        map.insert("template", value!({"value": "a: 1"}));
    }
    if is(&policies::MUTATION) && is_next(&["jsonPatch"]) {
        map.insert("patchType", "JSONPatch");
    }
    if is(&kyverno::API_CALL) && is_next(&["data"]) {
        map.insert("method", "POST");
    }
    if is(&policies::MATCH_CONSTRAINTS) && !is_next(&["resourceRules"]) {
        map.insert("resourceRules", Value::from_iter([written(&policies::RESOURCE_RULE, &[])]));
    }
    if is(&validating::VALIDATING_SPEC) && !is_next(&["matchConstraints"]) {
        map.insert("matchConstraints", written(&policies::MATCH_CONSTRAINTS, &[]));
    }
    if is(&policies::MUTATING_SPEC) && is_next(&["targetMatchConditions"]) {
        map.insert("targetMatchConstraints", value!({"resourceRules": []}));
    }
    if is(&kubemod::SPEC) && is_next(&["matches"]) {
        map.remove("match");
    }
    if let Some(field) = next {
        map.insert(field.name, value_of(field, &way[1..]));
    }
    Value::Map(map)
}

fn value_of(field: &'static Field, rest: &[(&'static FieldTable, &'static Field)]) -> Value {
    let table = match rest.first() {
        Some((table, _)) => Some(*table),
        None => field.holds.tables().first().copied(),
    };
    match (field.example, table) {
        (Some(text), _) if rest.is_empty() => example(text),
        (_, Some(table)) => {
            let inner = written(table, rest);
            if in_list(&field.holds, table) { Value::from_iter([inner]) } else { inner }
        }
        (_, None) => Value::Null,
    }
}

/// Whether a table stands in a list of the field.
fn in_list(holds: &FieldType, table: &'static FieldTable) -> bool {
    match holds {
        FieldType::Tables(inner) => std::ptr::eq(*inner, table),
        FieldType::Either(forms) => forms.iter().any(|form| in_list(form, table)),
        _ => false,
    }
}

fn path_of(way: &[(&'static FieldTable, &'static Field)], rest: &'static FieldTable) -> String {
    let mut path = String::new();
    for (at, (_, field)) in way.iter().enumerate() {
        let table = way.get(at + 1).map_or(rest, |(table, _)| *table);
        let dot = if path.is_empty() { "" } else { "." };
        let index = if in_list(&field.holds, table) { "[0]" } else { "" };
        path = format!("{path}{dot}{}{index}", field.name);
    }
    path
}

fn compiled_kinds() -> impl Iterator<Item = &'static DocumentKind> {
    [kyverno::KINDS, policies::KINDS, kubemod::KINDS]
        .into_iter()
        .flatten()
        .filter(|k| is_compiled(k))
}

#[test]
fn every_field_is_read_where_the_reference_has_it() {
    let builtin = Kinds::builtin();
    let (mut tried, mut wrong) = (0, Vec::new());
    for kind in compiled_kinds() {
        let mut all = Vec::new();
        ways(kind.table, &Vec::new(), &mut all);
        for way in &all {
            let (table, field) = *way.last().unwrap();
            let mut object = written(kind.table, way);
            object.set(["apiVersion"], kind.api_versions[0]).unwrap();
            object.set(["kind"], kind.name).unwrap();
            let text = emit(&object);
            let documents = read_bytes("p", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
            READ.take();
            let compiled = compile(&documents, &builtin);
            let at = path_of(&way[..way.len() - 1], table);
            let read = READ.take();
            tried += 1;
            if !read.iter().any(|(path, with)| *path == at && std::ptr::eq(*with, table)) {
                wrong.push(format!(
                    "{} {at}.{}: not read with {}",
                    kind.name, field.name, table.title
                ));
            }
            let says = |text: &str| compiled.diagnostics.iter().find(|d| d.message.contains(text));
            if let Some(slip) = says("unknown field").or(says(", and this is ")) {
                wrong.push(format!("{} {at}.{}: {slip}", kind.name, field.name));
            }
            if field.support == Support::Rejected && !compiled.has_errors() {
                wrong.push(format!("{} {at}.{}: is accepted", kind.name, field.name));
            }
        }
    }
    assert!(tried > 500, "only {tried} fields were tried");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}
