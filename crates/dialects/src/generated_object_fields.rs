//! Fields that a built-in kind does not have, in objects that rules generate or patch.
//!
//! An API server drops or rejects them, long after the rule was written. What is a variable, and what lies below one,
//! is left alone; so is every kind that is not built in.

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_object::{Gvk, Kinds};
use kiln_rules::{Filters, Mutate, MutateTarget, Mutation, PatchBody};
use kiln_schema::types::{SchemaType, StructId, newest_types};
use kiln_value::{Path, Segment, Value, json};
use kiln_variables::Template;

use crate::document_reader::Report;

/// A field that the kind does not have, or has with another type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldProblem {
    /// Relative to the value that was checked.
    pub(crate) path: Path,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// What is wrong with an object of a kind, or with a part of one.
pub(crate) fn problems(kind: &Gvk, object: &Value) -> Vec<FieldProblem> {
    let Some(id) = newest_types().kind(&kind.api_version(), &kind.kind) else { return Vec::new() };
    let mut checker = FieldChecker::new(&kind.kind);
    checker.members(id, object, true);
    checker.found
}

/// What is wrong with a value that is put at a JSON Pointer of an object of a kind; without a value, with the pointer.
fn problems_at(kind: &Gvk, pointer: &str, value: Option<&Value>) -> Vec<FieldProblem> {
    let Some(id) = newest_types().kind(&kind.api_version(), &kind.kind) else { return Vec::new() };
    at(&kind.kind, &SchemaType::Struct(id), pointer, value)
}

/// What is wrong, for each of some kinds, with a value that is put at a JSON Pointer.
pub(crate) fn problems_at_all(
    kinds: &[Gvk],
    pointer: &str,
    value: Option<&Value>,
) -> Vec<FieldProblem> {
    of_all(kinds, |kind| problems_at(kind, pointer, value))
}

/// What is wrong, for each of some kinds, with a part of an object below these fields. Where a field is a list, the part is
/// one of its elements.
pub(crate) fn problems_below(kinds: &[Gvk], fields: &[&str], part: &Value) -> Vec<FieldProblem> {
    of_all(kinds, |kind| {
        let Some(id) = newest_types().kind(&kind.api_version(), &kind.kind) else {
            return Vec::new();
        };
        let mut checker = FieldChecker::new(&kind.kind);
        let root = SchemaType::Struct(id);
        let mut ty = &root;
        for (depth, name) in fields.iter().enumerate() {
            checker.path.push(*name);
            ty = match element_of(ty) {
                SchemaType::Struct(id) => match member(*id, name, depth == 0) {
                    Member::Of(ty) => ty,
                    Member::Anything => return Vec::new(),
                    Member::Unknown => {
                        checker.unknown(*id, name);
                        return checker.found;
                    }
                },
                SchemaType::Map(values) => values,
                _ => return Vec::new(),
            };
        }
        checker.value(element_of(ty), part);
        checker.found
    })
}

fn element_of(ty: &SchemaType) -> &SchemaType {
    match ty {
        SchemaType::List(items) => items,
        other => other,
    }
}

/// What is wrong with a value that is put at a JSON Pointer below the metadata of any object.
pub(crate) fn metadata_problems(pointer: &str, value: &Value) -> Vec<FieldProblem> {
    let meta =
        newest_types().kind("v1", "Namespace").and_then(|id| newest_types().field(id, "metadata"));
    meta.map_or_else(Vec::new, |meta| at("metadata", &meta.ty, pointer, Some(value)))
}

fn at(kind: &str, root: &SchemaType, pointer: &str, value: Option<&Value>) -> Vec<FieldProblem> {
    let mut checker = FieldChecker::new(kind);
    let mut ty = root;
    for (depth, segment) in pointer.split('/').skip(1).enumerate() {
        let name = segment.replace("~1", "/").replace("~0", "~");
        ty = match ty {
            SchemaType::Struct(id) => match member(*id, &name, depth == 0) {
                Member::Of(ty) => ty,
                Member::Anything => return Vec::new(),
                Member::Unknown if is_computed(&name) || name.starts_with('#') => {
                    return Vec::new();
                }
                Member::Unknown => {
                    checker.path.push(name.as_str());
                    checker.unknown(*id, &name);
                    return checker.found;
                }
            },
            SchemaType::Map(values) => values,
            SchemaType::List(items) => items,
            _ => return Vec::new(),
        };
        checker.path.push(name.as_str());
    }
    if let Some(value) = value {
        checker.value(ty, value);
    }
    checker.found
}

enum Member<'t> {
    Of(&'t SchemaType),
    /// Something is there, and nothing is known about it.
    Anything,
    Unknown,
}

