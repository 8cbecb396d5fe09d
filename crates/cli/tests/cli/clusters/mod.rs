//! Commands on clusters: real control planes, and servers that stand in for one.

pub(crate) mod adopt;
mod authors;
mod claims;
mod doctor;
pub(crate) mod doctor_patient;
mod doctor_policies;
mod doctor_webhooks;
mod explain;
mod install;
pub(crate) mod live;
mod modrule_live;
mod plan;
mod run;
mod services;
mod verdicts;
