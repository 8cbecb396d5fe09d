//! What the dialects of strategic merge do differently.

/// The differences between dialects of strategic merge, one named field each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategicRules {
    /// How lists merge whose elements have keys.
    pub lists: ListMerge,
    /// What becomes of the parts of a patch for which the object has nothing.
    pub new_values: NewValues,
    /// Whether a number or boolean that takes the place of a string becomes a string.
    pub text_scalars: TextScalars,
    /// A patch value of another kind than the object's (a list for a map, say) takes its place;
    /// otherwise that is an error.
    pub other_kinds_replace: bool,
    /// `$patch: delete` in a map leaves an empty map; otherwise the map goes.
    pub delete_leaves_an_empty_map: bool,
    /// `$patch: merge` is allowed and says nothing; otherwise it is an error.
    pub merge_directive: bool,
    /// `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…` are directives; otherwise
    /// they are ordinary keys.
    pub server_directives: bool,
    /// Fields that the schema says are replaced as a whole are; otherwise they merge.
    pub replace_strategy: bool,
    /// A patch that is null changes nothing; otherwise it deletes the object.
    pub null_patch_changes_nothing: bool,
    /// Kinds without a schema cannot be merged; otherwise their lists are replaced.
    pub refuse_unknown_kinds: bool,
    /// A map of unknown type that has an apiVersion and a kind merges as that kind.
    pub embedded_kinds: bool,
    /// Lists that the patch does not mention are corrected too: of elements with the same key the
    /// last one stays, and so on.
    pub tidy_untouched_lists: bool,
}

/// How lists merge whose elements have keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMerge {
    /// The elements of the patch come first, in its order; elements may have several keys.
    PatchFirst,
    /// Live elements keep their places where the order of the patch allows; one merge key.
    ServerOrder,
}

/// What becomes of the parts of a patch for which the object has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValues {
    /// Nulls are dropped, and so is every map with a `$patch`, whatever it says.
    DropDirectives,
    /// Nulls are dropped, and directives are followed as if the part were merged with itself.
    FollowDirectives,
}

/// Whether a number or boolean that takes the place of a string becomes a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextScalars {
    Never,
    /// Only if the string must have been in quotes, because without them YAML would not read it as
    /// a string.
    OverQuotedText,
    /// Always.
    OverText,
}

impl StrategicRules {
    /// kustomize's `patches` and `patchesStrategicMerge`.
    pub const fn kustomize() -> Self {
        StrategicRules {
            lists: ListMerge::PatchFirst,
            new_values: NewValues::FollowDirectives,
            // kustomize: a scalar takes over the quotes of the one it replaces.
            text_scalars: TextScalars::OverQuotedText,
            other_kinds_replace: false,
            delete_leaves_an_empty_map: false,
            merge_directive: true,
            server_directives: false,
            replace_strategy: false,
            null_patch_changes_nothing: false,
            refuse_unknown_kinds: false,
            embedded_kinds: true,
            tidy_untouched_lists: true,
        }
    }

    /// Kyverno's `patchStrategicMerge`, after its anchors are worked off: kustomize's merge on
    /// JSON, where every string has quotes.
    pub const fn kyverno() -> Self {
        StrategicRules { text_scalars: TextScalars::OverText, ..Self::kustomize() }
    }

    /// The API server's.
    pub const fn kubernetes() -> Self {
        StrategicRules {
            lists: ListMerge::ServerOrder,
            new_values: NewValues::DropDirectives,
            text_scalars: TextScalars::Never,
            other_kinds_replace: true,
            delete_leaves_an_empty_map: true,
            merge_directive: false,
            server_directives: true,
            replace_strategy: true,
            null_patch_changes_nothing: true,
            refuse_unknown_kinds: true,
            embedded_kinds: false,
            tidy_untouched_lists: false,
        }
    }
}
