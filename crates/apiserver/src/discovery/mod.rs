//! What is served: groups, versions and resources, in the new form and in the old one.

pub(crate) mod openapi;

use kiln_object::Kind;
use kiln_value::{Map, Value, json, value};
use sha2::{Digest as _, Sha256};

use crate::request::{ApiRequest, Response};
use crate::server::Server;
use crate::status::RequestFailure;

/// Groups in the order in which clients look for names.
const GROUPS: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];
/// The version of Kubernetes whose API this is.
const MINOR: &str = "36";

/// The answer to `/version`.
pub(crate) fn version() -> Value {
    value!({
        "major": "1", "minor": MINOR, "emulationMajor": "1", "emulationMinor": MINOR,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": (format!("v1.{MINOR}.4")), "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": (format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
    })
}

/// The paths that there are.
pub(crate) fn root(server: &Server) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, versions) in groups(server) {
        if group.is_empty() {
            continue;
        }
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
    }
    for path in ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"] {
        paths.push(path.to_owned());
    }
    let mut root = Map::new();
    root.insert("paths", paths);
    Value::Map(root)
}

type Versions = Vec<(String, Vec<Kind>)>;

/// Groups with their versions, the preferred one first, and the kinds of each, by plural name.
pub(crate) fn groups(server: &Server) -> Vec<(String, Versions)> {
    let kinds = server.read().kinds.clone();
    let mut names: Vec<String> = Vec::new();
    for kind in kinds.iter() {
        if !names.iter().any(|name| name == kind.group()) {
            names.push(kind.group().to_owned());
        }
    }
    names.sort_by_key(|name| {
        let place = GROUPS.iter().position(|known| known == name);
        (!name.is_empty(), place.unwrap_or(GROUPS.len()), name.clone())
    });
    names
        .into_iter()
        .map(|group| {
            let mut versions: Vec<String> = Vec::new();
            for kind in kinds.iter().filter(|kind| kind.group() == group) {
                if !versions.iter().any(|version| version == kind.version()) {
                    versions.push(kind.version().to_owned());
                }
            }
            versions.sort_by(|a, b| kiln_object::gvk::compare_versions(b, a));
            let of = |version: &String| {
                let inside =
                    kinds.iter().filter(|kind| kind.group() == group && kind.version() == version);
                let mut all: Vec<Kind> = inside.cloned().collect();
                all.sort_by(|a, b| a.plural().cmp(b.plural()));
                (version.clone(), all)
            };
            let versions = versions.iter().map(of).collect();
            (group, versions)
        })
        .collect()
}

/// Answers below `/api` and `/apis`.
pub(crate) fn answer(
    server: &Server,
    request: &ApiRequest,
    parts: &[&str],
) -> Result<Response, RequestFailure> {
    let aggregated =
        request.headers_of("Accept").flat_map(|header| header.split(',')).next().is_some_and(
            |first| {
                first.contains("as=APIGroupDiscoveryList")
                    && first.contains("v=v2")
                    && !first.contains("v2beta1")
            },
        );
    match parts {
        ["api"] if aggregated => Ok(tagged(request, &aggregate(server, true))),
        ["apis"] if aggregated => Ok(tagged(request, &aggregate(server, false))),
        ["api"] => Ok(Response::json(200, &core_versions(server))),
        ["apis"] => {
            let list: Vec<Value> = groups(server)
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| group_of(group, versions, false))
                .collect();
            let mut answer = Map::new();
            answer.insert("kind", "APIGroupList");
            answer.insert("apiVersion", "v1");
            answer.insert("groups", list);
            Ok(Response::json(200, &Value::Map(answer)))
        }
        ["api", version] => resources(server, "", version),
        ["apis", group, version] => resources(server, group, version),
        ["apis", group] => match groups(server).into_iter().find(|(name, _)| name == group) {
            Some((group, versions)) => Ok(Response::json(200, &group_of(&group, &versions, true))),
            None => Ok(Response::text(404, "404 page not found\n")),
        },
        _ => Err(RequestFailure::no_resource()),
    }
}

fn core_versions(server: &Server) -> Value {
    let mut answer = value!({"kind": "APIVersions", "versions": ["v1"]});
    let address =
        value!([{"clientCIDR": "0.0.0.0/0", "serverAddress": (server.settings.address.as_str())}]);
    let _ = answer.set(["serverAddressByClientCIDRs"], address);
    answer
}

/// An answer that clients keep for as long as it does not change.
pub(crate) fn etag(text: &str) -> String {
    let hex: String =
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02X}")).collect();
    format!("\"{hex}\"")
}

fn tagged(request: &ApiRequest, value: &Value) -> Response {
    const FORM: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let text = json::to_string(value);
    let tag = etag(&text);
    let same = request.header("If-None-Match").is_some_and(|known| known == tag);
    let response = if same {
        Response { status: 304, ..Response::default() }
    } else {
        Response::bytes(200, FORM, text.into_bytes())
    };
    response
        .with_header("ETag", &tag)
        .with_header("Vary", "Accept")
        .with_header("Cache-Control", "public")
}

