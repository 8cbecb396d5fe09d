//! Regular expressions, wildcards, labels and versions.

use std::borrow::Cow;

use kiln_text::regex::{Generator, OutputTooLarge, Regex};
use kiln_text::{float, semver, wildcard};
use kiln_value::Value;

use super::{ArgumentType, Arguments, JmesPathFunction, OBJECT, STRING, function, parameter};
use crate::eval::EvalFault;

/// Numbers are matched by their text.
const TEXT: &[ArgumentType] = &[ArgumentType::String, ArgumentType::Number];

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "label_match",
        &[parameter("wanted", OBJECT), parameter("labels", OBJECT)],
        "boolean",
        "whether every wanted label is there with an equal value",
        label_match,
    ),
    function(
        "pattern_match",
        &[parameter("pattern", STRING), parameter("text", TEXT)],
        "boolean",
        "whether the whole text matches a pattern with the wildcards `*` and `?`",
        pattern_match,
    ),
    function(
        "random",
        &[parameter("regex", STRING)],
        "string",
        "a random text that matches a regular expression",
        random,
    ),
    function(
        "regex_match",
        &[parameter("regex", STRING), parameter("text", TEXT)],
        "boolean",
        "whether a regular expression matches anywhere in a text",
        regex_match,
    ),
    function(
        "regex_replace_all",
        &[parameter("regex", STRING), parameter("text", TEXT), parameter("replacement", TEXT)],
        "string",
        "the text with all matches replaced; `$1` and `${name}` stand for groups",
        |args| regex_replace(args, Regex::replace_all),
    ),
    function(
        "regex_replace_all_literal",
        &[parameter("regex", STRING), parameter("text", TEXT), parameter("replacement", TEXT)],
        "string",
        "the text with all matches replaced by the replacement as it is",
        |args| regex_replace(args, Regex::replace_all_literal),
    ),
    function(
        "semver_compare",
        &[parameter("version", STRING), parameter("range", STRING)],
        "boolean",
        "whether a version lies in a range such as `>=1.2.0 <2.0.0 || 3.x`",
        semver_compare,
    ),
];

/// A number as Kyverno prints it for texts: as a 32-bit float, without an exponent.
pub(super) fn short_number(number: f64) -> String {
    float::format_f32(number as f32, float::Style::Fixed)
}

fn text<'c>(args: &Arguments<'c>, at: usize) -> Result<Cow<'c, str>, EvalFault> {
    Ok(match args.value(at)? {
        Value::Number(number) => Cow::Owned(short_number(number.as_f64())),
        _ => Cow::Borrowed(args.string(at)?),
    })
}

/// Fixed expressions are compiled once with the expression that holds them; others cost steps at
/// every call.
fn with_regex<T>(
    args: &Arguments<'_>,
    run: impl FnOnce(&Regex) -> Result<T, EvalFault>,
) -> Result<T, EvalFault> {
    let pattern = args.string(0)?;
    let compile = || Regex::new(pattern).map_err(|error| error.to_string());
    let regex = match args.fixed_pattern() {
        Some(cell) => cell.get_or_init(compile).clone(),
        None => {
            args.step(100 + pattern.len())?;
            compile()
        }
    };
    run(&regex.map_err(|error| args.fail(error))?)
}

fn regex_match(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = text(args, 1)?;
    with_regex(args, |regex| Ok(Value::Bool(regex.is_match(&text))))
}

fn regex_replace(
    args: &Arguments<'_>,
    replace: fn(&Regex, &str, &str) -> Result<String, OutputTooLarge>,
) -> Result<Value, EvalFault> {
    let (text, replacement) = (text(args, 1)?, text(args, 2)?);
    with_regex(args, |regex| {
        let replaced = replace(regex, &text, &replacement);
        args.text(replaced.map_err(|error| args.fail(error))?)
    })
}

fn pattern_match(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (pattern, text) = (args.string(0)?, text(args, 1)?);
    // The worst case of a wildcard match is the product of both lengths.
    let stars = pattern.bytes().filter(|byte| *byte == b'*').count();
    let work = if stars > 1 { pattern.len().saturating_mul(text.len()) } else { text.len() };
    args.step(work / 64)?;
    Ok(Value::Bool(wildcard::matches(pattern, &text)))
}

fn label_match(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (wanted, labels) = (args.map(0)?, args.map(1)?);
    args.step(wanted.len())?;
    for (key, value) in wanted {
        match labels.get(key) {
            Some(label) if args.equal(value, label)? => {}
            _ => return Ok(Value::Bool(false)),
        }
    }
    Ok(Value::Bool(true))
}

fn semver_compare(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let range = semver::Range::parse(args.string(1)?).map_err(|error| args.fail(error))?;
    // Kyverno: a version that does not parse counts as 0.0.0.
    let version = semver::Version::parse(args.string(0)?).unwrap_or_default();
    Ok(Value::Bool(range.contains(&version)))
}

/// Why a random text could not be made.
enum NoText {
    TooLarge(OutputTooLarge),
    NoChance,
}

impl From<OutputTooLarge> for NoText {
    fn from(error: OutputTooLarge) -> Self {
        NoText::TooLarge(error)
    }
}

fn random(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let pattern = args.string(0)?;
    if pattern.is_empty() {
        return Err(args.fail("the pattern is empty"));
    }
    args.step(100 + pattern.len())?;
    let generator = Generator::new(pattern).map_err(|error| args.fail(error))?;
    let mut bits = || args.sources().random().ok_or(NoText::NoChance);
    match generator.generate(&mut bits) {
        Ok(text) => args.text(text),
        Err(NoText::TooLarge(error)) => Err(args.fail(error)),
        Err(NoText::NoChance) => Err(args.fail("there is no random source here")),
    }
}
