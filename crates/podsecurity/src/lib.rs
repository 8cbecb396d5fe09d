//! Kubernetes' Pod Security Standards: what each level forbids, in every version of Kubernetes.
//!
//! ```
//! use kiln_podsecurity::{Level, Pod, Standard, PodSecurityVersion};
//! use kiln_value::{Path, value};
//! let pod = value!({"spec": {"hostNetwork": true, "containers": [{"name": "web", "image": "web:1"}]}});
//! let pod = Pod::read(pod.get("metadata"), pod.get("spec")).unwrap();
//! let baseline = Standard::of_kubernetes(Level::Baseline, PodSecurityVersion::Latest);
//! let violations = baseline.check(&pod);
//! assert_eq!(violations.len(), 1);
//! assert_eq!(violations[0].reason, "host namespaces");
//! assert_eq!(violations[0].errors[0].field(&Path::root()), "spec.hostNetwork");
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `pod` | the fields of a Pod that checks look at, with their types |
//! | `level` | levels and versions |
//! | `checks` | the checks, each with the versions that changed it |
//! | `violation` | what a check found: reason, detail and fields |
//! | `exclusion` | controls, fields, values and images that a rule leaves out |

mod checks;
mod exclusion;
mod level;
mod pod;
mod violation;

pub use checks::{Control, Covers, DEFAULT_CAPABILITIES, Standard, safe_sysctls};
pub use exclusion::{Exclusion, leave_out};
pub use level::{Level, PodSecurityVersion, UnknownLevel, UnknownVersion};
pub use pod::{ALLOWED_SOURCES, ContainerList, Malformed, Pod};
pub use violation::{BadValue, FieldError, FieldFault, Violation, describe};
