//! Types of expressions.

use std::fmt;
use std::sync::Arc;

use kiln_value::Str;

/// The type of an expression, as the checker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Anything; decided when the expression runs.
    Dyn,
    /// Stands for a part that failed to check; fits everywhere, so that one mistake is one message.
    Error,
    /// The type of `null`.
    Null,
    /// True or false.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    UInt,
    /// A 64-bit float.
    Double,
    /// Text.
    String,
    Bytes,
    /// A span of time.
    Duration,
    /// A moment.
    Timestamp,
    Type,
    /// A list of elements of one type.
    List(Arc<Type>),
    /// A map from keys to values.
    Map(Arc<(Type, Type)>),
    /// A message with named fields.
    Struct(Str),
    /// Any other named type, perhaps with parameters: `optional_type(int)`, `net.IP`.
    Opaque(Str, Arc<[Type]>),
    /// A type parameter of a declaration.
    Param(Str),
    /// A type that inference has yet to find.
    #[doc(hidden)]
    Variable(u32),
}

/// The name of optional types.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of this element type.
    pub fn list(element: Type) -> Self {
        Type::List(Arc::new(element))
    }

    /// A map of these key and value types.
    pub fn map(key: Type, value: Type) -> Self {
        Type::Map(Arc::new((key, value)))
    }

    /// A named type without parameters.
    pub fn opaque(name: &str) -> Self {
        Type::Opaque(Str::new(name), Arc::from([]))
    }

    /// An optional of this type.
    pub fn optional(of: Type) -> Self {
        Type::Opaque(Str::new_static(OPTIONAL), Arc::from([of]))
    }

    /// A type parameter.
    pub fn param(name: &'static str) -> Self {
        Type::Param(Str::new_static(name))
    }

    /// What the optional holds, if it is one.
    pub fn as_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, params) if name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// Whether nothing is known about it before the expression runs.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// How deep types nest inside this one, counted no further than needed.
    pub(crate) fn nests_deeper_than(&self, limit: usize) -> bool {
        let inner: &[Type] = match self {
            Type::List(element) => std::slice::from_ref(element),
            // Keys are scalars, see the checker.
            Type::Map(entry) => std::slice::from_ref(&entry.1),
            Type::Opaque(_, params) => params,
            _ => return false,
        };
        limit == 0 || inner.iter().any(|inner| inner.nests_deeper_than(limit - 1))
    }

    /// The name that `type(x)` shows for values of this type.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Type::Dyn | Type::Error | Type::Param(_) | Type::Variable(_) => "dyn",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::UInt => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type => "type",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Struct(name) | Type::Opaque(name, _) => name,
        }
    }
}

impl fmt::Display for Type {
    /// As cel-go prints types in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Null => f.write_str("null"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Error => f.write_str("!error!"),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Param(name) => f.write_str(name),
            Type::Opaque(name, params) if !params.is_empty() => {
                let params: Vec<_> = params.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", params.join(", "))
            }
            _ => f.write_str(self.runtime_name()),
        }
    }
}
