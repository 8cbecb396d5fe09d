//! Files to configuration: the trees that files come from, confined to their root, and the kustomization file as types.

pub(crate) mod chart_directory;
pub(crate) mod decode;
pub mod fs;
pub(crate) mod kustomization;
pub(crate) mod loader;
pub(crate) mod paths;
pub(crate) mod remote;
pub(crate) mod target;
