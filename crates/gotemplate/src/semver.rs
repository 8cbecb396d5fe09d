//! Versions and constraints as sprig's library reads them: `v1.2` is a version, and `^1.2`, `~1.2`, `1.2.x`, `1.2 - 2`
//! and `>=1, <2 || 3` are constraints.

use std::cmp::Ordering;
use std::fmt;

/// A version; short ones are filled with zeros.
#[derive(Clone, Debug)]
pub(crate) struct SprigVersion {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) pre: String,
    pub(crate) metadata: String,
    pub(crate) original: String,
}

const INVALID: &str = "Invalid Semantic Version";

impl SprigVersion {
    pub(crate) fn parse(text: &str) -> Result<SprigVersion, String> {
        let body = text.strip_prefix('v').unwrap_or(text);
        let (rest, metadata) = split_once_or(body, '+')?;
        let (numbers, pre) = split_once_or(rest, '-')?;
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() > 3 {
            return Err(INVALID.into());
        }
        let mut values = [0; 3];
        for (value, part) in values.iter_mut().zip(&parts) {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(INVALID.into());
            }
            *value = part
                .parse()
                .map_err(|_| format!("Error parsing version segment: {part} is out of range"))?;
        }
        for label in [pre, metadata].into_iter().flatten() {
            if !label.split('.').all(is_label) {
                return Err(INVALID.into());
            }
        }
        let leading_zero = |label: &str| {
            label.len() > 1 && label.starts_with('0') && label.bytes().all(|b| b.is_ascii_digit())
        };
        if pre.is_some_and(|pre| pre.split('.').any(leading_zero)) {
            return Err("Version segment starts with 0".into());
        }
        let [major, minor, patch] = values;
        Ok(SprigVersion {
            major,
            minor,
            patch,
            pre: pre.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
        })
    }

    fn numbers(&self) -> [u64; 3] {
        [self.major, self.minor, self.patch]
    }

    pub(crate) fn compare(&self, other: &SprigVersion) -> Ordering {
        self.numbers().cmp(&other.numbers()).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare_pre(&self.pre, &other.pre),
            }
        })
    }
}

fn split_once_or(text: &str, separator: char) -> Result<(&str, Option<&str>), String> {
    Ok(match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    })
}

fn is_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn compare_pre(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl fmt::Display for SprigVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

/// Alternatives, each a list of conditions that must all hold.
#[derive(Debug)]
pub(crate) struct Constraints(Vec<Vec<Constraint>>);

#[derive(Debug)]
struct Constraint {
    operator: ConstraintOperator,
    version: SprigVersion,
    /// How many of the three numbers were given; the others are free.
    given: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConstraintOperator {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Tilde,
    Caret,
}

const OPERATORS: &[(&str, ConstraintOperator)] = &[
    ("!=", ConstraintOperator::NotEqual),
    (">=", ConstraintOperator::GreaterEqual),
    ("=>", ConstraintOperator::GreaterEqual),
    ("<=", ConstraintOperator::LessEqual),
    ("=<", ConstraintOperator::LessEqual),
    ("~>", ConstraintOperator::Tilde),
    ("=", ConstraintOperator::Equal),
    (">", ConstraintOperator::Greater),
    ("<", ConstraintOperator::Less),
    ("~", ConstraintOperator::Tilde),
    ("^", ConstraintOperator::Caret),
];

impl Constraints {
    pub(crate) fn parse(text: &str) -> Result<Constraints, String> {
        let alternatives = text.split("||").map(|part| {
            conditions(part.trim()).ok_or_else(|| format!("improper constraint: {text}"))
        });
        alternatives.collect::<Result<_, _>>().map(Constraints)
    }

    pub(crate) fn allow(&self, version: &SprigVersion) -> bool {
        self.0.iter().any(|all| all.iter().all(|constraint| constraint.allows(version)))
    }
}

/// `1.2 - 1.4` is a range; else conditions stand side by side with commas or spaces between.
fn conditions(text: &str) -> Option<Vec<Constraint>> {
    let words: Vec<&str> = text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
    if let Some(dash) = words.iter().position(|word| *word == "-") {
        let [from, _, to] = words.as_slice() else { return None };
        if dash != 1 {
            return None;
        }
        let from = format!(">={from}");
        let to = format!("<={to}");
        return Some(vec![constraint(&from)?, constraint(&to)?]);
    }
    // An operator may stand apart from its version.
    let mut all = Vec::new();
    let mut operator = "";
    for word in words {
        if OPERATORS.iter().any(|(known, _)| *known == word) {
            if !operator.is_empty() {
                return None;
            }
            operator = word;
            continue;
        }
        all.push(constraint(&format!("{operator}{word}"))?);
        operator = "";
    }
    (operator.is_empty() && !all.is_empty()).then_some(all)
}

fn constraint(text: &str) -> Option<Constraint> {
    let (operator, version) = OPERATORS
        .iter()
        .find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)))
        .unwrap_or((ConstraintOperator::Equal, text));
    let body = version.strip_prefix('v').unwrap_or(version);
    let numbers_end = body.find(['-', '+']).unwrap_or(body.len());
    let (numbers, suffix) = body.split_at(numbers_end);
    let parts: Vec<&str> = numbers.split('.').collect();
    let given =
        parts.iter().position(|part| matches!(*part, "x" | "X" | "*")).unwrap_or(parts.len());
    let free = parts[given..].iter().all(|part| matches!(*part, "x" | "X" | "*"));
    let whole = parts.len() <= 3 && (free || given == parts.len());
    if !whole {
        return None;
    }
    let mut full: Vec<&str> = parts[..given].to_vec();
    full.resize(3, "0");
    let version = SprigVersion::parse(&format!("{}{suffix}", full.join("."))).ok()?;
    Some(Constraint { operator, version, given })
}

