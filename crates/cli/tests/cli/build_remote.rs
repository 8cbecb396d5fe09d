//! `kiln build` with things that lie elsewhere: files over HTTP, repositories, charts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::harness::{Folder, Run};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
const BUILT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";

type Answers = BTreeMap<&'static str, String>;

/// Serves answers by path on a port of this machine, for as long as the test runs.
fn serve(answers: Answers, tls: Option<Arc<rustls::ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            match &tls {
                None => answer(stream, &answers),
                Some(config) => {
                    let Ok(connection) = rustls::ServerConnection::new(Arc::clone(config)) else {
                        continue;
                    };
                    answer(rustls::StreamOwned::new(connection, stream), &answers);
                }
            }
        }
    });
    port
}

fn answer(stream: impl Read + Write, answers: &Answers) {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    if stream.read_line(&mut first).is_err() {
        return;
    }
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let missing = "404 Not Found\r\n\r\n".to_owned();
    let answer = answers.get(path).unwrap_or(&missing);
    // Whoever does not like the answer hangs up.
    let _ = write!(stream.get_mut(), "HTTP/1.1 {answer}");
    let _ = stream.get_mut().flush();
}

fn ok(body: &str) -> String {
    format!("200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// Runs without the proxies of the machine.
fn kiln(folder: &Folder, args: &[&str], environment: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(args).current_dir(folder.path());
    for proxy in
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        command.env_remove(proxy);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn naming(resource: &str) -> Folder {
    Folder::with(&[("kustomization.yaml", &format!("resources:\n- {resource}\n"))])
}

#[test]
fn files_come_over_http_when_that_is_allowed() {
    let port = serve(
        Answers::from([
            ("/a.yaml", ok(CONFIG_MAP)),
            (
                "/moved.yaml",
                "302 Found\r\nLocation: /a.yaml\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_owned(),
            ),
            (
                "/chunked.yaml",
                format!(
                    "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{CONFIG_MAP}\r\n0\r\n\r\n",
                    CONFIG_MAP.len()
                ),
            ),
        ]),
        None,
    );
    for path in ["a.yaml", "moved.yaml", "chunked.yaml"] {
        let folder = naming(&format!("http://127.0.0.1:{port}/{path}"));
        let run = kiln(&folder, &["build", "--enable-remote"], &[]);
        assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{path}: {}", run.stderr);
    }
    let folder = naming(&format!("http://127.0.0.1:{port}/a.yaml"));
    let run = kiln(&folder, &["build"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("remote resources are not enabled"), "{}", run.stderr);
    assert!(run.stderr.contains("--enable-remote"), "{}", run.stderr);
    let run = kiln(&folder, &["build"], &[("KILN_ENABLE_REMOTE", "true")]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
}

#[test]
fn http_has_limits() {
    let port = serve(
        Answers::from([
            ("/large.yaml", ok(&format!("{CONFIG_MAP}# {}\n", "x".repeat(5000)))),
            (
                "/away.yaml",
                "302 Found\r\nLocation: file:///etc/hostname\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_owned(),
            ),
            (
                "/circle.yaml",
                "302 Found\r\nLocation: /circle.yaml\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            ),
            ("/odd.yaml", "200 OK\r\nContent-Length: 10\r\n\r\nshort".to_owned()),
        ]),
        None,
    );
    for (path, message) in [
        ("large.yaml", "has more than 1024 bytes"),
        ("away.yaml", "redirects to file:///etc/hostname"),
        ("circle.yaml", "redirects more than 10 times"),
        ("gone.yaml", "status code 404 (Not Found)"),
        ("odd.yaml", "cannot fetch"),
    ] {
        let folder = naming(&format!("http://127.0.0.1:{port}/{path}"));
        let run = kiln(&folder, &["build", "--enable-remote", "--max-input-size", "1K"], &[]);
        assert_eq!(run.code, 2, "{path}: {}", run.stdout);
        assert!(run.stderr.contains(message), "{path}: {}", run.stderr);
        assert!(run.stderr.contains("kustomization.yaml:2:3"), "{path}: {}", run.stderr);
    }
}

#[test]
fn files_come_over_https_from_servers_the_machine_trusts() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(
        vec![key.cert.der().clone()],
        rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap(),
    )
    .unwrap();
    let port = serve(Answers::from([("/a.yaml", ok(CONFIG_MAP))]), Some(Arc::new(config)));
    let folder = naming(&format!("https://localhost:{port}/a.yaml"));
    folder.write("ca.pem", key.cert.pem());
    let run = kiln(&folder, &["build", "--enable-remote"], &[("SSL_CERT_FILE", "ca.pem")]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let run = kiln(&folder, &["build", "--enable-remote"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("cannot fetch https://localhost"), "{}", run.stderr);
}

/// A repository with a kustomization below `app`, or nothing where there is no git.
fn repository() -> Option<Folder> {
    let folder = Folder::with(&[
        ("app/kustomization.yaml", "resources: [a.yaml]\n"),
        ("app/a.yaml", CONFIG_MAP),
    ]);
    let git = |args: &[&str]| {
        Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(args)
            .current_dir(folder.path())
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let made = git(&["init", "-q", "-b", "main"])
        && git(&["add", "."])
        && git(&["commit", "-q", "-m", "one"])
        && git(&["tag", "v1"])
        && git(&["clone", "-q", "--bare", ".", "bare.git"]);
    made.then_some(folder)
}

#[test]
fn repositories_come_through_git_when_that_is_allowed() {
    let Some(repository) = repository() else { return };
    let address = format!("file://{}//app?ref=v1", repository.path().join("bare.git").display());
    let folder = naming(&address);
    let run = kiln(&folder, &["build", "--enable-remote"], &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let run = kiln(&folder, &["build"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--enable-remote"), "{}", run.stderr);
    // What is typed is allowed by that.
    let run = kiln(&folder, &["build", &address], &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let run = kiln(&folder, &["build", "--enable-remote"], &[("PATH", "/nowhere")]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("install git"), "{}", run.stderr);
}

#[cfg(unix)]
fn program(folder: &Folder, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    folder.write(name, format!("#!/bin/sh\n{script}"));
    let path = folder.path().join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[cfg(unix)]
#[test]
fn charts_come_through_helm_when_that_is_allowed() {
    let folder = Folder::with(&[
        (
            "kustomization.yaml",
            "helmCharts:\n- name: web\n  releaseName: r\n  valuesInline: {x: 1}\n",
        ),
        ("charts/web/Chart.yaml", "name: web\n"),
        ("charts/web/values.yaml", "y: 2\n"),
    ]);
    let helm = program(
        &folder,
        "helm",
        "case $1 in\nversion) echo v3.15.0;;\ntemplate) echo \"$@\" > words; printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\n';;\nesac\n",
    );
    let run = kiln(&folder, &["build", "--enable-helm", "--helm-command", &helm], &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let words = folder.read("words");
    assert!(words.starts_with("template r ") && words.contains("/charts/web -f "), "{words}");
    let run = kiln(&folder, &["build"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--enable-helm"), "{}", run.stderr);
    let run = kiln(&folder, &["build", "--enable-helm", "--helm-command", "/nowhere/helm"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("cannot start /nowhere/helm"), "{}", run.stderr);
    assert!(run.stderr.contains("--helm-command"), "{}", run.stderr);
}

#[test]
fn standard_input_takes_the_place_of_a_file() {
    let folder =
        Folder::with(&[("overlay/kustomization.yaml", "namePrefix: x-\nresources: [all.yaml]\n")]);
    let wanted = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x-a\n";
    let args = ["build", "overlay", "--stdin", "all.yaml"];
    let run = folder.kiln_with_input(&args, CONFIG_MAP.as_bytes());
    assert_eq!((run.code, run.stdout.as_str()), (0, wanted), "{}", run.stderr);
    assert!(!folder.path().join("overlay/all.yaml").exists());
    let run = folder.kiln(&["build", "overlay"]);
    assert_eq!(run.code, 2);
}

/// As helm runs a post-renderer, and kubectl a plugin: another program starts this one by its name.
#[cfg(unix)]
#[test]
fn other_programs_can_run_it() {
    let folder =
        Folder::with(&[("overlay/kustomization.yaml", "namePrefix: x-\nresources: [all.yaml]\n")]);
    let bin = env!("CARGO_BIN_EXE_kiln");
    std::os::unix::fs::symlink(bin, folder.path().join("kubectl-kiln")).unwrap();
    let renderer = program(
        &folder,
        "post-render",
        &format!("exec '{bin}' build \"$(dirname \"$0\")/overlay\" --stdin all.yaml\n"),
    );
    let caller = program(
        &folder,
        "caller",
        &format!("printf '{}' | '{renderer}'\n", CONFIG_MAP.replace('\n', "\\n")),
    );
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let wanted = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x-a\n".to_owned();
    assert_eq!(run(Path::new(&caller), &[]), (Some(0), wanted));
    let (code, said) = run(&folder.path().join("kubectl-kiln"), &["version"]);
    assert!(code == Some(0) && said.contains("kiln"), "{said}");
}

#[test]
fn the_size_of_files_is_limited() {
    let folder = Folder::with(&[
        ("kustomization.yaml", "resources: [a.yaml]\n"),
        ("a.yaml", &format!("{CONFIG_MAP}# {}\n", "x".repeat(3000))),
    ]);
    assert_eq!(folder.kiln(&["build"]).code, 0);
    let run = folder.kiln(&["build", "--max-input-size", "2K"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("a.yaml: larger than 2048 bytes"), "{}", run.stderr);
    assert!(run.stderr.contains("--max-input-size"), "{}", run.stderr);
}
