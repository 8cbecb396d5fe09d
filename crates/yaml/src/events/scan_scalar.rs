//! Scalars: plain, quoted, and blocks.
//!
//! What stands in the source as it is meant is borrowed from it; only folded lines, escapes and
//! blocks are copied.

use std::borrow::Cow;

use crate::events::event::{Quoting, SyntaxError};
use crate::events::scan::{Scanner, YamlToken, YamlTokenKind};

type Scan<T> = Result<T, SyntaxError>;

/// Bytes at which a plain scalar, or the inside of quotes, has to be looked at more closely.
const PLAIN: u8 = 1;
const FLOW: u8 = 2;
const DOUBLE: u8 = 4;
const SINGLE: u8 = 8;
const LINE: u8 = 16;

const STOPS: [u8; 256] = {
    let mut stops = [0; 256];
    let all = PLAIN | FLOW | DOUBLE | SINGLE;
    stops[b' ' as usize] = all;
    stops[b'\t' as usize] = all;
    // Line breaks, or what may begin one.
    stops[b'\n' as usize] = all | LINE;
    stops[b'\r' as usize] = all | LINE;
    stops[0xc2] = all | LINE;
    stops[0xe2] = all | LINE;
    stops[b':' as usize] = PLAIN | FLOW;
    stops[b',' as usize] = FLOW;
    stops[b'?' as usize] = FLOW;
    stops[b'[' as usize] = FLOW;
    stops[b']' as usize] = FLOW;
    stops[b'{' as usize] = FLOW;
    stops[b'}' as usize] = FLOW;
    stops[b'"' as usize] = DOUBLE;
    stops[b'\\' as usize] = DOUBLE;
    stops[b'\'' as usize] = SINGLE;
    stops
};

/// Text that is borrowed for as long as it is the same as the source.
struct Collected<'t> {
    source: &'t str,
    start: usize,
    /// How far the source has been taken over, while it has been taken as it is.
    end: usize,
    copy: Option<String>,
}

impl<'t> Collected<'t> {
    fn new(source: &'t str, start: usize) -> Self {
        Collected { source, start, end: start, copy: None }
    }

    /// Takes over the source up to here, from where it was taken over last.
    fn take_to(&mut self, from: usize, to: usize) {
        match &mut self.copy {
            Some(copy) => copy.push_str(&self.source[from..to]),
            None => self.end = to,
        }
    }

    /// Text that is not in the source like that.
    fn owned(&mut self) -> &mut String {
        self.copy.get_or_insert_with(|| self.source[self.start..self.end].to_owned())
    }

    fn finish(self) -> Cow<'t, str> {
        match self.copy {
            Some(copy) => Cow::Owned(copy),
            None => Cow::Borrowed(&self.source[self.start..self.end]),
        }
    }
}

/// Line breaks between two pieces of text, to be folded.
#[derive(Default)]
struct Breaks {
    first: Option<char>,
    further: String,
}

impl Breaks {
    fn push(&mut self, c: char) {
        match self.first {
            None => self.first = Some(c),
            Some(_) => self.further.push(c),
        }
    }

    /// One line break is a blank, of several all but the first stay.
    fn fold_into(&mut self, text: &mut String) {
        match self.first.take() {
            Some('\n') if self.further.is_empty() => text.push(' '),
            Some('\n') | None => {}
            Some(other) => text.push(other),
        }
        text.push_str(&self.further);
        self.further.clear();
    }
}

impl<'t> Scanner<'t> {
    /// Goes on to a byte with one of these marks.
    fn skip_until(&mut self, marks: u8) {
        while self.byte(0).is_some_and(|b| STOPS[b as usize] & marks == 0) {
            self.at += 1;
        }
    }

    /// Goes on to the end of the line.
    pub(crate) fn skip_line(&mut self) {
        while !self.is_break_or_end(0) {
            self.at += 1;
            self.skip_until(LINE);
        }
    }

