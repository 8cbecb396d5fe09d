//! Where two servers differ on a history, apart from what each of them chooses: versions, UIDs, times, random names.

use std::sync::LazyLock;

use kiln_value::{Map, Value, json};
use regex::Regex;

use super::history::{Action, Operation};
use super::known;
use super::trace::Trace;

/// The first difference of a history.
pub(super) struct Difference {
    /// The number of the request; none for what a watch told in the end.
    pub(super) number: usize,
    /// What kind of difference, for a tally: where it is, without names.
    pub(super) class: String,
    pub(super) real: String,
    pub(super) ours: String,
}

/// What came of a comparison.
pub(super) enum Verdict {
    Same,
    /// They differ on purpose; a reason of [`known`]. What follows was not compared.
    Known(&'static str),
    Different(Difference),
}

/// Compares what two servers said to a history.
pub(super) fn compare(history: &[Operation], real: &Trace, ours: &Trace) -> Verdict {
    let mut names = [Names::of(real), Names::of(ours)];
    for (index, operation) in history.iter().enumerate() {
        let sides = [&real.steps[index], &ours.steps[index]];
        let said: Vec<Value> = sides
            .iter()
            .zip(&mut names)
            .map(|(step, names)| match step {
                None => Value::from("watching"),
                Some(answer) => {
                    let mut said = Map::new();
                    said.insert("status", i64::from(answer.status));
                    said.insert(
                        "warnings",
                        answer.warnings.iter().map(|text| names.text(text)).collect::<Vec<_>>(),
                    );
                    let mut body = answer.body.clone();
                    if operation.action == Action::Define {
                        // Ours is in force when it is stored, theirs a moment later.
                        body.remove(["status"]);
                    }
                    said.insert("body", names.plain(&body, ""));
                    Value::Map(said)
                }
            })
            .collect();
        if let Some(difference) = first(&said[0], &said[1], String::new()) {
            let class = format!("{} {}", shape(operation), class(&said, &difference.0));
            if let Some(reason) = known::reason(operation, &said[0], &said[1], &difference.0) {
                return Verdict::Known(reason);
            }
            let (_, real, ours) = difference;
            return Verdict::Different(Difference { number: operation.number, class, real, ours });
        }
    }
    for (real, ours) in real.watches.iter().zip(&ours.watches) {
        let operation = &history[real.step];
        let told: Vec<Value> = [real, ours]
            .iter()
            .zip(&mut names)
            .map(|(watch, names)| Value::from(names.events(&watch.events)))
            .collect();
        if let Some((path, real, ours)) = first(&told[0], &told[1], String::new()) {
            if let Some(reason) = known::reason(operation, &told[0], &told[1], &path) {
                return Verdict::Known(reason);
            }
            let class = format!("{} events{}", shape(operation), without_indices(&path));
            return Verdict::Different(Difference { number: operation.number, class, real, ours });
        }
    }
    Verdict::Same
}

/// The method and resource of a request.
fn shape(operation: &Operation) -> String {
    let method = match operation.action {
        Action::Send(method) => method,
        Action::Watch => "WATCH",
        Action::Define => "DEFINE",
    };
    let parts: Vec<&str> = operation.path.trim_matches('/').split('/').collect();
    let after_namespace =
        parts.iter().position(|part| *part == "namespaces").filter(|at| parts.len() > at + 2);
    let from = after_namespace.map_or(if parts[0] == "api" { 2 } else { 3 }, |at| at + 2);
    let resource = parts.get(from).unwrap_or(&"");
    let subresource = parts.get(from + 2).map(|sub| format!("/{sub}")).unwrap_or_default();
    let content = operation
        .content
        .split(['/', '+'])
        .nth(1)
        .filter(|_| method == "PATCH")
        .unwrap_or_default();
    format!("{method} {resource}{subresource} {content}")
}

fn class(said: &[Value], path: &str) -> String {
    let status = |at: usize| said[at].get("status").and_then(Value::as_i64).unwrap_or(0);
    if status(0) == status(1) {
        return format!("{}{}", status(0), without_indices(path));
    }
    format!("{} is {} here", status(0), status(1))
}

fn without_indices(path: &str) -> String {
    static INDEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"/\d+").expect("a pattern"));
    INDEX.replace_all(path, "/#").into_owned()
}

/// The first place where two values differ: its path, and both values.
fn first(real: &Value, ours: &Value, path: String) -> Option<(String, String, String)> {
    match (real, ours) {
        (Value::Map(a), Value::Map(b)) => {
            let mut keys: Vec<&str> =
                a.keys().chain(b.keys()).map(kiln_value::Key::as_str).collect();
            keys.sort_unstable();
            keys.dedup();
            // The status of an answer says more than its body.
            keys.sort_by_key(|key| *key != "status");
            keys.into_iter().find_map(|key| {
                let (a, b) = (a.get(key), b.get(key));
                let path = format!("{path}/{key}");
                match (a, b) {
                    (Some(a), Some(b)) => first(a, b, path),
                    _ => Some((path, shown(a), shown(b))),
                }
            })
        }
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b.iter()).enumerate();
            pairs.find_map(|(at, (a, b))| first(a, b, format!("{path}/{at}")))
        }
        _ => (real != ours).then(|| (path, shown(Some(real)), shown(Some(ours)))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(nothing)".to_owned(), json::to_canonical_string)
}

