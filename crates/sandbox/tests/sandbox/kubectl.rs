//! The recorded commands, run with a real kubectl against the sandbox: the same exit codes, and the same
//! printed result as far as it was recorded, times and made-up names aside.
//!
//! What differs is listed in `kubectl-differences.txt` with the reason. A line whose command agrees by now must go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use kiln_apiserver::Authorization;
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_testkit::control_plane::Binaries;
use kiln_testkit::{corpus, corpus_json};
use kiln_value::Value;
use regex::Regex;

const DIFFERENCES: &str = include_str!("kubectl-differences.txt");

/// The numbers of commands that may differ, with reasons.
fn differences() -> BTreeMap<usize, &'static str> {
    let lines =
        DIFFERENCES.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (number, reason) = line.split_once(' ').expect("a number and a reason");
            (number.parse().expect("a number"), reason)
        })
        .collect()
}

/// Replaces what differs from run to run.
struct Normal(Vec<(Regex, &'static str)>);

impl Normal {
    fn new() -> Self {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<UID>"),
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( \+0000|Z)?", "<TIME>"),
            (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "<TIME>"),
            (r"[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+", "<LOG>"),
            (r"https?://127\.0\.0\.1:(\d+|PORT)", "<SERVER>"),
            (r"127\.0\.0\.1:(\d+|PORT)", "<ADDRESS>"),
            (r#"(resourceVersion: |"resourceVersion": ?|Resource Version: +)"?\d+"?"#, "${1}<RV>"),
            (r"\b10\.0\.\d+\.\d+\b", "<IP>"),
            (r"\b(fromcj|job1|gen|debugger|kube-api-access)-[a-z0-9]{5}\b", "$1-<X>"),
            (r"\bweb-[a-z0-9]{8,10}-[a-z0-9]{5}\b", "web-<H>-<X>"),
            (r"\bweb-[a-z0-9]{8,10}\b", "web-<H>"),
            (r"pod-template-hash=[a-z0-9]+", "pod-template-hash=<H>"),
            (r"(TMP|/tmp)/(LIVE|MERGED)-(\d+|N)", "TMP/$2-N"),
            (r"eyJ[A-Za-z0-9_.-]+", "<JWT>"),
            (r"generation: \d+", "generation: <N>"),
            (r"\b\d+[smh](\d+[sm])?\b", "<AGE>"),
        ];
        Normal(rules.iter().map(|(rule, to)| (Regex::new(rule).expect("a rule"), *to)).collect())
    }

    fn text(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (rule, to)| rule.replace_all(&text, *to).into_owned())
    }
}

/// Whether a text is a table: a line of headings first.
fn is_table(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.split_whitespace().count() > 1
        && first.chars().all(|c| c.is_uppercase() || c.is_whitespace() || "-()".contains(c))
}

/// The headings and the first words of a table, as far as they were recorded.
fn outline(text: &str, cut: bool) -> BTreeSet<String> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if cut {
        lines.pop();
    }
    lines
        .into_iter()
        .map(|line| {
            if is_table(line) {
                line.split_whitespace().collect::<Vec<_>>().join(" ")
            } else {
                line.split_whitespace().next().unwrap_or_default().to_owned()
            }
        })
        .collect()
}

/// Compares what was printed with the beginning that was recorded.
fn compare(command: &str, wanted: &str, got: &str, normal: &Normal) -> Result<(), String> {
    let cut = wanted.len() >= 400;
    let (wanted, got) = (normal.text(wanted), normal.text(got));
    // Columns are as wide as made-up names are long.
    let narrow = |text: String| {
        if command.contains("--no-headers") {
            text.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        } else {
            text
        }
    };
    let (wanted, got) = (narrow(wanted), narrow(got));
    if command.contains(" describe ") {
        let headings = |text: &str| -> BTreeSet<String> {
            let heads = text.lines().filter(|line| !line.starts_with(char::is_whitespace));
            heads.filter_map(|line| line.split_once(':')).map(|(head, _)| head.to_owned()).collect()
        };
        let missing: Vec<String> = headings(&wanted).difference(&headings(&got)).cloned().collect();
        return if missing.is_empty() { Ok(()) } else { Err(format!("lacks {missing:?}")) };
    }
    if is_table(&wanted) {
        let (wanted, got) = (outline(&wanted, cut), outline(&got, false));
        let missing: Vec<&String> = wanted.difference(&got).collect();
        let surplus: Vec<&String> =
            if cut { Vec::new() } else { got.difference(&wanted).collect() };
        return if missing.is_empty() && surplus.is_empty() {
            Ok(())
        } else {
            Err(format!("lacks {missing:?}, has {surplus:?}"))
        };
    }
    // The last token may have been cut before it could be made normal.
    let short = |text: &str| {
        if cut {
            text.chars().take(wanted.chars().count().saturating_sub(60)).collect::<String>()
        } else {
            text.trim_end().to_owned()
        }
    };
    let (left, right) = (short(&wanted), short(&got));
    if left == right {
        return Ok(());
    }
    let at = left.chars().zip(right.chars()).take_while(|(a, b)| a == b).count();
    let around =
        |text: &str| text.chars().skip(at.saturating_sub(40)).take(140).collect::<String>();
    Err(format!("at {at}: wanted {:?}, got {:?}", around(&left), around(&right)))
}

