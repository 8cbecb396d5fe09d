//! Reading: one object, or a list of them, now or as they were.

pub(crate) mod field_selector;
pub(crate) mod table;
pub(crate) mod watch;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kiln_object::{NamespacedName, Selector};
use kiln_value::{Map, Str, Value, json, value};

use crate::request::media::{self, ResponseForm};
use crate::request::paths::RequestTarget;
use crate::request::{Parameters, Response};
use crate::server::{Server, ServerCall, ServerState};
use crate::status::{FieldProblem, RequestFailure};
use crate::storage::{VersionText, text_of};
use crate::types::convert::from_storage;
use crate::write::scale;
use field_selector::FieldSelector;

/// Which objects of a kind are meant.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) labels: Selector,
    pub(crate) fields: FieldSelector,
}

impl Filter {
    pub(crate) fn read(
        state: &ServerState,
        target: &RequestTarget,
        parameters: &Parameters,
    ) -> Result<Self, RequestFailure> {
        let labels = parameters.get("labelSelector").unwrap_or_default();
        let field_text = parameters.get("fieldSelector").unwrap_or_default();
        let selector = Selector::parse(labels)
            .map_err(|error| RequestFailure::bad_request(error.to_string()))?;
        let gvk = target.kind.gvk();
        let mut fields = FieldSelector::parse(field_text, &gvk, &state.customs)?;
        if target.watch && !target.name.is_empty() {
            let name = format!("metadata.name={}", target.name);
            fields = FieldSelector::parse(&name, &gvk, &state.customs)?;
        }
        Ok(Filter { labels: selector, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object, in the version that is asked for, is meant.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.labels.is_everything() || self.labels.matches(field_selector::labels(object)))
            && (self.fields.is_everything() || self.fields.matches(object))
    }
}

/// A number in `resourceVersion`.
pub(crate) fn revision(parameters: &Parameters) -> Result<Option<u64>, RequestFailure> {
    match parameters.get("resourceVersion").unwrap_or_default() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let why = if text.chars().all(|c| c.is_ascii_digit()) { "value out of range" } else { "invalid syntax" };
            RequestFailure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}"
            ))
        }),
    }
}

/// What is wrong with the options of a list or watch.
pub(crate) fn check_options(parameters: &Parameters, is_watch: bool) -> Result<(), RequestFailure> {
    // In the order in which Kubernetes reads them.
    parameters.number("timeoutSeconds")?;
    parameters.number("limit")?;
    let mut problems = Vec::new();
    let version = parameters.get("resourceVersion").unwrap_or_default();
    let matching = parameters.get("resourceVersionMatch").unwrap_or_default();
    let initial = parameters.get("sendInitialEvents").filter(|text| !text.is_empty());
    if let Some(initial) = initial {
        if !is_watch {
            problems.push(FieldProblem::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        } else if matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            problems.push(FieldProblem::forbidden("resourceVersionMatch", why));
        }
        let _ = initial;
    } else if !matching.is_empty() {
        if is_watch {
            let why =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            problems.push(FieldProblem::forbidden("resourceVersionMatch", why));
        } else if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            problems.push(FieldProblem::forbidden("resourceVersionMatch", why));
        }
    }
    if !is_watch && !matching.is_empty() {
        if !parameters.get("continue").unwrap_or_default().is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            problems.push(FieldProblem::forbidden("resourceVersionMatch", why));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""];
            problems.push(FieldProblem::unsupported("resourceVersionMatch", matching, &known));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            problems.push(FieldProblem::forbidden("resourceVersionMatch", why));
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(RequestFailure::options("ListOptions", &problems))
    }
}

/// Where a list goes on.
struct Resume {
    revision: u64,
    after: NamespacedName,
}