    pub(crate) fn scan_plain_scalar(&mut self) -> Scan<YamlToken<'t>> {
        let start = self.at;
        let mut end = start;
        let mut text = Collected::new(self.text, start);
        let mut breaks = Breaks::default();
        let marks = if self.flow_level > 0 { FLOW } else { PLAIN };
        loop {
            if self.is_document_indicator() || self.byte(0) == Some(b'#') {
                break;
            }
            let from = self.at;
            self.skip_plain_word(marks);
            if self.at > from {
                if breaks.first.is_some() {
                    breaks.fold_into(text.owned());
                    text.take_to(from, self.at);
                } else {
                    // With the blanks before it.
                    text.take_to(end, self.at);
                }
                end = self.at;
            }
            if !self.is_blank(0) && self.break_width(0) == 0 {
                break;
            }
            while self.is_blank(0) || self.break_width(0) > 0 {
                if let Some(c) = self.read_break() {
                    breaks.push(c);
                    continue;
                }
                // Only blanks stand before this place on its line, so bytes are columns.
                let column = (self.at - self.line_start) as isize;
                let in_indent = breaks.first.is_some() && column < self.indent + 1;
                if in_indent && self.byte(0) == Some(b'\t') {
                    let context = ("while scanning a plain scalar", start);
                    let problem = "found a tab character that violates indentation";
                    return Err(self.error_in(context, problem));
                }
                self.at += 1;
            }
            if self.flow_level == 0
                && breaks.first.is_some()
                && (self.at - self.line_start) as isize <= self.indent
            {
                break;
            }
        }
        if breaks.first.is_some() {
            self.key_allowed = true;
        }
        let kind = YamlTokenKind::Scalar { text: text.finish(), quoting: Quoting::Plain };
        Ok(YamlToken { kind, start, end })
    }

    /// Goes past what is neither blank nor an indicator.
    fn skip_plain_word(&mut self, marks: u8) {
        loop {
            self.skip_until(marks);
            match self.byte(0) {
                Some(b':') if !self.is_blank_or_end(1) => self.at += 1,
                Some(0xc2 | 0xe2) if self.break_width(0) == 0 => self.at += 1,
                _ => return,
            }
        }
    }

    pub(crate) fn scan_quoted_scalar(&mut self, quote: u8) -> Scan<YamlToken<'t>> {
        let start = self.at;
        let context = ("while scanning a quoted scalar", start);
        self.at += 1;
        let mut text = Collected::new(self.text, self.at);
        let marks = if quote == b'"' { DOUBLE } else { SINGLE };
        loop {
            if self.is_document_indicator() {
                return Err(self.error_in(context, "found unexpected document indicator"));
            }
            let from = self.at;
            self.skip_until(marks);
            text.take_to(from, self.at);
            match self.byte(0) {
                None => return Err(self.error_in(context, "found unexpected end of stream")),
                Some(byte) if byte == quote => {
                    if quote == b'\'' && self.byte(1) == Some(b'\'') {
                        text.owned().push('\'');
                        self.at += 2;
                        continue;
                    }
                    break;
                }
                Some(b'\\') if quote == b'"' => {
                    if self.break_width(1) > 0 {
                        // The line goes on, without what is before it on the next one.
                        text.owned();
                        self.at += 1;
                        self.skip_break();
                        self.fold_lines(&mut text, true);
                    } else {
                        self.scan_escape(text.owned(), start)?;
                    }
                }
                Some(b' ' | b'\t') => self.fold_lines(&mut text, false),
                Some(_) if self.break_width(0) > 0 => self.fold_lines(&mut text, false),
                // A character that only begins like a line break.
                Some(_) => {
                    let from = self.at;
                    self.at += 1;
                    while self.byte(0).is_some_and(|b| b & 0xc0 == 0x80) {
                        self.at += 1;
                    }
                    text.take_to(from, self.at);
                }
            }
        }
        let text = text.finish();
        self.at += 1;
        let quoting = if quote == b'"' { Quoting::Double } else { Quoting::Quoted };
        let kind = YamlTokenKind::Scalar { text, quoting };
        Ok(YamlToken { kind, start, end: self.at })
    }

    /// Reads blanks and line breaks inside quotes.
    fn fold_lines(&mut self, text: &mut Collected<'t>, escaped: bool) {
        let from = self.at;
        let mut breaks = Breaks::default();
        let mut folds = escaped;
        while self.is_blank(0) || self.break_width(0) > 0 {
            match self.read_break() {
                // After an escaped line break the first one is dropped like the rest of it.
                Some(c) if escaped => breaks.further.push(c),
                Some(c) => {
                    breaks.push(c);
                    folds = true;
                }
                None => self.at += 1,
            }
        }
        if folds {
            breaks.fold_into(text.owned());
        } else {
            text.take_to(from, self.at);
        }
    }

    fn scan_escape(&mut self, text: &mut String, start: usize) -> Scan<()> {
        let context = ("while parsing a quoted scalar", start);
        let digits = match self.byte(1) {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            other => {
                let Some(c) = other.and_then(short_escape) else {
                    return Err(self.error_in(context, "found unknown escape character"));
                };
                text.push(c);
                self.at += 2;
                return Ok(());
            }
        };
        let hex = self.text.get(self.at + 2..self.at + 2 + digits).unwrap_or_default();
        if hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.error_in(context, "did not find expected hexdecimal number"));
        }
        let code = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        let Some(c) = code else {
            return Err(self.error_in(context, "found invalid Unicode character escape code"));
        };
        text.push(c);
        self.at += 2 + digits;
        Ok(())
    }

    pub(crate) fn scan_block_scalar(&mut self, literal: bool) -> Scan<YamlToken<'t>> {
        let start = self.at;
        let context = ("while scanning a block scalar", start);
        self.at += 1;
        let (chomping, increment) = self.block_header(start)?;
        self.skip_blanks();
        if self.notes.is_some() && self.byte(0) == Some(b'#') {
            self.note_line(start);
        }
        self.skip_comment();
        if !self.is_break_or_end(0) {
            return Err(self.error_in(context, "did not find expected comment or line break"));
        }
        self.skip_break();

        let mut end = self.at;
        let mut indent = increment.map(|increment| self.indent.max(0) as usize + increment);
        let mut text = String::new();
        let mut leading = None;
        let mut trailing = String::new();
        let mut after_blank = false;
        self.block_breaks(&mut indent, &mut trailing, start, &mut end)?;
        // Only blanks stand before this place on its line, so bytes are columns.
        while Some(self.at - self.line_start) == indent && self.at < self.bytes.len() {
            let blank = self.is_blank(0);
            match leading.take() {
                // Lines that begin with a blank are not folded, nor are those around them.
                Some('\n') if !literal && !after_blank && !blank => {
                    text.push_str(if trailing.is_empty() { " " } else { "" });
                }
                Some(c) => text.push(c),
                None => {}
            }
            text.push_str(&trailing);
            trailing.clear();
            after_blank = blank;
            let from = self.at;
            self.skip_line();
            text.push_str(&self.text[from..self.at]);
            end = self.at;
            leading = self.read_break();
            self.block_breaks(&mut indent, &mut trailing, start, &mut end)?;
        }
        if chomping != Chomping::Strip {
            text.extend(leading);
        }
        if chomping == Chomping::Keep {
            text.push_str(&trailing);
        }
        let quoting = if literal { Quoting::Quoted } else { Quoting::Folded };
        Ok(YamlToken {
            kind: YamlTokenKind::Scalar { text: Cow::Owned(text), quoting },
            start,
            end,
        })
    }

    /// The indicators after `|` or `>`: in either order how to end, and how deep it is.
    fn block_header(&mut self, start: usize) -> Scan<(Chomping, Option<usize>)> {
        let mut chomping = None;
        let mut increment = None;
        for _ in 0..2 {
            match self.byte(0) {
                Some(b'+') if chomping.is_none() => chomping = Some(Chomping::Keep),
                Some(b'-') if chomping.is_none() => chomping = Some(Chomping::Strip),
                Some(b'0') if increment.is_none() => {
                    let context = ("while scanning a block scalar", start);
                    let problem = "found an indentation indicator equal to 0";
                    return Err(self.error_in(context, problem));
                }
                Some(digit @ b'1'..=b'9') if increment.is_none() => {
                    increment = Some(usize::from(digit - b'0'));
                }
                _ => break,
            }
            self.at += 1;
        }
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    /// Reads empty lines and the indentation of the next line, which fixes the indentation of the
    /// block if nothing did before.
    fn block_breaks(
        &mut self,
        indent: &mut Option<usize>,
        breaks: &mut String,
        start: usize,
        end: &mut usize,
    ) -> Scan<()> {
        let mut deepest = 0;
        loop {
            let within = |at: usize, line_start: usize| indent.is_none_or(|i| at - line_start < i);
            while within(self.at, self.line_start) && self.byte(0) == Some(b' ') {
                self.at += 1;
            }
            deepest = deepest.max(self.at - self.line_start);
            if within(self.at, self.line_start) && self.byte(0) == Some(b'\t') {
                let context = ("while scanning a block scalar", start);
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.error_in(context, problem));
            }
            match self.read_break() {
                Some(c) => breaks.push(c),
                None => break,
            }
            *end = self.at;
        }
        if indent.is_none() {
            *indent = Some(deepest.max((self.indent + 1) as usize).max(1));
        }
        Ok(())
    }
}

/// What becomes of the line breaks at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    /// One stays.
    Clip,
    Strip,
    Keep,
}

fn short_escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'0' => '\0',
        b'a' => '\x07',
        b'b' => '\x08',
        b't' | b'\t' => '\t',
        b'n' => '\n',
        b'v' => '\x0b',
        b'f' => '\x0c',
        b'r' => '\r',
        b'e' => '\x1b',
        b' ' => ' ',
        b'"' => '"',
        b'\'' => '\'',
        b'\\' => '\\',
        b'N' => '\u{85}',
        b'_' => '\u{a0}',
        b'L' => '\u{2028}',
        b'P' => '\u{2029}',
        _ => return None,
    })
}