fn member<'t>(id: StructId, name: &str, is_root: bool) -> Member<'t> {
    if let Some(field) = newest_types().field(id, name) {
        return Member::Of(&field.ty);
    }
    // Claims of StatefulSets are written as whole objects.
    let is_object = is_root || newest_types().get(id).name == "core/v1.PersistentVolumeClaim";
    match is_object && matches!(name, "apiVersion" | "kind") {
        true => Member::Anything,
        false => Member::Unknown,
    }
}

/// Whether a text becomes another one before it is used.
fn is_computed(text: &str) -> bool {
    ["{{", "((", "$("].iter().any(|mark| text.contains(mark))
}

/// The name in a key of a patch, without its anchor; none for what is not a field: variables, directives, wildcards.
fn field_of(key: &str) -> Option<(&str, bool)> {
    let bare = key.trim_start_matches(['+', '=', '<', '^', 'X']);
    let inside = bare.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    let name = inside.unwrap_or(key);
    let is_field = !is_computed(key) && !name.starts_with('$') && !name.contains(['*', '?']);
    is_field.then_some((name, inside.is_some()))
}

/// More fields than this are too many for a hint.
const FIELDS_TO_LIST: usize = 12;

struct FieldChecker<'k> {
    kind: &'k str,
    path: Path,
    found: Vec<FieldProblem>,
}

impl<'k> FieldChecker<'k> {
    fn new(kind: &'k str) -> Self {
        FieldChecker { kind, path: Path::root(), found: Vec::new() }
    }

    fn members(&mut self, id: StructId, object: &Value, is_root: bool) {
        let Value::Map(map) = object else { return };
        for (key, value) in map {
            let Some((name, is_anchor)) = field_of(key) else { continue };
            self.path.push(key);
            match member(id, name, is_root) {
                // What stands behind an anchor is a pattern, unless there is more below.
                Member::Of(_) if is_anchor && !matches!(value, Value::Map(_) | Value::List(_)) => {}
                Member::Of(ty) => self.value(ty, value),
                Member::Anything => {}
                Member::Unknown => self.unknown(id, name),
            }
            self.path.pop();
        }
    }

    fn value(&mut self, ty: &SchemaType, value: &Value) {
        match (ty, value) {
            (_, Value::Null) => {}
            (_, Value::String(text)) if is_computed(text) => {}
            (SchemaType::Struct(id), Value::Map(_)) => self.members(*id, value, false),
            (SchemaType::Map(values), Value::Map(map)) => {
                for (key, value) in map {
                    let Some((_, is_anchor)) = field_of(key) else { continue };
                    if is_anchor && !matches!(value, Value::Map(_) | Value::List(_)) {
                        continue;
                    }
                    self.path.push(key);
                    self.value(values, value);
                    self.path.pop();
                }
            }
            (SchemaType::List(items), Value::List(list)) => {
                for (at, value) in list.iter().enumerate() {
                    self.path.push(at);
                    self.value(items, value);
                    self.path.pop();
                }
            }
            (ty, value) => {
                if let Some(wanted) = wanted_instead(ty, value) {
                    let is = value.type_name();
                    let message = format!(
                        "{} of a {} must be {wanted}, and this is a {is}",
                        self.path, self.kind
                    );
                    let hint = match (ty, value) {
                        (
                            SchemaType::String | SchemaType::Bytes,
                            Value::Number(_) | Value::Bool(_),
                        ) => {
                            format!("put it in quotes: {:?}", json::to_string(value))
                        }
                        _ => format!("write {wanted}: the API server rejects anything else"),
                    };
                    self.found.push(FieldProblem { path: self.path.clone(), message, hint });
                }
            }
        }
    }

    fn unknown(&mut self, id: StructId, name: &str) {
        let fields: Vec<&str> = newest_types().fields(id).iter().map(|field| field.name).collect();
        let is_root = self.path.segments().len() == 1;
        let hint = match did_you_mean(name, fields.iter().copied()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None if is_root && matches!(self.kind, "ConfigMap" | "Secret") => {
                format!("put it below data, one level deeper: data: {{{name}: …}}")
            }
            None if fields.len() > FIELDS_TO_LIST => {
                let above = &self.path.segments()[..self.path.segments().len() - 1];
                let above: Vec<&str> = above
                    .iter()
                    .filter_map(|segment| match segment {
                        Segment::Key(key) => Some(key.as_str()),
                        Segment::Index(_) => None,
                    })
                    .collect();
                let kind = self.kind.to_lowercase();
                format!(
                    "`kubectl explain {}` lists the fields",
                    [&[kind.as_str()], &above[..]].concat().join(".")
                )
            }
            None => format!("the fields here are {}", fields.join(", ")),
        };
        let message = format!("a {} has no field {}", self.kind, self.path);
        self.found.push(FieldProblem { path: self.path.clone(), message, hint });
    }
}

