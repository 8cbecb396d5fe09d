//! The tests of this crate from outside, in one program: each further program would cost a link.

mod budgets;
mod context;
mod documentation;
mod fuzz_regressions;
mod generate;
mod generating;
mod hostile;
mod matching;
mod modrule;
mod modrule_cases;
mod modrule_random;
mod modrule_recorded;
mod mutate;
mod mutate_conformance;
mod mutate_recorded;
mod mutate_refused;
mod mutating;
mod proposal;
mod protected;
mod recorded;
mod refused;
mod rule_set;
mod scope;
mod support;
mod threats;
mod values;
