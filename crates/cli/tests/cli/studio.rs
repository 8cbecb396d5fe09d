//! Pages of `kiln apply` and `kiln plan`, and the server of `kiln ui`. What browsers make of them, see `web/stories`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;

use kiln_testkit::project_root;
use kiln_value::{Value, json};

use crate::harness::{Folder, kiln};

const POLICY: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: defaults}
spec:
  rules:
  - name: token
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: token
      namespace: '{{request.object.metadata.name}}'
      data: {stringData: {password: hush-1}}
  - name: owner
    match: {any: [{resources: {kinds: [Namespace]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: shop}}}}
";
const SHOP: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

#[test]
fn applying_prints_a_page_without_scripts_and_secrets() {
    let folder = Folder::with(&[("p.yaml", POLICY), ("r.yaml", SHOP)]);
    let run = folder.kiln(&["apply", "p.yaml", "--resource", "r.yaml", "--format", "html"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let page = &run.stdout;
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    for wanted in [
        "<b>1</b> create",
        "<b>1</b> change",
        "pass: 2, fail: 0",
        ">token</text>",
        ">defaults</text>",
        "<ins>+    owner: shop</ins>",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    assert!(!page.contains("hush") && !page.contains("<script"), "{page}");
    assert!(page.len() < 400_000);
    // As kubectl's users type it.
    let short = folder.kiln(&["apply", "p.yaml", "--resource", "r.yaml", "-o", "html"]);
    assert_eq!(short.stdout, *page);
}

#[test]
fn every_example_has_a_page() {
    let examples = project_root().join("examples");
    let mut count = 0;
    for group in
        ["generate", "generating-policy", "modrule", "mutate", "validate", "validating-policy"]
    {
        for entry in std::fs::read_dir(examples.join(group)).unwrap() {
            let path = entry.unwrap().path();
            let file = |name: &str| path.join(name).display().to_string();
            let (rules, resources, others) =
                (file("rules.yaml"), file("resources.yaml"), file("others.yaml"));
            let mut args = vec!["apply", &rules, "--resource", &resources, "--format", "html"];
            if path.join("others.yaml").exists() {
                args.extend(["--target-resource", &others]);
            }
            let run = kiln(&args);
            assert!(
                run.code == 2 || run.stdout.ends_with("</html>\n"),
                "{}: {}",
                path.display(),
                run.stderr
            );
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

/// `kiln ui` that runs, and where.
struct Ui {
    child: Child,
    address: String,
    token: String,
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ui {
    fn start(folder: &Folder, args: &[&str]) -> Self {
        let mut child = folder.leave_running(&[&["ui"], args].concat());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("Kiln Studio: http://").expect(&line);
        let (address, token) = url.split_once("/#token=").unwrap();
        Ui { child, address: address.to_owned(), token: token.to_owned() }
    }

    /// Status, head and body of an answer.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }

    fn call(&self, headers: &str, body: &str) -> (u16, String) {
        let (status, _, body) = self.ask(&format!(
            "POST /api/call HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        ));
        (status, body)
    }
}

#[test]
fn the_page_is_served_with_a_strict_policy() {
    let ui = Ui::start(&Folder::with(&[]), &[]);
    let (status, head, body) = ui.get("/");
    assert_eq!(status, 200);
    assert!(head.contains("default-src 'none'; script-src 'self';"), "{head}");
    assert!(head.contains("X-Frame-Options: DENY"), "{head}");
    assert!(body.contains("kiln-home"), "{body}");
    for path in ["/app.js", "/app.css", "/gallery.json"] {
        assert_eq!(ui.get(path).0, 200, "{path}");
    }
    for path in ["/../Cargo.toml", "/etc/passwd", "/api/call"] {
        assert_eq!(ui.get(path).0, 404, "{path}");
    }
}

#[test]
fn only_the_own_page_with_its_token_is_answered() {
    let ui = Ui::start(&Folder::with(&[]), &[]);
    let host = format!("Host: {}\r\n", ui.address);
    let token = format!("Kiln-Token: {}\r\n", ui.token);
    let state = r#"{"method":"state"}"#;
    let asked = |headers: &[&str]| ui.call(&headers.concat(), state).0;
    let own = format!("Origin: http://{}\r\n", ui.address);
    assert_eq!(asked(&[&host, &token]), 200);
    assert_eq!(asked(&[&host, &token, &own]), 200);
    assert_eq!(asked(&[&host]), 401);
    assert_eq!(asked(&[&host, "Kiln-Token: guess\r\n"]), 401);
    assert_eq!(asked(&[&token]), 403);
    assert_eq!(asked(&["Host: evil.example\r\n", &token]), 403);
    assert_eq!(asked(&[&host, &token, "Origin: http://evil.example\r\n"]), 403);
    assert_eq!(asked(&[&host, &token, "Origin: null\r\n"]), 403);
    assert_eq!(asked(&[&host, &token, "Sec-Fetch-Site: cross-site\r\n"]), 403);
}

#[test]
fn given_files_are_evaluated() {
    let folder = Folder::with(&[("p.yaml", POLICY), ("r.yaml", SHOP)]);
    let ui = Ui::start(&folder, &["p.yaml", "--resource", "r.yaml"]);
    let headers = format!("Host: {}\r\nKiln-Token: {}\r\n", ui.address, ui.token);
    let (_, state) = ui.call(&headers, r#"{"method":"state"}"#);
    let state = json::parse(&state).unwrap();
    let workspace = state.get("workspace").unwrap();
    let request = format!(
        r#"{{"method":"evaluate","trace":true,"plan":true,"lineage":true,"workspace":{}}}"#,
        json::to_string(workspace)
    );
    let (status, answer) = ui.call(&headers, &request);
    assert_eq!(status, 200);
    let answer = json::parse(&answer).unwrap();
    assert_eq!(answer.get_path(["summary", "pass"]).and_then(Value::as_i64), Some(2), "{answer:?}");
    assert!(answer.str_at(["lineageHtml"]).unwrap().contains("<svg"), "{answer:?}");
    let (_, nothing) = ui.call(&headers, r#"{"method":"cluster.apply","yaml":""}"#);
    assert!(nothing.contains("error"), "{nothing}");
}

#[test]
fn other_machines_are_not_served() {
    let run = kiln(&["ui", "--listen", "0.0.0.0:0"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("not an address of this machine alone"), "{}", run.stderr);
}
