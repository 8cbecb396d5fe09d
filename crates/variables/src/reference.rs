//! References `$(…)` from one place of a document to another.
//!
//! They are resolved against the document itself, before its variables and without any context, so
//! they are resolved once, when a document is compiled. What they bring in is text of the document
//! and may hold variables.

use std::collections::HashMap;
use std::ops::Range;

use kiln_text::path;
use kiln_value::{Key, Path, Segment, Value};
use memchr::{memchr, memchr2, memmem, memrchr};

/// A reference that leads nowhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unresolved {
    /// The place of the text that holds the reference.
    pub(crate) path: Path,
    /// Whether that text is a key of the map at `path`.
    pub(crate) in_key: bool,
    /// The reference inside that text.
    pub(crate) span: Range<usize>,
    /// The reference as written.
    pub(crate) reference: String,
    /// What is wrong with it.
    pub(crate) reason: Reason,
}

/// Why a reference cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Missing,
    Empty,
    NotText(&'static str),
}

/// Whether a text has to be looked at at all.
fn mentions_reference(text: &str) -> bool {
    memmem::find(text.as_bytes(), b"$(").is_some()
}

/// A document with its references resolved; the same document when there are none. `base` is the
/// place of the document in a larger one, which paths of references count from.
pub(crate) fn resolve(document: &Value, base: &Path) -> Result<Value, Unresolved> {
    let mut targets = Targets::default();
    targets.want(document, &mut base.clone());
    if !targets.0.is_empty() {
        targets.find(document, &mut base.clone());
    }
    let mut walk = Walk { targets, path: base.clone() };
    Ok(walk.value(document)?.unwrap_or_else(|| document.clone()))
}

struct Walk<'d> {
    targets: Targets<'d>,
    path: Path,
}

impl Walk<'_> {
    /// The value with its references resolved, or `None` when nothing changes.
    fn value(&mut self, value: &Value) -> Result<Option<Value>, Unresolved> {
        match value {
            Value::String(text) => Ok(self.text(text, false)?.map(Value::from)),
            Value::List(list) => {
                let mut changed: Option<Vec<Value>> = None;
                for (at, element) in list.iter().enumerate() {
                    self.path.push(at);
                    if let Some(resolved) = self.value(element)? {
                        changed.get_or_insert_with(|| list.to_vec())[at] = resolved;
                    }
                    self.path.pop();
                }
                Ok(changed.map(|elements| Value::List(elements.into())))
            }
            Value::Map(map) => {
                let mut changed: Option<Vec<(Key, Value)>> = None;
                for (at, (key, element)) in map.iter().enumerate() {
                    let renamed = self.text(key, true)?;
                    self.path.push(key);
                    let resolved = self.value(element)?;
                    self.path.pop();
                    if renamed.is_none() && resolved.is_none() {
                        continue;
                    }
                    let entry = &mut changed.get_or_insert_with(|| map.as_slice().to_vec())[at];
                    if let Some(renamed) = renamed {
                        entry.0 = Key::from(renamed);
                    }
                    if let Some(resolved) = resolved {
                        entry.1 = resolved;
                    }
                }
                Ok(changed.map(|entries| Value::Map(entries.into_iter().collect())))
            }
            _ => Ok(None),
        }
    }

    /// The text with its references resolved, or `None` when nothing changes.
    fn text(&self, text: &str, in_key: bool) -> Result<Option<String>, Unresolved> {
        if !mentions_reference(text) {
            return Ok(None);
        }
        let mut resolved = String::with_capacity(text.len());
        let mut done = 0;
        for span in references(text) {
            resolved.push_str(&text[done..span.start]);
            let reference = &text[span.clone()];
            match self.look_up(reference) {
                Ok(found) => resolved.push_str(&found),
                Err(reason) => {
                    let (path, reference) = (self.path.clone(), reference.to_owned());
                    return Err(Unresolved { path, in_key, span, reference, reason });
                }
            }
            done = span.end;
        }
        resolved.push_str(&text[done..]);
        let plain = unescape(&resolved);
        Ok((plain != text).then_some(plain))
    }

    fn look_up(&self, reference: &str) -> Result<String, Reason> {
        let (operator, place) = read(reference, &self.path).ok_or(Reason::Empty)?;
        match self.targets.0.get(&place).copied().flatten().ok_or(Reason::Missing)? {
            ReferenceTarget::Text(text) => Ok(format!("{operator}{text}")),
            ReferenceTarget::Number(number) if !operator.is_empty() => {
                Ok(format!("{operator}{number:.6}"))
            }
            ReferenceTarget::Number(_) => Err(Reason::NotText("number")),
            ReferenceTarget::Null => Err(Reason::Missing),
            ReferenceTarget::Bool => Err(Reason::NotText("boolean")),
        }
    }
}

