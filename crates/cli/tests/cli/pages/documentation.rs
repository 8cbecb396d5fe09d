//! Every command that the documentation shows is run, and must print what is shown.
//!
//! In a `console` block, a line that starts with `$ ` is a command for the shell, and the lines up to the
//! next one are what it prints, on both streams. Commands run in the project's folder.
//! With `cargo xtask accept` the documentation is rewritten to show what they print now.
//!
//! Links lead to pages and headings that exist, and the index of the site has every page.

mod fields;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use kiln_testkit::markdown::{anchors, is_external, links, resolve};
use kiln_testkit::{difference, project_root};

use crate::pages::picture;

/// The most lines of a page: more are two pages.
const LONGEST_PAGE: usize = 250;

#[test]
fn documented_commands_print_what_is_shown() {
    let root = project_root();
    let mut files = vec![root.join("README.md")];
    markdown_below(&root.join("docs"), &mut files);
    let update = std::env::var_os("KILN_ACCEPT").is_some();
    let mut ran = 0;
    let mut wrong = Vec::new();
    for file in files {
        let old = std::fs::read_to_string(&file).unwrap();
        let new = replay(&old, |command| {
            ran += 1;
            run(&root, command)
        });
        if update {
            // What another test prints meanwhile is left alone.
            if old != new {
                std::fs::write(&file, new).unwrap();
            }
        } else if let Some(difference) = difference(&old, &new) {
            wrong.push(format!("{}:\n{difference}", file.display()));
        }
    }
    assert!(ran > 0, "the documentation shows no command");
    assert!(
        wrong.is_empty(),
        "(cargo xtask accept rewrites the documentation)\n{}",
        wrong.join("\n")
    );
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    let root = project_root();
    let mut files = Vec::new();
    for folder in ["docs", "examples", "conformance"] {
        markdown_below(&root.join(folder), &mut files);
    }
    let top = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    files.extend(top.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    let mut checked = 0;
    let mut broken = Vec::new();
    for file in files {
        let page = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for link in links(&text) {
            let target = &text[link.target];
            if is_external(target) {
                continue;
            }
            checked += 1;
            let path = root.join(resolve(&page, target));
            let found = match target.split_once('#') {
                None => path.exists(),
                Some((_, heading)) => std::fs::read_to_string(&path)
                    .is_ok_and(|page| anchors(&page).contains(heading)),
            };
            if !found {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(checked > 100, "only {checked} links");
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_index_has_every_page_and_no_page_is_long() {
    let root = project_root();
    let index = std::fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&index)
        .into_iter()
        .map(|link| resolve("docs/SUMMARY.md", &index[link.target]))
        .collect();
    let mut files = Vec::new();
    markdown_below(&root.join("docs"), &mut files);
    assert!(files.len() > 40, "{files:?}");
    for file in files {
        let page = file.strip_prefix(&root).unwrap().to_str().unwrap();
        assert!(
            page == "docs/SUMMARY.md" || listed.contains(page),
            "docs/SUMMARY.md has no line for {page}"
        );
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LONGEST_PAGE, "{page} has {lines} lines: make two pages of it");
    }
}

#[test]
fn the_reference_shows_the_help_of_every_command() {
    let root = project_root();
    let mut files = Vec::new();
    markdown_below(&root.join("docs/reference/cli"), &mut files);
    let pages: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut commands = vec!["kiln".to_owned()];
    let mut missing = Vec::new();
    let mut at = 0;
    while let Some(command) = commands.get(at).cloned() {
        at += 1;
        let shown = |flag: &str| {
            let line = format!("$ {command} {flag}");
            let shows = |shown: &str| shown.split(" | ").next() == Some(line.as_str());
            pages.lines().any(shows)
        };
        if !shown("--help") && !shown("-h") {
            missing.push(command.clone());
        }
        let help = run(&root, &format!("{command} -h"));
        let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in list.take_while(|line| !line.is_empty()) {
            // Lines that go on with a summary are indented further.
            let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
            if let Some(name) = name.and_then(|name| name.split(' ').next()) {
                commands.push(format!("{command} {name}"));
            }
        }
    }
    assert!(commands.len() > 50, "only {} commands", commands.len());
    assert!(missing.is_empty(), "docs/reference/cli does not show the help of {missing:?}");
}

/// What the demo really prints is held against the same block of the README by its own test.
#[test]
fn the_picture_shows_what_the_readme_shows() {
    let root = project_root();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let shown = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let drawn = picture::terminal("kiln up --demo -- kiln explain namespace/shop", shown);
    let path = root.join("docs/demo.svg");
    if std::env::var_os("KILN_ACCEPT").is_some() {
        std::fs::write(path, drawn).unwrap();
        return;
    }
    let there = std::fs::read_to_string(path).unwrap();
    assert!(
        there == drawn,
        "docs/demo.svg is out of date: cargo xtask accept documentation draws it"
    );
}

/// The text with what its commands print now.
fn replay(text: &str, mut run: impl FnMut(&str) -> String) -> String {
    let mut new = String::new();
    let mut in_console = false;
    for line in text.lines() {
        match line {
            "```console" => in_console = true,
            "```" => in_console = false,
            _ => {}
        }
        match line.strip_prefix("$ ").filter(|_| in_console) {
            // What only a fresh machine needs is run by `cargo xtask test`.
            Some(command) if !command.starts_with("cargo ") => {
                new.push_str(&format!("{line}\n{}", run(command)));
            }
            None if in_console && line != "```console" => {}
            _ => {
                new.push_str(line);
                new.push('\n');
            }
        }
    }
    new
}

fn run(root: &Path, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_kiln"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &format!("({command}) 2>&1")])
        .current_dir(root)
        .env("PATH", format!("{}:{path}", binary.parent().unwrap().display()))
        .env("NO_COLOR", "1")
        // Help is as wide as a terminal is, and shows variables that are set.
        .stdin(Stdio::null())
        .env_remove("KILN_LOG")
        .env_remove("KILN_NAMESPACE")
        .env_remove("KILN_OFFLINE")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn markdown_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            markdown_below(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            files.push(path);
        }
    }
}
