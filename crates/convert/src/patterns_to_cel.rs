//! Kyverno's patterns, with their anchors and operators, as CEL conditions.

use kiln_pattern::{Anchor, AnchorKind, LeafOperator, value_matches};
use kiln_text::duration::Duration;
use kiln_text::quantity::Quantity;
use kiln_text::{range, wildcard};
use kiln_value::{Map, Path, Value};

use crate::cel::{Cel, Operator};
use crate::jmespath_to_cel::Scope;
use crate::shape::Shape;
use crate::templates;
use crate::term::{Place, Term};
use crate::verdict::{CoveredRequests, Difference, Obstacle};
use crate::wildcards;

/// What a pattern asks of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PatternChecks {
    /// What must hold for the pattern to say anything.
    pub(crate) guards: Vec<Cel>,
    /// What must hold then.
    pub(crate) checks: Vec<Cel>,
}

/// What a part of a pattern asks of a place.
struct PatternDemand {
    cel: Cel,
    /// It holds where the place is missing.
    holds_if_missing: bool,
}

/// Translates a pattern for an object.
pub(crate) fn pattern(
    pattern: &Value,
    object: &Place,
    scope: &Scope,
    path: &Path,
) -> Result<PatternChecks, Obstacle> {
    let mut patterns = Patterns::new(scope, false);
    let Value::Map(map) = pattern else {
        return Err(Obstacle::new("a pattern that is not a map", "write a map").at(path));
    };
    let mut checks = Vec::new();
    for asked in patterns.fields(map, object, path)? {
        checks.push(asked.cel);
    }
    let Patterns { guards, global, .. } = patterns;
    let checks = match Cel::all(checks) {
        Cel::All(parts) => parts,
        one => vec![one],
    };
    Ok(PatternChecks { guards: guards.into_iter().chain(global).collect(), checks })
}

struct Patterns {
    scope: Scope,
    /// Conditions outside of lists.
    guards: Vec<Cel>,
    global: Vec<Cel>,
    in_list: bool,
    /// What is asked is itself a condition of the pattern.
    in_condition: bool,
    /// The conditions of the element of a list that is being read.
    applies: Vec<Cel>,
}

impl Patterns {
    fn new(scope: &Scope, in_list: bool) -> Self {
        Patterns {
            scope: scope.clone(),
            guards: Vec::new(),
            global: Vec::new(),
            in_list,
            in_condition: false,
            applies: Vec::new(),
        }
    }

    /// What the fields of a map ask, with the conditions of that map in front where it is an element of a list.
    fn fields(
        &mut self,
        pattern: &Map,
        place: &Place,
        path: &Path,
    ) -> Result<Vec<PatternDemand>, Obstacle> {
        let (mut conditions, mut asked) = (Vec::new(), Vec::new());
        for (key, wanted) in pattern {
            let path = path.join(key);
            let anchor = Anchor::parse(key);
            let name = anchor.map_or(key.as_str(), |anchor| anchor.key);
            if name.contains("{{") {
                return Err(
                    Obstacle::new("a variable in a key", "write the condition in CEL").at(&path)
                );
            }
            if wildcard::contains_wildcard(name) {
                asked.push(self.wildcard_key(
                    name,
                    anchor.map(|anchor| anchor.kind),
                    wanted,
                    place,
                    &path,
                )?);
                continue;
            }
            let field = place.field(name);
            match anchor.map(|anchor| anchor.kind) {
                None => asked.push(self.required(wanted, &field, &path)?),
                Some(AnchorKind::Equality) => asked.push(self.if_present(wanted, &field, &path)?),
                Some(AnchorKind::Condition) => {
                    let was = std::mem::replace(&mut self.in_condition, true);
                    let asked = self.required(wanted, &field, &path);
                    self.in_condition = was;
                    conditions.push(asked?.cel);
                }
                Some(AnchorKind::Global) => {
                    let held = self.if_present(wanted, &field, &path)?.cel;
                    self.global.push(held);
                }
                Some(AnchorKind::Negation) => {
                    asked.push(PatternDemand { cel: field.has().negate(), holds_if_missing: true });
                }
                Some(AnchorKind::Existence) => asked.push(self.existence(wanted, &field, &path)?),
                Some(_) => {
                    return Err(Obstacle::new(
                        format!("anchor {key}"),
                        "validate rules have no such anchor",
                    )
                    .at(&path));
                }
            }
        }
        if conditions.is_empty() {
            return Ok(asked);
        }
        if !self.in_list {
            // A map that is missing has no conditions: the pattern asks for it.
            if place.is_present() {
                self.guards.extend(conditions);
            } else {
                let held = Cel::any([place.has().negate(), Cel::all(conditions)]);
                self.guards.push(held);
                asked.insert(0, PatternDemand { cel: place.has(), holds_if_missing: false });
            }
            return Ok(asked);
        }
        self.applies.extend(conditions.iter().cloned());
        let checks = Cel::all(asked.into_iter().map(|asked| asked.cel));
        let cel = Cel::any([Cel::all(conditions).negate(), checks]);
        Ok(vec![PatternDemand { cel, holds_if_missing: false }])
    }

