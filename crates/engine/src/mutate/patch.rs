//! One patch on one object.

use kiln_diagnostic::Diagnostic;
use kiln_patch::{JsonPatch, JsonPatchRules, Merged, StrategicRules, strategic_merge};
use kiln_pattern::{Anchor, PatternLimits, Resolved, resolve_anchors};
use kiln_rules::{Patch, PatchBody};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Str, Value, json};
use kiln_variables::{FilledText, FilledValue};
use kiln_yaml::{Datum, ReadOptions, TextWithData};

use crate::context::Context;
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep};

/// What a patch makes of an object.
pub(super) fn apply(
    patch: &Patch,
    object: &Value,
    context: &Context<'_>,
) -> Result<Value, Failure> {
    context.shared.counters.patched(size(object))?;
    let after = match &patch.body {
        PatchBody::Strategic(template) => {
            let filled = context.fill(template)?;
            // Where a variable is the whole patch, the policy lets it say everything.
            let checked = match template.document() {
                Value::String(_) => Ok(()),
                written => no_instructions(written, &filled),
            };
            checked.and_then(|()| strategic(&filled, object, context))
        }
        PatchBody::Json(operations) => json_patch(operations, object),
        PatchBody::JsonText(template) => {
            let filled = context.fill_text(template)?;
            let written = template.document().as_str().unwrap_or_default();
            let operations = match (makes_text(written), filled.values.as_slice()) {
                // What the policy itself turns into text is the policy's structure.
                (true, [FilledValue { value: Value::String(text), .. }]) => {
                    json::parse(text).map_err(wrong)
                }
                _ => read_operations(filled),
            };
            operations.and_then(|operations| json_patch(&operations, object))
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
            context.shared.tracer.note(|| TraceStep {
                what: "conditions of the patch".into(),
                answer: TraceAnswer::No,
                why: Some(cancelled.to_string()),
                steps: Vec::new(),
            });
            return Ok(object.clone());
        }
    };
    context.shared.tracer.note(|| TraceStep {
        what: "patch".into(),
        answer: TraceAnswer::Value(patch.clone()),
        ..TraceStep::default()
    });
    let mut after = object.clone();
    // Kyverno: kustomize's schema, which knows no custom resources.
    let schema = Schema::builtin(KubernetesVersion::V1_21);
    match strategic_merge(&mut after, &patch, &schema, &StrategicRules::kyverno()) {
        Ok(Merged::Kept) => {
            drop_conditions(&mut after, object);
            Ok(after)
        }
        Ok(Merged::Deleted) => {
            let message = "the patch deletes the whole object, which a mutate rule cannot do";
            Err(Failure::new(FailureKind::Patch, message).hint("remove `$patch: delete`"))
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Refuses values of objects that would tell the merge what to do: keys such as `$patch` and anchors are the policy's.
///
/// Kyverno follows them wherever they come from.
fn no_instructions(written: &Value, filled: &Value) -> Result<(), Failure> {
    match (written, filled) {
        (Value::Map(written), Value::Map(filled)) => {
            for ((old, below), (new, value)) in written.iter().zip(filled) {
                if instructions(new) != instructions(old) {
                    return Err(brought_in(new));
                }
                // Also behind an anchor, it is a key of its own.
                let own = bare(new);
                if new != old && filled.keys().any(|key| key != new && bare(key) == own) {
                    return Err(doubled(own));
                }
                no_instructions(below, value)?;
            }
            Ok(())
        }
        (Value::List(written), Value::List(filled)) => {
            written.iter().zip(filled).try_for_each(|(old, new)| no_instructions(old, new))
        }
        // A variable that gave a list or a map.
        (Value::String(_), value) => no_instructions_in(value),
        _ => Ok(()),
    }
}

fn no_instructions_in(value: &Value) -> Result<(), Failure> {
    match value {
        Value::Map(map) => {
            map.iter().try_for_each(|(key, value)| match instructions(key).is_empty() {
                true => no_instructions_in(value),
                false => Err(brought_in(key)),
            })
        }
        Value::List(list) => list.iter().try_for_each(no_instructions_in),
        _ => Ok(()),
    }
}

/// What a key tells the merge to do: its anchors, from the outside in, and a directive.
fn instructions(key: &str) -> Vec<&'static str> {
    const DIRECTIVES: [&str; 4] =
        ["$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/"];
    let (mut found, mut key) = (Vec::new(), key);
    while let Some(anchor) = Anchor::parse(key) {
        found.push(anchor.kind.mark());
        key = anchor.key;
    }
    found.extend(DIRECTIVES.into_iter().find(|name| key.starts_with(name)));
    found
}

/// A key without its anchors.
fn bare(key: &str) -> &str {
    let mut key = key;
    while let Some(anchor) = Anchor::parse(key) {
        key = anchor.key;
    }
    key
}

fn doubled(key: &str) -> Failure {
    let message = format!("a variable brings in the key {key:?}, which the patch has already");
    Failure::new(FailureKind::Patch, message)
        .hint("use patchesJson6902, where keys of objects are keys and nothing else")
}

fn brought_in(key: &str) -> Failure {
    let message =
        format!("a variable brings in the key {key:?}, which would tell the merge what to do");
    Failure::new(FailureKind::Patch, message)
        .hint("use patchesJson6902, where keys of objects are keys and nothing else")
}

/// Kyverno writes a condition around a whole map at the root of a patch into the object, as a field that no kind has.
fn drop_conditions(after: &mut Value, before: &Value) {
    let Some(fields) = after.as_map() else { return };
    let is_condition = |key: &str| key.starts_with('(') && key.ends_with(')');
    let stray: Vec<Str> = fields
        .keys()
        .filter(|key| is_condition(key.as_str()) && before.get(key.as_str()).is_none())
        .map(|key| Str::from(key.as_str()))
        .collect();
    for key in stray {
        after.remove([key.as_str()]);
    }
}

fn json_patch(operations: &Value, object: &Value) -> Result<Value, Failure> {
    let mut after = object.clone();
    let patch = JsonPatch::parse(operations, JsonPatchRules::kyverno()).map_err(wrong)?;
    patch.apply(&mut after).map_err(wrong)?;
    Ok(after)
}

/// Reads the text of a JSON patch, which may be YAML. Its structure is that of the text as the policy has it, and of lists
/// and maps that stand in the place of a value; texts of objects are texts.
///
/// Kyverno reads what objects say as YAML, too.
fn read_operations(filled: FilledText) -> Result<Value, Failure> {
    let values = filled.values.into_iter();
    let data: Vec<Datum> = values
        .map(|FilledValue { at, value, .. }| {
            let structure =
                Some(value).filter(|value| matches!(value, Value::Map(_) | Value::List(_)));
            Datum { at, unescaped: None, structure }
        })
        .collect();
    let mut text = TextWithData::new(&filled.text, &data);
    let wrong = |error: Diagnostic| {
        let what = format!("the filled patchesJson6902 is not YAML: {error}");
        Failure::new(FailureKind::Patch, what).hint(
            "what an object says is text: put the variable where a value stands, and make structure with parse_yaml( )",
        )
    };
    let options = ReadOptions::kubernetes();
    let outline = text.read_outline("patchesJson6902", options).map_err(wrong)?;
    keep_steps(&mut text, outline.first())?;
    if filled.text.starts_with('[')
        && let Some(operations) = text.read_json()
    {
        return Ok(operations);
    }
    let values = text.read("patchesJson6902", options).map_err(wrong)?;
    let operations = values.into_iter().next().unwrap_or_default();
    if matches!(outline.first(), Some(Value::String(_))) && !matches!(operations, Value::List(_)) {
        let what = "the operations of patchesJson6902 are the text of a variable, and what objects say is text, not structure";
        return Err(Failure::new(FailureKind::Patch, what)
            .hint("write the operations out, with variables where values stand"));
    }
    Ok(operations)
}

/// Whether a text is one variable that ends by making text of a value, as in `{{ [{…}] | to_string(@) }}`.
fn makes_text(written: &str) -> bool {
    let inner = written.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    let Some(inner) = inner.filter(|inner| !inner.contains("{{")) else { return false };
    let Some((before, argument)) = inner.rsplit_once("to_string(") else { return false };
    let before = before.trim_end();
    (before.is_empty() || (before.ends_with('|') && !before.ends_with("||")))
        && argument.trim_end().strip_suffix(')').is_some_and(|argument| argument.trim() == "@")
}

/// Lets each value in a path be a part of one step, whatever it says: a slash in it is the slash of a key, and the dash
/// that stands for the end of a list is refused. A path that begins with a variable is that variable's to choose.
fn keep_steps(text: &mut TextWithData, outline: Option<&Value>) -> Result<(), Failure> {
    let mut is_end = false;
    for operation in outline.and_then(Value::as_list).into_iter().flatten() {
        for field in ["path", "from"] {
            let written = operation.str_at([field]).unwrap_or_default();
            for (at, datum) in text.data_in(written) {
                if at > 0 {
                    let begins_step = written[..at].ends_with('/');
                    text.change(datum, |said| {
                        is_end |= begins_step && said == "-";
                        said.replace('/', "~1")
                    });
                }
            }
        }
    }
    if is_end {
        let what = "a variable brings the step `-` into the path of a JSON patch, which means the end of a list";
        return Err(Failure::new(FailureKind::Patch, what).hint("write `-` into the path yourself"));
    }
    Ok(())
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
