//! Patches: strategic merge and JSON, with targets and without.

use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_patch::WrittenScalars;
use kiln_text::quote::quote;
use kiln_value::{Map, Path, Value};

use super::Transform;
use super::json_patch::LocatedJsonPatch;
use crate::build::session::{KustomizationSite, Session};
use crate::error::{Error, Result};
use crate::fields::lazy_location::LazyLocation;
use crate::load::decode::record;
use crate::load::kustomization::{PatchOptions, Selector};
use crate::model::empty_keys;
use crate::model::objects::{Purpose, copied_text, node_text};
use crate::model::resource::Resource;
use crate::model::resources::{Resources, Slot, nearest_object};
use crate::model::selector::Selection;

record! {
    /// The configuration of a PatchTransformer.
    PatchConfig = "PatchTransformer" {
        path: String = "path",
        patch: String = "patch",
        target: Option<Selector> = "target",
        options: Option<PatchOptions> = "options",
    }
}

record! {
    /// The configuration of a PatchStrategicMergeTransformer.
    StrategicMergeConfig = "PatchStrategicMergeTransformer" {
        paths: Vec<String> = "paths",
        patches: String = "patches",
    }
}

record! {
    /// The configuration of a PatchJson6902Transformer.
    Json6902Config = "PatchJson6902Transformer" {
        target: Option<Selector> = "target",
        path: String = "path",
        json_op: String = "jsonOp",
    }
}

/// One entry of `patches`.
pub(crate) struct TransformPatch {
    body: TransformPatchBody,
    target: Option<Selection>,
    options: PatchOptions,
    /// `[path: "x"]` or `[patch: "…"]`, for messages.
    source: String,
    at: LazyLocation,
}

enum TransformPatchBody {
    Merge(Vec<Resource>),
    Json(LocatedJsonPatch),
    /// Nothing but comments.
    Nothing,
}

impl TransformPatch {
    /// Reads a patch; `shown` is its configuration as text, `place` the entry of the file.
    ///
    /// # Errors
    /// When it is neither kind of patch.
    pub(crate) fn load(
        config: &PatchConfig,
        shown: &str,
        site: &KustomizationSite<'_, '_>,
        at: LazyLocation,
    ) -> Result<Self> {
        let inline = config.patch.trim();
        let (text, source, name): (Arc<[u8]>, _, _) = match (inline, config.path.as_str()) {
            ("", "") => {
                return Err(Error::new(format!("must specify one of patch and path in\n{shown}")));
            }
            ("", path) => {
                let contents = site.load(path).map_err(|error| {
                    error.context(format_args!("failed to get the patch file from path({path})"))
                })?;
                (contents, format!("[path: {}]", quote(path)), site.shown(path))
            }
            (inline, "") => {
                (inline.as_bytes().into(), format!("[patch: {}]", quote(inline)), inline_name(site))
            }
            _ => {
                return Err(Error::new(format!(
                    "patch and path can't be set at the same time\n{shown}"
                )));
            }
        };
        // kustomize does not ask for the form of a patch: it is read as both, and must be exactly one.
        let merge = site.session.read_objects(&name, &text, Purpose::Patch);
        let inline = (!inline.is_empty()).then(|| at.field("patch"));
        let json = LocatedJsonPatch::read(&name, &text, inline);
        let body = match (merge, json) {
            (Ok(merge), Ok(json)) if !merge.is_empty() && !json.is_empty() => {
                return Err(Error::new(format!(
                    "illegally qualifies as both an SM and JSON patch: {source}"
                )));
            }
            (Ok(merge), _) if merge.is_empty() => TransformPatchBody::Nothing,
            (Ok(merge), _) => TransformPatchBody::Merge(merge),
            (Err(_), Ok(json)) => TransformPatchBody::Json(json),
            (Err(merge), Err(json)) => {
                let why = if text.trim_ascii_start().starts_with(b"- ")
                    || text.trim_ascii_start().starts_with(b"[")
                {
                    json
                } else {
                    merge
                };
                return Err(Error::new(format!("unable to parse SM or JSON patch from {source}"))
                    .at(why.place().cloned())
                    .hint(why.message().to_owned()));
            }
        };
        Ok(TransformPatch {
            body,
            target: config.target.as_ref().map(Selection::compile).transpose()?,
            options: config.options.clone().unwrap_or_default(),
            source,
            at,
        })
    }

