//! The tests of this crate from outside, in one program: each further program would cost a link.

mod adoption;
mod authors;
mod carried;
mod conditions;
mod convergence;
mod dry_run;
mod existing;
mod forged;
mod generating_tables;
mod impersonation;
mod late_answers;
mod moves;
mod operation;
mod panics;
mod provenance;
mod reports;
mod requests;
mod rights;
mod support;
mod tables;
mod upgrade;
