//! Reports as JUnit XML, as build servers read it.

use std::fmt::Write as _;

use kiln_diagnostic::{Diagnostic, Severity};

use crate::report::{Report, Row, Suite, Verdict};

/// The report as JUnit XML: a test suite for each suite, a test case for each expectation. What is wrong with
/// a suite itself is a test case with an error.
pub fn junit(report: &Report) -> String {
    let counts = report.counts();
    let errors: usize = report.suites.iter().map(|suite| wrong(suite).count()).sum();
    let tests = counts.passed + counts.failed + counts.excluded + counts.not_run + errors;
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites name=\"kiln test\" tests=\"{tests}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{}\">",
        counts.failed, counts.not_run
    );
    for suite in &report.suites {
        add_suite(&mut xml, suite);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn wrong(suite: &Suite) -> impl Iterator<Item = &Diagnostic> {
    suite.problems.iter().filter(|problem| problem.severity == Severity::Error)
}

fn add_suite(xml: &mut String, suite: &Suite) {
    let count = |verdict| suite.rows.iter().filter(|row| row.verdict == verdict).count();
    let errors = wrong(suite).count();
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{}\">",
        escaped(&suite.path),
        suite.rows.len() + errors,
        count(Verdict::Failed),
        count(Verdict::NotRun),
    );
    for problem in wrong(suite) {
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{}\" name=\"suite\">\n      <error message=\"{}\">{}</error>\n    </testcase>",
            escaped(&suite.path),
            escaped(&problem.message),
            escaped(&problem.to_string())
        );
    }
    for row in &suite.rows {
        add_row(xml, row);
    }
    xml.push_str("  </testsuite>\n");
}

fn add_row(xml: &mut String, row: &Row) {
    let class = match row.rule.as_str() {
        "" => row.policy.clone(),
        rule => format!("{}/{rule}", row.policy),
    };
    let position = row.place.position();
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\"",
        escaped(&class),
        escaped(&row.resource),
        escaped(row.place.source().name()),
        position.line
    );
    match row.verdict {
        Verdict::Passed => xml.push_str("/>\n"),
        Verdict::Excluded => {
            let _ = writeln!(
                xml,
                ">\n      <system-out>{}</system-out>\n    </testcase>",
                escaped(&row.reason)
            );
        }
        Verdict::NotRun => {
            let reason = escaped(&row.reason);
            let _ = writeln!(xml, ">\n      <skipped message=\"{reason}\"/>\n    </testcase>");
        }
        Verdict::Failed => {
            let mut text = row.message.clone();
            for difference in &row.differences {
                let _ = write!(text, "\n{}", difference.diff);
            }
            let _ = writeln!(
                xml,
                ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                escaped(&row.reason),
                escaped(&text)
            );
        }
    }
}

/// A text for XML. Characters that XML 1.0 cannot hold at all are replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_end_it() {
        assert_eq!(escaped("a<b>&\"\u{1b}]]>\n"), "a&lt;b&gt;&amp;&quot;\u{fffd}]]&gt;\n");
    }

    #[test]
    fn problems_of_a_suite_are_errors() {
        let suite = Suite {
            path: "a/kyverno-test.yaml".into(),
            name: None,
            problems: vec![Diagnostic::error("broken"), Diagnostic::warning("odd")],
            rows: Vec::new(),
        };
        let xml = junit(&Report { suites: vec![suite] });
        assert!(xml.contains("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("<error message=\"broken\">broken</error>"), "{xml}");
    }
}
