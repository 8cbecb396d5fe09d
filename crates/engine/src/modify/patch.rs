//! Operations: computed from the object before the rule, then applied together.

use kiln_gotemplate::{
    ErrorKind as TemplateErrorKind, Numbers, Rendering, Template, TemplateField,
};
use kiln_jsonpath::{ErrorKind as PathErrorKind, Selection, fill_placeholders};
use kiln_object::metadata::{self, LAST_APPLIED};
use kiln_patch::{JsonPatch, JsonPatchRules};
use kiln_rules::{PatchAction, PatchItem};
use kiln_value::{Map, Number, Str, Value, json};
use kiln_yaml::{Datum, DuplicateKeys, ReadOptions, TextWithData};

use super::repeats::without_repeats;
use super::{Modifying, references};
use crate::mutate::size;
use crate::output::effect::{PatchEffect, PatchTarget};
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep};

impl Modifying<'_> {
    /// What the items make of the object; `None` when nothing changes.
    pub(crate) fn patch(
        &self,
        items: &[PatchItem],
        object: &Value,
    ) -> Result<Option<PatchEffect>, Failure> {
        let seen = self.seen(object);
        let mut operations = Vec::new();
        for item in items {
            let computed = self.operations(item, &seen);
            operations.extend(computed.map_err(|failure| failure.at(&item.path))?);
        }
        self.shared.counters.patched(size(object))?;
        self.shared.tracer.note(|| TraceStep {
            what: "patch".into(),
            answer: TraceAnswer::Value(Value::from_iter(operations.clone())),
            ..TraceStep::default()
        });
        let operations = Value::from_iter(operations);
        let wrong =
            |error: kiln_patch::JsonPatchError| Failure::new(FailureKind::Patch, error.to_string());
        let patch = JsonPatch::parse(&operations, JsonPatchRules::kubemod()).map_err(wrong)?;
        let patch = without_repeats(
            patch,
            JsonPatchRules::kubemod(),
            self.came.unwrap_or(object),
            self.old,
            self.shared.counters,
        )?;
        let mut after = object.clone();
        patch.apply(&mut after).map_err(wrong)?;
        self.update_last_applied(&patch, &mut after);
        if !matches!(after, Value::Map(_)) {
            let message = format!("the patch leaves a {} of the object", after.type_name());
            return Err(Failure::new(FailureKind::Patch, message));
        }
        Ok((after != *object).then(|| PatchEffect {
            target: PatchTarget::Trigger,
            before: object.clone(),
            after,
        }))
    }

    /// The operations of one item.
    fn operations(&self, item: &PatchItem, seen: &Value) -> Result<Vec<Map>, Failure> {
        let Some(select) = &item.select else {
            let from = item.from.clone();
            return Ok(vec![self.operation(item, item.pointer.clone(), from, seen, None)?]);
        };
        let mut selected = select.select(seen, &self.path_limits()).map_err(|error| {
            let limit = error.kind() == PathErrorKind::Limit;
            let kind = if limit { FailureKind::Limit } else { FailureKind::Value };
            Failure::new(kind, error.to_string())
        })?;
        // From the back, so that elements which go do not move those that go next.
        if matches!(item.action, PatchAction::Remove | PatchAction::Move) {
            selected.reverse();
        }
        let mut operations = Vec::with_capacity(selected.len());
        for selection in &selected {
            self.shared.counters.element()?;
            let keys: Vec<Str> = selection.keys.iter().map(plain_number).collect();
            let filled = |pointer: &Str| {
                fill_placeholders(pointer, &keys).map(Str::from).map_err(|error| {
                    Failure::new(FailureKind::Value, error.to_string())
                        .hint("#0 is the first key that `select` takes by *, a filter or a slice")
                })
            };
            let (pointer, from) = (filled(&item.pointer)?, item.from.as_ref().map(filled));
            operations.push(self.operation(
                item,
                pointer,
                from.transpose()?,
                seen,
                Some(selection),
            )?);
        }
        Ok(operations)
    }

    fn operation(
        &self,
        item: &PatchItem,
        pointer: Str,
        from: Option<Str>,
        seen: &Value,
        selection: Option<&Selection>,
    ) -> Result<Map, Failure> {
        let mut operation = Map::new();
        operation.insert("op", word(item.action));
        operation.insert("path", pointer);
        if let Some(from) = from {
            operation.insert("from", from);
        } else if item.action != PatchAction::Remove {
            let value = match &item.value {
                Some(template) => self.value(template, seen, selection)?,
                None => Value::Null,
            };
            operation.insert("value", value);
        }
        Ok(operation)
    }

    fn value(
        &self,
        template: &Template,
        seen: &Value,
        selection: Option<&Selection>,
    ) -> Result<Value, Failure> {
        let selected = selection.map_or(Value::Null, |selection| selection.item.to_value());
        let parts: Value = selection
            .into_iter()
            .flat_map(|selection| &selection.keys)
            .map(|key| match key.parse::<i64>() {
                Ok(index) => Value::from(index),
                Err(_) => Value::from(key.clone()),
            })
            .collect();
        let further = [
            TemplateField { name: "SelectedItem", value: &selected, numbers: Numbers::Floats },
            TemplateField { name: "SelectKeyParts", value: &parts, numbers: Numbers::Integers },
        ];
        let rendering = self.render(template, seen, &further).map_err(|error| {
            let limit = error.kind() == TemplateErrorKind::Limit;
            let kind = if limit { FailureKind::Limit } else { FailureKind::Value };
            let mut failure =
                Failure::new(kind, format!("cannot fill in the value: {}", error.message()));
            failure.hint = error.hint_text().map(str::to_owned);
            failure
        })?;
        self.shared.counters.bytes(rendering.text.len() as u64)?;
        read_value(rendering)
    }

    /// Applies the patch to what kubectl last applied, too, so that the next apply does not undo it.
    ///
    /// KubeMod: what does not fit there leaves it is.
    fn update_last_applied(&self, patch: &JsonPatch, after: &mut Value) {
        let Some(text) = metadata::annotation(after, LAST_APPLIED) else { return };
        let Ok(mut applied) = json::parse(text) else { return };
        if self.shared.counters.patched(size(&applied)).is_err()
            || patch.apply(&mut applied).is_err()
        {
            return;
        }
        if let Value::Map(map) = &mut applied {
            map.remove(references::FIELD);
        }
        let _ = after.set(["metadata", "annotations", LAST_APPLIED], json::to_go_string(&applied));
    }
}

