//! `.Files`: the files of a chart that are not templates.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Key, Value};

use super::serial::written;
use crate::error::Refusal;
use crate::functions::ParameterType::Text;
use crate::functions::{FunctionCall, any, function, text};
use crate::value::{Dyn, GoType, Map};

pub(crate) static FILES: GoType = GoType::map(
    "engine.files",
    &[
        function("AsConfig", &[], None, as_config, "the files as data of a ConfigMap"),
        function("AsSecrets", &[], None, as_secrets, "the files as data of a Secret"),
        function("Get", &[Text], None, get, "the text of a file"),
        function("GetBytes", &[Text], None, get_bytes, "the bytes of a file"),
        function("Glob", &[Text], None, glob, "the files whose paths match"),
        function("Lines", &[Text], None, lines, "the lines of a file"),
    ],
);

type Result<R = Dyn> = std::result::Result<R, Refusal>;

fn files(a: &[Dyn]) -> Map {
    match any(a, 0) {
        Dyn::Map(map) => map.clone(),
        _ => Map::own(BTreeMap::new()),
    }
}

/// The bytes of a file; none if it is not there.
fn bytes(a: &[Dyn]) -> Dyn {
    files(a).get(text(a, 1)).unwrap_or_else(|| Dyn::Bytes([].into()))
}

fn get_bytes(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(bytes(a))
}

fn get(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    content(call, text(a, 1), &bytes(a)).map(Dyn::from)
}

/// The text of a file. Texts are UTF-8 here: what is not would silently become another file.
fn content(call: &FunctionCall<'_>, path: &str, file: &Dyn) -> Result<String> {
    let Dyn::Bytes(bytes) = file else { return Ok(String::new()) };
    call.meter.make(bytes.len() as u64)?;
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Refusal::Refused(
            format!("the file {path} is not UTF-8 text"),
            "use .Files.AsSecrets for files of any bytes",
        )),
    }
}

fn lines(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let text = content(call, text(a, 1), &bytes(a))?;
    if text.is_empty() {
        return Ok(Dyn::texts(Vec::<String>::new()));
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    call.meter.make(text.matches('\n').count() as u64 * 16)?;
    Ok(Dyn::texts(text.split('\n')))
}

fn glob(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let all = files(a).entries();
    // What is not a pattern matches everything.
    let pattern = Glob::parse(text(a, 1)).unwrap_or_else(|| Glob(vec![GlobPart::All]));
    let mut found = BTreeMap::new();
    for (path, file) in all {
        if pattern.matches(call, &path)? {
            found.insert(path, file);
        }
    }
    Ok(Dyn::Map(Map::own(found).under_type(Some(&FILES))))
}

fn as_config(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let entries = files(a).entries().into_iter().map(|(path, file)| {
        let text = content(call, &path, &file)?;
        Ok((base(&path), text))
    });
    yaml(call, entries.collect::<Result<_>>()?)
}

fn as_secrets(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let entries = files(a).entries().into_iter().map(|(path, file)| {
        let Dyn::Bytes(bytes) = file else { return Ok((base(&path), String::new())) };
        call.meter.make(bytes.len() as u64 * 4 / 3)?;
        Ok((base(&path), STANDARD.encode(bytes)))
    });
    yaml(call, entries.collect::<Result<_>>()?)
}

fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Files of one name in several directories are one entry: the last one counts.
fn yaml(call: &FunctionCall<'_>, entries: Vec<(String, String)>) -> Result {
    let entries: BTreeMap<String, String> = entries.into_iter().collect();
    let entries = entries.into_iter().map(|(name, text)| (Key::new(&name), Value::from(text)));
    written(call, &Value::Map(kiln_value::Map::from_unique(entries.collect())))
}

/// A pattern for paths: `*` and `?` stay within a directory, `**` does not.
struct Glob(Vec<GlobPart>);

enum GlobPart {
    Text(char),
    One,
    Many,
    All,
    Set { negated: bool, ranges: Vec<(char, char)> },
    Either(Vec<Glob>),
}

impl Glob {
    fn parse(pattern: &str) -> Option<Glob> {
        let mut characters = pattern.chars().peekable();
        let glob = Glob::parts(&mut characters, 0)?;
        characters.next().is_none().then_some(glob)
    }

    fn parts(
        characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
        depth: usize,
    ) -> Option<Glob> {
        let mut parts = Vec::new();
        while let Some(&c) = characters.peek() {
            if depth > 0 && matches!(c, ',' | '}') {
                break;
            }
            characters.next();
            parts.push(match c {
                '\\' => GlobPart::Text(characters.next()?),
                '?' => GlobPart::One,
                '*' if characters.peek() == Some(&'*') => {
                    characters.next();
                    GlobPart::All
                }
                '*' => GlobPart::Many,
                '[' => {
                    let negated = characters.next_if_eq(&'!').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        let mut from = characters.next()?;
                        if from == ']' {
                            break;
                        }
                        if from == '\\' {
                            from = characters.next()?;
                        }
                        let mut to = from;
                        if characters.next_if_eq(&'-').is_some() {
                            to = characters.next()?;
                        }
                        ranges.push((from, to));
                    }
                    GlobPart::Set { negated, ranges }
                }
                // Deeper nesting does not occur in charts, and would cost stack.
                '{' if depth > 8 => return None,
                '{' => {
                    let mut either = Vec::new();
                    loop {
                        either.push(Glob::parts(characters, depth + 1)?);
                        match characters.next()? {
                            ',' => {}
                            _ => break,
                        }
                    }
                    GlobPart::Either(either)
                }
                c => GlobPart::Text(c),
            });
        }
        Some(Glob(parts))
    }

    fn matches(&self, call: &FunctionCall<'_>, path: &str) -> Result<bool> {
        let path: Vec<char> = path.chars().collect();
        let parts: Vec<&GlobPart> = self.0.iter().collect();
        matches(call, &parts, &path)
    }
}

fn matches(call: &FunctionCall<'_>, parts: &[&GlobPart], path: &[char]) -> Result<bool> {
    call.meter.step(1)?;
    let Some((first, rest)) = parts.split_first() else { return Ok(path.is_empty()) };
    let one = |fits: bool| -> Result<bool> { Ok(fits && matches(call, rest, &path[1..])?) };
    match first {
        GlobPart::Text(wanted) => one(path.first() == Some(wanted)),
        GlobPart::One => one(path.first().is_some_and(|c| *c != '/')),
        GlobPart::Set { negated, ranges } => one(path
            .first()
            .is_some_and(|c| ranges.iter().any(|(from, to)| from <= c && c <= to) != *negated)),
        GlobPart::Many | GlobPart::All => {
            for end in 0..=path.len() {
                if matches(call, rest, &path[end..])? {
                    return Ok(true);
                }
                if matches!(first, GlobPart::Many) && path.get(end) == Some(&'/') {
                    break;
                }
            }
            Ok(false)
        }
        GlobPart::Either(either) => {
            for one in either {
                let joined: Vec<&GlobPart> = one.0.iter().chain(rest.iter().copied()).collect();
                if matches(call, &joined, path)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}
