//! Replays the inputs that once failed a fuzz target, without a fuzzer.

use std::path::Path;

/// Runs a target's check on every file of `fuzz/regressions/<target>`; the last path that the test
/// prints is the input that fails.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    check(b"");
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(target);
    let Ok(entries) = std::fs::read_dir(&directory) else { return };
    let mut inputs: Vec<_> =
        entries.map(|entry| entry.expect("the directory can be read").path()).collect();
    inputs.sort();
    for input in inputs {
        eprintln!("{}", input.display());
        check(&std::fs::read(&input).expect("the input can be read"));
    }
}
