//! Text to tokens, each with the bytes it stands on.
//!
//! The lexer hands out one token at a time, so that a source that fails early costs nothing more.
//! It decides what a token is; what tokens mean together is the parser's business.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, ErrorKind};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'s> {
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

impl Token<'_> {
    /// The token as messages name it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::End => "the end".to_owned(),
            Token::Identifier(name) => format!("the name {name:?}"),
            Token::Quoted(name) => format!("the quoted name {name:?}"),
            Token::Raw(_) => "a raw string".to_owned(),
            Token::Json(_) => "a literal".to_owned(),
            Token::Number(digits) => format!("the number {digits}"),
            symbol => format!("`{}`", symbol.symbol()),
        }
    }

    fn symbol(&self) -> &'static str {
        match self {
            Token::Dot => ".",
            Token::Star => "*",
            Token::Comma => ",",
            Token::Colon => ":",
            Token::OpenBrace => "{",
            Token::CloseBrace => "}",
            Token::OpenBracket => "[",
            Token::CloseBracket => "]",
            Token::OpenParen => "(",
            Token::CloseParen => ")",
            Token::Current => "@",
            Token::Ampersand => "&",
            Token::Filter => "[?",
            Token::Flatten => "[]",
            Token::Pipe => "|",
            Token::Or => "||",
            Token::And => "&&",
            Token::Not => "!",
            Token::Equal => "==",
            Token::NotEqual => "!=",
            Token::Less => "<",
            Token::LessOrEqual => "<=",
            Token::Greater => ">",
            Token::GreaterOrEqual => ">=",
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

    /// The next token; after the last one, [`Token::End`] forever.
    pub(crate) fn next(&mut self) -> Result<(Token<'s>, Range<usize>), Error> {
        let bytes = self.source.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&first) = bytes.get(start) else {
            return Ok((Token::End, start..start));
        };
        let second = bytes.get(start + 1).copied();
        let (token, length) = match (first, second) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) => {
                let name = self.run(start, |b| b.is_ascii_alphanumeric() || b == b'_');
                (Token::Identifier(name), name.len())
            }
            (b'-' | b'0'..=b'9', _) => {
                let digits = self.run(start + 1, |b| b.is_ascii_digit());
                (Token::Number(&self.source[start..start + 1 + digits.len()]), 1 + digits.len())
            }
            (b'"', _) => {
                let inside = self.until(b'"')?;
                (Token::Quoted(unquote(inside, start)?), inside.len() + 2)
            }
            (b'`', _) => {
                let inside = self.until(b'`')?;
                let text = if inside.contains("\\`") {
                    Cow::Owned(inside.replace("\\`", "`"))
                } else {
                    Cow::Borrowed(inside)
                };
                (Token::Json(text), inside.len() + 2)
            }
            (b'\'', _) => self.raw_string()?,
            (b'[', Some(b'?')) => (Token::Filter, 2),
            (b'[', Some(b']')) => (Token::Flatten, 2),
            (b'|', Some(b'|')) => (Token::Or, 2),
            (b'&', Some(b'&')) => (Token::And, 2),
            (b'=', Some(b'=')) => (Token::Equal, 2),
            (b'!', Some(b'=')) => (Token::NotEqual, 2),
            (b'<', Some(b'=')) => (Token::LessOrEqual, 2),
            (b'>', Some(b'=')) => (Token::GreaterOrEqual, 2),
            (b'.', _) => (Token::Dot, 1),
            (b'*', _) => (Token::Star, 1),
            (b',', _) => (Token::Comma, 1),
            (b':', _) => (Token::Colon, 1),
            (b'{', _) => (Token::OpenBrace, 1),
            (b'}', _) => (Token::CloseBrace, 1),
            (b'[', _) => (Token::OpenBracket, 1),
            (b']', _) => (Token::CloseBracket, 1),
            (b'(', _) => (Token::OpenParen, 1),
            (b')', _) => (Token::CloseParen, 1),
            (b'@', _) => (Token::Current, 1),
            (b'&', _) => (Token::Ampersand, 1),
            (b'|', _) => (Token::Pipe, 1),
            (b'!', _) => (Token::Not, 1),
            (b'<', _) => (Token::Less, 1),
            (b'>', _) => (Token::Greater, 1),
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
    fn raw_string(&self) -> Result<(Token<'s>, usize), Error> {
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
                return Ok((Token::Raw(text), from - self.at));
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

    fn tokens(source: &str) -> Result<Vec<(Token<'_>, Range<usize>)>, Error> {
        let mut lexer = Lexer::new(source);
        let mut all = Vec::new();
        loop {
            match lexer.next()? {
                (Token::End, _) => return Ok(all),
                token => all.push(token),
            }
        }
    }

    #[test]
    fn tokens_know_their_bytes() {
        let got = tokens("a_1 [?\"b\\n\"=='it\\'s']").unwrap();
        let wanted = vec![
            (Token::Identifier("a_1"), 0..3),
            (Token::Filter, 4..6),
            (Token::Quoted("b\n".into()), 6..11),
            (Token::Equal, 11..13),
            (Token::Raw("it's".into()), 13..20),
            (Token::CloseBracket, 20..21),
        ];
        assert_eq!(got, wanted);
    }

    #[test]
    fn literals_end_where_they_should() {
        for (source, wanted) in [
            ("''", Token::Raw("".into())),
            (r"'\\n'", Token::Raw(r"\\n".into())),
            (r"'\'\''", Token::Raw("''".into())),
            (r"`a\`b`", Token::Json("a`b".into())),
            ("-12", Token::Number("-12")),
            ("-", Token::Number("-")),
            (r#""\u00e9""#, Token::Quoted("é".into())),
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
