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
//! | `ambiguous_keys` | the same for lists whose elements cannot be identified |
//! | `server_order` | lists as the API server merges them: live elements keep their places |
//! | `element` | keys of list elements |
//!
//! Kyverno's anchors are not part of this: they are worked off beforehand and leave a plain patch.
//!
//! ```
//! use kiln_patch::{StrategicRules, strategic_merge};
//! use kiln_schema::{Schema, KubernetesVersion};
//! use kiln_value::value;
//! let mut pod = value!({"apiVersion": "v1", "kind": "Pod",
//!     "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}});
//! let patch = value!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}});
//! let schema = Schema::builtin(KubernetesVersion::V1_21);
//! strategic_merge(&mut pod, &patch, &schema, &StrategicRules::kustomize()).unwrap();
//! assert_eq!(pod.get_path(["spec", "containers"]).unwrap(),
//!     &value!([{"name": "b", "image": "b:2"}, {"name": "a", "image": "a:1"}]));
//! ```

mod ambiguous_keys;
pub(crate) mod directive;
mod element;
mod error;
mod merge;
mod patch_first;
mod rules;
mod server_order;

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

/// How scalars were written, as far as that is known.
#[derive(Clone, Copy)]
pub struct WrittenScalars<'w> {
    /// Whether the text at a place of the object was in quotes or a block.
    pub was_quoted: &'w dyn Fn(&Path) -> Option<bool>,
    /// The text of a scalar of the patch, at the place in the object where it goes.
    pub patch_text: &'w dyn Fn(&Path, &Value) -> Option<String>,
}

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
    merge_into(object, patch, Merge { schema, rules, written: None })
}

/// Merges a patch into an object, where it is known how scalars were written, for
/// [`TextScalars::OverQuotedText`].
///
/// # Errors
/// Like [`strategic_merge`].
pub fn strategic_merge_into_written(
    object: &mut Value,
    patch: &Value,
    schema: &Schema,
    rules: &StrategicRules,
    written: WrittenScalars<'_>,
) -> Result<Merged, StrategicMergeError> {
    merge_into(object, patch, Merge { schema, rules, written: Some(written) })
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
