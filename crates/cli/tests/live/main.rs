//! `kiln run` on a real control plane. Skipped, and loudly, where there is none.

mod admission;
mod adoption;
mod certificates;
mod control;
mod faults;
mod harness;
mod moves;
mod plans;
mod proxy;
mod replicas;
mod requests;
mod settings;
mod split;
mod uninstall;
mod validation;