/// The operator of a reference, if it has one, and the absolute path that it names from a place.
fn read<'r>(reference: &'r str, from: &Path) -> Option<(&'r str, String)> {
    let inside = reference.trim_matches(['$', '(', ')']);
    let operator = ["<=", ">=", "<", ">", "!"].into_iter().find(|op| inside.starts_with(op));
    // Kyverno: a single character is a path, never an operator.
    let operator = operator.filter(|_| inside.len() > 1).unwrap_or_default();
    let (operator, path) = inside.split_at(operator.len());
    if path.is_empty() {
        return None;
    }
    let absolute = path.starts_with('/');
    Some((
        operator,
        if absolute { path.to_owned() } else { clean(&format!("{}/{path}", slashed(from))) },
    ))
}

/// The references of a text: `$(`, any character, then everything that is not space up to the last `)`.
fn references(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(span) = next_reference(text, from) {
        from = span.end;
        found.push(span);
    }
    found
}

fn next_reference(text: &str, from: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    // As with variables: one byte before it must be unclaimed, except at the beginning of the text.
    let mut start = if from == 0 { 0 } else { from + 1 };
    while let Some(found) = bytes.get(start..).and_then(|rest| memmem::find(rest, b"$(")) {
        let at = start + found;
        if at > 0 && bytes[at - 1] == b'\\' {
            start = at + 1;
            continue;
        }
        match close(text, at + 2, |rest| {
            let stop = memchr(b' ', rest).unwrap_or(rest.len());
            memrchr(b')', &rest[..stop]).ok_or(stop)
        }) {
            Ok(end) => return Some(at..end),
            Err(resume) => start = resume.max(at + 1),
        }
    }
    None
}

/// Turns `\$(…)` into `$(…)`.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let (mut copied, mut start) = (0, 0);
    while let Some(found) = memmem::find(&text.as_bytes()[start..], br"\$(") {
        let at = start + found;
        match close(text, at + 3, |rest| match memchr2(b' ', b')', rest) {
            Some(at) if rest[at] == b')' => Ok(at),
            stop => Err(stop.unwrap_or(rest.len())),
        }) {
            Ok(end) => {
                plain.push_str(&text[copied..at]);
                copied = at + 1;
                start = end;
            }
            Err(resume) => start = resume.max(at + 3),
        }
    }
    plain.push_str(&text[copied..]);
    plain
}

/// The end of a reference whose content begins here: one character of any kind (but no line break),
/// then no space up to the `)` that `find` picks. When `find` has only a space or the end to offer, the
/// place from which on another reference may fare better, so that text full of openings is read once.
fn close(
    text: &str,
    content: usize,
    find: impl FnOnce(&[u8]) -> Result<usize, usize>,
) -> Result<usize, usize> {
    let first = text[content..].chars().next().filter(|c| *c != '\n').ok_or(content)?;
    let rest = content + first.len_utf8();
    match find(&text.as_bytes()[rest..]) {
        Ok(at) => Ok(rest + at + 1),
        // The space may be the one character of any kind of a reference that opens right before it.
        Err(stop) => Err((rest + stop).saturating_sub(3)),
    }
}

/// The places that the references of a document lead to, and the values there.
#[derive(Default)]
struct Targets<'d>(HashMap<String, Option<ReferenceTarget<'d>>>);

#[derive(Clone, Copy)]
enum ReferenceTarget<'d> {
    Text(&'d str),
    Number(f64),
    Bool,
    Null,
}

impl<'d> Targets<'d> {
    /// Collects the places that are asked for.
    fn want(&mut self, value: &Value, path: &mut Path) {
        let mut want_from = |text: &str, path: &Path| {
            if mentions_reference(text) {
                let named = references(text).into_iter().filter_map(|span| read(&text[span], path));
                self.0.extend(named.map(|(_, place)| (place, None)));
            }
        };
        match value {
            Value::String(text) => want_from(text, path),
            Value::List(list) => each(list.iter().enumerate(), path, &mut |element, path| {
                self.want(element, path);
            }),
            Value::Map(map) => {
                map.keys().for_each(|key| want_from(key, path));
                each(map, path, &mut |element, path| self.want(element, path));
            }
            _ => {}
        }
    }

    /// Finds what is at those places. The last one wins, as in Kyverno; keys count as lying at the place
    /// of their map.
    fn find(&mut self, value: &'d Value, path: &mut Path) {
        match value {
            Value::List(list) => {
                each(list.iter().enumerate(), path, &mut |element, path| self.find(element, path));
            }
            Value::Map(map) => {
                if let Some((last, _)) = map.iter().next_back() {
                    self.found(path, ReferenceTarget::Text(last));
                }
                each(map, path, &mut |element, path| self.find(element, path));
            }
            Value::String(text) => self.found(path, ReferenceTarget::Text(text)),
            Value::Number(number) => self.found(path, ReferenceTarget::Number(number.as_f64())),
            Value::Bool(_) => self.found(path, ReferenceTarget::Bool),
            Value::Null => self.found(path, ReferenceTarget::Null),
        }
    }

