//! Reviews in, answers out; policies in, webhook configurations out.

mod fuzz_regressions;
mod hostile;
mod modrules;
mod native;
mod policies;
mod reviews;
mod shadows;
mod validation;
mod webhooks;

use std::sync::Arc;

use base64::Engine as _;
use kiln_admission::{Hooks, ReviewRequest, Reviewed, Settings};
use kiln_engine::{EmptyView, EvalEnv, ListPage, ListQuery, ReadError, View};
use kiln_object::{Gvk, Kinds};
use kiln_rules::Policy;
use kiln_value::{Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

/// The one document of a text.
fn yaml(text: &str) -> Value {
    let mut documents = read_bytes("text", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0).into_value()
}

/// The policies of a text, which must have no errors.
fn compiled(text: &str) -> Vec<Arc<Policy>> {
    let documents = read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
    assert!(!compiled.has_errors(), "{:#?}", compiled.diagnostics);
    compiled.policies
}

fn hooks(text: &str) -> Hooks {
    hooks_with(text, &Settings::new("kyverno"))
}

fn hooks_with(text: &str, settings: &Settings) -> Hooks {
    Hooks::new(compiled(text), &[], &Kinds::builtin(), settings)
}

/// A review of a request that is completed with what every request has.
fn review(request: &str) -> Vec<u8> {
    let mut request = yaml(request);
    let map = request.as_map_mut().unwrap();
    map.get_or_insert_with("uid", || "42".into());
    map.get_or_insert_with("operation", || "CREATE".into());
    map.get_or_insert_with("userInfo", || yaml("{username: ann, groups: [system:authenticated]}"));
    if map.get("kind").is_none() {
        let about = request.get("object").or(request.get("oldObject")).unwrap();
        let Gvk { group, version, kind } = Gvk::of(about).unwrap();
        let kind = yaml(&format!("{{group: '{group}', version: {version}, kind: {kind}}}"));
        request.set(["kind"], kind).unwrap();
    }
    for (key, path) in [("name", "name"), ("namespace", "namespace")] {
        let found = ["object", "oldObject"]
            .iter()
            .find_map(|object| request.get_path([*object, "metadata", path]).cloned());
        if let (None, Some(found)) = (request.get(key), found) {
            request.set([key], found).unwrap();
        }
    }
    let mut review = yaml("{apiVersion: admission.k8s.io/v1, kind: AdmissionReview}");
    review.set(["request"], request).unwrap();
    json::to_string(&review).into_bytes()
}

fn send(hooks: &Hooks, path: &str, request: &str) -> Reviewed {
    send_with(hooks, path, request, &Settings::new("kyverno"), &EmptyView)
}

fn send_with(
    hooks: &Hooks,
    path: &str,
    request: &str,
    settings: &Settings,
    view: &dyn View,
) -> Reviewed {
    let kinds = Kinds::builtin();
    let request = ReviewRequest::read(&review(request), settings.review_bytes, &kinds).unwrap();
    hooks.review(path, &request, &EvalEnv::of(view, &kinds), settings)
}

/// The operations of an answer's patch, as text; empty without one.
fn patch(reviewed: &Reviewed) -> String {
    let answer = reviewed.response.to_value("42");
    let Some(patch) = answer.str_at(["response", "patch"]) else { return String::new() };
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(patch).unwrap()).unwrap()
}

/// Objects of some kinds.
struct Objects(Vec<Value>);

impl View for Objects {
    fn get(&self, kind: &Gvk, _: Option<&str>, name: &str) -> Result<Option<Value>, ReadError> {
        let wanted = |object: &&Value| {
            Gvk::of(object).as_ref() == Some(kind)
                && object.str_at(["metadata", "name"]) == Some(name)
        };
        Ok(self.0.iter().find(wanted).cloned())
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let of_kind = |object: &&Value| Gvk::of(object).as_ref() == Some(query.kind);
        Ok(ListPage { objects: self.0.iter().filter(of_kind).cloned().collect(), resume: None })
    }
}
