//! Text to tokens, each with the bytes it stands on.
//!
//! The lexer hands out one token at a time, so that a source that fails early costs nothing more.
//! It decides what a token is; what tokens mean together is the parser's business.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, ErrorKind};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JmesPathToken<'s> {
    /// The end of the source.
    End,
    /// `name`.
    Identifier(&'s str),
    /// `"name"`, already unescaped.
    Quoted(String),
    /// `'text'`, already unescaped.
    Raw(Cow<'s, str>),
    /// The JSON between backticks, with the escaped backticks unescaped.
    Json(Cow<'s, str>),
    /// Digits with an optional minus.
    Number(&'s str),
    Dot,
    Star,
    Comma,
    Colon,
    OpenBrace,
    CloseBrace,
    OpenBracket,
    CloseBracket,
    OpenParen,
    CloseParen,
    Current,
    Ampersand,
    /// `[?`
    Filter,
    /// `[]`
    Flatten,
    Pipe,
    Or,
    And,
    Not,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JmesPathToken<'_> {
    /// The token as messages name it.
    pub(crate) fn describe(&self) -> String {
        match self {
            JmesPathToken::End => "the end".to_owned(),
            JmesPathToken::Identifier(name) => format!("the name {name:?}"),
            JmesPathToken::Quoted(name) => format!("the quoted name {name:?}"),
            JmesPathToken::Raw(_) => "a raw string".to_owned(),
            JmesPathToken::Json(_) => "a literal".to_owned(),
            JmesPathToken::Number(digits) => format!("the number {digits}"),
            symbol => format!("`{}`", symbol.symbol()),
        }
    }

    fn symbol(&self) -> &'static str {
        match self {
            JmesPathToken::Dot => ".",
            JmesPathToken::Star => "*",
            JmesPathToken::Comma => ",",
            JmesPathToken::Colon => ":",
            JmesPathToken::OpenBrace => "{",
            JmesPathToken::CloseBrace => "}",
            JmesPathToken::OpenBracket => "[",
            JmesPathToken::CloseBracket => "]",
            JmesPathToken::OpenParen => "(",
            JmesPathToken::CloseParen => ")",
            JmesPathToken::Current => "@",
            JmesPathToken::Ampersand => "&",
            JmesPathToken::Filter => "[?",
            JmesPathToken::Flatten => "[]",
            JmesPathToken::Pipe => "|",
            JmesPathToken::Or => "||",
            JmesPathToken::And => "&&",
            JmesPathToken::Not => "!",
            JmesPathToken::Equal => "==",
            JmesPathToken::NotEqual => "!=",
            JmesPathToken::Less => "<",
            JmesPathToken::LessOrEqual => "<=",
            JmesPathToken::Greater => ">",
            JmesPathToken::GreaterOrEqual => ">=",
            _ => "",
        }
    }
}

/// Cuts a source into tokens.
#[derive(Debug)]
pub(crate) struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Lexer { source, at: 0 }
    }

    /// The next token; after the last one, [`JmesPathToken::End`] forever.
    pub(crate) fn next(&mut self) -> Result<(JmesPathToken<'s>, Range<usize>), Error> {
        let bytes = self.source.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&first) = bytes.get(start) else {
            return Ok((JmesPathToken::End, start..start));
        };
        let second = bytes.get(start + 1).copied();
        let (token, length) = match (first, second) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) => {
                let name = self.run(start, |b| b.is_ascii_alphanumeric() || b == b'_');
                (JmesPathToken::Identifier(name), name.len())
            }
            (b'-' | b'0'..=b'9', _) => {
                let digits = self.run(start + 1, |b| b.is_ascii_digit());
                (
                    JmesPathToken::Number(&self.source[start..start + 1 + digits.len()]),
                    1 + digits.len(),
                )
            }
            (b'"', _) => {
                let inside = self.until(b'"')?;
                (JmesPathToken::Quoted(unquote(inside, start)?), inside.len() + 2)
            }
            (b'`', _) => {
                let inside = self.until(b'`')?;
                let text = if inside.contains("\\`") {
                    Cow::Owned(inside.replace("\\`", "`"))
                } else {
                    Cow::Borrowed(inside)
                };
                (JmesPathToken::Json(text), inside.len() + 2)
            }
            (b'\'', _) => self.raw_string()?,
            (b'[', Some(b'?')) => (JmesPathToken::Filter, 2),
            (b'[', Some(b']')) => (JmesPathToken::Flatten, 2),
            (b'|', Some(b'|')) => (JmesPathToken::Or, 2),
            (b'&', Some(b'&')) => (JmesPathToken::And, 2),
            (b'=', Some(b'=')) => (JmesPathToken::Equal, 2),
            (b'!', Some(b'=')) => (JmesPathToken::NotEqual, 2),
            (b'<', Some(b'=')) => (JmesPathToken::LessOrEqual, 2),
            (b'>', Some(b'=')) => (JmesPathToken::GreaterOrEqual, 2),
            (b'.', _) => (JmesPathToken::Dot, 1),
            (b'*', _) => (JmesPathToken::Star, 1),
            (b',', _) => (JmesPathToken::Comma, 1),
            (b':', _) => (JmesPathToken::Colon, 1),
            (b'{', _) => (JmesPathToken::OpenBrace, 1),
            (b'}', _) => (JmesPathToken::CloseBrace, 1),
            (b'[', _) => (JmesPathToken::OpenBracket, 1),
            (b']', _) => (JmesPathToken::CloseBracket, 1),
            (b'(', _) => (JmesPathToken::OpenParen, 1),
            (b')', _) => (JmesPathToken::CloseParen, 1),
            (b'@', _) => (JmesPathToken::Current, 1),
            (b'&', _) => (JmesPathToken::Ampersand, 1),
            (b'|', _) => (JmesPathToken::Pipe, 1),
            (b'!', _) => (JmesPathToken::Not, 1),
            (b'<', _) => (JmesPathToken::Less, 1),
            (b'>', _) => (JmesPathToken::Greater, 1),
            _ => return Err(self.unknown(start)),
        };
        self.at = start + length;
        Ok((token, start..self.at))
    }

    fn run(&self, from: usize, belongs: impl Fn(u8) -> bool) -> &'s str {
        let rest = &self.source.as_bytes()[from..];
        let length = rest.iter().position(|b| !belongs(*b)).unwrap_or(rest.len());
        &self.source[from..from + length]
    }

    /// What stands between the delimiter here and the next one that no backslash precedes.
    fn until(&self, delimiter: u8) -> Result<&'s str, Error> {
        let bytes = self.source.as_bytes();
        let mut at = self.at + 1;
        while at < bytes.len() && bytes[at] != delimiter {
            // The end of the source is not a character that a backslash could protect.
            at += if bytes[at] == b'\\' && at + 1 < bytes.len() { 2 } else { 1 };
        }
        if at >= bytes.len() {
            return Err(self.unclosed(delimiter));
        }
        Ok(&self.source[self.at + 1..at])
    }

    // go-jmespath: `\'` is always an escaped quote, so a raw string cannot end in a backslash.
    fn raw_string(&self) -> Result<(JmesPathToken<'s>, usize), Error> {
        let start = self.at + 1;
        let mut from = start;
        let mut text = Cow::Borrowed("");
        loop {
            let rest = &self.source[from..];
            let Some(quote) = rest.find('\'') else {
                return Err(self.unclosed(b'\''));
            };
            let escaped = rest[..quote].ends_with('\\');
            let piece = if escaped { &rest[..quote - 1] } else { &rest[..quote] };
            if text.is_empty() {
                text = Cow::Borrowed(piece);
            } else {
                text.to_mut().push_str(piece);
            }
            from += quote + 1;
            if !escaped {
                return Ok((JmesPathToken::Raw(text), from - self.at));
            }
            text.to_mut().push('\'');
        }
    }

    fn unclosed(&self, delimiter: u8) -> Error {
        let delimiter = char::from(delimiter);
        let error = Error::new(
            ErrorKind::Syntax,
            self.at..self.source.len(),
            format!("no closing {delimiter} for the one that opens here"),
        );
        if delimiter == '\'' && self.source.ends_with("\\'") {
            return error.hint("a raw string cannot end in a backslash; use `\"…\\\\\"`");
        }
        error
    }

    fn unknown(&self, at: usize) -> Error {
        let character = self.source[at..].chars().next().unwrap_or('\u{fffd}');
        let error = Error::new(
            ErrorKind::Syntax,
            at..at + character.len_utf8(),
            format!("unexpected character {character:?}"),
        );
        match character {
            '=' => error.hint("equality is written `==`"),
            '+' => error.hint("there are no arithmetic operators; use add(a, b)"),
            '/' => {
                error.hint("there are no arithmetic operators; use divide(a, b), or quote the key")
            }
            '%' => error.hint("there are no arithmetic operators; use modulo(a, b)"),
            '$' => error.hint("there is no root symbol; names start at the top of the context"),
            '?' => error.hint("a filter is written `[?condition]`; for a default use `||`"),
            '#' => error,
            _ => {
                error.hint("quote keys that have other than ASCII letters, digits and underscores")
            }
        }
    }
}

