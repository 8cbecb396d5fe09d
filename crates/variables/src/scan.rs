//! Finding variables in text, and remembering which text may hold them.
//!
//! A variable is `{{ … }}`: not behind a backslash, without braces inside except groups of one level
//! (`{a: b}`), so the innermost of nested variables are found first. Kyverno finds them with the
//! expression `(^|[^\\])(\{\{(?:\{[^{}]*\}|[^{}])*\}\})`, pass after pass; this scanner finds the same
//! ones in linear time, including that a variable directly behind another one has to wait for the
//! next pass.

use std::ops::Range;

use memchr::memchr2;
use memchr::memmem;

/// Text in which the parts that came from data are marked, so that they are never read as templates.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    text: String,
    /// The text once more with every byte of data replaced by [`DATA`]. Only this is scanned.
    shadow: Vec<u8>,
    /// Where stretches of template begin here, and where they began in the text as written.
    origins: Vec<(usize, usize)>,
    /// Where data stands that is not part of a variable, and the how-manieth it was to be inserted.
    data: Vec<(Range<usize>, usize)>,
    inserted: usize,
}

/// Stands for a byte of data: neither brace nor backslash.
const DATA: u8 = b'.';

impl Marked {
    pub(crate) fn template(text: &str) -> Self {
        Marked {
            text: text.to_owned(),
            shadow: text.as_bytes().to_vec(),
            origins: vec![(0, 0)],
            data: Vec::new(),
            inserted: 0,
        }
    }

    fn with_capacity(bytes: usize) -> Self {
        Marked {
            text: String::with_capacity(bytes),
            shadow: Vec::with_capacity(bytes),
            origins: Vec::new(),
            data: Vec::new(),
            inserted: 0,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shadow(&self) -> &[u8] {
        &self.shadow
    }

    /// The place of a variable found here, in the text as written.
    pub(crate) fn written(&self, span: &Range<usize>) -> Range<usize> {
        self.origin(span.start)..self.origin(span.end - 1) + 1
    }

    fn origin(&self, at: usize) -> usize {
        let after = self.origins.partition_point(|(start, _)| *start <= at);
        self.origins[..after].last().map_or(at, |(start, written)| written + (at - start))
    }

    /// This text with each span replaced by data. Spans are in order and do not overlap.
    pub(crate) fn fill(&self, spans: &[Range<usize>], data: &[impl AsRef<str>]) -> Self {
        let added: usize = data.iter().map(|data| data.as_ref().len()).sum();
        let mut filled = Marked::with_capacity(self.text.len() + added);
        let mut done = 0;
        for (span, data) in spans.iter().zip(data) {
            filled.push_from(self, done..span.start);
            let start = filled.text.len();
            filled.text.push_str(data.as_ref());
            filled.shadow.resize(filled.text.len(), DATA);
            filled.data.push((start..filled.text.len(), self.inserted + filled.inserted));
            filled.inserted += 1;
            done = span.end;
        }
        filled.push_from(self, done..self.text.len());
        filled.inserted += self.inserted;
        filled
    }

    fn push_from(&mut self, from: &Marked, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let shift = self.text.len();
        self.origins.push((shift, from.origin(range.start)));
        let first = from.origins.partition_point(|(start, _)| *start <= range.start);
        let after = from.origins.partition_point(|(start, _)| *start < range.end);
        let inside = from.origins[first..after].iter();
        self.origins.extend(inside.map(|(start, written)| (start - range.start + shift, *written)));
        let first = from.data.partition_point(|(at, _)| at.start < range.start);
        let inside = from.data[first..].iter().take_while(|(at, _)| at.end <= range.end);
        self.data.extend(inside.map(|(at, number)| {
            (at.start - range.start + shift..at.end - range.start + shift, *number)
        }));
        self.text.push_str(&from.text[range.clone()]);
        self.shadow.extend_from_slice(&from.shadow[range]);
    }

    /// Marks a span as data without changing its text: how a check looks for outer variables.
    pub(crate) fn mask(&mut self, span: Range<usize>) {
        self.shadow[span].fill(DATA);
    }

    /// The text with `\{{` of the template turned into `{{`.
    pub(crate) fn unescape(&self) -> String {
        self.unescape_with_data().0
    }

    /// The same, and where in it data stands, with the how-manieth it was to be inserted.
    pub(crate) fn unescape_with_data(&self) -> (String, Vec<(Range<usize>, usize)>) {
        let mut plain = String::with_capacity(self.text.len());
        let (mut done, mut dropped) = (0, 0);
        let mut data = self.data.clone();
        let mut next = data.iter_mut().peekable();
        let mut place = |until: usize, dropped: usize| {
            while let Some((at, _)) = next.next_if(|(at, _)| at.start < until) {
                *at = at.start - dropped..at.end - dropped;
            }
        };
        for at in memmem::find_iter(&self.shadow, br"\{{") {
            place(at, dropped);
            plain.push_str(&self.text[done..at]);
            done = at + 1;
            dropped += 1;
        }
        place(usize::MAX, dropped);
        plain.push_str(&self.text[done..]);
        (plain, data)
    }
}

/// The variables that one pass finds, braces included.
pub(crate) fn variables(shadow: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(span) = next_variable(shadow, from) {
        from = span.end;
        found.push(span);
    }
    found
}

/// The first variable from here on. Away from the beginning of the text, one byte has to lie before
/// it that no earlier variable has claimed.
fn next_variable(shadow: &[u8], from: usize) -> Option<Range<usize>> {
    let mut start = if from == 0 { 0 } else { from + 1 };
    while let Some(found) = shadow.get(start..).and_then(|rest| memmem::find(rest, b"{{")) {
        let at = start + found;
        let escaped = at > 0 && shadow[at - 1] == b'\\';
        if !escaped && let Some(end) = close(shadow, at + 2) {
            return Some(at..end);
        }
        start = at + 1;
    }
    None
}

/// The end of the variable whose content begins here.
fn close(shadow: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr2(b'{', b'}', shadow.get(at..)?)?;
        if shadow[at] == b'}' {
            return (shadow.get(at + 1) == Some(&b'}')).then_some(at + 2);
        }
        let group = at + 1 + memchr2(b'{', b'}', &shadow[at + 1..])?;
        if shadow[group] == b'{' {
            return None;
        }
        at = group + 1;
    }
}

/// What stands between the braces of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content<'t> {
    /// The expression, without surrounding white space.
    pub(crate) expression: &'t str,
    /// Whether it was marked with a minus: `{{- … }}`.
    pub(crate) shallow: bool,
}

