//! Reports as JUnit XML, as build servers read it.

use std::fmt::Write as _;

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};

use crate::report::{Report, Row, Suite, Verdict};

/// A group of test cases.
#[derive(Clone, Debug)]
pub struct TestGroup {
    /// What it is called.
    pub name: String,
    /// The test cases.
    pub cases: Vec<TestCase>,
}

#[derive(Clone, Debug)]
pub struct TestCase {
    /// What is tested.
    pub class: String,
    /// The resource that was tested.
    pub name: String,
    /// Where it was written.
    pub place: Option<SourceLocation>,
    pub ended: TestEnd,
}

/// How a test case ended.
#[derive(Clone, Debug)]
pub enum TestEnd {
    /// As it should, perhaps with something to say.
    Passed(Option<String>),
    /// It was not run, and why.
    Skipped(String),
    /// Not as it should: in a few words, and in many.
    Failed(String, String),
    /// It could not be run: in a few words, and in many.
    Broken(String, String),
}

/// The report as JUnit XML: a test suite for each suite, a test case for each expectation. What is wrong with
/// a suite itself is a test case with an error.
pub fn junit(report: &Report) -> String {
    let groups: Vec<TestGroup> = report.suites.iter().map(as_group).collect();
    to_xml("kiln test", &groups)
}

/// Groups of test cases as JUnit XML.
pub fn to_xml(name: &str, groups: &[TestGroup]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all: Vec<&TestCase> = groups.iter().flat_map(|group| &group.cases).collect();
    let _ = writeln!(xml, "<testsuites name=\"{}\" {}>", escaped(name), counted(&all));
    for group in groups {
        let cases: Vec<&TestCase> = group.cases.iter().collect();
        let _ =
            writeln!(xml, "  <testsuite name=\"{}\" {}>", escaped(&group.name), counted(&cases));
        cases.into_iter().for_each(|case| add_case(&mut xml, case));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// The attributes that count test cases.
fn counted(cases: &[&TestCase]) -> String {
    let (mut failed, mut broken, mut skipped) = (0, 0, 0);
    for case in cases {
        match case.ended {
            TestEnd::Passed(_) => {}
            TestEnd::Skipped(_) => skipped += 1,
            TestEnd::Failed(..) => failed += 1,
            TestEnd::Broken(..) => broken += 1,
        }
    }
    let tests = cases.len();
    format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"{broken}\" skipped=\"{skipped}\"")
}

fn add_case(xml: &mut String, case: &TestCase) {
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{}\"",
        escaped(&case.class),
        escaped(&case.name)
    );
    if let Some(place) = &case.place {
        let (file, line) = (escaped(place.source().name()), place.position().line);
        let _ = write!(xml, " file=\"{file}\" line=\"{line}\"");
    }
    let inner = match &case.ended {
        TestEnd::Passed(None) => return xml.push_str("/>\n"),
        TestEnd::Passed(Some(said)) => format!("<system-out>{}</system-out>", escaped(said)),
        TestEnd::Skipped(why) => format!("<skipped message=\"{}\"/>", attribute(why)),
        TestEnd::Failed(why, text) => {
            format!("<failure message=\"{}\">{}</failure>", attribute(why), escaped(text))
        }
        TestEnd::Broken(why, text) => {
            format!("<error message=\"{}\">{}</error>", attribute(why), escaped(text))
        }
    };
    let _ = writeln!(xml, ">\n      {inner}\n    </testcase>");
}

fn as_group(suite: &Suite) -> TestGroup {
    let is_error = |problem: &&Diagnostic| problem.severity == Severity::Error;
    let wrong = suite.problems.iter().filter(is_error).map(|problem| TestCase {
        class: suite.path.clone(),
        name: "suite".to_owned(),
        place: None,
        ended: TestEnd::Broken(problem.message.clone(), problem.to_string()),
    });
    TestGroup {
        name: suite.path.clone(),
        cases: wrong.chain(suite.rows.iter().map(as_case)).collect(),
    }
}

fn as_case(row: &Row) -> TestCase {
    let class = match row.rule.as_str() {
        "" => row.policy.clone(),
        rule => format!("{}/{rule}", row.policy),
    };
    let ended = match row.verdict {
        Verdict::Passed => TestEnd::Passed(None),
        Verdict::Excluded => TestEnd::Passed(Some(row.reason.clone())),
        Verdict::NotRun => TestEnd::Skipped(row.reason.clone()),
        Verdict::Failed => {
            let mut text = row.message.clone();
            for difference in &row.differences {
                let _ = write!(text, "\n{}", difference.diff);
            }
            TestEnd::Failed(row.reason.clone(), text)
        }
    };
    TestCase { class, name: row.resource.clone(), place: Some(row.place.clone()), ended }
}

/// A text for an attribute, whose line breaks readers of XML would take for blanks.
fn attribute(text: &str) -> String {
    escaped(text).replace('\n', "&#10;")
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
            '\r' => safe.push_str("&#13;"),
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
        assert_eq!(attribute("a\nb"), "a&#10;b");
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
