//! Anchors: marks on the keys of a pattern or a patch.

use std::fmt;

use kiln_value::{Path, Value};

/// A key with a mark, such as `(name)` or `+(name)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<'k> {
    /// What the mark means.
    pub kind: AnchorKind,
    /// The key without the mark.
    pub key: &'k str,
}

/// What the mark on a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnchorKind {
    /// `(k)`: what stands beside it applies only where `k` is there and matches.
    Condition,
    /// `<(k)`: nothing at all applies unless `k` matches.
    Global,
    /// `+(k)`: `k` is added where it is not there yet.
    AddIfNotPresent,
    /// `=(k)`: if `k` is there, it must match.
    Equality,
    /// `X(k)`: `k` must not be there.
    Negation,
    /// `^(k)`: some element of the list `k` must match.
    Existence,
}

impl AnchorKind {
    /// What stands before the parentheses.
    pub fn mark(self) -> &'static str {
        match self {
            AnchorKind::Condition => "",
            AnchorKind::Global => "<",
            AnchorKind::AddIfNotPresent => "+",
            AnchorKind::Equality => "=",
            AnchorKind::Negation => "X",
            AnchorKind::Existence => "^",
        }
    }

    /// Whether it asks something of the object before a patch applies.
    pub fn is_condition(self) -> bool {
        matches!(self, AnchorKind::Condition | AnchorKind::Global)
    }

    /// Whether patches know it. The others are for patterns alone; a patch would write them out.
    pub fn is_for_patches(self) -> bool {
        self.is_condition() || self == AnchorKind::AddIfNotPresent
    }
}

impl<'k> Anchor<'k> {
    /// Reads a key; `None` when it has no mark.
    pub fn parse(key: &'k str) -> Option<Self> {
        let key = key.trim();
        let inner = key.strip_suffix(')')?;
        let (kind, inner) = match inner.as_bytes().first()? {
            b'(' => (AnchorKind::Condition, inner),
            b'<' => (AnchorKind::Global, &inner[1..]),
            b'+' => (AnchorKind::AddIfNotPresent, &inner[1..]),
            b'=' => (AnchorKind::Equality, &inner[1..]),
            b'X' => (AnchorKind::Negation, &inner[1..]),
            b'^' => (AnchorKind::Existence, &inner[1..]),
            _ => return None,
        };
        let key = inner.strip_prefix('(')?;
        (!key.is_empty() && !key.contains('\n')).then_some(Anchor { kind, key })
    }
}

impl fmt::Display for Anchor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind.mark(), self.key)
    }
}

/// Every anchor of a value, with the path to its key.
pub fn anchors_in(value: &Value) -> Vec<(Path, AnchorKind)> {
    fn walk(value: &Value, path: &mut Path, found: &mut Vec<(Path, AnchorKind)>) {
        match value {
            Value::Map(map) => {
                for (key, value) in map {
                    path.push(key);
                    if let Some(anchor) = Anchor::parse(key) {
                        found.push((path.clone(), anchor.kind));
                    }
                    walk(value, path, found);
                    path.pop();
                }
            }
            Value::List(list) => {
                for (at, value) in list.iter().enumerate() {
                    path.push(at);
                    walk(value, path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, &mut Path::root(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn a_mark_is_a_sign_and_parentheses() {
        use AnchorKind::*;
        for (key, kind, inner) in [
            ("(name)", Condition, "name"),
            ("<(image)", Global, "image"),
            ("+(a.b/c)", AddIfNotPresent, "a.b/c"),
            ("=(x)", Equality, "x"),
            ("X(x)", Negation, "x"),
            ("^(x)", Existence, "x"),
            (" (x) ", Condition, "x"),
            ("((x))", Condition, "(x)"),
        ] {
            let anchor = Anchor::parse(key).unwrap();
            assert_eq!((anchor.kind, anchor.key), (kind, inner), "{key}");
            assert_eq!(anchor.to_string(), key.trim());
        }
        for key in ["", "name", "()", "(x", "x)", "+x", "a(x)", "++(x)", "-(x)", "(x)y", "(a\nb)"] {
            assert_eq!(Anchor::parse(key), None, "{key}");
        }
    }

    #[test]
    fn anchors_are_found_with_their_paths() {
        let found = anchors_in(&value!({"spec": {"list": [{"(name)": {"X(y)": 1}}]}}));
        let shown: Vec<_> = found.iter().map(|(path, kind)| format!("{path} {kind:?}")).collect();
        assert_eq!(
            shown,
            ["spec.list[0][\"(name)\"] Condition", "spec.list[0][\"(name)\"][\"X(y)\"] Negation"]
        );
    }
}
