//! The operators of conditions, and what each of them does with two values.

use std::fmt;

use kiln_value::Value;

use super::compare::{Compared, Effort, Exhausted};
use super::{equality, membership, order};

/// What a condition does with its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionOperator {
    /// Both are equal, or the value as a pattern matches the key.
    Equals,
    /// The opposite of [`ConditionOperator::Equals`], except that null is never unequal.
    NotEquals,
    /// All elements of the key are in the value. Deprecated.
    In,
    /// Some element of the key is not in the value. Deprecated.
    NotIn,
    /// Some element of the key is in the value.
    AnyIn,
    /// All elements of the key are in the value.
    AllIn,
    /// Some element of the key is not in the value.
    AnyNotIn,
    /// No element of the key is in the value.
    AllNotIn,
    /// The key is greater, less, or maybe equal.
    Order(Order),
    /// The same for durations and seconds only. Deprecated.
    DurationOrder(Order),
}

/// Which order a key and a value must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `GreaterThan`.
    Greater,
    /// `GreaterThanOrEquals`.
    GreaterOrEqual,
    /// `LessThan`.
    Less,
    /// `LessThanOrEquals`.
    LessOrEqual,
}

/// The operators by their names; where there are two, the usual one comes first.
const NAMES: [(&str, ConditionOperator); 18] = [
    ("Equals", ConditionOperator::Equals),
    ("Equal", ConditionOperator::Equals),
    ("NotEquals", ConditionOperator::NotEquals),
    ("NotEqual", ConditionOperator::NotEquals),
    ("In", ConditionOperator::In),
    ("NotIn", ConditionOperator::NotIn),
    ("AnyIn", ConditionOperator::AnyIn),
    ("AllIn", ConditionOperator::AllIn),
    ("AnyNotIn", ConditionOperator::AnyNotIn),
    ("AllNotIn", ConditionOperator::AllNotIn),
    ("GreaterThan", ConditionOperator::Order(Order::Greater)),
    ("GreaterThanOrEquals", ConditionOperator::Order(Order::GreaterOrEqual)),
    ("LessThan", ConditionOperator::Order(Order::Less)),
    ("LessThanOrEquals", ConditionOperator::Order(Order::LessOrEqual)),
    ("DurationGreaterThan", ConditionOperator::DurationOrder(Order::Greater)),
    ("DurationGreaterThanOrEquals", ConditionOperator::DurationOrder(Order::GreaterOrEqual)),
    ("DurationLessThan", ConditionOperator::DurationOrder(Order::Less)),
    ("DurationLessThanOrEquals", ConditionOperator::DurationOrder(Order::LessOrEqual)),
];

impl ConditionOperator {
    /// The operator of this name, in any letter case.
    ///
    /// Kyverno finds operators in any case too, but then compares nothing unless the case is the usual
    /// one: its `lessthan` is always false.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
    }

    /// The names of all operators.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The usual name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// What to use instead of an operator that Kyverno deprecates.
    pub fn replacement(self) -> Option<&'static str> {
        match self {
            ConditionOperator::In => Some("AllIn or AnyIn"),
            ConditionOperator::NotIn => Some("AllNotIn or AnyNotIn"),
            ConditionOperator::DurationOrder(order) => Some(ConditionOperator::Order(order).name()),
            _ => None,
        }
    }

    /// Compares two values, both without variables.
    ///
    /// # Errors
    /// When the comparison takes more than the effort allows.
    pub fn compare(
        self,
        key: &Value,
        value: &Value,
        effort: &mut Effort,
    ) -> Result<Compared, Exhausted> {
        match self {
            ConditionOperator::Equals => equality::equals(key, value, effort),
            ConditionOperator::NotEquals => equality::not_equals(key, value, effort),
            ConditionOperator::In
            | ConditionOperator::NotIn
            | ConditionOperator::AnyIn
            | ConditionOperator::AllIn
            | ConditionOperator::AnyNotIn
            | ConditionOperator::AllNotIn => membership::contains(self, key, value, effort),
            ConditionOperator::Order(order) => Ok(order::ordered(order, key, value)),
            ConditionOperator::DurationOrder(order) => {
                Ok(order::durations_ordered(order, key, value))
            }
        }
    }
}

impl fmt::Display for ConditionOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Order {
    /// Whether two things that compare like this are in the order.
    pub(super) fn accepts(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Order::Greater => ordering.is_gt(),
            Order::GreaterOrEqual => ordering.is_ge(),
            Order::Less => ordering.is_lt(),
            Order::LessOrEqual => ordering.is_le(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for (name, operator) in NAMES {
            assert_eq!(ConditionOperator::named(name), Some(operator));
            assert_eq!(ConditionOperator::named(&name.to_uppercase()), Some(operator));
            assert_eq!(ConditionOperator::named(operator.name()), Some(operator));
        }
        assert_eq!(ConditionOperator::named("Bogus"), None);
        assert_eq!(ConditionOperator::named(""), None);
    }
}
