//! Rules of ClusterPolicies and Policies.

mod context;
mod documentation;
mod generate;
mod matching;
mod mutate;
mod mutate_conformance;
mod mutate_recorded;
mod mutate_refused;
mod proposal;
mod recorded;
mod validate_hostile;
mod validate_recorded;