    /// `key: pattern`
    fn required(
        &mut self,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        if wanted.as_str() == Some("*") {
            return Ok(PatternDemand { cel: place.has(), holds_if_missing: false });
        }
        let asked = self.value(wanted, place, path)?;
        if asked.holds_if_missing && !matches!(wanted, Value::Null) {
            return Ok(PatternDemand {
                cel: Cel::all([place.has(), asked.cel]),
                holds_if_missing: false,
            });
        }
        Ok(asked)
    }

    /// `=(key): pattern`
    fn if_present(
        &mut self,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        let holds_if_missing = true;
        if let Value::String(text) = wanted
            && let Some(cel) = self.leaf_if_present(text, place)
        {
            return Ok(PatternDemand { cel, holds_if_missing });
        }
        if let Value::Bool(truth) = wanted {
            return Ok(PatternDemand {
                cel: place.or(Cel::bool(*truth)).equals(Cel::bool(*truth)),
                holds_if_missing,
            });
        }
        if matches!(wanted, Value::List(_)) || place.shape.is_list() {
            return Ok(PatternDemand {
                cel: self.elements(wanted, place.or(Cel::empty_list()), &place.shape, path)?,
                holds_if_missing,
            });
        }
        let asked = self.value(wanted, place, path)?;
        let cel = match asked.holds_if_missing || place.is_present() {
            true => asked.cel,
            false => Cel::any([place.has().negate(), asked.cel]),
        };
        Ok(PatternDemand { cel, holds_if_missing })
    }

    fn value(
        &mut self,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        match wanted {
            Value::Map(map) => {
                let asked = self.fields(map, place, path)?;
                let holds_if_missing = asked.iter().all(|asked| asked.holds_if_missing);
                Ok(PatternDemand {
                    cel: Cel::all(asked.into_iter().map(|asked| asked.cel)),
                    holds_if_missing,
                })
            }
            Value::List(_) => {
                let all = self.elements(wanted, place.plain(), &place.shape, path)?;
                Ok(PatternDemand { cel: Cel::all([place.has(), all]), holds_if_missing: false })
            }
            leaf if place.shape.is_list() => {
                let list = Value::List(vec![leaf.clone()].into());
                let all = self.elements(&list, place.or(Cel::empty_list()), &place.shape, path)?;
                Ok(PatternDemand { cel: all, holds_if_missing: true })
            }
            leaf => self.leaf(leaf, place, path),
        }
    }

    /// Every element is as the first pattern says.
    fn elements(
        &mut self,
        wanted: &Value,
        list: Cel,
        shape: &Shape,
        path: &Path,
    ) -> Result<Cel, Obstacle> {
        let first = match wanted {
            Value::List(patterns) => patterns.iter().next(),
            leaf => Some(leaf),
        };
        let Some(first) = first else { return Ok(Cel::bool(false)) };
        if matches!(first, Value::List(_)) {
            return Err(Obstacle::new(
                "a list in a list of patterns",
                "write the condition in CEL",
            )
            .at(path));
        }
        let name = self.scope.fresh(&list);
        let element = Place::of(Cel::name(&name), shape.element());
        let was = std::mem::replace(&mut self.in_list, true);
        let outer = std::mem::take(&mut self.applies);
        let asked = self.required(first, &element, &path.join(0usize));
        let applies = std::mem::replace(&mut self.applies, outer);
        self.in_list = was;
        self.scope.release(&name);
        let all = match asked?.cel {
            cel if cel.is_bool(true) => cel,
            cel => list.clone().each("all", &name, cel),
        };
        // A condition on elements is met by those that it applies to, of which there has to be one.
        Ok(match self.in_condition && !applies.is_empty() {
            true => Cel::all([list.each("exists", &name, Cel::all(applies)), all]),
            false => all,
        })
    }

