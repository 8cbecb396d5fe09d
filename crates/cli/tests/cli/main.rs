//! The real binary: whole commands, whole output, exit codes.

mod adopt;
mod apply;
mod authors;
mod build;
mod build_remote;
mod claims;
mod doctor;
mod doctor_patient;
mod doctor_policies;
mod doctor_webhooks;
mod documentation;
mod edit;
mod eval;
mod examples;
mod explain;
mod fmt;
mod general;
mod harness;
mod install;
mod live;
mod modrule;
mod modrule_live;
mod named_tests;
mod plan;
#[cfg(target_os = "linux")]
mod plugins;
mod promises;
mod run;
mod security;
mod services;
mod test;
mod test_live;
mod transcripts;
mod up;
mod verdicts;
mod walk;
