//! The bill of materials of a program (CycloneDX): the packages that are linked into it for its target, as cargo
//! resolves them, with licenses and the digests of Cargo.lock. Packages that only build or test something are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::target::{Compiler, Target};
use super::{Source, compile, digest};

/// A package, and what it needs.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    version: String,
    license: String,
    /// The digest of its archive, for packages of a registry.
    checksum: Option<String>,
    needs: BTreeSet<String>,
}

/// The packages that are linked, by their URLs.
pub(super) fn linked(tree: &Path, triple: &str) -> Result<BTreeMap<String, Package>> {
    let manifest = tree.join("Cargo.toml");
    let manifest = manifest.to_str().context("the project has a path that is not text")?;
    let listed = compile::output(
        Path::new("cargo"),
        &[
            &[
                "tree",
                "--locked",
                "--manifest-path",
                manifest,
                "--package",
                "kiln",
                "--target",
                triple,
            ][..],
            &["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", "{p}\t{l}"],
        ]
        .concat(),
    )?;
    let lock = fs::read_to_string(tree.join("Cargo.lock")).context("Cargo.lock")?;
    packages(&String::from_utf8(listed)?, &checksums(&lock))
}

/// Digests of packages by name and version, from Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            package.lines().find_map(|line| {
                let value = line.strip_prefix(name)?.strip_prefix(" = \"")?;
                value.strip_suffix('"').map(str::to_owned)
            })
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

/// Reads what `cargo tree` prints: a depth, a name, a version and a license a line. What was shown before is not shown
/// with its needs again.
fn packages(
    listed: &str,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<BTreeMap<String, Package>> {
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in listed.lines() {
        let read = || {
            let digits = line.find(|c: char| !c.is_ascii_digit())?;
            let (package, license) = line[digits..].split_once('\t')?;
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            let license = license.trim_end_matches(" (*)");
            Some((line[..digits].parse::<usize>().ok()?, name, version, license))
        };
        let (depth, name, version, license) =
            read().with_context(|| format!("cannot read this line of cargo tree: {line:?}"))?;
        let url = format!("pkg:cargo/{name}@{version}");
        path.truncate(depth);
        if let Some(parent) = path.last().and_then(|parent| packages.get_mut(parent)) {
            parent.needs.insert(url.clone());
        }
        path.push(url.clone());
        let checksum = checksums.get(&(name.to_owned(), version.to_owned())).cloned();
        packages.entry(url).or_insert_with(|| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.to_owned(),
            checksum,
            needs: BTreeSet::new(),
        });
    }
    Ok(packages)
}

pub(super) fn document(
    linked: &BTreeMap<String, Package>,
    target: &Target,
    source: &Source,
    binary: &str,
) -> String {
    let program = format!("pkg:cargo/kiln@{}", source.version);
    let mut components: Vec<Value> = linked
        .iter()
        .filter(|(url, _)| **url != program)
        .map(|(url, package)| component(url, package))
        .collect();
    if let Compiler::Zig(_) = target.compiler {
        // It comes with Rust's standard library for the target.
        components.push(json!({
            "type": "library", "bom-ref": "musl", "name": "musl",
            "description": "the C library, as Rust's standard library brings it",
            "licenses": [{"license": {"id": "MIT"}}],
        }));
    }
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|(url, package)| json!({"ref": url, "dependsOn": package.needs}))
        .collect();
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(source.epoch),
            "component": {
                "type": "application",
                "bom-ref": program,
                "name": "kiln",
                "version": source.version,
                "purl": program,
                "licenses": [{"expression": "Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": binary}],
                "properties": [
                    {"name": "kiln:target", "value": target.triple},
                    {"name": "kiln:commit", "value": source.commit},
                ],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    // A number of its own for each content, and the same for the same.
    document["serialNumber"] = format!("urn:uuid:{}", uuid(&document.to_string())).into();
    let mut text = format!("{document:#}");
    text.push('\n');
    text
}