    /// `^(key): [patterns]`: each pattern is met by some element.
    fn existence(
        &mut self,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        let Value::List(patterns) = wanted else {
            return Err(Obstacle::new(
                "an existence anchor without a list",
                "write a list of patterns",
            )
            .at(path));
        };
        let mut each = Vec::new();
        for (at, pattern) in patterns.iter().enumerate() {
            let list = place.plain();
            let name = self.scope.fresh(&list);
            let element = Place::of(Cel::name(&name), place.shape.element());
            let was = std::mem::replace(&mut self.in_list, true);
            let asked = self.required(pattern, &element, &path.join(at));
            self.in_list = was;
            each.push(list.each("exists", &name, asked?.cel));
        }
        Ok(PatternDemand {
            cel: Cel::any([place.has().negate(), Cel::all(each)]),
            holds_if_missing: true,
        })
    }

    /// A key with wildcards, of labels or annotations: one that meets it has a value as wanted.
    fn wildcard_key(
        &mut self,
        name: &str,
        kind: Option<AnchorKind>,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        let map = place.or(Cel::Map(Vec::new()));
        let key = self.scope.fresh(&Cel::name("keys"));
        let value = Place::of(map.clone().index(Cel::name(&key), false), Shape::Text);
        let met = wildcards::matches(Cel::name(&key), name);
        let asked = self.required(wanted, &value, path)?;
        if !matches!(kind, Some(AnchorKind::Negation)) {
            self.scope.note(Difference::other(
                format!("objects with several keys that {name} means"),
                "the rule looks at the first of them; the new policy looks at all",
                CoveredRequests::SeveralKeys(name.to_owned()),
            ));
        }
        Ok(match kind {
            None | Some(AnchorKind::Condition) => PatternDemand {
                cel: map.each("exists", &key, Cel::all([met, asked.cel])),
                holds_if_missing: false,
            },
            Some(AnchorKind::Negation) => {
                PatternDemand { cel: map.each("all", &key, met.negate()), holds_if_missing: true }
            }
            Some(AnchorKind::Equality) => PatternDemand {
                cel: map.each("all", &key, Cel::any([met.negate(), asked.cel])),
                holds_if_missing: true,
            },
            Some(_) => {
                return Err(Obstacle::new(
                    "this anchor on a key with wildcards",
                    "write the condition in CEL",
                )
                .at(path));
            }
        })
    }

    fn leaf(
        &mut self,
        wanted: &Value,
        place: &Place,
        path: &Path,
    ) -> Result<PatternDemand, Obstacle> {
        let asked = |cel: Cel, holds_if_missing: bool| Ok(PatternDemand { cel, holds_if_missing });
        match wanted {
            Value::Bool(truth) => {
                asked(place.or(Cel::bool(!truth)).equals(Cel::bool(*truth)), false)
            }
            Value::Number(_) => {
                let unlike = crate::jmespath_to_cel::unlike(wanted);
                let wanted = match place.shape {
                    Shape::Text | Shape::Quantity => {
                        let text = kiln_value::json::to_string(wanted);
                        return self.leaf(&Value::from(text), place, path);
                    }
                    _ => Cel::Literal(wanted.clone()),
                };
                asked(place.or(unlike).equals(wanted), false)
            }
            Value::Null => asked(
                match place.shape {
                    Shape::Text => place.or(Cel::text("")).equals(Cel::text("")),
                    Shape::Bool => place.or(Cel::bool(false)).equals(Cel::bool(false)),
                    Shape::Int => place.or(Cel::int(0)).equals(Cel::int(0)),
                    _ => place.has().negate(),
                },
                true,
            ),
            Value::String(text) => {
                if text.contains("$(") {
                    return Err(
                        Obstacle::new("a reference $( )", "compare the two fields in CEL").at(path)
                    );
                }
                if templates::has_variables(wanted) {
                    let term = templates::text_term(text, &self.scope)
                        .map_err(|obstacle| obstacle.at(path))?;
                    let equal = place.optional().equals(term.optional());
                    return asked(
                        if place.is_present() {
                            place.plain().equals(term.strict())
                        } else {
                            equal
                        },
                        false,
                    );
                }
                let leaf = Leaf::new(text, &place.shape);
                let missing = kiln_value::Value::Null;
                if leaf.is_numeric() && value_matches(wanted, &missing) {
                    // Kyverno: a number that is missing counts as 0.
                    return asked(
                        leaf.holds(&place.or(leaf.zero())).ok_or_else(|| cannot(text, path))?,
                        true,
                    );
                }
                let empty = leaf.empty();
                let holds = |cel: &Cel| leaf.holds(cel).ok_or_else(|| cannot(text, path));
                if place.is_present() || !leaf.takes_empty() {
                    return asked(holds(&place.or(empty))?, false);
                }
                asked(Cel::all([place.has(), holds(&place.plain())?]), false)
            }
            Value::List(_) | Value::Map(_) => Err(cannot("a map or list", path)),
        }
    }

