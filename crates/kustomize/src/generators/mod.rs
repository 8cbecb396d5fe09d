//! Objects that a kustomization makes: ConfigMaps, Secrets and the hashes in their names, rendered charts.

pub(crate) mod config_map;
pub(crate) mod hash;
pub(crate) mod helm;
pub(crate) mod iam_policy;
mod key_values;
