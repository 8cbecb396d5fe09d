//! Commands on policies and tests of them, on files.

mod apply;
mod check;
mod convert;
mod eval;
mod findings;
mod modrule;
mod pipelines;
mod storm;
mod test;
mod test_live;
