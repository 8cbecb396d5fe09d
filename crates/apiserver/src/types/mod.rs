//! The types of the built-in kinds, as an API server uses them. Which fields there are is in [`kiln_schema::types`].
//!
//! | module | does |
//! |---|---|
//! | `convert` | versions and groups of one kind |
//! | `decode` | reads an object as a Go program with these types would, and writes it as one |
//! | `protobuf` | reads protobuf bodies |
//! | `shape` | tells apply what it must know |

pub(crate) mod convert;
mod decode;
mod protobuf;
mod shape;

pub(crate) use decode::decode;
pub(crate) use kiln_schema::types::{SchemaOr, SchemaType, StructId, TypeField, types};
pub(crate) use protobuf::envelope;
pub(crate) use shape::Typed;