    fn found(&mut self, path: &Path, target: ReferenceTarget<'d>) {
        if let Some(wanted) = self.0.get_mut(&unanchored(path)) {
            *wanted = Some(target);
        }
    }
}

/// Visits what lies directly below a value, with its place.
fn each<'v, S: Into<Segment>>(
    below: impl IntoIterator<Item = (S, &'v Value)>,
    path: &mut Path,
    visit: &mut dyn FnMut(&'v Value, &mut Path),
) {
    for (step, value) in below {
        path.push(step);
        visit(value, path);
        path.pop();
    }
}

/// A path with slashes, as references write it; a slash inside a key has a backslash before it.
fn slashed(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        text.push('/');
        match segment {
            Segment::Key(key) => text.push_str(&key.replace('/', r"\/")),
            Segment::Index(index) => text.push_str(&index.to_string()),
        }
    }
    text
}

/// A path with slashes in which anchored keys lost their anchors: `(spec)` is `spec`.
fn unanchored(path: &Path) -> String {
    let text = slashed(path);
    let parts: Vec<&str> = text.split('/').map(|part| anchored(part).unwrap_or(part)).collect();
    clean(&parts.join("/"))
}

fn anchored(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(['+', '<', '=', 'X', '^']).unwrap_or(key);
    rest.strip_prefix('(')?.strip_suffix(')').filter(|inner| !inner.is_empty())
}

/// Resolves `.`, `..` and doubled slashes of an absolute path. The root of a document has no slash.
fn clean(path: &str) -> String {
    let cleaned = path::clean(&format!("/{path}"));
    if cleaned == "/" { String::new() } else { cleaned }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn references_reach_to_the_last_parenthesis_before_a_space() {
        let cases: [(&str, &[&str]); 8] = [
            ("$(a)", &["$(a)"]),
            ("$()", &[]),
            ("x-$(a)-y", &["$(a)"]),
            ("$(a) $(b)", &["$(a)", "$(b)"]),
            ("$(a)/$(b)", &["$(a)/$(b)"]),
            ("$( a)", &["$( a)"]),
            (r"\$(a)", &[]),
            ("ö$(a)", &["$(a)"]),
        ];
        for (text, wanted) in cases {
            let found: Vec<_> = references(text).into_iter().map(|span| &text[span]).collect();
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn relative_absolute_and_anchored_paths_lead_somewhere() {
        let document = value!({
            "(spec)": {"limit": 5, "name": "n", "a/b": "slash"},
            "list": ["x", {"y": "$(../../0)", "z": "$(/spec/name)"}],
            "above": "$(<=./../spec/limit)", "slash": r"$(/spec/a\/b)", "key": "$(/only)",
            "only": {"child": 1}, "kept": r"\$(HOME) and \$(x)", "k$(/list/0)": 1,
        });
        let resolved = resolve(&document, &Path::root()).unwrap();
        let wanted = value!({
            "(spec)": {"limit": 5, "name": "n", "a/b": "slash"},
            "list": ["x", {"y": "x", "z": "n"}],
            "above": "<=5.000000", "slash": "slash", "key": "child",
            "only": {"child": 1}, "kept": "$(HOME) and $(x)", "kx": 1,
        });
        assert_eq!(resolved, wanted);
        assert!(resolved.get("only").unwrap().same(document.get("only").unwrap()));
    }

    #[test]
    fn what_cannot_be_resolved_says_where_and_why() {
        let cases = [
            (value!({"a": ["$(HOME)"]}), "a[0]", Reason::Missing),
            (value!({"a": "$(/b)", "b": 5}), "a", Reason::NotText("number")),
            (value!({"a": "$(/b)", "b": true}), "a", Reason::NotText("boolean")),
            (value!({"a": "$(/b)", "b": null}), "a", Reason::Missing),
            (value!({"a": "$())"}), "a", Reason::Empty),
            (value!({"a": {"k$(x)": 1}}), "a", Reason::Missing),
        ];
        for (document, place, reason) in cases {
            let error = resolve(&document, &Path::root()).unwrap_err();
            assert_eq!((error.path.to_string().as_str(), error.reason), (place, reason));
        }
    }

    #[test]
    fn text_full_of_openings_is_read_once() {
        // A quadratic scan of these would take minutes.
        for piece in ["$(", r"\$(", "$( ", "$(a ", "$(\n"] {
            let document = value!({"a": piece.repeat(2_000_000 / piece.len())});
            let resolved = resolve(&document, &Path::root()).unwrap();
            assert!(resolved.same(&document));
        }
    }

    #[test]
    fn a_document_inside_another_one_counts_paths_from_the_outer_root() {
        let part = value!({"a": "$(/mutate/patch/b)", "b": "x"});
        let base: Path = ["mutate", "patch"].into_iter().collect();
        assert_eq!(resolve(&part, &base).unwrap().get("a"), Some(&value!("x")));
    }
}
