//! Checks objects against an OpenAPI schema, in the words of the API server.
//!
//! Schema and object come from users: steps are counted, and when there are too many of them the object is refused.

use std::collections::{HashMap, HashSet};

use kiln_text::{Regex, Time};
use kiln_value::{List, Map, Number, Value, json};

use crate::status::{FieldProblem, FieldProblemKind};

/// The most problems that are reported for one object.
pub(super) const MOST: usize = 100;
/// The most steps that are made for one object: a value met by a schema is one.
const STEPS: usize = 2_000_000;
/// What it costs in steps to compile a pattern, and a byte of it more.
const PATTERN: usize = 1_000;
const PATTERN_BYTE: usize = 20;

/// What is wrong with an object.
pub(crate) fn problems_of(object: &Value, schema: &Value) -> Vec<FieldProblem> {
    let mut work = Work { left: STEPS, patterns: HashMap::new() };
    let mut problems = Vec::new();
    for (name, inner) in fields(schema) {
        if matches!(name, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(value) = object.get(name) {
            check(value, inner, name, &mut problems, &mut work);
        }
    }
    required(object, schema, "", &mut problems);
    // Elements that a list must have only once come last.
    duplicates(object, schema, "", &mut problems, &mut work);
    problems.truncate(MOST);
    if work.left == 0 {
        let why = "its schema asks for too many checks of such an object";
        problems.push(FieldProblem::forbidden("<nil>", why));
    }
    problems
}

/// What is left to be done for one object, and what was done already.
struct Work<'s> {
    left: usize,
    patterns: HashMap<&'s str, Option<Regex>>,
}

impl<'s> Work<'s> {
    /// Whether there are so many steps left; they are spent then.
    fn spend(&mut self, steps: usize) -> bool {
        self.left = self.left.saturating_sub(steps);
        self.left > 0
    }

    /// Whether a text matches a pattern; yes if it is none, or there is no time to look.
    fn matches(&mut self, pattern: &'s str, text: &str) -> bool {
        if !self.patterns.contains_key(pattern) {
            if !self.spend(PATTERN + PATTERN_BYTE * pattern.len()) {
                return true;
            }
            self.patterns.insert(pattern, Regex::new(pattern).ok());
        }
        if !self.spend(text.len() / 16) {
            return true;
        }
        let regex = self.patterns.get(pattern).and_then(Option::as_ref);
        regex.is_none_or(|regex| regex.is_match(text))
    }
}

fn fields(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = schema.get("properties").and_then(Value::as_map);
    fields.into_iter().flat_map(Map::iter).map(|(name, inner)| (name.as_str(), inner))
}

fn texts<'s>(schema: &'s Value, field: &str) -> impl Iterator<Item = &'s str> + use<'s> {
    let list = schema.get(field).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str)
}

fn required(value: &Value, schema: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    for name in texts(schema, "required") {
        if value.get(name).is_none() {
            problems.push(FieldProblem::required(join(path, name), ""));
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(Number::Float(float)) if float.fract() != 0.0 => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    }
}

fn check<'s>(
    value: &Value,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) {
    // A long path is copied for every value below it.
    if problems.len() >= MOST || !work.spend(1 + path.len() / 64) {
        return;
    }
    let nullable = schema.get("nullable").and_then(Value::as_bool) == Some(true);
    if value.is_null() && nullable {
        return;
    }
    let found = type_of(value);
    let int_or_string =
        schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true);
    if int_or_string {
        if !matches!(found, "integer" | "string") {
            problems.push(wrong_type(path, found, "integer,string"));
            return;
        }
    } else if let Some(wanted) = schema.str_at(["type"]) {
        let fits = wanted == found || wanted == "number" && found == "integer";
        if !fits {
            problems.push(wrong_type(path, found, wanted));
            return;
        }
    }
    check_number(value, schema, path, problems);
    let goes_on = match value {
        Value::String(text) => {
            check_text(text, schema, path, problems, work);
            true
        }
        Value::List(list) => check_list(list, schema, path, problems, work),
        Value::Map(map) => check_map(value, map, schema, path, problems, work),
        _ => true,
    };
    if !goes_on {
        return;
    }
    if let Some(known) = schema.get("enum").and_then(Value::as_list)
        && work.spend(known.len() / 4)
        && !known.contains(value)
    {
        let known = known
            .iter()
            .map(|known| known.as_str().map_or_else(|| json::to_string(known), str::to_owned));
        problems.push(FieldProblem::new(
            path,
            FieldProblemKind::Unsupported(value.clone(), known.collect()),
        ));
    }
    combined(value, schema, path, problems, work);
}

