//! One object on its way through a build, and what the build remembers about it.
//!
//! kustomize writes its memory into annotations of the object and parses it again at every step.
//! Here it lies beside the object; only plugins, which expect those annotations, get to see them.

use std::sync::Arc;

use kiln_value::{Map, Path, Str, Value};
use kiln_yaml::Document;

use crate::id::{Gvk, ResId};
use crate::origin::Origin;
use crate::scope::Scopes;

/// What a generator wants done with an object that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "create" => Behavior::Create,
            "replace" => Behavior::Replace,
            "merge" => Behavior::Merge,
            _ => Behavior::Unspecified,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Behavior::Unspecified => "unspecified",
            Behavior::Create => "create",
            Behavior::Replace => "replace",
            Behavior::Merge => "merge",
        }
    }
}

/// What an object was called before a step renamed or moved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreviousId {
    pub(crate) name: Str,
    /// The effective namespace.
    pub(crate) namespace: Str,
    pub(crate) kind: Str,
}

/// An object and its history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    object: Value,
    id: ResId,
    /// Former ids, oldest first.
    pub(crate) previous: Vec<PreviousId>,
    /// Prefixes and suffixes that were put on, innermost first.
    pub(crate) prefixes: Vec<Str>,
    pub(crate) suffixes: Vec<Str>,
    pub(crate) behavior: Behavior,
    pub(crate) needs_hash: bool,
    /// Charts set namespaces themselves.
    pub(crate) from_helm: bool,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) transformations: Vec<Arc<Origin>>,
    /// Names of the vars that take their value from here.
    pub(crate) vars: Vec<Str>,
    /// The document it was read from, for places and for the text of numbers.
    pub(crate) document: Option<Arc<Document>>,
}

impl Resource {
    pub(crate) fn new(object: Value, scopes: &Scopes) -> Self {
        let mut resource = Resource { object, ..Resource::default() };
        resource.refresh_id(scopes);
        resource
    }

    pub(crate) fn object(&self) -> &Value {
        &self.object
    }

    /// The object, to be changed. Whoever may change what identifies it goes through
    /// `Resources::update`, which calls [`Resource::refresh_id`] afterwards.
    pub(crate) fn object_mut(&mut self) -> &mut Value {
        &mut self.object
    }

    pub(crate) fn into_object(self) -> Value {
        self.object
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.object {
            Value::Null => true,
            Value::Map(map) => map.is_empty(),
            _ => false,
        }
    }

    pub(crate) fn id(&self) -> &ResId {
        &self.id
    }

    pub(crate) fn name(&self) -> &Str {
        &self.id.name
    }

    pub(crate) fn namespace(&self) -> &Str {
        &self.id.namespace
    }

    pub(crate) fn kind(&self) -> &Str {
        &self.id.gvk.kind
    }

    /// Reads the id from the object again.
    pub(crate) fn refresh_id(&mut self, scopes: &Scopes) {
        self.id = id_of(&self.object, scopes);
    }

    /// The first id it had.
    pub(crate) fn original_id(&self) -> ResId {
        self.previous.first().map_or_else(|| self.id.clone(), |first| self.previous_id(first))
    }

    /// The ids it had before, oldest first.
    pub(crate) fn previous_ids(&self) -> impl Iterator<Item = ResId> {
        self.previous.iter().map(|previous| self.previous_id(previous))
    }

    /// A former id; group and version are always those of the present.
    fn previous_id(&self, previous: &PreviousId) -> ResId {
        ResId {
            gvk: Gvk {
                group: self.id.gvk.group.clone(),
                version: self.id.gvk.version.clone(),
                kind: previous.kind.clone(),
            },
            name: previous.name.clone(),
            namespace: previous.namespace.clone(),
            cluster_scoped: false,
        }
    }

    pub(crate) fn has_id(&self, id: &ResId) -> bool {
        self.id.equals(id) || self.previous_ids().any(|previous| previous.equals(id))
    }

    pub(crate) fn store_previous_id(&mut self) {
        self.previous.push(PreviousId {
            name: self.id.name.clone(),
            namespace: Str::new(self.id.effective_namespace()),
            kind: self.id.gvk.kind.clone(),
        });
    }

    /// Loses everything that kustomize keeps in annotations.
    pub(crate) fn forget(&mut self) {
        *self = Resource {
            object: std::mem::take(&mut self.object),
            id: std::mem::take(&mut self.id),
            vars: std::mem::take(&mut self.vars),
            document: self.document.take(),
            ..Resource::default()
        };
    }

    pub(crate) fn annotations(&self) -> Option<&Map> {
        self.object.get_path(["metadata", "annotations"])?.as_map()
    }

    pub(crate) fn labels(&self) -> Option<&Map> {
        self.object.get_path(["metadata", "labels"])?.as_map()
    }

    pub(crate) fn set_metadata(&mut self, field: &str, value: impl Into<Value>) {
        if let Value::Map(object) = &mut self.object {
            let metadata = object.get_or_insert_with("metadata", Value::map);
            if metadata.is_null() {
                *metadata = Value::map();
            }
            if let Value::Map(metadata) = metadata {
                metadata.insert(field, value);
            }
        }
    }

    pub(crate) fn remove_metadata(&mut self, field: &str) {
        self.object.remove(["metadata", field]);
    }

    /// The text of a scalar as its document writes it: `1.50`, where the value is 1.5.
    pub(crate) fn written(&self, path: &Path) -> Option<&str> {
        let document = self.document.as_ref()?;
        let (was, is) = (document.value().get_path(path)?, self.object.get_path(path)?);
        // NaN is not equal to itself.
        let both_nan = [was, is].iter().all(|v| v.as_f64().is_some_and(f64::is_nan));
        (was == is || both_nan).then(|| document.written(path)).flatten()
    }
}

/// The id that an object says it has.
pub(crate) fn id_of(object: &Value, scopes: &Scopes) -> ResId {
    let text = |value: Option<&Value>| value.map_or_else(Str::default, scalar_text);
    let api_version = text(object.get("apiVersion"));
    let kind = text(object.get("kind"));
    let metadata = object.get("metadata");
    ResId {
        cluster_scoped: scopes.is_cluster_scoped(&api_version, &kind),
        gvk: Gvk::new(&api_version, &kind),
        name: text(metadata.and_then(|metadata| metadata.get("name"))),
        namespace: text(metadata.and_then(|metadata| metadata.get("namespace"))),
    }
}

/// The text of a scalar; null, lists and maps have none.
pub(crate) fn scalar_text(value: &Value) -> Str {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(b) => Str::new(if *b { "true" } else { "false" }),
        Value::Number(number) => Str::from(number.to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => Str::default(),
    }
}
