//! Annotations of forges: lines that a runner recognizes in a log, and GitLab's report.

use std::io;

use kiln_value::{Value, value};

use super::{Finding, Level};

/// Workflow commands of GitHub Actions: `::error file=a.yaml,line=1,col=2,title=ID::TEXT`.
pub(super) fn github(out: &mut impl io::Write, findings: &[Finding]) -> io::Result<()> {
    for finding in findings {
        let word = match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "notice",
        };
        let mut properties = Vec::new();
        if let Some(place) = &finding.place {
            let position = place.position();
            properties.push(format!("file={}", property(&super::path(place.source().name()))));
            properties.push(format!("line={}", position.line));
            properties.push(format!("col={}", position.column));
        }
        properties.push(format!("title={}", property(&finding.id)));
        writeln!(out, "::{word} {}::{}", properties.join(","), data(&finding.text))?;
    }
    Ok(())
}

/// Text in a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Text in a property of one.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Logging commands of Azure Pipelines, which know errors and warnings.
pub(super) fn azure(out: &mut impl io::Write, findings: &[Finding]) -> io::Result<()> {
    for finding in findings.iter().filter(|finding| finding.level != Level::Note) {
        let word = if finding.level == Level::Error { "error" } else { "warning" };
        let mut properties = format!("type={word};");
        if let Some(place) = &finding.place {
            let position = place.position();
            properties.push_str(&format!(
                "sourcepath={};linenumber={};columnnumber={};",
                azure_property(&super::path(place.source().name())),
                position.line,
                position.column
            ));
        }
        properties.push_str(&format!("code={};", azure_property(&finding.id)));
        let text = finding.text.replace('%', "%AZP25").replace('\r', "%0D").replace('\n', "%0A");
        writeln!(out, "##vso[task.logissue {properties}]{text}")?;
    }
    Ok(())
}

fn azure_property(text: &str) -> String {
    text.replace('%', "%AZP25")
        .replace(';', "%3B")
        .replace(']', "%5D")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A Code Quality report of GitLab. It shows only what has a place: everything else is put at the root.
pub(super) fn gitlab(findings: &[Finding]) -> Value {
    findings
        .iter()
        .map(|finding| {
            let (path, line) = match &finding.place {
                Some(place) => (super::path(place.source().name()), place.position().line),
                None => (".".to_owned(), 1),
            };
            let severity = match finding.level {
                Level::Error => "major",
                Level::Warning => "minor",
                Level::Note => "info",
            };
            value!({
                "description": (&finding.text),
                "check_name": (&finding.id),
                "fingerprint": (fingerprint(&finding.fingerprint)),
                "severity": (severity),
                "location": {"path": (path), "lines": {"begin": (line)}},
            })
        })
        .collect()
}

/// 128 bits of FNV-1a as hex digits: GitLab wants one word per finding, and nothing depends on its strength.
fn fingerprint(text: &str) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash =
        text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kiln_diagnostic::{Diagnostic, Source, SourceLocation};

    use super::*;

    fn findings() -> Vec<Finding> {
        let source = Arc::new(Source::new("./a,b:c.yaml", "kind: 100%\n"));
        let problem = Diagnostic::error("100% wrong\nreally")
            .at(SourceLocation::new(source, 6..10))
            .hint("write less");
        let elsewhere = Diagnostic::new(kiln_diagnostic::Severity::Note, "skipped");
        [problem, elsewhere].iter().map(|found| Finding::of_problem("check", found)).collect()
    }

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn workflow_commands_escape_what_would_end_them() {
        assert_eq!(
            written(|out| github(out, &findings()).unwrap()),
            "::error file=a%2Cb%3Ac.yaml,line=1,col=7,title=kiln-check/error::100%25 wrong%0Areally%0Awrite less\n\
             ::notice title=kiln-check/note::skipped\n"
        );
        assert_eq!(
            written(|out| azure(out, &findings()).unwrap()),
            "##vso[task.logissue type=error;sourcepath=a,b:c.yaml;linenumber=1;columnnumber=7;code=kiln-check/error;]\
             100%AZP25 wrong%0Areally%0Awrite less\n"
        );
    }

    #[test]
    fn gitlab_gets_one_fingerprint_for_each_finding() {
        let report = gitlab(&findings());
        let list = report.as_list().unwrap();
        let of = |at: usize, key: &str| list.get(at).and_then(|f| f.get(key)).cloned();
        assert_ne!(of(0, "fingerprint"), of(1, "fingerprint"));
        assert_eq!(of(0, "location"), Some(value!({"path": "a,b:c.yaml", "lines": {"begin": 1}})));
        assert_eq!(of(1, "severity"), Some(Value::from("info")));
    }
}
