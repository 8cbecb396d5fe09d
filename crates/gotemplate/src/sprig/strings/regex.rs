//! Regular expressions in Go's syntax, which run in linear time.

use kiln_text::Regex;
use kiln_text::regex::escape;

use crate::error::Refusal;
use crate::functions::ParameterType::{Int, Text};
use crate::functions::{FunctionCall, TemplateFunction, function, int, text};
use crate::value::Dyn;

pub(in crate::sprig) const TABLE: &[TemplateFunction] = &[
    function("mustRegexFind", &[Text, Text], None, must_find, "the first match"),
    function("mustRegexFindAll", &[Text, Text, Int], None, must_find_all, "all matches"),
    function("mustRegexMatch", &[Text, Text], None, must_match, "whether it matches"),
    function(
        "mustRegexReplaceAll",
        &[Text, Text, Text],
        None,
        must_replace,
        "with matches replaced by a template",
    ),
    function(
        "mustRegexReplaceAllLiteral",
        &[Text, Text, Text],
        None,
        must_replace_literal,
        "with matches replaced by a text",
    ),
    function("mustRegexSplit", &[Text, Text, Int], None, must_split, "the parts between matches"),
    function("regexFind", &[Text, Text], None, find, "the first match"),
    function("regexFindAll", &[Text, Text, Int], None, find_all, "all matches"),
    function("regexMatch", &[Text, Text], None, matches, "whether it matches"),
    function("regexQuoteMeta", &[Text], None, quote_meta, "an expression for exactly this text"),
    function(
        "regexReplaceAll",
        &[Text, Text, Text],
        None,
        replace,
        "with matches replaced by a template",
    ),
    function(
        "regexReplaceAllLiteral",
        &[Text, Text, Text],
        None,
        replace_literal,
        "with matches replaced by a text",
    ),
    function("regexSplit", &[Text, Text, Int], None, split, "the parts between matches"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// Compiles an expression, and charges for it and for the text it will run over.
fn compiled(call: &FunctionCall<'_>, a: &[Dyn]) -> Result<Regex> {
    let (pattern, subject) = (text(a, 0), text(a, 1));
    call.meter.step(pattern.len() as u64 * 16 + subject.len() as u64 / 16)?;
    Regex::new(pattern).map_err(|error| error.to_string().into())
}

/// Go: the functions without `must` panic with the expression in front.
fn panicking(
    call: &FunctionCall<'_>,
    a: &[Dyn],
    run: fn(&FunctionCall<'_>, &[Dyn]) -> Result,
) -> Result {
    run(call, a).map_err(|fault| match fault {
        Refusal::Failed(message) if message.starts_with("error parsing regexp") => {
            let pattern = text(a, 0);
            let quoted = match pattern.contains(['`', '\n']) {
                true => kiln_text::quote::quote(pattern),
                false => format!("`{pattern}`"),
            };
            Refusal::from(format!("regexp: Compile({quoted}): {message}"))
        }
        other => other,
    })
}

fn matches(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match compiled(call, a) {
        Ok(regex) => Ok(regex.is_match(text(a, 1)).into()),
        Err(Refusal::Failed(_)) => Ok(false.into()),
        Err(limit) => Err(limit),
    }
}

fn must_match(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(compiled(call, a)?.is_match(text(a, 1)).into())
}

fn must_find(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(compiled(call, a)?.find(text(a, 1)).unwrap_or_default().into())
}

fn find(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    panicking(call, a, must_find)
}

/// A count of which the negative ones mean no limit.
fn limit(a: &[Dyn]) -> Option<usize> {
    usize::try_from(int(a, 2)).ok()
}

fn must_find_all(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let regex = compiled(call, a)?;
    call.meter.make(text(a, 1).len() as u64 * 24)?;
    Ok(Dyn::texts(regex.find_all(text(a, 1), limit(a))))
}

fn find_all(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    panicking(call, a, must_find_all)
}

fn must_split(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let regex = compiled(call, a)?;
    call.meter.make(text(a, 1).len() as u64 * 24)?;
    Ok(Dyn::texts(regex.split(text(a, 1), limit(a))))
}

fn split(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    panicking(call, a, must_split)
}

fn must_replace(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let replaced = compiled(call, a)?.replace_all(text(a, 1), text(a, 2));
    charged(call, replaced)
}

fn replace(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    panicking(call, a, must_replace)
}

fn must_replace_literal(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let replaced = compiled(call, a)?.replace_all_literal(text(a, 1), text(a, 2));
    charged(call, replaced)
}

fn replace_literal(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    panicking(call, a, must_replace_literal)
}

fn charged(
    call: &FunctionCall<'_>,
    replaced: std::result::Result<String, kiln_text::regex::OutputTooLarge>,
) -> Result {
    let text = replaced.map_err(|error| Refusal::Limit(error.to_string()))?;
    call.meter.make(text.len() as u64)?;
    Ok(text.into())
}

fn quote_meta(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(escape(text(a, 0)).into())
}
