//! Output for people: what others wrote cannot steer the terminal.

use std::io::{self, Write};

use super::paint::{Paint, Style};

/// Stands for a character that a terminal would obey.
const MARK: &[u8] = "\u{fffd}".as_bytes();
/// The first byte of U+0080 to U+009F, which terminals obey too.
const BEFORE_C1: u8 = 0xc2;

/// Replaces control characters but ends of lines and tabs. Names, messages and files may hold any, so this is done
/// once for everything rather than where each is printed.
pub(crate) struct Clean<W: Write> {
    inner: W,
    /// Whether anything is replaced: JSON and YAML are data, and have escapes of their own.
    on: bool,
    /// A byte whose meaning depends on the next one.
    held: Option<u8>,
    /// Whether words are painted.
    color: bool,
}

impl<W: Write> Clean<W> {
    pub(super) fn new(inner: W, on: bool) -> Self {
        Clean { inner, on, held: None, color: false }
    }

    /// The same with colours.
    pub(super) fn with_color(self, color: bool) -> Self {
        Clean { color, ..self }
    }

    /// Writes what was held back.
    fn let_go(&mut self) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            let mut clean = Vec::new();
            alone(held, &mut clean);
            self.inner.write_all(&clean)?;
        }
        Ok(())
    }
}

/// A byte that turned out to stand alone.
fn alone(byte: u8, clean: &mut Vec<u8>) {
    match byte {
        b'\n' | b'\t' | 0x20..=0x7e | 0x80..=0xff => clean.push(byte),
        _ => clean.extend(MARK),
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.on {
            return self.inner.write(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            match (self.held.take(), byte) {
                (Some(b'\r'), b'\n') => clean.extend(b"\r\n"),
                (Some(BEFORE_C1), 0x80..=0x9f) => clean.extend(MARK),
                (held, byte) => {
                    if let Some(held) = held {
                        alone(held, &mut clean);
                    }
                    match byte {
                        b'\r' | BEFORE_C1 => self.held = Some(byte),
                        byte => alone(byte, &mut clean),
                    }
                }
            }
        }
        self.inner.write_all(&clean)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.let_go()?;
        self.inner.flush()
    }
}

impl<W: Write> Paint for Clean<W> {
    fn paint(&mut self, style: Style, text: &str) -> io::Result<()> {
        if !self.color {
            return self.write_all(text.as_bytes());
        }
        self.let_go()?;
        self.inner.write_all(style.code())?;
        self.write_all(text.as_bytes())?;
        self.let_go()?;
        self.inner.write_all(b"\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&[u8]], on: bool) -> String {
        let mut clean = Clean::new(Vec::new(), on);
        for piece in pieces {
            clean.write_all(piece).unwrap();
        }
        clean.flush().unwrap();
        String::from_utf8(clean.inner).unwrap()
    }

    #[test]
    fn only_our_own_colours_get_through() {
        let hostile = "a\x1b[31mb\u{9b}\r";
        for (color, wanted) in [
            (true, "x\u{fffd}\x1b[32ma\u{fffd}[31mb\u{fffd}\u{fffd}\x1b[0m"),
            (false, "x\u{fffd}a\u{fffd}[31mb\u{fffd}\u{fffd}"),
        ] {
            let mut clean = Clean::new(Vec::new(), true).with_color(color);
            clean.write_all(b"x\r").unwrap();
            clean.paint(Style::Good, hostile).unwrap();
            clean.flush().unwrap();
            assert_eq!(String::from_utf8(clean.inner).unwrap(), wanted);
        }
    }

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        let hostile = "a\x1b[31mb\x07\r over\u{9b}2J é\u{a0}\tc\x7f\r\nd\r";
        let wanted =
            "a\u{fffd}[31mb\u{fffd}\u{fffd} over\u{fffd}2J é\u{a0}\tc\u{fffd}\r\nd\u{fffd}";
        assert_eq!(written(&[hostile.as_bytes()], true), wanted);
        let bytes: Vec<&[u8]> = hostile.as_bytes().chunks(1).collect();
        assert_eq!(written(&bytes, true), wanted, "however it is cut");
        assert_eq!(written(&bytes, false), hostile);
    }
}
