//! `SECURITY.md`: every test that its table names is there, and what is built is pinned.

use kiln_testkit::project_root;

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
        let tests = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap().to_owned();
        let mut named = 0;
        for group in tests.split("; ") {
            let (file, names) = group.split_once(": ").unwrap_or_else(|| panic!("{row}"));
            let file = file.trim_matches('`');
            let text = std::fs::read_to_string(project_root().join(file));
            let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
            for name in names.split(", ") {
                let name = name.trim_matches('`');
                let (before, _) = text
                    .split_once(&format!("fn {name}("))
                    .unwrap_or_else(|| panic!("{file} has no test {name}"));
                let above = before.rsplit_once('\n').map_or("", |(above, _)| above);
                let mut marks = above.lines().rev().take_while(|line| {
                    let line = line.trim_start();
                    line.starts_with("#[") || line.starts_with("///")
                });
                let is_test =
                    marks.any(|mark| mark.contains("#[test]") || mark.contains("#[tokio::test"));
                assert!(is_test, "{name} of {file} is no test");
                named += 1;
            }
        }
        assert!(named > 0, "{row}");
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
