//! `kiln build` with charts from repositories and registries, without helm: fetched, checked, kept.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::harness::{Folder, Run};

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n\
    data:\n  text: {{ .Values.text }}\n  version: {{ .Chart.Version }}\n";

/// A packaged chart, as `helm package` writes it.
fn package(version: &str) -> Vec<u8> {
    let mut archive = Vec::new();
    let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    for (name, content) in [
        ("web/Chart.yaml", metadata.as_str()),
        ("web/values.yaml", "text: of the chart\n"),
        ("web/templates/a.yaml", TEMPLATE),
    ] {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&archive).unwrap();
    packed.finish().unwrap()
}

fn digest(content: &[u8]) -> String {
    kiln_chart::repository::digest_of(content)
}

/// Answers by path; those that want a token come with it.
#[derive(Default)]
struct Served {
    answers: BTreeMap<String, Vec<u8>>,
    token: Option<&'static str>,
}

/// A server, and the paths that it was asked for.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(served: impl FnOnce(u16) -> Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = served(port);
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.by_ref().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
                let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
                noted.lock().unwrap().push(path.clone());
                let bearer = served.token.map(|token| format!("authorization: bearer {token}"));
                let may = !path.starts_with("/v2/")
                    || bearer.is_none_or(|bearer| {
                        head.iter().any(|line| line.to_ascii_lowercase() == bearer)
                    });
                let (status, extra, body) = match served.answers.get(&path) {
                    _ if !may => {
                        let realm = format!("http://127.0.0.1:{port}/token");
                        let challenge = format!(
                            "WWW-Authenticate: Bearer realm=\"{realm}\",service=\"reg\",scope=\"repository:team/web:pull\"\r\n"
                        );
                        ("401 Unauthorized", challenge, Vec::new())
                    }
                    // Registries give tags page by page.
                    Some(body) if path.ends_with("/tags/list") => {
                        let next = format!("Link: <{path}?last=1.0.0>; rel=\"next\"\r\n");
                        ("200 OK", next, body.clone())
                    }
                    Some(body) => ("200 OK", String::new(), body.clone()),
                    None => ("404 Not Found", String::new(), Vec::new()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                // A client that rejects the answer hangs up.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Server { port, asked }
    }

    fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Runs with a cache of its own, without the proxies of the machine, and where there is no helm.
fn kiln(folder: &Folder, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("build").args(args).current_dir(folder.path()).env("PATH", "/nowhere");
    for proxy in
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(proxy);
    }
    command.env("XDG_CACHE_HOME", folder.path().join("cache"));
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn naming(repo: &str, more: &str) -> Folder {
    let entry = format!("helmCharts:\n- name: web\n  releaseName: r\n  repo: {repo}\n{more}");
    Folder::with(&[("kustomization.yaml", &entry)])
}

fn built(version: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\ndata:\n  text: {text}\n  version: {version}\nkind: ConfigMap\nmetadata:\n  name: r\n"
    )
}

fn repository(digest_of_old: Option<&str>) -> impl FnOnce(u16) -> Served {
    let (old, new) = (package("1.0.0"), package("1.1.0"));
    let promised = digest_of_old.map_or_else(|| digest(&old), str::to_owned);
    let index = format!(
        "apiVersion: v1\nentries:\n  web:\n  - version: 1.1.0\n    urls: [files/web-1.1.0.tgz]\n  \
         - version: 1.0.0\n    digest: {promised}\n    urls: [files/web-1.0.0.tgz]\n"
    );
    move |_| Served {
        answers: BTreeMap::from([
            ("/charts/index.yaml".to_owned(), index.into_bytes()),
            ("/charts/files/web-1.0.0.tgz".to_owned(), old),
            ("/charts/files/web-1.1.0.tgz".to_owned(), new),
        ]),
        token: None,
    }
}

#[test]
fn charts_come_from_repositories_and_then_from_the_cache() {
    let server = Server::start(repository(None));
    let repo = format!("http://127.0.0.1:{}/charts/", server.port);
    let newest = naming(&repo, "");
    let run = kiln(&newest, &["--enable-helm", "--offline"]);
    assert_eq!((run.code, server.take_asked()), (2, Vec::new()), "{}", run.stdout);
    assert!(run.stderr.contains("this build is offline"), "{}", run.stderr);
    let run = kiln(&newest, &["--enable-helm"]);
    let wanted = built("1.1.0", "of the chart");
    assert_eq!((run.code, run.stdout.as_str()), (0, wanted.as_str()), "{}", run.stderr);
    assert_eq!(server.take_asked(), ["/charts/index.yaml", "/charts/files/web-1.1.0.tgz"]);
    let run = kiln(&newest, &["--enable-helm", "--offline"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, wanted.as_str()), "{}", run.stderr);
    // The kustomization itself is left as it is.
    assert!(!newest.path().join("charts").exists());

    let inline = "  version: 1.0.0\n  valuesInline: {text: inline}\n";
    let exact = naming(&repo, inline);
    for asked in [&["/charts/index.yaml", "/charts/files/web-1.0.0.tgz"][..], &[]] {
        let run = kiln(&exact, &["--enable-helm"]);
        let wanted = built("1.0.0", "inline");
        assert_eq!((run.code, run.stdout.as_str()), (0, wanted.as_str()), "{}", run.stderr);
        assert_eq!(server.take_asked(), asked);
    }
    let merged = naming(&repo, "  valuesInline: {text: inline}\n  valuesMerge: merge\n");
    assert_eq!(kiln(&merged, &["--enable-helm"]).stdout, built("1.1.0", "of the chart"));
}

