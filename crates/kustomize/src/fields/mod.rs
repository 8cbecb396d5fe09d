//! Which fields steps change, the way to them, and where they stand in files.

pub(crate) mod config;
pub(crate) mod field_path;
pub(crate) mod field_spec;
pub(crate) mod lazy_location;
