//! Histories: requests that follow each other, whose parts may be what the server said before.

use std::collections::BTreeMap;

use kiln_apiserver::ApiRequest;
use kiln_patch::{MergeRules, merge_patch};
use kiln_value::{Value, json};

/// What a client calls itself: the manager of fields, where a request names none.
const AGENT: &str = "histories/1";

/// One request of a history. Its texts may hold `${…}`, which stands for what the server said:
///
/// | text | stands for |
/// |---|---|
/// | `${ns}` | the namespace of the history |
/// | `${rv PATH}`, `${uid PATH}` | the version and UID of the object at a path, as it was last seen |
/// | `${old PATH}` | the version before that |
/// | `${made N}` | the name that request N was given for a `generateName` |
/// | `${next N}`, `${list N}` | the token and the version of the list that request N was answered with |
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// Its number in the history as it was made; it stays when others are left out.
    pub(super) number: usize,
    pub(super) action: Action,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) accept: Option<&'static str>,
    pub(super) content: &'static str,
    pub(super) body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A request with this method.
    Send(&'static str),
    /// A watch, which goes on to the end of the history.
    Watch,
    /// The definition of a kind, and the wait until it is served.
    Define,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Nothing,
    Value(Value),
    /// The object at a path as it was last seen, with a merge patch.
    Seen(String, Value),
}

impl Operation {
    /// How a reader types it.
    pub(super) fn shown(&self) -> String {
        let method = match self.action {
            Action::Send(method) => method,
            Action::Watch => "WATCH",
            Action::Define => "DEFINE",
        };
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let accept = self.accept.map(|accept| format!(" Accept: {accept}")).unwrap_or_default();
        let kind = match (&self.body, self.content) {
            (Body::Nothing, _) => String::new(),
            (_, "application/json") => " ".to_owned(),
            (_, other) => format!(" {other} "),
        };
        let body = match &self.body {
            Body::Nothing => String::new(),
            Body::Value(value) => json::to_string(value),
            Body::Seen(path, edit) => format!("(seen {path}) + {}", json::to_string(edit)),
        };
        format!("{:>2} {method} {}{query}{accept}{kind}{body}", self.number, self.path)
    }

    /// The request, with what a server said in the place of `${…}`.
    pub(super) fn request(&self, seen: &Seen) -> ApiRequest {
        let method = match self.action {
            Action::Send(method) => method,
            Action::Watch => "GET",
            Action::Define => "POST",
        };
        let mut query: Vec<String> = self
            .query
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(&seen.fill(value))))
            .collect();
        if self.action == Action::Watch {
            query.push("watch=true".to_owned());
        }
        let mut request = ApiRequest::new(method, &seen.fill(&self.path));
        request.query = query.join("&");
        let request = request
            .with_header("User-Agent", AGENT)
            .with_header("Accept", self.accept.unwrap_or("application/json"));
        let body = match &self.body {
            Body::Nothing => return request,
            Body::Value(value) => seen.fill_value(value),
            Body::Seen(path, edit) => {
                let mut object = seen.last(&seen.fill(path)).cloned().unwrap_or_else(Value::map);
                merge_patch(&mut object, &seen.fill_value(edit), MergeRules::kubernetes());
                object
            }
        };
        request.with_body(self.content, json::to_string(&body))
    }
}

/// Percent signs for what a query cannot hold.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// What one server has said so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    namespace: String,
    objects: BTreeMap<String, Vec<Value>>,
    names: BTreeMap<usize, String>,
    lists: BTreeMap<usize, (String, String)>,
}

impl Seen {
    pub(super) fn in_namespace(namespace: &str) -> Self {
        Seen { namespace: namespace.to_owned(), ..Seen::default() }
    }

    /// Takes an answer into account.
    pub(super) fn note(&mut self, operation: &Operation, path: &str, answer: &Value) {
        let text = |path: [&'static str; 2]| answer.str_at(path).unwrap_or_default().to_owned();
        if answer.get("items").is_some() {
            let list = (text(["metadata", "continue"]), text(["metadata", "resourceVersion"]));
            self.lists.insert(operation.number, list);
            return;
        }
        let name = text(["metadata", "name"]);
        if name.is_empty() || !is_whole(answer) {
            return;
        }
        let is_creation = matches!(operation.action, Action::Send("POST") | Action::Define);
        let at = if is_creation {
            self.names.insert(operation.number, name.clone());
            format!("{path}/{name}")
        } else {
            path.trim_end_matches("/status").trim_end_matches("/finalize").to_owned()
        };
        if operation.query.iter().any(|(name, _)| *name == "dryRun") {
            return;
        }
        let versions = self.objects.entry(at).or_default();
        let version =
            |value: &Value| value.str_at(["metadata", "resourceVersion"]).map(str::to_owned);
        if versions.last().and_then(version) != version(answer) {
            versions.push(answer.clone());
        }
    }

    /// The paths of all objects that were seen.
    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    fn last(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)?.last()
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.contains("${") => Value::from(self.fill(text)),
            Value::Map(map) => Value::Map(
                map.iter()
                    .map(|(key, value)| (self.fill(key.as_str()), self.fill_value(value)))
                    .collect(),
            ),
            Value::List(list) => {
                Value::from(list.iter().map(|item| self.fill_value(item)).collect::<Vec<_>>())
            }
            other => other.clone(),
        }
    }

    fn fill(&self, text: &str) -> String {
        let text = text.replace("${ns}", &self.namespace);
        let mut rest = text.as_str();
        let mut out = String::new();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, after)) = after.split_once('}') else { break };
            out.push_str(before);
            out.push_str(&self.meaning(inside));
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn meaning(&self, inside: &str) -> String {
        let (what, which) = inside.split_once(' ').unwrap_or((inside, ""));
        let number = which.parse().unwrap_or(usize::MAX);
        let versions = self.objects.get(which).map(Vec::as_slice).unwrap_or_default();
        let field = |object: Option<&Value>, field: &str, otherwise: &str| {
            object
                .and_then(|object| object.str_at(["metadata", field]))
                .unwrap_or(otherwise)
                .to_owned()
        };
        match what {
            "rv" => field(versions.last(), "resourceVersion", "1"),
            "old" => field(versions.iter().rev().nth(1), "resourceVersion", "1"),
            "uid" => field(versions.last(), "uid", "00000000-0000-4000-8000-000000000000"),
            "made" => self.names.get(&number).cloned().unwrap_or_else(|| "not-made".to_owned()),
            "next" => self.lists.get(&number).map(|list| list.0.clone()).unwrap_or_default(),
            "list" => self.lists.get(&number).map(|list| list.1.clone()).unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// Whether an answer is an object as it is stored: not a status, a scale or a table.
fn is_whole(answer: &Value) -> bool {
    let kind = answer.str_at(["kind"]).unwrap_or_default();
    !matches!(kind, "Status" | "Scale" | "Table" | "PartialObjectMetadata" | "")
        && answer.str_at(["metadata", "uid"]).is_some()
}