impl Resume {
    fn parse(token: &str) -> Result<Self, RequestFailure> {
        let bad = |why: &str| {
            RequestFailure::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|error| bad(&error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| bad("not a text"))?;
        let value = json::parse(&text).map_err(|error| bad(&error.to_string()))?;
        let start = value.str_at(["start"]).ok_or_else(|| bad("no start"))?.trim_end_matches('\0');
        // The namespace of cluster-scoped kinds is empty, so that two slashes follow each other.
        let place = start.strip_prefix('/').and_then(|start| start.split_once('/'));
        let (namespace, name) = place.ok_or_else(|| bad("no place"))?;
        let revision =
            value.get("rv").and_then(Value::as_i64).and_then(|rv| u64::try_from(rv).ok());
        Ok(Resume { revision: revision.unwrap_or(0), after: (Str::new(namespace), Str::new(name)) })
    }

    fn token(&self) -> String {
        let start = format!("/{}/{}\0", self.after.0, self.after.1);
        let token = value!({"v": "meta.k8s.io/v1", "rv": (self.revision), "start": start});
        URL_SAFE_NO_PAD.encode(json::to_string(&token))
    }
}

/// Objects as they are read.
pub(crate) struct Page {
    pub(crate) objects: Vec<Value>,
    /// The texts of the objects, where they are listed as they are stored now.
    texts: Vec<Option<VersionText>>,
    pub(crate) revision: u64,
    pub(crate) resume: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Reads what a request asks for.
pub(crate) fn page(server: &Server, call: &ServerCall<'_>) -> Result<Page, RequestFailure> {
    check_options(&call.parameters, false)?;
    let state = server.read();
    let filter = Filter::read(&state, &call.target, &call.parameters)?;
    let now = state.store.revision();
    let asked = revision(&call.parameters)?;
    let resume = call.parameters.get("continue").filter(|token| !token.is_empty());
    let resume = resume.map(Resume::parse).transpose()?;
    if resume.is_some() && asked.is_some_and(|asked| asked != 0) {
        return Err(RequestFailure::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let exact = call.parameters.get("resourceVersionMatch") == Some("Exact");
    if let Some(asked) = asked
        && asked > now
    {
        return Err(too_large(asked, now));
    }
    let at = match &resume {
        Some(resume) if resume.revision > 0 => resume.revision,
        _ if exact => asked.unwrap_or(now),
        _ => now,
    };
    let limit = call.parameters.number("limit")?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let table = state.store.table(&ServerState::key(&call.target));
    let mut page = Page {
        objects: Vec::new(),
        texts: Vec::new(),
        revision: at,
        resume: None,
        remaining: None,
    };
    let Some(table) = table else { return Ok(page) };
    let namespace = call.target.namespace.as_str();
    let after = resume.as_ref().map(|resume| &resume.after);
    if at == now {
        let now = table.range_of_texts(namespace, after);
        let now = now.map(|(place, object, text)| (place, object, Some(text)));
        collect(now, &call.target, &filter, limit, &mut page);
    } else {
        let Some(past) = table.at(at) else { return Err(gone(resume.as_ref(), now)) };
        let inside = past.range((!namespace.is_empty()).then_some(namespace), after);
        let inside = inside.map(|(place, object)| (place, object, None));
        collect(inside, &call.target, &filter, limit, &mut page);
    }
    Ok(page)
}

fn collect<'p>(
    objects: impl Iterator<Item = (&'p NamespacedName, &'p Value, Option<&'p VersionText>)>,
    target: &RequestTarget,
    filter: &Filter,
    limit: Option<usize>,
    page: &mut Page,
) {
    // `ObjectMap::page` would do, but a list without selectors also says how many objects remain.
    let mut last = None;
    let mut more = 0;
    for (place, stored, text) in objects {
        let object = from_storage(stored, &target.kind);
        if !filter.matches(&object) {
            continue;
        }
        if limit.is_some_and(|limit| page.objects.len() >= limit) {
            more += 1;
            // With a selector the number of remaining items is left out.
            if !filter.is_everything() {
                break;
            }
            continue;
        }
        page.texts.push(text.filter(|_| object.same(stored)).cloned());
        page.objects.push(object);
        last = Some(place.clone());
    }
    if let (Some(after), true) = (last, more > 0) {
        page.resume = Some(Resume { revision: page.revision, after }.token());
        page.remaining = filter.is_everything().then_some(more);
    }
}

fn gone(resume: Option<&Resume>, now: u64) -> RequestFailure {
    match resume {
        Some(resume) => {
            let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
            let mut failure = RequestFailure::new(410, "Expired", message);
            failure.resume = Some(Resume { revision: now, after: resume.after.clone() }.token());
            failure
        }
        None => RequestFailure::new(
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        ),
    }
}

fn too_large(asked: u64, now: u64) -> RequestFailure {
    let message = format!("Timeout: Too large resource version: {asked}, current: {now}");
    let cause =
        value!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let mut details = Map::new();
    details.insert("causes", vec![cause]);
    details.insert("retryAfterSeconds", 1);
    let mut failure = RequestFailure::new(504, "Timeout", message).with_details(details);
    failure.retry_after = Some(1);
    failure
}

/// Answers a list.
pub(crate) fn list(server: &Server, call: &ServerCall<'_>) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let page = page(server, call)?;
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", page.revision.to_string());
    if let Some(resume) = &page.resume {
        metadata.insert("continue", resume.as_str());
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount", remaining);
    }
    let kind = &call.target.kind;
    let list = match form {
        ResponseForm::Table => {
            let state = server.read();
            let include = call.parameters.get("includeObject").unwrap_or_default();
            table::table(
                &state,
                &call.target,
                &page.objects,
                metadata,
                include,
                server.host.now().0,
            )
        }
        ResponseForm::Metadata => {
            let items: Vec<Value> = page.objects.iter().map(metadata_only).collect();
            let empty = items.is_empty();
            let mut list = listing("PartialObjectMetadataList", "meta.k8s.io/v1", metadata, items);
            if empty {
                // Go: a list to which nothing was ever added.
                let _ = list.set(["items"], Value::Null);
            }
            list
        }
        ResponseForm::Object => {
            let custom = server.read().is_custom(&kind.gvk());
            if custom && page.resume.is_none() {
                // Kubernetes: lists of custom objects always say whether they go on.
                metadata.insert("continue", "");
            }
            let list = listing(&kind.list_kind(), &call.target.api_version(), metadata, Vec::new());
            return Ok(Response::bytes(200, "application/json", list_text(&list, &page, custom)));
        }
    };
    Ok(Response::json(200, &list))
}

/// A list as JSON, its items in the texts that all lists and watches share: writing each object for each list took most of
/// its time.
fn list_text(list: &Value, page: &Page, with_kinds: bool) -> Vec<u8> {
    let mut body = json::to_string(list).into_bytes();
    // The items are last, and there is none yet.
    body.truncate(body.len() - "]}".len());
    for (at, (object, text)) in page.objects.iter().zip(&page.texts).enumerate() {
        if at > 0 {
            body.push(b',');
        }
        let shared = text.as_ref().map(|text| text_of(text, object));
        let item = match (shared, with_kinds) {
            (Some(text), true) => Some(text),
            (Some(text), false) => without_kind(text, object),
            (None, _) => None,
        };
        match item {
            Some(rest) if !with_kinds => {
                body.push(b'{');
                body.extend_from_slice(rest.as_bytes());
            }
            Some(text) => body.extend_from_slice(text.as_bytes()),
            None => {
                let mut item = object.clone();
                if !with_kinds && let Some(map) = item.as_map_mut() {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                body.extend_from_slice(json::to_string(&item).as_bytes());
            }
        }
    }
    body.extend_from_slice(b"]}\n");
    body
}

/// The text of an object behind its kind and version, if they come first: lists of built-in kinds leave them out.
fn without_kind<'t>(text: &'t str, object: &Value) -> Option<&'t str> {
    let [(first, one), (second, other), _, ..] = object.as_map()?.as_slice() else { return None };
    if !matches!((first.as_str(), second.as_str()), ("kind", "apiVersion") | ("apiVersion", "kind"))
    {
        return None;
    }
    let pair = |key: &str, value: &Value| format!("\"{key}\":{},", json::to_string(value));
    text.strip_prefix('{')?.strip_prefix(&pair(first, one))?.strip_prefix(&pair(second, other))
}

/// A list of objects.
pub(crate) fn listing(kind: &str, api_version: &str, metadata: Map, items: Vec<Value>) -> Value {
    let mut list = Map::new();
    list.insert("kind", kind);
    list.insert("apiVersion", api_version);
    list.insert("metadata", Value::Map(metadata));
    list.insert("items", items);
    Value::Map(list)
}

/// Only what every object has.
pub(crate) fn metadata_only(object: &Value) -> Value {
    let mut partial = Map::new();
    partial.insert("kind", "PartialObjectMetadata");
    partial.insert("apiVersion", "meta.k8s.io/v1");
    partial.insert("metadata", object.get("metadata").cloned().unwrap_or_else(Value::map));
    Value::Map(partial)
}

/// The object that a request names, in the version that it asks for.
pub(crate) fn current(
    state: &ServerState,
    target: &RequestTarget,
) -> Result<Value, RequestFailure> {
    state
        .store
        .get(&ServerState::key(target), &target.namespace, &target.name)
        .map(|object| from_storage(object, &target.kind))
        .ok_or_else(|| RequestFailure::not_found(&target.about()))
}

/// Answers a request for one object.
pub(crate) fn get(server: &Server, call: &ServerCall<'_>) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let target = &call.target;
    let object = current(&server.read(), target)?;
    let name = &target.name;
    match target.subresource.split('/').next().unwrap_or_default() {
        "scale" => {
            let scale = scale::of(&server.read(), target, &object)?;
            if form == ResponseForm::Table {
                return Ok(Response::json(200, &table::scale(&scale, server.host.now().0)));
            }
            return Ok(Response::json(200, &scale));
        }
        "log" => {
            let scheduled =
                object.str_at(["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
            if !scheduled {
                return Ok(Response { status: 204, ..Response::default() });
            }
            return Err(no_node(target, "there are no nodes here, so nothing writes logs"));
        }
        "exec" | "attach" | "portforward" => {
            let why = format!("pod {name} does not have a host assigned");
            return Err(RequestFailure::bad_request(why));
        }
        "proxy" => {
            return Err(no_node(
                target,
                "there is no network behind this server to pass requests on to",
            ));
        }
        _ => {}
    }
    respond(server, call, 200, &object, form)
}

fn no_node(target: &RequestTarget, why: &str) -> RequestFailure {
    let message = format!("{} {:?}: {why}", target.kind.plural(), target.name);
    RequestFailure::new(501, "NotImplemented", message)
}

/// An object in the form that was asked for.
pub(crate) fn respond(
    server: &Server,
    call: &ServerCall<'_>,
    status: u16,
    object: &Value,
    form: ResponseForm,
) -> Result<Response, RequestFailure> {
    let value = match form {
        ResponseForm::Object => object.clone(),
        ResponseForm::Metadata => metadata_only(object),
        ResponseForm::Table => {
            let state = server.read();
            let mut metadata = Map::new();
            if let Some(version) = object.str_at(["metadata", "resourceVersion"]) {
                metadata.insert("resourceVersion", version);
            }
            let include = call.parameters.get("includeObject").unwrap_or_default();
            let objects = std::slice::from_ref(object);
            table::table(&state, &call.target, objects, metadata, include, server.host.now().0)
        }
    };
    Ok(Response::json(status, &value))
}
