//! What is logged: `--log`, for the commands that run for a while.

use kiln_diagnostic::Diagnostic;

/// The names of levels, from the rarest to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The part of the program that talks to a cluster, as log filters name it.
const RUNTIME: &str = "kiln_runtime";

/// Its name up to 0.1: filters in environments and charts keep their meaning.
const FORMER_RUNTIME: &str = "kiln_live";

/// Begins to log.
///
/// # Errors
/// When what is asked for is neither levels nor parts of the program with theirs.
pub(crate) fn begin(levels: &str, as_json: bool) -> Result<(), Diagnostic> {
    let refused = |problem: &str| {
        Diagnostic::error(format!("--log {levels:?}: {problem}")).hint(format!(
            "give a level ({}), or levels per part, such as warn,kiln_runtime=debug",
            LEVELS.join(", ")
        ))
    };
    if let Some(word) = levels.split(',').find(|word| is_stray(word.trim())) {
        return Err(refused(&format!("{word:?} is not a level")));
    }
    let directives: Vec<String> = levels.split(',').map(|word| own(word.trim())).collect();
    kiln_runtime::logs(&directives.join(","), as_json)
        .map_err(|problem| refused(&problem.to_string()))
}

/// A level that is given for everything means the lines of Kiln: libraries that it is built on fill the log with
/// connections and frames, and are shown when they are named.
fn own(word: &str) -> String {
    match word.to_ascii_lowercase().as_str() {
        "debug" | "4" => "warn,kiln=debug".to_owned(),
        "trace" | "5" => "warn,kiln=trace".to_owned(),
        _ => match word.strip_prefix(FORMER_RUNTIME) {
            Some(rest) if rest.is_empty() || rest.starts_with([':', '=', '[']) => {
                format!("{RUNTIME}{rest}")
            }
            _ => word.to_owned(),
        },
    }
}

/// Whether a word is taken for the name of a part, with all that it logs, though it looks like none.
fn is_stray(word: &str) -> bool {
    let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
        || matches!(word.as_bytes(), [b'0'..=b'5']);
    let is_part = word.starts_with("kiln") || word.contains("::");
    !(word.is_empty() || is_level || is_part || word.contains(['=', '[', ']', '{', '}']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_say_is_left_out_unless_they_are_named() {
        for (given, meant) in [
            ("info", "info"),
            ("debug", "warn,kiln=debug"),
            ("TRACE", "warn,kiln=trace"),
            ("hyper=debug", "hyper=debug"),
            ("kiln_live=debug", "kiln_runtime=debug"),
            ("kiln_live::lease=trace", "kiln_runtime::lease=trace"),
            ("kiln_live", "kiln_runtime"),
            ("kiln_lively=debug", "kiln_lively=debug"),
        ] {
            assert_eq!(own(given), meant);
        }
    }

    #[test]
    fn only_words_that_are_neither_levels_nor_parts_are_stray() {
        for good in [
            "",
            "info",
            "WARN",
            "off",
            "3",
            "kiln_runtime",
            "hyper::proto",
            "hyper=debug",
            "[request{method=GET}]=debug",
            "kiln_runtime[pass]",
        ] {
            assert!(!is_stray(good), "{good}");
        }
        for stray in ["foo", "debgu", "verbose", "6", "hyper"] {
            assert!(is_stray(stray), "{stray}");
        }
    }
}
