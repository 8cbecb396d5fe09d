//! A client of an API server, with the rights of an administrator.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use anyhow::{Context, Result};
use kiln_testkit::control_plane::ControlPlane;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// How long an answer may take; a watch may take forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// One per thread: each clone shares its connections.
#[derive(Clone)]
pub(super) struct Client {
    agent: Agent,
    server: String,
    token: String,
}

impl Client {
    /// Makes an account in a cluster, and a client of it.
    pub(super) fn of(cluster: &ControlPlane) -> Result<Self> {
        // The first to set it wins; it is ring either way.
        let _ = rustls::crypto::ring::default_provider().install_default();
        cluster.apply(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: bench, namespace: default}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: bench}\n\
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
             subjects: [{kind: ServiceAccount, name: bench, namespace: default}]\n",
        )?;
        let token = cluster.kubectl(&[
            "create",
            "token",
            "bench",
            "--namespace=default",
            "--duration=12h",
        ])?;
        let authority = fs::read(cluster.directory().join("ca.crt"))?;
        let certificate = Certificate::from_pem(&authority)?.to_owned();
        let tls = TlsConfig::builder().root_certs(RootCerts::from(vec![certificate])).build();
        let agent = Agent::config_builder().tls_config(tls).max_idle_connections_per_host(64);
        let agent = agent.max_idle_connections(64).build().into();
        Ok(Client { agent, server: cluster.url(), token: token.trim().to_owned() })
    }

    /// The answer to a GET, whose body may go on for as long as it wants.
    pub(super) fn get(&self, path: &str) -> Result<ureq::http::Response<ureq::Body>> {
        let request = self.agent.get(format!("{}{path}", self.server));
        Ok(request.header("Authorization", format!("Bearer {}", self.token)).call()?)
    }

    /// The object, or list of objects, at a path.
    pub(super) fn object(&self, path: &str) -> Result<Value> {
        serde_json::from_str(&self.text(path)?).with_context(|| path.to_owned())
    }

    /// What is at a path, as text.
    pub(super) fn text(&self, path: &str) -> Result<String> {
        let mut answer = self.get(path).with_context(|| path.to_owned())?;
        Ok(answer.body_mut().with_config().limit(u64::MAX).read_to_string()?)
    }

    /// Creates an object.
    pub(super) fn post(&self, path: &str, body: &str) -> Result<()> {
        self.send(self.agent.post(format!("{}{path}", self.server)), "application/json", body)
            .with_context(|| format!("POST {path}"))
    }

    /// Merges fields into an object.
    pub(super) fn merge(&self, path: &str, body: &str) -> Result<()> {
        let request = self.agent.patch(format!("{}{path}", self.server));
        self.send(request, "application/merge-patch+json", body)
            .with_context(|| format!("PATCH {path}"))
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        form: &str,
        body: &str,
    ) -> Result<()> {
        let request = request
            .config()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .build()
            .header("Content-Type", form)
            .header("Authorization", format!("Bearer {}", self.token));
        let mut answer = request.send(body)?;
        let said = answer.body_mut().read_to_string()?;
        anyhow::ensure!(answer.status().is_success(), "{}: {said}", answer.status());
        Ok(())
    }

    /// The lines of a watch, until it ends.
    pub(super) fn lines(
        &self,
        path: &str,
    ) -> Result<impl Iterator<Item = String> + Send + 'static> {
        let body = self.get(path)?.into_body();
        Ok(BufReader::new(body.into_reader()).lines().map_while(std::io::Result::ok))
    }
}
