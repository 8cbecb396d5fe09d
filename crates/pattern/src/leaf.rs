//! One value against one pattern: text with operators, ranges, wildcards, quantities and durations.

use std::borrow::Cow;
use std::cmp::Ordering;

use kiln_text::float::{self, Style};
use kiln_text::{Duration, Quantity, range, wildcard};
use kiln_value::{Number, Value};

/// How numbers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// As in the conditions of a patch: all are floats.
    Floats,
    /// As in the pattern of a validate rule and its object: whole numbers are integers.
    Whole,
}

impl Numbers {
    fn whole(self, number: Number) -> Option<i64> {
        number.as_i64().filter(|_| self == Numbers::Whole)
    }
}

/// Whether a value meets a pattern, as a condition of a patch asks. Maps only ask for a map, whatever is in it;
/// lists are not patterns.
///
/// ```
/// use kiln_pattern::value_matches;
/// assert!(value_matches(&">1Gi & <4Gi | 10Gi".into(), &"2Gi".into()));
/// assert!(value_matches(&"nginx:*".into(), &"nginx:1".into()));
/// ```
pub fn value_matches(pattern: &Value, value: &Value) -> bool {
    leaf_matches(pattern, value, Numbers::Floats)
}

pub(crate) fn leaf_matches(pattern: &Value, value: &Value, numbers: Numbers) -> bool {
    match pattern {
        Value::Bool(wanted) => value.as_bool() == Some(*wanted),
        Value::Number(wanted) => number(*wanted, value, numbers),
        // Kyverno: null stands for everything that says nothing.
        Value::Null => match value {
            Value::Null => true,
            Value::Bool(b) => !b,
            Value::Number(n) => n.as_f64() == 0.0,
            Value::String(text) => text.is_empty(),
            Value::List(_) | Value::Map(_) => false,
        },
        Value::Map(_) => matches!(value, Value::Map(_)),
        Value::List(_) => false,
        Value::String(pattern) => text(pattern, value, numbers),
    }
}

fn number(wanted: Number, value: &Value, numbers: Numbers) -> bool {
    match (numbers.whole(wanted), value) {
        (_, Value::Number(found)) => wanted.compare(*found) == Some(Ordering::Equal),
        (Some(wanted), Value::String(text)) => text.parse() == Ok(wanted),
        (None, Value::String(text)) => float::parse(text) == Some(wanted.as_f64()),
        _ => false,
    }
}

fn text(pattern: &str, value: &Value, numbers: Numbers) -> bool {
    if value.as_str() == Some(pattern) {
        return true;
    }
    let operand = Operand::of(value, numbers);
    pattern.split('|').any(|any| {
        any.trim_matches(' ').split('&').all(|part| operand.meets(part.trim_matches(' ')))
    })
}

/// What stands before the rest of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafOperator {
    Equal,
    NotEqual,
    More,
    MoreEqual,
    Less,
    LessEqual,
}

impl LeafOperator {
    /// The operator of a pattern, and the rest. One character alone is not an operator.
    pub fn split(pattern: &str) -> (Self, &str) {
        let table = [
            (">=", LeafOperator::MoreEqual),
            ("<=", LeafOperator::LessEqual),
            (">", LeafOperator::More),
            ("<", LeafOperator::Less),
            ("!", LeafOperator::NotEqual),
        ];
        table
            .into_iter()
            .filter(|_| pattern.len() > 1)
            .find_map(|(sign, operator)| Some((operator, pattern.strip_prefix(sign)?)))
            .unwrap_or((LeafOperator::Equal, pattern))
    }

    fn accepts(self, found: Ordering) -> bool {
        match self {
            LeafOperator::Equal => found.is_eq(),
            LeafOperator::NotEqual => found.is_ne(),
            LeafOperator::More => found.is_gt(),
            LeafOperator::MoreEqual => found.is_ge(),
            LeafOperator::Less => found.is_lt(),
            LeafOperator::LessEqual => found.is_le(),
        }
    }
}

/// A value in the forms that patterns compare it in.
struct Operand<'v> {
    /// As text among wildcards.
    text: Option<Cow<'v, str>>,
    duration: Option<Duration>,
    quantity: Option<Quantity>,
}

