//! What policies mention: names of fields, constants, numbers, quantities, and the boundaries between them.

use std::collections::{BTreeMap, BTreeSet};

use kiln_text::quantity::Quantity;
use kiln_value::Value;

/// What the documents of policies mention.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Everything that may name a field.
    pub(crate) names: BTreeSet<String>,
    /// Texts that values are compared with.
    pub(crate) texts: BTreeSet<String>,
    pub(crate) numbers: BTreeSet<i64>,
    pub(crate) quantities: BTreeSet<String>,
    /// Keys of labels, annotations and data.
    pub(crate) keys: BTreeSet<String>,
    /// Paths of fields below the object, as far as they are written out; `[]` is an element of a list.
    pub(crate) paths: BTreeSet<Vec<String>>,
    /// Paths below the elements of lists.
    pub(crate) element_paths: BTreeSet<Vec<String>>,
    /// What values at paths are compared with, where that is seen.
    pub(crate) types: BTreeMap<Vec<String>, ValueKind>,
}

/// The type of values, as far as what they are compared with tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Text,
    Number,
    Bool,
}

impl ValueKind {
    /// The type that a pattern or a constant is for.
    fn of(value: &Value) -> Self {
        match value {
            Value::Number(_) => ValueKind::Number,
            Value::Bool(_) => ValueKind::Bool,
            Value::String(text) => match text.trim_start_matches(['<', '>', '=', '!', ' ']) {
                "true" | "false" => ValueKind::Bool,
                number if number.parse::<i64>().is_ok() => ValueKind::Number,
                _ => ValueKind::Text,
            },
            Value::List(list) => list.iter().next().map_or(ValueKind::Text, ValueKind::of),
            Value::Map(_) | Value::Null => ValueKind::Text,
        }
    }

    /// The type that the text behind a path in an expression shows.
    fn behind(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let text = text.strip_prefix(".orValue(").unwrap_or(text);
        let text = text.trim_start_matches(['=', '!', '<', '>', '|', ' ', '`']);
        if text.starts_with("true") || text.starts_with("false") {
            return Some(ValueKind::Bool);
        }
        text.starts_with(|c: char| c.is_ascii_digit()).then_some(ValueKind::Number)
    }
}

/// Fields of policies that say which requests there are and what becomes of them, not what objects hold.
fn says_nothing_of_values(key: &str, value: &Value, path: &[String]) -> bool {
    let above = path.iter().rev().find(|step| *step != "[]").map(String::as_str);
    match key {
        "kinds"
        | "operations"
        | "apiGroups"
        | "apiVersions"
        | "validationFailureAction"
        | "failureAction"
        | "operator"
        | "patchType"
        | "failurePolicy"
        | "validationActions"
        | "matchPolicy"
        | "jsonPatch"
        | "op" => value.as_map().is_none(),
        "resources" => above == Some("resourceRules"),
        "name" => matches!(
            above,
            Some("rules" | "variables" | "matchConditions" | "context" | "celPreconditions")
        ),
        _ => false,
    }
}

/// The path of a chain of names below the object, if it is one.
fn path_of_object(chain: &[String]) -> Option<Vec<String>> {
    match chain.first().map(String::as_str)? {
        "request" if matches!(chain.get(1).map(String::as_str), Some("object" | "oldObject")) => {
            Some(chain[2..].to_vec())
        }
        "object" | "oldObject" => Some(chain[1..].to_vec()),
        _ => None,
    }
}

/// So many texts are tried for one field.
const MOST_TEXTS: usize = 60;

