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

/// A ConfigMap with a comment of 20,000 bytes, compressed by gzip to little more than a hundred.
const PACKED: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xed\xc1\x31\x0a\xc2\x40\x10\x00\xc0\xfe\x5e\xb1\
    \xe0\x0b\x6c\xaf\xb5\xb6\xb5\x5f\xc8\x29\x87\xe4\x12\x92\x20\x82\xf8\x77\xbf\x61\x31\x33\
    \xb9\xf6\x5b\xdb\xf6\xbe\x8c\x1a\xaf\x73\x79\xf6\x31\xd5\xb8\x2c\xe3\xde\x1f\xd7\x5c\xcb\
    \xdc\x8e\x9c\xf2\xc8\x1a\x9f\x91\x73\xab\x91\xdf\x72\x8a\x37\x00\x00\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xa1\xfc\x00\x45\x0c\xed\x48\x56\x4e\
    \x00\x00";

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
    // A client that rejects the answer hangs up.
    let _ = write!(stream.get_mut(), "HTTP/1.1 {answer}");
    if path == "/packed.yaml" {
        let _ = stream.get_mut().write_all(PACKED);
    }
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
fn files_come_over_http_unless_that_is_forbidden() {
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
        let run = kiln(&folder, &["build"], &[]);
        assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{path}: {}", run.stderr);
    }
    let folder = naming(&format!("http://127.0.0.1:{port}/a.yaml"));
    // What was needed once is still taken.
    let run = kiln(&folder, &["build", "--enable-remote"], &[("KILN_ENABLE_REMOTE", "true")]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    for (args, variables) in
        [(vec!["build", "--offline"], vec![]), (vec!["build"], vec![("KILN_OFFLINE", "true")])]
    {
        let run = kiln(&folder, &args, &variables);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(run.stderr.contains("this build is offline"), "{}", run.stderr);
        assert!(run.stderr.contains("without --offline"), "{}", run.stderr);
    }
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
            (
                "/packed.yaml",
                format!(
                    "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    PACKED.len()
                ),
            ),
            ("/odd.yaml", "200 OK\r\nContent-Length: 10\r\n\r\nshort".to_owned()),
        ]),
        None,
    );
    for (path, message) in [
        ("large.yaml", "has more than 1024 bytes"),
        ("packed.yaml", "has more than 1024 bytes"),
        ("away.yaml", "redirects to file:///etc/hostname"),
        ("circle.yaml", "redirects more than 10 times"),
        ("gone.yaml", "status code 404 (Not Found)"),
        ("odd.yaml", "cannot fetch"),
    ] {
        let folder = naming(&format!("http://127.0.0.1:{port}/{path}"));
        let run = kiln(&folder, &["build", "--max-input-size", "1K"], &[]);
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
    let run = kiln(&folder, &["build"], &[("SSL_CERT_FILE", "ca.pem")]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let run = kiln(&folder, &["build"], &[]);
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
    if !made {
        kiln_testkit::skip("git does not work here", "install git");
    }
    made.then_some(folder)
}

#[test]
fn repositories_come_through_git_unless_that_is_forbidden() {
    let Some(repository) = repository() else { return };
    let address = format!("file://{}//app?ref=v1", repository.path().join("bare.git").display());
    let folder = naming(&address);
    let run = kiln(&folder, &["build"], &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    let run = kiln(&folder, &["build", &address], &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    for args in [vec!["build", "--offline"], vec!["build", "--offline", &address]] {
        // Git is not even looked for.
        let run = kiln(&folder, &args, &[("PATH", "/nowhere")]);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stdout);
        assert!(run.stderr.contains("this build is offline"), "{}", run.stderr);
    }
    let run = kiln(&folder, &["build"], &[("PATH", "/nowhere")]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("install git"), "{}", run.stderr);
}

/// Runs git in a folder, as a user with a name.
fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_build_in_a_hook_leaves_the_repository_of_the_hook_alone() {
    let (Some(base), Some(mine)) = (repository(), repository()) else { return };
    let folder = naming(&format!("file://{}//app", base.path().join("bare.git").display()));
    let own = mine.path().join(".git").display().to_string();
    let index = mine.path().join(".git/index").display().to_string();
    let work = mine.path().display().to_string();
    git(mine.path(), &["config", "kept.by", "hand"]);
    let before = mine.read(".git/config");
    // As git sets them for its hooks.
    let variables = [
        ("GIT_DIR", own.as_str()),
        ("GIT_INDEX_FILE", &index),
        ("GIT_WORK_TREE", &work),
        ("GIT_PREFIX", ""),
        ("GIT_COMMON_DIR", &own),
        ("GIT_OBJECT_DIRECTORY", "/nowhere"),
    ];
    let run = kiln(&folder, &["build"], &variables);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    assert_eq!(git(mine.path(), &["symbolic-ref", "HEAD"]), "refs/heads/main\n");
    assert_eq!(git(mine.path(), &["remote"]), "");
    assert_eq!(mine.read(".git/config"), before);
}

#[test]
fn a_submodule_is_no_repository_of_this_machine() {
    let Some(private) = repository() else { return };
    private.write("token", "hush");
    git(private.path(), &["add", "token"]);
    git(private.path(), &["commit", "-q", "-m", "token"]);
    for address in
        [private.path().display().to_string(), format!("file://{}", private.path().display())]
    {
        let Some(hostile) = repository() else { return };
        git(hostile.path(), &["submodule", "--quiet", "add", &address, "app/data"]);
        hostile.write(
            "app/kustomization.yaml",
            "configMapGenerator: [{name: a, files: [data/token]}]\n",
        );
        git(hostile.path(), &["add", "."]);
        git(hostile.path(), &["commit", "-q", "-m", "two"]);
        let folder = naming(&format!("file://{}//app", hostile.path().join(".git").display()));
        let run = kiln(&folder, &["build"], &[]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{address}");
        assert!(run.stderr.contains("git submodule update"), "{}", run.stderr);
        assert!(run.stderr.contains("transport 'file' not allowed"), "{}", run.stderr);
        // Who wants it says so in the words of git.
        let allowed = [("GIT_ALLOW_PROTOCOL", "file")];
        assert!(kiln(&folder, &["build"], &allowed).stdout.contains("token: hush"), "{address}");
    }
}

#[cfg(unix)]
fn program(folder: &Folder, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    folder.write(name, format!("#!/bin/sh\n{script}"));
    let path = folder.path().join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Whether a condition comes true before patience ends.
#[cfg(unix)]
fn comes_true(condition: impl Fn() -> bool) -> bool {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !condition() && std::time::Instant::now() < patience {
        std::thread::yield_now();
    }
    condition()
}

#[cfg(unix)]
#[test]
fn a_server_that_says_nothing_ends_git_and_what_it_started() {
    if repository().is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (hung_up, hang_ups) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Reads what is asked, says nothing, and learns when the other side is gone.
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = hung_up.send(());
        }
    });
    let address = format!("http://127.0.0.1:{port}/o/r.git//x?timeout=1s");
    let (done, runs) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let folder = naming("a.yaml");
        let _ = done.send(kiln(&folder, &["build", &address], &[]));
    });
    let patience = std::time::Duration::from_secs(60);
    let run = runs.recv_timeout(patience).expect("the build ends");
    assert_eq!(run.code, 2, "{}", run.stdout);
    assert!(run.stderr.contains("hit 1s timeout running 'git fetch"), "{}", run.stderr);
    assert!(run.stderr.contains("?timeout=120s"), "{}", run.stderr);
    hang_ups.recv_timeout(patience).expect("no process holds the connection any more");
}