    /// A text behind `=( )`, where a default will do.
    fn leaf_if_present(&self, text: &str, place: &Place) -> Option<Cel> {
        if text.contains("$(") || text.contains("{{") || place.shape.is_list() {
            return None;
        }
        let leaf = Leaf::new(text, &place.shape);
        if place.is_present() {
            return leaf.holds(&place.plain());
        }
        if let Some(default) = leaf.fitting() {
            return leaf.holds(&place.or(default));
        }
        Some(Cel::any([place.has().negate(), leaf.holds(&place.plain())?]))
    }
}

fn cannot(text: &str, path: &Path) -> Obstacle {
    Obstacle::new(format!("pattern {text:?}"), "write the condition in CEL").at(path)
}

/// A text with operators, for values of a type.
struct Leaf<'l> {
    text: &'l str,
    shape: Shape,
}

impl<'l> Leaf<'l> {
    fn new(text: &'l str, shape: &Shape) -> Self {
        let numeric = || {
            let parts =
                || text.split('|').flat_map(|any| any.split('&')).map(|part| split(part.trim()).1);
            parts().all(|part| part.parse::<i64>().is_ok()) && parts().next().is_some()
        };
        let shape = match shape {
            Shape::Unknown | Shape::IntOrString if numeric() => Shape::Int,
            Shape::Unknown | Shape::IntOrString | Shape::Either(_) => Shape::Text,
            shape => shape.clone(),
        };
        Leaf { text, shape }
    }

    fn is_numeric(&self) -> bool {
        matches!(self.shape, Shape::Int | Shape::Double | Shape::Quantity)
    }

    fn zero(&self) -> Cel {
        if self.shape == Shape::Quantity { Cel::text("0") } else { Cel::int(0) }
    }

    /// What stands for a value that is not there, so that the pattern fails.
    fn empty(&self) -> Cel {
        match self.shape {
            Shape::Bool => Cel::bool(!self.text.contains("true")),
            Shape::Int | Shape::Double => Cel::int(0),
            Shape::Quantity => Cel::text("0"),
            _ => Cel::text(""),
        }
    }

    /// Whether the pattern takes what stands for a missing value.
    fn takes_empty(&self) -> bool {
        match self.shape {
            Shape::Bool => self.text.starts_with('!'),
            Shape::Int | Shape::Double => value_matches(&self.text.into(), &Value::from(0)),
            Shape::Quantity => value_matches(&self.text.into(), &Value::from("0")),
            _ => value_matches(&self.text.into(), &Value::from("")),
        }
    }

    /// A value that the pattern takes, to stand for a missing one.
    fn fitting(&self) -> Option<Cel> {
        match self.shape {
            Shape::Bool => self.text.parse().ok().map(Cel::bool),
            Shape::Int | Shape::Double => {
                let first = self.text.split('|').next()?.trim();
                let fits = value_matches(&self.text.into(), &Value::from(0));
                if fits { Some(Cel::int(0)) } else { first.parse().ok().map(Cel::int) }
            }
            Shape::Quantity => {
                value_matches(&self.text.into(), &Value::from("0")).then(|| Cel::text("0"))
            }
            _ if value_matches(&self.text.into(), &Value::from("")) => Some(Cel::text("")),
            _ => {
                let first = self.text.split('|').next()?.trim();
                let plain =
                    !wildcard::contains_wildcard(first) && split(first).0 == Operator::Equal;
                (plain && range::ends(first, "-").is_none()).then(|| Cel::text(first))
            }
        }
    }