/// What a type takes, where the value is none of it.
fn wanted_instead(ty: &SchemaType, value: &Value) -> Option<&'static str> {
    let is_scalar = matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
    match ty {
        SchemaType::String | SchemaType::Bytes => {
            (!matches!(value, Value::String(_))).then_some("text")
        }
        SchemaType::Bool => (!matches!(value, Value::Bool(_))).then_some("true or false"),
        SchemaType::Int32 | SchemaType::Int64 | SchemaType::Double => {
            (!matches!(value, Value::Number(_))).then_some("a number")
        }
        SchemaType::Quantity
        | SchemaType::IntOrString
        | SchemaType::Time
        | SchemaType::MicroTime
        | SchemaType::Duration => (!is_scalar).then_some("text or a number"),
        SchemaType::Struct(_) | SchemaType::Map(_) => {
            (!matches!(value, Value::Map(_))).then_some("a map")
        }
        SchemaType::List(_) => (!matches!(value, Value::List(_))).then_some("a list"),
        SchemaType::Raw | SchemaType::Fields | SchemaType::Json | SchemaType::SchemaOr(_) => None,
    }
}

/// Warns about what is wrong with a body, which stands at a path of the document. Labels and annotations that are not text
/// are refused elsewhere.
pub(crate) fn warn(
    report: &Report<'_>,
    base: &Path,
    problems: impl IntoIterator<Item = FieldProblem>,
) {
    let is_label = |problem: &FieldProblem| {
        let keys: Vec<_> = problem.path.segments().iter().take(2).cloned().collect();
        ["labels", "annotations"]
            .iter()
            .any(|field| keys == ["metadata", field].map(|key| Segment::Key(key.into())))
    };
    for problem in problems.into_iter().filter(|problem| !is_label(problem)) {
        let at = base.segments().iter().chain(problem.path.segments()).cloned().collect();
        report.warn_at_key(&at, problem.message, Some(problem.hint));
    }
}

/// Warns about what is wrong with the patches of a mutate program.
pub(crate) fn patches(report: &Report<'_>, include: &Filters, program: &Mutate, kinds: &Kinds) {
    let patched = match &program.targets {
        None => filtered(include, kinds),
        Some(_) => targeted(program.named_targets(), kinds),
    };
    // Of a kind that is not known everything may be right.
    if let Some(patched) = patched.filter(|kinds| !kinds.is_empty()) {
        change(report, &patched, &program.change);
    }
}

fn change(report: &Report<'_>, kinds: &[Gvk], change_: &Mutation) {
    match change_ {
        Mutation::Loops(loops) => loops.iter().for_each(|each| change(report, kinds, &each.change)),
        Mutation::Steps(_) => {}
        Mutation::Patch(patch) => match &patch.body {
            PatchBody::Strategic(template) => {
                let found = of_all(kinds, |kind| problems(kind, template.document()));
                warn(report, &patch.path, found);
            }
            PatchBody::Json(operations) => {
                for operation in operations.as_list().into_iter().flatten() {
                    let op = operation.str_at(["op"]).unwrap_or_default();
                    let pointer = operation.str_at(["path"]).unwrap_or_default();
                    let value = operation.get("value").filter(|_| matches!(op, "add" | "replace"));
                    for problem in of_all(kinds, |kind| problems_at(kind, pointer, value)) {
                        let place = report.place(&patch.path);
                        report
                            .add(Diagnostic::warning(problem.message).at(place).hint(problem.hint));
                    }
                }
            }
            PatchBody::JsonText(_) => {}
        },
    }
}

/// What is wrong for every one of some kinds, in the words for the first.
fn of_all(kinds: &[Gvk], check: impl Fn(&Gvk) -> Vec<FieldProblem>) -> Vec<FieldProblem> {
    let Some((first, others)) = kinds.split_first() else { return Vec::new() };
    let mut found = check(first);
    for other in others {
        let there = check(other);
        found.retain(|problem| there.iter().any(|other| other.path == problem.path));
    }
    found
}

/// The built-in kinds that filters take; none when they may take others.
pub(crate) fn filtered(include: &Filters, kinds: &Kinds) -> Option<Vec<Gvk>> {
    let mut found = Vec::new();
    for pattern in include.filters().iter().flat_map(|filter| &filter.kinds) {
        if !pattern.names_one_kind() || !pattern.subresource.is_empty() {
            return None;
        }
        let matching: Vec<Gvk> = kinds
            .by_kind(&pattern.kind)
            .into_iter()
            .map(kiln_object::Kind::gvk)
            .filter(|gvk| pattern.matches(&gvk.group, &gvk.version, &gvk.kind, ""))
            .collect();
        if matching.is_empty() {
            return None;
        }
        found.extend(matching);
    }
    built_in(found)
}

