//! What the dialects of JSON Patch do differently.

/// The differences between dialects of JSON Patch, one named field each.
///
/// Start from one of the constructors; [`JsonPatchRules::rfc6902`] is the standard itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonPatchRules {
    /// `null` in place of the list is a patch without operations.
    pub null_is_an_empty_patch: bool,
    /// Text before the first `/` of a pointer is skipped and bad escapes (`~2`) stand for
    /// themselves; otherwise both are errors.
    pub lenient_pointers: bool,
    /// `01` and `+1` are indices.
    pub lenient_indices: bool,
    /// `-1` is the last element; for `add` the place after it.
    pub negative_indices: bool,
    /// `add` and `replace` without `value` write null; otherwise that is an error.
    pub missing_value_is_null: bool,
    /// `test` without `value` tests for null; otherwise that is an error.
    pub missing_test_value_is_null: bool,
    /// `add` makes missing parents: a list where an index or `-` follows, else a map.
    pub create_parents: bool,
    /// `remove` of what is not there does nothing; otherwise that is an error.
    pub ignore_missing_removals: bool,
    /// `replace` of a missing member adds it; otherwise that is an error. A missing parent or element
    /// is an error either way.
    pub replace_adds_missing_members: bool,
    /// `copy` of a missing member writes null; otherwise that is an error.
    pub copy_missing_members_as_null: bool,
    /// `test` takes a missing member for null; otherwise that is an error.
    pub test_missing_members_as_null: bool,
    /// `test` compares numbers as they are written, so that 1 is not 1.0.
    pub numbers_differ_by_form: bool,
    /// `move` may not go to a place below the one it leaves, not even where the next list element
    /// takes that place.
    pub refuse_moves_below_themselves: bool,
    /// What may be done to the document as a whole (the pointer `""`), besides testing it.
    pub whole_document: WholeDocument,
    /// How many operations a patch may have.
    pub max_operations: usize,
    /// How many bytes of JSON all `copy` operations of a patch may add.
    pub max_copied_bytes: usize,
    /// How many nulls a patch may put into lists that were too short for an index.
    pub max_padding: usize,
}

/// What may be done to the document as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeDocument {
    /// Everything.
    Any,
    /// `replace` by a map or a list.
    Replace,
    /// `add` and `replace` by a map or a list, and `copy` of it to a place inside.
    AddReplaceCopy,
    /// No operation may replace the whole document.
    Nothing,
}

/// More than any object holds, little enough for any machine.
const COPIED_BYTES: usize = 16 << 20;

impl JsonPatchRules {
    /// The standard, with a limit on what copies may add.
    pub const fn rfc6902() -> Self {
        JsonPatchRules {
            null_is_an_empty_patch: false,
            lenient_pointers: false,
            lenient_indices: false,
            negative_indices: false,
            missing_value_is_null: false,
            missing_test_value_is_null: false,
            create_parents: false,
            ignore_missing_removals: false,
            replace_adds_missing_members: false,
            copy_missing_members_as_null: false,
            test_missing_members_as_null: false,
            numbers_differ_by_form: false,
            refuse_moves_below_themselves: true,
            whole_document: WholeDocument::Any,
            max_operations: usize::MAX,
            max_copied_bytes: COPIED_BYTES,
            max_padding: 0,
        }
    }

    /// The API server's.
    pub const fn kubernetes() -> Self {
        JsonPatchRules {
            null_is_an_empty_patch: true,
            lenient_pointers: true,
            lenient_indices: true,
            negative_indices: true,
            missing_value_is_null: true,
            missing_test_value_is_null: true,
            create_parents: false,
            ignore_missing_removals: false,
            replace_adds_missing_members: true,
            copy_missing_members_as_null: true,
            test_missing_members_as_null: true,
            numbers_differ_by_form: true,
            refuse_moves_below_themselves: false,
            whole_document: WholeDocument::Replace,
            max_operations: 10_000,
            max_copied_bytes: 3 << 20,
            max_padding: 0,
        }
    }

    /// kustomize's: the API server's library without its limits.
    pub const fn kustomize() -> Self {
        JsonPatchRules {
            max_operations: usize::MAX,
            max_copied_bytes: COPIED_BYTES,
            ..Self::kubernetes()
        }
    }

    /// Kyverno's `patchesJson6902`.
    pub const fn kyverno() -> Self {
        JsonPatchRules {
            null_is_an_empty_patch: true,
            lenient_pointers: true,
            lenient_indices: true,
            negative_indices: true,
            missing_test_value_is_null: true,
            create_parents: true,
            ignore_missing_removals: true,
            test_missing_members_as_null: true,
            numbers_differ_by_form: true,
            refuse_moves_below_themselves: false,
            whole_document: WholeDocument::AddReplaceCopy,
            max_padding: 10_000,
            ..Self::rfc6902()
        }
    }

    /// KubeMod's: as Kyverno's, but the document as a whole cannot be patched.
    pub const fn kubemod() -> Self {
        JsonPatchRules { whole_document: WholeDocument::Nothing, ..Self::kyverno() }
    }
}