/// Reads the JSON string that a quoted identifier is.
fn unquote(inside: &str, start: usize) -> Result<String, Error> {
    if !inside.contains('\\') && !inside.bytes().any(|b| b < 0x20) {
        return Ok(inside.to_owned());
    }
    match kiln_value::json::parse(&format!("\"{inside}\"")) {
        Ok(kiln_value::Value::String(name)) => Ok(name.to_string()),
        Ok(_) => Ok(inside.to_owned()),
        Err(problem) => Err(Error::new(
            ErrorKind::Syntax,
            start..start + inside.len() + 2,
            format!("invalid quoted name: {}", problem.message),
        )
        .hint("a quoted name has the escapes of a JSON string; for a text use '…'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Result<Vec<(JmesPathToken<'_>, Range<usize>)>, Error> {
        let mut lexer = Lexer::new(source);
        let mut all = Vec::new();
        loop {
            match lexer.next()? {
                (JmesPathToken::End, _) => return Ok(all),
                token => all.push(token),
            }
        }
    }

    #[test]
    fn tokens_know_their_bytes() {
        let got = tokens("a_1 [?\"b\\n\"=='it\\'s']").unwrap();
        let wanted = vec![
            (JmesPathToken::Identifier("a_1"), 0..3),
            (JmesPathToken::Filter, 4..6),
            (JmesPathToken::Quoted("b\n".into()), 6..11),
            (JmesPathToken::Equal, 11..13),
            (JmesPathToken::Raw("it's".into()), 13..20),
            (JmesPathToken::CloseBracket, 20..21),
        ];
        assert_eq!(got, wanted);
    }

    #[test]
    fn literals_end_where_they_should() {
        for (source, wanted) in [
            ("''", JmesPathToken::Raw("".into())),
            (r"'\\n'", JmesPathToken::Raw(r"\\n".into())),
            (r"'\'\''", JmesPathToken::Raw("''".into())),
            (r"`a\`b`", JmesPathToken::Json("a`b".into())),
            ("-12", JmesPathToken::Number("-12")),
            ("-", JmesPathToken::Number("-")),
            (r#""\u00e9""#, JmesPathToken::Quoted("é".into())),
        ] {
            assert_eq!(tokens(source).unwrap(), vec![(wanted, 0..source.len())], "{source}");
        }
    }

    #[test]
    fn bad_text_is_refused_at_its_place() {
        for (source, span) in [
            (r"'\\'", 0..4),
            ("a 'b", 2..4),
            ("`1", 0..2),
            ("\"a", 0..2),
            ("\"a\\", 0..3),
            ("a = b", 2..3),
            ("x é", 2..4),
            ("\"\\x\"", 0..4),
            ("a.#", 2..3),
        ] {
            let error = tokens(source).unwrap_err();
            assert_eq!((error.kind(), error.span()), (ErrorKind::Syntax, span), "{source}");
        }
    }
}
