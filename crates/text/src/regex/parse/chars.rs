//! Single characters and sets of them: escapes, named classes, and classes in brackets.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::super::class;
use super::{RegexParser, Result, SyntaxError};

impl RegexParser<'_> {
    pub(super) fn perl_class(&mut self, letter: char) -> ClassUnicode {
        self.at += 2;
        self.finish_class(class::perl(letter), letter.is_ascii_uppercase())
    }

    /// A named class with other cases, if they do not matter, or without its characters.
    // Go: case is folded before a class is negated.
    fn finish_class(&self, mut class: ClassUnicode, negated: bool) -> ClassUnicode {
        if self.flags.fold_case {
            class.case_fold_simple();
        }
        if negated {
            class.negate();
        }
        class
    }

    pub(super) fn unicode_class(&mut self) -> Result<ClassUnicode> {
        let start = self.at;
        self.at += 1;
        let mut negated = self.next() == Some('P');
        let problem = "invalid character class range";
        let mut name = match self.next() {
            Some('{') => {
                let Some(length) = self.rest().find('}') else {
                    self.at = self.pattern.len();
                    return self.error_from(problem, start);
                };
                let name = &self.rest()[..length];
                self.at += length + 1;
                name
            }
            Some(_) => &self.pattern[start + 2..self.at],
            None => return self.error_from(problem, start),
        };
        if let Some(after) = name.strip_prefix('^') {
            negated = !negated;
            name = after;
        }
        match class::unicode(name) {
            Some(class) => Ok(self.finish_class(class, negated)),
            None => self.error_from(problem, start),
        }
    }

    /// Reads an escape that stands for one character; an inner error is a surrogate, which no text
    /// contains.
    pub(super) fn escaped_char(&mut self) -> Result<Result<char, u32>> {
        let start = self.at;
        self.at += 1;
        let problem = "invalid escape sequence";
        let Some(c) = self.next() else {
            self.at = start;
            return Err(SyntaxError::new("trailing backslash at end of expression", ""));
        };
        let code = match c {
            '0'..='7' => {
                // A single digit other than 0 would be a back-reference.
                if c != '0' && !self.rest().starts_with(|c: char| c.is_digit(8)) {
                    return self.error_from(problem, start);
                }
                let mut code = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
                    self.at += 1;
                    code = code * 8 + digit;
                }
                code
            }
            'x' => match self.hexadecimal() {
                Some(code) => code,
                None => return self.error_from(problem, start),
            },
            'a' => 7,
            'f' => 0x0C,
            'n' => 0x0A,
            'r' => 0x0D,
            't' => 0x09,
            'v' => 0x0B,
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => u32::from(c),
            _ => return self.error_from(problem, start),
        };
        Ok(char::from_u32(code).ok_or(code))
    }

    /// Two digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<u32> {
        if !self.eat("{") {
            let (high, low) = (self.next()?.to_digit(16)?, self.next()?.to_digit(16)?);
            return Some(high * 16 + low);
        }
        let mut code = 0_u32;
        let mut digits = 0;
        loop {
            match self.next()? {
                '}' if digits > 0 => return Some(code),
                c => code = code * 16 + c.to_digit(16)?,
            }
            digits += 1;
            if code > u32::from(char::MAX) {
                return None;
            }
        }
    }

    pub(super) fn bracket(&mut self) -> Result<ClassUnicode> {
        let start = self.at;
        self.at += 1;
        let negated = self.eat("^");
        let mut class = ClassUnicode::empty();
        let mut first = true;
        loop {
            let item = self.at;
            match self.peek() {
                None => {
                    self.at = self.pattern.len();
                    return self.error_from("missing closing ]", start);
                }
                Some(']') if !first => {
                    self.at += 1;
                    break;
                }
                Some('[') if self.rest().starts_with("[:") && self.rest().contains(":]") => {
                    let length = self.rest().find(":]").unwrap_or(2);
                    let name = self.rest()[2..].get(..length.saturating_sub(2)).unwrap_or("");
                    self.at += length + 2;
                    let (negated, name) = match name.strip_prefix('^') {
                        Some(name) => (true, name),
                        None => (false, name),
                    };
                    let Some(named) = class::posix(name) else {
                        return self.error_from("invalid character class range", item);
                    };
                    let named = self.finish_class(named, negated);
                    self.union(&mut class, &named)?;
                }
                Some('\\') => match self.rest()[1..].chars().next() {
                    Some('p' | 'P') => {
                        let named = self.unicode_class()?;
                        self.union(&mut class, &named)?;
                    }
                    Some(letter) if class::is_perl(letter) => {
                        let named = self.perl_class(letter);
                        self.union(&mut class, &named)?;
                    }
                    _ => self.class_range(start, &mut class)?,
                },
                Some(_) => self.class_range(start, &mut class)?,
            }
            first = false;
        }
        if negated {
            class.negate();
        }
        Ok(class)
    }

    fn union(&mut self, class: &mut ClassUnicode, other: &ClassUnicode) -> Result<()> {
        self.grow(other.ranges().len())?;
        class.union(other);
        Ok(())
    }

    /// Reads one character or a range of them.
    fn class_range(&mut self, start: usize, class: &mut ClassUnicode) -> Result<()> {
        let item = self.at;
        let first = self.class_char(start)?;
        let mut last = first;
        // A dash before the closing bracket stands for itself.
        if self.rest().starts_with('-') && !self.rest().starts_with("-]") && self.rest().len() > 1 {
            self.at += 1;
            last = self.class_char(start)?;
            if last < first {
                return self.error_from("invalid character class range", item);
            }
        }
        self.grow(1)?;
        if let Some((first, last)) = class::range(first, last) {
            if self.flags.fold_case {
                let mut folded = class::from_ranges(&[(first, last)]);
                folded.case_fold_simple();
                self.grow(folded.ranges().len())?;
                class.union(&folded);
            } else {
                class.push(ClassUnicodeRange::new(first, last));
            }
        }
        Ok(())
    }

    fn class_char(&mut self, start: usize) -> Result<u32> {
        match self.peek() {
            None => self.error_from("missing closing ]", start),
            Some('\\') => Ok(self.escaped_char()?.map_or_else(|code| code, u32::from)),
            Some(c) => {
                self.at += c.len_utf8();
                Ok(u32::from(c))
            }
        }
    }
}
