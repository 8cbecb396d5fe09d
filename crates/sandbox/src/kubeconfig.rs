//! What clients need to find and trust the server.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{json, value};

/// A kubeconfig for the administrator.
pub(crate) fn text(address: SocketAddr, authority: &str, token: &str, namespace: &str) -> String {
    let server = format!("https://{address}");
    let authority = STANDARD.encode(authority);
    // JSON would do; people like to read it.
    let quoted = |text: &str| json::to_string(&value!(text));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: kiln\nclusters:\n- name: kiln\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\ncontexts:\n- name: kiln\n  context:\n    cluster: kiln\n    user: admin\n    namespace: {}\nusers:\n- name: admin\n  user:\n    token: {token}\n",
        quoted(namespace)
    )
}
