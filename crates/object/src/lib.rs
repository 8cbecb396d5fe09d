//! Kubernetes objects as values.
//!
//! An object is a plain [`kiln_value::Value`]; this crate gives names to what every part of Kiln asks
//! of one: what it is and what it is called ([`Gvk`], [`ObjectId`]), its labels and annotations
//! ([`metadata`]), who owns it ([`owner`]), which names it may have ([`name`]), which
//! selectors select it ([`Selector`]), what a list holds
//! ([`list`]), and which kinds exist, in which scope and under which names ([`Kinds`]).
//! It does not know the fields below `metadata`, and reads no cluster.

pub mod gvk;
pub mod identity;
pub mod kinds;
pub mod list;
pub mod metadata;
pub mod name;
pub mod owner;
pub mod selector;

pub use gvk::{GroupVersion, Gvk};
pub use identity::ObjectId;
pub use kinds::{Kind, Kinds};
pub use owner::OwnerReference;
pub use selector::Selector;