#[cfg(unix)]
#[test]
fn what_git_leaves_running_neither_holds_up_a_build_nor_outlives_a_timeout() {
    let folder = naming("https://git.example/o/r//app?ref=v1&timeout=1s");
    program(
        &folder,
        "bin/git",
        "case $1 in\ncheckout) mkdir app && echo 'namePrefix: x-' > app/kustomization.yaml\n\
         sleep 1000 & echo $! > \"$PIDS\";;\nfetch) [ -z \"$SLOW\" ] || { sleep 1000 & echo $! > \"$PIDS\"; wait; };;\nesac\n",
    );
    let pids = folder.path().join("pids").display().to_string();
    let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
    let is_there = || {
        let pid = folder.read("pids").trim().parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok()
    };
    let args = ["build"];
    // A helper that stays is git's own affair, as a shared connection of ssh is.
    let run = kiln(&folder, &args, &[("PATH", &path), ("PIDS", &pids)]);
    assert!(!run.stderr.contains("timeout"), "{}", run.stderr);
    assert!(is_there());
    let pid = folder.read("pids").trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .unwrap();

    let run = kiln(&folder, &args, &[("PATH", &path), ("PIDS", &pids), ("SLOW", "yes")]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("hit 1s timeout running 'git fetch"), "{}", run.stderr);
    assert!(comes_true(|| !is_there()));
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
        "case $1 in\nversion) echo v3.15.0;;\ntemplate) echo \"$@\" > \"$(dirname $0)/words\"; printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\n';;\nesac\n",
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

#[cfg(unix)]
#[test]
fn charts_take_no_options_and_no_files_from_elsewhere() {
    let folder = Folder::with(&[
        ("outside.yaml", "token: s3cr3t\n"),
        ("app/charts/web/values.yaml", "y: 2\n"),
        ("charts/web/values.yaml", "token: s3cr3t\n"),
    ]);
    std::os::unix::fs::symlink("../outside.yaml", folder.path().join("app/link.yaml")).unwrap();
    std::os::unix::fs::symlink("../charts", folder.path().join("app/linked")).unwrap();
    let helm = program(
        &folder,
        "helm",
        "case $1 in\nversion) echo v3.15.0;;\n*) echo \"$@\" >> \"$(dirname $0)/words\"; printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\n';;\nesac\n",
    );
    for (fields, wanted, hint) in [
        ("releaseName: --post-renderer=./evil.sh", "releaseName of a chart cannot be", "a dash"),
        ("version: --debug, repo: 'https://c.example'", "version of a chart cannot be", "a dash"),
        ("valuesFile: ../outside.yaml", "is not in or below", "--load-restrictor"),
        ("valuesFile: link.yaml", "is not in or below", "--load-restrictor"),
        ("additionalValuesFiles: [../outside.yaml]", "is not in or below", "--load-restrictor"),
        ("additionalValuesFiles: [link.yaml]", "is not in or below", "--load-restrictor"),
        ("additionalValuesFiles: ['https://c.example/v.yaml']", "is not a file of", "download"),
        ("chartHome: ../charts, valuesInline: {x: 1}", "is not in or below", "--load-restrictor"),
        ("chartHome: linked", "is not in or below", "--load-restrictor"),
    ] {
        let text = format!("helmCharts:\n- {{name: web, {fields}}}\n");
        folder.write("app/kustomization.yaml", text);
        let args = ["build", "app", "--enable-helm", "--helm-command", &helm];
        let run = kiln(&folder, &args, &[]);
        assert_eq!(run.code, 2, "{fields}: {}", run.stdout);
        for part in [wanted, hint, "app/kustomization.yaml:2:"] {
            assert!(run.stderr.contains(part), "{fields}: {}", run.stderr);
        }
        assert!(!folder.path().join("words").exists(), "{fields}: {}", folder.read("words"));
        if hint == "--load-restrictor" {
            let all = [&args[..], &["--load-restrictor", "LoadRestrictionsNone"]].concat();
            let run = kiln(&folder, &all, &[]);
            assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{fields}: {}", run.stderr);
            std::fs::remove_file(folder.path().join("words")).unwrap();
        }
    }
}

/// A helm that writes down where it runs, with which configuration, and what it is asked.
#[cfg(unix)]
const WRITES_DOWN: &str = "echo \"$PWD [$HELM_CONFIG_HOME] $@\" >> \"$(dirname $0)/words\"\n\
    case $1 in\nversion) echo v3.15.0;;\npull) exit 1;;\n\
    template) printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\n';;\nesac\n";

#[cfg(unix)]
#[test]
fn a_kustomization_brings_neither_configuration_nor_programs_for_helm() {
    let folder = Folder::with(&[
        ("app/kustomization.yaml", "helmGlobals: {configHome: cfg}\nhelmCharts:\n- name: web\n"),
        ("app/charts/web/values.yaml", "y: 2\n"),
        ("app/cfg/registry/config.json", "{\"credsStore\": \"x/../evil.sh\"}\n"),
    ]);
    program(&folder, "helm", WRITES_DOWN);
    program(&folder, "app/helm", "echo evil > \"$(dirname $0)/../evil\"\n");
    // A path is meant from where the user is.
    let args = ["build", "app", "--enable-helm", "--helm-command", "./helm"];
    let run = kiln(&folder, &args, &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    for part in ["configHome of a chart was not used", "--enable-exec", "app/kustomization.yaml:"] {
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
    assert!(!folder.path().join("evil").exists());
    let root = folder.path().canonicalize().unwrap().display().to_string();
    for line in folder.read("words").lines() {
        assert!(line.contains(" [] ") && !line.starts_with(&root), "{line}");
    }
    std::fs::remove_file(folder.path().join("words")).unwrap();
    let run = kiln(&folder, &[&args[..], &["--enable-exec"]].concat(), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let words = folder.read("words");
    assert!(words.lines().all(|line| line.contains(&format!("[{root}/app/cfg]"))), "{words}");
}

#[cfg(unix)]
#[test]
fn helm_fetches_nothing_where_that_is_forbidden() {
    for repo in ["https://charts.example", "oci://charts.example/all"] {
        let text = format!("helmCharts:\n- {{name: web, repo: '{repo}', version: 1.2.3}}\n");
        let folder = Folder::with(&[("kustomization.yaml", &text)]);
        let helm = program(&folder, "helm", WRITES_DOWN);
        let args = ["build", "--enable-helm", "--helm-command", &helm];
        let run = kiln(&folder, &[&args[..], &["--offline"]].concat(), &[]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        for part in ["the chart web lies elsewhere", "this build is offline", "--offline"] {
            assert!(run.stderr.contains(part), "{}", run.stderr);
        }
        assert!(!folder.read("words").contains("pull"), "{}", folder.read("words"));
        assert_eq!(kiln(&folder, &args, &[]).code, 2);
        assert!(folder.read("words").contains("] pull "), "{}", folder.read("words"));
        // Existing files need no network.
        folder.write("charts/web-1.2.3/web/values.yaml", "y: 2\n");
        let run = kiln(&folder, &[&args[..], &["--offline"]].concat(), &[]);
        assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{}", run.stderr);
    }
}

#[cfg(unix)]
#[test]
fn no_link_in_a_chart_leads_out() {
    use std::os::unix::fs::symlink;
    for (link, target, is_refused) in [
        ("app/charts/web/templates/x.yaml", "/etc/hostname", true),
        ("app/charts/web/templates", "../../../outside", true),
        ("app/charts/web/charts/sub", "../../../../outside", true),
        // A folder of the kustomization, in which another link leads out.
        ("app/charts/web/templates", "../../shared", true),
        ("app/charts/web/templates", "../../fine", false),
        ("app/charts/web/templates/circle", "..", false),
    ] {
        let folder = Folder::with(&[
            ("app/kustomization.yaml", "helmCharts:\n- name: web\n"),
            ("app/charts/web/values.yaml", "y: 2\n"),
            ("app/fine/x.yaml", "a: b\n"),
            ("app/shared/y.yaml", "a: b\n"),
            ("outside/x.yaml", "token: s3cr3t\n"),
        ]);
        symlink("../../outside/x.yaml", folder.path().join("app/shared/x.yaml")).unwrap();
        let place = folder.path().join(link);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(target, &place).unwrap();
        let helm = program(&folder, "helm", WRITES_DOWN);
        let args = ["build", "app", "--enable-helm", "--helm-command", &helm];
        let run = kiln(&folder, &args, &[]);
        if is_refused {
            assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{link} -> {target}");
            for part in ["is not in or below", "--load-restrictor"] {
                assert!(run.stderr.contains(part), "{link} -> {target}: {}", run.stderr);
            }
            assert!(!folder.read("words").contains("template"), "{}", folder.read("words"));
        }
        let all = [&args[..], &["--load-restrictor", "LoadRestrictionsNone"]].concat();
        let run = if is_refused { kiln(&folder, &all, &[]) } else { run };
        assert_eq!((run.code, run.stdout.as_str()), (0, BUILT), "{link}: {}", run.stderr);
    }
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
