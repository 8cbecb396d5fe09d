//! `SECURITY.md`: every test that its table names is there, and what is built is pinned.

use kiln_testkit::project_root;

use crate::pages::named_tests;

/// The cells of the table of threats, row by row.
fn rows() -> Vec<String> {
    let text = std::fs::read_to_string(project_root().join("SECURITY.md")).unwrap();
    let (_, table) = text.split_once("## The threats, and the tests that try them").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---"));
    rows.skip(1).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

#[test]
fn every_threat_has_tests_and_they_are_there() {
    let rows = rows();
    assert!(rows.len() >= 13, "{}", rows.len());
    for row in rows {
        named_tests::are_there(&row);
    }
}

#[test]
fn everything_that_is_built_is_pinned() {
    let lock = std::fs::read_to_string(project_root().join("Cargo.lock")).unwrap();
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    assert!(packages.len() > 50);
    for package in packages {
        let own = !package.contains("\nsource = ");
        let from_registry = package.contains("\nsource = \"registry+");
        assert!(own || (from_registry && package.contains("\nchecksum = ")), "{package}");
    }
}
