//! Texts.

mod case;
pub(super) mod regex;

use kiln_text::case::{to_lower, to_upper};
use kiln_text::quote::quote as go_quote;
use kiln_value::Str;

use super::convert::{text_of, texts_of};
use crate::error::Refusal;
use crate::format::{self, Sink};
use crate::functions::ParameterType::{Any, Int, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, int, text};
use crate::marked::Marked;
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("abbrev", &[Int, Text], None, abbrev, "cut with dots at the end"),
    function("abbrevboth", &[Int, Int, Text], None, abbrev_both, "cut with dots at both ends"),
    function("camelcase", &[Text], None, camelcase, "in CamelCase"),
    function("cat", &[], Some(Any), cat, "values with spaces between"),
    function("contains", &[Text, Text], None, contains, "whether the second contains the first"),
    function(
        "hasPrefix",
        &[Text, Text],
        None,
        has_prefix,
        "whether the second begins with the first",
    ),
    function(
        "hasSuffix",
        &[Text, Text],
        None,
        has_suffix,
        "whether the second ends with the first",
    ),
    function("hello", &[], None, hello, "a greeting"),
    function("indent", &[Int, Text], None, indent, "every line with spaces before it"),
    function("initials", &[Text], None, initials, "the first letter of every word"),
    function("join", &[Text, Any], None, join, "the texts of a list with a text between"),
    function("kebabcase", &[Text], None, kebabcase, "in kebab-case"),
    function("lower", &[Text], None, lower, "in lower case"),
    function(
        "nindent",
        &[Int, Text],
        None,
        nindent,
        "a new line, and every line with spaces before it",
    ),
    function("nospace", &[Text], None, nospace, "without white space"),
    function("plural", &[Text, Text, Int], None, plural, "the first for one, else the second"),
    function("quote", &[], Some(Any), quote, "in double quotes"),
    function("repeat", &[Int, Text], None, repeat, "so many times"),
    function("replace", &[Text, Text, Text], None, replace, "with one text instead of another"),
    function("snakecase", &[Text], None, snakecase, "in snake_case"),
    function("split", &[Text, Text], None, split, "the parts as _0, _1, …"),
    function("splitList", &[Text, Text], None, split_list, "the parts as a list"),
    function("splitn", &[Text, Int, Text], None, splitn, "at most so many parts as _0, _1, …"),
    function("squote", &[], Some(Any), squote, "in single quotes"),
    function("substr", &[Int, Int, Text], None, substr, "from one byte to another"),
    function("swapcase", &[Text], None, swapcase, "with upper and lower case swapped"),
    function("title", &[Text], None, title, "with a capital at the start of every word"),
    function("toString", &[Any], None, to_string, "as text"),
    function("toStrings", &[Any], None, to_strings, "a list as texts"),
    function("trim", &[Text], None, trim, "without white space around it"),
    function("trimAll", &[Text, Text], None, trim_all, "without these characters around it"),
    function("trimPrefix", &[Text, Text], None, trim_prefix, "without this beginning"),
    function("trimSuffix", &[Text, Text], None, trim_suffix, "without this end"),
    function("trimall", &[Text, Text], None, trim_all, "without these characters around it"),
    function(
        "trunc",
        &[Int, Text],
        None,
        trunc,
        "the first bytes, or the last for a negative count",
    ),
    function("untitle", &[Text], None, untitle, "without capitals at the start of words"),
    function("upper", &[Text], None, upper, "in upper case"),
    function("wrap", &[Int, Text], None, wrap, "in lines of so many bytes"),
    function("wrapWith", &[Int, Text, Text], None, wrap_with, "in lines that another text ends"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

fn hello(_: &FunctionCall<'_>, _: &[Dyn]) -> Result {
    Ok("Hello!".into())
}

fn upper(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(to_upper(text(a, 0)).into())
}

fn lower(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(to_lower(text(a, 0)).into())
}

fn title(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    // Go's Title: letters, digits and underscores continue a word, other ASCII ends it.
    let separates = |c: char| match c {
        '_' => false,
        _ if c.is_ascii() => !c.is_ascii_alphanumeric(),
        _ => c.is_whitespace(),
    };
    let mut at_start = true;
    let titled = text(a, 0).chars().map(|c| {
        let started = std::mem::replace(&mut at_start, separates(c));
        if started { case::title(c) } else { c }
    });
    Ok(titled.collect::<String>().into())
}

fn untitle(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut at_start = true;
    let untitled = text(a, 0).chars().map(|c| {
        let started = std::mem::replace(&mut at_start, c.is_whitespace());
        if started { case::lower(c) } else { c }
    });
    Ok(untitled.collect::<String>().into())
}

fn swapcase(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let swap = |c: char| if c.is_uppercase() { case::lower(c) } else { case::upper(c) };
    Ok(text(a, 0).chars().map(swap).collect::<String>().into())
}

fn snakecase(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(case::separated(text(a, 0), '_').into())
}

fn kebabcase(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(case::separated(text(a, 0), '-').into())
}

fn camelcase(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(case::camel(text(a, 0)).into())
}

/// A part of a text, with the marks that it has there.
fn stretch(a: &[Dyn], at: usize, part: impl FnOnce(&str) -> &str) -> Dyn {
    match any(a, at) {
        Dyn::Text(text) => text.stretch(part(text)).into(),
        other => other.clone(),
    }
}

fn trim(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(stretch(a, 0, str::trim))
}

fn trim_all(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let cut = text(a, 0);
    Ok(stretch(a, 1, |text| text.trim_matches(|c| cut.contains(c))))
}

fn trim_prefix(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(stretch(a, 1, |whole| whole.strip_prefix(text(a, 0)).unwrap_or(whole)))
}

fn trim_suffix(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(stretch(a, 1, |whole| whole.strip_suffix(text(a, 0)).unwrap_or(whole)))
}

fn nospace(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let source = text(a, 0);
    match latin(source).any(char::is_whitespace) {
        true => Ok(latin(source).filter(|c| !c.is_whitespace()).collect::<String>().into()),
        false => Ok(source.into()),
    }
}

fn initials(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let source: String = latin(text(a, 0)).collect();
    let words = source.split_whitespace();
    Ok(words.filter_map(|word| word.chars().next()).collect::<String>().into())
}

/// Sprig takes each byte for a character here.
fn latin(text: &str) -> impl Iterator<Item = char> {
    text.bytes().map(char::from)
}

fn contains(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(text(a, 1).contains(text(a, 0)).into())
}

fn has_prefix(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(text(a, 1).starts_with(text(a, 0)).into())
}

fn has_suffix(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(text(a, 1).ends_with(text(a, 0)).into())
}

fn repeat(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let Ok(count) = usize::try_from(int(a, 0)) else {
        return Err("strings: negative Repeat count".into());
    };
    let mut out = Sink::new(call.meter);
    out.repeat(text(a, 1), count)?;
    Ok(out.text.into())
}

fn replace(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (old, new, source) = (text(a, 0), text(a, 1), text(a, 2));
    let count = source.matches(old).count() as u64;
    call.meter.make(source.len() as u64 + count.saturating_mul(new.len() as u64))?;
    let replaced = source.replace(old, new);
    let (Dyn::Text(source), Dyn::Text(between)) = (any(a, 2), any(a, 1)) else {
        return Ok(replaced.into());
    };
    if old.is_empty() || matches!(any(a, 0), Dyn::Text(old) if old.has_data()) {
        return Ok(Marked::data(replaced).into());
    }
    // What is replaced is chosen by the template, so that what stands between keeps its marks.
    let mut out = Sink::new(call.meter);
    let mut at = 0;
    for piece in source.split(old) {
        if at > 0 {
            let start = out.text.len();
            out.text.push_str(between);
            out.keep(between.parts_of(0..between.len(), start))?;
        }
        let start = out.text.len();
        out.text.push_str(piece);
        out.keep(source.parts_of(at..at + piece.len(), start))?;
        at += piece.len() + old.len();
    }
    Ok(out.finish().into())
}

fn plural(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(text(a, usize::from(int(a, 2) != 1)).into())
}

fn indent(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    indented(call, a, "")
}

fn nindent(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    indented(call, a, "\n")
}

fn indented(call: &FunctionCall<'_>, a: &[Dyn], before: &str) -> Result {
    let Ok(spaces) = usize::try_from(int(a, 0)) else {
        return Err("strings: negative Repeat count".into());
    };
    let mut out = Sink::new(call.meter);
    out.push(before)?;
    for (position, line) in text(a, 1).split('\n').enumerate() {
        if position > 0 {
            out.push("\n")?;
        }
        out.repeat(" ", spaces)?;
        match any(a, 1) {
            // Each line for itself: where lines end is what an indentation is about.
            Dyn::Text(text) => out.push_marked(&text.stretch(line))?,
            _ => out.push(line)?,
        }
    }
    Ok(out.finish().into())
}

fn substr(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (start, end, bytes) = (int(a, 0), int(a, 1), text(a, 2).as_bytes());
    let length = bytes.len();
    let position = |at: i64| usize::try_from(at).unwrap_or(0);
    let beyond = |message: String| {
        Refusal::from(format!("runtime error: slice bounds out of range {message}"))
    };
    if start < 0 {
        return match usize::try_from(end) {
            Ok(end) if end <= length => Ok(Dyn::bytes(&bytes[..end])),
            Ok(end) => Err(beyond(format!("[:{end}] with length {length}"))),
            Err(_) => Err(beyond(format!("[:{end}]"))),
        };
    }
    let start = position(start);
    if end < 0 || position(end) > length {
        return match bytes.get(start..) {
            Some(rest) => Ok(Dyn::bytes(rest)),
            None => Err(beyond(format!("[{start}:{length}]"))),
        };
    }
    match bytes.get(start..position(end)) {
        Some(part) => Ok(Dyn::bytes(part)),
        None => Err(beyond(format!("[{start}:{end}]"))),
    }
}

fn trunc(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (count, bytes) = (int(a, 0), text(a, 1).as_bytes());
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(if count < 0 && size < bytes.len() {
        Dyn::bytes(&bytes[bytes.len() - size..])
    } else if count >= 0 && size < bytes.len() {
        Dyn::bytes(&bytes[..size])
    } else {
        any(a, 1).clone()
    })
}

fn quote(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    quoted(call, a, go_quote)
}

fn squote(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    quoted(call, a, |text| format!("'{text}'"))
}

fn quoted(call: &FunctionCall<'_>, a: &[Dyn], wrap: fn(&str) -> String) -> Result {
    let mut out = Sink::new(call.meter);
    for value in a.iter().filter(|value| !value.is_nil()) {
        if !out.text.is_empty() {
            out.push(" ")?;
        }
        let text = text_of(value, call.meter)?;
        let start = out.text.len();
        out.push(&wrap(&text))?;
        if text.has_data() {
            out.mark(start + 1..out.text.len() - 1, Some(text.into_text()))?;
        }
    }
    Ok(out.finish().into())
}

fn cat(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut out = Sink::new(call.meter);
    for (position, value) in a.iter().filter(|value| !value.is_nil()).enumerate() {
        if position > 0 {
            out.push(" ")?;
        }
        out.push_marked(&format::plain(value, call.meter)?)?;
    }
    Ok(out.finish().into())
}

fn to_string(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    text_of(any(a, 0), call.meter).map(Dyn::Text)
}

fn to_strings(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    texts_of(any(a, 0), call.meter).map(Dyn::texts)
}

fn join(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut out = Sink::new(call.meter);
    for (position, part) in texts_of(any(a, 1), call.meter)?.iter().enumerate() {
        if position > 0 {
            match any(a, 0) {
                Dyn::Text(between) => out.push_marked(between)?,
                _ => out.push(text(a, 0))?,
            }
        }
        out.push_marked(part)?;
    }
    Ok(out.finish().into())
}

/// The parts of a text. Go splits by the empty text into characters.
fn parts<'t>(
    call: &FunctionCall<'_>,
    separator: &str,
    text: &'t str,
    most: Option<usize>,
) -> Result<Vec<&'t str>> {
    call.meter.make(text.len() as u64 * 8)?;
    if separator.is_empty() {
        let mut starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        starts.truncate(most.unwrap_or(usize::MAX));
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        return Ok(starts.iter().zip(ends).map(|(&start, end)| &text[start..end]).collect());
    }
    Ok(match most {
        Some(most) => text.splitn(most, separator).collect(),
        None => text.split(separator).collect(),
    })
}