impl Words {
    pub(crate) fn of<'d>(documents: impl IntoIterator<Item = &'d Value>) -> Self {
        let mut words = Words::default();
        for document in documents {
            if let Some(spec) = document.get("spec") {
                words.value(spec, &mut Vec::new());
            }
        }
        let numbers: Vec<i64> = words.numbers.iter().copied().collect();
        for number in numbers {
            words.numbers.extend([number.saturating_sub(1), number.saturating_add(1)]);
        }
        words.numbers.extend([0, 1]);
        while words.texts.len() > MOST_TEXTS {
            let longest = words.texts.iter().max_by_key(|text| text.len()).cloned();
            longest.iter().for_each(|text| {
                words.texts.remove(text);
            });
        }
        words
    }

    fn value(&mut self, value: &Value, path: &mut Vec<String>) {
        match value {
            Value::Map(map) => {
                for (key, value) in map {
                    let plain =
                        key.trim_start_matches(['+', '<', '=', 'X', '^']).trim_matches(['(', ')']);
                    self.names.insert(plain.to_owned());
                    if matches!(
                        path.last().map(String::as_str),
                        Some("labels" | "annotations" | "data" | "matchLabels")
                    ) {
                        self.keys.insert(instance(plain));
                    }
                    if matches!(key.as_str(), "message" | "description") {
                        continue;
                    }
                    if plain == "list"
                        && let Some(text) = value.as_str()
                    {
                        self.list(text);
                    }
                    if says_nothing_of_values(plain, value, path) {
                        self.names_in(value);
                        continue;
                    }
                    path.push(plain.to_owned());
                    self.value(value, path);
                    path.pop();
                }
                if let (Some(Value::String(key)), Some(value)) = (map.get("key"), map.get("value"))
                {
                    self.compared(key, value);
                }
            }
            Value::List(list) => {
                path.push("[]".to_owned());
                list.iter().for_each(|value| self.value(value, path));
                path.pop();
            }
            Value::String(text) => {
                self.pattern_path(path, ValueKind::of(value));
                self.text(text);
            }
            Value::Number(number) => {
                self.pattern_path(path, ValueKind::Number);
                self.numbers.extend(number.as_i64());
            }
            Value::Bool(_) => self.pattern_path(path, ValueKind::Bool),
            Value::Null => self.pattern_path(path, ValueKind::Text),
        }
    }

    /// What a loop runs over is a list.
    fn list(&mut self, text: &str) {
        let (mut path, length) = chain_of(text.trim());
        if length == text.trim().len() && path.last().is_some_and(|step| step != "[]") {
            path.push("[]".to_owned());
        }
        self.paths.extend(path_of_object(&path));
    }

    /// Names alone, of what no object is compared with.
    fn names_in(&mut self, value: &Value) {
        match value {
            Value::Map(map) => map.values().for_each(|value| self.names_in(value)),
            Value::List(list) => list.iter().for_each(|value| self.names_in(value)),
            Value::String(text) => self.names_of(text),
            _ => {}
        }
    }

    fn names_of(&mut self, text: &str) {
        for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if name.len() > 1 && !name.starts_with(|c: char| c.is_ascii_digit()) {
                self.names.insert(name.to_owned());
            } else if let Ok(number) = name.parse::<i64>() {
                self.numbers.insert(number);
            }
        }
    }

    /// The type of a path that a condition compares with a constant.
    fn compared(&mut self, key: &str, value: &Value) {
        let Some(expression) =
            key.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"))
        else {
            return;
        };
        let (path, length) = chain_of(expression.trim());
        let rest = expression.trim()[length..].trim_start();
        if !(rest.is_empty() || rest.starts_with("||")) {
            return;
        }
        if let Some(path) = path_of_object(&path) {
            self.types.entry(path).or_insert_with(|| ValueKind::of(value));
        }
    }

    /// A path inside of a pattern or patch is one of the object.
    fn pattern_path(&mut self, path: &[String], kind: ValueKind) {
        let starts = ["pattern", "anyPattern", "patchStrategicMerge"];
        let Some(at) = path.iter().position(|step| starts.contains(&step.as_str())) else { return };
        let below: Vec<String> = path[at + 1..].to_vec();
        let below = match (path[at].as_str(), below.first().map(String::as_str)) {
            ("anyPattern", Some("[]")) => below[1..].to_vec(),
            _ => below,
        };
        if path[..at].iter().any(|step| step == "foreach") {
            self.element_paths.insert(below);
        } else {
            self.types.entry(below.clone()).or_insert(kind);
            self.paths.insert(below);
        }
    }

    fn text(&mut self, text: &str) {
        let is_expression = text.contains("{{")
            || text.contains("object")
            || text.contains("element")
            || text.contains("variables.")
            || text.contains("items")
            || text.contains(".all(");
        self.names_of(text);
        if is_expression {
            self.expression(text);
            for quoted in quoted(text) {
                self.constant(&quoted);
            }
            if !text.contains("{{") {
                return;
            }
        }
        if text.len() < 120 && !text.contains('\n') {
            for part in text.split(['|', '&']) {
                self.constant(part.trim());
            }
        }
    }

    fn constant(&mut self, text: &str) {
        let plain = text.trim_start_matches(['<', '>', '=', '!']).trim();
        // What is left of variables and of quotes is no constant.
        if plain.is_empty() || plain.len() > 80 || plain.contains(['{', '}', '\'', '"', '`']) {
            return;
        }
        if let Ok(number) = plain.parse::<i64>() {
            self.numbers.insert(number);
        }
        if plain.starts_with(|c: char| c.is_ascii_digit()) && Quantity::parse(plain).is_ok() {
            self.quantities.insert(plain.to_owned());
            return;
        }
        if plain.contains('/')
            || plain.contains('-')
            || plain.chars().all(|c| c.is_ascii_alphanumeric())
        {
            self.keys.insert(instance(plain));
        }
        if plain.starts_with('^') || plain.contains(['\\', '$', '(']) {
            self.texts.insert(matching(plain));
            return;
        }
        self.texts.insert(instance(plain));
        if plain.contains('*') {
            self.texts.insert(plain.replace('*', "x/y").replace('?', "x"));
        }
    }

    /// The paths that an expression reads.
    fn expression(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
            let before = rest[..at].chars().last();
            let chain = &rest[at..];
            let (mut path, length) = chain_of(chain);
            rest = &chain[length.max(1)..];
            if before == Some('.') || before == Some('\'') || path.len() < 2 {
                continue;
            }
            if is_list_of(rest) {
                path.push("[]".to_owned());
            } else if rest.starts_with(".orValue({})") {
                path.push("{}".to_owned());
            }
            if let Some(path) = path_of_object(&path) {
                if let Some(kind) = ValueKind::behind(rest) {
                    self.types.entry(path.clone()).or_insert(kind);
                }
                self.paths.insert(path);
                continue;
            }
            match path[0].as_str() {
                "request" | "variables" | "resource" | "namespaceObject" | "image" | "json"
                | "images" => {}
                _ => {
                    self.element_paths.insert(path[1..].to_vec());
                }
            }
        }
    }
}

