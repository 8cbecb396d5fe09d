//! Any bytes as the body of a write: there is an answer, and nothing panics.

use kiln_apiserver::{ApiRequest, Server, ServerHost, Settings};

struct Still;

impl ServerHost for Still {
    fn now(&self) -> (i64, u32) {
        (1_800_000_000, 0)
    }

    fn random(&self) -> u64 {
        7
    }
}

const PATHS: [(&str, &str); 4] = [
    ("POST", "/api/v1/namespaces/default/pods"),
    ("PATCH", "/api/v1/namespaces/default/serviceaccounts/default?fieldManager=m"),
    ("POST", "/apis/apps/v1/namespaces/default/deployments"),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
];
const KINDS: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
];

pub(crate) fn check(bytes: &[u8]) {
    let [choice, body @ ..] = bytes else { return };
    let (method, path) = PATHS[usize::from(*choice) % PATHS.len()];
    let kind = KINDS[usize::from(*choice) / PATHS.len() % KINDS.len()];
    let server = Server::new(Settings::default(), Box::new(Still));
    let answer = server.call(&ApiRequest::new(method, path).with_body(kind, body));
    assert!(answer.status >= 200);
    server.settle();
}
