//! Colours. Hosts say what a word means, never how it looks.

use std::io::{self, Write};

/// What a word means to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Good,
    Doubtful,
    Bad,
    /// What the eye may skip.
    Faint,
    /// What a part of the output is about.
    Strong,
    /// A place in a difference.
    Place,
}

impl Style {
    pub(super) fn code(self) -> &'static [u8] {
        match self {
            Style::Good => b"\x1b[32m",
            Style::Doubtful => b"\x1b[33m",
            Style::Bad => b"\x1b[31m",
            Style::Faint => b"\x1b[2m",
            Style::Strong => b"\x1b[1m",
            Style::Place => b"\x1b[36m",
        }
    }

    /// What the word for a result means.
    pub(crate) fn of_result(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "pass" | "ok" | "create" => Some(Style::Good),
            "fail" | "error" | "problem" | "delete" | "deny" | "not done" => Some(Style::Bad),
            "skip" | "warn" | "warning" | "change" | "excluded" => Some(Style::Doubtful),
            "no match" => Some(Style::Faint),
            _ => None,
        }
    }
}

/// Output that may have colours.
pub(crate) trait Paint: Write {
    /// Writes a text in the way that shows what it means; as it is where there are no colours.
    fn paint(&mut self, style: Style, text: &str) -> io::Result<()>;

    /// Writes the word for a result.
    fn result(&mut self, word: &str) -> io::Result<()> {
        match Style::of_result(word) {
            Some(style) => self.paint(style, word),
            None => self.write_all(word.as_bytes()),
        }
    }

    /// Writes a difference, line by line.
    fn difference(&mut self, text: &str) -> io::Result<()> {
        for line in text.split_inclusive('\n') {
            let (body, end) = match line.strip_suffix('\n') {
                Some(body) => (body, "\n"),
                None => (line, ""),
            };
            let style = match body.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Some(Style::Strong),
                [b'@', b'@', ..] => Some(Style::Place),
                [b'+', ..] => Some(Style::Good),
                [b'-', ..] => Some(Style::Bad),
                _ => None,
            };
            match style {
                Some(style) => self.paint(style, body)?,
                None => self.write_all(body.as_bytes())?,
            }
            self.write_all(end.as_bytes())?;
        }
        Ok(())
    }

    /// Writes a line of a trace: its answer is what the eye looks for.
    fn trace(&mut self, line: &str) -> io::Result<()> {
        for (answer, style) in [(": yes", Style::Good), (": no", Style::Bad)] {
            if let Some(at) = line.find(answer)
                && matches!(line[at + answer.len()..].chars().next(), None | Some(' '))
            {
                let (before, rest) = line.split_at(at + 2);
                let (word, after) = rest.split_at(answer.len() - 2);
                self.write_all(before.as_bytes())?;
                self.paint(style, word)?;
                return self.write_all(after.as_bytes());
            }
        }
        self.write_all(line.as_bytes())
    }
}

/// Texts that are put away have no colours.
impl Paint for Vec<u8> {
    fn paint(&mut self, _: Style, text: &str) -> io::Result<()> {
        self.write_all(text.as_bytes())
    }
}
