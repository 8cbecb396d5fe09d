//! Tokens of an expression.

use crate::Span;
use crate::error::Issue;

/// What a piece of an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CelToken {
    Int,
    UInt,
    Float,
    String,
    Bytes,
    Ident,
    /// A field name in back quotes.
    Quoted,
    Dot,
    Comma,
    Colon,
    Question,
    Bang,
    Minus,
    Plus,
    Star,
    Slash,
    Percent,
    OpenParen,
    CloseParen,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    EqualEqual,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    AndAnd,
    OrOr,
    In,
    True,
    False,
    Null,
    End,
}

/// Cuts a source into tokens; white space and comments fall away. The last token is `End`.
///
/// # Errors
/// When the source holds something that is not a token, such as a text without an end.
pub fn lex(source: &str) -> Result<Vec<(CelToken, Span)>, Issue> {
    let mut lexer = Lexer { source, bytes: source.as_bytes(), at: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 3 + 1);
    loop {
        let (token, span) = lexer.next()?;
        tokens.push((token, span));
        if token == CelToken::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    bytes: &'s [u8],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<(CelToken, Span), Issue> {
        self.skip_blank();
        let start = self.at;
        let token = self.token(start)?;
        Ok((token, Span::new(start, self.at)))
    }

    fn skip_blank(&mut self) {
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    let rest = &self.bytes[self.at..];
                    self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                }
                _ => break,
            }
        }
    }

    fn token(&mut self, start: usize) -> Result<CelToken, Issue> {
        if self.at >= self.bytes.len() {
            return Ok(CelToken::End);
        }
        let byte = self.peek(0);
        let simple = match byte {
            b'.' if self.peek(1).is_ascii_digit() => return self.number(),
            b'.' => CelToken::Dot,
            b',' => CelToken::Comma,
            b':' => CelToken::Colon,
            b'?' => CelToken::Question,
            b'-' => CelToken::Minus,
            b'+' => CelToken::Plus,
            b'*' => CelToken::Star,
            b'/' => CelToken::Slash,
            b'%' => CelToken::Percent,
            b'(' => CelToken::OpenParen,
            b')' => CelToken::CloseParen,
            b'[' => CelToken::OpenBracket,
            b']' => CelToken::CloseBracket,
            b'{' => CelToken::OpenBrace,
            b'}' => CelToken::CloseBrace,
            b'!' | b'<' | b'>' | b'=' | b'&' | b'|' => return self.operator(start),
            b'0'..=b'9' => return self.number(),
            b'"' | b'\'' => return self.string(start, CelToken::String, false),
            b'`' => return self.quoted(start),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => return self.word(start),
            _ => return Err(self.unrecognized(start)),
        };
        self.at += 1;
        Ok(simple)
    }

    fn unrecognized(&self, start: usize) -> Issue {
        let rest = &self.source[start..];
        let bad = rest.chars().next().unwrap_or(' ');
        let span = Span::new(start, start + bad.len_utf8());
        Issue::new(format!("Syntax error: token recognition error at: '{bad}'"), span)
    }

    fn operator(&mut self, start: usize) -> Result<CelToken, Issue> {
        let (token, length) = match (self.peek(0), self.peek(1)) {
            (b'!', b'=') => (CelToken::NotEqual, 2),
            (b'!', _) => (CelToken::Bang, 1),
            (b'<', b'=') => (CelToken::LessEqual, 2),
            (b'<', _) => (CelToken::Less, 1),
            (b'>', b'=') => (CelToken::GreaterEqual, 2),
            (b'>', _) => (CelToken::Greater, 1),
            (b'=', b'=') => (CelToken::EqualEqual, 2),
            (b'&', b'&') => (CelToken::AndAnd, 2),
            (b'|', b'|') => (CelToken::OrOr, 2),
            _ => return Err(self.unrecognized(start)),
        };
        self.at += length;
        Ok(token)
    }

    fn number(&mut self) -> Result<CelToken, Issue> {
        if self.peek(0) == b'0' && self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            self.skip_while(|b| b.is_ascii_hexdigit());
            return Ok(self.unsigned_or(CelToken::Int));
        }
        self.skip_while(|b| b.is_ascii_digit());
        let mut float = false;
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            float = true;
            self.at += 1;
            self.skip_while(|b| b.is_ascii_digit());
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                float = true;
                self.at += 1 + sign;
                self.skip_while(|b| b.is_ascii_digit());
            }
        }
        Ok(if float { CelToken::Float } else { self.unsigned_or(CelToken::Int) })
    }

    fn unsigned_or(&mut self, other: CelToken) -> CelToken {
        if matches!(self.peek(0), b'u' | b'U') {
            self.at += 1;
            return CelToken::UInt;
        }
        other
    }

    fn skip_while(&mut self, accept: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    fn word(&mut self, start: usize) -> Result<CelToken, Issue> {
        let prefix = self.peek(0).to_ascii_lowercase();
        let next = self.peek(1);
        if matches!(next, b'"' | b'\'') && matches!(prefix, b'r' | b'b') {
            self.at += 1;
            let token = if prefix == b'b' { CelToken::Bytes } else { CelToken::String };
            return self.string(start, token, prefix == b'r');
        }
        if prefix == b'b' && matches!(next, b'r' | b'R') && matches!(self.peek(2), b'"' | b'\'') {
            self.at += 2;
            return self.string(start, CelToken::Bytes, true);
        }
        self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        Ok(match &self.source[start..self.at] {
            "in" => CelToken::In,
            "true" => CelToken::True,
            "false" => CelToken::False,
            "null" => CelToken::Null,
            _ => CelToken::Ident,
        })
    }

    /// Skips to the closing quote; what is inside is read later, see `literal`.
    fn string(&mut self, start: usize, token: CelToken, raw: bool) -> Result<CelToken, Issue> {
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        self.at += if triple { 3 } else { 1 };
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' if !raw => self.at += 2,
                b'\n' | b'\r' if !triple => break,
                byte if byte == quote => {
                    if !triple {
                        self.at += 1;
                        return Ok(token);
                    }
                    if self.peek(1) == quote && self.peek(2) == quote {
                        self.at += 3;
                        return Ok(token);
                    }
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        let end = self.bytes.len().min(self.at);
        Err(Issue::new("Syntax error: unterminated string literal", Span::new(start, end)))
    }

    fn quoted(&mut self, start: usize) -> Result<CelToken, Issue> {
        self.at += 1;
        self.skip_while(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
        });
        if self.peek(0) != b'`' || self.at == start + 1 {
            return Err(self.unrecognized(start));
        }
        self.at += 1;
        Ok(CelToken::Quoted)
    }
}
