//! The objects of a build: who each one is, what the build remembers about it, and what it looks like as text.

pub(crate) mod annotations;
pub(crate) mod empty_keys;
pub(crate) mod id;
pub(crate) mod objects;
pub(crate) mod origin;
pub(crate) mod output;
pub(crate) mod resource;
pub(crate) mod resources;
pub(crate) mod restyle;
pub(crate) mod scope;
pub(crate) mod selector;
pub(crate) mod shared_texts;
