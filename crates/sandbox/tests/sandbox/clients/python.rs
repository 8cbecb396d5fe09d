//! The Python client: every recorded step again, each request and each answer as it was.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_testkit::control_plane::python_packages;
use kiln_value::{Value, json};

use super::recorded::{self, Exchange, Step};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/clients")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_step_gets_what_it_got() {
    let Some(wanted) = recorded::steps("python") else { return };
    let requirements = folder().join("python-requirements.txt");
    let found = tokio::task::spawn_blocking(move || python_packages(&requirements));
    let Some(packages) = found.await.expect("a search") else { return };
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    let home = tempfile::tempdir().expect("a folder");
    let kubeconfig = home.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.kubeconfig()).expect("a kubeconfig");
    let mut program = Command::new("python3")
        .arg(folder().join("steps.py"))
        .arg(&kubeconfig)
        .env("HOME", home.path())
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let server = std::sync::Arc::clone(sandbox.server());
    let (printed, said) = tokio::task::spawn_blocking(move || {
        let mut input = program.stdin.take().expect("it is piped");
        let mut said = String::new();
        for line in BufReader::new(program.stderr.take().expect("it is piped")).lines() {
            let line = line.expect("a line");
            if line == "forget" {
                // As a server does after a while.
                server.compact(server.revision());
                writeln!(input, "forgotten").expect("the program listens");
            } else {
                said.push_str(&line);
                said.push('\n');
            }
        }
        let mut printed = String::new();
        program.stdout.take().expect("it is piped").read_to_string(&mut printed).expect("a text");
        let status = program.wait().expect("it ends");
        assert!(status.success(), "{said}");
        (printed, said)
    })
    .await
    .expect("the program");
    sandbox.stop().await;
    let steps = json::parse(&printed).unwrap_or_else(|error| panic!("{error}: {printed}\n{said}"));
    let steps: Vec<Step> = steps.as_list().expect("steps").iter().map(step).collect();
    recorded::assert_same("python", &wanted, &steps);
}

fn step(value: &Value) -> Step {
    let requests = value.get("requests").and_then(Value::as_list).expect("requests").to_vec();
    let exchange = |request: &Value| {
        let text = |field: &str| request.str_at([field]).unwrap_or_default().to_owned();
        let status = request.get("status").and_then(Value::as_i64).unwrap_or_default();
        Exchange {
            method: text("method"),
            path: text("path"),
            status: u16::try_from(status).expect("a status"),
            content_type: text("type"),
            warning: text("warning"),
            body: text("body"),
        }
    };
    Step {
        name: value.str_at(["step"]).unwrap_or_default().to_owned(),
        exchanges: requests.iter().map(exchange).collect(),
    }
}
