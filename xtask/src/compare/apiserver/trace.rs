//! A history on one server: what it answered, and what its watches told.

use anyhow::{Result, ensure};
use kiln_apiserver::ApiRequest;
use kiln_value::{Value, json, value};

use super::history::{Action, Operation, Seen};
use super::sides::{Answer, Side};

/// Watches that go on where others were have their number and this.
const RESUMED: usize = 1000;

pub(super) struct Trace {
    pub(super) namespace: String,
    /// What came back for each request; nothing for a watch that began.
    pub(super) steps: Vec<Option<Answer>>,
    pub(super) watches: Vec<WatchTrace>,
    /// The paths of the objects that there may be.
    pub(super) paths: Vec<String>,
}

pub(super) struct WatchTrace {
    /// Which step began it.
    pub(super) step: usize,
    pub(super) events: Vec<Value>,
    /// What a second watch told that went on after one of the events: how many had been told before, and those after.
    pub(super) resumed: Option<(usize, Vec<Value>)>,
    /// The list of the same selection after all requests.
    pub(super) list: Value,
}

/// Runs a history in a namespace that nobody else uses.
pub(super) fn run(
    history: &[Operation],
    side: &mut dyn Side,
    namespace: &str,
    other: Option<&Trace>,
) -> Result<Trace> {
    let mut seen = Seen::in_namespace(namespace);
    prepare(side, namespace)?;
    let mut steps = Vec::new();
    let mut begun: Vec<(usize, usize, ApiRequest)> = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        let request = operation.request(&seen);
        let path = request.path.clone();
        let answer = if operation.action == Action::Watch {
            let refused = side.watch(operation.number, &request)?;
            if refused.is_none() {
                begun.push((index, operation.number, request));
            }
            refused
        } else {
            let answer = side.send(&request)?;
            seen.note(operation, &path, &answer.body);
            if operation.action == Action::Define && answer.status == 201 {
                side.wait_for_kind(&collection_of(&answer.body, namespace))?;
            }
            Some(answer)
        };
        steps.push(answer);
    }
    let mut watches = Vec::new();
    for (step, number, request) in begun {
        let expected =
            other.and_then(|other| other.watches.iter().find(|watch| watch.step == step));
        let events = side.events(number, expected.map_or(0, |watch| watch.events.len()))?;
        let resumed = resume(side, number, &request, &events, newest(&steps[..step]))?;
        let list = side.send(&list_of(&request))?.body;
        watches.push(WatchTrace { step, events, resumed, list });
    }
    side.end();
    Ok(Trace {
        namespace: namespace.to_owned(),
        steps,
        watches,
        paths: seen.paths().cloned().collect(),
    })
}

fn prepare(side: &mut dyn Side, namespace: &str) -> Result<()> {
    let body = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let made = side.send(&post("/api/v1/namespaces", &body))?;
    ensure!(made.status == 201, "namespace {namespace}: {}", json::to_string(&made.body));
    // Pods need it, and no controller makes it. Ours has it already.
    let body =
        value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    side.send(&post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &body))?;
    Ok(())
}

pub(super) fn post(path: &str, body: &Value) -> ApiRequest {
    ApiRequest::new("POST", path).with_body("application/json", json::to_string(body))
}

/// Where the objects of a defined kind are.
pub(super) fn collection_of(definition: &Value, namespace: &str) -> String {
    let text =
        |path: &[&str]| definition.str_at(path.iter().copied()).unwrap_or_default().to_owned();
    let version = definition.get_path(["spec", "versions"]).and_then(|versions| versions.index(0));
    let version = version.and_then(|version| version.str_at(["name"])).unwrap_or_default();
    let group = format!("/apis/{}/{version}", text(&["spec", "group"]));
    let plural = text(&["spec", "names", "plural"]);
    match text(&["spec", "scope"]).as_str() {
        "Namespaced" => format!("{group}/namespaces/{namespace}/{plural}"),
        _ => format!("{group}/{plural}"),
    }
}

/// The newest version that answers have.
pub(super) fn newest(steps: &[Option<Answer>]) -> u64 {
    steps.iter().flatten().map(|answer| version(&answer.body)).max().unwrap_or(0)
}

/// Whether an event tells of an object.
pub(super) fn is_change(event: &Value) -> bool {
    matches!(event.str_at(["type"]), Some("ADDED" | "MODIFIED" | "DELETED"))
}

pub(super) fn version(object: &Value) -> u64 {
    let text = object.str_at(["metadata", "resourceVersion"]);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The parameters that say what is selected, and those that say from where.
fn selection(request: &ApiRequest) -> Vec<&str> {
    let selects =
        |pair: &&str| pair.starts_with("labelSelector=") || pair.starts_with("fieldSelector=");
    request.query.split('&').filter(selects).collect()
}

fn list_of(request: &ApiRequest) -> ApiRequest {
    ApiRequest { query: selection(request).join("&"), headers: Vec::new(), ..request.clone() }
}

/// Goes on after an event in the middle, as a client does whose connection broke.
fn resume(
    side: &mut dyn Side,
    number: usize,
    request: &ApiRequest,
    events: &[Value],
    began: u64,
) -> Result<Option<(usize, Vec<Value>)>> {
    let is_table = request.header("Accept").is_some_and(|accept| accept.contains("as="));
    let half = events.len() / 2;
    if is_table || half == 0 || !events[half - 1..].iter().all(is_change) {
        return Ok(None);
    }
    let versions: Vec<u64> =
        events.iter().filter_map(|event| event.get("object")).map(version).collect();
    // Not among the objects that were there at the beginning, which are no changes.
    let from = versions[half - 1];
    if from <= began
        || versions[..half].iter().any(|version| *version > from)
        || versions[half..].iter().any(|version| *version <= from)
    {
        return Ok(None);
    }
    let mut query = selection(request);
    let from = format!("resourceVersion={from}");
    query.extend([from.as_str(), "watch=true"]);
    let again = ApiRequest { query: query.join("&"), ..request.clone() };
    let number = number + RESUMED;
    let refused = side.watch(number, &again)?;
    ensure!(refused.is_none(), "a watch cannot go on: {:?}", refused.map(|answer| answer.body));
    let rest = side.events(number, events.len() - half)?;
    Ok(Some((half, rest)))
}
