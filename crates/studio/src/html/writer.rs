//! HTML that cannot be broken out of.

use std::fmt::Write;

/// Puts HTML together. Markup is part of the program ([`HtmlWriter::raw`] takes nothing else); whatever comes from
/// documents, clusters and users is text, and is escaped where it is written.
#[derive(Clone, Debug, Default)]
pub struct HtmlWriter {
    out: String,
}

impl HtmlWriter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Markup.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.out.push_str(markup);
        self
    }

    /// Text, in an element or in an attribute with quotes.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                '\n' | '\t' => self.out.push(c),
                c if is_hidden(c) => self.out.push('\u{fffd}'),
                c => self.out.push(c),
            }
        }
        self
    }

    pub fn number(&mut self, number: impl Into<i64>) -> &mut Self {
        // Writing to a text does not fail.
        let _ = write!(self.out, "{}", number.into());
        self
    }

    pub fn count(&mut self, count: usize) -> &mut Self {
        self.number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Adds what another writer holds.
    pub fn append(&mut self, other: &HtmlWriter) -> &mut Self {
        self.out.push_str(&other.out);
        self
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub fn finish(self) -> String {
        self.out
    }
}

/// Control characters, and those that turn the direction of the text around them: they make a text look like another.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let mut html = HtmlWriter::new();
        html.raw("<p title=\"").text("\"'><script>alert(1)</script>&\u{1b}\u{202e}").raw("\">");
        let wanted = "<p title=\"&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;\u{fffd}\u{fffd}\">";
        assert_eq!(html.finish(), wanted);
    }
}
