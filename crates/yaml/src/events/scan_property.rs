//! Directives, anchors, aliases and tags.

use crate::events::event::SyntaxError;
use crate::events::scan::{Scanner, YamlTokenKind};

type Scan<T = ()> = Result<T, SyntaxError>;

impl<'t> Scanner<'t> {
    /// `%YAML 1.1` or `%TAG !handle! prefix`.
    pub(crate) fn scan_directive(&mut self) -> Scan {
        let start = self.at;
        let context = ("while scanning a directive", start);
        self.at += 1;
        let name = self.word();
        if name.is_empty() {
            return Err(self.error_in(context, "could not find expected directive name"));
        }
        if !self.is_blank_or_end(0) {
            return Err(self.error_in(context, "found unexpected non-alphabetical character"));
        }
        let kind = match name {
            "YAML" => self.scan_version(start)?,
            "TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.error_in(context, "found unknown directive name")),
        };
        self.push(kind, start);
        self.skip_blanks();
        self.skip_comment();
        if !self.is_break_or_end(0) {
            return Err(self.error_in(context, "did not find expected comment or line break"));
        }
        self.skip_break();
        Ok(())
    }

    fn scan_version(&mut self, start: usize) -> Scan<YamlTokenKind<'t>> {
        let context = ("while scanning a %YAML directive", start);
        self.skip_blanks();
        let major = self.version_number(start)?;
        if self.byte(0) != Some(b'.') {
            return Err(self.error_in(context, "did not find expected digit or '.' character"));
        }
        self.at += 1;
        let minor = self.version_number(start)?;
        Ok(YamlTokenKind::YamlDirective { supported: (major, minor) == (1, 1) })
    }

    fn version_number(&mut self, start: usize) -> Scan<u32> {
        let context = ("while scanning a %YAML directive", start);
        let mut number = 0;
        let mut digits = 0;
        while let Some(digit @ b'0'..=b'9') = self.byte(0) {
            digits += 1;
            if digits > 2 {
                return Err(self.error_in(context, "found extremely long version number"));
            }
            number = number * 10 + u32::from(digit - b'0');
            self.at += 1;
        }
        if digits == 0 {
            return Err(self.error_in(context, "did not find expected version number"));
        }
        Ok(number)
    }

    fn scan_tag_directive(&mut self, start: usize) -> Scan<YamlTokenKind<'t>> {
        let context = ("while scanning a %TAG directive", start);
        self.skip_blanks();
        let handle = self.tag_handle(start)?;
        if handle != "!" && !(handle.len() > 1 && handle.ends_with('!')) {
            return Err(self.error_in(context, "did not find expected '!'"));
        }
        if !self.is_blank(0) {
            return Err(self.error_in(context, "did not find expected whitespace"));
        }
        self.skip_blanks();
        let prefix = self.tag_uri("", start)?;
        if !self.is_blank_or_end(0) {
            return Err(self.error_in(context, "did not find expected whitespace or line break"));
        }
        Ok(YamlTokenKind::TagDirective { handle, prefix })
    }

    /// `&name` or `*name`.
    pub(crate) fn scan_anchor(&mut self, alias: bool) -> Scan {
        let start = self.at;
        self.at += 1;
        let name = self.word();
        let ends = self.is_blank_or_end(0)
            || matches!(self.byte(0), Some(b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'));
        if name.is_empty() || !ends {
            let doing = if alias { "while scanning an alias" } else { "while scanning an anchor" };
            let problem = "did not find expected alphabetic or numeric character";
            return Err(self.error_in((doing, start), problem));
        }
        self.push(
            if alias { YamlTokenKind::Alias(name) } else { YamlTokenKind::Anchor(name) },
            start,
        );
        Ok(())
    }

    /// `!`, `!local`, `!!standard`, `!handle!suffix` or `!<verbatim>`.
    pub(crate) fn scan_tag(&mut self) -> Scan {
        let start = self.at;
        let context = ("while scanning a tag", start);
        let (handle, suffix) = if self.byte(1) == Some(b'<') {
            self.at += 2;
            let suffix = self.tag_uri("", start)?;
            if self.byte(0) != Some(b'>') {
                return Err(self.error_in(context, "did not find the expected '>'"));
            }
            self.at += 1;
            ("", suffix)
        } else {
            let handle = self.tag_handle(start)?;
            if handle.len() > 1 && handle.ends_with('!') {
                (handle, self.tag_uri("", start)?)
            } else {
                let suffix = self.tag_uri(handle, start)?;
                if suffix.is_empty() { ("", handle.into()) } else { ("!", suffix) }
            }
        };
        if !self.is_blank_or_end(0) {
            return Err(self.error_in(context, "did not find expected whitespace or line break"));
        }
        self.push(YamlTokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    fn tag_handle(&mut self, start: usize) -> Scan<&'t str> {
        if self.byte(0) != Some(b'!') {
            return Err(self.error_in(("while scanning a tag", start), "did not find expected '!'"));
        }
        let from = self.at;
        self.at += 1;
        self.word();
        if self.byte(0) == Some(b'!') {
            self.at += 1;
        }
        Ok(&self.text[from..self.at])
    }

    /// The rest of a tag; `head` is a handle that turned out to be its beginning.
    fn tag_uri(&mut self, head: &str, start: usize) -> Scan<Box<str>> {
        let mut uri = head.strip_prefix('!').unwrap_or_default().as_bytes().to_vec();
        let from = self.at;
        loop {
            match self.byte(0) {
                Some(b'%') => self.uri_escape(&mut uri, start)?,
                Some(byte) if is_word_byte(byte) || b";/?:@&=+$,.!~*'()[]".contains(&byte) => {
                    uri.push(byte);
                    self.at += 1;
                }
                _ => break,
            }
        }
        if head.is_empty() && self.at == from {
            let context = ("while scanning a tag", start);
            return Err(self.error_in(context, "did not find expected tag URI"));
        }
        let uri = String::from_utf8(uri).map_err(|_| {
            self.error_in(("while scanning a tag", start), "found an incorrect UTF-8 octet")
        })?;
        Ok(uri.into_boxed_str())
    }

    fn uri_escape(&mut self, uri: &mut Vec<u8>, start: usize) -> Scan {
        let digits = self.text.get(self.at + 1..self.at + 3).unwrap_or_default();
        let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        match u8::from_str_radix(digits, 16) {
            Ok(octet) if hex => {
                uri.push(octet);
                self.at += 3;
                Ok(())
            }
            _ => {
                let context = ("while scanning a tag", start);
                Err(self.error_in(context, "did not find URI escaped octet"))
            }
        }
    }

    /// Letters, digits, `_` and `-`.
    fn word(&mut self) -> &'t str {
        let from = self.at;
        while self.byte(0).is_some_and(is_word_byte) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    pub(crate) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.at += 1;
        }
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