fn run(folder: &Path, kubectl: &Path, command: &str) -> (i64, String, String) {
    let path = format!(
        "{}:{}",
        kubectl.parent().expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("bash")
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("KUBECONFIG", folder.join("config"))
        .env("KUBE_EDITOR", folder.join("ed.sh"))
        .env("TMPDIR", "/tmp")
        .env_remove("KUBECTL_APPLYSET")
        .output()
        .expect("bash");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (i64::from(output.status.code().unwrap_or(-1)), text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_commands_print_what_they_printed() {
    let (Some(recordings), Some(commands)) =
        (corpus_json("kubectl/recordings.json"), corpus("kubectl/commands.txt"))
    else {
        return;
    };
    let Ok(binaries) = Binaries::find() else { return };
    let commands = std::fs::read_to_string(commands).expect("commands");
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in recordings.get("files").and_then(Value::as_map).expect("files") {
        let path = folder.path().join(name.as_str());
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(&path, text.as_str().unwrap_or_default()).expect("a file");
        if name.ends_with(".sh") {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .expect("a mode");
        }
    }
    let options = SandboxOptions {
        authorization: Authorization::Rbac,
        namespace: "demo".to_owned(),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::start(&options).await.expect("a sandbox");
    // With the names of the recording.
    let named = [
        ("clusters:\n- name: kiln", "clusters:\n- name: c"),
        ("contexts:\n- name: kiln", "contexts:\n- name: x"),
        ("cluster: kiln", "cluster: c"),
        ("user: admin", "user: u"),
        ("users:\n- name: admin", "users:\n- name: u"),
        ("current-context: kiln", "current-context: x"),
    ];
    let config = named
        .iter()
        .fold(sandbox.kubeconfig().to_owned(), |config, (from, to)| config.replace(from, to));
    std::fs::write(folder.path().join("config"), config).expect("a kubeconfig");
    let normal = Normal::new();
    let known = differences();
    let recorded = recordings.get("kubectl").and_then(Value::as_list).expect("commands").to_vec();
    let mut problems = Vec::new();
    let mut agree = 0;
    let only: Option<usize> = std::env::var("KILN_UPTO").ok().and_then(|text| text.parse().ok());
    for (i, (line, case)) in commands.lines().zip(&recorded).enumerate() {
        if only.is_some_and(|only| i > only) {
            break;
        }
        let command = line.strip_prefix("!COLD ").unwrap_or(line).to_owned();
        if line.starts_with("!COLD ") {
            let _ = std::fs::remove_dir_all(folder.path().join(".kube/cache"));
        }
        let (at, kubectl) = (folder.path().to_owned(), binaries.path("kubectl").to_owned());
        let text = command.clone();
        let (code, out, err) =
            tokio::task::spawn_blocking(move || run(&at, &kubectl, &text)).await.expect("a run");
        let field =
            |name: &str| case.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let wanted = case.get("exit").and_then(Value::as_i64).unwrap_or(0);
        let outcome = if code == wanted {
            compare(&command, &field("stdout"), &out, &normal)
                .map_err(|why| format!("stdout {why}"))
                .and_then(|()| {
                    compare(&command, &field("stderr"), &err, &normal)
                        .map_err(|why| format!("stderr {why}"))
                })
        } else {
            Err(format!(
                "exit {code} instead of {wanted}: {}",
                err.chars().take(300).collect::<String>()
            ))
        };
        match (outcome, known.get(&i)) {
            (Ok(()), None) => agree += 1,
            (Ok(()), Some(_)) => problems
                .push(format!("{i} {command}: agrees by now; take its line out of the list")),
            (Err(_), Some(_)) => {}
            (Err(why), None) => problems.push(format!("{i} {command}: {why}")),
        }
    }
    sandbox.stop().await;
    eprintln!(
        "corpus: kubectl: {agree} of {} commands agree, {} are listed",
        recorded.len(),
        known.len()
    );
    assert!(problems.is_empty(), "{} commands differ:\n{}", problems.len(), problems.join("\n"));
}
