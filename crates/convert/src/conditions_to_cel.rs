//! Conditions of Kyverno's rules (`any` and `all` of key, operator and value) as CEL.

use kiln_text::duration::Duration;
use kiln_text::quantity::Quantity;
use kiln_value::{Path, Value};

use crate::cel::{Cel, Operator};
use crate::jmespath_to_cel::{Scope, map_of_keys};
use crate::shape::Shape;
use crate::templates;
use crate::term::Term;
use crate::verdict::Obstacle;
use crate::wildcards;

/// Whether conditions hold.
pub(crate) fn conditions(document: &Value, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    let list = |value: Option<&Value>, path: &Path| -> Result<Option<Vec<Cel>>, Obstacle> {
        let Some(Value::List(list)) = value else { return Ok(None) };
        let parts = list.iter().enumerate().map(|(at, one)| condition(one, scope, &path.join(at)));
        parts.collect::<Result<Vec<Cel>, Obstacle>>().map(Some)
    };
    match document {
        Value::List(_) => Ok(Cel::all(list(Some(document), path)?.unwrap_or_default())),
        Value::Map(map) => {
            let any = list(map.get("any"), &path.join("any"))?.map(Cel::any);
            let all = list(map.get("all"), &path.join("all"))?.map(Cel::all);
            Ok(Cel::all(any.into_iter().chain(all)))
        }
        _ => Ok(Cel::bool(true)),
    }
}

fn condition(condition: &Value, scope: &Scope, path: &Path) -> Result<Cel, Obstacle> {
    let part = |field: &str| {
        let value = condition.get(field).unwrap_or(&Value::Null);
        templates::term(value, scope, &path.join(field))
    };
    let (key, value) = (part("key")?, part("value")?);
    let operator = condition.str_at(["operator"]).unwrap_or_default();
    compare(operator, &key, &value).ok_or_else(|| {
        Obstacle::new(
            format!("operator {operator} with this key and value"),
            "write the condition in CEL by hand",
        )
        .at(path)
    })
}

/// One comparison; none where CEL has nothing for these types.
fn compare(operator: &str, key: &Term, value: &Term) -> Option<Cel> {
    // Nothing holds of null, neither an operator nor its opposite. An empty list has the same effect where one element
    // has to be found.
    let plain = |term: &Term, empty_will_do: bool| match term {
        Term::Guarded { has, value, lenient, shape } => match empty_will_do {
            true => (Cel::bool(true), Term::Value(lenient.clone(), shape.clone())),
            false => (has.clone(), Term::Value(value.clone(), shape.clone())),
        },
        Term::Optional(_, shape) => (term.has(), Term::Value(term.strict(), shape.clone())),
        other => (Cel::bool(true), other.clone()),
    };
    let (key_is_there, key) = plain(key, matches!(operator, "AnyIn" | "AnyNotIn"));
    let (value_is_there, value) = plain(value, matches!(operator, "AnyIn" | "AllIn" | "In"));
    let compared = compare_plain(operator, &key, &value)?;
    Some(Cel::all([key_is_there, value_is_there, compared]))
}

fn compare_plain(operator: &str, key: &Term, value: &Term) -> Option<Cel> {
    match operator {
        "Equals" | "Equal" => equals(key, value),
        "NotEquals" | "NotEqual" => equals(key, value).map(Cel::negate),
        "In" | "AnyIn" | "AllIn" | "NotIn" | "AnyNotIn" | "AllNotIn" => {
            membership(operator, key, value)
        }
        "GreaterThan" | "DurationGreaterThan" => ordered(Operator::More, key, value),
        "GreaterThanOrEquals" | "DurationGreaterThanOrEquals" => {
            ordered(Operator::MoreEqual, key, value)
        }
        "LessThan" | "DurationLessThan" => ordered(Operator::Less, key, value),
        "LessThanOrEquals" | "DurationLessThanOrEquals" => ordered(Operator::LessEqual, key, value),
        _ => None,
    }
}