/// The names of what one server chose, in the order in which it told them.
struct Names {
    namespace: String,
    uids: Vec<String>,
    versions: Vec<String>,
    generated: Vec<String>,
}

impl Names {
    fn of(trace: &Trace) -> Self {
        Names {
            namespace: trace.namespace.clone(),
            uids: Vec::new(),
            versions: Vec::new(),
            generated: Vec::new(),
        }
    }

    /// Events, with the objects that a watch begins with in the order of names.
    fn events(&mut self, events: &[Value]) -> Vec<Value> {
        let is_first = |event: &&Value| event.str_at(["type"]) == Some("ADDED");
        let first = events.iter().take_while(is_first).count();
        let mut all: Vec<Value> = events
            .iter()
            .map(|event| {
                let mut event = event.clone();
                if event.str_at(["type"]) == Some("BOOKMARK") {
                    let _ = event.set(["object", "metadata", "resourceVersion"], "BOOKMARK");
                }
                self.plain(&event, "")
            })
            .collect();
        if !self.generated.is_empty() {
            all[..first].sort_by_key(json::to_canonical_string);
        }
        all
    }

    fn plain(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Map(map) => self.plain_map(map),
            Value::List(list) => {
                let mut all: Vec<Value> = list.iter().map(|item| self.plain(item, key)).collect();
                if key == "causes" {
                    // Kubernetes checks metadata once for each layer, and names a problem as often.
                    let mut once: Vec<Value> = Vec::new();
                    for cause in all {
                        if !once.contains(&cause) {
                            once.push(cause);
                        }
                    }
                    all = once;
                }
                // The times are left out, and they are what managers are ordered by.
                if key == "managedFields" || key == "items" && !self.generated.is_empty() {
                    all.sort_by_key(json::to_canonical_string);
                }
                Value::from(all)
            }
            Value::String(text) => Value::from(self.plain_text(text, key)),
            other => other.clone(),
        }
    }

    fn plain_map(&mut self, map: &Map) -> Value {
        let is_list = map.contains_key("items") || map.contains_key("rows");
        if let (Some(prefix), Some(name)) = (
            map.get("generateName").and_then(Value::as_str),
            map.get("name").and_then(Value::as_str),
        ) && name.len() == prefix.len() + 5
            && name.starts_with(prefix)
            && !self.generated.iter().any(|known| known == name)
        {
            self.generated.push(name.to_owned());
        }
        let mut keys: Vec<&str> = map.keys().map(kiln_value::Key::as_str).collect();
        keys.sort_unstable();
        let mut plain = Map::new();
        for key in keys {
            let Some(value) = map.get(key) else { continue };
            // Kubernetes' documentation of a field, which ours does not have.
            if key == "description" && map.contains_key("priority") {
                continue;
            }
            let value = match (key, value) {
                ("metadata", Value::Map(metadata)) if is_list => {
                    let mut metadata = metadata.clone();
                    if metadata.contains_key("resourceVersion") {
                        metadata.insert("resourceVersion", "LIST");
                    }
                    if metadata.get("continue").is_some_and(|token| token.as_str() != Some("")) {
                        metadata.insert("continue", "TOKEN");
                    }
                    Value::Map(metadata)
                }
                _ => self.plain(value, key),
            };
            plain.insert(self.text(key), value);
        }
        Value::Map(plain)
    }

    fn plain_text(&mut self, text: &str, key: &str) -> String {
        static TIME: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$").expect("a pattern")
        });
        static AGE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"^\d+[smhd]$").expect("a pattern"));
        match key {
            "uid" => symbol(&mut self.uids, text, "uid"),
            "resourceVersion"
                if text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 1 =>
            {
                symbol(&mut self.versions, text, "version")
            }
            "cells" if AGE.is_match(text) => "AGE".to_owned(),
            "time" | "creationTimestamp" | "deletionTimestamp" | "lastTransitionTime"
                if TIME.is_match(text) =>
            {
                "TIME".to_owned()
            }
            _ => self.text(text),
        }
    }

    fn text(&self, text: &str) -> String {
        static NUMBER: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\b\d+\b").expect("a pattern"));
        static MADE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\bmade-[a-z0-9]{5}\b").expect("a pattern"));
        static VOLUME: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"kube-api-access-[a-z0-9]{5}").expect("a pattern"));
        // A line of Kubernetes' own code, which depends on how it was built.
        static SCHEME: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"in scheme "[^"]*""#).expect("a pattern"));
        let mut text = text.to_owned();
        for (at, name) in self.generated.iter().enumerate() {
            text = text.replace(name.as_str(), &format!("made{at}"));
        }
        text = text.replace(&self.namespace, "NS");
        for (at, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid.as_str(), &format!("uid{at}"));
        }
        // A made-up name of what was not stored.
        text = MADE.replace_all(&text, "made-").into_owned();
        if text.to_lowercase().contains("resource version") || text.contains("ResourceVersion") {
            text = NUMBER.replace_all(&text, "N").into_owned();
        }
        let text = SCHEME.replace_all(&text, "in scheme");
        VOLUME.replace_all(&text, "kube-api-access").into_owned()
    }
}

fn symbol(known: &mut Vec<String>, text: &str, what: &str) -> String {
    let at = known.iter().position(|one| one == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    format!("{what}{at}")
}
