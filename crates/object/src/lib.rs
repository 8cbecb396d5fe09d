//! Kubernetes objects as values.
//!
//! An object is a plain [`kiln_value::Value`]; this crate gives names to what every part of Kiln asks
//! of one: what it is and what it is called ([`Gvk`], [`ObjectId`]), its labels and annotations
//! ([`metadata`]), who owns it ([`owner`]), which names it may have ([`name`]), which
//! selectors select it ([`Selector`]), what stores keep objects in ([`ObjectMap`]), what a list holds
//! ([`list`]), what happens to one ([`Change`]), which kinds exist, in which scope and under which names ([`Kinds`], [`kubernetes`]), and
//! which of them are policies ([`policy_kinds`]) or belong to the engine ([`EngineNames`]).
//! It does not know the fields below `metadata`, and reads no cluster.

mod change;
pub mod engine_names;
pub mod gvk;
pub mod identity;
pub mod kinds;
pub mod kubernetes;
pub mod list;
pub mod metadata;
pub mod name;
pub mod object_map;
pub mod owner;
pub mod policy_kinds;
pub mod report_form;
mod secret;
pub mod selector;

pub use change::Change;
pub use engine_names::EngineNames;
pub use gvk::{GroupVersion, Gvk, KindKey};
pub use identity::ObjectId;
pub use kinds::{Kind, Kinds};
pub use object_map::{NamespacedName, ObjectMap, ObjectPage, namespaced_name};
pub use owner::OwnerReference;
pub use report_form::ReportForm;
pub use secret::fold_string_data;
pub use selector::Selector;
