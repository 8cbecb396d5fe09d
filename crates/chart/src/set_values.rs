//! Values on a command line: `a.b=1,c[0]=x,d={1,2}`, as `helm --set` reads them.

use kiln_value::{Map, Value, json};

use crate::error::{ChartError, Result};

/// What becomes of the text after `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// `--set`: truths, nulls and whole numbers are what they look like.
    Typed,
    /// `--set-string`: all are texts.
    Text,
    /// `--set-json`: all are JSON.
    Json,
}

/// Go's library has the same bounds.
const MAX_INDEX: usize = 65_536;
const MAX_NESTING: usize = 30;

enum Step {
    Key(String),
    Index(usize),
}

/// Puts what a line says over values.
///
/// # Errors
/// When the line is not one.
pub fn set_value(values: &mut Map, line: &str, kind: SetKind) -> Result<()> {
    let option = match kind {
        SetKind::Typed => "--set",
        SetKind::Text => "--set-string",
        SetKind::Json => "--set-json",
    };
    let failed = |why: String| ChartError::new(format!("failed parsing {option} data: {why}"));
    let mut rest = line.chars().peekable();
    while rest.peek().is_some() {
        let path = path(&mut rest).map_err(failed)?;
        let value = match kind {
            SetKind::Json => {
                let text: String = rest.by_ref().collect();
                let (value, after) = json_value(&text).map_err(failed)?;
                // The rest of the line is read again.
                put(values, &path, value).map_err(failed)?;
                return match after {
                    "" => Ok(()),
                    after => set_value(values, after, kind),
                };
            }
            kind => plain_value(&mut rest, kind).map_err(failed)?,
        };
        put(values, &path, value).map_err(failed)?;
    }
    Ok(())
}

type Characters<'l> = std::iter::Peekable<std::str::Chars<'l>>;

/// The characters up to one of these; which one it was.
fn until(rest: &mut Characters<'_>, stops: &[char]) -> (String, Option<char>) {
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            c if stops.contains(&c) => return (text, Some(c)),
            '\\' => text.extend(rest.next()),
            c => text.push(c),
        }
    }
    (text, None)
}

fn path(rest: &mut Characters<'_>) -> Result<Vec<Step>, String> {
    let mut path = Vec::new();
    loop {
        let (key, stop) = until(rest, &['=', '[', ',', '.']);
        let after_index = matches!(path.last(), Some(Step::Index(_)));
        if after_index && !key.is_empty() {
            return Err(format!("unexpected data at end of array index: {key:?}"));
        }
        if !after_index {
            path.push(Step::Key(key.clone()));
        }
        if path.len() > MAX_NESTING {
            return Err(format!(
                "value name nested level is greater than maximum supported nested level of {MAX_NESTING}"
            ));
        }
        match stop {
            Some('=') => return Ok(path),
            Some('.') if after_index => {
                let (key, stop) = until(rest, &['=', '[', ',', '.']);
                path.push(Step::Key(key.clone()));
                match stop {
                    Some('=') => return Ok(path),
                    Some('.') => {}
                    Some('[') => path.push(index(rest)?),
                    _ => return Err(format!("key {key:?} has no value")),
                }
            }
            Some('.') => {}
            Some('[') => path.push(index(rest)?),
            Some(_) => return Err(format!("key {key:?} has no value (cannot end with ,)")),
            None => return Err(format!("key {key:?} has no value")),
        }
    }
}

fn index(rest: &mut Characters<'_>) -> Result<Step, String> {
    let (digits, stop) = until(rest, &[']']);
    if stop.is_none() {
        return Err("error parsing index: EOF".to_owned());
    }
    if digits.starts_with('-') && digits[1..].parse::<usize>().is_ok() {
        return Err(format!("negative {digits} index not allowed"));
    }
    let at: usize = digits.parse().map_err(|_| {
        format!("error parsing index: strconv.Atoi: parsing {digits:?}: invalid syntax")
    })?;
    if at > MAX_INDEX {
        return Err(format!(
            "index of {at} is greater than maximum supported index of {MAX_INDEX}"
        ));
    }
    Ok(Step::Index(at))
}

fn plain_value(rest: &mut Characters<'_>, kind: SetKind) -> Result<Value, String> {
    if rest.peek() != Some(&'{') {
        let (text, _) = until(rest, &[',']);
        return Ok(typed(text, kind));
    }
    rest.next();
    let mut items = Vec::new();
    loop {
        let (text, stop) = until(rest, &[',', '}']);
        match stop {
            None => return Err("list must terminate with '}'".to_owned()),
            Some('}') => {
                rest.next_if_eq(&',');
                // Nothing between the braces is an empty list's one empty text, as in Helm.
                items.push(typed(text, kind));
                return Ok(items.into());
            }
            _ => items.push(typed(text, kind)),
        }
    }
}

