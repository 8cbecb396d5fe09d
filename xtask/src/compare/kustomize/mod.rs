//! Random trees through Kiln and through kustomize itself.
//!
//! Trees are made from a seed, so that a run can be had again. A tree for which both do not give the same is made
//! as small as it can be while they still differ, and printed with both results.

mod generate;
mod node;
mod shrink;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions};
use kiln_testkit::difference;

use super::Args;
use crate::record;

/// The texts of a tree by path; what is built lies at [`ROOT`].
type Files = BTreeMap<String, String>;

/// The directory of the outermost kustomization.
const ROOT: &str = "top";
/// Where trees lie in memory.
const DIRECTORY: &str = "/tree";
/// So many trees are given to kustomize at once.
const BATCH: u64 = 50;

/// What a build gave.
#[derive(Clone, PartialEq, Eq)]
enum ComparisonOutcome {
    Built(String),
    Failed(String),
}

/// How two outcomes differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    OnlyKilnFails,
    OnlyKustomizeFails,
    OtherBytes,
}

impl Kind {
    fn of(kiln: &ComparisonOutcome, kustomize: &ComparisonOutcome) -> Option<Kind> {
        match (kiln, kustomize) {
            (ComparisonOutcome::Failed(_), ComparisonOutcome::Failed(_)) => None,
            (ComparisonOutcome::Failed(_), ComparisonOutcome::Built(_)) => {
                Some(Kind::OnlyKilnFails)
            }
            (ComparisonOutcome::Built(_), ComparisonOutcome::Failed(_)) => {
                Some(Kind::OnlyKustomizeFails)
            }
            (ComparisonOutcome::Built(kiln), ComparisonOutcome::Built(kustomize)) => {
                (kiln != kustomize).then_some(Kind::OtherBytes)
            }
        }
    }
}

pub(super) fn run(args: &Args) -> Result<bool> {
    let kustomize = Kustomize { program: record::kustomize()? };
    let mut different = Vec::new();
    let mut failures = 0;
    let mut first = args.seed;
    let end = args.seed + args.cases;
    while first < end {
        let seeds: Vec<u64> = (first..end.min(first + BATCH)).collect();
        let trees: Vec<generate::Tree> = seeds.iter().map(|seed| generate::tree(*seed)).collect();
        let files: Vec<Files> = trees.iter().map(generate::Tree::files).collect();
        let theirs = kustomize.build_all(&files)?;
        for ((seed, tree), (files, theirs)) in seeds.iter().zip(trees).zip(files.iter().zip(theirs))
        {
            failures += usize::from(matches!(theirs, ComparisonOutcome::Failed(_)));
            if let Some(kind) = Kind::of(&build(files), &theirs) {
                if different.len() < args.show {
                    let small = shrink::smallest(tree, kind, &kustomize)?;
                    show(*seed, &small, &kustomize)?;
                }
                different.push(*seed);
            }
        }
        first += BATCH;
        eprint!("\r{} trees, {} differences ", first.min(end) - args.seed, different.len());
    }
    eprintln!();
    eprintln!(
        "{} trees from seed {}: {} built by kustomize, {} refused; {} differences{}",
        args.cases,
        args.seed,
        args.cases - failures as u64,
        failures,
        different.len(),
        if different.is_empty() { String::new() } else { format!(", seeds {different:?}") }
    );
    Ok(different.is_empty())
}

/// kustomize, as the recorder of cases runs it.
struct Kustomize {
    program: PathBuf,
}

impl Kustomize {
    fn build_all(&self, trees: &[Files]) -> Result<Vec<ComparisonOutcome>> {
        let cases: Vec<serde_json::Value> = trees
            .iter()
            .map(|files| serde_json::json!({ "name": "tree", "files": files, "root": ROOT }))
            .collect();
        let (_, results) = record::ask(&self.program, "kustomize", &cases)?;
        ensure!(results.len() == trees.len(), "{} results for {}", results.len(), trees.len());
        let outcomes = results.iter().map(|result| {
            let text = |key: &str| result[key].as_str().map(str::to_owned);
            let failed = || ComparisonOutcome::Failed(text("error").unwrap_or_default());
            text("output").map_or_else(failed, ComparisonOutcome::Built)
        });
        Ok(outcomes.collect())
    }
}

/// What Kiln makes of a tree.
fn build(files: &Files) -> ComparisonOutcome {
    let mut tree = Memory::new();
    for (path, text) in files {
        tree.write(&format!("{DIRECTORY}/{path}"), text.as_str());
    }
    let options =
        BuildOptions { working_directory: DIRECTORY.to_owned(), ..BuildOptions::default() };
    match Build::new(&tree, &options).run(&format!("{DIRECTORY}/{ROOT}")) {
        Ok(output) => ComparisonOutcome::Built(output.yaml),
        Err(failed) => ComparisonOutcome::Failed(failed.error.to_string()),
    }
}

fn show(seed: u64, tree: &generate::Tree, kustomize: &Kustomize) -> Result<()> {
    let files = tree.files();
    let theirs = kustomize.build_all(std::slice::from_ref(&files))?.remove(0);
    eprintln!("== seed {seed}");
    for (path, text) in &files {
        eprintln!("-- {path}\n{}", text.trim_end());
    }
    match (build(&files), theirs) {
        (ComparisonOutcome::Built(ours), ComparisonOutcome::Built(theirs)) => {
            eprintln!(
                ">> kustomize, then Kiln:\n{}",
                difference(&theirs, &ours).unwrap_or_default()
            );
        }
        (ComparisonOutcome::Failed(why), _) => eprintln!(">> only Kiln fails: {why}"),
        (_, ComparisonOutcome::Failed(why)) => eprintln!(">> only kustomize fails: {why}"),
    }
    eprintln!();
    Ok(())
}
