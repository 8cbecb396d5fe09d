//! Kiln Studio: what people look at, as data and as HTML.
//!
//! Reports, lineage and the playground are computed and rendered here, once, for every home that they have: the pages
//! of `kiln plan --format html` and `kiln apply --format html`, the web application in a browser (compiled to
//! WebAssembly) and the one that `kiln ui` serves. Nothing here reads files, a clock or a cluster.
//!
//! | module | holds |
//! |---|---|
//! | `plan_report` | what becomes of objects: the tree, counts per namespace |
//! | `lineage` | policy, rule, trigger, sources and object as links; filters |
//! | `html` | pages and pictures; the one place that escapes |
//! | `run_report`, `run_value`, `written` | a run over files as such a report, for programs, and with places in files |
//! | `cluster_value` | a cluster as the web application reads it |
//! | `playground` | files in, everything that can be said about them out |
//! | `compile`, `server_schemas` | policies of files compiled, and what a server would refuse |
//! | `difference`, `bookkeeping`, `secret_values` | what of two objects is shown |
//! | `object_name` | names as pages show them |

mod bookkeeping;
mod cluster_value;
mod compile;
mod difference;
mod html;
mod lineage;
mod object_name;
mod plan_report;
pub mod playground;
mod run_report;
mod run_value;
mod secret_values;
mod server_schemas;
mod written;

pub use bookkeeping::{Folded, fold};
pub use cluster_value::{is_listed, lineage_as_value, listing_as_value, named_object};
pub use compile::{compile_given, compile_policies, rule_set};
pub use difference::unified_difference;
pub use html::{HtmlWriter, MAX_PAGE_SIZE, STYLES, lineage_picture, plan_page, plan_sections};
pub use lineage::{Lineage, LineageFilter, LineageLink, LinkState, link_of_claim};
pub use object_name::{ObjectName, RuleName};
pub use plan_report::{
    ActionCounts, ChangeAction, NamespaceChanges, PlanReport, ReportedChange, ReportedNote,
    ReportedResult,
};
pub use run_report::run_report;
pub use run_value::{change_as_value, fix_of, run_as_value};
pub use secret_values::hide_secret_values;
pub use server_schemas::SchemasOfServer;
pub use written::{Located, Written};