fn typed(text: String, kind: SetKind) -> Value {
    if kind == SetKind::Text {
        return text.into();
    }
    match text.to_ascii_lowercase().as_str() {
        "true" => return true.into(),
        "false" => return false.into(),
        "null" => return Value::Null,
        "0" => return Value::from(0_i64),
        _ => {}
    }
    match text.parse::<i64>() {
        Ok(int) if !text.starts_with('0') => int.into(),
        _ => text.into(),
    }
}

/// A JSON value at the start of a text, and what follows it and a comma.
fn json_value(text: &str) -> Result<(Value, &str), String> {
    let trimmed = text.trim_start();
    if trimmed.is_empty() || trimmed.starts_with(',') {
        return Ok((Value::Null, trimmed.strip_prefix(',').unwrap_or(trimmed)));
    }
    let end = json_end(trimmed);
    let value = json::parse(&trimmed[..end]).map_err(|error| error.to_string())?;
    // Numbers of Go's JSON are floats.
    let value = match value {
        Value::Number(number) => Value::from(number.as_f64()),
        other => other,
    };
    let rest = trimmed[end..].trim_start();
    Ok((value, rest.strip_prefix(',').unwrap_or(rest)))
}

/// Where the first JSON value of a text ends: at a comma outside of brackets and quotes.
fn json_end(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn put(values: &mut Map, path: &[Step], value: Value) -> Result<(), String> {
    let Some((Step::Key(key), rest)) = path.split_first() else {
        return Err("a key is expected".to_owned());
    };
    // Helm leaves out what has no name.
    if key.is_empty() {
        return Ok(());
    }
    let place = values.get_or_insert_with(key, || Value::Null);
    put_at(place, rest, value).map_err(|why| format!("unable to parse key: {key}: {why}"))
}

fn put_at(place: &mut Value, path: &[Step], value: Value) -> Result<(), String> {
    match path.split_first() {
        None => {
            *place = value;
            Ok(())
        }
        Some((Step::Key(_), _)) => {
            if place.is_null() {
                *place = Value::map();
            }
            match place {
                Value::Map(map) => put(map, path, value),
                other => Err(format!("it is a {}, not a map", other.type_name())),
            }
        }
        Some((Step::Index(at), rest)) => {
            if place.is_null() {
                *place = Value::list();
            }
            let found = place.type_name();
            let Some(list) = place.as_list_mut() else {
                return Err(format!("it is a {found}, not a list"));
            };
            if list.len() <= *at {
                list.resize(at + 1, Value::Null);
            }
            put_at(&mut list[*at], rest, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn set(line: &str, kind: SetKind) -> Result<Value> {
        let mut values = Map::new();
        set_value(&mut values, line, kind)?;
        Ok(Value::Map(values))
    }

    #[test]
    fn lines_name_paths_and_lists() {
        for (line, wanted) in [
            ("a=1,b=x", value!({"a": 1, "b": "x"})),
            ("a.b.c=true,a.d=null", value!({"a": {"b": {"c": true}, "d": null}})),
            ("a={1,x,y}", value!({"a": [1, "x", "y"]})),
            ("a[1]=x,a[0].b=2", value!({"a": [{"b": 2}, "x"]})),
            ("a[0][1]=x", value!({"a": [[null, "x"]]})),
            ("a\\.b=1\\,2", value!({"a.b": "1,2"})),
            ("a=,b=0,c=012", value!({"a": "", "b": 0, "c": "012"})),
            ("a={}", value!({"a": [""]})),
        ] {
            assert_eq!(set(line, SetKind::Typed).unwrap(), wanted, "{line}");
        }
        assert_eq!(set("a=1,b=true", SetKind::Text).unwrap(), value!({"a": "1", "b": "true"}));
        let json = set(r#"a={"b":[1,2]},c="x,y",d="#, SetKind::Json).unwrap();
        assert_eq!(json, value!({"a": {"b": [1, 2]}, "c": "x,y", "d": null}));
    }

    #[test]
    fn what_is_not_a_line_is_refused() {
        for line in
            ["a", "a,b=1", "a={1", "a[x]=1", "a[-1]=1", "a[70000]=1", "a=1,a.b=2", "a[0]x=1"]
        {
            assert!(set(line, SetKind::Typed).is_err(), "{line}");
        }
    }
}