    fn warn_if_nothing(&self, selected: &[Slot], session: &Session<'_>) {
        let means_virtual =
            || self.target.as_ref().is_some_and(|target| session.selects_virtual(target));
        if selected.is_empty() && !means_virtual() {
            let mut warning = Diagnostic::warning(format!(
                "the target of the patch {} selects no object",
                self.source
            ))
            .hint("correct the target, or remove the patch");
            warning.place = self.at.place();
            session.warn(warning);
        }
    }

    fn merge(
        &self,
        patches: &[Resource],
        resources: &mut Resources,
        session: &Session<'_>,
    ) -> Result<()> {
        let Some(target) = &self.target else {
            for patch in patches {
                let slot = unique_target(patch, resources, session).map_err(|error| {
                    error
                        .context(format_args!(
                            "no resource matches strategic merge patch {}",
                            quote(&patch.id().to_string())
                        ))
                        .at(self.at.place())
                })?;
                if let Some(slot) = slot {
                    merge_into(patch, slot, &self.options, resources, session)?;
                }
            }
            return Ok(());
        };
        let [patch] = patches else {
            return Err(Error::new(format!(
                "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {}",
                self.source
            ))
            .at(self.at.place()));
        };
        let selected = target.select(resources);
        self.warn_if_nothing(&selected, session);
        let patch = &for_targets(patch);
        for &slot in &selected {
            merge_into(patch, slot, &self.options, resources, session)?;
        }
        for slot in selected {
            refuse_duplicate(slot, resources)?;
        }
        Ok(())
    }

    fn apply_json(
        &self,
        patch: &LocatedJsonPatch,
        resources: &mut Resources,
        session: &Session<'_>,
    ) -> Result<()> {
        let Some(target) = &self.target else {
            return Err(Error::new(format!(
                "must specify a target for JSON patch {}",
                self.source
            ))
            .at(self.at.place())
            .hint("add a target with the kind and name of the object"));
        };
        let selected = target.select(resources);
        self.warn_if_nothing(&selected, session);
        for slot in selected {
            resources.update(slot, &session.scopes, |resource| {
                resource.store_previous_id();
                patch.apply(resource, session)
            })?;
        }
        Ok(())
    }
}

fn inline_name(site: &KustomizationSite<'_, '_>) -> String {
    site.document.map_or_else(
        || "<patch>".to_owned(),
        |d| format!("{} (patch)", d.document().source().name()),
    )
}

impl Transform for TransformPatch {
    fn kind(&self) -> &str {
        "PatchTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        match &self.body {
            TransformPatchBody::Nothing => Ok(()),
            TransformPatchBody::Merge(patches) => self.merge(patches, resources, session),
            TransformPatchBody::Json(patch) => self.apply_json(patch, resources, session),
        }
    }

    fn patch_virtual(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let selected = self.target.as_ref().map(|target| target.select(resources));
        match (&self.body, selected) {
            (TransformPatchBody::Nothing, _) | (TransformPatchBody::Json(_), None) => Ok(()),
            (TransformPatchBody::Merge(patches), None) => {
                merge_where_found(patches, &self.options, resources, session)
            }
            (TransformPatchBody::Merge(patches), Some(selected)) => {
                selected.into_iter().try_for_each(|slot| {
                    patches.iter().map(for_targets).try_for_each(|patch| {
                        merge_into(&patch, slot, &self.options, resources, session)
                    })
                })
            }
            (TransformPatchBody::Json(patch), Some(selected)) => {
                selected.into_iter().try_for_each(|slot| {
                    resources
                        .update(slot, &session.scopes, |resource| patch.apply(resource, session))
                })
            }
        }
    }
}

/// All of `patchesStrategicMerge`.
pub(crate) struct StrategicMerge {
    patches: Vec<Resource>,
}

impl StrategicMerge {
    /// Reads patches: each entry is YAML itself or a path to it.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn load(
        config: &StrategicMergeConfig,
        site: &KustomizationSite<'_, '_>,
    ) -> Result<Self> {
        if config.paths.is_empty() && config.patches.is_empty() {
            return Err(Error::new("empty file path and empty patch content"));
        }
        let name = inline_name(site);
        let mut patches = Vec::new();
        for path in &config.paths {
            let inline = site.session.read_objects(&name, path.as_bytes(), Purpose::Patch);
            patches.extend(match inline {
                Ok(inline) => inline,
                Err(_) => site.load_objects(path, Purpose::Patch)?,
            });
        }
        if !config.patches.is_empty() {
            let inline = config.patches.as_bytes();
            patches.extend(site.session.read_objects(&name, inline, Purpose::Patch)?);
        }
        if patches.is_empty() {
            return Err(Error::new(format!(
                "patch appears to be empty; files=[{}], Patch={}",
                config.paths.join(" "),
                config.patches
            )));
        }
        Ok(StrategicMerge { patches })
    }
}

