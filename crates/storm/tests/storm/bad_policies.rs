//! Each of the policies of the table has a mistake that a storm finds.

use kiln_storm::Finding;
use kiln_testkit::Tally;
use kiln_value::Value;

use crate::{documents, findings_until, sparsely, told};

const CASES: &str = include_str!("../cases/bad-policies.yaml");
/// Enough for most mistakes, and few enough for a test.
const STORIES: u64 = 24;

/// What a storm does not find, and why.
const NOT_FOUND: ([&str; 2], &str) = (
    [
        "a downstream that another policy changes",
        "a downstream that another policy changes, in CEL",
    ],
    "the engine leaves fields that admission sets to whom they belong",
);

/// The policies of a case.
pub(crate) fn policies_of(name: &str) -> String {
    let mut cases = documents(CASES).into_iter().map(kiln_yaml::Document::into_value);
    let case = cases.find(|case| case.str_at(["name"]) == Some(name)).expect("a case");
    case.str_at(["policies"]).expect("policies").to_owned()
}

#[test]
fn mistakes_are_found() {
    let mut tally = Tally::new("bad policies");
    for case in documents(CASES).into_iter().step_by(sparsely(10)) {
        let text = |field: &str| case.value().str_at([field]).expect("a text").to_owned();
        let finds = case.value().get("finds").and_then(Value::as_list).expect("findings");
        if NOT_FOUND.0.contains(&text("name").as_str()) {
            tally.known_failure(text("name"), NOT_FOUND.1);
        }
        tally.case(&text("name"), || {
            let is_meant = |finding: &Finding| {
                finds.iter().any(|kind| kind.as_str() == Some(finding.kind.as_str()))
            };
            let found =
                findings_until(&text("policies"), STORIES, |found| found.iter().any(is_meant));
            if found.iter().any(is_meant) { Ok(()) } else { Err(told(&found)) }
        });
    }
    tally.finish();
}
