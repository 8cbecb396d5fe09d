//! Comments and what they belong to, by the rules of go-yaml v3.
//!
//! Only who asks for nodes pays for them: a scanner without [`Notes`] goes past comments. With them it looks two
//! tokens further ahead, because a comment below something belongs to that only if nothing follows it.

use crate::events::scan::{Scanner, YamlTokenKind};

/// go-yaml looks this far for the next comment.
const FARTHEST: usize = 512;

/// What was written around a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comments {
    /// On the lines above.
    pub head: String,
    /// Behind it.
    pub line: String,
    /// On the lines below, before an empty one.
    pub foot: String,
}

impl Comments {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.line.is_empty() && self.foot.is_empty()
    }
}

/// The comments that were found.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    found: Vec<Comment>,
    /// How many of them have been handed over.
    handed_over: usize,
    /// Those that stand before the token that was looked at last.
    pub(crate) comments: Comments,
}

#[derive(Debug, Default)]
struct Comment {
    /// Where the search began that found it.
    searched_from: usize,
    /// It belongs to the first token from here on.
    token: usize,
    start: Mark,
    end: usize,
    text: Comments,
}

/// A place; the column counts from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: usize,
    line: isize,
    column: usize,
}

impl Notes {
    /// Hands over what belongs to a token or stands before it.
    pub(crate) fn hand_over(&mut self, start: usize, is_block_end: bool) {
        while let Some(comment) = self.found.get_mut(self.handed_over) {
            // Nothing stands above an end: that waits for the next token.
            if start < comment.token || is_block_end && !comment.text.head.is_empty() {
                return;
            }
            let text = std::mem::take(comment).text;
            let Comments { head, line, foot } = &mut self.comments;
            for (to, text) in [(head, text.head), (foot, text.foot), (line, text.line)] {
                if !to.is_empty() && !text.is_empty() {
                    to.push('\n');
                }
                to.push_str(&text);
            }
            self.handed_over += 1;
        }
    }

    /// Where a block collection with this indentation ends that nothing continues: before the comments that are
    /// written at the indentation of what it stands in.
    pub(crate) fn block_end(&self, indent: isize, mut end: usize) -> usize {
        let mut stop = end;
        for comment in self.found.iter().rev() {
            if comment.end < stop {
                break;
            }
            if comment.start.column as isize == indent + 1 {
                end = comment.start.at;
            }
            stop = comment.searched_from;
        }
        end
    }
}

