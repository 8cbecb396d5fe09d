//! What clients need to find and trust the server.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{json, value};

/// The first line of every kubeconfig that a sandbox writes: files that begin with it may be written again.
pub const HEADER: &str = "# Written by kiln up, which may write it again.";

/// A kubeconfig for the administrator.
pub(crate) fn text(address: SocketAddr, authority: &str, token: &str, namespace: &str) -> String {
    let server = format!("https://{address}");
    let authority = STANDARD.encode(authority);
    // JSON would do; people like to read it.
    let quoted = |text: &str| json::to_string(&value!(text));
    format!(
        "{HEADER}\napiVersion: v1\nkind: Config\ncurrent-context: kiln\nclusters:\n- name: kiln\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\ncontexts:\n- name: kiln\n  context:\n    cluster: kiln\n    user: admin\n    namespace: {}\nusers:\n- name: admin\n  user:\n    token: {token}\n",
        quoted(namespace)
    )
}
