//! What ARCHITECTURE.md says of the crates is held against what the crates are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kiln_testkit::project_root;

/// The directories below `crates` in the order of the table in ARCHITECTURE.md.
fn order() -> Vec<String> {
    let text = fs::read_to_string(project_root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `crates/"));
    // Other tables name files below these.
    let names = rows.filter_map(|row| row.split_once("` |")).map(|(name, _)| name);
    names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
}

/// Our own crates that a crate is built with; those of its tests alone do not count.
fn dependencies(directory: &str) -> BTreeSet<String> {
    let manifest = project_root().join("crates").join(directory).join("Cargo.toml");
    let text = fs::read_to_string(manifest).unwrap();
    let mut found = BTreeSet::new();
    let mut counts = false;
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            counts = section == "dependencies" || section.ends_with(".dependencies");
        } else if let Some(rest) = line.strip_prefix("kiln-").filter(|_| counts) {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.insert(rest[..end].to_owned());
        }
    }
    found
}

#[test]
fn a_crate_depends_only_on_crates_above_it_in_the_table() {
    let order = order();
    let mut wrong = Vec::new();
    for (at, name) in order.iter().enumerate() {
        for dependency in dependencies(name) {
            if !order[..at].contains(&dependency) {
                wrong.push(format!("{name} depends on {dependency}, which is not above it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(dependencies("cli").contains("runtime"), "manifests are read");
}

#[test]
fn the_table_and_the_workspace_name_every_crate_in_one_order() {
    let order = order();
    let directories: BTreeSet<String> = fs::read_dir(project_root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(order.iter().cloned().collect::<BTreeSet<_>>(), directories);
    let workspace = fs::read_to_string(project_root().join("Cargo.toml")).unwrap();
    let listed: Vec<&str> = workspace
        .lines()
        .filter_map(|line| {
            line.strip_prefix("kiln-")?.split_once(" = { path").map(|(name, _)| name)
        })
        .collect();
    // No crate is built with the binary.
    let libraries: Vec<&String> = order.iter().filter(|name| *name != "cli").collect();
    assert_eq!(listed, libraries);
}

/// What small crates must not grow into: each of these would make a light crate a heavy one.
#[test]
fn light_crates_stay_light() {
    let reaches = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(name) = open.pop() {
            for dependency in dependencies(&name) {
                if seen.insert(dependency.clone()) {
                    open.push(dependency);
                }
            }
        }
        seen
    };
    for (from, to, why) in [
        ("apiserver", "engine", "an API server knows no rules"),
        ("apiserver", "cluster", "it answers calls, it makes none"),
        ("sandbox", "admission", "it serves an API server and knows no policies"),
        ("admission", "services", "it does no I/O, and an HTTP client does"),
        ("controller", "services", "it does no I/O, and an HTTP client does"),
        ("controller", "dialects", "policies come to it compiled"),
        ("certificates", "object", "certificates are no objects"),
        ("replica", "services", "it does no I/O, and an HTTP client does"),
        ("world", "runtime", "it has one thread, and compiles for browsers"),
        ("storm", "runtime", "it plays in worlds, in the thread of its host"),
    ] {
        assert!(!reaches(from).contains(to), "{from} must not depend on {to}: {why}");
    }
}

/// The crates that get policies compiled. They must not look behind the compiled model.
const AFTER_COMPILATION: [&str; 10] = [
    "engine",
    "offline",
    "cleanup",
    "controller",
    "services",
    "admission",
    "reports",
    "replica",
    "world",
    "runtime",
];

/// Where the name of a policy is read or written, or its text is shown: what a rule does depends on neither.
const NAMES_AND_PLACES: [(&str, &str); 8] = [
    ("engine/src/rule_set.rs", "policies keep the order of their names"),
    ("engine/src/validate/deny.rs", "a failed condition is shown as it was written"),
    ("controller/src/policies/record.rs", "records hold names of policies"),
    (
        "controller/src/reconcile/decide.rs",
        "a policy that cannot be compiled is named as others of its kind",
    ),
    ("controller/src/reports.rs", "results in reports name their source"),
    ("replica/src/events.rs", "Events are about the object that a policy is stored as"),
    ("replica/src/report_results.rs", "results in reports name their source"),
    ("runtime/src/serve/audits.rs", "metrics name policies and their shadows"),
];

#[test]
fn nothing_after_compilation_reads_documents_or_asks_for_the_dialect() {
    let mut found = Vec::new();
    let mut read = 0;
    for name in AFTER_COMPILATION {
        let mut open = vec![project_root().join("crates").join(name).join("src")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let shown = path.strip_prefix(project_root().join("crates")).unwrap();
            let shown = shown.to_str().unwrap().replace('\\', "/");
            if shown.contains("tests") || NAMES_AND_PLACES.iter().any(|(file, _)| *file == shown) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let production = text.split("#[cfg(test)]").next().unwrap_or_default();
            read += 1;
            for (at, line) in production.lines().enumerate() {
                let asks = ["origin.document()", ".dialect", "Dialect::"];
                if asks.iter().any(|word| line.contains(word)) {
                    found.push(format!("{shown}:{}: {}", at + 1, line.trim()));
                }
            }
        }
    }
    assert!(read > 100, "the sources are read: {read}");
    assert!(
        found.is_empty(),
        "put what is asked for into kiln_rules (Delivery, Lifecycle, …) and let the compilers fill it:\n{}",
        found.join("\n")
    );
}

/// The Rust files below a directory.
fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The names of the types that a line defines outside of functions and traits.
fn defined_type(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let keywords = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = keywords.iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end])
}

/// A name that every second crate has is not found by searching for it. STYLE.md says what to put in front.
#[test]
fn types_have_names_that_a_symbol_search_finds() {
    // What every library calls so.
    const IDIOMS: [&str; 2] = ["Error", "Result"];
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for directory in order() {
        let mut files = Vec::new();
        sources(&project_root().join("crates").join(&directory).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            for name in text.lines().filter_map(defined_type) {
                crates.entry(name.to_owned()).or_default().insert(directory.clone());
            }
        }
    }
    let shared = crates.iter().filter(|(name, of)| of.len() > 3 && !IDIOMS.contains(&&***name));
    let shared: Vec<String> = shared.map(|(name, of)| format!("{name}: {of:?}")).collect();
    assert!(shared.is_empty(), "put the word of their noun in front of\n{}", shared.join("\n"));
    assert!(crates["Error"].len() > 3, "definitions are found");
}

/// Where policies are compiled, or something is made of a policy as it is written; why.
const COMPILERS: [(&str, &str); 11] = [
    ("admission/src/policies.rs", "a policy is compiled to say whether it may be stored"),
    ("admission/src/native_policies.rs", "a policy is written anew in Kubernetes' own language"),
    ("engine/src/script/host.rs", "yaml.parse of CEL reads a text"),
    ("offline/src/given_documents.rs", "what users give are documents"),
    ("offline/src/values.rs", "values that users give are documents"),
    ("replica/src/policy_store.rs", "the only compiler of a running engine"),
    ("replica/src/events.rs", "kinds of policies have names in Events"),
    ("replica/src/autogen_status.rs", "the status shows rules in the language of the policy"),
    ("replica/src/scan_permissions.rs", "the same rules, for the permissions of a scan"),
    ("replica/src/status/policy_status.rs", "the status says what is not run"),
    ("runtime/src/plan.rs", "what may be changed about a stored policy is checked on both texts"),
];

#[test]
fn after_compilation_only_compilers_name_compilers_and_documents() {
    let (mut found, mut used) = (Vec::new(), BTreeSet::new());
    for name in AFTER_COMPILATION {
        let mut files = Vec::new();
        sources(&project_root().join("crates").join(name).join("src"), &mut files);
        for file in files {
            let shown = file.strip_prefix(project_root().join("crates")).unwrap();
            let shown = shown.to_str().unwrap().replace('\\', "/");
            if shown.contains("tests") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let production = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code = production.lines().filter(|line| !line.trim_start().starts_with("//"));
            let names = code.filter(|line| {
                line.contains("kiln_dialects")
                    || line.contains("kiln_yaml::Document")
                    || (line.contains("kiln_yaml::{") && line.contains("Document"))
            });
            let names: Vec<&str> = names.collect();
            match COMPILERS.iter().find(|(file, _)| *file == shown) {
                Some((file, _)) if !names.is_empty() => drop(used.insert(*file)),
                Some(_) => {}
                None => found.extend(names.iter().map(|line| format!("{shown}: {}", line.trim()))),
            }
        }
    }
    let idle = COMPILERS.iter().filter(|(file, _)| !used.contains(file));
    let idle: Vec<&str> = idle.map(|(file, _)| *file).collect();
    assert!(idle.is_empty(), "take these out of the list: {idle:?}");
    assert!(
        found.is_empty(),
        "these get policies compiled; put what is asked for into kiln_rules:\n{}",
        found.join("\n")
    );
}

/// Texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn files_that_documents_of_contributors_name_are_there() {
    let mut missing = Vec::new();
    let mut named = 0;
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md"] {
        let text = fs::read_to_string(project_root().join(document)).unwrap();
        let beginnings = ["crates/", "xtask/", "docs/", "benches/", "fuzz/", "charts/"];
        for path in quoted(&text).filter(|text| beginnings.iter().any(|b| text.starts_with(b))) {
            // What stands for any file.
            let is_pattern =
                path.contains(['*', '<', ' ']) || path.contains("/X") || path.contains("TOPIC");
            if !is_pattern {
                named += 1;
                if !project_root().join(path).exists() {
                    missing.push(format!("{document}: {path}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 200, "paths are found: {named}");
}

#[test]
fn the_walk_of_a_policy_has_at_most_twelve_hops_and_names_what_is_there() {
    let text = fs::read_to_string(project_root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split("## The walk of a policy").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let hops: Vec<&str> =
        section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")).collect();
    assert!((8..=12).contains(&hops.len()), "{} hops", hops.len());
    for hop in hops {
        let file = quoted(hop).next().unwrap();
        let path = project_root().join("crates").join(file);
        assert!(path.is_file(), "{file} is not there: {hop}");
        // Functions and types that a hop names are in one of the files that it names.
        let files: Vec<&str> = quoted(hop).filter(|text| text.ends_with(".rs")).collect();
        let all: Vec<String> = files
            .iter()
            .filter_map(|file| {
                let at = |base: &Path| fs::read_to_string(base.join(file)).ok();
                let crate_of = path.ancestors().find(|above| above.ends_with("src"))?;
                at(&project_root().join("crates"))
                    .or_else(|| at(crate_of))
                    .or_else(|| at(path.parent()?))
            })
            .collect();
        assert_eq!(all.len(), files.len(), "a file is not there: {hop}");
        let is_name = |text: &&str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
        for name in quoted(hop).filter(is_name) {
            assert!(all.iter().any(|text| text.contains(name)), "{name} is not there: {hop}");
        }
    }
}

/// A directory with more files is not read but searched.
const MOST_FILES: usize = 30;

#[test]
fn directories_of_sources_are_grouped() {
    let mut files = Vec::new();
    for directory in order() {
        sources(&project_root().join("crates").join(&directory), &mut files);
    }
    sources(&project_root().join("xtask/src"), &mut files);
    let mut held: BTreeMap<&Path, usize> = BTreeMap::new();
    for file in &files {
        *held.entry(file.parent().unwrap()).or_default() += 1;
    }
    let full = held.iter().filter(|(_, count)| **count > MOST_FILES);
    let full: Vec<String> =
        full.map(|(path, count)| format!("{}: {count} files", path.display())).collect();
    assert!(full.is_empty(), "group these by noun:\n{}", full.join("\n"));
}
