//! Recorded steps of client programs, and how those of a program that runs now are compared with them.

use kiln_testkit::corpus_json;
use kiln_value::{Map, Value, json};
use regex::Regex;

/// A request and what came back.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) warning: String,
    /// Of a watch as much as was read.
    pub(crate) body: String,
}

/// What a program did under one name.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) exchanges: Vec<Exchange>,
}

/// The recorded steps of a client; none when the recordings are not there, which is reported.
pub(crate) fn steps(client: &str) -> Option<Vec<Value>> {
    let recordings = corpus_json("kubectl/recordings.json")?;
    let steps = recordings.get(client).and_then(Value::as_list).expect("steps of the client");
    Some(steps.to_vec())
}

/// Asserts that a program did what was recorded, step by step, and got the same.
pub(crate) fn assert_same(client: &str, recorded: &[Value], done: &[Step]) {
    let names = |steps: &[Value]| -> Vec<String> {
        steps.iter().map(|step| step.str_at(["step"]).unwrap_or_default().to_owned()).collect()
    };
    let ours: Vec<String> = done.iter().map(|step| step.name.clone()).collect();
    assert_eq!(names(recorded), ours, "the steps");
    let normal = Normal::new();
    let mut problems = Vec::new();
    for (wanted, step) in recorded.iter().zip(done) {
        let requests = wanted.get("requests").and_then(Value::as_list).expect("requests").to_vec();
        let wanted: Vec<Value> = requests.iter().map(|request| normal.recorded(request)).collect();
        let got: Vec<Value> =
            step.exchanges.iter().map(|exchange| normal.exchange(exchange)).collect();
        for at in 0..wanted.len().max(got.len()) {
            if wanted.get(at) != got.get(at) {
                let text = |value: Option<&Value>| value.map(json::to_string).unwrap_or_default();
                let (wanted, got) = (text(wanted.get(at)), text(got.get(at)));
                problems.push(format!("{}, {at}:\n  wanted {wanted}\n  got    {got}", step.name));
            }
        }
    }
    let differ: std::collections::BTreeSet<&str> =
        problems.iter().filter_map(|problem| problem.split(',').next()).collect();
    let agree = done.len() - differ.len();
    eprintln!("corpus: {client}: {agree} of {} steps agree", done.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Replaces what differs from run to run.
struct Normal(Vec<(Regex, &'static str)>);

impl Normal {
    fn new() -> Self {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<UID>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "<TIME>"),
            (r"([?&]resourceVersion=)[1-9]\d*", "${1}<RV>"),
            (r"(continue=)[^&]+", "${1}<TOKEN>"),
            (r"(timeoutSeconds=)\d+", "${1}<N>"),
            (r#"(resourceVersion\\":\\")\d+"#, "${1}<RV>"),
        ];
        Normal(rules.iter().map(|(rule, to)| (Regex::new(rule).expect("a rule"), *to)).collect())
    }

    fn text(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (rule, to)| rule.replace_all(&text, *to).into_owned())
    }

    fn value(&self, value: &Value) -> Value {
        // Order of members says nothing.
        match value {
            Value::Map(map) => {
                let mut members: Vec<(String, Value)> = map
                    .iter()
                    .map(|(key, value)| (key.as_str().to_owned(), self.value(value)))
                    .collect();
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                Value::from(Map::from_iter(members))
            }
            Value::List(list) => list.iter().map(|item| self.value(item)).collect(),
            Value::String(text) => Value::from(self.text(&ordered(text))),
            other => other.clone(),
        }
    }

    fn line(
        &self,
        method: &str,
        path: &str,
        status: u16,
        headers: [&str; 2],
        response: &Value,
    ) -> Value {
        let [content_type, warning] = headers;
        self.value(&Value::from(Map::from_iter([
            ("method", Value::from(method)),
            ("path", Value::from(path)),
            ("status", Value::from(i64::from(status))),
            ("type", Value::from(content_type)),
            ("warning", Value::from(warning)),
            ("response", response.clone()),
        ])))
    }

    fn recorded(&self, request: &Value) -> Value {
        let text = |path: &[&str]| request.str_at(path.iter().copied()).unwrap_or_default();
        let status = request.get("status").and_then(Value::as_i64).unwrap_or_default();
        let headers =
            [text(&["response_headers", "content-type"]), text(&["response_headers", "warning"])];
        let response = request.get("response").cloned().unwrap_or(Value::Null);
        let status = u16::try_from(status).expect("a status");
        self.line(text(&["method"]), text(&["path"]), status, headers, &response)
    }

    fn exchange(&self, exchange: &Exchange) -> Value {
        let headers = [exchange.content_type.as_str(), exchange.warning.as_str()];
        let response = summary(&exchange.path, &exchange.body);
        self.line(&exchange.method, &exchange.path, exchange.status, headers, &response)
    }
}

/// A message with the object in it, if there is one, in the order of names: Go writes it in another one.
fn ordered(text: &str) -> String {
    let object = text.find("\"{").zip(text.rfind("}\""));
    let Some((from, to)) = object.filter(|(from, to)| from < to) else { return text.to_owned() };
    let inner =
        json::parse(&text[from..to + 2]).ok().and_then(|inner| json::parse(inner.as_str()?).ok());
    match inner {
        Some(inner) => {
            let inner = Value::from(json::to_canonical_string(&inner));
            format!("{}{}{}", &text[..from], json::to_string(&inner), &text[to + 2..])
        }
        None => text.to_owned(),
    }
}

/// What is in every namespace here, and was in none of the recorded cluster.
pub(crate) const CERTIFICATES: &str = "kube-root-ca.crt";

fn is_recorded(object: &Value) -> bool {
    object.str_at(["metadata", "name"]) != Some(CERTIFICATES)
}

/// The events of a watch, as the recordings name them.
pub(crate) fn events(body: &str) -> Vec<String> {
    let lines = body.lines().filter_map(|line| json::parse(line).ok());
    lines
        .filter(|event| event.get("object").is_some_and(is_recorded))
        .map(|event| {
            let text = |path: &[&str]| event.str_at(path.iter().copied()).unwrap_or_default();
            let mut name = format!("{} {}", text(&["type"]), text(&["object", "kind"]));
            let end = ["object", "metadata", "annotations", "k8s.io/initial-events-end"];
            if text(&end) == "true" {
                name.push_str(" initial-events-end");
            }
            name
        })
        .collect()
}

/// What the recordings keep of an answer.
fn summary(path: &str, body: &str) -> Value {
    if path.contains("watch=true") {
        return Value::from(Map::from_iter([(
            "events",
            events(body).into_iter().collect::<Value>(),
        )]));
    }
    let Ok(object) = json::parse(body) else {
        return Value::from(Map::from_iter([("text", body)]));
    };
    if object.get("kind").is_none() {
        return Value::Null;
    }
    let mut kept = Map::new();
    for field in ["kind", "apiVersion", "reason", "message", "code", "details"] {
        if let Some(value) = object.get(field) {
            kept.insert(field, value.clone());
        }
    }
    if let Some(status @ Value::String(_)) = object.get("status") {
        kept.insert("status", status.clone());
    }
    if let Some(items) = object.get("items").and_then(Value::as_list) {
        let items = items.iter().filter(|item| is_recorded(item)).count();
        kept.insert("items", Value::from(i64::try_from(items).expect("a few")));
    }
    // What is left of a list ends with the certificates.
    let left = object.get_path(["metadata", "remainingItemCount"]).and_then(Value::as_i64);
    let mut object = object;
    match left {
        Some(1) => {
            object.remove(["metadata", "continue"]);
            object.remove(["metadata", "remainingItemCount"]);
        }
        Some(left) => {
            let _ = object.set(["metadata", "remainingItemCount"], left - 1);
        }
        None => {}
    }
    let of_metadata = [
        "continue",
        "remainingItemCount",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
    ];
    for field in of_metadata {
        if let Some(value) = object.get_path(["metadata", field]) {
            let value = if field == "continue" { Value::from("<TOKEN>") } else { value.clone() };
            kept.insert(format!("metadata.{field}"), value);
        }
    }
    Value::from(kept)
}
