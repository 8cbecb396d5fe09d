//! What can be asked of a cluster, as data.

use std::fmt;

use kiln_object::{Gvk, ObjectId, Selector, metadata};
use kiln_value::{Str, Value};

/// Something to ask of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// One object.
    Get(ObjectId),
    /// All objects of a kind, or a page of them.
    List {
        kind: Gvk,
        /// The namespace; none for all.
        namespace: Option<Str>,
        /// Their labels.
        selector: Selector,
        /// The most to be answered at once.
        limit: Option<usize>,
        /// Where to go on, as the answer before said.
        resume: Option<String>,
    },
    /// A new object.
    Create {
        object: Value,
        /// Only say what would come of it.
        dry_run: bool,
    },
    /// An object in the place of an old one. With a `resourceVersion` it must be the one that is there.
    Update {
        object: Value,
        /// The part of it to write; empty for the object itself.
        subresource: Str,
        /// Only say what would come of it.
        dry_run: bool,
    },
    /// A change to an object.
    Patch {
        /// Which object.
        target: ObjectId,
        /// The change.
        patch: ObjectPatch,
        /// The part of it to write; empty for the object itself.
        subresource: Str,
    },
    /// Server-side apply: fields of other managers stay.
    Apply {
        /// What is applied.
        object: Value,
        /// Who applies it.
        manager: Str,
        /// Take fields over that others own.
        force: bool,
    },
    /// The end of an object.
    Delete {
        /// Which object.
        target: ObjectId,
        /// What must hold of it.
        preconditions: Preconditions,
    },
}

/// How an object is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectPatch {
    /// JSON Patch.
    Json(Value),
    /// JSON Merge Patch.
    Merge(Value),
    /// Strategic merge patch.
    Strategic(Value),
}

/// What must hold of an object that is to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Fails unless the object has this UID.
    pub uid: Option<Str>,
    /// Fails unless the object has this resource version.
    pub resource_version: Option<Str>,
}

/// What a cluster answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The object as it is now.
    Object(Value),
    /// Objects.
    List(Listing),
    /// The object is deleted.
    Deleted,
}

/// Objects of a kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The objects, by namespace and name.
    pub objects: Vec<Value>,
    /// The revision of the cluster that they were read at: where a watch goes on.
    pub revision: u64,
    /// Where to go on, when there are more.
    pub resume: Option<String>,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many.
    List,
    /// Follows changes.
    Watch,
    /// Makes one.
    Create,
    /// Replaces one.
    Update,
    /// Changes one.
    Patch,
    /// Ends one.
    Delete,
}

impl Verb {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }

    /// Whether it changes something.
    pub fn writes(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Call {
    /// Creates an object.
    pub fn create(object: Value) -> Self {
        Call::Create { object, dry_run: false }
    }

    /// Replaces an object.
    pub fn update(object: Value) -> Self {
        Call::Update { object, subresource: Str::default(), dry_run: false }
    }

    /// Deletes an object, whatever it is by then.
    pub fn delete(target: ObjectId) -> Self {
        Call::Delete { target, preconditions: Preconditions::default() }
    }

    /// Lists all objects of a kind.
    pub fn list(kind: Gvk) -> Self {
        Call::List {
            kind,
            namespace: None,
            selector: Selector::everything(),
            limit: None,
            resume: None,
        }
    }

    /// What the call does.
    pub fn verb(&self) -> Verb {
        match self {
            Call::Get(_) => Verb::Get,
            Call::List { .. } => Verb::List,
            Call::Create { .. } => Verb::Create,
            Call::Update { .. } => Verb::Update,
            Call::Patch { .. } | Call::Apply { .. } => Verb::Patch,
            Call::Delete { .. } => Verb::Delete,
        }
    }

    /// What the call is about; for a list, without a name.
    pub fn about(&self) -> ObjectId {
        match self {
            Call::Get(id) | Call::Patch { target: id, .. } | Call::Delete { target: id, .. } => {
                id.clone()
            }
            Call::List { kind, namespace, .. } => {
                ObjectId::new(kind.clone(), namespace.as_deref().unwrap_or_default(), "")
            }
            Call::Create { object, .. }
            | Call::Update { object, .. }
            | Call::Apply { object, .. } => ObjectId::new(
                Gvk::of(object).unwrap_or_default(),
                metadata::namespace(object).unwrap_or_default(),
                metadata::name(object).unwrap_or_default(),
            ),
        }
    }

    /// Whether the cluster is another one afterwards.
    pub fn changes(&self) -> bool {
        match self {
            Call::Create { dry_run, .. } | Call::Update { dry_run, .. } => !dry_run,
            _ => self.verb().writes(),
        }
    }
}

impl Reply {
    /// The object, if one was answered.
    pub fn object(self) -> Option<Value> {
        match self {
            Reply::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The objects, if a list was answered.
    pub fn listing(self) -> Option<Listing> {
        match self {
            Reply::List(listing) => Some(listing),
            _ => None,
        }
    }
}
