//! Field paths of replacements and vars: `spec.containers.[name=web].ports.0`, `data.a\.b`, `list.*`.

use kiln_text::Regex;
use kiln_value::{Path, Segment, Value};

use crate::error::{Error, Result};
use crate::fields::field_spec::split_path;
use crate::model::output::wrong_node_kind;
use crate::model::resource::scalar_text;

/// Splits a path at dots. Brackets keep what is in them together: `[a=b.c]` stays one part,
/// `[a.b/c]` is the key `a.b/c`.
pub(crate) fn split(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = split_path(path, '.').into_iter();
    while let Some(part) = rest.next() {
        if !part.starts_with('[') || part.ends_with(']') {
            parts.push(part);
            continue;
        }
        let mut whole = part;
        for more in rest.by_ref() {
            whole.push('.');
            whole.push_str(&more);
            if more.ends_with(']') {
                break;
            }
        }
        if whole.contains('=') {
            parts.push(whole);
        } else {
            parts.push(whole.trim_matches(['[', ']']).to_owned());
        }
    }
    parts
}

/// Splits the path of a var, where `ports[0]` is `ports` and then `0`.
pub(crate) fn split_with_indices(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in split(path) {
        let index = part
            .strip_suffix(']')
            .and_then(|p| p.rsplit_once('['))
            .filter(|(_, index)| !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()));
        match index {
            Some((name, index)) => {
                if !name.is_empty() {
                    parts.push(name.to_owned());
                }
                parts.push(index.to_owned());
            }
            None => parts.push(part),
        }
    }
    parts
}

fn is_list_match(part: &str) -> bool {
    part.starts_with('[') && part.ends_with(']')
}

fn index_of(part: &str) -> Option<usize> {
    part.strip_prefix('+').unwrap_or(part).parse().ok()
}

/// The key and the value of `[key=value]`.
fn list_match(part: &str) -> Result<(&str, &str)> {
    let inner = part.strip_suffix(']').unwrap_or(part);
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    inner.split_once('=').ok_or_else(|| {
        Error::new("list path element must contain fieldName=fieldValue for element to match")
    })
}

/// The place of one value, with exact matches in lists. `None` when something is missing.
///
/// # Errors
/// When the path cannot go on where it leads.
pub(crate) fn look_up(value: &Value, parts: &[String]) -> Result<Option<Path>> {
    let mut path = Path::root();
    let mut place = value;
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let segment = match (part.parse::<i64>(), part) {
            (Ok(index), _) if index < 0 => {
                return Err(Error::new(format!("array index {index} cannot be negative")));
            }
            (_, "*") => return Err(Error::new("wildcard is not supported in PathGetter")),
            (Ok(_), _) | (_, "-") => {
                let Value::List(list) = place else {
                    return Err(wrong_node_kind("SequenceNode", place));
                };
                let at = part.parse().unwrap_or_else(|_| list.len().wrapping_sub(1));
                Segment::Index(at)
            }
            (_, part) if is_list_match(part) => {
                let (key, wanted) = list_match(part)?;
                let Value::List(list) = place else {
                    return Err(wrong_node_kind("SequenceNode", place));
                };
                let found = list.iter().position(|element| match element {
                    Value::Map(map) if !key.is_empty() => {
                        map.get(key).is_some_and(|value| scalar_text(value) == wanted)
                    }
                    other => key.is_empty() && scalar_text(other) == wanted,
                });
                match found {
                    Some(at) => Segment::Index(at),
                    None => return Ok(None),
                }
            }
            (_, key) => match place {
                Value::Null => return Ok(None),
                Value::Map(_) => Segment::from(key),
                other => return Err(wrong_node_kind("MappingNode", other)),
            },
        };
        match place.step(&segment) {
            Some(inner) => place = inner,
            None => return Ok(None),
        }
        path.push(segment);
    }
    Ok(Some(path))
}

/// What is made where a path leads to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    Scalar,
    List,
    Map,
}

impl Leaf {
    pub(crate) fn like(value: &Value) -> Self {
        match value {
            Value::List(_) => Leaf::List,
            Value::Map(_) => Leaf::Map,
            _ => Leaf::Scalar,
        }
    }

