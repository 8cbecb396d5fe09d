//! Kyverno's patterns: values described by example, and the anchors of patches.
//!
//! A leaf pattern is a value, or text with operators, ranges, wildcards, quantities and durations
//! ([`value_matches`]). A tree of them, with anchors on its keys, describes an object ([`matches`]). A patch
//! uses anchors to say on which objects, and where in them, it applies; [`resolve_anchors`] works them off
//! against an object and leaves a plain patch.
//!
//! | module | holds |
//! |---|---|
//! | `leaf` | one value against one pattern |
//! | `anchor` | keys such as `(name)`, `+(name)` and `<(name)` |
//! | `tree` | an object against a tree of patterns |
//! | `explain` | the same, with every step |
//! | `fix` | the smallest change that makes an object meet a pattern |
//! | `resolve` | the anchors of a patch, worked off against an object |
//! | `effort` | how much work that may take |
//!
//! ```
//! use kiln_pattern::{PatternLimits, Resolved, resolve_anchors};
//! use kiln_value::value;
//! let patch = value!({"spec": {"containers": [{"(image)": "*:latest", "imagePullPolicy": "Always"}]}});
//! let pod = value!({"spec": {"containers": [
//!     {"name": "web", "image": "web:latest"}, {"name": "db", "image": "db:1"},
//! ]}});
//! let plain = value!({"spec": {"containers": [{"imagePullPolicy": "Always", "name": "web"}]}});
//! assert_eq!(resolve_anchors(&patch, &pod, &PatternLimits::default()).unwrap(), Resolved::Patch(plain));
//! ```

mod anchor;
mod effort;
mod explain;
mod fix;
mod leaf;
mod resolve;
mod tree;

pub use anchor::{Anchor, AnchorKind, anchors_in};
pub use effort::{PatternLimits, TooMuchWork};
pub use explain::{Explained, MOST_STEPS, MatchStep, StepOutcome, explain};
pub use fix::{FieldChange, FieldValue, Fix, fix, fix_counted};
pub use leaf::{LeafOperator, value_matches};
pub use resolve::{Cancelled, ResolveError, Resolved, resolve_anchors};
pub use tree::{Mismatch, matches, matches_counted};
