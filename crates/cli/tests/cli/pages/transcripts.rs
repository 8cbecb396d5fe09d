//! Transcripts: commands, and all that a person sees of them.
//!
//! Each file `tests/transcripts/TOPIC.txt` is a list of
//!
//! ```text
//! $ kiln check broken.yaml
//! what is printed on standard output
//! [stderr]
//! what is printed on standard error, if anything is
//! [exit 2]
//! ```
//!
//! with blank lines and remarks between them. The commands of a file run one after the other in a copy of
//! `tests/transcripts/fixtures/TOPIC`; `examples/` is there too for those that name it. Words may be quoted, `< FILE` and `> FILE` do
//! as they do in a shell, and there is no shell: what a command needs beyond that is an option of `kiln`.
//!
//! With `KILN_ACCEPT=1` (`cargo xtask accept`) the files are rewritten to what is printed now; a command without `[exit …]` gets its
//! output then.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kiln_testkit::{difference, project_root};
use tempfile::TempDir;

use crate::harness::kiln;

/// A test for each file, by its name with `_` for `-`.
macro_rules! transcripts {
    ($($topic:ident)*) => {
        const TOPICS: &[&str] = &[$(stringify!($topic)),*];
        $(
            #[test]
            fn $topic() {
                replay(&stringify!($topic).replace('_', "-"));
            }
        )*
    };
}

transcripts! {
    adopt
    apply
    apply_trace
    build
    cfg
    check_cel
    check_kyverno
    check_modrule
    check_yaml
    doctor
    edit
    eval
    explain
    fmt
    help
    help_cluster
    help_edit
    help_editors
    help_eval
    help_kustomize
    init
    install
    localize
    plan
    run
    test
    test_broken
    test_live
    up
    usage
    version
}

/// What differs from run to run or from machine to machine, and what is written for it. `N` is a number, `H` a hexadecimal digit, `X`
/// some of them, and the rest stands for itself. Beside these, the folder of the commands is `<folder>`, their HOME `<home>`, their TMPDIR
/// `<tmp>`, and Kiln's version `<version>`.
const VARIES: &[(&str, &str)] = &[
    ("HHHHHHHH-HHHH-HHHH-HHHH-HHHHHHHHHHHH", "<uid>"),
    ("kiln-N-X", "kiln-<id>"),
    ("N-N-NTN:N:NZ", "<time>"),
    ("N-N-NTN:N:N.NZ", "<time>"),
    ("N ms", "<n> ms"),
    ("N seconds ago", "<n> seconds ago"),
    ("N second ago", "<n> seconds ago"),
    ("is valid for N more days", "is valid for <n> more days"),
    ("os error N", "os error <n>"),
    ("seconds: N", "seconds: <n>"),
];

/// Runs the commands of a file, and compares the whole file with what they print now.
#[track_caller]
fn replay(topic: &str) {
    let path = folder().join(format!("{topic}.txt"));
    let old = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{topic}.txt: {error}"));
    let place = Place::new(topic, &old);
    let new = rewrite(&old, |command| place.run(command));
    if std::env::var_os("KILN_ACCEPT").is_some() {
        std::fs::write(&path, new).unwrap();
    } else if let Some(difference) = difference(&old, &new) {
        panic!(
            "{topic}.txt is not what is printed now (if that is meant: cargo xtask accept, or \
             KILN_ACCEPT=1 cargo test --workspace --test cli transcripts)\n{difference}"
        );
    }
}

/// The text with what its commands print now.
fn rewrite(text: &str, mut run: impl FnMut(&str) -> String) -> String {
    let mut new = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        new.push_str(&format!("{line}\n"));
        let Some(command) = line.strip_prefix("$ ") else { continue };
        new.push_str(&run(command));
        // What it printed before ends with how it ended. A command that was never run has no such line of its own.
        let before = lines.clone().take_while(|line| !line.starts_with("$ "));
        let ends = |line: &str| line.starts_with("[exit ") && line.ends_with(']');
        if let Some(end) = before.map(ends).position(|is_end| is_end) {
            lines.nth(end);
        }
    }
    new
}

/// Where the commands of a file run.
struct Place(TempDir);