#[test]
fn a_chart_that_is_not_what_its_digest_says_is_refused_and_not_kept() {
    let server = Server::start(repository(Some(&"f".repeat(64))));
    let repo = format!("http://127.0.0.1:{}/charts", server.port);
    let folder = naming(&repo, "  version: 1.0.0\n");
    let run = kiln(&folder, &["--enable-helm"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("was promised"), "{}", run.stderr);
    assert!(run.stderr.contains("kustomization.yaml:2:3"), "{}", run.stderr);
    assert!(!folder.path().join("cache/kiln").exists());
    for (more, message) in [
        ("  version: 7.0.0\n", "has no chart web in version 7.0.0"),
        ("  version: ../../../x\n", "has no chart web in version"),
    ] {
        let run = kiln(&naming(&repo, more), &["--enable-helm"]);
        assert_eq!(run.code, 2, "{more}");
        assert!(run.stderr.contains(message), "{more}: {}", run.stderr);
    }
}

#[test]
fn a_spoilt_cache_is_not_believed() {
    let server = Server::start(repository(None));
    let repo = format!("http://127.0.0.1:{}/charts", server.port);
    let folder = naming(&repo, "  version: 1.0.0\n");
    assert_eq!(kiln(&folder, &["--enable-helm"]).code, 0);
    let caches = folder.path().join("cache/kiln/charts");
    let cache = std::fs::read_dir(caches).unwrap().next().unwrap().unwrap().path();
    std::fs::write(cache.join("web@1.0.0.tgz"), package("6.6.6")).unwrap();
    assert_eq!(kiln(&folder, &["--enable-helm", "--offline"]).code, 2);
    let run = kiln(&folder, &["--enable-helm"]);
    assert_eq!((run.code, run.stdout), (0, built("1.0.0", "of the chart")), "{}", run.stderr);
}

fn registry(spoilt: bool) -> impl FnOnce(u16) -> Served {
    move |_| {
        let chart = package("1.2.0+build");
        let layer = format!("sha256:{}", digest(&chart));
        let manifest = format!(
            r#"{{"schemaVersion": 2, "layers": [
                {{"mediaType": "application/vnd.cncf.helm.chart.provenance.v1.prov", "digest": "sha256:00"}},
                {{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": "{layer}"}}]}}"#
        );
        let tags = r#"{"name": "team/web", "tags": ["1.0.0"]}"#;
        let more = r#"{"name": "team/web", "tags": ["1.2.0_build", "latest", "2.0.0-rc.1"]}"#;
        let body = if spoilt { package("6.6.6") } else { chart };
        let token = "/token?service=reg&scope=repository%3Ateam%2Fweb%3Apull";
        Served {
            answers: BTreeMap::from([
                ("/v2/team/web/tags/list".to_owned(), tags.into()),
                ("/v2/team/web/tags/list?last=1.0.0".to_owned(), more.into()),
                ("/v2/team/web/manifests/1.2.0_build".to_owned(), manifest.into_bytes()),
                (format!("/v2/team/web/blobs/{layer}"), body),
                (token.to_owned(), br#"{"token": "open-sesame"}"#.to_vec()),
            ]),
            token: Some("open-sesame"),
        }
    }
}

#[test]
fn charts_come_from_registries_that_send_clients_for_a_token() {
    let server = Server::start(registry(false));
    let repo = format!("oci://127.0.0.1:{}/team", server.port);
    for more in ["", "  version: 1.2.0+build\n", "  version: ^1.1\n"] {
        let folder = naming(&repo, more);
        let run = kiln(&folder, &["--enable-helm"]);
        let wanted = built("1.2.0+build", "of the chart");
        assert_eq!((run.code, run.stdout.as_str()), (0, wanted.as_str()), "{more}: {}", run.stderr);
        let asked = server.take_asked();
        let tokens = asked.iter().filter(|path| path.starts_with("/token")).count();
        assert_eq!(tokens, 1, "one token is enough: {asked:?}");
        let run = kiln(&folder, &["--enable-helm", "--offline"]);
        assert_eq!((run.code, run.stdout.as_str()), (0, wanted.as_str()), "{more}: {}", run.stderr);
        assert!(server.take_asked().is_empty());
    }
    let spoilt = Server::start(registry(true));
    let folder = naming(&format!("oci://127.0.0.1:{}/team", spoilt.port), "");
    let run = kiln(&folder, &["--enable-helm"]);
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert!(run.stderr.contains("was promised"), "{}", run.stderr);
}
