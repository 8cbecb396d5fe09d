//! The strings extension. Positions count characters, not bytes.

use kiln_value::Str;

use super::{Registry, Texts, format, format_kubernetes};
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;

pub(super) fn register(registry: &mut Registry, texts: Texts) {
    registry.add(char_at, &["(string).charAt(int): string"]);
    let kubernetes = texts == Texts::Kubernetes;
    let searches: [super::FunctionBody; 2] = if kubernetes {
        [
            |context, args| search_leniently(context, args, index_of),
            |context, args| search_leniently(context, args, last_index_of),
        ]
    } else {
        [index_of, last_index_of]
    };
    registry
        .add(searches[0], &["(string).indexOf(string): int", "(string).indexOf(string, int): int"]);
    registry.add(
        searches[1],
        &["(string).lastIndexOf(string): int", "(string).lastIndexOf(string, int): int"],
    );
    registry.add(join, &["(list(string)).join(): string", "(list(string)).join(string): string"]);
    registry.add(
        |context, args| text(context, args, str::to_ascii_lowercase),
        &["(string).lowerAscii(): string"],
    );
    registry.add(
        |context, args| text(context, args, str::to_ascii_uppercase),
        &["(string).upperAscii(): string"],
    );
    if !kubernetes {
        registry.add(
            |context, args| text(context, args, |text| text.chars().rev().collect()),
            &["(string).reverse(): string"],
        );
    }
    registry.add(
        |context, args| text(context, args, |text| text.trim_matches(is_space).to_owned()),
        &["(string).trim(): string"],
    );
    registry.add(|context, args| text(context, args, quote), &["strings.quote(string): string"]);
    registry.add(
        replace,
        &[
            "(string).replace(string, string): string",
            "(string).replace(string, string, int): string",
        ],
    );
    registry.add(
        split,
        &["(string).split(string): list(string)", "(string).split(string, int): list(string)"],
    );
    registry.add(
        substring,
        &["(string).substring(int): string", "(string).substring(int, int): string"],
    );
    let format: super::FunctionBody = if kubernetes { format_kubernetes::run } else { format::run };
    registry.add(format, &["(string).format(list(dyn)): string"]);
}

/// A function of one text.
fn text(
    context: &mut Context<'_>,
    args: &[Val],
    change: impl Fn(&str) -> String,
) -> Result<Val, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::from(change(text)))
}

/// White space as the specification lists it; Rust's notion is the same set.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

/// The text in double quotes, with the escapes that the specification names.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn out_of_range(index: i64) -> EvalFailure {
    failure(format!("index out of range: {index}"))
}

/// The byte offset of a character position; the end counts as a position.
fn offset(text: &str, position: i64) -> Result<usize, EvalFailure> {
    let wanted = usize::try_from(position).map_err(|_| out_of_range(position))?;
    if text.is_ascii() {
        return if wanted <= text.len() { Ok(wanted) } else { Err(out_of_range(position)) };
    }
    let ends = std::iter::once(text.len());
    let mut starts = text.char_indices().map(|(at, _)| at).chain(ends);
    starts.nth(wanted).ok_or_else(|| out_of_range(position))
}

/// The character position of a byte offset.
fn position(text: &str, offset: usize) -> Val {
    Val::Int(i64::try_from(text[..offset].chars().count()).unwrap_or(i64::MAX))
}

fn char_at(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::Int(index)] = args else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    let at = offset(text, *index)?;
    Ok(Val::String(text[at..].chars().next().map(|c| Str::from_iter([c])).unwrap_or_default()))
}

/// Kubernetes: nothing is found beyond the end, except nothing, which is at the end.
fn search_leniently(
    context: &mut Context<'_>,
    args: &[Val],
    search: super::FunctionBody,
) -> Result<Val, EvalFailure> {
    if let [Val::String(text), Val::String(part), Val::Int(start)] = args {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if *start >= length {
            context.meter.charge_text(text.len() as u64)?;
            return Ok(Val::Int(if part.is_empty() { length } else { -1 }));
        }
    }
    search(context, args)
}

