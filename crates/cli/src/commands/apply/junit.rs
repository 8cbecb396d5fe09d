//! The results as JUnit XML: a test suite for each policy, a test case for each rule and resource.

use kiln_offline::{RuleResult, Status};
use kiln_suites::{TestCase, TestEnd, TestGroup, junit_xml};

use super::show::{describe, message};
use kiln_studio::Written;

pub(super) fn xml(results: &[&RuleResult], written: &Written<'_>) -> String {
    let mut groups: Vec<TestGroup> = Vec::new();
    for result in results.iter().filter(|result| result.status != Status::NoMatch) {
        let name = result.rule.policy.key();
        let case = case(result, written);
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.cases.push(case),
            None => groups.push(TestGroup { name, cases: vec![case] }),
        }
    }
    junit_xml("kiln apply", &groups)
}

fn case(result: &RuleResult, written: &Written<'_>) -> TestCase {
    let faults = written.faults(result);
    let said = message(result);
    let lines = |first: &str| {
        let lines = faults.iter().map(kiln_studio::Located::line);
        let problems = result.problems.iter().map(ToString::to_string);
        std::iter::once(first.to_owned())
            .chain(lines)
            .chain(problems)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let ended = match result.status {
        Status::Pass | Status::NoMatch => TestEnd::Passed(None),
        Status::Warn => TestEnd::Passed(Some(lines(&said))),
        Status::Skip => TestEnd::Skipped(said),
        Status::Fail => TestEnd::Failed(said.clone(), lines(&said)),
        Status::Error => TestEnd::Broken(said.clone(), lines(&said)),
    };
    let place = faults.iter().find_map(|fault| fault.place.clone());
    TestCase {
        class: format!("{}/{}", result.rule.policy.key(), result.rule.rule),
        name: describe(&result.trigger),
        place: place.or_else(|| written.resource(result)),
        ended,
    }
}