impl Transform for StrategicMerge {
    fn kind(&self) -> &str {
        "PatchStrategicMergeTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        for patch in &self.patches {
            let slot = unique_target(patch, resources, session)
                .map_err(|error| error.at(patch.document.as_ref().map(|d| d.place())))?;
            if let Some(slot) = slot {
                let patch = for_targets(patch);
                merge_into(&patch, slot, &PatchOptions::default(), resources, session)?;
            }
        }
        Ok(())
    }

    fn patch_virtual(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let patches: Vec<Resource> = self.patches.iter().map(for_targets).collect();
        merge_where_found(&patches, &PatchOptions::default(), resources, session)
    }
}

/// One entry of `patchesJson6902`.
pub(crate) struct Json6902 {
    patch: LocatedJsonPatch,
    target: Selection,
}

impl Json6902 {
    /// Reads a patch; `written` is where its text is if no file is named.
    ///
    /// # Errors
    /// When the target has no name, or the text is not a JSON patch.
    pub(crate) fn load(
        config: &Json6902Config,
        site: &KustomizationSite<'_, '_>,
        written: LazyLocation,
    ) -> Result<Self> {
        let target = config.target.clone().unwrap_or_default();
        if target.name.is_empty() {
            return Err(Error::new("must specify the target name"));
        }
        let (text, name): (Arc<[u8]>, _) = match (config.path.as_str(), config.json_op.as_str()) {
            ("", "") => return Err(Error::new("empty file path and empty jsonOp")),
            ("", inline) => (inline.as_bytes().into(), inline_name(site)),
            (path, "") => {
                let contents = site.load(path)?;
                if contents.is_empty() {
                    return Err(Error::new(format!("patch file '{path}' empty seems to be empty")));
                }
                (contents, site.shown(path))
            }
            _ => return Err(Error::new("must specify a file path or jsonOp, not both")),
        };
        let shown = String::from_utf8_lossy(&text);
        let inline = config.path.is_empty().then_some(written);
        let patch = LocatedJsonPatch::read(&name, &text, inline)
            .map_err(|error| error.context(format_args!("decoding {shown}")))?;
        if patch.is_empty() {
            return Err(Error::new(format!(
                "patch appears to be empty; file={}, JsonOp={shown}",
                config.path
            )));
        }
        Ok(Json6902 { patch, target: Selection::compile(&target)? })
    }
}

impl Transform for Json6902 {
    fn kind(&self) -> &str {
        "PatchJson6902Transformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        for slot in self.target.select(resources) {
            resources
                .update(slot, &session.scopes, |resource| self.patch.apply(resource, session))?;
        }
        Ok(())
    }

    fn patch_virtual(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        self.transform(resources, session)
    }
}

/// A patch as objects get it that a target selects, or `patchesStrategicMerge` names: kustomize copies its labels and annotations as texts, so
/// that null is the text `null` there, and an empty map of them says nothing.
fn for_targets(patch: &Resource) -> Resource {
    with_texts(patch, &["labels", "annotations"])
}

fn with_texts(patch: &Resource, fields: &[&str]) -> Resource {
    let mut patch = patch.clone();
    for &field in fields {
        let Some(value) = patch.object().get_path(["metadata", field]) else { continue };
        let mut texts = Map::new();
        for (key, value) in value.as_map().into_iter().flatten() {
            let path: Path = ["metadata", field, key.as_str()].into_iter().collect();
            texts.insert(key.clone(), copied_text(&patch, &path, value));
        }
        if texts.is_empty() {
            patch.remove_metadata(field);
        } else {
            patch.set_metadata(field, texts);
        }
    }
    patch
}