/// `maximum`, `minimum`, `multipleOf`.
fn check_number(value: &Value, schema: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    let mut say = |why: String| {
        problems.push(FieldProblem::invalid(path, value.clone(), format!("{path} in body {why}")));
    };
    let number = |field: &str| schema.get(field).and_then(Value::as_f64);
    let exclusive = |field: &str| schema.get(field).and_then(Value::as_bool) == Some(true);
    let shown = |field: &str| schema.get(field).map(json::to_string).unwrap_or_default();
    let Some(given) = value.as_f64() else { return };
    if let Some(most) = number("maximum") {
        if exclusive("exclusiveMaximum") && given >= most {
            say(format!("should be less than {}", shown("maximum")));
        } else if given > most {
            say(format!("should be less than or equal to {}", shown("maximum")));
        }
    }
    if let Some(least) = number("minimum") {
        if exclusive("exclusiveMinimum") && given <= least {
            say(format!("should be greater than {}", shown("minimum")));
        } else if given < least {
            say(format!("should be greater than or equal to {}", shown("minimum")));
        }
    }
    if let Some(step) = number("multipleOf")
        && step > 0.0
        && (given / step).fract() != 0.0
    {
        say(format!("should be a multiple of {}", shown("multipleOf")));
    }
}

/// How many items there may be, and each of them. Whether there is work left for more.
fn check_list<'s>(
    list: &List,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) -> bool {
    let number = |field: &str| schema.get(field).and_then(Value::as_f64);
    let length = list.len();
    if let Some(least) = number("minItems")
        && (length as f64) < least
    {
        let why = format!("{path} in body should have at least {least} items");
        problems.push(FieldProblem::invalid(path, length, why));
    }
    if let Some(most) = number("maxItems")
        && length as f64 > most
    {
        problems.push(FieldProblem::new(path, FieldProblemKind::TooMany(length, most as usize)));
    }
    if let Some(items) = schema.get("items") {
        for (i, item) in list.iter().enumerate() {
            check(item, items, &format!("{path}[{i}]"), problems, work);
            if work.left == 0 {
                return false;
            }
        }
    }
    true
}

/// How many properties there may be, which of them must be there, and each of them. Whether there is work left for more.
fn check_map<'s>(
    value: &Value,
    map: &Map,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) -> bool {
    let number = |field: &str| schema.get(field).and_then(Value::as_f64);
    let length = map.len();
    if let Some(least) = number("minProperties")
        && (length as f64) < least
    {
        let why = format!("{path} in body should have at least {least} properties");
        problems.push(FieldProblem::invalid(path, length, why));
    }
    if let Some(most) = number("maxProperties")
        && length as f64 > most
    {
        problems.push(FieldProblem::new(path, FieldProblemKind::TooMany(length, most as usize)));
    }
    let asked = schema.get("required").and_then(Value::as_list).map_or(0, |list| list.len());
    if !work.spend(asked) {
        return false;
    }
    required(value, schema, path, problems);
    let known = schema.get("properties").and_then(Value::as_map);
    let entries = schema.get("additionalProperties");
    // One of many alternatives mostly says nothing of the fields; where it does, those that it does not know
    // cost time, too.
    let looks = known.is_some() || entries.is_some();
    if looks && !work.spend(length / 8) {
        return false;
    }
    for (key, inner) in looks.then(|| map.iter()).into_iter().flatten() {
        if let Some(schema @ Value::Map(_)) = known.and_then(|known| known.get(key)).or(entries) {
            check(inner, schema, &join(path, key), problems, work);
            if work.left == 0 {
                return false;
            }
        }
    }
    true
}

