//! The keys and values of YAML by its lines and indentation.
//!
//! A text is rarely YAML while it is being written. This reads it line by line as a person does, so that a place has a
//! path even if the line below is half a word. It knows block style, flow style, block scalars, quotes and comments; what
//! it gets wrong costs an answer, never a diagnostic.

use std::ops::Range;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutlineStep {
    Key(String),
    Index(usize),
}

impl OutlineStep {
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            OutlineStep::Key(key) => Some(key),
            OutlineStep::Index(_) => None,
        }
    }
}

/// A key with its value, an element, or a word that may become either.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// With its own key or index at the end; for half a word, the path of what is around it.
    pub(crate) path: Vec<OutlineStep>,
    /// Where the key is; empty for elements.
    pub(crate) key: Range<usize>,
    /// Where the value is, as far as it is a scalar or in flow style.
    pub(crate) value: Range<usize>,
    /// A word in a map that has no colon yet.
    pub(crate) is_half: bool,
}

impl Entry {
    pub(crate) fn has_key(&self) -> bool {
        !self.key.is_empty()
    }
}

/// Deeper than anybody writes.
const DEEPEST: usize = 64;

/// Something that is open: what stands further to the right belongs to it.
struct Open {
    column: usize,
    step: OutlineStep,
}

struct OutlineScan<'t> {
    text: &'t str,
    open: Vec<Open>,
    entries: Vec<Entry>,
}

/// The entries of one YAML document in this part of a text, in order.
pub(crate) fn outline(text: &str, part: Range<usize>) -> Vec<Entry> {
    let mut scan = OutlineScan { text: &text[..part.end], open: Vec::new(), entries: Vec::new() };
    let mut at = part.start;
    while at < part.end {
        let end = scan.line_end(at);
        at = scan.line(at, end).max(end) + 1;
    }
    scan.entries
}

impl OutlineScan<'_> {
    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |n| at + n)
    }

    /// Reads a line; the end of what belongs to it.
    fn line(&mut self, start: usize, end: usize) -> usize {
        let line = &self.text[start..end];
        let trimmed = line.trim_start_matches(' ');
        if trimmed.trim().is_empty() || trimmed.starts_with('#') {
            return end;
        }
        let mut at = start + line.len() - trimmed.len();
        let mut is_element = false;
        // The dashes of lists within lists.
        while self.text[at..end].starts_with("- ") || &self.text[at..end] == "-" {
            self.element(at - start);
            is_element = true;
            let rest = &self.text[at + 1..end];
            at += 1 + rest.len() - rest.trim_start_matches(' ').len();
        }
        if self.open.len() > DEEPEST {
            return end;
        }
        let column = at - start;
        match key_end(&self.text[at..end]) {
            Some(length) => self.entry(start, at, at + length, end),
            None if is_element => {
                let (span, ends) = self.value(at, end, column);
                let entry = Entry { path: self.path(), key: at..at, value: span, is_half: false };
                self.push(entry, at, ends);
                ends
            }
            None => {
                self.close(column);
                let half = Entry {
                    path: self.path(),
                    key: at..at,
                    value: at..at + self.text[at..end].trim_end().len(),
                    is_half: true,
                };
                self.entries.push(half);
                end
            }
        }
    }

    /// `key: value`, from `at`.
    fn entry(&mut self, start: usize, at: usize, key_end: usize, end: usize) -> usize {
        let column = at - start;
        self.close(column);
        let key = unquoted(&self.text[at..key_end]).to_owned();
        self.open.push(Open { column, step: OutlineStep::Key(key) });
        let from = key_end + self.text[key_end..end].find(':').map_or(0, |colon| colon + 1);
        let rest = &self.text[from..end];
        let from = from + rest.len() - rest.trim_start_matches(' ').len();
        let (value, ends) = self.value(from, end, column);
        let entry = Entry { path: self.path(), key: at..key_end, value, is_half: false };
        let begins = entry.value.start;
        self.push(entry, begins, ends);
        ends
    }

    /// Keeps an entry, and those inside of it if it is in flow style.
    fn push(&mut self, entry: Entry, begins: usize, ends: usize) {
        let (path, is_flow) = (entry.path.clone(), self.text[begins..].starts_with(['{', '[']));
        self.entries.push(entry);
        if is_flow {
            Flow { text: &self.text[..ends], at: begins, entries: &mut self.entries }
                .node(&path, path.len());
        }
    }

    /// Where a value is that begins here, and where what belongs to it ends.
    fn value(&self, from: usize, end: usize, column: usize) -> (Range<usize>, usize) {
        let text = &self.text[from..end];
        match text.chars().next() {
            Some('|' | '>') => {
                let ends = self.block_end(end, column);
                ((end + 1).min(ends)..ends, ends)
            }
            Some('{' | '[') => {
                let ends = flow_end(self.text, from);
                (from..ends, ends.max(end))
            }
            Some(quote @ ('"' | '\'')) => {
                let ends = quote_end(self.text, from, quote);
                (from..ends, ends.max(end))
            }
            _ => {
                let comment = if text.starts_with('#') { Some(0) } else { text.find(" #") };
                let length = text[..comment.unwrap_or(text.len())].trim_end().len();
                (from..from + length, end)
            }
        }
    }

    /// The end of the lines below that stand further to the right than a column.
    fn block_end(&self, end: usize, column: usize) -> usize {
        let mut last = end;
        let mut at = end + 1;
        while at < self.text.len() {
            let line_end = self.line_end(at);
            let line = &self.text[at..line_end];
            let indent = line.len() - line.trim_start_matches(' ').len();
            if !line.trim().is_empty() && indent <= column {
                break;
            }
            last = line_end;
            at = line_end + 1;
        }
        last
    }

    /// A dash at this column.
    fn element(&mut self, column: usize) {
        // A list may stand in the column of its key.
        while let Some(last) = self.open.last()
            && (last.column > column
                || last.column == column && matches!(last.step, OutlineStep::Index(_)))
        {
            let last = self.open.pop();
            if let Some(Open { column: at, step: OutlineStep::Index(index) }) = last
                && at == column
            {
                self.open.push(Open { column, step: OutlineStep::Index(index + 1) });
                return;
            }
        }
        self.open.push(Open { column, step: OutlineStep::Index(0) });
    }

    /// Ends what stands at this column or further to the right.
    fn close(&mut self, column: usize) {
        while self.open.last().is_some_and(|last| last.column >= column) {
            self.open.pop();
        }
    }

    fn path(&self) -> Vec<OutlineStep> {
        self.open.iter().map(|open| open.step.clone()).collect()
    }
}

