//! JSON pointers (RFC 6901) as patches use them.

use std::fmt;

use kiln_value::{Key, Path, Segment, Str};

use super::{JsonPatchProblem, JsonPatchRules};

/// A JSON pointer: its text and the steps it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: Str,
    steps: Vec<Key>,
}

impl Pointer {
    pub(super) fn parse(text: &str, rules: &JsonPatchRules) -> Result<Self, JsonPatchProblem> {
        let mut parts = text.split('/');
        let before = parts.next().unwrap_or_default();
        if !before.is_empty() && (!rules.lenient_pointers || before.len() == text.len()) {
            return Err(JsonPatchProblem::NoLeadingSlash(text.to_owned()));
        }
        if !rules.lenient_pointers && has_bad_escape(text) {
            return Err(JsonPatchProblem::BadEscape(text.to_owned()));
        }
        Ok(Pointer { text: Str::new(text), steps: parts.map(unescape).collect() })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The steps, unescaped. Which of them are indices depends on the document.
    pub fn steps(&self) -> &[Key] {
        &self.steps
    }

    /// The pointer to this many of the first steps.
    pub(super) fn prefix(&self, steps: usize) -> String {
        self.steps[..steps].iter().collect::<Path>().to_pointer()
    }
}

impl From<&Path> for Pointer {
    fn from(path: &Path) -> Self {
        let steps = path.segments().iter().map(|segment| match segment {
            Segment::Key(key) => key.clone(),
            Segment::Index(index) => Key::from(index.to_string()),
        });
        Pointer { text: Str::from(path.to_pointer()), steps: steps.collect() }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn has_bad_escape(text: &str) -> bool {
    let mut rest = text.split('~').skip(1);
    rest.any(|after| !after.starts_with(['0', '1']))
}

/// One pass from the left, so that `~01` is `~1` and not `/`.
fn unescape(part: &str) -> Key {
    let Some((plain, escaped)) = part.split_once('~') else { return Key::new(part) };
    let mut text = plain.to_owned();
    for piece in escaped.split('~') {
        match piece.as_bytes().first() {
            Some(b'0') => text.extend(['~'].into_iter().chain(piece[1..].chars())),
            Some(b'1') => text.extend(['/'].into_iter().chain(piece[1..].chars())),
            _ => text.extend(['~'].into_iter().chain(piece.chars())),
        }
    }
    Key::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str, rules: JsonPatchRules) -> Option<Vec<String>> {
        let pointer = Pointer::parse(text, &rules).ok()?;
        Some(pointer.steps().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn pointers_are_read_as_each_dialect_does() {
        for (text, strict, lenient) in [
            ("", Some(vec![]), Some(vec![])),
            ("/", Some(vec![""]), Some(vec![""])),
            ("/a/b", Some(vec!["a", "b"]), Some(vec!["a", "b"])),
            ("/a~1b/c~0d", Some(vec!["a/b", "c~d"]), Some(vec!["a/b", "c~d"])),
            ("/~01/~10", Some(vec!["~1", "/0"]), Some(vec!["~1", "/0"])),
            ("/~2/~", None, Some(vec!["~2", "~"])),
            ("/a~~1", None, Some(vec!["a~/"])),
            ("x/a", None, Some(vec!["a"])),
            ("x", None, None),
            ("//", Some(vec!["", ""]), Some(vec!["", ""])),
        ] {
            let owned = |steps: Option<Vec<&str>>| {
                steps.map(|s| s.into_iter().map(str::to_owned).collect())
            };
            assert_eq!(steps(text, JsonPatchRules::rfc6902()), owned(strict), "{text:?} strict");
            assert_eq!(steps(text, JsonPatchRules::kyverno()), owned(lenient), "{text:?} lenient");
        }
    }
}