fn numbered(parts: Vec<&str>) -> Dyn {
    let named = parts.into_iter().enumerate();
    Dyn::text_map(named.map(|(at, part)| (Str::from(format!("_{at}")), Dyn::from(part))))
}

fn split(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    parts(call, text(a, 0), text(a, 1), None).map(numbered)
}

fn splitn(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    // Go: a negative count is not a limit, 0 gives nothing.
    let most = usize::try_from(int(a, 1)).ok();
    if most == Some(0) {
        return Ok(numbered(Vec::new()));
    }
    parts(call, text(a, 0), text(a, 2), most).map(numbered)
}

fn split_list(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    parts(call, text(a, 0), text(a, 1), None).map(Dyn::texts)
}

fn abbrev(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let width = int(a, 0);
    if width < 4 {
        return Ok(any(a, 1).clone());
    }
    Ok(Dyn::bytes(&abbreviated(text(a, 1).as_bytes(), 0, size(width))))
}

fn abbrev_both(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (left, right) = (int(a, 0), int(a, 1));
    if right < 4 || left > 0 && right < 7 {
        return Ok(any(a, 2).clone());
    }
    Ok(Dyn::bytes(&abbreviated(text(a, 2).as_bytes(), size(left), size(right))))
}

fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// At most `width` bytes from `offset` on, with dots for what is left out.
fn abbreviated(bytes: &[u8], offset: usize, width: usize) -> Vec<u8> {
    if bytes.len() <= width {
        return bytes.to_vec();
    }
    let kept = width.saturating_sub(3);
    let mut offset = offset.min(bytes.len());
    if bytes.len() - offset < kept {
        offset = bytes.len() - kept;
    }
    if offset <= 4 {
        return [&bytes[..kept], b"..."].concat();
    }
    if offset + kept < bytes.len() {
        let rest = abbreviated(&bytes[offset..], 0, kept);
        return [b"...".as_slice(), &rest].concat();
    }
    [b"...".as_slice(), &bytes[bytes.len() - kept..]].concat()
}

