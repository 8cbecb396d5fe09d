//! Text to tokens to events, as go-yaml has them.

pub(crate) mod decode;
pub(crate) mod event;
pub(crate) mod parse;
pub(crate) mod scan;
pub(crate) mod scan_property;
pub(crate) mod scan_scalar;
pub(crate) mod syntax;
pub(crate) mod tag_handles;
