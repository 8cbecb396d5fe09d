//! `docs/reference/promises.md`: every promise says how it stands, and the tests that it names are there.

use kiln_testkit::project_root;

use crate::pages::named_tests;

#[test]
fn every_promise_has_a_status_and_tests_that_are_there() {
    let text = std::fs::read_to_string(project_root().join("docs/reference/promises.md")).unwrap();
    let sections: Vec<&str> = text.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), 5, "one for each document");
    for section in sections {
        let rows: Vec<&str> = section
            .lines()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .collect();
        assert!(rows.len() >= 8, "{section}");
        for row in rows {
            let status = row.split(" | ").nth(1).unwrap_or_default();
            let known = ["kept", "decided: "].iter().any(|word| status.starts_with(word));
            assert!(known, "the status of a promise is none: {row}");
            named_tests::are_there(row);
        }
    }
}
