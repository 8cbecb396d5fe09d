//! What a machine lacks.

use std::io::Write as _;

/// Says on the real standard error that the running test is skipped because something is missing, and how to get it.
/// `cargo xtask test` counts these lines.
///
/// # Panics
/// When `KILN_REQUIRE_ALL` is set: then nothing may be missing.
pub fn skip(missing: &str, how: &str) {
    // The harness runs each test in a thread of its name.
    skip_named(std::thread::current().name().unwrap_or("a test"), missing, how);
}

/// The same for something that is not a test of the harness.
///
/// # Panics
/// When `KILN_REQUIRE_ALL` is set.
pub fn skip_named(test: &str, missing: &str, how: &str) {
    assert!(
        std::env::var_os("KILN_REQUIRE_ALL").is_none(),
        "{missing}, and KILN_REQUIRE_ALL is set; to get it: {how}"
    );
    // The test harness swallows what `eprintln` says in a passing test.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}; to get it: {how}");
}
