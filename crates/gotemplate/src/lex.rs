//! Template text to tokens, by the rules of Go's own scanner.
//!
//! All tokens are made at once; the last one is either the end or what is wrong with the text.

use crate::error::Refusal;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateTokenKind {
    Error,
    Eof,
    Text,
    LeftDelim,
    RightDelim,
    Space,
    Assign,
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    /// A printable character that means nothing by itself, such as a comma.
    Char,
    Bool,
    CharConstant,
    Complex,
    Number,
    Str,
    RawStr,
    Field,
    Variable,
    Identifier,
    // Keywords from here on.
    Dot,
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl TemplateTokenKind {
    fn is_keyword(self) -> bool {
        self as u8 >= TemplateTokenKind::Dot as u8
    }
}

/// A piece of the text; for an error, what is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateToken<'t> {
    pub(crate) kind: TemplateTokenKind,
    pub(crate) at: usize,
    pub(crate) line: usize,
    pub(crate) text: &'t str,
}

impl TemplateToken<'_> {
    /// As Go names a token that stands in the wrong place.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            TemplateTokenKind::Eof => "EOF".to_owned(),
            kind if kind.is_keyword() => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let cut: String = self.text.chars().take(10).collect();
                format!("{}...", kiln_text::quote::quote(&cut))
            }
            _ => kiln_text::quote::quote(self.text),
        }
    }
}

/// The tokens of a template, and the words of the error if the last one is [`TemplateTokenKind::Error`].
pub(crate) struct Tokens<'t> {
    pub(crate) all: Vec<TemplateToken<'t>>,
    pub(crate) problem: String,
}

const LEFT: &str = "{{";
const RIGHT: &str = "}}";

struct Lexer<'t> {
    text: &'t str,
    start: usize,
    at: usize,
    /// Where lines were counted up to, and the number of the line there.
    counted: usize,
    line: usize,
    tokens: Vec<TemplateToken<'t>>,
    parens: usize,
}

/// Splits a template.
pub(crate) fn tokens(text: &str, limit: usize) -> Result<Tokens<'_>, Refusal> {
    if text.len() > limit {
        return Err(Refusal::Limit(format!("the template is longer than {limit} bytes")));
    }
    let mut lexer =
        Lexer { text, start: 0, at: 0, counted: 0, line: 1, tokens: Vec::new(), parens: 0 };
    let problem = lexer.run().err().unwrap_or_default();
    if !problem.is_empty() {
        lexer.emit(TemplateTokenKind::Error);
    }
    Ok(Tokens { all: lexer.tokens, problem })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphabetic() || c.is_numeric()
}

fn has_left_trim(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('-') && chars.next().is_some_and(is_space)
}

/// Whether ` -}}` follows.
fn has_right_trim(text: &str) -> bool {
    text.strip_prefix(is_space).is_some_and(|rest| rest.starts_with("-}}"))
}

