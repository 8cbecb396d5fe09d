//! What apply must know of types. Schemas say it through [`ApplyShape`].

use kiln_value::{Str, Value};

/// A place in a schema, as far as apply asks.
pub trait ApplyShape: Clone {
    /// What values here are.
    fn form(&self) -> Form<Self>;

    /// What the schema says of a member, when this is a map.
    fn member(&self, name: &str) -> Member<Self>;
}

/// What values of a type are.
#[derive(Clone, Debug)]
pub enum Form<S> {
    /// Nothing is said: scalars and lists are one value, maps are joined entry by entry.
    Untyped,
    Scalar(Scalar),
    List(S, Elements),
    /// A map whose members are owned one by one.
    Map,
    /// A map that is one value.
    AtomicMap,
}

/// Which scalars a type takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Texts.
    String,
    /// Integers and floats.
    Number,
    /// True and false.
    Bool,
    Any,
}

/// How the elements of a list are identified.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Not at all: the list is one value.
    Atomic,
    /// By themselves.
    Set,
    /// By some of their fields, which may have defaults.
    Keyed(Vec<(Str, Option<Value>)>),
}

/// What a schema says of a member of a map.
#[derive(Clone, Debug)]
pub enum Member<S> {
    /// It is a field that the type names.
    Field(S),
    /// An entry of a map with free keys.
    Entry(S),
    /// There is no such member.
    Unknown,
}

impl<S> Member<S> {
    /// Its type, if there is one.
    pub fn shape(self) -> Option<S> {
        match self {
            Member::Field(shape) | Member::Entry(shape) => Some(shape),
            Member::Unknown => None,
        }
    }
}

/// The type of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untyped;

impl ApplyShape for Untyped {
    fn form(&self) -> Form<Self> {
        Form::Untyped
    }

    fn member(&self, _: &str) -> Member<Self> {
        Member::Entry(Untyped)
    }
}

/// The form that counts for a value: where nothing is said, the value decides.
pub(super) fn form_for<S: ApplyShape>(shape: &S, value: Option<&Value>) -> Form<S> {
    match shape.form() {
        Form::Untyped => match value {
            Some(Value::List(_)) => Form::List(shape.clone(), Elements::Atomic),
            None | Some(Value::Map(_) | Value::Null) => Form::Map,
            Some(_) => Form::Scalar(Scalar::Any),
        },
        form => form,
    }
}
