//! Texts: compare, replace, cut and join.

use kiln_text::{case, path};
use kiln_value::Value;

use super::{Arguments, JmesPathFunction, NUMBER, STRING, function, parameter};
use crate::eval::EvalFault;

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "compare",
        &[parameter("a", STRING), parameter("b", STRING)],
        "number",
        "-1, 0 or 1 as the first text comes before, is, or comes after the second, by bytes",
        |args| Ok(Value::from(args.string(0)?.cmp(args.string(1)?) as i64)),
    ),
    function(
        "equal_fold",
        &[parameter("a", STRING), parameter("b", STRING)],
        "boolean",
        "whether two texts are equal when case does not matter",
        equal_fold,
    ),
    function(
        "path_canonicalize",
        &[parameter("path", STRING)],
        "string",
        "the shortest path that means the same: without `//`, `.` and inner `..`",
        |args| args.text(canonical_path(args.string(0)?)),
    ),
    function(
        "replace",
        &[
            parameter("text", STRING),
            parameter("old", STRING),
            parameter("new", STRING),
            parameter("count", NUMBER),
        ],
        "string",
        "the text with the first occurrences replaced; all of them if the count is negative",
        |args| replace(args, args.number(3)?),
    ),
    function(
        "replace_all",
        &[parameter("text", STRING), parameter("old", STRING), parameter("new", STRING)],
        "string",
        "the text with all occurrences replaced",
        |args| replace(args, -1.0),
    ),
    function(
        "split",
        &[parameter("text", STRING), parameter("separator", STRING)],
        "array",
        "the parts between separators; without a separator the characters",
        split,
    ),
    function(
        "to_lower",
        &[parameter("text", STRING)],
        "string",
        "the text in lower case, character by character",
        |args| args.text(case::to_lower(args.string(0)?)),
    ),
    function(
        "to_upper",
        &[parameter("text", STRING)],
        "string",
        "the text in upper case, character by character",
        |args| args.text(case::to_upper(args.string(0)?)),
    ),
    function(
        "trim",
        &[parameter("text", STRING), parameter("cutset", STRING)],
        "string",
        "the text without any of these characters at its ends",
        trim,
    ),
    function(
        "trim_prefix",
        &[parameter("text", STRING), parameter("prefix", STRING)],
        "string",
        "the text without this prefix, if it has it",
        trim_prefix,
    ),
    function(
        "truncate",
        &[parameter("text", STRING), parameter("length", NUMBER)],
        "string",
        "the first characters of a text",
        truncate,
    ),
];

fn equal_fold(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (a, b) = (args.string(0)?, args.string(1)?);
    Ok(Value::Bool(case::equal_fold(a, b)))
}

fn replace(args: &Arguments<'_>, count: f64) -> Result<Value, EvalFault> {
    let (text, old, new) = (args.string(0)?, args.string(1)?, args.string(2)?);
    // Go: a fraction is dropped, a negative count means all.
    let most = if count < 0.0 { usize::MAX } else { count as usize };
    let found = text.matches(old).take(most).count();
    args.make(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::from(text.replacen(old, new, most)))
}

fn split(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (text, separator) = (args.string(0)?, args.string(1)?);
    if separator.is_empty() {
        args.step(text.len())?;
        return Ok(text.chars().map(|c| Value::from(c.encode_utf8(&mut [0; 4]) as &str)).collect());
    }
    args.step(text.matches(separator).count())?;
    args.make(text.len())?;
    Ok(text.split(separator).collect())
}

fn trim(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (text, cutset) = (args.string(0)?, args.string(1)?);
    let mut cut: Vec<char> = cutset.chars().collect();
    cut.sort_unstable();
    args.text(text.trim_matches(|c| cut.binary_search(&c).is_ok()))
}

fn trim_prefix(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (text, prefix) = (args.string(0)?, args.string(1)?);
    match text.strip_prefix(prefix) {
        Some(rest) => args.text(rest),
        None => Ok(args.value(0)?.clone()),
    }
}

fn truncate(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    // A negative length is none, a fraction is dropped; `as` does both.
    let length = args.number(1)? as usize;
    match text.char_indices().nth(length) {
        Some((end, _)) => args.text(&text[..end]),
        None => Ok(args.value(0)?.clone()),
    }
}

/// Cleans a path by its text alone, as Go's `filepath.Join` does with a single element.
fn canonical_path(path: &str) -> String {
    if path.is_empty() { String::new() } else { path::clean(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_by_their_text() {
        for (path, clean) in [
            ("", ""),
            ("a/../..", ".."),
            ("a/../../b/..", ".."),
            ("/../a/./b//c/..", "/a/b"),
            ("./", "."),
            ("//", "/"),
            ("..//..", "../.."),
        ] {
            assert_eq!(canonical_path(path), clean, "{path}");
        }
    }
}
