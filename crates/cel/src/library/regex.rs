//! Regular expressions: the extension of the language and the functions of Kubernetes.

use kiln_text::Regex;
use kiln_value::Str;

use super::Registry;
use super::standard::charge_regex;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;

pub(super) fn register(registry: &mut Registry) {
    registry.add(
        replace,
        &[
            "regex.replace(string, string, string): string",
            "regex.replace(string, string, string, int): string",
        ],
    );
    registry.add(extract, &["regex.extract(string, string): optional(string)"]);
    registry.add(extract_all, &["regex.extractAll(string, string): list(string)"]);
    // Kubernetes.
    registry.add(find, &["(string).find(string): string"]);
    registry.add(
        find_all,
        &["(string).findAll(string): list(string)", "(string).findAll(string, int): list(string)"],
    );
}

fn compiled(context: &mut Context<'_>, text: &str, pattern: &Str) -> Result<Regex, EvalFailure> {
    charge_regex(&mut context.meter, text, pattern)?;
    context.regex(pattern)
}

fn find(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(pattern)] = args else { return Err(no_such_overload()) };
    let regex = compiled(context, text, pattern)?;
    Ok(Val::string(regex.find(text).unwrap_or_default()))
}

fn find_all(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, pattern, limit) = match args {
        [Val::String(text), Val::String(pattern)] => (text, pattern, -1),
        [Val::String(text), Val::String(pattern), Val::Int(limit)] => (text, pattern, *limit),
        _ => return Err(no_such_overload()),
    };
    let regex = compiled(context, text, pattern)?;
    context.meter.charge(text.len() as u64)?;
    let found = regex.find_all(text, usize::try_from(limit).ok());
    Val::list(found.into_iter().map(Val::string).collect())
}

fn extract(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(pattern)] = args else { return Err(no_such_overload()) };
    let regex = compiled(context, text, pattern)?;
    let group = group_to_extract(&regex)?;
    match regex.captures(text) {
        None => Ok(Val::none()),
        Some(captures) => captures
            .get(group)
            .filter(|found| group == 0 || !found.is_empty())
            .map_or(Ok(Val::none()), |found| Val::some(Val::string(found))),
    }
}

fn extract_all(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(pattern)] = args else { return Err(no_such_overload()) };
    let regex = compiled(context, text, pattern)?;
    context.meter.charge(text.len() as u64)?;
    let group = group_to_extract(&regex)?;
    let found = regex.captures_iter(text).filter_map(|captures| captures.get(group));
    Val::list(found.filter(|found| group == 0 || !found.is_empty()).map(Val::string).collect())
}

/// The whole match, or the only group.
fn group_to_extract(regex: &Regex) -> Result<usize, EvalFailure> {
    match regex.group_count() {
        groups @ (0 | 1) => Ok(groups),
        _ => Err(failure(format!(
            "regular expression has more than one capturing group: {:?}",
            regex.as_str()
        ))),
    }
}

fn replace(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let (text, pattern, by, limit) = match args {
        [Val::String(text), Val::String(pattern), Val::String(by)] => (text, pattern, by, -1),
        [Val::String(text), Val::String(pattern), Val::String(by), Val::Int(limit)] => {
            (text, pattern, by, *limit)
        }
        _ => return Err(no_such_overload()),
    };
    if limit == 0 {
        return Ok(Val::String(text.clone()));
    }
    let regex = compiled(context, text, pattern)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let template = Template::parse(by, &regex)?;
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for captures in regex.captures_iter(text).take(limit) {
        let Some(range) = captures.range(0) else { continue };
        out.push_str(&text[end..range.start]);
        for piece in &template.0 {
            let piece = match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Group(group) => captures.get(*group).unwrap_or_default(),
            };
            context.meter.charge_text(piece.len() as u64 + 1)?;
            out.push_str(piece);
        }
        end = range.end;
    }
    out.push_str(&text[end..]);
    context.meter.charge_text(out.len() as u64)?;
    Ok(Val::from(out))
}

/// A replacement in the manner of RE2: `\1` is a group, `\\` a backslash.
struct Template(Vec<Piece>);

enum Piece {
    Text(String),
    Group(usize),
}

impl Template {
    fn parse(text: &str, regex: &Regex) -> Result<Template, EvalFailure> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c != '\\' {
                plain.push(c);
                continue;
            }
            match rest.next() {
                Some('\\') => plain.push('\\'),
                Some(digit) if digit.is_ascii_digit() => {
                    let group = digit as usize - '0' as usize;
                    if group > regex.group_count() {
                        let message = format!(
                            "replacement string references group {group} but regex has only {} group(s)",
                            regex.group_count()
                        );
                        return Err(failure(message));
                    }
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Group(group));
                }
                _ => {
                    return Err(failure(
                        "invalid replacement string: \\ must be followed by a digit or \\",
                    ));
                }
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Template(pieces))
    }
}
