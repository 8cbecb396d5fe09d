//! Runs test suites over rules, in the format of Kyverno's command line.
//!
//! A suite is a file, `kyverno-test.yaml`, that names policies, resources and what each rule is expected to make
//! of each resource. Suites know nothing of the languages that policies are written in: whatever compiles to
//! rules can be tested.
//!
//! ```text
//! file ─▶ format ─▶ load (policies, resources, values, answers) ─▶ kiln-offline ─▶ check ─▶ rows
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `format` | the fields of a suite, and older spellings of them |
//! | `files` | where files come from: the host says |
//! | `load` | everything that a suite names, read and compiled |
//! | `mock_responses` | what services, registries and the API server are said to answer |
//! | `check` | each expectation against what rules did |
//! | `names` | what the names in an expectation mean |
//! | `compare` | an object against the one that was expected |
//! | `select` | which expectations to look at |
//! | `report` | what came of it, also as a value |
//! | `junit` | the same as JUnit XML |
//! | [`chainsaw`] | tests with live steps, in the format of chainsaw |
//!
//! Nothing here reads disks or prints: the command line does.

pub mod chainsaw;
mod check;
mod compare;
mod files;
mod format;
mod junit;
mod load;
mod mock_responses;
mod names;
mod report;
mod select;

pub use check::{SuiteOptions, run};
pub use compare::Difference;
pub use files::Files;
pub use junit::{TestCase, TestEnd, TestGroup, junit, to_xml as junit_xml};
pub use report::{Counts, Report, Row, Suite, Verdict};
pub use select::{BadSelector, Selector};
