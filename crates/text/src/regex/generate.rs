//! Texts that match a regular expression, made by chance.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

use super::{Output, OutputTooLarge, SyntaxError, parse};

/// How much longer than its minimum an unbounded repetition may become.
const MOST_REPEATED: u32 = 32;
/// How many parts a text may be put together from; also those that turn out empty.
const MOST_PARTS: u32 = 1 << 20;

/// Makes texts that match a regular expression.
///
/// Alternatives and the characters of a class are equally likely. Of a class that has printable
/// ASCII characters only those are taken, so `.` and `[^a]` give what people can read. `*`, `+` and
/// `{n,}` repeat at most 32 times more than they must. Assertions such as `^` add nothing.
#[derive(Clone, Debug)]
pub struct Generator {
    hir: Hir,
}

impl Generator {
    /// Reads an expression.
    ///
    /// # Errors
    /// As [`Regex::new`](super::Regex::new).
    pub fn new(pattern: &str) -> Result<Self, SyntaxError> {
        parse::parse(pattern).map(|(hir, _)| Generator { hir })
    }

    /// Makes a text from random bits.
    ///
    /// # Errors
    /// When the text would have more than a million parts, or with the error of `bits`.
    pub fn generate<E: From<OutputTooLarge>>(
        &self,
        bits: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<String, E> {
        let mut out = Output::default();
        write(&self.hir, bits, &mut out, &mut { MOST_PARTS })?;
        Ok(out.text)
    }
}

/// Recurses as deep as the expression nests, which the parser limits.
fn write<E: From<OutputTooLarge>>(
    hir: &Hir,
    bits: &mut dyn FnMut() -> Result<u64, E>,
    out: &mut Output,
    left: &mut u32,
) -> Result<(), E> {
    *left = left.checked_sub(1).ok_or(OutputTooLarge)?;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Ok(()),
        HirKind::Literal(literal) => Ok(out.push(&String::from_utf8_lossy(&literal.0))?),
        HirKind::Class(class) => match pick(class, bits)? {
            Some(c) => Ok(out.push(c.encode_utf8(&mut [0; 4]))?),
            None => Ok(()),
        },
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min.saturating_add(MOST_REPEATED));
            let span = u64::from(most.saturating_sub(repetition.min)) + 1;
            let extra = if span > 1 { bits()? % span } else { 0 };
            for _ in 0..u64::from(repetition.min) + extra {
                write(&repetition.sub, bits, out, left)?;
            }
            Ok(())
        }
        HirKind::Capture(capture) => write(&capture.sub, bits, out, left),
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, bits, out, left)),
        HirKind::Alternation(parts) => {
            let at = bits()? % parts.len().max(1) as u64;
            parts.get(at as usize).map_or(Ok(()), |part| write(part, bits, out, left))
        }
    }
}

fn pick<E>(class: &Class, bits: &mut dyn FnMut() -> Result<u64, E>) -> Result<Option<char>, E> {
    let Class::Unicode(class) = class else {
        return Ok(None);
    };
    let mut readable = ClassUnicode::new([ClassUnicodeRange::new(' ', '~')]);
    readable.intersect(class);
    let class = if readable.ranges().is_empty() { class } else { &readable };
    let count: u64 = class.ranges().iter().map(|range| range.len() as u64).sum();
    if count == 0 {
        return Ok(None);
    }
    let mut at = bits()? % count;
    for range in class.ranges() {
        let length = range.len() as u64;
        if at < length {
            return Ok((range.start()..=range.end()).nth(at as usize));
        }
        at -= length;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Regex;

    #[test]
    fn what_is_made_matches() {
        let mut state = 1_u64;
        let mut bits = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            Ok::<u64, OutputTooLarge>(state >> 11)
        };
        for pattern in [
            "^abc$",
            "[a-z]{5}",
            "[0-9]{3}-x",
            "(a|b|)+c?",
            ".*",
            r"\d+\.\w{2,4}",
            "[^a-z]{3}",
            "(?i)straße",
            r"\p{Greek}{4}",
            "(?P<x>[[:alpha:]]){2,}",
            "",
        ] {
            let whole = Regex::new(&format!("^(?s:{pattern})$")).unwrap();
            let generator = Generator::new(pattern).unwrap();
            for _ in 0..50 {
                let text = generator.generate(&mut bits).unwrap();
                assert!(whole.is_match(&text), "{pattern}: {text:?}");
            }
        }
    }

    #[test]
    fn the_length_is_bounded() {
        let generator = Generator::new("(((((x{99}){10})*)*)*)*").unwrap();
        let made = generator.generate(&mut || Ok::<u64, OutputTooLarge>(32));
        assert_eq!(made, Err(OutputTooLarge));
        let empty = Generator::new(&("(".repeat(60) + "x?" + &")*".repeat(60))).unwrap();
        assert_eq!(empty.generate(&mut || Ok(32)), Err(OutputTooLarge));
    }
}
