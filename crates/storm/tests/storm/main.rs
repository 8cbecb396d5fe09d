//! Policies with mistakes, written for the purpose, and policies without.

mod bad_policies;
mod good_policies;

use kiln_storm::{Finding, Storm, StormInput, Story};
use kiln_yaml::{Document, ReadOptions};

fn documents(text: &str) -> Vec<Document> {
    kiln_yaml::read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes()).unwrap()
}

fn storm(text: &str) -> Storm {
    let input = StormInput { policies: documents(text), resources: Vec::new(), seed: 1 };
    Storm::new(&input).unwrap()
}

/// What is found in so many stories.
fn findings(text: &str, stories: u64) -> Vec<Finding> {
    let mut left = stories + 60;
    storm(text)
        .run(|| {
            left = left.saturating_sub(1);
            left > 60
        })
        .findings
}

#[test]
fn story_is_the_same_when_it_was_stored() {
    let found = findings(bad_policies::APPENDS, 4);
    let story = &found[0].story;
    assert_eq!(Story::read(&story.to_value()).as_ref(), Ok(story));
    let again = storm(bad_policies::APPENDS).play(story);
    assert!(again.iter().any(|other| other.kind == found[0].kind), "{again:?}");
    let test = story.to_chainsaw(&[], "t");
    assert_eq!(test.str_at(["kind"]), Some("Test"));
}