fn texts<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<Value> {
    texts.map(Value::from).collect()
}

fn response_kind(api_version: &str, kind: &str) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    value!({"group": group, "version": version, "kind": kind})
}

fn aggregate(server: &Server, core: bool) -> Value {
    let mut items = Vec::new();
    for (group, versions) in groups(server) {
        if group.is_empty() != core {
            continue;
        }
        let mut metadata = Map::new();
        if !group.is_empty() {
            metadata.insert("name", group.as_str());
        }
        let list: Vec<Value> = versions
            .iter()
            .map(|(version, kinds)| {
                let mut entry = Map::new();
                entry.insert("version", version.as_str());
                entry.insert("resources", kinds.iter().map(resource).collect::<Vec<_>>());
                entry.insert("freshness", "Current");
                Value::Map(entry)
            })
            .collect();
        let mut item = Map::new();
        item.insert("metadata", Value::Map(metadata));
        item.insert("versions", list);
        items.push(Value::Map(item));
    }
    let mut list = Map::new();
    list.insert("kind", "APIGroupDiscoveryList");
    list.insert("apiVersion", "apidiscovery.k8s.io/v2");
    list.insert("metadata", Value::map());
    list.insert("items", items);
    Value::Map(list)
}

/// The other names of a kind, where it has some.
fn insert_other_names(entry: &mut Map, kind: &Kind) {
    let names =
        [("shortNames", texts(kind.short_names())), ("categories", texts(kind.categories()))];
    for (field, names) in names {
        if !names.is_empty() {
            entry.insert(field, names);
        }
    }
}

fn resource(kind: &Kind) -> Value {
    let mut entry = Map::new();
    entry.insert("resource", kind.plural());
    entry.insert("responseKind", response_kind("", kind.kind()));
    entry.insert("scope", if kind.is_namespaced() { "Namespaced" } else { "Cluster" });
    entry.insert("singularResource", kind.singular());
    entry.insert("verbs", texts(kind.verbs().iter().copied()));
    insert_other_names(&mut entry, kind);
    let below: Vec<Value> = kind
        .subresources()
        .iter()
        .map(|sub| {
            let of = if sub.kind.is_empty() { kind.kind() } else { sub.kind };
            let mut entry = Map::new();
            entry.insert("subresource", sub.name);
            entry.insert("responseKind", response_kind(sub.api_version, of));
            entry.insert("verbs", texts(sub.verbs.iter().copied()));
            Value::Map(entry)
        })
        .collect();
    if !below.is_empty() {
        entry.insert("subresources", below);
    }
    Value::Map(entry)
}

fn group_of(group: &str, versions: &Versions, alone: bool) -> Value {
    let version = |version: &str| value!({"groupVersion": (format!("{group}/{version}")), "version": version});
    let mut entry = Map::new();
    if alone {
        entry.insert("kind", "APIGroup");
        entry.insert("apiVersion", "v1");
    }
    entry.insert("name", group);
    entry.insert("versions", versions.iter().map(|(name, _)| version(name)).collect::<Vec<_>>());
    if let Some((first, _)) = versions.first() {
        entry.insert("preferredVersion", version(first));
    }
    Value::Map(entry)
}

/// The old form: one list per version.
fn resources(server: &Server, group: &str, version: &str) -> Result<Response, RequestFailure> {
    let all = groups(server);
    let Some((_, versions)) = all.into_iter().find(|(name, _)| name == group) else {
        return Ok(Response::text(404, "404 page not found\n"));
    };
    let Some((_, kinds)) = versions.into_iter().find(|(name, _)| name == version) else {
        return Err(RequestFailure::no_resource());
    };
    let mut list = Vec::new();
    for kind in &kinds {
        let mut entry = Map::new();
        entry.insert("name", kind.plural());
        entry.insert("singularName", kind.singular());
        entry.insert("namespaced", kind.is_namespaced());
        entry.insert("kind", kind.kind());
        entry.insert("verbs", texts(kind.verbs().iter().copied()));
        insert_other_names(&mut entry, kind);
        list.push(Value::Map(entry));
        for sub in kind.subresources() {
            let mut entry = Map::new();
            entry.insert("name", format!("{}/{}", kind.plural(), sub.name));
            entry.insert("singularName", "");
            entry.insert("namespaced", kind.is_namespaced());
            if let Some((group, version)) = sub.api_version.split_once('/') {
                entry.insert("group", group);
                entry.insert("version", version);
            }
            entry.insert("kind", if sub.kind.is_empty() { kind.kind() } else { sub.kind });
            entry.insert("verbs", texts(sub.verbs.iter().copied()));
            list.push(Value::Map(entry));
        }
    }
    let mut answer = Map::new();
    answer.insert("kind", "APIResourceList");
    // Kubernetes: the list of the core group does not say what version it is written in.
    if !group.is_empty() {
        answer.insert("apiVersion", "v1");
    }
    answer.insert(
        "groupVersion",
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
    );
    answer.insert("resources", list);
    Ok(Response::json(200, &Value::Map(answer)))
}
