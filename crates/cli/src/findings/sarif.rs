//! SARIF 2.1.0, the format of code scanning.
//!
//! Each id with findings is a reporting descriptor. A finding points at its place; other places are its related
//! locations.

use kiln_diagnostic::SourceLocation;
use kiln_value::{Map, Value, value};

use super::{Finding, Level, fields};

/// A log with one run.
pub(super) fn log(findings: &[Finding]) -> Value {
    let mut ids: Vec<&str> = Vec::new();
    let mut rules = Vec::new();
    let mut results = Vec::new();
    for finding in findings {
        let index = ids.iter().position(|known| *known == finding.id).unwrap_or_else(|| {
            let mut rule = Map::from_iter([("id", Value::from(finding.id.as_str()))]);
            for (key, value) in finding.about.as_map().into_iter().flatten() {
                rule.insert(key.clone(), value.clone());
            }
            rules.push(Value::from(rule));
            ids.push(&finding.id);
            ids.len() - 1
        });
        results.push(result(finding, index));
    }
    let version = env!("CARGO_PKG_VERSION");
    value!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kiln", "version": version, "semanticVersion": version, "rules": (rules)}},
            "columnKind": "unicodeCodePoints",
            "results": (results),
        }],
    })
}

pub(super) fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}

fn result(finding: &Finding, index: usize) -> Value {
    let related: Vec<Value> = finding
        .related
        .iter()
        .enumerate()
        .map(|(at, (place, said))| {
            value!({
                "id": (at + 1),
                "physicalLocation": (physical(place)),
                "message": {"text": (said)},
            })
        })
        .collect();
    let logical = finding
        .object
        .as_ref()
        .map(|name| value!([{"fullyQualifiedName": (name), "kind": "resource"}]));
    let location = fields([
        ("physicalLocation", finding.place.as_ref().map(physical)),
        ("logicalLocations", logical),
    ]);
    let has_location = location.as_map().is_some_and(|location| !location.is_empty());
    fields([
        ("ruleId", Some(Value::from(finding.id.as_str()))),
        ("ruleIndex", Some(Value::from(index))),
        ("level", Some(Value::from(word(finding.level)))),
        ("message", Some(value!({"text": (&finding.text)}))),
        ("locations", has_location.then(|| Value::from_iter([location]))),
        ("relatedLocations", (!related.is_empty()).then(|| Value::from_iter(related))),
        ("partialFingerprints", Some(value!({"ruleResourcePath/v1": (&finding.fingerprint)}))),
    ])
}

fn physical(place: &SourceLocation) -> Value {
    let start = place.position();
    value!({
        "artifactLocation": {"uri": (uri(place.source().name()))},
        "region": {"startLine": (start.line), "startColumn": (start.column)},
    })
}

/// The name of a file as a URI: relative names stay relative, so that they count from the root of the repository.
fn uri(name: &str) -> String {
    if name.starts_with("http://") || name.starts_with("https://") {
        return name.to_owned();
    }
    let name = super::path(name);
    let mut uri = String::from(if name.starts_with('/') { "file://" } else { "" });
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn names_of_files_are_uris() {
        for (name, wanted) in [
            ("./a/b.yaml", "a/b.yaml"),
            ("a b#c.yaml", "a%20b%23c.yaml"),
            ("/tmp/ö.yaml", "file:///tmp/%C3%B6.yaml"),
            ("<stdin>", "%3Cstdin%3E"),
            ("https://example.com/p.yaml", "https://example.com/p.yaml"),
        ] {
            assert_eq!(uri(name), wanted);
        }
    }
}
