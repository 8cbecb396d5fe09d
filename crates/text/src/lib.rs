//! Small Go-compatible text types that Kiln's languages share.
//!
//! JMESPath, CEL, Go templates, JSONPath and kustomize all meet the same texts: quantities, durations,
//! regular expressions, versions, times. Each module reads and prints one of them as the Go libraries
//! behind Kubernetes do, with exact arithmetic and bounded work. Nothing here knows of values,
//! files or clocks; [`ambient`] is how a host hands its clock to the languages.

pub mod ambient;
pub mod case;
pub mod cron;
pub mod duration;
pub mod float;
pub mod image;
pub mod names;
pub mod path;
pub mod quantity;
pub mod quote;
pub mod range;
pub mod regex;
pub mod semver;
pub mod time;
pub mod wildcard;

pub use cron::Schedule;
pub use duration::Duration;
pub use quantity::Quantity;
pub use regex::Regex;
pub use time::Time;
