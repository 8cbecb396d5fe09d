//! Strategic merge: a patch looks like the object; lists whose elements have keys merge element by
//! element; directives (`$patch` and others) say what cannot be said by example.
//!
//! One walk over object and patch ([`merge`]), with [`StrategicRules`] for what kustomize, Kyverno and
//! the API server do differently. The largest difference is how lists of keyed elements merge, and
//! each of the two ways has its module.
//!
//! | module | holds |
//! |---|---|
//! | `merge` | maps, scalars, and what a patch puts where nothing was |
//! | `directive` | `$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…` |
//! | `patch_first` | lists as kustomize merges them: the patch's elements come first |
//! | `unclear` | the same for lists whose elements cannot be told apart |
//! | `server_order` | lists as the API server merges them: live elements keep their places |
//! | `element` | keys of list elements |
//!
//! Kyverno's anchors are no part of this: they are worked off beforehand and leave a plain patch.
//!
//! ```
//! use kiln_patch::{StrategicRules, strategic_merge};
//! use kiln_schema::{Schema, Version};
//! use kiln_value::value;
//! let mut pod = value!({"apiVersion": "v1", "kind": "Pod",
//!     "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}});
//! let patch = value!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}});
//! let schema = Schema::builtin(Version::V1_21);
//! strategic_merge(&mut pod, &patch, &schema, &StrategicRules::kustomize()).unwrap();
//! assert_eq!(pod.get_path(["spec", "containers"]).unwrap(),
//!     &value!([{"name": "b", "image": "b:2"}, {"name": "a", "image": "a:1"}]));
//! ```

mod directive;
mod element;
mod error;
mod merge;
mod patch_first;
mod rules;
mod server_order;
mod unclear;

use kiln_schema::Schema;
use kiln_value::{Path, Value};

pub use error::{StrategicMergeError, StrategicProblem};
pub use rules::{ListMerge, NewValues, StrategicRules, TextScalars};

use error::Trail;
use merge::Merge;

/// What became of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Merged {
    /// It is there, changed or not.
    Kept,
    /// The patch deletes it; the value was left as it was.
    Deleted,
}

/// Says of a place of an object whether its text was written in quotes or as a block, if that is known.
pub type WasQuoted<'w> = dyn Fn(&Path) -> Option<bool> + 'w;

/// Merges a patch into an object. The merge rules are those of the kind that the object says it is.
///
/// # Errors
/// When patch and object do not fit together or a directive is malformed; the object is then
/// unchanged.
pub fn strategic_merge(
    object: &mut Value,
    patch: &Value,
    schema: &Schema,
    rules: &StrategicRules,
) -> Result<Merged, StrategicMergeError> {
    merge_into(object, patch, Merge { schema, rules, was_quoted: None })
}

/// Merges a patch into an object of which is known how its texts were written, for
/// [`TextScalars::OverQuotedText`].
///
/// # Errors
/// Like [`strategic_merge`].
pub fn strategic_merge_into_written(
    object: &mut Value,
    patch: &Value,
    schema: &Schema,
    rules: &StrategicRules,
    was_quoted: &WasQuoted<'_>,
) -> Result<Merged, StrategicMergeError> {
    merge_into(object, patch, Merge { schema, rules, was_quoted: Some(was_quoted) })
}

fn merge_into(
    object: &mut Value,
    patch: &Value,
    merge: Merge<'_>,
) -> Result<Merged, StrategicMergeError> {
    let Merge { schema, rules, .. } = merge;
    let trail = Trail::root();
    if patch.is_null() && rules.null_patch_changes_nothing {
        return Ok(Merged::Kept);
    }
    let node = schema.root_of(object);
    if node.is_none() && rules.refuse_unknown_kinds {
        return Err(trail.error(StrategicProblem::unknown_kind(object)));
    }
    if !matches!(patch, Value::Map(_) | Value::Null) {
        return Err(trail.error(StrategicProblem::NotAMap(patch.type_name())));
    }
    match merge.value(object.clone(), patch, node, &trail)? {
        Some(merged) => {
            *object = merged;
            Ok(Merged::Kept)
        }
        None => Ok(Merged::Deleted),
    }
}
