//! How to read, and how much.

use kiln_value::MAX_DEPTH;

/// How to read a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Which of Go's YAML libraries gives plain scalars their type.
    pub scalars: ScalarTable,
    /// What to do about a key that occurs twice in one map.
    pub duplicate_keys: DuplicateKeys,
    /// Whether infinity and NaN are read, which have no place in JSON. Who reads them must deal with
    /// them.
    pub non_finite: bool,
    /// How much to accept.
    pub limits: YamlLimits,
}

/// Which of Go's YAML libraries gives plain scalars their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarTable {
    /// go-yaml v3, as kustomize reads resources: `yes` is text, timestamps are brought to RFC 3339,
    /// a key below the top level must be a string.
    V3,
    /// go-yaml v2 behind `sigs.k8s.io/yaml`, as Kubernetes clients read: `yes` is true, timestamps
    /// stay as written, integral floats are integers, keys that are not strings become strings.
    V2,
}

/// What to do about a key that occurs twice in one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// Say so, with both places.
    Refuse,
    /// The last one counts, as for JSON and kustomization files.
    LastWins,
}

/// How much input to accept. Whatever goes beyond is an error, never an effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YamlLimits {
    /// Bytes of one source.
    pub bytes: usize,
    /// How deep lists and maps may nest; at most [`MAX_DEPTH`].
    pub depth: usize,
    /// How many nodes the aliases of one document may stand for. go-yaml allows about as many.
    pub alias_nodes: usize,
    /// How many bytes of text the aliases of one document may stand for.
    pub alias_bytes: usize,
}

impl Default for YamlLimits {
    fn default() -> Self {
        YamlLimits {
            bytes: 64 << 20,
            depth: MAX_DEPTH,
            alias_nodes: 400_000,
            alias_bytes: 64 << 20,
        }
    }
}

impl ReadOptions {
    /// Resources as kustomize reads them.
    pub fn kustomize_resource() -> Self {
        ReadOptions {
            scalars: ScalarTable::V3,
            duplicate_keys: DuplicateKeys::Refuse,
            non_finite: false,
            limits: YamlLimits::default(),
        }
    }

    /// A kustomization file as kustomize reads it.
    pub fn kustomization() -> Self {
        ReadOptions {
            scalars: ScalarTable::V2,
            duplicate_keys: DuplicateKeys::LastWins,
            non_finite: false,
            limits: YamlLimits::default(),
        }
    }

    /// Policies and resources as Kubernetes clients read them.
    pub fn kubernetes() -> Self {
        ReadOptions {
            scalars: ScalarTable::V2,
            duplicate_keys: DuplicateKeys::Refuse,
            non_finite: false,
            limits: YamlLimits::default(),
        }
    }

    /// The same, but for sources of up to this many bytes.
    #[must_use]
    pub fn max_input_size(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }
}