fn component(url: &str, package: &Package) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
    });
    if !package.license.is_empty() {
        // The older form of "or".
        component["licenses"] = json!([{"expression": package.license.replace('/', " OR ")}]);
    }
    if let Some(sum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// A UUID (version 8: made of a digest).
fn uuid(text: &str) -> String {
    let hex = digest::sha256(text.as_bytes());
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A time as RFC 3339 writes it.
pub(super) fn timestamp(epoch: u64) -> String {
    let (days, seconds) = (epoch / 86_400, epoch % 86_400);
    // The civil calendar, in years that begin in March.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "ring"
version = "0.17.14"
checksum = "a4"

[[package]]
name = "kiln"
version = "0.2.0"
"#;
    const LISTED: &str = "\
0kiln v0.2.0 (/somewhere/crates/cli)\tApache-2.0
1kiln-runtime v0.2.0 (/somewhere/crates/runtime)\tApache-2.0
2ring v0.17.14\tApache-2.0 AND ISC
3untrusted v0.9.0\tISC
1ring v0.17.14\tApache-2.0 AND ISC (*)
1old v1.0.0\tMIT/Apache-2.0
";

    fn bill(listed: &str) -> Value {
        let packages = packages(listed, &checksums(LOCK)).unwrap();
        let source = Source {
            version: "0.2.0".to_owned(),
            commit: "c0ffee".to_owned(),
            changed: false,
            image: None,
            epoch: 1_763_432_622,
        };
        let target = Target::find("aarch64-unknown-linux-musl").unwrap();
        let text = document(&packages, &target, &source, "b1");
        assert!(!text.contains("/somewhere"), "no path of this machine gets in");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn packages_are_listed_once_with_licenses_digests_and_needs() {
        let bill = bill(LISTED);
        let listed: Vec<String> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| format!("{} {} {}", part["bom-ref"], part["licenses"][0], part["hashes"]))
            .collect();
        let sum = r#"[{"alg":"SHA-256","content":"a4"}]"#;
        assert_eq!(
            listed,
            [
                r#""pkg:cargo/kiln-runtime@0.2.0" {"expression":"Apache-2.0"} null"#.to_owned(),
                r#""pkg:cargo/old@1.0.0" {"expression":"MIT OR Apache-2.0"} null"#.to_owned(),
                format!(r#""pkg:cargo/ring@0.17.14" {{"expression":"Apache-2.0 AND ISC"}} {sum}"#),
                r#""pkg:cargo/untrusted@0.9.0" {"expression":"ISC"} null"#.to_owned(),
                r#""musl" {"license":{"id":"MIT"}} null"#.to_owned(),
            ]
        );
        let needs = |name: &str| {
            let all = bill["dependencies"].as_array().unwrap();
            let found = all.iter().find(|entry| entry["ref"] == format!("pkg:cargo/{name}"));
            found.unwrap()["dependsOn"].to_string()
        };
        let ring = "pkg:cargo/ring@0.17.14";
        assert_eq!(
            needs("kiln@0.2.0"),
            format!(r#"["pkg:cargo/kiln-runtime@0.2.0","pkg:cargo/old@1.0.0","{ring}"]"#)
        );
        assert_eq!(needs("kiln-runtime@0.2.0"), format!(r#"["{ring}"]"#));
        assert_eq!(needs("ring@0.17.14"), r#"["pkg:cargo/untrusted@0.9.0"]"#);
        let program = &bill["metadata"]["component"];
        assert_eq!(program["hashes"][0]["content"], "b1");
        assert_eq!(bill["metadata"]["timestamp"], "2025-11-18T02:23:42Z");
    }

    #[test]
    fn the_number_of_a_bill_follows_from_its_content() {
        let number = |listed: &str| bill(listed)["serialNumber"].as_str().unwrap().to_owned();
        assert_eq!(number(LISTED), number(LISTED));
        let other = LISTED.replace("0.9.0", "0.9.1");
        assert_ne!(number(LISTED), number(&other));
        assert!(packages("kiln", &BTreeMap::new()).is_err());
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (epoch, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(epoch), text);
        }
    }
}