    /// Whether a value meets the pattern; none where CEL has nothing for it.
    fn holds(&self, value: &Cel) -> Option<Cel> {
        let any: Option<Vec<Cel>> = self
            .text
            .split('|')
            .map(|any| {
                let all: Option<Vec<Cel>> =
                    any.split('&').map(|part| self.part(value, part.trim())).collect();
                all.map(Cel::all)
            })
            .collect();
        any.map(Cel::any)
    }

    fn part(&self, value: &Cel, part: &str) -> Option<Cel> {
        let (operator, rest) = split(part);
        if operator == Operator::Equal && part.len() > 1 {
            if let Some((from, to)) = range::ends(part, "!-") {
                return Some(Cel::any([
                    self.compare(value, Operator::Less, from)?,
                    self.compare(value, Operator::More, to)?,
                ]));
            }
            if let Some((from, to)) = range::ends(part, "-") {
                return Some(Cel::all([
                    self.compare(value, Operator::MoreEqual, from)?,
                    self.compare(value, Operator::LessEqual, to)?,
                ]));
            }
        }
        self.compare(value, operator, rest)
    }

    fn compare(&self, value: &Cel, operator: Operator, wanted: &str) -> Option<Cel> {
        match self.shape {
            Shape::Bool => {
                let truth: bool = wanted.parse().ok()?;
                let wanted = if operator == Operator::NotEqual { !truth } else { truth };
                Some(value.clone().equals(Cel::bool(wanted)))
            }
            Shape::Int | Shape::Double if wanted == "*" || wanted == "?*" => {
                Some(Cel::bool(operator == Operator::Equal))
            }
            Shape::Int | Shape::Double => {
                let number: f64 = kiln_text::float::parse(wanted)?;
                let number = if number.fract() == 0.0 {
                    Value::from(number as i64)
                } else {
                    Value::from(number)
                };
                Some(Cel::binary(operator, value.clone(), Cel::Literal(number)))
            }
            Shape::Quantity if wanted == "*" || wanted == "?*" => {
                Some(Cel::bool(operator == Operator::Equal))
            }
            Shape::Quantity => {
                Quantity::parse(wanted).ok()?;
                let quantity = |cel: Cel| Cel::function("quantity", vec![cel]);
                let compared =
                    quantity(value.clone()).call("compareTo", vec![quantity(Cel::text(wanted))]);
                Some(Cel::binary(operator, compared, Cel::int(0)))
            }
            _ => match operator {
                Operator::Equal => Some(wildcards::matches(value.clone(), wanted)),
                Operator::NotEqual => Some(wildcards::matches(value.clone(), wanted).negate()),
                _ => text_order(value, operator, wanted),
            },
        }
    }
}

/// Texts in an order: as durations, or as quantities.
fn text_order(value: &Cel, operator: Operator, wanted: &str) -> Option<Cel> {
    if wanted != "0" && Duration::parse(wanted).is_ok() {
        let duration = |cel: Cel| Cel::function("duration", vec![cel]);
        return Some(Cel::binary(operator, duration(value.clone()), duration(Cel::text(wanted))));
    }
    Quantity::parse(wanted).ok()?;
    let quantity = |cel: Cel| Cel::function("quantity", vec![cel]);
    let is_quantity = Cel::function("isQuantity", vec![value.clone()]);
    let compared = quantity(value.clone()).call("compareTo", vec![quantity(Cel::text(wanted))]);
    Some(Cel::all([is_quantity, Cel::binary(operator, compared, Cel::int(0))]))
}

/// The operator of a pattern in CEL, and the rest.
fn split(part: &str) -> (Operator, &str) {
    let (operator, rest) = LeafOperator::split(part);
    let operator = match operator {
        LeafOperator::Equal => Operator::Equal,
        LeafOperator::NotEqual => Operator::NotEqual,
        LeafOperator::More => Operator::More,
        LeafOperator::MoreEqual => Operator::MoreEqual,
        LeafOperator::Less => Operator::Less,
        LeafOperator::LessEqual => Operator::LessEqual,
    };
    (operator, rest.trim())
}

/// The same conditions as terms of a place that is not an object but an element.
pub(crate) fn element_pattern(
    wanted: &Value,
    element: &Term,
    scope: &Scope,
    path: &Path,
) -> Result<Cel, Obstacle> {
    let mut patterns = Patterns::new(scope, true);
    let place = Place::of(element.strict(), element.shape());
    Ok(patterns.required(wanted, &place, path)?.cel)
}
