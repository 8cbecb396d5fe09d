//! Tokens, by the rules of Go's text scanner: white space and comments are skipped, names and literals are Go's.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonPathTokenKind {
    End,
    Ident,
    Number,
    /// A literal in double quotes, back quotes, or single quotes.
    Text,
    /// Any other character.
    Char(char),
}

/// A piece of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonPathToken<'t> {
    pub(crate) kind: JsonPathTokenKind,
    pub(crate) at: usize,
    pub(crate) text: &'t str,
}

impl JsonPathToken<'_> {
    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }

    pub(crate) fn describe(&self) -> String {
        match self.kind {
            JsonPathTokenKind::End => "the end".to_owned(),
            _ => format!("`{}`", self.text),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonPathScanner<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: usize,
}

fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'t> JsonPathScanner<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The next character, white space included.
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn skip(&mut self, c: char) {
        self.at += c.len_utf8();
    }

    fn pass_space(&mut self) {
        loop {
            let rest = self.rest().trim_start_matches([' ', '\t', '\r', '\n']);
            self.at = self.text.len() - rest.len();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> JsonPathToken<'t> {
        self.pass_space();
        let at = self.at;
        let rest = self.rest();
        let mut chars = rest.chars();
        let first = chars.next();
        let second = chars.next();
        let (kind, length) = match first {
            None => (JsonPathTokenKind::End, 0),
            Some(c) if starts_name(c) => {
                (JsonPathTokenKind::Ident, rest.find(|c| !continues_name(c)).unwrap_or(rest.len()))
            }
            Some('0'..='9') => (JsonPathTokenKind::Number, number_length(rest)),
            Some('.') if second.is_some_and(|c| c.is_ascii_digit()) => {
                (JsonPathTokenKind::Number, number_length(rest))
            }
            Some(quote @ ('"' | '\'')) => (JsonPathTokenKind::Text, quoted_length(rest, quote)),
            Some('`') => {
                (JsonPathTokenKind::Text, rest[1..].find('`').map_or(rest.len(), |end| end + 2))
            }
            Some(c) => (JsonPathTokenKind::Char(c), c.len_utf8()),
        };
        self.at += length;
        JsonPathToken { kind, at, text: &rest[..length] }
    }
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return at,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let run = |mut at: usize, wanted: fn(&u8) -> bool| {
        while bytes.get(at).is_some_and(wanted) {
            at += 1;
        }
        at
    };
    let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
    if bytes.len() > 1
        && bytes[0] == b'0'
        && matches!(bytes[1], b'x' | b'X' | b'b' | b'B' | b'o' | b'O')
    {
        return run(2, |byte| byte.is_ascii_hexdigit() || *byte == b'_');
    }
    let mut at = run(0, digit);
    if bytes.get(at) == Some(&b'.') {
        at = run(at + 1, digit);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let end = run(at + 1 + sign, digit);
        if end > at + 1 + sign {
            at = end;
        }
    }
    at
}
