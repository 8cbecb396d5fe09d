//! What a part of a JMESPath expression or of a pattern becomes: a place that may be missing, an optional, or a value.

use kiln_value::Value;

use crate::cel::Cel;
use crate::shape::Shape;

/// A place below something that is there: fields and elements, each of which may be missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    base: Cel,
    steps: Vec<PlaceStep>,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
struct PlaceStep {
    key: StepKey,
    /// It is there in every object that an API server stores.
    always: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum StepKey {
    Field(String),
    Computed(Box<Cel>),
}

impl Place {
    pub(crate) fn of(base: Cel, shape: Shape) -> Self {
        Place { base, steps: Vec::new(), shape }
    }

    pub(crate) fn field(&self, name: &str) -> Place {
        let (shape, always) = self.shape.field(name);
        let mut place = self.clone();
        place.steps.push(PlaceStep { key: StepKey::Field(name.to_owned()), always });
        place.shape = shape;
        place
    }

    /// The value of a key that is computed, or an element by its number.
    pub(crate) fn at(&self, key: Cel, shape: Shape) -> Place {
        let mut place = self.clone();
        place.steps.push(PlaceStep { key: StepKey::Computed(Box::new(key)), always: false });
        place.shape = shape;
        place
    }

    /// Whether it is a part of the object that a rule is about, and not of something that was read.
    pub(crate) fn is_of_object(&self) -> bool {
        self.base == Cel::name("object") || self.base == Cel::name("oldObject")
    }

    /// Whether it is there in every object that an API server stores.
    pub(crate) fn is_present(&self) -> bool {
        self.steps.iter().all(|step| step.always)
    }

    /// The value; an error if it is missing.
    pub(crate) fn plain(&self) -> Cel {
        self.steps.iter().fold(self.base.clone(), |cel, step| step.on(cel, false))
    }

    /// The value as an optional.
    pub(crate) fn optional(&self) -> Cel {
        if self.is_present() {
            return Cel::function("optional.of", vec![self.plain()]);
        }
        let mut optional = false;
        self.steps.iter().fold(self.base.clone(), |cel, step| {
            optional = optional || !step.always;
            step.on(cel, optional)
        })
    }

    /// Whether it is there.
    pub(crate) fn has(&self) -> Cel {
        match self.steps.split_last() {
            None => Cel::bool(true),
            _ if self.is_present() => Cel::bool(true),
            Some((_, before)) if before.iter().all(|step| step.always) && self.last_is_field() => {
                self.plain().has()
            }
            _ => self.optional().call("hasValue", vec![]),
        }
    }

    fn last_is_field(&self) -> bool {
        self.steps.last().is_some_and(|step| matches!(step.key, StepKey::Field(_)))
    }

    /// The value, or else a default.
    pub(crate) fn or(&self, default: Cel) -> Cel {
        if self.is_present() { self.plain() } else { self.optional().or_value(default) }
    }
}

impl PlaceStep {
    fn on(&self, cel: Cel, optional: bool) -> Cel {
        match &self.key {
            StepKey::Field(name) if optional => cel.maybe(name),
            StepKey::Field(name) => cel.select(name),
            StepKey::Computed(key) => cel.index((**key).clone(), optional),
        }
    }
}

/// What a part of an expression becomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Place(Place),
    /// An expression that gives an optional.
    Optional(Cel, Shape),
    /// An expression that gives a value, or fails.
    Value(Cel, Shape),
    /// A list made of a list that may be missing, and is null then: `value` fails if it is, `lenient` is empty.
    Guarded {
        has: Cel,
        value: Cel,
        lenient: Cel,
        shape: Shape,
    },
    Literal(Value),
    /// `[a, b]`, of parts that may be missing.
    Several(Vec<Term>),
    /// `{a: x}`
    Fields(Vec<(String, Term)>),
    /// The images of the containers in these lists of a Pod.
    Images(Vec<Term>),
    /// One image, parsed.
    Image(Box<Cel>),
}

impl Term {
    pub(crate) fn shape(&self) -> Shape {
        match self {
            Term::Place(place) => place.shape.clone(),
            Term::Optional(_, shape) | Term::Value(_, shape) | Term::Guarded { shape, .. } => {
                shape.clone()
            }
            Term::Literal(value) => Shape::of_value(value),
            Term::Several(parts) => {
                Shape::List(Box::new(parts.first().map_or(Shape::Unknown, Term::shape)))
            }
            Term::Fields(_) => Shape::Map(Box::new(Shape::Unknown)),
            Term::Images(_) => Shape::List(Box::new(Shape::Unknown)),
            Term::Image(_) => Shape::Unknown,
        }
    }

