//! JSON patches with the place of each of their operations.

use std::sync::Arc;

use kiln_diagnostic::SourceLocation;
use kiln_patch::{JsonPatch, JsonPatchError, JsonPatchRules};
use kiln_value::{Path, Value};
use kiln_yaml::{Document, ReadOptions, part_of};

use crate::build::kustomize_differences;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::lazy_location::LazyLocation;
use crate::model::annotations;
use crate::model::output::yaml_error;
use crate::model::resource::Resource;

/// A JSON patch, and the text that it was read from.
pub(crate) struct LocatedJsonPatch {
    patch: JsonPatch,
    /// The name of its file.
    name: String,
    text: Arc<[u8]>,
    /// The value that holds the text, if it is written inside another file.
    inline: Option<LazyLocation>,
}

impl LocatedJsonPatch {
    /// Text that begins with `[` is JSON, anything else YAML of which the first document counts.
    ///
    /// # Errors
    /// When it is not a JSON patch.
    pub(crate) fn read(name: &str, text: &Arc<[u8]>, inline: Option<LazyLocation>) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::new("empty json patch operations"));
        }
        let value = if text.starts_with(b"[") {
            kiln_value::json::parse_bytes(text, &mut kiln_value::KeyTable::new())
                .map_err(|error| Error::new(error.to_string()))?
        } else {
            let documents = kiln_yaml::read_bytes(name, text, ReadOptions::kustomization())
                .map_err(|diagnostic| yaml_error(&diagnostic))?;
            documents.into_iter().next().map_or(Value::Null, Document::into_value)
        };
        let kind = match &value {
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Map(_) => "object",
            Value::Null | Value::List(_) => "",
        };
        if !kind.is_empty() {
            return Err(Error::new(format!(
                "json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch"
            )));
        }
        let patch = JsonPatch::parse(&value, JsonPatchRules::kustomize())
            .map_err(|error| Error::new(error.to_string()))?;
        Ok(LocatedJsonPatch { patch, name: name.to_owned(), text: Arc::clone(text), inline })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patch.is_empty()
    }

    /// Changes an object.
    ///
    /// # Errors
    /// When an operation does not fit the object; the error points at the operation.
    pub(crate) fn apply(&self, resource: &mut Resource, session: &Session<'_>) -> Result<()> {
        // Operations can copy existing values.
        session.budget.pay_for_growth(resource, Resource::object, |resource| {
            resource.check_types()?;
            let id = resource.id().clone();
            annotations::with_memory_inside(resource, |object| {
                self.patch.apply(object).map_err(|error| {
                    Error::new(crate::messages::json_patch(&error))
                        .hint(format!("{error} (in {}/{})", id.gvk.kind, id.name))
                        .at(self.place(&error))
                })
            })?;
            if let Some(warning) = kustomize_differences::exact_integer(resource) {
                session.warn(warning);
            }
            Ok(())
        })
    }

    /// The operation that an error is about, in the file of the patch.
    fn place(&self, error: &JsonPatchError) -> Option<SourceLocation> {
        let documents =
            kiln_yaml::read_bytes(&self.name, &self.text, ReadOptions::kustomization()).ok()?;
        let document = documents.into_iter().next()?;
        let operation = Path::root().join(error.index?);
        let path = operation.join("path");
        let has_path = document.value().get_path(&path).is_some();
        let place = document.locate(if has_path { &path } else { &operation });
        match &self.inline {
            None => Some(place),
            Some(inline) => {
                let text = std::str::from_utf8(&self.text).ok()?;
                Some(part_of(&inline.place()?, text, place.span()))
            }
        }
    }
}
