//! One value against one pattern: text with operators, ranges, wildcards, quantities and durations.

use std::borrow::Cow;
use std::cmp::Ordering;

use kiln_text::float::{self, Style};
use kiln_text::{Duration, Quantity, range, wildcard};
use kiln_value::{Number, Value};

/// Whether a value meets a pattern. Maps only ask for a map, whatever is in it; lists are no patterns.
///
/// ```
/// use kiln_pattern::value_matches;
/// assert!(value_matches(&">1Gi & <4Gi | 10Gi".into(), &"2Gi".into()));
/// assert!(value_matches(&"nginx:*".into(), &"nginx:1".into()));
/// ```
pub fn value_matches(pattern: &Value, value: &Value) -> bool {
    match pattern {
        Value::Bool(wanted) => value.as_bool() == Some(*wanted),
        Value::Number(wanted) => number(*wanted, value),
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
        Value::String(pattern) => text(pattern, value),
    }
}

fn number(wanted: Number, value: &Value) -> bool {
    match (wanted.as_i64().filter(|_| wanted.is_integer()), value) {
        (_, Value::Number(found)) => wanted.compare(*found) == Some(Ordering::Equal),
        (Some(wanted), Value::String(text)) => text.parse() == Ok(wanted),
        (None, Value::String(text)) => float::parse(text) == Some(wanted.as_f64()),
        _ => false,
    }
}

fn text(pattern: &str, value: &Value) -> bool {
    if value.as_str() == Some(pattern) {
        return true;
    }
    let operand = Operand::of(value);
    pattern.split('|').any(|any| {
        any.trim_matches(' ').split('&').all(|part| operand.meets(part.trim_matches(' ')))
    })
}

/// What stands before the rest of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    More,
    MoreEqual,
    Less,
    LessEqual,
}

impl Operator {
    /// The operator of a pattern, and the rest. One character alone is no operator.
    fn split(pattern: &str) -> (Self, &str) {
        let table = [
            (">=", Operator::MoreEqual),
            ("<=", Operator::LessEqual),
            (">", Operator::More),
            ("<", Operator::Less),
            ("!", Operator::NotEqual),
        ];
        table
            .into_iter()
            .filter(|_| pattern.len() > 1)
            .find_map(|(sign, operator)| Some((operator, pattern.strip_prefix(sign)?)))
            .unwrap_or((Operator::Equal, pattern))
    }

    fn accepts(self, found: Ordering) -> bool {
        match self {
            Operator::Equal => found.is_eq(),
            Operator::NotEqual => found.is_ne(),
            Operator::More => found.is_gt(),
            Operator::MoreEqual => found.is_ge(),
            Operator::Less => found.is_lt(),
            Operator::LessEqual => found.is_le(),
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
    fn of(value: &'v Value) -> Self {
        let (text, measured): (Option<Cow<'v, str>>, Option<Cow<'v, str>>) = match value {
            Value::String(text) => (Some(text.as_str().into()), Some(text.as_str().into())),
            // Kyverno: numbers are floats: with an exponent as text, with six decimals as quantities.
            Value::Number(number) => {
                let text = float::format(number.as_f64(), Style::Exponent, None).to_uppercase();
                let measured = float::format(number.as_f64(), Style::Fixed, Some(6));
                (Some(text.into()), Some(measured.into()))
            }
            Value::Bool(b) => (Some(b.to_string().into()), None),
            // Kyverno: null is no text, and counts as 0.
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
        let (operator, rest) = Operator::split(part);
        if operator == Operator::Equal && part.len() > 1 {
            if let Some((from, to)) = range::ends(part, "!-") {
                return self.compares(Operator::Less, from) || self.compares(Operator::More, to);
            }
            if let Some((from, to)) = range::ends(part, "-") {
                return self.compares(Operator::MoreEqual, from)
                    && self.compares(Operator::LessEqual, to);
            }
        }
        self.compares(operator, rest.trim())
    }

    /// Compares as durations if both are, else as quantities if both are, else as text.
    fn compares(&self, operator: Operator, wanted: &str) -> bool {
        if let (Some(found), Ok(wanted)) = (self.duration, Duration::parse(wanted)) {
            return operator.accepts(found.cmp(&wanted));
        }
        if let (Some(found), Ok(wanted)) = (&self.quantity, Quantity::parse(wanted)) {
            return operator.accepts(found.cmp(&wanted));
        }
        let Some(found) = &self.text else { return false };
        match operator {
            Operator::Equal => wildcard::matches(wanted, found),
            Operator::NotEqual => !wildcard::matches(wanted, found),
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
        assert!(!value_matches(&value!(5), &value!("5.0")));
        assert!(!value_matches(&value!(u64::MAX), &value!(-1)));
    }
}