/// `allOf`, `anyOf`, `oneOf`, `not`.
fn combined<'s>(
    value: &Value,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) {
    let list = |field: &str| schema.get(field).and_then(Value::as_list);
    for inner in list("allOf").into_iter().flat_map(|list| list.iter()) {
        check(value, inner, path, problems, work);
    }
    let mut fits = |schema: &'s Value| {
        let mut found = Vec::new();
        check(value, schema, path, &mut found, work);
        found.is_empty()
    };
    let mut say = |why: &str| {
        problems.push(FieldProblem::invalid(path, value.clone(), format!("{path} in body {why}")));
    };
    if let Some(any) = list("anyOf")
        && !any.iter().any(&mut fits)
    {
        say("must validate at least one schema (anyOf)");
    }
    if let Some(one) = list("oneOf") {
        match one.iter().filter(|schema| fits(schema)).count() {
            1 => {}
            0 => say("must validate one and only one schema (oneOf). Found none valid"),
            many => say(&format!(
                "must validate one and only one schema (oneOf). Found {many} valid alternatives"
            )),
        }
    }
    if let Some(not) = schema.get("not")
        && fits(not)
    {
        say("must not validate the schema (not)");
    }
}

fn wrong_type(path: &str, found: &str, wanted: &str) -> FieldProblem {
    let why = format!("{path} in body must be of type {wanted}: {found:?}");
    FieldProblem::new(path, FieldProblemKind::Type(Value::from(found), why))
}

fn check_text<'s>(
    text: &str,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) {
    let say = |why: String| FieldProblem::invalid(path, text, format!("{path} in body {why}"));
    let limit = |field: &str| {
        schema.get(field).and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok())
    };
    let length = text.chars().count();
    if let Some(least) = limit("minLength")
        && length < least
    {
        problems.push(say(format!("should be at least {least} chars long")));
    }
    if let Some(most) = limit("maxLength")
        && length > most
    {
        problems.push(FieldProblem::new(path, FieldProblemKind::TooLong(most)));
    }
    if let Some(pattern) = schema.str_at(["pattern"])
        && !work.matches(pattern, text)
    {
        problems.push(say(format!("should match '{pattern}'")));
    }
    let Some(format) = schema.str_at(["format"]) else { return };
    let fits = match format {
        "date-time" => Time::parse_rfc3339(text).is_ok(),
        "date" => Time::parse("2006-01-02", text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => {
            text.len() == 36
                && text.char_indices().all(|(at, c)| {
                    if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() }
                })
        }
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    };
    if !fits {
        let why = format!("{path} in body must be of type {format}: {text:?}");
        problems.push(FieldProblem::invalid(path, text, why));
    }
}

