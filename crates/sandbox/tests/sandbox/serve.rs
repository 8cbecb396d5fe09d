//! A sandbox behind its socket: certificates, tokens, watches, data on disk.

use std::time::Duration;

use kiln_apiserver::Authorization;
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_value::{Value, json, value};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A client with what a kubeconfig says.
struct Client {
    agent: Agent,
    server: String,
    token: String,
}

impl Client {
    fn of(kubeconfig: &str) -> Self {
        let field = |name: &str| {
            let line = kubeconfig
                .lines()
                .find_map(|line| line.trim().strip_prefix(name))
                .expect("a field");
            line.trim_start_matches(':').trim().to_owned()
        };
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD
            .decode(field("certificate-authority-data"))
            .expect("base64");
        let certificate = Certificate::from_pem(&authority).expect("a certificate").to_owned();
        let tls = TlsConfig::builder().root_certs(RootCerts::from(vec![certificate])).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .build()
            .into();
        Client { agent, server: field("server"), token: field("token") }
    }

    fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = self.agent.get(format!("{}{path}", self.server));
        let mut response =
            request.header("Authorization", format!("Bearer {token}")).call().expect("an answer");
        let text = response.body_mut().read_to_string().expect("a text");
        (response.status().as_u16(), json::parse(&text).unwrap_or_else(|_| Value::from(text)))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self
            .agent
            .post(format!("{}{path}", self.server))
            .header("Content-Type", "application/json");
        let sent = request
            .header("Authorization", format!("Bearer {}", self.token))
            .send(json::to_string(body));
        let mut response = sent.expect("an answer");
        let text = response.body_mut().read_to_string().expect("a text");
        (response.status().as_u16(), json::parse(&text).unwrap_or_else(|_| Value::from(text)))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("work")
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_come_with_the_token_of_the_kubeconfig() {
    let options =
        SandboxOptions { authorization: Authorization::Rbac, ..SandboxOptions::default() };
    let sandbox = Sandbox::start(&options).await.expect("a sandbox");
    let client = Client::of(sandbox.kubeconfig());
    let (ok, wrong, nobody) = blocking(move || {
        (
            client.get("/api/v1/namespaces", &client.token.clone()),
            client.get("/api/v1/namespaces", "x"),
            client.get("/api/v1/namespaces", ""),
        )
    })
    .await;
    assert_eq!(ok.0, 200);
    assert_eq!(ok.1.get("items").and_then(Value::as_list).map(|list| list.len()), Some(4));
    assert_eq!(wrong.0, 401);
    assert_eq!(nobody.0, 401);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_hears_of_what_is_written() {
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let client = Client::of(sandbox.kubeconfig());
    let lines = blocking(move || {
        let path = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=2";
        let token = client.token.clone();
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| client.get(path, &token));
            std::thread::sleep(Duration::from_millis(300));
            let config =
                value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
            assert_eq!(client.post("/api/v1/namespaces/default/configmaps", &config).0, 201);
            watching.join().expect("a watch")
        })
    })
    .await;
    let text = match lines.1 {
        Value::String(text) => text.to_string(),
        other => json::to_string(&other),
    };
    assert!(text.contains("ADDED") && text.contains("\"name\":\"a\""), "{text}");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_disk_is_there_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let options =
        SandboxOptions { data: Some(folder.path().to_owned()), ..SandboxOptions::default() };
    let first = Sandbox::start(&options).await.expect("a sandbox");
    let client = Client::of(first.kubeconfig());
    let (status, made) = blocking(move || {
        let config = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
        client.post("/api/v1/namespaces/default/configmaps", &config)
    })
    .await;
    assert_eq!(status, 201);
    let token = Client::of(first.kubeconfig()).token;
    let revision = first.server().revision();
    first.stop().await;
    let second = Sandbox::start(&options).await.expect("a sandbox again");
    let client = Client::of(second.kubeconfig());
    assert_eq!(client.token, token, "kubeconfigs stay good");
    let (_, again) = blocking(move || {
        client.get("/api/v1/namespaces/default/configmaps/a", &client.token.clone())
    })
    .await;
    assert_eq!(again.get_path(["metadata", "uid"]), made.get_path(["metadata", "uid"]));
    assert_eq!(again.get_path(["data", "x"]), Some(&Value::from("1")));
    assert!(second.server().revision() >= revision, "the counter does not go back");
    second.stop().await;
}