fn wrap(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    wrapped(call, text(a, 1), int(a, 0), "\n", false)
}

fn wrap_with(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let between = if text(a, 1).is_empty() { "\n" } else { text(a, 1) };
    wrapped(call, text(a, 2), int(a, 0), between, true)
}

fn wrapped(
    call: &FunctionCall<'_>,
    text: &str,
    width: i64,
    between: &str,
    cut_words: bool,
) -> Result {
    let bytes = text.as_bytes();
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let mut out = Vec::new();
    let mut at = 0;
    while bytes.len() - at > width {
        call.meter.step(1)?;
        if bytes[at] == b' ' {
            at += 1;
            continue;
        }
        let last_space = bytes[at..=at + width].iter().rposition(|&byte| byte == b' ');
        let (end, next) = match last_space {
            Some(space) => (at + space, at + space + 1),
            None if cut_words => (at + width, at + width),
            None => match bytes[at + width..].iter().position(|&byte| byte == b' ') {
                Some(space) => (at + width + space, at + width + space + 1),
                None => break,
            },
        };
        call.meter.make((end - at + between.len()) as u64)?;
        out.extend_from_slice(&bytes[at..end]);
        out.extend_from_slice(between.as_bytes());
        at = next;
    }
    out.extend_from_slice(&bytes[at..]);
    Ok(Dyn::bytes(&out))
}