impl Constraint {
    fn allows(&self, version: &SprigVersion) -> bool {
        let bound = &self.version;
        // A pre-release is meant only where the constraint names one.
        if !version.pre.is_empty() && bound.pre.is_empty() {
            return false;
        }
        let order = version.compare(bound);
        let short = self.given < 3;
        let same = |count: usize| version.numbers()[..count] == bound.numbers()[..count];
        match self.operator {
            ConstraintOperator::Equal if short => order.is_ge() && same(self.given),
            ConstraintOperator::Equal => order.is_eq(),
            ConstraintOperator::NotEqual if short => !same(self.given),
            ConstraintOperator::NotEqual => order.is_ne(),
            ConstraintOperator::Greater if short => order.is_gt() && !same(self.given),
            ConstraintOperator::Greater => order.is_gt(),
            ConstraintOperator::GreaterEqual => order.is_ge(),
            ConstraintOperator::Less => order.is_lt(),
            ConstraintOperator::LessEqual => order.is_le() || short && same(self.given),
            ConstraintOperator::Tilde => order.is_ge() && same(self.given.min(2)),
            ConstraintOperator::Caret => order.is_ge() && self.caret(version),
        }
    }

    /// The first number that is not 0 stays.
    fn caret(&self, version: &SprigVersion) -> bool {
        let (bound, given) = (self.version.numbers(), self.given);
        let numbers = version.numbers();
        if given == 0 {
            return true;
        }
        if bound[0] > 0 || given == 1 {
            return numbers[0] == bound[0];
        }
        if numbers[0] > 0 {
            return false;
        }
        if bound[1] > 0 || given == 2 {
            return numbers[1] == bound[1];
        }
        numbers[1] == 0 && numbers[2] == bound[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_hold_as_in_the_library() {
        for (constraint, version, holds) in [
            ("*", "1.2.3", true),
            ("*", "1.2.3-alpha", false),
            ("^1", "1.9.9", true),
            ("^0.2.3", "0.2.9", true),
            ("^0.2.3", "0.3.0", false),
            ("^0.0.3", "0.0.4", false),
            ("^0.0", "0.0.9", true),
            ("~1", "1.9.0", true),
            ("~1.2.3", "1.2.9", true),
            ("~1.2.3", "1.3.0", false),
            ("~>2.0", "2.0.5", true),
            (">1", "1.5.0", false),
            (">1", "2.0.0", true),
            ("<=1.2", "1.2.9", true),
            ("!=1.2", "1.2.3", false),
            ("!=1.2.x", "1.3.0", true),
            ("1.1 - 2.3", "2.3.9", true),
            (">= 1.0, < 2.0", "1.5.0", true),
            ("=>1.0 || <0.1", "0.0.9", true),
            ("v1.2", "1.2.9", true),
        ] {
            let parsed = Constraints::parse(constraint).unwrap();
            assert_eq!(
                parsed.allow(&SprigVersion::parse(version).unwrap()),
                holds,
                "{constraint} {version}"
            );
        }
        for bad in ["", "bad", "1.2.3.4", ">", "1.x.3", "1 - 2 - 3", "||"] {
            assert!(Constraints::parse(bad).is_err(), "{bad}");
        }
    }
}