    fn make(self) -> Value {
        match self {
            Leaf::Scalar => Value::Null,
            Leaf::List => Value::list(),
            Leaf::Map => Value::map(),
        }
    }
}

/// A place that a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundField {
    pub(crate) path: Path,
    /// Made just now: it has no type of its own yet.
    pub(crate) is_new: bool,
    /// Made below a null, where kustomize fails or makes nothing.
    pub(crate) below_null: bool,
    /// Inside text that a pattern led to; kustomize finds such places but changes a copy.
    pub(crate) in_copy: bool,
}

/// Finds all places that a path means, making them first when asked to.
///
/// # Errors
/// When the path cannot go on where it leads.
pub(crate) fn find_all(
    value: &mut Value,
    parts: &[String],
    create: Option<Leaf>,
) -> Result<Vec<FoundField>> {
    let mut search = Search { create, below_null: false, path: Path::root(), found: Vec::new() };
    search.enter(value, parts, false)?;
    Ok(search.found)
}

struct Search {
    create: Option<Leaf>,
    /// The path went on where null was.
    below_null: bool,
    path: Path,
    found: Vec<FoundField>,
}

impl Search {
    fn enter(&mut self, value: &mut Value, parts: &[String], is_new: bool) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            self.found.push(FoundField {
                path: self.path.clone(),
                is_new,
                below_null: self.below_null,
                in_copy: false,
            });
            return Ok(());
        };
        if let Some(at) = index_of(part) {
            return self.element(value, at, part, rest);
        }
        if is_list_match(part) {
            return self.matching(value, part, rest);
        }
        if part == "*" {
            for at in 0..elements(value)?.len() {
                self.below(value, Segment::Index(at), rest, false)?;
            }
            return Ok(());
        }
        self.field(value, part, rest)
    }

    /// What to make for a part, given the part after it.
    fn kind_before(&self, next: Option<&String>) -> Option<Value> {
        let leaf = self.create?;
        Some(match next {
            Some(next) if is_list_match(next) || index_of(next).is_some() => Value::list(),
            None => leaf.make(),
            Some(next) if next.is_empty() => leaf.make(),
            Some(_) => Value::map(),
        })
    }

    fn below(
        &mut self,
        value: &mut Value,
        segment: Segment,
        rest: &[String],
        is_new: bool,
    ) -> Result<()> {
        let inner = match (&segment, value) {
            (Segment::Key(key), Value::Map(map)) => map.get_mut(key),
            (Segment::Index(at), Value::List(list)) => list.make_mut().get_mut(*at),
            _ => None,
        };
        let Some(inner) = inner else { return Ok(()) };
        self.path.push(segment);
        let outcome = self.enter(inner, rest, is_new);
        self.path.pop();
        outcome
    }

    fn element(&mut self, value: &mut Value, at: usize, part: &str, rest: &[String]) -> Result<()> {
        let mut length = elements(value)?.len();
        let mut is_new = false;
        if length == at
            && let (Some(made), Value::List(list)) = (self.kind_before(rest.first()), &mut *value)
        {
            list.make_mut().push(made);
            length += 1;
            is_new = true;
        }
        if length <= at {
            return Err(Error::new(format!(
                "index {part} specified but only {length} elements found"
            )));
        }
        self.below(value, Segment::Index(at), rest, is_new)
    }

    fn matching(&mut self, value: &mut Value, part: &str, rest: &[String]) -> Result<()> {
        let (key, pattern) = list_match(part)?;
        let regex = Regex::new(pattern).map_err(|error| Error::new(error.to_string()))?;
        let fits = |element: &Value| match element {
            Value::Map(map) if !key.is_empty() => map.get(key).is_some_and(|value| match value {
                Value::List(_) | Value::Map(_) => regex.is_match(kiln_yaml::emit(value).trim()),
                Value::Null => regex.is_match("null"),
                scalar => regex.is_match(&scalar_text(scalar)),
            }),
            element if key.is_empty() => regex.is_match(&scalar_text(element)),
            _ => false,
        };
        let before = self.found.len();
        let hits: Vec<usize> = elements(value)?
            .iter()
            .enumerate()
            .filter(|(_, element)| fits(element))
            .map(|(at, _)| at)
            .collect();
        // A match of a plain element ends the path.
        let rest = if key.is_empty() { &[] } else { rest };
        for at in hits {
            self.below(value, Segment::Index(at), rest, false)?;
        }
        if self.found.len() > before || self.create.is_none() {
            return Ok(());
        }
        let scalar = crate::model::output::resolve_plain(pattern);
        let made = if key.is_empty() {
            scalar
        } else {
            let mut map = kiln_value::Map::new();
            map.insert(key, scalar);
            Value::Map(map)
        };
        let at = elements(value)?.len();
        if !fits(&made) {
            return Err(Error::new(format!("cannot create an element that matches {part}"))
                .hint("a pattern can be created only when it matches its own text"));
        }
        if let Value::List(list) = value {
            list.make_mut().push(made);
        }
        self.below(value, Segment::Index(at), rest, false)
    }

    fn field(&mut self, value: &mut Value, part: &str, rest: &[String]) -> Result<()> {
        if value.is_null() && self.create.is_some() {
            *value = Value::map();
            let before = std::mem::replace(&mut self.below_null, true);
            let outcome = self.field(value, part, rest);
            self.below_null = before;
            return outcome;
        }
        let map = match value {
            Value::Map(map) => map,
            Value::Null => return Ok(()),
            other => return Err(wrong_node_kind("MappingNode", other)),
        };
        let mut is_new = false;
        if !map.contains_key(part) {
            let Some(made) = self.kind_before(rest.first()) else { return Ok(()) };
            map.insert(part, made);
            is_new = rest.is_empty();
        }
        if let Some(text @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) = map.get(part)
            && !rest.is_empty()
        {
            return self.inside_text(&scalar_text(text), rest);
        }
        self.below(value, Segment::from(part), rest, is_new)
    }

    /// Looks into text that is YAML itself, in a copy.
    fn inside_text(&mut self, text: &str, rest: &[String]) -> Result<()> {
        let mut copy = crate::model::output::parse_text(text)?;
        let found = find_all(&mut copy, rest, self.create)?;
        self.found.extend(found.into_iter().map(|found| FoundField { in_copy: true, ..found }));
        Ok(())
    }
}