fn index_of(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, part, start) = search(context, args)?;
    let start = offset(text, start.unwrap_or(0))?;
    Ok(match text[start..].find(part) {
        Some(at) => position(text, start + at),
        None => Val::Int(-1),
    })
}

fn last_index_of(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, part, last) = search(context, args)?;
    // The match may begin at the last position but not after it.
    let end = match last {
        Some(last) => (offset(text, last)? + part.len()).min(text.len()),
        None => text.len(),
    };
    // No match ends inside a character.
    let end = text.floor_char_boundary(end);
    Ok(match text[..end].rfind(part) {
        Some(at) => position(text, at),
        None => Val::Int(-1),
    })
}

fn search<'a>(
    context: &mut Context<'_>,
    args: &'a [Val],
) -> Result<(&'a str, &'a str, Option<i64>), EvalFailure> {
    let (text, part, at) = match args {
        [Val::String(text), Val::String(part)] => (text, part, None),
        [Val::String(text), Val::String(part), Val::Int(at)] => (text, part, Some(*at)),
        _ => return Err(no_such_overload()),
    };
    let (text_cost, part_cost) = (text.len().div_ceil(10), part.len().div_ceil(10));
    context.meter.charge((text_cost as u64).saturating_mul(part_cost as u64))?;
    Ok((text, part, at))
}

fn join(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, separator.as_str()),
        _ => return Err(no_such_overload()),
    };
    let mut joined = String::new();
    for (at, element) in list.iter().enumerate() {
        let Val::String(element) = element else { return Err(no_such_overload()) };
        context.meter.charge_text((element.len() + separator.len()) as u64)?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&element);
    }
    Ok(Val::from(joined))
}

fn replace(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, from, to, limit) = match args {
        [Val::String(text), Val::String(from), Val::String(to)] => (text, from, to, -1),
        [Val::String(text), Val::String(from), Val::String(to), Val::Int(limit)] => {
            (text, from, to, *limit)
        }
        _ => return Err(no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    context.meter.charge_text(text.len() as u64)?;
    let count = text.matches(from.as_str()).take(limit).count();
    // Charged before it is built: a short text with a long replacement can become huge.
    context.meter.charge_text((count as u64).saturating_mul(to.len() as u64))?;
    Ok(Val::from(text.replacen(from.as_str(), to, limit)))
}

fn split(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, separator, limit) = match args {
        [Val::String(text), Val::String(separator)] => (text, separator, -1),
        [Val::String(text), Val::String(separator), Val::Int(limit)] => (text, separator, *limit),
        _ => return Err(no_such_overload()),
    };
    if limit == 0 {
        return Val::list(Vec::new());
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts =
        if separator.is_empty() { text.len() } else { text.matches(separator.as_str()).count() };
    context.meter.charge((parts.min(limit)) as u64 + text.len().div_ceil(10) as u64)?;
    let parts: Vec<Val> = if separator.is_empty() {
        // Go: the empty separator splits between characters.
        let mut rest = text.as_str();
        let mut parts = Vec::new();
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == limit {
                break;
            }
            let (first, after) = rest.split_at(c.len_utf8());
            parts.push(Val::string(first));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Val::string(rest));
        }
        parts
    } else {
        text.splitn(limit, separator.as_str()).map(Val::string).collect()
    };
    Val::list(parts)
}

fn substring(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, start, end) = match args {
        [Val::String(text), Val::Int(start)] => (text, *start, None),
        [Val::String(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_such_overload()),
    };
    context.meter.charge_text(text.len() as u64)?;
    let from = offset(text, start)?;
    let to = end.map_or(Ok(text.len()), |end| offset(text, end))?;
    if from > to {
        let end = end.unwrap_or(0);
        return Err(failure(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(Val::string(&text[from..to]))
}