fn duplicates<'s>(
    value: &Value,
    schema: &'s Value,
    path: &str,
    problems: &mut Vec<FieldProblem>,
    work: &mut Work<'s>,
) {
    if problems.len() >= MOST || !work.spend(1 + path.len() / 64) {
        return;
    }
    match value {
        Value::Map(map) => {
            let known = schema.get("properties").and_then(Value::as_map);
            let entries = schema.get("additionalProperties");
            for (key, inner) in map {
                if let Some(schema @ Value::Map(_)) =
                    known.and_then(|known| known.get(key)).or(entries)
                {
                    duplicates(inner, schema, &join(path, key), problems, work);
                }
            }
        }
        Value::List(list) => {
            let keys: Vec<&str> = texts(schema, "x-kubernetes-list-map-keys").collect();
            let default =
                |key: &str| schema.get_path(["items", "properties", key, "default"]).cloned();
            let key_of = |item: &Value| match schema.str_at(["x-kubernetes-list-type"]) {
                Some("set") => Some(item.clone()),
                Some("map") => {
                    let pairs = keys.iter().filter_map(|key| {
                        Some((*key, item.get(key).cloned().or_else(|| default(key))?))
                    });
                    Some(Value::Map(pairs.collect()))
                }
                _ => None,
            };
            let mut seen = HashSet::new();
            for (i, item) in list.iter().enumerate() {
                if let Some(key) = key_of(item)
                    && !seen.insert(json::to_canonical_string(&key))
                {
                    problems.push(FieldProblem::duplicate(format!("{path}[{i}]"), key));
                }
                if let Some(items) = schema.get("items") {
                    duplicates(item, items, &format!("{path}[{i}]"), problems, work);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn problems_are_told_in_the_servers_words() {
        let schema = value!({"type": "object", "properties": {"spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green"]},
            "replicas": {"type": "integer", "maximum": 10, "minimum": 1},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "name": {"type": "string", "pattern": "^a+$", "maxLength": 3},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }}}});
        let check = |spec: Value| -> Vec<String> {
            let mut object = value!({});
            object.set(["spec"], spec).unwrap();
            problems_of(&object, &schema).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            check(value!({"color": "blue"})),
            [r#"spec.color: Unsupported value: "blue": supported values: "red", "green""#]
        );
        assert_eq!(check(value!({})), ["spec.color: Required value"]);
        assert_eq!(
            check(value!({"color": "red", "replicas": 40})),
            [
                "spec.replicas: Invalid value: 40: spec.replicas in body should be less than or equal to 10"
            ]
        );
        assert_eq!(
            check(value!({"color": "red", "set": null})),
            [r#"spec.set: Invalid value: "null": spec.set in body must be of type array: "null""#]
        );
        assert_eq!(
            check(value!({"color": "red", "set": ["x", "x"]})),
            [r#"spec.set[1]: Duplicate value: "x""#]
        );
        assert_eq!(
            check(value!({"color": "red", "name": "bbbb"})),
            [
                "spec.name: Too long: may not be more than 3 bytes",
                r#"spec.name: Invalid value: "bbbb": spec.name in body should match '^a+$'"#
            ]
        );
        assert_eq!(
            check(value!({"color": "red", "map": {"a": "x"}})),
            [
                r#"spec.map.a: Invalid value: "string": spec.map.a in body must be of type integer: "string""#
            ]
        );
    }

    #[test]
    fn a_schema_that_asks_for_too_much_is_told_so() {
        // A hundred thousand values, each to be compared with a thousand schemas.
        let one = value!({"type": "string", "pattern": "^a{1,100}$", "minLength": 2});
        let any = Value::from(vec![one; 1000]);
        let mut schema = value!({"type": "object", "properties": {"list": {"type": "array"}}});
        schema.set(["properties", "list", "items"], value!({"type": "string"})).unwrap();
        schema.set(["properties", "list", "items", "anyOf"], any).unwrap();
        let mut object = value!({});
        object.set(["list"], Value::from(vec![Value::from("b"); 100_000])).unwrap();
        let problems = problems_of(&object, &schema);
        assert!(problems.len() <= MOST + 1);
        let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(told.contains("must validate at least one schema (anyOf)"), "{told}");
        // Nothing is wrong with these, so that nothing ends it early.
        object.set(["list"], Value::from(vec![Value::from("aa"); 100_000])).unwrap();
        let all = Value::from(vec![value!({"minLength": 1}); 1000]);
        schema.set(["properties", "list", "items", "allOf"], all).unwrap();
        let told: Vec<String> =
            problems_of(&object, &schema).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["<nil>: Forbidden: its schema asks for too many checks of such an object"]
        );
    }
}
