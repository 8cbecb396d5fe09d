//! Sets of characters: Perl's, POSIX's and Unicode's.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// Whether a letter after a backslash names a class.
pub(super) fn is_perl(letter: char) -> bool {
    "dswDSW".contains(letter)
}

/// The class behind `\d`, `\s` or `\w`; capital letters stand for the same, not for the opposite.
pub(super) fn perl(letter: char) -> ClassUnicode {
    from_ranges(match letter {
        'd' | 'D' => &[('0', '9')],
        // Go: the vertical tab is not a space.
        's' | 'S' => &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')],
        _ => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
    })
}

/// The class named inside `[: :]`.
pub(super) fn posix(name: &str) -> Option<ClassUnicode> {
    Some(from_ranges(match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    }))
}

/// A general category or a script, such as `L`, `Letter` or `Greek`.
pub(super) fn unicode(name: &str) -> Option<ClassUnicode> {
    // Only names of these two kinds; the tables of the syntax crate know more than Go.
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_ -".contains(c)) {
        return None;
    }
    if name.eq_ignore_ascii_case("cs") || name.eq_ignore_ascii_case("surrogate") {
        return Some(ClassUnicode::empty());
    }
    ["gc", "sc"].into_iter().find_map(|kind| {
        let hir = regex_syntax::parse(&format!("\\p{{{kind}={name}}}")).ok()?;
        match hir.into_kind() {
            HirKind::Class(Class::Unicode(class)) => Some(class),
            // A class of one character.
            HirKind::Literal(literal) => {
                let c = std::str::from_utf8(&literal.0).ok()?.chars().next()?;
                Some(from_ranges(&[(c, c)]))
            }
            _ => None,
        }
    })
}

/// All characters, or all but the newline.
pub(super) fn any(newline: bool) -> ClassUnicode {
    match newline {
        true => from_ranges(&[('\0', char::MAX)]),
        false => from_ranges(&[('\0', '\x09'), ('\x0b', char::MAX)]),
    }
}

pub(super) fn from_ranges(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|&(first, last)| ClassUnicodeRange::new(first, last)))
}

/// The characters between two code points, without surrogates; `None` when there are none.
pub(super) fn range(first: u32, last: u32) -> Option<(char, char)> {
    let first = if (0xD800..0xE000).contains(&first) { 0xE000 } else { first };
    let last = if (0xD800..0xE000).contains(&last) { 0xD7FF } else { last };
    let (first, last) = (char::from_u32(first)?, char::from_u32(last)?);
    (first <= last).then_some((first, last))
}