fn equals(key: &Term, value: &Term) -> Option<Cel> {
    let (key, value) = match (key, value) {
        (Term::Literal(a), Term::Literal(b)) => return Some(Cel::bool(a == b)),
        // A list of conditions may name the constant first.
        (Term::Literal(_), other) if !matches!(other.shape(), Shape::Text) => (other, key),
        pair => pair,
    };
    let Term::Literal(constant) = value else {
        return Some(key.strict().equals(value.strict()));
    };
    let shape = key.shape();
    Some(match constant {
        Value::String(text) => match shape {
            Shape::Bool => key.strict().equals(Cel::bool(text.parse().ok()?)),
            Shape::Int => key.strict().equals(Cel::int(text.parse().ok()?)),
            Shape::Quantity if Quantity::parse(text).is_ok() => {
                quantity(key).call("compareTo", vec![quantity(value)]).equals(Cel::int(0))
            }
            Shape::List(_) | Shape::Map(_) | Shape::Struct(_) => Cel::bool(false),
            _ => wildcards::matches(key.strict(), text),
        },
        Value::Bool(truth) => match key.strict() {
            cel if cel.is_condition() && *truth => cel,
            cel if cel.is_condition() => cel.negate(),
            cel => cel.equals(Cel::bool(*truth)),
        },
        Value::Number(_) if shape == Shape::Text => return None,
        Value::List(_) | Value::Map(_) if shape == Shape::Text => Cel::bool(false),
        Value::List(list) if list.is_empty() && shape.is_list() => {
            Cel::function("size", vec![key.list()]).equals(Cel::int(0))
        }
        Value::Null => return None,
        _ => key.strict().equals(value.strict()),
    })
}

fn quantity(term: &Term) -> Cel {
    let text = match term {
        Term::Literal(number @ Value::Number(_)) => Cel::text(kiln_value::json::to_string(number)),
        term => term.strict(),
    };
    Cel::function("quantity", vec![text])
}

/// Whether a value is an empty text where it is missing, which is no quantity.
fn may_be_empty(term: &Term) -> bool {
    matches!(term.strict(), Cel::Call { function, args, .. }
        if function == "orValue" && args.first() == Some(&Cel::text("")))
}

/// Whether an element is in what a condition lists.
enum Members<'v> {
    Constants(Vec<&'v Value>),
    /// A list that is computed.
    List(Cel),
    /// From one number to another.
    Range(i64, i64),
}

impl Members<'_> {
    fn has(&self, element: &Cel, shape: &Shape) -> Option<Cel> {
        match self {
            Members::List(list) => Some(element.clone().within(list.clone())),
            Members::Range(from, to) => Some(Cel::all([
                Cel::binary(Operator::MoreEqual, element.clone(), Cel::int(*from)),
                Cel::binary(Operator::LessEqual, element.clone(), Cel::int(*to)),
            ])),
            Members::Constants(constants) => {
                let each: Option<Vec<Cel>> = constants
                    .iter()
                    .map(|constant| match (constant, shape) {
                        (
                            Value::Number(_),
                            Shape::Int | Shape::Double | Shape::IntOrString | Shape::Unknown,
                        ) => Some(element.clone().equals(Cel::Literal((*constant).clone()))),
                        (Value::String(text), Shape::Int) => {
                            Some(element.clone().equals(Cel::int(text.parse().ok()?)))
                        }
                        (Value::String(text), _) => Some(wildcards::matches(element.clone(), text)),
                        (Value::Bool(truth), _) => Some(element.clone().equals(Cel::bool(*truth))),
                        (Value::Number(number), Shape::Text) => {
                            Some(element.clone().equals(Cel::text(number.to_string())))
                        }
                        _ => None,
                    })
                    .collect();
                Some(Cel::any(each?))
            }
        }
    }
}