/// Reads a variable, given with its braces.
pub(crate) fn content(variable: &str) -> Content<'_> {
    let inside = variable[2..variable.len() - 2].trim();
    match inside.strip_prefix('-') {
        Some(rest) => Content { expression: rest.trim(), shallow: true },
        None => Content { expression: inside, shallow: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        variables(text.as_bytes()).into_iter().map(|span| &text[span]).collect()
    }

    #[test]
    fn one_pass_finds_the_innermost_variables() {
        let cases: [(&str, &[&str]); 20] = [
            ("", &[]),
            ("{{", &[]),
            ("}}", &[]),
            ("{{a}", &[]),
            ("{{}}", &["{{}}"]),
            ("{{a}}", &["{{a}}"]),
            ("x{{a}} {{b}}y", &["{{a}}", "{{b}}"]),
            // The second one has no unclaimed byte before it.
            ("{{a}}{{b}}", &["{{a}}"]),
            ("{{a}}{{b}}{{c}}", &["{{a}}", "{{c}}"]),
            (r"\{{a}}", &[]),
            (r"\{{a}} {{b}}", &["{{b}}"]),
            (r"\{{a.{{b}}}}", &["{{b}}"]),
            ("{{a.{{b}}}}", &["{{b}}"]),
            ("{{ {a: b} }}", &["{{ {a: b} }}"]),
            ("{{ {a: {b: c}} }}", &[]),
            ("{{{a}}}", &["{{{a}}}"]),
            ("{{{a}}", &["{{a}}"]),
            ("{{a}}}", &["{{a}}"]),
            ("{{{{a}}}}", &["{{{a}}}"]),
            ("ö{{ä}}", &["{{ä}}"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn data_is_never_a_variable_nor_an_escape() {
        let template = Marked::template("{{a}} {{b}}!");
        let spans = variables(template.shadow());
        let filled = template.fill(&spans, &["{{x}}", r"\{{"]);
        assert_eq!(filled.text(), r"{{x}} \{{!");
        assert!(variables(filled.shadow()).is_empty());
        assert_eq!(filled.unescape(), r"{{x}} \{{!");
    }

    #[test]
    fn an_outer_variable_knows_where_it_was_written() {
        let template = Marked::template("see {{ a.{{b}}.c }}!");
        let spans = variables(template.shadow());
        let filled = template.fill(&spans, &["long}}name"]);
        let outer = variables(filled.shadow());
        assert_eq!(&filled.text()[outer[0].clone()], "{{ a.long}}name.c }}");
        assert_eq!(filled.written(&outer[0]), 4..19);
        let again = filled.fill(&outer, &[""]);
        assert_eq!(again.text(), "see !");
    }

    #[test]
    fn escapes_of_the_template_are_undone() {
        for (text, plain) in [(r"\{{a}}", "{{a}}"), (r"\\{{a}}", r"\{{a}}"), (r"\{", r"\{")] {
            assert_eq!(Marked::template(text).unescape(), plain);
        }
    }

    #[test]
    fn content_is_trimmed_and_may_be_shallow() {
        let read = |variable| {
            let content = content(variable);
            (content.expression, content.shallow)
        };
        assert_eq!(read("{{\ta\n}}"), ("a", false));
        assert_eq!(read("{{- a }}"), ("a", true));
        assert_eq!(read("{{ -a}}"), ("a", true));
        assert_eq!(read("{{}}"), ("", false));
    }

    #[test]
    fn scanning_is_linear() {
        // A quadratic scan of these would take minutes.
        for piece in ["{{", "{{{a", "{{{a}", "{", "}}", r"\{{", "{{a} "] {
            let text = piece.repeat(2_000_000 / piece.len());
            assert!(variables(text.as_bytes()).is_empty(), "{piece}");
        }
        let text = "{{a}} ".repeat(300_000);
        assert_eq!(variables(text.as_bytes()).len(), 300_000);
    }
}
