//! One object of a build, and what the build remembers about it.
//!
//! kustomize writes its memory into annotations of the object and parses it again at every step.
//! Here it lies beside the object; only plugins, which expect those annotations, get to see them.

use std::sync::Arc;

use kiln_value::{Map, Path, Str, Value};
use kiln_yaml::Document;

use crate::error::{Error, Result};
use crate::model::id::{Gvk, ResId};
use crate::model::origin::Origin;
use crate::model::scope::Scopes;
use crate::model::shared_texts::{Followed, SharedText};

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

/// A place into which a replacement wrote, where only the end of the build decides about the type.
#[derive(Clone, Debug)]
pub(crate) struct Loose {
    pub(crate) place: Path,
    /// A value of the type that the field has; `None` when it was made, and has none of its own.
    pub(crate) like: Option<Value>,
    /// What is wrong if this text is still there in the end.
    pub(crate) problem: Option<(Str, Error)>,
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
    /// The document it was read from, for places.
    pub(crate) document: Option<Arc<Document>>,
    /// Where it is written: itself, or an item of a list.
    pub(crate) text: Option<(Arc<Document>, Path)>,
    /// Whether kustomize has turned it into JSON and back since: scalars are then no longer written as
    /// the document has them.
    pub(crate) through_json: bool,
    /// Places that have one value in kustomize, and what changed for that reason.
    pub(crate) shared: Vec<SharedText>,
    pub(crate) followed: Vec<Followed>,
    /// Places whose type is not that of their value.
    pub(crate) loose: Vec<Loose>,
}

impl Resource {
    pub(crate) fn new(object: Value, scopes: &Scopes) -> Self {
        let mut resource = Resource { object, ..Resource::default() };
        resource.refresh_id(scopes);
        resource
    }

    /// The same with another object, whose id is not read.
    pub(crate) fn with_object(mut self, object: Value) -> Self {
        self.object = object;
        self
    }

    pub(crate) fn object(&self) -> &Value {
        &self.object
    }

    /// The object, to be changed. Code that may change its identity goes through
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
            text: self.text.take(),
            through_json: self.through_json,
            shared: std::mem::take(&mut self.shared),
            followed: std::mem::take(&mut self.followed),
            loose: std::mem::take(&mut self.loose),
            ..Resource::default()
        };
    }

    /// Takes another object in the place of this one, with the same history.
    pub(crate) fn replace_object(&mut self, object: Value) {
        self.object = object;
        self.went_through_json();
    }

    /// Notes that nothing is left of how the object was written, and of values in several places.
    pub(crate) fn went_through_json(&mut self) {
        self.through_json = true;
        self.shared.clear();
        self.loose.clear();
    }

    /// Refuses text where something else must stand, once nothing can replace it any more.
    ///
    /// # Errors
    /// With the first such text.
    pub(crate) fn check_types(&self) -> Result<()> {
        for loose in &self.loose {
            if let Some((text, error)) = &loose.problem
                && self.object.get_path(&loose.place).and_then(Value::as_str) == Some(text)
            {
                return Err(error.clone());
            }
        }
        Ok(())
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
        let (was, document, place) = self.as_written(path)?;
        let is = self.object.get_path(path)?;
        // NaN is not equal to itself.
        let both_nan = [was, is].iter().all(|v| v.as_f64().is_some_and(f64::is_nan));
        (was == is || both_nan).then(|| document.written(&place)).flatten()
    }

    /// What its document has at a place of the object, unless that no longer counts.
    pub(crate) fn as_written(&self, path: &Path) -> Option<(&Value, &Arc<Document>, Path)> {
        let (document, prefix) = self.text.as_ref().filter(|_| !self.through_json)?;
        let place: Path = prefix.segments().iter().chain(path.segments()).cloned().collect();
        Some((document.value().get_path(&place)?, document, place))
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