fn word(action: PatchAction) -> &'static str {
    match action {
        PatchAction::Add => "add",
        PatchAction::Replace => "replace",
        PatchAction::Remove => "remove",
        PatchAction::Test => "test",
        PatchAction::Move => "move",
        PatchAction::Copy => "copy",
    }
}

/// KubeMod: a key that reads as an integer is one, so that `007` becomes `7`.
fn plain_number(key: &Str) -> Str {
    key.parse::<i64>().map_or_else(|_| key.clone(), |number| Str::from(number.to_string()))
}

/// KubeMod: numbers are floats of 64 bits, so that integers beyond 2⁵³ are rounded.
fn as_float(value: Value) -> Value {
    match value {
        Value::Number(Number::Int(int)) => Value::from(int as f64 as i64),
        Value::List(list) => list.into_vec().into_iter().map(as_float).collect(),
        Value::Map(map) => Value::Map(
            map.iter().map(|(key, value)| (key.clone(), as_float(value.clone()))).collect(),
        ),
        other => other,
    }
}

/// Reads a filled-in value; of several documents the first. Its structure is that of the template's own text.
///
/// KubeMod reads what objects say as YAML, too, so that the author of an annotation chooses what a rule writes.
fn read_value(rendering: Rendering) -> Result<Value, Failure> {
    let options =
        ReadOptions { duplicate_keys: DuplicateKeys::LastWins, ..ReadOptions::kubernetes() };
    let data = rendering.data.into_iter();
    let data: Vec<Datum> = data
        .map(|part| Datum { at: part.at, unescaped: part.unescaped, structure: None })
        .collect();
    let values = TextWithData::new(&rendering.text, &data).read("value", options).map_err(|error| {
        let failure =
            Failure::new(FailureKind::Value, format!("the filled-in value is not YAML: {error}"));
        match data.is_empty() {
            true => failure.hint("quote what is filled in: {{ … | quote }}"),
            false => failure.hint(
                "what an object says is text, and fills a place where text can stand; for structure write {{ … | toJson }}",
            ),
        }
    })?;
    Ok(values.into_iter().next().map_or(Value::Null, as_float))
}