/// The length of the key at the beginning of a line; none if it has no colon.
fn key_end(line: &str) -> Option<usize> {
    match line.chars().next()? {
        quote @ ('"' | '\'') => {
            let end = 1 + line[1..].find(quote)? + 1;
            line[end..].trim_start().starts_with(':').then_some(end)
        }
        '{' | '[' | '#' | '|' | '>' | '&' | '*' | '!' => None,
        _ => {
            let colon = line.match_indices(':').map(|(at, _)| at).find(|at| {
                let rest = &line[at + 1..];
                rest.is_empty() || rest.starts_with([' ', '\t', '\r'])
            })?;
            let comment = line.find(" #").unwrap_or(line.len());
            (colon > 0 && colon < comment).then(|| line[..colon].trim_end().len())
        }
    }
}

pub(crate) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner);
        }
    }
    text
}

/// Behind the closing quote; the end of the line without one.
fn quote_end(text: &str, from: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text[from..].char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return from + at + 1,
            _ => {}
        }
    }
    text[from..].find('\n').map_or(text.len(), |at| from + at)
}

/// Behind the closing bracket; the end of the text without one.
fn flow_end(text: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = from;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            '"' | '\'' => {
                at = quote_end(text, at, c);
                continue;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    text.len()
}

/// Reads flow style.
struct Flow<'t, 'e> {
    text: &'t str,
    at: usize,
    entries: &'e mut Vec<Entry>,
}

impl Flow<'_, '_> {
    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn node(&mut self, path: &[OutlineStep], depth: usize) {
        if depth > DEEPEST {
            self.at = self.text.len();
            return;
        }
        match self.peek() {
            Some('{') => self.map(path, depth),
            Some('[') => self.list(path, depth),
            _ => self.at += self.scalar(),
        }
    }

    /// The length of a scalar in flow style.
    fn scalar(&self) -> usize {
        match self.peek() {
            Some(quote @ ('"' | '\'')) => quote_end(self.text, self.at, quote) - self.at,
            _ => {
                let rest = &self.text[self.at..];
                let colon = rest.find(": ").unwrap_or(rest.len());
                rest.find([',', '}', ']', '{', '[', '\n']).unwrap_or(rest.len()).min(colon)
            }
        }
    }

    fn map(&mut self, path: &[OutlineStep], depth: usize) {
        self.at += 1;
        loop {
            self.skip_space();
            match self.peek() {
                None => return,
                Some('}') => {
                    self.at += 1;
                    return;
                }
                Some(',') => {
                    self.at += 1;
                    continue;
                }
                Some(_) => {}
            }
            let from = self.at;
            let length = self.scalar();
            let written = self.text[from..from + length].trim_end();
            let key = from..from + written.len();
            self.at += length.max(usize::from(length == 0));
            if !self.text[self.at..].trim_start().starts_with(':') {
                let value = key;
                let is_half = !written.is_empty();
                let path = path.to_vec();
                self.entries.push(Entry { path, key: from..from, value, is_half });
                continue;
            }
            self.at += self.text[self.at..].find(':').map_or(0, |colon| colon + 1);
            self.skip_space();
            let mut inner = path.to_vec();
            inner.push(OutlineStep::Key(unquoted(written).to_owned()));
            self.inner(&inner, key, depth);
        }
    }

    fn list(&mut self, path: &[OutlineStep], depth: usize) {
        self.at += 1;
        for index in 0.. {
            self.skip_space();
            match self.peek() {
                None => return,
                Some(']') => {
                    self.at += 1;
                    return;
                }
                Some(_) => {}
            }
            let mut inner = path.to_vec();
            inner.push(OutlineStep::Index(index));
            let at = self.at;
            self.inner(&inner, at..at, depth);
            self.skip_space();
            if self.peek() == Some(',') {
                self.at += 1;
            } else if self.at == at {
                // Nothing that makes sense: go on behind it.
                self.at += self.peek().map_or(0, char::len_utf8);
            }
        }
    }

    /// A value in a map or a list.
    fn inner(&mut self, path: &[OutlineStep], key: Range<usize>, depth: usize) {
        let from = self.at;
        let number = self.entries.len();
        self.entries.push(Entry { path: path.to_vec(), key, value: from..from, is_half: false });
        self.node(path, depth + 1);
        let value = from..from + self.text[from..self.at].trim_end().len();
        self.entries[number].value = value;
    }
}

/// The innermost entry whose key or value is at a byte; the end of a word counts as part of it.
pub(crate) fn entry_at(entries: &[Entry], at: usize) -> Option<&Entry> {
    let touches = |span: &Range<usize>| span.start <= at && at <= span.end && !span.is_empty();
    entries.iter().rev().find(|entry| touches(&entry.key) || touches(&entry.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        outline(text, 0..text.len())
            .iter()
            .map(|entry| {
                let path: Vec<String> = entry
                    .path
                    .iter()
                    .map(|step| match step {
                        OutlineStep::Key(key) => key.clone(),
                        OutlineStep::Index(index) => index.to_string(),
                    })
                    .collect();
                let half = if entry.is_half { "?" } else { "" };
                format!("{}{half}={}", path.join("."), text[entry.value.clone()].replace('\n', "~"))
            })
            .collect()
    }

    #[test]
    fn keys_and_elements_have_paths() {
        let text = "kind: A # c\nspec:\n  rules:\n  - name: 'x'\n    match:\n      any:\n        - kinds:\n          - Pod\n          - a: b\n  - name: y\n";
        assert_eq!(
            shown(text),
            [
                "kind=A",
                "spec=",
                "spec.rules=",
                "spec.rules.0.name='x'",
                "spec.rules.0.match=",
                "spec.rules.0.match.any=",
                "spec.rules.0.match.any.0.kinds=",
                "spec.rules.0.match.any.0.kinds.0=Pod",
                "spec.rules.0.match.any.0.kinds.1.a=b",
                "spec.rules.1.name=y",
            ]
        );
    }

    #[test]
    fn block_scalars_quotes_and_flow_style_are_values() {
        let text = "a: |\n  x: y\n  z\nb: {c: [1, {d: e}], \"f\": 'g, h'}\ni: \"j\n  k\"\nl: m\n";
        assert_eq!(
            shown(text),
            [
                "a=  x: y~  z",
                "b={c: [1, {d: e}], \"f\": 'g, h'}",
                "b.c=[1, {d: e}]",
                "b.c.0=1",
                "b.c.1={d: e}",
                "b.c.1.d=e",
                "b.f='g, h'",
                "i=\"j~  k\"",
                "l=m",
            ]
        );
    }

    #[test]
    fn half_a_word_belongs_to_what_is_around_it() {
        assert_eq!(shown("spec:\n  ru"), ["spec=", "spec?=ru"]);
        assert_eq!(shown("a:\n- b: 1\n  c"), ["a=", "a.0.b=1", "a.0?=c"]);
        assert_eq!(shown("a: {b: 1, c"), ["a={b: 1, c", "a.b=1", "a?=c"]);
    }

    #[test]
    fn any_text_ends() {
        for text in [
            "{", "[", "[[[", "a: [,,", "- - -", "\"", "a: '", "a: |", ":", "{:", "{,:}", "[}",
            "é: {ö",
        ] {
            shown(text);
            shown(&text.repeat(200));
        }
    }
}
