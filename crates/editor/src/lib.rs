//! What editors ask of Kiln, without any input or output.
//!
//! | module | holds |
//! |---|---|
//! | [`json_schema`] | JSON Schemas of the kinds, from the tables of fields |
//! | [`LanguageServer`] | messages of the Language Server Protocol in, messages out |
//! | `outline` | the keys and values of YAML that is still being written, by their lines |
//! | `subject` | what a document is, and what its fields hold at a path |
//! | `diagnostics`, `quick_fix` | what `kiln check` says of a text, and how its hints change it |
//! | `kubernetes_fields` | the fields of Kubernetes' built-in kinds |
//! | [`place_help`] | the answers about one place without the protocol |
//! | `hover`, `completion`, `definition`, `variables` | the answers about one place |
//! | [`tidy`] | YAML formatted with its comments |
//!
//! ```
//! use kiln_editor::json_schema;
//! let kind = json_schema::kinds_called("ClusterPolicy")[0];
//! let schema = json_schema::schema(kind);
//! assert!(schema.str_at(["properties", "spec", "description"]).is_some());
//! ```

mod completion;
mod definition;
mod diagnostics;
mod hover;
pub mod json_schema;
mod kubernetes_fields;
mod outline;
mod place_help;
mod quick_fix;
mod server;
mod subject;
mod text_document;
mod tidy;
mod variables;

pub use place_help::place_help;
pub use server::LanguageServer;
pub use tidy::tidy;
