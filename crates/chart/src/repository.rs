//! Where charts are published: the index of a repository, the tags and manifests of a registry. Hosts fetch; what is
//! read from an answer, and whether it is what it should be, is decided here.

use std::cmp::Ordering;

use kiln_value::{Value, json};
use sha2::Digest as _;

use crate::error::{ChartError, Result};

/// The layer of a registry's manifest that holds a chart.
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Which versions count if none is asked for: releases, or all.
const RELEASES: &str = "*";
const ALL: &str = ">0.0.0-0";

/// A version of a chart in the index of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    pub version: String,
    /// Where the package is: an address, or a path below that of the repository.
    pub url: String,
    /// The SHA-256 of the package in hexadecimal; empty if the index has none.
    pub digest: String,
}

/// The version of a chart in an index that fits best: the very text, or else the newest that meets it.
///
/// # Errors
/// When the index cannot be read, or has no such chart or version.
pub fn find_in_index(index: &[u8], name: &str, version: &str, devel: bool) -> Result<IndexEntry> {
    let options = kiln_yaml::ReadOptions::kustomization();
    let documents = kiln_yaml::read_bytes("index.yaml", index, options).map_err(|diagnostic| {
        let helm = diagnostic.message.clone();
        ChartError::placed(diagnostic, helm)
    })?;
    let index = documents.first().map_or(&Value::Null, kiln_yaml::Document::value);
    let entries = index.get_path(["entries", name]).and_then(Value::as_list);
    let entries: Vec<&Value> = entries.into_iter().flatten().collect();
    let text = |entry: &Value, key: &str| entry.str_at([key]).unwrap_or_default().to_owned();
    let versions: Vec<String> = entries.iter().map(|entry| text(entry, "version")).collect();
    let missing = || {
        let wanted =
            if version.is_empty() { String::new() } else { format!(" in version {version}") };
        ChartError::new(format!("the index of the repository has no chart {name}{wanted}"))
            .hint("look for the chart and its versions in index.yaml of the repository")
    };
    let found = newest(versions.iter().map(String::as_str), version, devel).ok_or_else(missing)?;
    let entry = versions.iter().position(|known| known == found).and_then(|at| entries.get(at));
    let entry = entry.ok_or_else(missing)?;
    let url = entry.get("urls").and_then(Value::as_list).and_then(|urls| urls.first()?.as_str());
    let url = url.ok_or_else(|| {
        ChartError::new(format!("the index of the repository has no address for {name} {found}"))
    })?;
    let digest = match entry.get("digest") {
        None | Some(Value::Null) => String::new(),
        // YAML reads some texts as numbers. What cannot be compared must not count as nothing to compare.
        Some(Value::String(digest)) => {
            digest.strip_prefix("sha256:").unwrap_or(digest.as_str()).to_owned()
        }
        Some(_) => {
            return Err(ChartError::new(format!("the digest of {name} {found} is not a text"))
                .hint("put quotes around the digest in index.yaml of the repository"));
        }
    };
    Ok(IndexEntry { version: found.to_owned(), url: url.to_owned(), digest })
}

/// The version that fits best: the very text, or else the newest that meets it. Without one, the newest release.
pub fn newest<'v>(
    versions: impl Iterator<Item = &'v str> + Clone,
    wanted: &str,
    devel: bool,
) -> Option<&'v str> {
    if let Some(exact) = versions.clone().find(|version| *version == wanted) {
        return Some(exact);
    }
    let constraint = match (wanted, devel) {
        ("", false) => RELEASES,
        ("", true) => ALL,
        (wanted, _) => wanted,
    };
    let fit = versions.filter(|version| kiln_gotemplate::version_meets(constraint, version));
    fit.reduce(|best, version| {
        // Of equal ones the first counts: indexes have the newest first.
        match kiln_gotemplate::compare_versions(version, best) {
            Ordering::Greater => version,
            _ => best,
        }
    })
}

/// The tags of a registry's answer. What a tag cannot hold is written otherwise in it.
///
/// # Errors
/// When it is not such an answer.
pub fn read_tags(answer: &[u8]) -> Result<Vec<String>> {
    let answer = parsed(answer)?;
    let tags = answer.get("tags").and_then(Value::as_list).into_iter().flatten();
    Ok(tags.filter_map(Value::as_str).map(|tag| tag.replace('_', "+")).collect())
}