impl Scanner<'_> {
    /// How many lines have ended since the last thing that is not a blank.
    fn newlines(&self) -> usize {
        let before = self.text[..self.at].chars().rev();
        before
            .take_while(|c| matches!(c, ' ' | '\t') || crate::emitter::style::is_break(*c))
            .filter(|c| !matches!(c, ' ' | '\t'))
            .count()
    }

    /// The token before last, or the one before that; `None` is the beginning of the text.
    fn recent(&self, back: usize) -> Option<(&YamlTokenKind<'_>, usize)> {
        let at = self.queue.len().checked_sub(back + 1)?;
        self.queue.get(at).map(|token| (&token.kind, token.start))
    }

    /// Takes a comment on this line that belongs to the token at `token`.
    pub(crate) fn note_line(&mut self, token: usize) {
        if self.newlines() > 0 {
            return;
        }
        let blanks = self.bytes[self.at..].iter().take(FARTHEST);
        let blanks = blanks.take_while(|b| matches!(b, b' ' | b'\t')).count();
        if blanks == FARTHEST || self.byte(blanks) != Some(b'#') {
            return;
        }
        self.at += blanks;
        let start = Mark { at: self.at, line: self.line as isize, column: self.column() };
        self.skip_line();
        let line = self.text[start.at..self.at].to_owned();
        let text = Comments { line, ..Comments::default() };
        if let Some(notes) = &mut self.notes {
            notes.found.push(Comment { token, start, text, ..Comment::default() });
        }
    }

    /// A comment behind the `-` of a list in a list is one above what follows.
    pub(crate) fn note_item_above(&mut self) {
        let in_list = matches!(self.recent(0), Some((YamlTokenKind::Item, _)))
            && matches!(self.recent(1), Some((YamlTokenKind::BlockListStart, _)));
        if !in_list || self.break_width(0) > 0 {
            return;
        }
        let (at, line) = (self.at, self.line as isize);
        if let Some(comment) = self.notes.as_mut().and_then(|notes| notes.found.last_mut()) {
            if comment.text.line.is_empty() {
                return;
            }
            comment.text.head = std::mem::take(&mut comment.text.line);
            if comment.start.line == line - 1 {
                comment.token = at;
            }
        }
    }

    /// Takes the comments from here on, up to the next thing that is none. `searched_from` is where the search for
    /// a token began, and `first_line` whether that was on the first line.
    pub(crate) fn note_comments(&mut self, searched_from: usize, first_line: bool) {
        let token = match (self.recent(0), self.recent(1)) {
            (Some((YamlTokenKind::Comma, _)), Some(before)) => Some(before),
            (token, _) => token,
        };
        let mut search = Search {
            token: token.map_or(0, |(_, start)| start),
            after_colon: matches!(token, Some((YamlTokenKind::Value, _))),
            searched_from,
            start: Mark::default(),
            text: String::new(),
            found: Vec::new(),
        };
        let newlines = self.newlines();
        let mut indent = self.indent.max(0) as usize;
        let mut recent_empty = false;
        let mut first_empty = newlines <= 1;
        let mut line = self.line as isize;
        let mut column = self.column();
        // Where a comment has to begin to belong to what stands before it.
        let foot_line = match first_line {
            true => -1,
            false => line - newlines as isize + 1 + isize::from(newlines == 0 && column > 1),
        };
        let mut ahead = 0;
        while ahead < FARTHEST {
            column += 1;
            if self.is_blank(ahead) {
                ahead += 1;
                continue;
            }
            let here = self.at + ahead;
            let byte = self.byte(ahead);
            let closes = self.flow_level > 0 && matches!(byte, Some(b']' | b'}'));
            if closes || self.is_break_or_end(ahead) {
                let dedented = search.start.column.wrapping_sub(1) < indent;
                let below = search.start.line == foot_line && !search.after_colon;
                if closes || !recent_empty && first_empty && (below || dedented) {
                    // Only the first lines: what follows an empty one belongs to what comes next.
                    if dedented && !search.text.is_empty() {
                        search.token = search.start.at;
                    }
                    search.foot(here);
                } else if !recent_empty && !search.text.is_empty() && byte.is_some() {
                    search.text.push('\n');
                }
                if self.break_width(ahead) == 0 {
                    break;
                }
                first_empty = false;
                recent_empty = true;
                column = 0;
                line += 1;
                ahead += 1;
                continue;
            }
            if column - 1 < indent && column != search.start.column {
                search.foot(here);
            }
            if byte != Some(b'#') {
                break;
            }
            if search.text.is_empty() {
                search.start = Mark { at: here, line, column };
            } else {
                search.text.push('\n');
            }
            recent_empty = false;
            while self.at < here {
                if !self.skip_break() {
                    self.at += 1;
                }
            }
            self.skip_line();
            search.text.push_str(&self.text[here..self.at]);
            // go-yaml: goes on behind the line break, but on the line of the comment.
            ahead = 1;
            column = 0;
            line = self.line as isize;
            indent = self.indent.max(0) as usize;
        }
        let Search { searched_from, start, text, mut found, .. } = search;
        if !text.is_empty() {
            found.push(Comment {
                searched_from,
                token: start.at,
                start,
                end: (self.at + ahead).saturating_sub(1),
                text: Comments { head: text, ..Comments::default() },
            });
        }
        if let Some(notes) = &mut self.notes {
            notes.found.append(&mut found);
        }
    }
}

/// Comments one below the other, while they are gathered.
struct Search {
    token: usize,
    after_colon: bool,
    searched_from: usize,
    start: Mark,
    text: String,
    found: Vec<Comment>,
}

impl Search {
    /// What has been gathered belongs to what stands before it.
    fn foot(&mut self, end: usize) {
        if self.text.is_empty() {
            return;
        }
        self.found.push(Comment {
            searched_from: self.searched_from,
            token: self.token,
            start: self.start,
            end,
            text: Comments { foot: std::mem::take(&mut self.text), ..Comments::default() },
        });
        self.searched_from = end;
        self.token = end;
    }
}