/// Whether what stands before this text in an expression is a list.
fn is_list_of(rest: &str) -> bool {
    let rest = rest.strip_prefix(".orValue([])").unwrap_or(rest);
    let macros = [".all(", ".exists(", ".exists_one(", ".filter(", ".map(", "[]", "[*]", "[?"];
    macros.iter().any(|text| rest.starts_with(text))
}

/// A chain of names such as `object.spec.?a[0].b`, and how long it is in the text; a call behind it is not part of it.
fn chain_of(text: &str) -> (Vec<String>, usize) {
    let bytes = text.as_bytes();
    let mut path = Vec::new();
    let mut at = 0;
    let mut whole = 0;
    loop {
        let end = text[at..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(text.len(), |end| at + end);
        if bytes.get(end) == Some(&b'(') || end == at {
            // What follows is a call.
            let length = if path.is_empty() { end } else { whole };
            return (path, length);
        }
        path.push(text[at..end].to_owned());
        at = end;
        while bytes.get(at) == Some(&b'[') {
            let Some(close) = text[at..].find(']') else { return (path, at) };
            let inside = text[at + 1..at + close].trim_start_matches('?');
            match inside.trim_matches(['\'', '"']) {
                key if inside.starts_with(['\'', '"']) => path.push(key.to_owned()),
                _ => path.push("[]".to_owned()),
            }
            at += close + 1;
        }
        whole = at;
        if bytes.get(at) != Some(&b'.') {
            return (path, at);
        }
        at += 1;
        if bytes.get(at) == Some(&b'?') {
            at += 1;
        }
        if bytes.get(at) == Some(&b'"') {
            let Some(close) = text[at + 1..].find('"') else { return (path, at) };
            path.push(text[at + 1..at + 1 + close].to_owned());
            at += close + 2;
            if bytes.get(at) != Some(&b'.') {
                return (path, at);
            }
            at += 1;
        }
    }
}

/// Texts in quotes.
fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['\'', '"', '`']) {
        let mark = rest.as_bytes()[start] as char;
        let Some(end) = rest[start + 1..].find(mark) else { break };
        let inside = &rest[start + 1..start + 1 + end];
        if mark == '`' {
            found.extend(
                inside
                    .trim_matches(['[', ']', '"'])
                    .split(',')
                    .map(|part| part.trim().trim_matches('"').to_owned()),
            );
        } else {
            found.push(inside.to_owned());
        }
        rest = &rest[start + 1 + end + 1..];
    }
    found
}

/// A text that a wildcard stands for.
pub(crate) fn instance(wildcard: &str) -> String {
    wildcard.replace('*', "x").replace('?', "y")
}

/// Something that a regular expression may match: what is plain in it.
fn matching(regex: &str) -> String {
    let mut plain = String::new();
    let mut in_class = false;
    for c in regex.chars() {
        match c {
            '[' => {
                in_class = true;
                plain.push('1');
            }
            ']' => in_class = false,
            _ if in_class => {}
            '^' | '$' | '(' | ')' | '\\' | '+' | '*' | '?' | '|' | '{' | '}' => {}
            '.' => plain.push('x'),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn constants_and_paths_come_from_patterns_and_expressions() {
        let words = Words::of([&value!({"spec": {
            "rules": [{"validate": {"pattern": {"spec": {"=(volumes)": [{"name": "?*"}], "replicas": ">3"}}}}],
            "validations": [{"expression": "object.spec.?a[0].b == 'x' || object.metadata.labels['k/l'] == 'y'"}],
        }})]);
        let path = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        assert!(words.paths.contains(&path(&["spec", "volumes", "[]", "name"])));
        assert!(words.paths.contains(&path(&["spec", "a", "[]", "b"])));
        assert!(words.paths.contains(&path(&["metadata", "labels", "k/l"])));
        assert!(words.numbers.contains(&2) && words.numbers.contains(&4));
        assert!(words.texts.contains("x") && words.texts.contains("y"));
    }
}
