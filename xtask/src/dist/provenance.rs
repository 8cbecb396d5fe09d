//! Where files come from: an in-toto statement with SLSA's provenance. It has no times, so it is the same for two builds
//! of a commit; a signed copy of it is what says who built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::compile::{self, ZIG};
use super::{Plan, digest};

/// What was built from what, and how. `subjects` are files with their digests.
pub(super) fn statement(plan: &Plan<'_>, subjects: &BTreeMap<String, String>) -> Result<String> {
    let rustc = text(&["rustc", "--version"])?;
    let cargo = text(&["cargo", "--version"])?;
    let file = |name: &str| -> Result<Value> {
        let sum = digest::sha256(&fs::read(plan.tree.join(name))?);
        Ok(json!({"name": name, "digest": {"sha256": sum}}))
    };
    let source = plan.source;
    let name = if source.changed { "source, with changes" } else { "source" };
    let mut materials = vec![
        json!({"name": name, "digest": {"gitCommit": source.commit}}),
        file("Cargo.lock")?,
        file(ZIG)?,
    ];
    for tool in [&rustc, &cargo] {
        materials.push(json!({"name": tool}));
    }
    let flags: BTreeMap<&str, Vec<String>> =
        plan.targets.iter().map(|target| (target.triple, compile::linker(target))).collect();
    let subject: Vec<Value> = subjects
        .iter()
        .map(|(name, sum)| json!({"name": name, "digest": {"sha256": sum}}))
        .collect();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "cargo xtask dist",
                "externalParameters": {
                    "targets": flags.keys().collect::<Vec<_>>(),
                    "profile": plan.profile,
                    "KILN_IMAGE": source.image,
                },
                "internalParameters": {
                    "rustflags": flags,
                    "SOURCE_DATE_EPOCH": source.epoch,
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": "cargo xtask dist", "version": {"kiln": source.version}}},
        },
    });
    Ok(format!("{statement:#}\n"))
}

fn text(command: &[&str]) -> Result<String> {
    let printed = compile::output(Path::new(command[0]), &command[1..])?;
    Ok(String::from_utf8(printed)?.trim().to_owned())
}