/// A character as Go's `%#U`.
fn described(c: char) -> String {
    let code = format!("U+{:04X}", u32::from(c));
    if kiln_text::quote::quote(c.encode_utf8(&mut [0; 4])).contains(c) {
        format!("{code} '{c}'")
    } else {
        code
    }
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
    }

    fn accept(&mut self, any: &str) -> bool {
        let found = self.peek().is_some_and(|c| any.contains(c));
        if found {
            self.next();
        }
        found
    }

    fn emit(&mut self, kind: TemplateTokenKind) {
        let newlines = self.text[self.counted..self.start].matches('\n').count();
        self.line += newlines;
        self.counted = self.start;
        let text = &self.text[self.start..self.at];
        self.tokens.push(TemplateToken { kind, at: self.start, line: self.line, text });
        self.start = self.at;
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(before) = self.rest().find(LEFT) {
            let delim = self.at + before;
            let text = &self.text[self.at..delim];
            let trims = has_left_trim(&self.text[delim + LEFT.len()..]);
            let kept = if trims { text.trim_end_matches(is_space) } else { text };
            if !kept.is_empty() {
                self.at += kept.len();
                self.emit(TemplateTokenKind::Text);
            }
            self.start = delim;
            self.at = delim + LEFT.len();
            let marker = if trims { 2 } else { 0 };
            if self.text[self.at + marker..].starts_with("/*") {
                self.at += marker;
                self.comment()?;
                continue;
            }
            self.emit(TemplateTokenKind::LeftDelim);
            self.at += marker;
            self.start = self.at;
            self.parens = 0;
            self.action()?;
        }
        self.at = self.text.len();
        if self.at > self.start {
            self.emit(TemplateTokenKind::Text);
        }
        self.emit(TemplateTokenKind::Eof);
        Ok(())
    }

    fn comment(&mut self) -> Result<(), String> {
        let Some(end) = self.rest().find("*/") else { return Err("unclosed comment".into()) };
        self.at += end + 2;
        let trims = has_right_trim(self.rest());
        if !trims && !self.rest().starts_with(RIGHT) {
            return Err("comment ends before closing delimiter".into());
        }
        self.at += if trims { 4 } else { 2 };
        if trims {
            self.skip_while(is_space);
        }
        self.start = self.at;
        Ok(())
    }

    /// Reads up to and with the closing delimiter.
    fn action(&mut self) -> Result<(), String> {
        loop {
            let trims = has_right_trim(self.rest());
            if trims || self.rest().starts_with(RIGHT) {
                if self.parens > 0 {
                    return Err("unclosed left paren".into());
                }
                if trims {
                    self.at += 2;
                    self.start = self.at;
                }
                self.at += 2;
                self.emit(TemplateTokenKind::RightDelim);
                if trims {
                    self.skip_while(is_space);
                    self.start = self.at;
                }
                return Ok(());
            }
            self.inside()?;
        }
    }

    fn inside(&mut self) -> Result<(), String> {
        let Some(c) = self.next() else { return Err("unclosed action".into()) };
        match c {
            _ if is_space(c) => {
                while self.peek().is_some_and(is_space) && !has_right_trim(self.rest()) {
                    self.next();
                }
                self.emit(TemplateTokenKind::Space);
            }
            '=' => self.emit(TemplateTokenKind::Assign),
            ':' => {
                if self.next() != Some('=') {
                    return Err("expected :=".into());
                }
                self.emit(TemplateTokenKind::Declare);
            }
            '|' => self.emit(TemplateTokenKind::Pipe),
            '"' => self.quoted('"', TemplateTokenKind::Str, "unterminated quoted string")?,
            '\'' => self.quoted(
                '\'',
                TemplateTokenKind::CharConstant,
                "unterminated character constant",
            )?,
            '`' => {
                let Some(end) = self.rest().find('`') else {
                    self.at = self.text.len();
                    return Err("unterminated raw quoted string".into());
                };
                self.at += end + 1;
                self.emit(TemplateTokenKind::RawStr);
            }
            '$' => self.name(TemplateTokenKind::Variable, TemplateTokenKind::Variable)?,
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                self.name(TemplateTokenKind::Field, TemplateTokenKind::Dot)?;
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.at -= 1;
                self.number()?;
            }
            '(' => {
                self.parens += 1;
                self.emit(TemplateTokenKind::LeftParen);
            }
            ')' => {
                self.parens = self
                    .parens
                    .checked_sub(1)
                    .ok_or_else(|| "unexpected right paren".to_owned())?;
                self.emit(TemplateTokenKind::RightParen);
            }
            _ if is_word(c) => self.word()?,
            ' '..='~' => self.emit(TemplateTokenKind::Char),
            _ => return Err(format!("unrecognized character in action: {}", described(c))),
        }
        Ok(())
    }

    fn quoted(
        &mut self,
        quote: char,
        kind: TemplateTokenKind,
        unterminated: &str,
    ) -> Result<(), String> {
        loop {
            match self.next() {
                Some('\\') if self.next().is_some_and(|c| c != '\n') => {}
                None | Some('\n' | '\\') => return Err(unterminated.to_owned()),
                Some(c) if c == quote => break,
                Some(_) => {}
            }
        }
        self.emit(kind);
        Ok(())
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(c) => is_space(c) || self.rest().starts_with(RIGHT),
        }
    }

    /// A field or variable after its first character; `alone` is what that character is by itself.
    fn name(&mut self, kind: TemplateTokenKind, alone: TemplateTokenKind) -> Result<(), String> {
        if self.at_terminator() {
            self.emit(alone);
            return Ok(());
        }
        self.skip_while(is_word);
        self.require_terminator()?;
        self.emit(kind);
        Ok(())
    }

    fn require_terminator(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(c) if !self.at_terminator() => {
                self.start = self.at;
                self.next();
                Err(format!("bad character {}", described(c)))
            }
            _ => Ok(()),
        }
    }

    fn word(&mut self) -> Result<(), String> {
        self.skip_while(is_word);
        let word = &self.text[self.start..self.at];
        self.require_terminator()?;
        self.emit(match word {
            "block" => TemplateTokenKind::Block,
            "break" => TemplateTokenKind::Break,
            "continue" => TemplateTokenKind::Continue,
            "define" => TemplateTokenKind::Define,
            "else" => TemplateTokenKind::Else,
            "end" => TemplateTokenKind::End,
            "if" => TemplateTokenKind::If,
            "nil" => TemplateTokenKind::Nil,
            "range" => TemplateTokenKind::Range,
            "template" => TemplateTokenKind::Template,
            "with" => TemplateTokenKind::With,
            "true" | "false" => TemplateTokenKind::Bool,
            _ => TemplateTokenKind::Identifier,
        });
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let bad = |lexer: &Self| {
            let text = &lexer.text[lexer.start..lexer.at];
            format!("bad number syntax: {}", kiln_text::quote::quote(text))
        };
        if !self.scan_number() {
            return Err(bad(self));
        }
        if matches!(self.peek(), Some('+' | '-')) {
            // 1+2i: no spaces, and an i at the end.
            if !self.scan_number() || !self.text[..self.at].ends_with('i') {
                return Err(bad(self));
            }
            self.emit(TemplateTokenKind::Complex);
        } else {
            self.emit(TemplateTokenKind::Number);
        }
        Ok(())
    }

    fn scan_number(&mut self) -> bool {
        const DECIMAL: &str = "0123456789_";
        self.accept("+-");
        let (mut digits, mut exponent) = (DECIMAL, "eE");
        if self.accept("0") {
            // A leading 0 alone does not make a float octal.
            if self.accept("xX") {
                (digits, exponent) = ("0123456789abcdefABCDEF_", "pP");
            } else if self.accept("oO") {
                (digits, exponent) = ("01234567_", "");
            } else if self.accept("bB") {
                (digits, exponent) = ("01_", "");
            }
        }
        self.skip_while(|c| digits.contains(c));
        if self.accept(".") {
            self.skip_while(|c| digits.contains(c));
        }
        if self.accept(exponent) {
            self.accept("+-");
            self.skip_while(|c| DECIMAL.contains(c));
        }
        self.accept("i");
        let clean = !self.peek().is_some_and(is_word);
        if !clean {
            self.next();
        }
        clean
    }
}
