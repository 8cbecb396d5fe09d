//! What is wrong with text that is not YAML, in words that say what to do.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source, SourceLocation};

use crate::events::event::SyntaxError;

/// Turns a parser's error into a diagnostic with places and a hint.
#[cold]
pub(crate) fn explain(error: &SyntaxError, source: &Arc<Source>) -> Diagnostic {
    let text = source.text();
    let rest = text.get(error.at..).unwrap_or_default();
    let found = rest.chars().next();
    let width = found.map_or(0, char::len_utf8);
    let place = |at: usize, width: usize| SourceLocation::new(Arc::clone(source), at..at + width);

    let (message, hint) = match found {
        Some('\t') if stands_in_indent(text, error.at) => {
            ("a tab cannot indent".to_owned(), Some("indent with spaces"))
        }
        _ => (error.problem.to_owned(), hint(error.problem, found)),
    };
    let mut diagnostic =
        Diagnostic::error(message).at(place(error.at, width)).maybe_hint(hint.map(str::to_owned));
    if let Some((context, at)) = error.context
        && at != error.at
    {
        diagnostic = diagnostic.related(context, place(at, 1));
    }
    diagnostic
}

fn stands_in_indent(text: &str, at: usize) -> bool {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[line..at].bytes().all(|b| matches!(b, b' ' | b'\t'))
}

fn hint(problem: &str, found: Option<char>) -> Option<&'static str> {
    Some(match (problem, found) {
        ("mapping values are not allowed in this context", _) => {
            "text that contains \": \" needs quotes; a key belongs on a line of its own"
        }
        ("block sequence entries are not allowed in this context", _) => {
            "a list item belongs on a line of its own"
        }
        ("mapping keys are not allowed in this context", _) => {
            "text that begins with \"? \" needs quotes"
        }
        ("found character that cannot start any token", Some('@' | '`')) => {
            "text that begins with @ or ` needs quotes"
        }
        ("found character that cannot start any token", Some('%')) => {
            "text that begins with % needs quotes"
        }
        ("found unexpected end of stream", _) => "a quote is not closed",
        ("could not find expected ':'", _) => {
            "every line of a map is \"key: value\", with a blank after the colon"
        }
        ("did not find expected key", _) => {
            "check the indentation, and quotes in the middle of a value"
        }
        ("did not find expected ',' or ']'" | "did not find expected ',' or '}'", _) => {
            "a bracket or brace is not closed"
        }
        ("did not find expected alphabetic or numeric character", _) => {
            "text that begins with * or & needs quotes"
        }
        ("did not find expected node content", _) => "text that begins with , ] or } needs quotes",
        ("found unknown escape character", _) => {
            "in double quotes a backslash is written \\\\; single quotes take it as it is"
        }
        ("did not find expected comment or line break", _) => {
            "the text of a block begins on the next line; text that begins with | or > needs quotes"
        }
        _ => return None,
    })
}