fn membership(operator: &str, key: &Term, value: &Term) -> Option<Cel> {
    let constants = || match value {
        Term::Literal(Value::List(list)) => Some(list.iter().collect::<Vec<_>>()),
        Term::Literal(Value::String(_)) => match value {
            Term::Literal(text) => Some(vec![text]),
            _ => None,
        },
        _ => None,
    };
    // Whether a map has some keys.
    if let Some(map) = map_of_keys(key)
        && let Some(names) = constants()
        && let Some(names) = names.iter().map(|name| name.as_str()).collect::<Option<Vec<_>>>()
        && matches!(operator, "AnyIn" | "AllNotIn")
        && !names.iter().any(|name| kiln_text::wildcard::contains_wildcard(name))
    {
        let has = Cel::any(names.iter().map(|name| map.clone().select(name).has()));
        return Some(if operator == "AnyIn" { has } else { has.negate() });
    }
    // A list of constants, and one value of the object.
    if let (Term::Literal(Value::List(list)), Term::Place(place)) = (key, value)
        && place.is_of_object()
        && matches!(place.shape, Shape::Text | Shape::Unknown)
    {
        let found = Members::Constants(list.iter().collect()).has(&place.plain(), &Shape::Text)?;
        return match operator {
            "AnyIn" => Some(found),
            "AllNotIn" => Some(found.negate()),
            _ => None,
        };
    }
    let members = match value {
        Term::Literal(Value::List(list)) => Members::Constants(list.iter().collect()),
        Term::Literal(Value::String(text)) if kiln_text::range::ends(text, "-").is_some() => {
            let (from, to) = kiln_text::range::ends(text, "-")?;
            Members::Range(from.parse().ok()?, to.parse().ok()?)
        }
        Term::Literal(Value::String(text)) if text.trim_start().starts_with('[') => {
            let Ok(Value::List(list)) = kiln_value::json::parse(text) else { return None };
            Members::List(crate::term::literal(&Value::List(list)))
        }
        Term::Literal(constant @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
            Members::Constants(vec![constant])
        }
        Term::Literal(_) => return None,
        Term::Several(_) => Members::List(value.strict()),
        Term::Place(place) if place.is_of_object() && place.shape == Shape::Text => {
            return Some(match operator {
                "In" | "AnyIn" | "AllIn" => key.strict().equals(value.strict()),
                _ => key.strict().differs(value.strict()),
            })
            .filter(|_| !key.shape().is_list());
        }
        value if value.shape() == Shape::Text => {
            // Kyverno: a text that holds a JSON list is that list.
            Members::List(Cel::name("json").call("Unmarshal", vec![value.strict()]))
        }
        value => Members::List(value.strict()),
    };
    let is_list =
        key.shape().is_list() || matches!(key, Term::Several(_) | Term::Literal(Value::List(_)));
    let negated = matches!(operator, "NotIn" | "AnyNotIn" | "AllNotIn");
    if !is_list {
        let found = members.has(&key.strict(), &key.shape())?;
        return Some(if negated { found.negate() } else { found });
    }
    let list = key.list();
    let mut scope = Scope::default();
    let mut name = scope.fresh(&list);
    if list.mentions(&name) {
        name = format!("{name}Value");
    }
    let mut found = members.has(&Cel::name(&name), &key.shape().element())?;
    // Kyverno: a key may be a wildcard, too. In rules of roles a star is one that means everything.
    let of_roles = ["verb", "apiGroup", "resource", "resourceName"];
    if of_roles.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit()))
        && operator == "AnyIn"
    {
        found = Cel::any([found, Cel::name(&name).equals(Cel::text("*"))]);
    }
    Some(match operator {
        "AnyIn" => list.each("exists", &name, found),
        "In" | "AllIn" => list.each("all", &name, found),
        "AnyNotIn" | "NotIn" => list.each("exists", &name, found.negate()),
        _ => list.each("all", &name, found.negate()),
    })
}

fn ordered(operator: Operator, key: &Term, value: &Term) -> Option<Cel> {
    let flipped = |operator: Operator| match operator {
        Operator::More => Operator::Less,
        Operator::MoreEqual => Operator::LessEqual,
        Operator::Less => Operator::More,
        _ => Operator::MoreEqual,
    };
    let (key, value, operator) = match (key, value) {
        (Term::Literal(_), Term::Literal(_)) => return None,
        (Term::Literal(_), other) => (other, key, flipped(operator)),
        _ => (key, value, operator),
    };
    let plain = |value: &Term| Some(Cel::binary(operator, key.strict(), value.strict()));
    let measured = || {
        let compared = quantity(key).call("compareTo", vec![quantity(value)]);
        let compared = Cel::binary(operator, compared, Cel::int(0));
        Some(match may_be_empty(key) {
            true => Cel::all([Cel::function("isQuantity", vec![key.strict()]), compared]),
            false => compared,
        })
    };
    match (key.shape(), value) {
        (Shape::Quantity, _) => measured(),
        (Shape::Int | Shape::Double, Term::Literal(Value::String(text))) => {
            let number = kiln_text::float::parse(text)?;
            plain(&Term::Literal(number_literal(number)))
        }
        (Shape::Int | Shape::Double, _) => plain(value),
        (Shape::IntOrString, Term::Literal(Value::Number(_))) => {
            let is_number = Cel::function("type", vec![key.strict()]).equals(Cel::name("int"));
            Some(Cel::all([is_number, plain(value)?]))
        }
        (_, Term::Literal(Value::Number(_))) => plain(value),
        (_, Term::Literal(Value::String(text))) => {
            if text.as_str() != "0" && Duration::parse(text).is_ok() {
                let duration = |term: &Term| Cel::function("duration", vec![term.strict()]);
                return Some(Cel::binary(operator, duration(key), duration(value)));
            }
            if let Some(number) =
                kiln_text::float::parse(text).filter(|_| key.shape() == Shape::Unknown)
            {
                return plain(&Term::Literal(number_literal(number)));
            }
            Quantity::parse(text).ok()?;
            measured()
        }
        _ => plain(value),
    }
}

fn number_literal(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
