//! One patch on one object.

use kiln_patch::{JsonPatch, JsonPatchRules, Merged, StrategicRules, strategic_merge};
use kiln_pattern::{Limits as PatternLimits, Resolved, resolve_anchors};
use kiln_rules::{Patch, PatchBody};
use kiln_schema::{Schema, Version};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::context::{Context, text_of};
use crate::failure::{Failure, FailureKind};
use crate::trace::{Answer, Step};

/// What a patch makes of an object.
pub(super) fn apply(
    patch: &Patch,
    object: &Value,
    context: &Context<'_>,
) -> Result<Value, Failure> {
    context.shared.counters.patched(size(object))?;
    let after = match &patch.body {
        PatchBody::Strategic(template) => strategic(&context.fill(template)?, object, context),
        PatchBody::Json(operations) => json_patch(operations, object),
        PatchBody::JsonText(template) => {
            let text = text_of(context.fill(template)?, "patchesJson6902")?;
            read_operations(&text).and_then(|operations| json_patch(&operations, object))
        }
    };
    let after = after.map_err(|failure| failure.at(&patch.path))?;
    if !matches!(after, Value::Map(_)) {
        let message = format!("the patch leaves a {} of the object", after.type_name());
        return Err(Failure::new(FailureKind::Patch, message).at(&patch.path));
    }
    Ok(after)
}

fn strategic(patch: &Value, object: &Value, context: &Context<'_>) -> Result<Value, Failure> {
    context.shared.counters.patched(size(patch))?;
    let resolved = resolve_anchors(patch, object, &PatternLimits::default()).map_err(wrong)?;
    let patch = match resolved {
        Resolved::Patch(patch) => patch,
        Resolved::Cancelled(cancelled) => {
            context.shared.tracer.note(|| Step {
                what: "conditions of the patch".into(),
                answer: Answer::No,
                why: Some(cancelled.to_string()),
                steps: Vec::new(),
            });
            return Ok(object.clone());
        }
    };
    context.shared.tracer.note(|| Step {
        what: "patch".into(),
        answer: Answer::Value(patch.clone()),
        ..Step::default()
    });
    let mut after = object.clone();
    // Kyverno: kustomize's schema, which knows no custom resources.
    let schema = Schema::builtin(Version::V1_21);
    match strategic_merge(&mut after, &patch, &schema, &StrategicRules::kyverno()) {
        Ok(Merged::Kept) => Ok(after),
        Ok(Merged::Deleted) => {
            let message = "the patch deletes the whole object, which a mutate rule cannot do";
            Err(Failure::new(FailureKind::Patch, message).hint("remove `$patch: delete`"))
        }
        Err(error) => Err(wrong(error)),
    }
}

fn json_patch(operations: &Value, object: &Value) -> Result<Value, Failure> {
    let mut after = object.clone();
    let patch = JsonPatch::parse(operations, JsonPatchRules::kyverno()).map_err(wrong)?;
    patch.apply(&mut after).map_err(wrong)?;
    Ok(after)
}

/// Reads the text of a JSON patch, which may be YAML.
fn read_operations(text: &str) -> Result<Value, Failure> {
    if text.starts_with('[')
        && let Ok(operations) = json::parse(text)
    {
        return Ok(operations);
    }
    let documents = read_bytes("patchesJson6902", text.as_bytes(), ReadOptions::kubernetes())
        .map_err(|error| {
            let what = format!("the filled patchesJson6902 is no YAML: {error}");
            Failure::new(FailureKind::Patch, what)
                .hint("put variables in quotes, or give a value with to_string()")
        })?;
    Ok(documents.into_iter().next().map_or(Value::Null, Document::into_value))
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Patch, error.to_string())
}

/// How many values are in a value.
pub(crate) fn size(value: &Value) -> u64 {
    match value {
        Value::Map(map) => 1 + map.values().map(size).sum::<u64>(),
        Value::List(list) => 1 + list.iter().map(size).sum::<u64>(),
        _ => 1,
    }
}
