//! Ranges of versions: comparators joined by spaces (all must hold) and `||` (one must hold).
//!
//! `x` stands in the last place only: `1.x`, `1.2.x`. There is no `^`, `~`, `*` or comma.

use super::{ParseVersionError, Version};
use crate::quote::quote;

/// A condition on versions.
#[derive(Clone, Debug)]
pub struct Range {
    alternatives: Vec<Vec<(Comparator, Version)>>,
}

#[derive(Clone, Copy, Debug)]
enum Comparator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// Why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRangeError {
    /// Nothing to compare with, at all or between two `||`.
    #[error("range has no version on one side of '||' or at all")]
    Empty,
    /// A comparator without a version behind it.
    #[error("could not get version from string: {0}")]
    NoVersion(String),
    /// An operator that does not exist, such as `^`.
    #[error(
        "could not parse comparator {operator} in {part}; use one of =, ==, !, !=, <, <=, >, >="
    )]
    Comparator {
        /// The operator, quoted.
        operator: String,
        /// The part of the range, quoted.
        part: String,
    },
    /// A version that is not strict.
    #[error("could not parse version {version} in range: {reason}")]
    Version {
        /// The version, quoted.
        version: String,
        /// What is wrong with it.
        reason: ParseVersionError,
    },
}

impl Range {
    /// Reads a range.
    ///
    /// # Errors
    /// When it is empty, an operator is unknown or a version incomplete.
    pub fn parse(text: &str) -> Result<Self, ParseRangeError> {
        let parts = split(text);
        let alternatives = parts.split(|part| part == "||").map(|alternative| {
            if alternative.is_empty() {
                return Err(ParseRangeError::Empty);
            }
            let mut all = Vec::new();
            for part in alternative {
                compile(part, &mut all)?;
            }
            Ok(all)
        });
        Ok(Range { alternatives: alternatives.collect::<Result<_, _>>()? })
    }

    /// Whether the version lies in the range.
    pub fn contains(&self, version: &Version) -> bool {
        let holds = |(comparator, bound): &(Comparator, Version)| match comparator {
            Comparator::Equal => version == bound,
            Comparator::NotEqual => version != bound,
            Comparator::Greater => version > bound,
            Comparator::GreaterOrEqual => version >= bound,
            Comparator::Less => version < bound,
            Comparator::LessOrEqual => version <= bound,
        };
        self.alternatives.iter().any(|all| all.iter().all(holds))
    }
}

/// Splits at spaces, except those after an operator, so that `>= 1.0.0` is one part.
// blang/semver: parts of one character vanish, and `!` does not bind over a space.
fn split(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut spaces = 0;
    for c in text.chars().chain([' ']) {
        if c != ' ' {
            part.push(c);
        } else if part.ends_with(['>', '<', '=']) {
            spaces += 1;
        } else {
            if part.len() + spaces > 1 {
                parts.push(std::mem::take(&mut part));
            }
            part.clear();
            spaces = 0;
        }
    }
    // One space too many was counted at the end.
    if part.len() + spaces > 2 {
        parts.push(part);
    }
    parts
}

fn compile(part: &str, all: &mut Vec<(Comparator, Version)>) -> Result<(), ParseRangeError> {
    let digit = part.find(|c: char| c.is_ascii_digit());
    let Some(digit) = digit else { return Err(ParseRangeError::NoVersion(quote(part))) };
    let (operator, version) = part.split_at(digit);
    let parse = |version: &str| {
        Version::parse(version)
            .map_err(|reason| ParseRangeError::Version { version: quote(version), reason })
    };
    let comparator = match operator {
        "" | "=" | "==" => Comparator::Equal,
        "!" | "!=" => Comparator::NotEqual,
        ">" => Comparator::Greater,
        ">=" => Comparator::GreaterOrEqual,
        "<" => Comparator::Less,
        "<=" => Comparator::LessOrEqual,
        // blang/semver: with an `x`, an operator it does not know counts as none, and `^1.x` is 1.0.0.
        _ if part.contains('x') => {
            all.push((Comparator::Equal, parse(&lowest(version))?));
            return Ok(());
        }
        _ => {
            let (operator, part) = (quote(operator), quote(part));
            return Err(ParseRangeError::Comparator { operator, part });
        }
    };
    if !part.contains('x') {
        all.push((comparator, parse(version)?));
        return Ok(());
    }
    let lowest = parse(&lowest(version))?;
    // The first version after all that the `x` stands for.
    let next = || {
        let places: Vec<&str> = version.split('.').collect();
        let mut next = lowest.clone();
        let number = match places.as_slice() {
            [_, "x"] => &mut next.major,
            [_, _, "x"] => &mut next.minor,
            _ => return Err(ParseRangeError::NoVersion(quote(part))),
        };
        *number = number.checked_add(1).ok_or(ParseRangeError::NoVersion(quote(part)))?;
        Ok(next)
    };
    match comparator {
        Comparator::Greater => all.push((Comparator::GreaterOrEqual, next()?)),
        Comparator::LessOrEqual => all.push((Comparator::Less, next()?)),
        Comparator::GreaterOrEqual | Comparator::Less => all.push((comparator, lowest)),
        Comparator::Equal => {
            all.push((Comparator::Less, next()?));
            all.push((Comparator::GreaterOrEqual, lowest));
        }
        // blang/semver: both bounds must hold, so `!=1.x` is true for no version.
        Comparator::NotEqual => {
            all.push((Comparator::GreaterOrEqual, next()?));
            all.push((Comparator::Less, lowest));
        }
    }
    Ok(())
}

/// The first version that an `x` stands for.
fn lowest(version: &str) -> String {
    let lowest = version.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    if lowest.matches('.').count() == 1 { lowest + ".0" } else { lowest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_where_they_should() {
        for (range, inside, outside) in [
            ("1.2.3", "1.2.3", "1.2.4"),
            ("!1.2.3", "1.2.4", "1.2.3"),
            (">=1.2.3 <2.0.0", "1.9.9", "2.0.0"),
            (">= 1.2.3 < 2.0.0", "1.2.3", "1.2.2"),
            ("<1.0.0 || 3.x", "3.9.9", "1.0.0"),
            ("<1.0.0 || >=3.0.0 !4.2.1", "4.2.2", "4.2.1"),
            ("1.2.x", "1.2.9", "1.3.0"),
            (">1.2.x", "1.3.0", "1.2.9"),
            ("<=1.x", "1.99.0", "2.0.0"),
            ("<1.x", "1.0.0-rc1", "1.0.0"),
            ("1.x.x", "1.0.5", "1.1.0"),
            (">1.0.0-alpha", "1.0.0-beta", "1.0.0-alpha"),
            ("^1.x", "1.0.0", "1.0.1"),
        ] {
            let parsed = Range::parse(range).unwrap_or_else(|e| panic!("{range}: {e}"));
            assert!(parsed.contains(&Version::parse(inside).unwrap()), "{inside} in {range}");
            assert!(!parsed.contains(&Version::parse(outside).unwrap()), "{outside} in {range}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for range in [
            "",
            " ",
            "5",
            "x",
            "1.2",
            ">=1",
            "^1.2.3",
            "~1.2.3",
            "*",
            "1.2.3,1.2.4",
            "|| 1.0.0",
            "1.0.0 ||",
            "1.0.0 || || 2.0.0",
            "1.0.0 foo",
            ">",
            "> ",
        ] {
            assert!(Range::parse(range).is_err(), "{range}");
        }
    }
}
