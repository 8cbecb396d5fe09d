//! The tests of this crate from outside, in one program: each further program would cost a link.

mod cel_policies;
mod cleanup;
mod hostile;
mod kubemod;
mod kyverno;
mod own_group;
mod refused;
mod requests;
mod rule_set;
mod rules_asked;
mod support;
mod suspicious;
