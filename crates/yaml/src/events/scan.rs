//! From text to tokens, by the rules of go-yaml's scanner (YAML 1.1 with its line breaks).
//!
//! Whether a token begins a key shows only at the `:` after it. Such tokens wait in the queue until
//! it is clear; a key must end on its line and within 1024 bytes, so the wait is short.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use crate::events::event::{Quoting, SyntaxError};
use crate::notes::Notes;

/// A token and its bytes.
#[derive(Debug)]
pub(crate) struct YamlToken<'t> {
    pub(crate) kind: YamlTokenKind<'t>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a token is.
#[derive(Debug)]
pub(crate) enum YamlTokenKind<'t> {
    StreamEnd,
    YamlDirective {
        supported: bool,
    },
    TagDirective {
        handle: &'t str,
        prefix: Box<str>,
    },
    DocumentStart,
    DocumentEnd,
    BlockListStart,
    BlockMapStart,
    BlockEnd,
    FlowListStart,
    FlowListEnd,
    FlowMapStart,
    FlowMapEnd,
    /// `-`
    Item,
    /// `,`
    Comma,
    Key,
    /// `:`
    Value,
    Alias(&'t str),
    Anchor(&'t str),
    Tag {
        handle: &'t str,
        suffix: Box<str>,
    },
    Scalar {
        text: Cow<'t, str>,
        quoting: Quoting,
    },
}

/// A token that may turn out to begin a key.
#[derive(Clone, Copy, Default)]
struct PossibleKey {
    possible: bool,
    /// In a block map, what stands at its indentation must be a key.
    required: bool,
    number: usize,
    at: usize,
    line: usize,
    column: usize,
}

/// How far a key may reach.
const LONGEST_KEY: usize = 1024;

/// Turns text into tokens.
pub(crate) struct Scanner<'t> {
    pub(crate) text: &'t str,
    pub(crate) bytes: &'t [u8],
    pub(crate) at: usize,
    pub(crate) line: usize,
    pub(crate) line_start: usize,
    /// The line whose first token has ended the block collections that it is left of.
    unrolled_line: usize,
    /// The column of the innermost block collection; -1 outside of all.
    pub(crate) indent: isize,
    indents: Vec<isize>,
    pub(crate) flow_level: usize,
    pub(crate) key_allowed: bool,
    /// For each flow level the token that may begin a key there.
    keys: Vec<PossibleKey>,
    /// Below this level no token waits any more.
    first_waiting: usize,
    pub(crate) queue: VecDeque<YamlToken<'t>>,
    /// How many tokens have left the queue.
    taken: usize,
    /// Whether the first token of the queue is known to be no key, or a key.
    settled: bool,
    pub(crate) first_comment: Option<Range<usize>>,
    /// The comments, for those who want them.
    pub(crate) notes: Option<Box<Notes>>,
}

type Scan<T = ()> = Result<T, SyntaxError>;

impl<'t> Scanner<'t> {
    /// A scanner that begins at this byte, which must be the beginning of a line.
    pub(crate) fn new(text: &'t str, at: usize) -> Self {
        Scanner {
            text,
            bytes: text.as_bytes(),
            at,
            line: 1,
            line_start: at,
            unrolled_line: 0,
            indent: -1,
            indents: Vec::new(),
            flow_level: 0,
            key_allowed: true,
            keys: vec![PossibleKey::default()],
            first_waiting: 0,
            queue: VecDeque::new(),
            taken: 0,
            settled: false,
            first_comment: None,
            notes: None,
        }
    }

