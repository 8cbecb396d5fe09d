//! Reviews of who a user is and what they may do.

use kiln_value::{Map, Value, value};

use crate::access::authorization::{self, Attributes, User};
use crate::access::tokens;
use crate::request::Response;
use crate::request::media;
use crate::server::{Server, ServerCall};
use crate::status::RequestFailure;

/// Answers a review.
pub(crate) fn create(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let kind = call.target.kind.clone();
    if call.target.subresource == "token" {
        return tokens::create(server, call);
    }
    let mut review = media::read(call.request, kind.kind())?.value;
    if review.as_map().is_none() {
        review = Value::map();
    }
    let spec = review.get("spec").cloned().unwrap_or_default();
    let status = match kind.kind() {
        "SelfSubjectReview" => value!({"userInfo": null}),
        "SelfSubjectAccessReview" => allowed(server, &call.user, &spec),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            allowed(server, &subject(&spec), &spec)
        }
        "SelfSubjectRulesReview" => {
            rules(server, &call.user, spec.str_at(["namespace"]).unwrap_or_default())
        }
        "TokenReview" => token(server, &spec),
        _ => return Err(RequestFailure::method()),
    };
    let mut answer = Map::new();
    answer.insert("kind", kind.kind());
    answer.insert("apiVersion", call.target.api_version());
    let mut metadata = review.get("metadata").cloned().unwrap_or_else(Value::map);
    if kind.kind() == "SelfSubjectReview" {
        let _ = metadata.set(["creationTimestamp"], server.timestamp());
    }
    answer.insert("metadata", metadata);
    if !spec.is_null() {
        answer.insert("spec", spec);
    }
    let mut status = status;
    if kind.kind() == "SelfSubjectReview" {
        let _ = status.set(["userInfo"], call.user.to_value());
    }
    answer.insert("status", status);
    Ok(Response::json(201, &Value::Map(answer)))
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_list);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The user that a review is about.
fn subject(spec: &Value) -> User {
    User {
        name: spec.str_at(["user"]).unwrap_or_default().to_owned(),
        groups: texts(spec, "groups"),
        uid: spec.str_at(["uid"]).unwrap_or_default().to_owned(),
        extra: Vec::new(),
    }
}

fn allowed(server: &Server, user: &User, spec: &Value) -> Value {
    let attributes = match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (Some(of), _) if !of.is_null() => {
            let text = |field: &str| of.str_at([field]).unwrap_or_default().to_owned();
            Attributes {
                verb: text("verb"),
                group: text("group"),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                path: String::new(),
            }
        }
        (_, Some(of)) if !of.is_null() => Attributes {
            verb: of.str_at(["verb"]).unwrap_or_default().to_owned(),
            path: of.str_at(["path"]).unwrap_or_default().to_owned(),
            ..Attributes::default()
        },
        _ => Attributes::default(),
    };
    value!({"allowed": (authorization::may(server, user, &attributes))})
}

fn rules(server: &Server, user: &User, namespace: &str) -> Value {
    let everything = server.settings.authorization == authorization::Authorization::AlwaysAllow;
    let mut list = authorization::rules_of(server, user, namespace);
    if everything {
        list.push(value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        list.push(value!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    let (paths, resources): (Vec<Value>, Vec<Value>) = list
        .into_iter()
        .partition(|rule| rule.get("nonResourceURLs").is_some_and(|urls| !urls.is_null()));
    let mut status = Map::new();
    status.insert("resourceRules", resources);
    status.insert("nonResourceRules", paths);
    status.insert("incomplete", false);
    Value::Map(status)
}

fn token(server: &Server, spec: &Value) -> Value {
    let given = spec.str_at(["token"]).unwrap_or_default();
    let request = crate::request::ApiRequest::new("POST", "/")
        .with_header("Authorization", &format!("Bearer {given}"));
    match tokens::authenticate(server, &request) {
        Ok(user) if !given.is_empty() => {
            let mut status = value!({"authenticated": true});
            let _ = status.set(["user"], user.to_value());
            status
        }
        _ => value!({"authenticated": false, "error": "[invalid bearer token]"}),
    }
}