/// The one object that a patch without a target means; nothing if it means a virtual resource.
fn unique_target(
    patch: &Resource,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<Option<Slot>> {
    let id = patch.original_id();
    let found = match resources.by_any_id(&id).as_slice() {
        [slot] => return Ok(Some(*slot)),
        [] if session.is_virtual(&id) => return Ok(None),
        [] => "no matches",
        _ => "multiple matches",
    };
    let meant = nearest_object(&id.gvk.kind, &id.name, resources).filter(|_| found == "no matches");
    Err(Error::new(format!("{found} for Id {id}; failed to find unique target for patch {id}"))
        .maybe_hint(meant))
}

/// Merges each patch into the object that it names, if that is there.
fn merge_where_found(
    patches: &[Resource],
    options: &PatchOptions,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    for patch in patches {
        for slot in resources.by_any_id(&patch.original_id()) {
            merge_into(patch, slot, options, resources, session)?;
        }
    }
    Ok(())
}

fn merge_into(
    patch: &Resource,
    slot: Slot,
    options: &PatchOptions,
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    let schema = session.scopes.schema();
    session.budget.pay(session.budget.measure(patch.object())?)?;
    // kustomize notes what is allowed among the annotations of the patch, and so writes them anew.
    let noted;
    let patch = if options.allow_name_change || options.allow_kind_change {
        noted = with_texts(patch, &["annotations"]);
        &noted
    } else {
        patch
    };
    resources.update(slot, &session.scopes, |resource| {
        let id = resource.id().clone();
        if options.allow_name_change || options.allow_kind_change {
            resource.store_previous_id();
        }
        // The patch is of the object's own version, whatever it says.
        let mut patch_object = patch.object().clone();
        if let Value::Map(map) = &mut patch_object {
            match resource.object().get("apiVersion") {
                Some(version) => map.insert("apiVersion", version.clone()),
                None => map.remove("apiVersion"),
            };
        }
        if patch_object.get("$patch").and_then(Value::as_str) == Some("replace") {
            session.warn(root_replace(patch, resource));
            return Ok(());
        }
        empty_keys::drop_from(resource, &schema);
        resource.unshare_replaced(&patch_object);
        let mut object = resource.object().clone();
        let was_quoted =
            |path: &Path| Some(resource.written(path)?.starts_with(['"', '\'', '|', '>']));
        let patch_text = |path: &Path, value: &Value| {
            let is_there = patch.object().get_path(path) == Some(value);
            is_there.then(|| node_text(value, patch.written(path)))
        };
        let written = WrittenScalars { was_quoted: &was_quoted, patch_text: &patch_text };
        let merged = crate::messages::strategic_merge(&schema, &mut object, &patch_object, written);
        merged
            .map_err(|error| error.at(patch.document.as_ref().map(|document| document.place())))?;
        *resource.object_mut() = object;
        if resource.is_gone() {
            *resource.object_mut() = Value::Null;
            return Ok(());
        }
        if wipes_annotations(patch.object()) {
            resource.forget();
        }
        if !options.allow_kind_change
            && let Value::Map(map) = resource.object_mut()
        {
            map.insert("kind", id.gvk.kind.clone());
        }
        if id.name.is_empty() {
            resource.remove_metadata("name");
        } else if !options.allow_name_change {
            resource.set_metadata("name", id.name.clone());
        }
        if id.namespace.is_empty() {
            resource.remove_metadata("namespace");
        } else {
            resource.set_metadata("namespace", id.namespace);
        }
        Ok(())
    })
}

/// kustomize makes the new object, and then keeps the old one.
fn root_replace(patch: &Resource, resource: &Resource) -> Diagnostic {
    let mut warning = Diagnostic::warning(format!(
        "the patch on {} changes nothing: `$patch: replace` has no meaning at its root",
        resource.id()
    ))
    .hint("put `$patch: replace` into the fields to replace, or list another object in `resources` instead of this one");
    warning.place = patch.document.as_ref().map(|document| document.place());
    warning
}

/// Whether a patch takes all annotations away. kustomize keeps its memory there, and so forgets
/// former names, and that a hash is wanted.
fn wipes_annotations(patch: &Value) -> bool {
    let directive = |value: &Value| {
        matches!(value.get("$patch").and_then(Value::as_str), Some("replace" | "delete"))
    };
    patch.get("metadata").is_some_and(|metadata| {
        directive(metadata)
            || metadata.get("annotations").is_some_and(|a| a.is_null() || directive(a))
    })
}

fn refuse_duplicate(slot: Slot, resources: &mut Resources) -> Result<()> {
    if resources.get(slot).is_gone() {
        return Ok(());
    }
    let id = resources.get(slot).id().clone();
    if resources.by_current_id(&id).len() > 1 {
        return Err(Error::new(format!(
            "may not add resource with an already registered id: {id}"
        )));
    }
    Ok(())
}