    /// The value; an error if it is missing.
    pub(crate) fn strict(&self) -> Cel {
        match self {
            Term::Place(place) => place.plain(),
            Term::Optional(cel, _) => cel.clone().call("value", vec![]),
            Term::Value(cel, _) | Term::Guarded { value: cel, .. } => cel.clone(),
            Term::Literal(value) => literal(value),
            Term::Several(parts) => Cel::List(parts.iter().map(Term::strict).collect()),
            Term::Fields(parts) => {
                Cel::Map(parts.iter().map(|(key, part)| (Cel::text(key), part.strict())).collect())
            }
            Term::Images(lists) => images(lists),
            Term::Image(image) => (**image).clone(),
        }
    }

    /// The value, or else a default.
    pub(crate) fn or(&self, default: Cel) -> Cel {
        match self {
            Term::Place(place) => place.or(default),
            Term::Optional(cel, _) => cel.clone().or_value(default),
            Term::Guarded { lenient, .. } if default == Cel::empty_list() => lenient.clone(),
            Term::Guarded { has, value, .. } => Cel::choose(has.clone(), value.clone(), default),
            other => other.strict(),
        }
    }

    pub(crate) fn optional(&self) -> Cel {
        match self {
            Term::Place(place) => place.optional(),
            Term::Optional(cel, _) => cel.clone(),
            Term::Guarded { has, value, .. } => Cel::choose(
                has.clone(),
                Cel::function("optional.of", vec![value.clone()]),
                Cel::function("optional.none", vec![]),
            ),
            other => Cel::function("optional.of", vec![other.strict()]),
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        match self {
            Term::Place(place) => place.is_present(),
            Term::Optional(..) | Term::Guarded { .. } => false,
            _ => true,
        }
    }

    pub(crate) fn has(&self) -> Cel {
        match self {
            Term::Place(place) => place.has(),
            Term::Optional(cel, _) => cel.clone().call("hasValue", vec![]),
            Term::Guarded { has, .. } => has.clone(),
            Term::Literal(Value::Null) => Cel::bool(false),
            _ => Cel::bool(true),
        }
    }

    /// What a step makes of it as a list; as with JMESPath, nothing comes of nothing.
    pub(crate) fn mapped(&self, step: impl Fn(Cel) -> Cel, shape: Shape) -> Term {
        match self {
            Term::Guarded { has, value, lenient, .. } => Term::Guarded {
                has: has.clone(),
                value: step(value.clone()),
                lenient: step(lenient.clone()),
                shape,
            },
            Term::Place(place) if !place.is_present() => Term::Guarded {
                has: place.has(),
                value: step(place.plain()),
                lenient: step(place.or(Cel::empty_list())),
                shape,
            },
            other => Term::Value(step(other.list()), shape),
        }
    }

    /// As a list, empty if it is missing. A list of several lists is joined.
    pub(crate) fn list(&self) -> Cel {
        match self {
            Term::Several(parts) => {
                let mut parts = parts.iter().map(|part| part.or(Cel::empty_list()));
                let first = parts.next().unwrap_or_else(Cel::empty_list);
                parts.fold(first, Cel::plus)
            }
            Term::Literal(Value::Null) => Cel::empty_list(),
            other => other.or(Cel::empty_list()),
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Term::Literal(value) => value.as_str(),
            _ => None,
        }
    }

    /// A field of it.
    pub(crate) fn field(&self, name: &str) -> Term {
        match self {
            Term::Place(place) => Term::Place(place.field(name)),
            Term::Optional(cel, shape) => {
                Term::Optional(cel.clone().maybe(name), shape.field(name).0)
            }
            Term::Value(cel, shape) | Term::Guarded { value: cel, shape, .. } => {
                Term::Place(Place::of(cel.clone(), shape.clone()).field(name))
            }
            Term::Literal(value) => Term::Literal(value.get(name).cloned().unwrap_or(Value::Null)),
            Term::Fields(parts) => {
                let found = parts.iter().find(|(key, _)| key == name).map(|(_, part)| part.clone());
                found.unwrap_or(Term::Literal(Value::Null))
            }
            Term::Several(_) | Term::Images(_) | Term::Image(_) => Term::Literal(Value::Null),
        }
    }
}

/// A literal of any type.
pub(crate) fn literal(value: &Value) -> Cel {
    match value {
        Value::List(list) => Cel::List(list.iter().map(literal).collect()),
        Value::Map(map) => Cel::Map(
            map.iter().map(|(key, value)| (Cel::text(key.as_str()), literal(value))).collect(),
        ),
        scalar => Cel::Literal(scalar.clone()),
    }
}

fn images(lists: &[Term]) -> Cel {
    let containers = Term::Several(lists.to_vec()).list();
    containers.each(
        "map",
        "container",
        Cel::function("image", vec![Cel::name("container").select("image")]),
    )
}