    /// The next token, without taking it.
    pub(crate) fn peek(&mut self) -> Scan<&YamlToken<'t>> {
        if !self.settled {
            while self.must_scan_on()? {
                self.scan_token()?;
            }
            self.settled = true;
        }
        if let (Some(notes), Some(token)) = (&mut self.notes, self.queue.front()) {
            notes.hand_over(token.start, matches!(token.kind, YamlTokenKind::BlockEnd));
        }
        // The loop ends only with a token in the queue.
        self.queue.front().ok_or(SyntaxError {
            problem: "unexpected end of the text",
            at: self.at,
            context: None,
        })
    }

    /// Takes the token that was peeked at. The end of the stream stays.
    pub(crate) fn take(&mut self) -> Option<YamlToken<'t>> {
        if matches!(self.queue.front()?.kind, YamlTokenKind::StreamEnd) {
            return None;
        }
        self.settled = false;
        self.taken += 1;
        self.queue.pop_front()
    }

    /// Whether the first token may still turn out to begin a key. Only the outermost waiting token
    /// can be the first in the queue.
    fn must_scan_on(&mut self) -> Scan<bool> {
        // go-yaml v3: comments are distinguished by the two tokens that follow.
        let further = if self.notes.is_some() { 2 } else { 0 };
        if self.queue.len() <= further
            && !matches!(self.queue.back(), Some(YamlToken { kind: YamlTokenKind::StreamEnd, .. }))
        {
            return Ok(true);
        }
        while self.first_waiting < self.keys.len() {
            let key = self.keys[self.first_waiting];
            if key.possible {
                if key.number != self.taken {
                    return Ok(false);
                }
                if self.check_key(self.first_waiting)? {
                    return Ok(true);
                }
            }
            self.first_waiting += 1;
        }
        Ok(false)
    }

    /// Whether the key that may begin at this flow level still may.
    fn check_key(&mut self, level: usize) -> Scan<bool> {
        let key = self.keys[level];
        if !key.possible {
            return Ok(false);
        }
        if key.line == self.line && key.at + LONGEST_KEY >= self.at {
            return Ok(true);
        }
        self.give_up_key(level)?;
        Ok(false)
    }

    fn give_up_key(&mut self, level: usize) -> Scan {
        let key = std::mem::take(&mut self.keys[level]);
        if key.possible && key.required {
            let context = ("while scanning a simple key", key.at);
            return Err(self.error_in(context, "could not find expected ':'"));
        }
        Ok(())
    }

    /// No token before this place begins a key at the current flow level.
    fn remove_key(&mut self) -> Scan {
        self.give_up_key(self.flow_level)
    }

    /// The token that begins here may begin a key.
    fn save_key(&mut self) -> Scan {
        if !self.key_allowed {
            return Ok(());
        }
        self.remove_key()?;
        let column = if self.flow_level == 0 { self.column() } else { 0 };
        self.keys[self.flow_level] = PossibleKey {
            possible: true,
            required: self.flow_level == 0 && self.indent == column as isize,
            number: self.taken + self.queue.len(),
            at: self.at,
            line: self.line,
            column,
        };
        self.first_waiting = self.first_waiting.min(self.flow_level);
        Ok(())
    }

    fn scan_token(&mut self) -> Scan {
        let from = self.at;
        self.skip_to_token();
        // A further token on the same line is deeper than all before it.
        if self.flow_level == 0 && self.line != self.unrolled_line {
            self.unroll_indent(self.column() as isize, from);
            self.unrolled_line = self.line;
        }
        let Some(byte) = self.byte(0) else {
            return self.scan_stream_end();
        };
        if self.at == self.line_start {
            if byte == b'%' {
                return self.scan_directive_token();
            }
            if self.is_document_indicator() {
                let kind = if byte == b'-' {
                    YamlTokenKind::DocumentStart
                } else {
                    YamlTokenKind::DocumentEnd
                };
                self.unroll_indent(-1, self.at);
                self.remove_key()?;
                self.key_allowed = false;
                self.push_indicator(kind, 3);
                return Ok(());
            }
        }
        if self.notes.is_none() {
            return self.scan_content(byte);
        }
        // A comment behind `:` or `,` belongs to what stands before that.
        let joins = if self.flow_level == 0 { byte == b':' } else { byte == b',' };
        let before = self.queue.back().filter(|_| joins).map(|token| token.start);
        let token = before.unwrap_or(self.at);
        self.scan_content(byte)?;
        // One behind `-` belongs to what follows.
        if !matches!(self.queue.back(), Some(YamlToken { kind: YamlTokenKind::Item, .. })) {
            self.note_line(token);
        }
        Ok(())
    }

    fn scan_content(&mut self, byte: u8) -> Scan {
        let flow = self.flow_level > 0;
        match byte {
            b'[' => self.open_flow(YamlTokenKind::FlowListStart),
            b'{' => self.open_flow(YamlTokenKind::FlowMapStart),
            b']' => self.close_flow(YamlTokenKind::FlowListEnd),
            b'}' => self.close_flow(YamlTokenKind::FlowMapEnd),
            b',' => {
                self.remove_key()?;
                self.key_allowed = true;
                self.push_indicator(YamlTokenKind::Comma, 1);
                Ok(())
            }
            b'-' if self.is_blank_or_end(1) => self.scan_item(),
            b'?' if flow || self.is_blank_or_end(1) => self.scan_key(),
            b':' if flow || self.is_blank_or_end(1) => self.scan_value(),
            b'*' | b'&' => {
                self.save_key()?;
                self.key_allowed = false;
                self.scan_anchor(byte == b'*')
            }
            b'!' => {
                self.save_key()?;
                self.key_allowed = false;
                self.scan_tag()
            }
            b'|' | b'>' if !flow => {
                self.remove_key()?;
                self.key_allowed = true;
                let token = self.scan_block_scalar(byte == b'|')?;
                self.queue.push_back(token);
                Ok(())
            }
            b'\'' | b'"' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_quoted_scalar(byte)?;
                self.queue.push_back(token);
                Ok(())
            }
            // In flow, `?` and `:` were taken above; `-` before a blank was an item.
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' => {
                let context = ("while scanning for the next token", self.at);
                Err(self.error_in(context, "found character that cannot start any token"))
            }
            _ => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_plain_scalar()?;
                self.queue.push_back(token);
                Ok(())
            }
        }
    }

    /// Skips blanks, comments and line breaks.
    fn skip_to_token(&mut self) {
        let (from, first_line) = (self.at, self.line <= 1);
        let mut comment_above = false;
        loop {
            // Files that were put one after the other may have more than one byte order mark.
            let outside = self.flow_level == 0 && self.indent < 0;
            if outside
                && self.at == self.line_start
                && self.bytes[self.at..].starts_with(b"\xef\xbb\xbf")
            {
                self.at += 3;
                // Columns count from behind it.
                self.line_start = self.at;
            }
            // A tab may separate, but not indent.
            let tabs = self.flow_level > 0 || !self.key_allowed;
            while matches!(self.byte(0), Some(b' ')) || tabs && self.byte(0) == Some(b'\t') {
                self.at += 1;
            }
            // go-yaml v3: below a comment, a tab may stand before another one.
            if comment_above && self.byte(0) == Some(b'\t') {
                let blanks = self.bytes[self.at..].iter().take_while(|b| matches!(b, b' ' | b'\t'));
                let blanks = blanks.count();
                self.at += if self.byte(blanks) == Some(b'#') { blanks } else { 0 };
            }
            comment_above = self.byte(0) == Some(b'#')
                && self.bytes[self.line_start..self.at].iter().all(u8::is_ascii_whitespace);
            if self.notes.is_some() {
                self.note_item_above();
                if self.byte(0) == Some(b'#') {
                    self.note_comments(from, first_line);
                }
            }
            self.skip_comment();
            if !self.skip_break() {
                return;
            }
            if self.flow_level == 0 {
                self.key_allowed = true;
            }
        }
    }

    pub(crate) fn skip_comment(&mut self) {
        if self.byte(0) == Some(b'#') {
            let start = self.at;
            self.skip_line();
            self.first_comment.get_or_insert(start..self.at);
        }
    }

    fn scan_stream_end(&mut self) -> Scan {
        self.line += 1;
        self.line_start = self.at;
        self.unroll_indent(-1, self.at);
        self.remove_key()?;
        self.key_allowed = false;
        self.push(YamlTokenKind::StreamEnd, self.at);
        Ok(())
    }

    fn open_flow(&mut self, kind: YamlTokenKind<'t>) -> Scan {
        self.save_key()?;
        self.keys.push(PossibleKey::default());
        self.flow_level += 1;
        self.key_allowed = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn close_flow(&mut self, kind: YamlTokenKind<'t>) -> Scan {
        self.remove_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            self.keys.pop();
            self.first_waiting = self.first_waiting.min(self.flow_level);
        }
        self.key_allowed = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn scan_item(&mut self) -> Scan {
        if self.flow_level == 0 {
            if !self.key_allowed {
                return Err(self.error("block sequence entries are not allowed in this context"));
            }
            self.roll_indent(self.column(), None, YamlTokenKind::BlockListStart, self.at);
        }
        self.remove_key()?;
        self.key_allowed = true;
        self.push_indicator(YamlTokenKind::Item, 1);
        Ok(())
    }

    fn scan_key(&mut self) -> Scan {
        if self.flow_level == 0 {
            if !self.key_allowed {
                return Err(self.error("mapping keys are not allowed in this context"));
            }
            self.roll_indent(self.column(), None, YamlTokenKind::BlockMapStart, self.at);
        }
        self.remove_key()?;
        self.key_allowed = self.flow_level == 0;
        self.push_indicator(YamlTokenKind::Key, 1);
        Ok(())
    }

    fn scan_value(&mut self) -> Scan {
        if self.check_key(self.flow_level)? {
            let key = std::mem::take(&mut self.keys[self.flow_level]);
            let token = YamlToken { kind: YamlTokenKind::Key, start: key.at, end: key.at };
            self.insert(key.number, token);
            self.roll_indent(key.column, Some(key.number), YamlTokenKind::BlockMapStart, key.at);
            self.key_allowed = false;
        } else {
            if self.flow_level == 0 {
                if !self.key_allowed {
                    return Err(self.error("mapping values are not allowed in this context"));
                }
                self.roll_indent(self.column(), None, YamlTokenKind::BlockMapStart, self.at);
            }
            self.key_allowed = self.flow_level == 0;
        }
        self.push_indicator(YamlTokenKind::Value, 1);
        Ok(())
    }

    /// Begins a block collection if this column is deeper than the one that is open.
    fn roll_indent(
        &mut self,
        column: usize,
        number: Option<usize>,
        kind: YamlTokenKind<'t>,
        at: usize,
    ) {
        if self.flow_level > 0 || self.indent >= column as isize {
            return;
        }
        self.indents.push(self.indent);
        self.indent = column as isize;
        let token = YamlToken { kind, start: at, end: at };
        match number {
            Some(number) => self.insert(number, token),
            None => self.queue.push_back(token),
        }
    }

    /// Ends the block collections that are deeper than this column.
    fn unroll_indent(&mut self, column: isize, from: usize) {
        if self.flow_level > 0 {
            return;
        }
        let mut end = from.saturating_sub(1);
        while self.indent > column {
            match &self.notes {
                None => self.push(YamlTokenKind::BlockEnd, self.at),
                Some(notes) => {
                    end = notes.block_end(self.indent, end);
                    let token = YamlToken { kind: YamlTokenKind::BlockEnd, start: end, end };
                    self.queue.push_back(token);
                }
            }
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    /// Puts a token before the one with this number, which is still in the queue.
    fn insert(&mut self, number: usize, token: YamlToken<'t>) {
        let position = number.saturating_sub(self.taken).min(self.queue.len());
        self.queue.insert(position, token);
    }

    fn push_indicator(&mut self, kind: YamlTokenKind<'t>, width: usize) {
        let start = self.at;
        self.at += width;
        self.push(kind, start);
    }

    pub(crate) fn push(&mut self, kind: YamlTokenKind<'t>, start: usize) {
        self.queue.push_back(YamlToken { kind, start, end: self.at });
    }

    fn scan_directive_token(&mut self) -> Scan {
        self.unroll_indent(-1, self.at);
        self.remove_key()?;
        self.key_allowed = false;
        self.scan_directive()
    }

    /// The byte this far ahead.
    pub(crate) fn byte(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// The column of the current place, in characters.
    pub(crate) fn column(&self) -> usize {
        let before = &self.bytes[self.line_start..self.at];
        // What continues a character does not count.
        before.iter().filter(|b| **b & 0xc0 != 0x80).count()
    }

    /// How many bytes the line break this far ahead has; 0 if there is none.
    pub(crate) fn break_width(&self, ahead: usize) -> usize {
        match self.bytes.get(self.at + ahead..) {
            Some([b'\n', ..]) => 1,
            Some([b'\r', b'\n', ..]) => 2,
            Some([b'\r', ..]) => 1,
            Some([0xc2, 0x85, ..]) => 2,
            Some([0xe2, 0x80, 0xa8 | 0xa9, ..]) => 3,
            _ => 0,
        }
    }

    pub(crate) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), Some(b' ' | b'\t'))
    }

    pub(crate) fn is_blank_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead).is_none() || self.is_blank(ahead) || self.break_width(ahead) > 0
    }

    pub(crate) fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead).is_none() || self.break_width(ahead) > 0
    }

    /// Goes past a line break, if there is one.
    pub(crate) fn skip_break(&mut self) -> bool {
        let width = self.break_width(0);
        if width == 0 {
            return false;
        }
        self.at += width;
        self.line += 1;
        self.line_start = self.at;
        true
    }

    /// Goes past a line break and says what it reads as.
    pub(crate) fn read_break(&mut self) -> Option<char> {
        let read = match self.bytes.get(self.at + 2) {
            Some(0xa8) if self.break_width(0) == 3 => '\u{2028}',
            Some(0xa9) if self.break_width(0) == 3 => '\u{2029}',
            _ => '\n',
        };
        self.skip_break().then_some(read)
    }

    /// `---` or `...` at the beginning of a line.
    pub(crate) fn is_document_indicator(&self) -> bool {
        self.at == self.line_start
            && matches!(self.bytes.get(self.at..self.at + 3), Some(b"---" | b"..."))
            && self.is_blank_or_end(3)
    }

    #[cold]
    pub(crate) fn error(&self, problem: &'static str) -> SyntaxError {
        SyntaxError { problem, at: self.at, context: None }
    }

    #[cold]
    pub(crate) fn error_in(
        &self,
        context: (&'static str, usize),
        problem: &'static str,
    ) -> SyntaxError {
        SyntaxError { problem, at: self.at, context: Some(context) }
    }
}
