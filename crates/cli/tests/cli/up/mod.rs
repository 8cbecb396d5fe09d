//! `kiln up`

mod checks;
mod cleanup;
mod command;
mod demo;
mod durability;
mod files;
mod in_a_row;
mod load;
mod moving;
mod reports;
mod rights;

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::harness::Folder;
use files::temporary;

/// A sandbox that is up, and what its kubeconfig says.
struct Up {
    child: Child,
    agent: Agent,
    server: String,
    token: String,
    /// What it printed so far.
    printed: Vec<String>,
}

/// A rule that gives every new namespace a ConfigMap.
const SETTINGS: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: settings}
spec:
  rules:
  - name: make-settings
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{request.object.metadata.name}}"
      synchronize: true
      data: {data: {owner: "{{request.object.metadata.name}}"}}
"#;
const SHOP: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

impl Up {
    /// Starts one with a folder for temporary files of its own, and waits for a line that begins like this.
    fn start(folder: &Folder, args: &[&str], until: &str) -> Self {
        let mut all = vec!["up", "--kubeconfig", "config"];
        all.extend(args);
        let temporary = temporary(folder);
        let variables = [("TMPDIR", temporary.to_str().unwrap())];
        let mut child = folder.leave_running_with(&all, &variables);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = Vec::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            let found = line.starts_with(until);
            printed.push(line);
            if found {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        let config = folder.read("config");
        let field = |name: &str| {
            let line = config.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        let authority = data(&field("certificate-authority-data:"));
        let certificate = Certificate::from_pem(&authority).unwrap().to_owned();
        let tls = TlsConfig::builder().root_certs(RootCerts::from(vec![certificate])).build();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let agent =
            Agent::config_builder().tls_config(tls).http_status_as_error(false).build().into();
        Up { child, agent, server: field("server:"), token: field("token:"), printed }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let request = self.agent.get(format!("{}{path}", self.server));
        let mut response =
            request.header("Authorization", format!("Bearer {}", self.token)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn post(&self, path: &str, body: &str) -> u16 {
        let request = self
            .agent
            .post(format!("{}{path}", self.server))
            .header("Content-Type", "application/json");
        request
            .header("Authorization", format!("Bearer {}", self.token))
            .send(body)
            .unwrap()
            .status()
            .as_u16()
    }

    /// Waits for an object; it must come within half a minute.
    fn wait_for(&self, path: &str) -> String {
        let began = Instant::now();
        loop {
            let (status, body) = self.get(path);
            if status == 200 {
                return body;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{path} did not come: {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.wait()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// The bytes behind base64.
fn data(text: &str) -> Vec<u8> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u32> =
        text.chars().filter_map(|c| LETTERS.find(c)).map(|at| u32::try_from(at).unwrap()).collect();
    let mut bytes = Vec::new();
    for four in bits.chunks(4) {
        let all = four.iter().fold(0, |all, six| all << 6 | six) << (6 * (4 - four.len()));
        bytes.extend(all.to_be_bytes().iter().skip(1).take(four.len() - 1));
    }
    bytes
}

#[test]
fn limits_are_listed_and_documented() {
    let run = crate::harness::kiln(&["up", "--limits"]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("For production there is Kubernetes."));
    let page =
        std::fs::read_to_string(kiln_testkit::project_root().join("docs/concepts/sandbox.md"))
            .unwrap();
    assert!(
        page.contains(&run.stdout),
        "docs/concepts/sandbox.md shows other limits than kiln up --limits"
    );
}

#[test]
fn bad_usage_is_told_before_anything_starts() {
    for (args, words) in [
        (&["--bare", "--demo"][..], "cannot be used with"),
        (&["--namespace", "A b"], "must consist of lower case alphanumeric characters"),
        (&["--namespace", ""], "must consist of lower case alphanumeric characters"),
        (&["--namespace", "a.b"], "must not contain dots"),
        (&["--resource", "missing.yaml"], "no such file or directory"),
        (
            &["https://example.com/rules.yaml"],
            "curl -fsSL https://example.com/rules.yaml | kiln … -",
        ),
        (&["--log", "foo"], "--log \"foo\": \"foo\" is not a level"),
        (&["--log", "warn,debgu"], "give a level (off, error, warn, info, debug, trace)"),
        (&["--log", "kiln_runtime=loud"], "give a level (off, error, warn, info, debug, trace)"),
    ] {
        let folder = Folder::with(&[]);
        let run = folder.kiln(&[&["up", "--data", "state"], args].concat());
        assert_eq!(run.code, 2, "{args:?}");
        assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(!folder.path().join("state").exists(), "{args:?}");
    }
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    let folder = Folder::with(&[]);
    let up = Up::start(&folder, &["--bare"], "Ctrl-C");
    let config = std::fs::canonicalize(folder.path()).unwrap().join("config");
    assert!(up.printed[0].contains("is ready after"), "{:?}", up.printed);
    assert!(
        up.printed.iter().any(|line| *line == format!("  export KUBECONFIG={}", config.display())),
        "{:?}",
        up.printed
    );
    let (status, body) = up.get("/api/v1/namespaces");
    assert_eq!(status, 200);
    assert!(body.contains("kube-system"));
    assert_eq!(up.end(Signal::SIGINT), Some(0));
}

#[test]
fn nobody_is_served_without_the_token() {
    for how in ["always-allow", "rbac"] {
        let folder = Folder::with(&[]);
        let up = Up::start(&folder, &["--bare", "--authorization", how], "Ctrl-C");
        let ask = |path: &str, token: Option<&str>| {
            let mut request = up.agent.get(format!("{}{path}", up.server));
            if let Some(token) = token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let mut response = request.call().unwrap();
            (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
        };
        for path in ["/api/v1/secrets", "/apis", "/openapi/v2", "/api/v1/pods?watch=true"] {
            for token in [None, Some("wrong")] {
                let (status, body) = ask(path, token);
                assert_eq!(status, 401, "{how} {path}");
                assert!(body.contains(r#""reason":"Unauthorized""#), "{body}");
            }
        }
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let path = format!("{}/api/v1/namespaces/default/configmaps", up.server);
        assert_eq!(up.agent.post(path).send(object).unwrap().status().as_u16(), 401);
        assert_eq!(ask("/readyz", None).0, 200);
        assert_eq!(ask("/version", None).0, 200);
        assert_eq!(up.get("/api/v1/secrets").0, 200);
        assert_eq!(up.token.len(), 64);
        assert_eq!(up.end(Signal::SIGTERM), Some(0));
    }
}

#[test]
fn what_was_answered_survives_a_kill() {
    let folder = Folder::with(&[]);
    let up = Up::start(&folder, &["--bare", "--data", "state"], "Ctrl-C");
    for name in ["a", "b", "c"] {
        let object = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"x":"1"}}}}"#
        );
        assert_eq!(up.post("/api/v1/namespaces/default/configmaps", &object), 201);
    }
    let before = up.get("/api/v1/namespaces/default/configmaps/c").1;
    assert_eq!(up.end(Signal::SIGKILL), None);
    let again = Up::start(&folder, &["--bare", "--data", "state"], "Ctrl-C");
    assert_eq!(again.get("/api/v1/namespaces/default/configmaps/c").1, before);
    assert_eq!(again.end(Signal::SIGTERM), Some(0));
}

#[test]
fn rules_work_inside() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS), ("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["rules.yaml", "--resource", "shop.yaml"], "Ctrl-C");
    assert!(up.printed.iter().any(|line| line == "stored 1 rule and 1 object"), "{:?}", up.printed);
    let made = up.wait_for("/api/v1/namespaces/shop/configmaps/settings");
    assert!(made.contains(r#""owner":"shop""#), "{made}");
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