impl<'v> Operand<'v> {
    fn of(value: &'v Value, numbers: Numbers) -> Self {
        let (text, measured): (Option<Cow<'v, str>>, Option<Cow<'v, str>>) = match value {
            Value::String(text) => (Some(text.as_str().into()), Some(text.as_str().into())),
            Value::Number(number) => match numbers.whole(*number) {
                Some(whole) => (Some(whole.to_string().into()), Some(whole.to_string().into())),
                // Kyverno: floats have an exponent as text, and six decimals as quantities.
                None => {
                    let text = float::format(number.as_f64(), Style::Exponent, None).to_uppercase();
                    let measured = float::format(number.as_f64(), Style::Fixed, Some(6));
                    (Some(text.into()), Some(measured.into()))
                }
            },
            Value::Bool(b) => (Some(b.to_string().into()), None),
            // Kyverno: null is not text, and counts as 0.
            Value::Null => (None, Some("0".into())),
            Value::List(_) | Value::Map(_) => (None, None),
        };
        let measured = measured.as_deref();
        Operand {
            duration: measured.and_then(|text| Duration::parse(text).ok()),
            quantity: measured.and_then(|text| Quantity::parse(text).ok()),
            text,
        }
    }

    /// Whether one part of a pattern, between `|` and `&`, is met.
    fn meets(&self, part: &str) -> bool {
        let (operator, rest) = LeafOperator::split(part);
        if operator == LeafOperator::Equal && part.len() > 1 {
            if let Some((from, to)) = range::ends(part, "!-") {
                return self.compares(LeafOperator::Less, from)
                    || self.compares(LeafOperator::More, to);
            }
            if let Some((from, to)) = range::ends(part, "-") {
                return self.compares(LeafOperator::MoreEqual, from)
                    && self.compares(LeafOperator::LessEqual, to);
            }
        }
        self.compares(operator, rest.trim())
    }

    /// Compares as durations if both are, else as quantities if both are, else as text.
    fn compares(&self, operator: LeafOperator, wanted: &str) -> bool {
        if let (Some(found), Ok(wanted)) = (self.duration, Duration::parse(wanted)) {
            return operator.accepts(found.cmp(&wanted));
        }
        if let (Some(found), Ok(wanted)) = (&self.quantity, Quantity::parse(wanted)) {
            return operator.accepts(found.cmp(&wanted));
        }
        let Some(found) = &self.text else { return false };
        match operator {
            LeafOperator::Equal => wildcard::matches(wanted, found),
            LeafOperator::NotEqual => !wildcard::matches(wanted, found),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn texts_have_operators_ranges_and_wildcards() {
        for (pattern, value, wanted) in [
            ("*", value!("x"), true),
            ("?*", value!(""), false),
            ("a|b", value!("b"), true),
            ("a* & *b", value!("a-b"), true),
            ("!a", value!("b"), true),
            ("!", value!("!"), true),
            (">5", value!(6), true),
            (">5", value!("x"), false),
            ("<=1Gi", value!("1024Mi"), true),
            ("1h-3h", value!("90m"), true),
            ("1h!-3h", value!("90m"), false),
            ("-5", value!(-5), true),
            ("<1", value!(null), true),
            ("5.5E+00", value!(5.5), true),
            ("*", value!(null), false),
            ("*", value!({}), false),
        ] {
            assert_eq!(value_matches(&pattern.into(), &value), wanted, "{pattern} {value:?}");
        }
    }

    #[test]
    fn numbers_match_numbers_and_texts_of_them() {
        assert!(value_matches(&value!(5), &value!(5.0)));
        assert!(value_matches(&value!(5.0), &value!(5)));
        assert!(value_matches(&value!(5), &value!("5")));
        assert!(value_matches(&value!(5.5), &value!("5.50")));
        assert!(value_matches(&value!(5), &value!("5.0")));
        assert!(!leaf_matches(&value!(5), &value!("5.0"), Numbers::Whole));
        assert!(!value_matches(&"1?".into(), &value!(12)));
        assert!(leaf_matches(&"1?".into(), &value!(12), Numbers::Whole));
        assert!(!value_matches(&value!(u64::MAX), &value!(-1)));
    }
}