/// A version as a tag.
pub fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// The digest of the chart in a registry's manifest, as `sha256:…`.
///
/// # Errors
/// When it is not the manifest of a chart.
pub fn chart_in_manifest(manifest: &[u8]) -> Result<String> {
    let manifest = parsed(manifest)?;
    let layers = manifest.get("layers").and_then(Value::as_list).into_iter().flatten();
    let layer = layers.into_iter().find(|layer| layer.str_at(["mediaType"]) == Some(CHART_LAYER));
    let digest = layer.and_then(|layer| layer.str_at(["digest"]));
    let digest = digest.filter(|digest| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    digest.map(str::to_owned).ok_or_else(|| {
        ChartError::new("the registry has no chart there")
            .hint("name the directory in the registry; the name of the chart is added to it")
    })
}

/// Refuses content that is not what its digest says: SHA-256 in hexadecimal, with or without its name.
///
/// # Errors
/// When it is another.
pub fn check_digest(what: &str, content: &[u8], digest: &str) -> Result<()> {
    let wanted = digest.strip_prefix("sha256:").unwrap_or(digest);
    let found = digest_of(content);
    if found.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    Err(ChartError::new(format!("{what} has the SHA-256 {found}, and {wanted} was promised"))
        .hint("ask who publishes the chart: it may have been replaced"))
}

/// The SHA-256 of some content in hexadecimal.
pub fn digest_of(content: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in sha2::Sha256::digest(content) {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn parsed(answer: &[u8]) -> Result<Value> {
    json::parse_bytes(answer, &mut kiln_value::KeyTable::new())
        .map_err(|error| ChartError::new(format!("the registry does not answer in JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "apiVersion: v1\nentries:\n  web:\n  \
        - {version: 2.0.0-rc.1, urls: [web-2.0.0-rc.1.tgz]}\n  \
        - {version: 1.10.0, urls: [web-1.10.0.tgz], digest: 'sha256:aa'}\n  \
        - {version: 1.9.0, urls: ['https://h.example/web-1.9.0.tgz'], digest: bb}\n  \
        - {version: 1.9.1+build, urls: [web-1.9.1.tgz]}\n";

    #[test]
    fn the_best_version_is_found_in_an_index() {
        for (wanted, devel, version, url, digest) in [
            ("", false, "1.10.0", "web-1.10.0.tgz", "aa"),
            ("", true, "2.0.0-rc.1", "web-2.0.0-rc.1.tgz", ""),
            ("1.9.0", false, "1.9.0", "https://h.example/web-1.9.0.tgz", "bb"),
            ("~1.9", false, "1.9.1+build", "web-1.9.1.tgz", ""),
            ("2.0.0-rc.1", false, "2.0.0-rc.1", "web-2.0.0-rc.1.tgz", ""),
        ] {
            let found = find_in_index(INDEX.as_bytes(), "web", wanted, devel).unwrap();
            assert_eq!(
                (found.version.as_str(), found.url.as_str(), found.digest.as_str()),
                (version, url, digest),
                "{wanted}"
            );
        }
        let number = INDEX.replace("digest: bb", "digest: 0000");
        let error = find_in_index(number.as_bytes(), "web", "1.9.0", false).unwrap_err();
        assert!(error.to_string().contains("is not a text"), "{error}");
        for (name, version) in [("web", "3.0.0"), ("other", ""), ("web", "no version")] {
            let error = find_in_index(INDEX.as_bytes(), name, version, false).unwrap_err();
            assert!(error.to_string().contains("has no chart"), "{error}");
        }
    }

    #[test]
    fn manifests_and_tags_of_registries_are_read_strictly() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let manifest = |media: &str, digest: &str| {
            format!(r#"{{"layers": [{{"mediaType": "{media}", "digest": "{digest}"}}]}}"#)
        };
        let good = manifest(CHART_LAYER, &digest);
        assert_eq!(chart_in_manifest(good.as_bytes()).unwrap(), digest);
        for bad in [
            manifest("application/octet-stream", &digest),
            manifest(CHART_LAYER, "sha256:../../etc"),
            "{}".to_owned(),
            "no JSON".to_owned(),
        ] {
            assert!(chart_in_manifest(bad.as_bytes()).is_err(), "{bad}");
        }
        let tags = read_tags(br#"{"name": "web", "tags": ["1.0.0", "1.1.0_build"]}"#).unwrap();
        assert_eq!(tags, ["1.0.0", "1.1.0+build"]);
        assert_eq!(tag_of("1.1.0+build"), "1.1.0_build");
    }

    #[test]
    fn content_must_be_what_its_digest_says() {
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        check_digest("it", b"abc", digest).unwrap();
        check_digest("it", b"abc", &format!("sha256:{digest}")).unwrap();
        let error = check_digest("it", b"abd", digest).unwrap_err();
        assert!(error.to_string().contains("was promised"), "{error}");
    }
}
