//! Writing strings in each style, with go-yaml v2's folding at 80 columns.

use crate::emitter::style::{Style, is_break, is_printable};

/// go-yaml folds at the first blank beyond this column.
const WIDTH: usize = 80;

/// Text that is being written, and where its last line begins.
pub(crate) struct Page<'o> {
    out: &'o mut String,
    line: usize,
}

impl<'o> Page<'o> {
    /// A page that goes on where `out` ends, which must be at the beginning of a line.
    pub(crate) fn new(out: &'o mut String) -> Self {
        let line = out.len();
        Page { out, line }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub(crate) fn end_line(&mut self) {
        self.out.push('\n');
        self.line = self.out.len();
    }

    pub(crate) fn pad(&mut self, columns: usize) {
        const BLANKS: &str = "                                ";
        let mut left = columns;
        while left > BLANKS.len() {
            self.out.push_str(BLANKS);
            left -= BLANKS.len();
        }
        self.out.push_str(&BLANKS[..left]);
    }

    pub(crate) fn text(&mut self) -> &mut String {
        self.out
    }

    /// Writes a string. `indent` is where its further lines begin, `fold` whether it may have any.
    /// Ends the line.
    pub(crate) fn string_line(&mut self, text: &str, style: Style, indent: usize) {
        if style == Style::Literal {
            self.literal(text, indent);
        } else {
            self.string(text, style, indent, true);
            self.end_line();
        }
    }

    /// Writes a string that is not a literal block.
    pub(crate) fn string(&mut self, text: &str, style: Style, indent: usize, fold: bool) {
        match style {
            Style::Plain if !self.folds(text, fold) => self.push(text),
            Style::Plain => self.quoted(text, indent, fold, false),
            Style::SingleQuoted => {
                self.push("'");
                self.quoted(text, indent, fold, true);
                self.push("'");
            }
            Style::DoubleQuoted | Style::Literal => self.double_quoted(text, indent, fold),
        }
    }

    /// Whether a text may reach beyond the width; bytes stand in for characters.
    fn folds(&self, text: &str, fold: bool) -> bool {
        fold && self.out.len() - self.line + text.len() > WIDTH
    }

    fn column(&self) -> usize {
        self.out[self.line..].chars().count()
    }

    fn break_line(&mut self, indent: usize) {
        self.end_line();
        self.pad(indent);
    }

    /// The inside of a single-quoted string, or a plain one.
    fn quoted(&mut self, text: &str, indent: usize, fold: bool, quotes: bool) {
        let mut column = self.column();
        let mut after_blank = false;
        let mut after_break = false;
        let mut characters = text.char_indices().peekable();
        while let Some((at, c)) = characters.next() {
            if c == ' ' {
                let next = characters.peek().map(|(_, next)| *next);
                let inner = !quotes || at > 0 && next.is_some();
                if fold && !after_blank && column > WIDTH && inner && next != Some(' ') {
                    self.break_line(indent);
                    column = indent;
                } else {
                    self.out.push(' ');
                    column += 1;
                }
                after_blank = true;
            } else if is_break(c) {
                // Only U+2028 and U+2029 get here: the line goes on, but go-yaml counts from zero.
                self.out.push(c);
                column = 0;
                after_break = true;
            } else {
                if after_break {
                    self.pad(indent);
                    column = indent;
                }
                if quotes && c == '\'' {
                    self.out.push('\'');
                    column += 1;
                }
                self.out.push(c);
                column += 1;
                after_blank = false;
                after_break = false;
            }
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, fold: bool) {
        self.out.push('"');
        let mut column = self.column();
        // go-yaml v2: asks of every character whether the *string* begins with a byte order mark.
        let escape_all = text.starts_with('\u{feff}');
        let mut after_blank = false;
        let mut characters = text.char_indices().peekable();
        while let Some((at, c)) = characters.next() {
            if escape_all || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                column += self.escape(c);
                after_blank = false;
            } else if c == ' ' {
                let next = characters.peek().map(|(_, next)| *next);
                if fold && !after_blank && column > WIDTH && at > 0 && next.is_some() {
                    self.break_line(indent);
                    column = indent;
                    if next == Some(' ') {
                        self.out.push('\\');
                        column += 1;
                    }
                } else {
                    self.out.push(' ');
                    column += 1;
                }
                after_blank = true;
            } else {
                self.out.push(c);
                column += 1;
                after_blank = false;
            }
        }
        self.out.push('"');
    }

    /// Writes a character as an escape and says how wide it is.
    fn escape(&mut self, c: char) -> usize {
        use std::fmt::Write;
        let start = self.out.len();
        let short = match c {
            '\0' => "\\0",
            '\x07' => "\\a",
            '\x08' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\x0b' => "\\v",
            '\x0c' => "\\f",
            '\r' => "\\r",
            '\x1b' => "\\e",
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{85}' => "\\N",
            '\u{a0}' => "\\_",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            _ => "",
        };
        self.out.push_str(short);
        if short.is_empty() {
            let _ = match c as u32 {
                code @ ..=0xff => write!(self.out, "\\x{code:02X}"),
                code @ ..=0xffff => write!(self.out, "\\u{code:04X}"),
                code => write!(self.out, "\\U{code:08X}"),
            };
        }
        self.out.len() - start
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with(|c: char| c == ' ' || is_break(c)) {
            self.out.push('2');
        }
        let mut ends = text.chars().rev().map(is_break);
        match (ends.next().unwrap_or(false), ends.next()) {
            (false, _) => self.out.push('-'),
            (true, None | Some(true)) => self.out.push('+'),
            (true, Some(false)) => {}
        }
        self.end_line();
        let mut after_break = true;
        if text.is_ascii() {
            // Without U+2028 and U+2029 there are only lines.
            for line in text.split_inclusive('\n') {
                if line != "\n" {
                    self.pad(indent);
                }
                self.push(line);
            }
            after_break = text.ends_with('\n');
            self.line = self.out.len();
        } else {
            for c in text.chars() {
                if is_break(c) {
                    self.out.push(c);
                } else {
                    if after_break {
                        self.pad(indent);
                    }
                    self.out.push(c);
                }
                after_break = is_break(c);
            }
            self.line = self.out.len();
        }
        if !after_break {
            self.end_line();
        }
    }
}
