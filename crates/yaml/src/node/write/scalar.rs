//! How scalars are written: in which style, and the characters of each style.

use super::Emitter;
use crate::emitter::style::is_break;
use crate::node::scalar::{ScalarShape, escape, needs_escape};
use crate::node::{Node, NodeStyle};

impl Emitter {
    pub(super) fn scalar_style(&self, node: &Node, force_quotes: bool) -> NodeStyle {
        let shape = ScalarShape::of(&node.value);
        let wanted = [
            NodeStyle::DOUBLE_QUOTED,
            NodeStyle::SINGLE_QUOTED,
            NodeStyle::LITERAL,
            NodeStyle::FOLDED,
        ];
        // The style that the node had comes first, then what its text allows. Each step only goes to a style that takes more texts;
        // double quotes, the last of them, take all.
        let wanted = wanted.into_iter().find(|style| node.style.has(*style));
        let mut style = match wanted {
            Some(style) => style,
            None if node.value.contains('\n') => NodeStyle::LITERAL,
            None if force_quotes => NodeStyle::DOUBLE_QUOTED,
            None => NodeStyle::default(),
        };
        if self.simple_key && shape.multiline {
            style = NodeStyle::DOUBLE_QUOTED;
        }
        let in_flow = self.flow_level > 0;
        if style == NodeStyle::default() {
            let allowed = if in_flow { shape.plain_in_flow } else { shape.plain_in_block };
            if !allowed || node.value.is_empty() && (in_flow || self.simple_key) {
                style = NodeStyle::SINGLE_QUOTED;
            }
        }
        if style == NodeStyle::SINGLE_QUOTED && !shape.single_quoted {
            style = NodeStyle::DOUBLE_QUOTED;
        }
        let is_block = style == NodeStyle::LITERAL || style == NodeStyle::FOLDED;
        if is_block && (!shape.block || in_flow || self.simple_key) {
            style = NodeStyle::DOUBLE_QUOTED;
        }
        style
    }

    pub(super) fn scalar(&mut self, text: &str, style: NodeStyle) {
        match style {
            NodeStyle::SINGLE_QUOTED => self.single_quoted(text),
            NodeStyle::DOUBLE_QUOTED => self.double_quoted(text),
            NodeStyle::LITERAL => self.literal(text),
            NodeStyle::FOLDED => self.folded(text),
            // Plain text has no line breaks.
            _ => {
                if !text.is_empty() {
                    if !self.whitespace {
                        self.put(' ');
                    }
                    self.write(text);
                    self.whitespace = false;
                }
                self.indention = false;
            }
        }
    }

    fn single_quoted(&mut self, text: &str) {
        self.indicator("'", true, false, false);
        let mut breaks = false;
        for c in text.chars() {
            if is_break(c) {
                if !breaks && c == '\n' {
                    self.end_line();
                }
                self.write_break(c);
                breaks = true;
                continue;
            }
            if breaks && c != ' ' {
                self.line_up();
            }
            if c == '\'' {
                self.put('\'');
            }
            self.put(c);
            if c != ' ' {
                self.indention = false;
                breaks = false;
            }
        }
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn double_quoted(&mut self, text: &str) {
        self.indicator("\"", true, false, false);
        for c in text.chars() {
            if needs_escape(c) {
                self.put('\\');
                self.write(&escape(c));
            } else {
                self.put(c);
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn block_hints(&mut self, text: &str) {
        // A reader takes leading blanks for indentation, unless the indentation is written.
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut end = text.chars().rev();
        // How the text ends: without a line break, with one (which is what readers expect), or with more than one.
        let keep = match (end.next().is_some_and(is_break), end.next()) {
            (false, _) => "-",
            (true, None) => "+",
            (true, Some(c)) if is_break(c) => "+",
            (true, _) => return,
        };
        self.indicator(keep, false, false, false);
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        self.block_hints(text);
        self.line(true);
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                breaks = true;
                continue;
            }
            if breaks {
                self.line_up();
            }
            self.put(c);
            self.indention = false;
            breaks = false;
        }
    }

    fn folded(&mut self, text: &str) {
        self.indicator(">", true, false, false);
        self.block_hints(text);
        self.line(true);
        self.whitespace = true;
        // go-yaml: looks at the beginning of the text, wherever the line break is.
        let begins_blank = text.trim_start_matches(is_break).starts_with([' ', '\t']);
        let mut breaks = true;
        let mut leading_blanks = true;
        for c in text.chars() {
            if is_break(c) {
                if !breaks && !leading_blanks && c == '\n' && !begins_blank {
                    self.end_line();
                }
                self.write_break(c);
                breaks = true;
                continue;
            }
            if breaks {
                self.line_up();
                leading_blanks = matches!(c, ' ' | '\t');
            }
            self.put(c);
            self.indention = false;
            breaks = false;
        }
    }
}
