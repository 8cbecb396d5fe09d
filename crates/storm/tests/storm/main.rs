//! Policies with mistakes, written for the purpose, and policies without.

mod bad_policies;
mod good_policies;

use std::sync::OnceLock;

use kiln_storm::{Finding, Storm, StormError, StormInput, Story};
use kiln_world::WorldImage;
use kiln_yaml::{Document, ReadOptions};

/// Of how many cases of a table one is run; with `KILN_SEEDS` set, all are.
fn sparsely(usual: usize) -> usize {
    if std::env::var_os("KILN_SEEDS").is_some() { 1 } else { usual }
}

fn documents(text: &str) -> Vec<Document> {
    kiln_yaml::read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes()).unwrap()
}

fn try_storm(text: &str) -> Result<Storm, StormError> {
    static IMAGE: OnceLock<WorldImage> = OnceLock::new();
    let image = IMAGE.get_or_init(|| WorldImage::with_engine(&[], Some("*")).unwrap());
    Storm::on(image, &StormInput { policies: documents(text), resources: Vec::new(), seed: 1 })
}

fn storm(text: &str) -> Storm {
    try_storm(text).unwrap()
}

/// What is found in so many stories, or as soon as it is enough.
fn findings_until(
    text: &str,
    stories: u64,
    is_enough: impl Fn(&[Finding]) -> bool,
) -> Vec<Finding> {
    let report = storm(text).run(|so_far| so_far.stories < stories && !is_enough(&so_far.findings));
    report.findings
}

fn findings(text: &str, stories: u64) -> Vec<Finding> {
    findings_until(text, stories, |_| false)
}

/// Findings in words.
fn told(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|one| format!("{} {}: {}", one.kind, one.about, one.message));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn story_is_the_same_when_it_was_stored() {
    let appends = bad_policies::policies_of("an annotation that grows");
    let found = findings(&appends, 4);
    let story = &found[0].story;
    assert_eq!(Story::read(&story.to_value()).as_ref(), Ok(story));
    let again = storm(&appends).play(story);
    assert!(again.iter().any(|other| other.kind == found[0].kind), "{again:?}");
    let test = story.to_chainsaw(&[], "t");
    assert_eq!(test.str_at(["kind"]), Some("Test"));
}
