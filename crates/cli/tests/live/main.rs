//! `kiln run` on a real control plane. Skipped, and loudly, where there is none.

mod admission;
mod adoption;
mod beside_kyverno;
mod certificates;
mod control;
mod fault_scene;
mod faults;
mod harness;
mod moves;
mod plans;
mod proxy;
mod replicas;
mod report_faults;
mod requests;
mod settings;
mod split;
mod test_webhook;
mod uninstall;
mod validation;
