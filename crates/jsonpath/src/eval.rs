//! Evaluation: expressions over a root, with a current value inside filters and brackets.

use std::cell::Cell;
use std::ops::Range;

use kiln_text::{Regex, Time};
use kiln_value::{Str, Value};

use crate::error::{Error, ErrorKind};
use crate::item::{Item, deep_equal};
use crate::parse::suggest;
use crate::path::Captured;
use crate::tree::{JsonPathFunction, JsonPathNode, JsonPathOperator, NodeKind, ObjectKey, Prefix};

pub(crate) type Result<R = Item> = std::result::Result<R, Error>;

/// One evaluation.
pub(crate) struct Eval<'e> {
    pub(crate) root: &'e Value,
    pub(crate) steps: Cell<u64>,
    pub(crate) limit: u64,
}

/// What `@` means: nothing outside of filters and brackets.
pub(crate) type Current<'c> = Option<&'c Item>;

pub(crate) fn failed(span: &Range<usize>, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Evaluation, span.clone(), message)
}

impl Eval<'_> {
    pub(crate) fn step(&self, span: &Range<usize>, count: u64) -> Result<()> {
        match self.steps.get().checked_sub(count) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => {
                self.steps.set(0);
                let message = format!("the expression takes more than {} steps", self.limit);
                Err(Error::new(ErrorKind::Limit, span.clone(), message))
            }
        }
    }

    /// The text of an item, counted.
    fn text(&self, item: &Item, span: &Range<usize>) -> Result<String> {
        self.charge(item, span)?;
        Ok(item.text())
    }

    /// Counts what it takes to look at all of an item.
    fn charge(&self, item: &Item, span: &Range<usize>) -> Result<()> {
        match item {
            Item::Value(value) => self.step(span, size(value)),
            Item::List(items) => items.iter().try_for_each(|item| self.charge(item, span)),
            Item::Map(entries) => entries.iter().try_for_each(|(_, item)| self.charge(item, span)),
            _ => Ok(()),
        }
    }

    pub(crate) fn node(&self, node: &JsonPathNode, current: Current<'_>) -> Result {
        self.step(&node.span, 1)?;
        match &node.kind {
            NodeKind::Constant(item) => Ok(item.clone()),
            NodeKind::Path(path) => self.path(path, current),
            NodeKind::Name(keys, None) => self.name(keys, current),
            NodeKind::Name(keys, Some(_)) => {
                let name = match &keys[0].kind {
                    NodeKind::Constant(name) => name.text(),
                    _ => String::new(),
                };
                let message = format!("there is no function {name}");
                Err(failed(&keys[0].span, message).maybe_hint(suggest(&name)))
            }
            NodeKind::Call(function, arguments) => {
                self.call(*function, arguments, current, &node.span)
            }
            NodeKind::Prefix(prefix, inner) => self.prefix(*prefix, inner, current),
            NodeKind::Infix(operator, left, right) => {
                self.infix(*operator, left, right, current, &node.span)
            }
            NodeKind::Match(left, right, regex, negated) => {
                let text = self.text(&self.node(left, current)?, &left.span)?;
                self.step(&node.span, text.len() as u64 / 16)?;
                let matched = match regex {
                    Some(regex) => regex.is_match(&text),
                    None => {
                        let pattern = self.text(&self.node(right, current)?, &right.span)?;
                        self.step(&right.span, pattern.len() as u64 * 16)?;
                        let regex = Regex::new(&pattern);
                        regex
                            .map_err(|error| failed(&right.span, error.to_string()))?
                            .is_match(&text)
                    }
                };
                Ok(Item::Value(Value::Bool(matched != *negated)))
            }
            NodeKind::If(condition, yes, no) => {
                // KubeMod: zero, an empty text and undefined choose the first.
                let condition = self.node(condition, current)?;
                let no_wanted = matches!(condition, Item::Value(Value::Null | Value::Bool(false)));
                self.node(if no_wanted { no } else { yes }, current)
            }
            NodeKind::List(elements) => {
                let items = elements.iter().map(|element| self.node(element, current));
                Ok(Item::list(items.collect::<Result<_>>()?))
            }
            NodeKind::Object(entries) => self.object(entries, current),
        }
    }

    fn object(&self, entries: &[(ObjectKey, JsonPathNode)], current: Current<'_>) -> Result {
        let mut object: Vec<(Str, Item)> = Vec::new();
        let mut put =
            |key: Str, item: Item| match object.iter_mut().find(|(known, _)| *known == key) {
                Some((_, place)) => *place = item,
                None => object.push((key, item)),
            };
        for (key, node) in entries {
            let number: Option<usize> = match key {
                ObjectKey::Written(key) => {
                    let text = self.text(&self.node(key, current)?, &key.span)?;
                    put(Str::from(text), self.node(node, current)?);
                    continue;
                }
                ObjectKey::Captured(number) => *number,
            };
            let NodeKind::Path(path) = &node.kind else { continue };
            for found in self.matches(path, current)? {
                self.step(&node.span, 1)?;
                let written = |keys: &[Str]| -> String {
                    keys.iter().map(|key| format!("[{}]", kiln_text::quote::quote(key))).collect()
                };
                let all = || found.keys.iter().map(|captured| written(captured.parts()));
                let key = match number.map(|number| (number, found.keys.get(number))) {
                    None => format!("${}", all().collect::<String>()),
                    Some((_, Some(Captured::Key(key)))) => key.to_string(),
                    // KubeMod: a way by itself is printed as a list.
                    Some((_, Some(Captured::Way(keys)))) => format!("[{}]", keys.join(" ")),
                    Some((number, None)) => {
                        let message = format!("the path captures no key #{number}");
                        return Err(failed(&node.span, message));
                    }
                };
                put(Str::from(key), found.item);
            }
        }
        Ok(Item::map(object))
    }

    /// A bare name: looked up in the root.
    fn name(&self, keys: &[JsonPathNode], current: Current<'_>) -> Result {
        let mut value = self.root.clone();
        for key in keys {
            let text = self.text(&self.node(key, current)?, &key.span)?;
            let found = match &value {
                Value::Map(map) => Some(map.get(&text).cloned().unwrap_or(Value::Null)),
                // KubeMod: what a list does not have gives the list itself.
                Value::List(list) => {
                    let element = text.parse::<usize>().ok().and_then(|at| list.get(at));
                    Some(element.unwrap_or(&value).clone())
                }
                _ => None,
            };
            value = found.ok_or_else(|| {
                failed(&key.span, format!("there is no {text} here"))
                    .hint("begin a path with `$`, and put texts in double quotes")
            })?;
        }
        Ok(Item::Value(value))
    }

    fn call(
        &self,
        function: JsonPathFunction,
        arguments: &[JsonPathNode],
        current: Current<'_>,
        span: &Range<usize>,
    ) -> Result {
        let [argument] = arguments else {
            let (name, count) = (function.name(), arguments.len());
            return Err(failed(span, format!("{name} takes one argument, not {count}")));
        };
        let item = self.node(argument, current)?;
        let truth = |truth: bool| Ok(Item::Value(Value::Bool(truth)));
        match function {
            JsonPathFunction::IsDefined => truth(item != Item::Undefined),
            JsonPathFunction::IsUndefined => truth(item == Item::Undefined),
            JsonPathFunction::Length => {
                Ok(Item::number(self.length(&item, &argument.span)? as f64))
            }
            JsonPathFunction::IsEmpty => truth(self.length(&item, &argument.span)? == 0),
            JsonPathFunction::IsNotEmpty => truth(self.length(&item, &argument.span)? > 0),
            JsonPathFunction::Date => {
                let Item::Value(Value::String(text)) = &item else {
                    let found = item.type_name();
                    return Err(failed(&argument.span, format!("a date is a text, not a {found}")));
                };
                let read = LAYOUTS.iter().find_map(|layout| Time::parse(layout, text).ok());
                read.map(Item::Time).ok_or_else(|| {
                    failed(&argument.span, format!("{:?} is not a date", text.as_str()))
                        .hint("write it as 2006-01-02 or 2006-01-02T15:04:05Z")
                })
            }
        }
    }

    fn length(&self, item: &Item, span: &Range<usize>) -> Result<usize> {
        Ok(match item {
            Item::Undefined | Item::Value(Value::Null) => 0,
            Item::Value(Value::String(text)) => text.len(),
            Item::Value(Value::List(list)) => list.len(),
            Item::Value(Value::Map(map)) => map.len(),
            Item::List(items) => items.len(),
            Item::Map(entries) => entries.len(),
            other => {
                let found = other.type_name();
                let message = format!("a {found} has no length; a list, a text or a map has");
                return Err(failed(span, message));
            }
        })
    }

    fn prefix(&self, prefix: Prefix, inner: &JsonPathNode, current: Current<'_>) -> Result {
        let item = self.node(inner, current)?;
        if prefix == Prefix::Not {
            return Ok(Item::Value(Value::Bool(!self.truth(&item, &inner.span)?)));
        }
        let number = item.to_float().ok_or_else(|| {
            failed(&inner.span, format!("a {} is not a number", item.type_name()))
        })?;
        Ok(Item::number(match prefix {
            Prefix::Minus => -number,
            _ => !to_int(number) as f64,
        }))
    }

    /// A boolean operand: nothing is converted.
    fn truth(&self, item: &Item, span: &Range<usize>) -> Result<bool> {
        item.as_bool().ok_or_else(|| {
            let found = item.type_name();
            let error = failed(span, format!("true or false is wanted here, not {found}"));
            match item {
                Item::Undefined => error.hint("ask with isDefined(…) whether the path is there"),
                _ => error.hint("compare it with == or !="),
            }
        })
    }

    fn infix(
        &self,
        operator: JsonPathOperator,
        left: &JsonPathNode,
        right: &JsonPathNode,
        current: Current<'_>,
        span: &Range<usize>,
    ) -> Result {
        let a = self.node(left, current)?;
        let stops = match operator {
            JsonPathOperator::And => a.as_bool() == Some(false),
            JsonPathOperator::Or => a.as_bool() == Some(true),
            JsonPathOperator::Otherwise => {
                !matches!(a, Item::Value(Value::Null | Value::Bool(false)))
            }
            _ => false,
        };
        if stops {
            return Ok(a);
        }
        let b = self.node(right, current)?;
        let truth = |truth: bool| Ok(Item::Value(Value::Bool(truth)));
        match operator {
            JsonPathOperator::Otherwise => Ok(b),
            JsonPathOperator::And | JsonPathOperator::Or => {
                self.truth(&a, &left.span)?;
                truth(self.truth(&b, &right.span)?)
            }
            JsonPathOperator::Equal => truth(self.equal(&a, &b, span)?),
            JsonPathOperator::NotEqual => truth(!self.equal(&a, &b, span)?),
            JsonPathOperator::In => {
                let elements = b.elements().ok_or_else(|| {
                    let found = b.type_name();
                    failed(&right.span, format!("`in` looks into a list, not into a {found}"))
                })?;
                self.charge(&b, span)?;
                truth(elements.iter().any(|element| deep_equal(&a, element)))
            }
            JsonPathOperator::Less
            | JsonPathOperator::LessEqual
            | JsonPathOperator::Greater
            | JsonPathOperator::GreaterEqual => truth(self.ordered(operator, &a, &b, span)?),
            _ => self.arithmetic(operator, &a, &b, span),
        }
    }

    /// Numbers and texts that say numbers are equal as numbers; everything else must be alike.
    fn equal(&self, a: &Item, b: &Item, span: &Range<usize>) -> Result<bool> {
        if let (Some(a), Some(b)) = (a.to_float(), b.to_float()) {
            return Ok(a == b);
        }
        self.charge(a, span)?;
        Ok(deep_equal(a, b))
    }

    fn ordered(
        &self,
        operator: JsonPathOperator,
        a: &Item,
        b: &Item,
        span: &Range<usize>,
    ) -> Result<bool> {
        let order = match (a, b) {
            (Item::Value(Value::String(a)), Item::Value(Value::String(b))) => Some(a.cmp(b)),
            (Item::Time(a), Item::Time(b)) => Some(a.cmp(b)),
            _ => match (a.to_float(), b.to_float()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ if a.is_null() || b.is_null() => {
                    let sign = operator.sign();
                    return Err(failed(span, format!("`{sign}` does not take null"))
                        .hint("compare with == null first"));
                }
                _ => Some(self.text(a, span)?.cmp(&self.text(b, span)?)),
            },
        };
        Ok(order.is_some_and(|order| match operator {
            JsonPathOperator::Less => order.is_lt(),
            JsonPathOperator::LessEqual => order.is_le(),
            JsonPathOperator::Greater => order.is_gt(),
            _ => order.is_ge(),
        }))
    }

    fn arithmetic(
        &self,
        operator: JsonPathOperator,
        a: &Item,
        b: &Item,
        span: &Range<usize>,
    ) -> Result {
        let both_texts =
            matches!((a, b), (Item::Value(Value::String(_)), Item::Value(Value::String(_))));
        let numbers = a.to_float().zip(b.to_float());
        let joins = both_texts || (numbers.is_none() && !a.is_null() && !b.is_null());
        if operator == JsonPathOperator::Plus && joins {
            let text = self.text(a, span)? + &self.text(b, span)?;
            self.step(span, text.len() as u64 / 8)?;
            return Ok(Item::Value(Value::from(text)));
        }
        let Some((x, y)) = numbers else {
            let (sign, a, b) = (operator.sign(), a.type_name(), b.type_name());
            let error = failed(span, format!("`{sign}` does not take a {a} and a {b}"));
            return Err(match operator {
                JsonPathOperator::Minus => error.hint("write [\"a-key\"] for a key with a dash"),
                _ => error,
            });
        };
        let bits = |by: fn(i64, i64) -> i64| by(to_int(x), to_int(y)) as f64;
        let shift = |by: fn(i64, u32) -> Option<i64>| {
            let count = u32::try_from(to_int(y)).unwrap_or(u32::MAX);
            by(to_int(x), count).unwrap_or(0) as f64
        };
        Ok(Item::number(match operator {
            JsonPathOperator::Plus => x + y,
            JsonPathOperator::Minus => x - y,
            JsonPathOperator::Times => x * y,
            JsonPathOperator::Divide => x / y,
            JsonPathOperator::Modulo => x % y,
            JsonPathOperator::Power => x.powf(y),
            JsonPathOperator::BitAnd => bits(|x, y| x & y),
            JsonPathOperator::BitOr => bits(|x, y| x | y),
            JsonPathOperator::Xor => bits(|x, y| x ^ y),
            JsonPathOperator::Left => shift(i64::checked_shl),
            _ => shift(|x, y| Some(x >> y.min(63))),
        }))
    }
}

fn to_int(number: f64) -> i64 {
    number as i64
}

/// How many values are in a value, and how much text.
fn size(value: &Value) -> u64 {
    match value {
        Value::Map(map) => 1 + map.values().map(size).sum::<u64>(),
        Value::List(list) => 1 + list.iter().map(size).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

/// What `date` can read; times without a zone are in UTC.
const LAYOUTS: &[&str] = &[
    "Mon Jan _2 15:04:05 2006",
    "Mon Jan _2 15:04:05 MST 2006",
    "Mon Jan 02 15:04:05 -0700 2006",
    "3:04PM",
    "2006-01-02T15:04:05Z07:00",
    "2006-01-02T15:04:05.999999999Z07:00",
    "2006-01-02",
    "2006-01-02 15:04",
    "2006-01-02 15:04:05",
    "2006-01-02 15:04:05-07:00",
    "2006-01-02T15Z0700",
    "2006-01-02T15:04Z0700",
    "2006-01-02T15:04:05Z0700",
    "2006-01-02T15:04:05.999999999Z0700",
];
