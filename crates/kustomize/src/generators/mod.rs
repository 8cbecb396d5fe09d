//! Objects that a kustomization makes: ConfigMaps, Secrets and the hashes in their names.

pub(crate) mod config_map;
pub(crate) mod hash;
pub(crate) mod iam_policy;
mod key_values;