impl Place {
    /// A place with the files of a topic.
    fn new(topic: &str, transcript: &str) -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["work", "home", "tmp"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        copy(&folder().join("fixtures").join(topic), &place.path("work"));
        if transcript.contains("examples/") {
            copy(&project_root().join("examples"), &place.path("work/examples"));
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a person sees of a command.
    fn run(&self, line: &str) -> String {
        let mut words = words(line).into_iter();
        assert_eq!(words.next().as_deref(), Some("kiln"), "{line}: only kiln is run");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command.stdin(Stdio::null()).current_dir(self.path("work")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("COLUMNS", "100").env("NO_COLOR", "1");
        let mut into = None;
        while let Some(word) = words.next() {
            let mut file = || self.path("work").join(words.next().expect("a file"));
            match word.as_str() {
                "<" => command.stdin(File::open(file()).unwrap()),
                ">" => {
                    into = Some(file());
                    &mut command
                }
                _ => command.arg(word),
            };
        }
        let output = command.output().unwrap();
        let stdout = match into {
            Some(file) => {
                std::fs::write(file, output.stdout).unwrap();
                String::new()
            }
            None => self.shown(output.stdout),
        };
        let mut stderr = self.shown(output.stderr);
        if !stderr.is_empty() {
            stderr.insert_str(0, "[stderr]\n");
        }
        let code = output.status.code().expect("ended by itself");
        let said = format!("{stdout}{stderr}[exit {code}]\n");
        let is_command = |line: &str| line.starts_with("$ ");
        assert!(!said.lines().any(is_command), "{line} prints what would be taken for a command");
        said
    }

    /// What was printed, without what differs from run to run.
    fn shown(&self, printed: Vec<u8>) -> String {
        let mut text = String::from_utf8(printed).unwrap();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str("\n[no newline]\n");
        }
        let version = env!("CARGO_PKG_VERSION");
        for (name, shown) in [("work", "<folder>"), ("home", "<home>"), ("tmp", "<tmp>")] {
            let path = self.path(name);
            let real = path.canonicalize().unwrap();
            text = text.replace(&real.display().to_string(), shown);
            text = text.replace(&path.display().to_string(), shown);
        }
        for before in ["kiln ", "version: ", "\"version\":\""] {
            text = text.replace(&format!("{before}{version}"), &format!("{before}<version>"));
        }
        if text.trim_end() == version {
            text = text.replace(version, "<version>");
        }
        for (shape, shown) in VARIES {
            text = replace(&text, shape, shown);
        }
        text
    }
}

/// The text with something else for all that has a shape.
fn replace(text: &str, shape: &str, shown: &str) -> String {
    let mut new = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_inside = new.ends_with(|c: char| c.is_ascii_alphanumeric());
        match fitting(rest, shape).filter(|_| !is_inside) {
            Some(length) => {
                new.push_str(shown);
                rest = &rest[length..];
            }
            None => {
                new.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    new
}

/// How much of the beginning of a text has a shape.
fn fitting(text: &str, shape: &str) -> Option<usize> {
    let mut rest = text;
    for wanted in shape.chars() {
        let length = match wanted {
            'N' => rest.bytes().take_while(u8::is_ascii_digit).count(),
            'X' => rest.bytes().take_while(u8::is_ascii_hexdigit).count(),
            'H' => rest.bytes().take(1).filter(u8::is_ascii_hexdigit).count(),
            _ => rest.strip_prefix(wanted).map_or(0, |_| wanted.len_utf8()),
        };
        if length == 0 {
            return None;
        }
        rest = &rest[length..];
    }
    Some(text.len() - rest.len())
}

/// The words of a command. Quotes of both kinds keep spaces; nothing else means anything.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    assert_eq!(quote, None, "{line}: a quote is not closed");
    words.extend(word);
    words
}

/// Copies what is in a folder, if it is there.
fn copy(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else { return };
    std::fs::create_dir_all(to).unwrap();
    for entry in entries.map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// The folder of the transcripts.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// The names in a folder that end like this, without the ending.
fn names(folder: &Path, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(name).filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect()
}

#[test]
fn every_transcript_has_a_test_and_all_fixtures_have_a_transcript() {
    let topics: BTreeSet<String> = TOPICS.iter().map(|topic| topic.replace('_', "-")).collect();
    assert_eq!(
        names(&folder(), ".txt"),
        topics,
        "the list of transcripts is not that of the files"
    );
    let fixtures = names(&folder().join("fixtures"), "");
    let unread: Vec<_> = fixtures.difference(&topics).collect();
    assert!(unread.is_empty(), "no transcript reads {unread:?}");
}

#[test]
fn every_command_shows_its_help_in_a_transcript() {
    let files = names(&folder(), ".txt").into_iter();
    let all: String = files
        .map(|topic| std::fs::read_to_string(folder().join(format!("{topic}.txt"))).unwrap())
        .collect();
    let shown: BTreeSet<&str> = all.lines().collect();
    let mut missing = Vec::new();
    let mut commands = vec![String::from("kiln")];
    while let Some(command) = commands.pop() {
        let line = format!("{command} --help");
        let words = words(&line);
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let help = kiln(&words).stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        for line in listed.take_while(|line| !line.is_empty()).filter(is_command) {
            let name = line.split_whitespace().next().unwrap();
            commands.push(format!("{command} {name}"));
        }
        if !shown.contains(format!("$ {line}").as_str()) {
            missing.push(line);
        }
    }
    assert!(missing.is_empty(), "no transcript shows {missing:?}");
}

#[test]
fn words_may_be_quoted() {
    let split = words(r#"kiln eval cel "1 + 'a'" '' -i  x.yaml"#);
    assert_eq!(split, ["kiln", "eval", "cel", "1 + 'a'", "", "-i", "x.yaml"]);
}

#[test]
fn what_varies_is_replaced_and_nothing_else() {
    for (text, shape, new) in [
        ("after 706 ms it is, x7 ms", "N ms", "after ? it is, x7 ms"),
        ("at 2026-01-02T03:04:05Z.", "N-N-NTN:N:NZ", "at ?."),
        ("valid for some more days", "valid for N more days", "valid for some more days"),
        ("kiln-0, kiln-17-1a2b3c acts", "kiln-N-X", "kiln-0, ? acts"),
    ] {
        assert_eq!(replace(text, shape, "?"), new);
    }
}

#[test]
fn only_output_is_rewritten() {
    let text =
        "A remark.\n\n$ kiln a\nold\n[exit 1]\n\n# another\n$ kiln b\n$ kiln c\nold\n[exit 0]\n";
    let new = rewrite(text, |command| format!("{command}!\n[exit 7]\n"));
    assert_eq!(
        new,
        "A remark.\n\n$ kiln a\nkiln a!\n[exit 7]\n\n# another\n$ kiln b\nkiln b!\n[exit 7]\n$ kiln c\nkiln c!\n[exit 7]\n"
    );
}
