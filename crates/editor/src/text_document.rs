//! A text with positions as editors count them: lines from 0, columns in UTF-16 units.

use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::Source;
use serde_json::{Value as Json, json};

/// Texts larger than this are stored and not looked at: an editor asks at every key.
const LARGEST: usize = 4 << 20;

/// An open document.
#[derive(Debug)]
pub(crate) struct TextDocument {
    pub(crate) uri: String,
    /// The path of its file, or the URI where it has none.
    pub(crate) path: String,
    pub(crate) source: Arc<Source>,
    line_starts: Vec<usize>,
}

impl TextDocument {
    pub(crate) fn new(uri: &str, text: &str) -> Self {
        let path = path_of(uri);
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let source = Arc::new(Source::new(path.clone(), text));
        TextDocument { uri: uri.to_owned(), path, source, line_starts }
    }

    pub(crate) fn text(&self) -> &str {
        self.source.text()
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.text().len() > LARGEST
    }
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The directory of its file.
    pub(crate) fn directory(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// The byte of a position; one past the end of a line is its end.
    pub(crate) fn offset(&self, position: &Json) -> usize {
        let number = |key: &str| {
            let number = position.get(key).and_then(Json::as_u64).unwrap_or(0);
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let text = self.text();
        let Some(&start) = self.line_starts.get(number("line")) else { return text.len() };
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let mut units = number("character");
        for (at, c) in text[start..end].char_indices() {
            if units < c.len_utf16() {
                return start + at;
            }
            units -= c.len_utf16();
        }
        end
    }

    /// The byte of a place that is counted in UTF-16 units from the beginning of the text.
    pub(crate) fn offset_of_units(&self, mut units: usize) -> usize {
        for (at, c) in self.text().char_indices() {
            if units < c.len_utf16() {
                return at;
            }
            units -= c.len_utf16();
        }
        self.text().len()
    }

    pub(crate) fn position(&self, offset: usize) -> Json {
        let text = self.text();
        let offset = text.floor_char_boundary(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.line_starts.get(line).copied().unwrap_or(0);
        let column: usize = text[start..offset].chars().map(char::len_utf16).sum();
        json!({"line": line, "character": column})
    }

    pub(crate) fn range(&self, span: &Range<usize>) -> Json {
        json!({"start": self.position(span.start), "end": self.position(span.end.max(span.start))})
    }

    /// The bytes of a range.
    pub(crate) fn span(&self, range: &Json) -> Range<usize> {
        let at = |key: &str| range.get(key).map_or(0, |position| self.offset(position));
        at("start")..at("end")
    }

    /// The YAML document around a byte: what is between two lines `---`.
    pub(crate) fn part_around(&self, offset: usize) -> Range<usize> {
        let text = self.text();
        let mut part = 0..text.len();
        for &start in &self.line_starts {
            let line = text[start..].lines().next().unwrap_or_default();
            if line.trim_end() != "---" && !line.starts_with("--- ") {
                continue;
            }
            if start > offset {
                part.end = start;
                break;
            }
            part.start = (start + line.len() + 1).min(text.len());
        }
        part.start = part.start.min(part.end);
        part
    }

    /// All YAML documents.
    pub(crate) fn parts(&self) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut at = 0;
        loop {
            let part = self.part_around(at);
            let end = part.end;
            parts.push(part);
            if end >= self.text().len() {
                return parts;
            }
            // Into the part behind the line that ended this one.
            let line = self.text()[end..].find('\n').map_or(self.text().len(), |n| end + n + 1);
            if line >= self.text().len() {
                return parts;
            }
            at = line;
        }
    }
}

/// The path in a URI of a file.
pub(crate) fn path_of(uri: &str) -> String {
    let Some(path) = uri.strip_prefix("file://") else { return uri.to_owned() };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let ahead = rest.clone();
        let (high, low) = (hex(rest.next()), hex(rest.next()));
        match (high, low) {
            (Some(high), Some(low)) => bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?')),
            _ => {
                bytes.push(byte);
                rest = ahead;
            }
        }
    }
    let path = String::from_utf8_lossy(&bytes).into_owned();
    // file:///C:/x
    match path.as_bytes() {
        [b'/', drive, b':', ..] if drive.is_ascii_alphabetic() => path[1..].to_owned(),
        _ => path,
    }
}

/// The URI of a file.
pub(crate) fn uri_of(path: &str) -> String {
    let mut uri = String::from("file://");
    if !path.starts_with('/') {
        uri.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b':' => {
                uri.push(char::from(byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_utf16_units() {
        let document = TextDocument::new("file:///a%20b/ö.yaml", "a: 😀x\nb: é\n");
        assert_eq!((document.path.as_str(), document.file_name()), ("/a b/ö.yaml", "ö.yaml"));
        let x = document.text().find('x').unwrap();
        assert_eq!(document.position(x), json!({"line": 0, "character": 5}));
        assert_eq!(document.offset(&json!({"line": 0, "character": 5})), x);
        assert_eq!(document.offset(&json!({"line": 0, "character": 99})), x + 1);
        assert_eq!(document.offset(&json!({"line": 9, "character": 0})), document.text().len());
        assert_eq!(path_of(&uri_of("/a b/ö.yaml")), "/a b/ö.yaml");
        assert_eq!(path_of("file:///a%zz"), "/a%zz");
    }

    #[test]
    fn documents_lie_between_markers() {
        let text = "---\na: 1\n---\nb: 2\n--- # c\nc: 3\n";
        let document = TextDocument::new("x", text);
        let parts: Vec<&str> = document.parts().into_iter().map(|part| &text[part]).collect();
        assert_eq!(parts, ["a: 1\n", "b: 2\n", "c: 3\n"]);
        assert_eq!(&text[document.part_around(text.find("b:").unwrap())], "b: 2\n");
        for text in ["", "---", "---\n", "a\n---"] {
            assert!(!TextDocument::new("x", text).parts().is_empty());
        }
    }
}