fn targeted(targets: &[MutateTarget], kinds: &Kinds) -> Option<Vec<Gvk>> {
    let plain = |template: &Template| {
        let text = template.is_plain().then(|| template.document().as_str())??;
        (!text.contains(['*', '?', '/'])).then(|| text.to_owned())
    };
    let mut found = Vec::new();
    for target in targets {
        let kind = plain(&target.kind)?;
        let version = target.api_version.as_ref().map(|version| {
            let text = version.is_plain().then(|| version.document().as_str())??;
            (!text.contains(['*', '?'])).then(|| text.to_owned())
        });
        match version {
            Some(version) => found.push(Gvk::new(&version?, &kind)),
            None => found.extend(kinds.by_kind(&kind).into_iter().map(kiln_object::Kind::gvk)),
        }
    }
    built_in(found)
}

/// The kinds, if all of them are built in.
fn built_in(mut kinds: Vec<Gvk>) -> Option<Vec<Gvk>> {
    kinds.sort();
    kinds.dedup();
    let is_known = |kind: &Gvk| newest_types().kind(&kind.api_version(), &kind.kind).is_some();
    kinds.iter().all(is_known).then_some(kinds)
}

/// Whether an object that is written out will have a name, as far as that is known before anything runs.
pub(crate) fn lacks_name(object: &Value, is_open: bool) -> bool {
    let is_object = object.get("apiVersion").is_some() && object.get("kind").is_some();
    let named = |metadata: &Value| match metadata {
        Value::Map(map) => ["name", "generateName"].iter().any(|key| map.contains_key(key)),
        // It is computed.
        _ => true,
    };
    is_object && !is_open && object.get("metadata").is_none_or(|metadata| !named(metadata))
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn told(api_version: &str, kind: &str, object: &Value) -> Vec<String> {
        let found = problems(&Gvk::new(api_version, kind), object);
        found.into_iter().map(|problem| format!("{} ({})", problem.message, problem.hint)).collect()
    }

    #[test]
    fn what_a_kind_does_not_have_is_told() {
        assert_eq!(
            told("v1", "Pod", &value!({"spec": {"contianers": []}})),
            ["a Pod has no field spec.contianers (did you mean \"containers\"?)"]
        );
        assert_eq!(
            told("v1", "ConfigMap", &value!({"ZOOKEEPER": "a"})),
            [
                "a ConfigMap has no field ZOOKEEPER (put it below data, one level deeper: data: {ZOOKEEPER: …})"
            ]
        );
        assert_eq!(
            told("v1", "ConfigMap", &value!({"data": {"port": 80}})),
            [
                "data.port of a ConfigMap must be text, and this is a number (put it in quotes: \"80\")"
            ]
        );
        assert_eq!(told("apps/v1", "Deployment", &value!({"spec": {"replicas": "3"}})).len(), 1);
    }

    #[test]
    fn variables_anchors_and_other_kinds_are_left_alone() {
        for (api_version, kind, object) in [
            (
                "v1",
                "Pod",
                value!({"spec": {"(priority)": ">3", "+(hostNetwork)": "{{ x }}", "$patch": "merge"}}),
            ),
            (
                "v1",
                "Pod",
                value!({"{{ key }}": 1, "spec": "{{ spec }}", "apiVersion": "v1", "kind": "Pod"}),
            ),
            (
                "apps/v1",
                "StatefulSet",
                value!({"spec": {"volumeClaimTemplates": [{"kind": "x", "spec": {}}]}}),
            ),
            ("v1", "Pod", value!({"spec": {"containers": [{"(name)": "*", "image": "a"}]}})),
            ("example.com/v1", "Pod", value!({"anything": 1})),
        ] {
            assert_eq!(told(api_version, kind, &object), Vec::<String>::new());
        }
    }

    #[test]
    fn pointers_are_followed() {
        let told = |pointer: &str, value: &Value| {
            problems_at(&Gvk::new("v1", "Pod"), pointer, Some(value)).len()
        };
        assert_eq!(told("/spec/containers/0/imagePullPolicy", &value!("Always")), 0);
        assert_eq!(told("/spec/containers/-/x", &value!("Always")), 1);
        assert_eq!(told("/spec/contianers/0", &value!({})), 1);
        assert_eq!(told("/metadata/labels/a~1b", &value!(true)), 1);
        assert_eq!(metadata_problems("/labels/a", &value!(1)).len(), 1);
        assert_eq!(metadata_problems("/labels/a", &value!("1")).len(), 0);
    }

    #[test]
    fn a_patch_must_be_wrong_for_every_kind() {
        let kinds = [Gvk::new("v1", "Pod"), Gvk::new("apps/v1", "Deployment")];
        let wrong = |patch: &Value| of_all(&kinds, |kind| problems(kind, patch)).len();
        assert_eq!(wrong(&value!({"spec": {"replicas": 3, "template": {}}})), 0);
        assert_eq!(wrong(&value!({"spec": {"replicaz": 3}})), 1);
    }
}
