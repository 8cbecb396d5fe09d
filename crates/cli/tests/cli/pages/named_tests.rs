//! Tests that pages name, so that readers find them.

use kiln_testkit::project_root;

/// Looks whether the tests in the last cell of a row are there. They are written `` `FILE`: `test`, `test`; `FILE`: `test` ``.
pub(crate) fn are_there(row: &str) {
    let tests = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
    let mut named = 0;
    for group in tests.split("; ") {
        let (file, names) = group.split_once(": ").unwrap_or_else(|| panic!("{row}"));
        let file = file.trim_matches('`');
        let text = std::fs::read_to_string(project_root().join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        for name in names.split(", ") {
            let name = name.trim_matches('`');
            assert!(
                is_cell(&text, name) || is_test(&text, file, name),
                "{name} of {file} is not a test"
            );
            named += 1;
        }
    }
    assert!(named > 0, "{row}");
}

/// Whether a function is marked as a test.
fn is_test(text: &str, file: &str, name: &str) -> bool {
    let (before, _) = text
        .split_once(&format!("fn {name}("))
        .unwrap_or_else(|| panic!("{file} has no test {name}"));
    let above = before.rsplit_once('\n').map_or("", |(above, _)| above);
    let mut marks = above.lines().rev().take_while(|line| {
        let line = line.trim_start();
        line.starts_with("#[") || line.starts_with("///")
    });
    marks.any(|mark| mark.contains("#[test]") || mark.contains("#[tokio::test"))
}

/// Whether a name is that of a test in a table of tests, which a macro makes of it.
fn is_cell(text: &str, name: &str) -> bool {
    let table = text.split_once("\ncells! {").map(|(_, table)| table);
    table.is_some_and(|table| table.contains(&format!("\n    {name}: ")))
}