fn elements(value: &Value) -> Result<&[Value]> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(wrong_node_kind("SequenceNode", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn brackets_keep_parts_together() {
        let cases: [(&str, &[&str]); 6] = [
            ("a.b.c", &["a", "b", "c"]),
            ("a.[b.c/d].e", &["a", "b.c/d", "e"]),
            ("a.[n=x.y].b", &["a", "[n=x.y]", "b"]),
            (r"a.b\.c", &["a", "b.c"]),
            ("a.[n=x]", &["a", "[n=x]"]),
            ("a.*.0", &["a", "*", "0"]),
        ];
        for (path, parts) in cases {
            assert_eq!(split(path), parts, "{path}");
        }
        assert_eq!(split_with_indices("a.ports[0].b"), ["a", "ports", "0", "b"]);
    }

    #[test]
    fn places_are_found_and_made() {
        let paths = |value: &mut Value, path: &str, create| -> Vec<String> {
            let found = find_all(value, &split(path), create).unwrap();
            found.iter().map(|found| found.path.to_string()).collect()
        };
        let mut object = value!({"l": [{"n": "a"}, {"n": "ab"}, {"n": "c"}], "s": ["x", "y"]});
        assert_eq!(paths(&mut object, "l.[n=a].n", None), ["l[0].n", "l[1].n"]);
        assert_eq!(paths(&mut object, "l.*.n", None), ["l[0].n", "l[1].n", "l[2].n"]);
        assert_eq!(paths(&mut object, "s.[=y]", None), ["s[1]"]);
        assert!(find_all(&mut object, &split("l.x"), None).is_err());
        assert_eq!(paths(&mut object, "l.[n=z].v", Some(Leaf::Scalar)), ["l[3].v"]);
        assert_eq!(object.get("l").unwrap().index(3), Some(&value!({"n": "z", "v": null})));
        assert_eq!(paths(&mut object, "new.0.k", Some(Leaf::Scalar)), ["new[0].k"]);
        let error = find_all(&mut object, &split("l.7"), Some(Leaf::Scalar)).unwrap_err();
        assert_eq!(error.message(), "index 7 specified but only 4 elements found");
    }
}
