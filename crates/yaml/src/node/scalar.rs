//! What go-yaml v3 finds in a scalar before it writes it.

use crate::emitter::style::{is_break, is_printable};

/// Which styles can hold a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScalarShape {
    pub(super) multiline: bool,
    pub(super) plain_in_flow: bool,
    pub(super) plain_in_block: bool,
    pub(super) single_quoted: bool,
    pub(super) block: bool,
}

impl ScalarShape {
    pub(super) fn of(text: &str) -> ScalarShape {
        if text.is_empty() {
            return ScalarShape {
                multiline: false,
                plain_in_flow: false,
                plain_in_block: true,
                single_quoted: true,
                block: false,
            };
        }
        let document = text.starts_with("---") || text.starts_with("...");
        let (mut in_block, mut in_flow) = (document, document);
        let (mut line_breaks, mut special, mut tabs) = (false, false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut previous = None;
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            let before_blank = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            let first = previous.is_none();
            let after_blank = previous.is_none_or(|p| matches!(p, ' ' | '\t') || is_break(p));
            match c {
                '#' if first || after_blank => (in_block, in_flow) = (true, true),
                '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' if first => {
                    (in_block, in_flow) = (true, true);
                }
                ',' | '[' | ']' | '{' | '}' => {
                    in_flow = true;
                    in_block |= first;
                }
                '?' => {
                    in_flow = true;
                    in_block |= first && before_blank;
                }
                ':' => {
                    in_flow = true;
                    in_block |= before_blank;
                }
                '-' if first && before_blank => (in_block, in_flow) = (true, true),
                _ => {}
            }
            if c == '\t' {
                tabs = true;
            } else {
                special |= !is_printable(c);
            }
            if c == ' ' {
                break_space |= previous.is_some_and(is_break);
            } else if is_break(c) {
                line_breaks = true;
                space_break |= previous == Some(' ');
            }
            previous = Some(c);
        }
        let edge = |c: char| c == ' ' || is_break(c);
        let edges = text.starts_with(edge) || text.ends_with(edge);
        let quotes_break = break_space || space_break || tabs || special;
        let plain = !(edges || quotes_break || line_breaks);
        ScalarShape {
            multiline: line_breaks,
            plain_in_flow: plain && !in_flow,
            plain_in_block: plain && !in_block,
            single_quoted: !quotes_break,
            block: !(text.ends_with(' ') || space_break || special),
        }
    }
}

/// What stands behind the backslash for a character in double quotes.
pub(super) fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match c as u32 {
                code @ ..=0xff => format!("x{code:02X}"),
                code @ ..=0xffff => format!("u{code:04X}"),
                code => format!("U{code:08X}"),
            };
        }
    };
    short.to_string()
}

/// Whether a character needs an escape in double quotes.
pub(super) fn needs_escape(c: char) -> bool {
    !is_printable(c) || is_break(c) || matches!(c, '"' | '\\')
}
