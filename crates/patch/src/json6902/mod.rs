//! JSON Patch (RFC 6902): a list of operations, each with a pointer.
//!
//! One engine; what kustomize, Kyverno, KubeMod and the API server do differently is a
//! [`JsonPatchRules`] with a named field for each difference. A patch applies as a whole or not at
//! all.
//!
//! ```
//! use kiln_patch::{JsonPatch, JsonPatchRules};
//! use kiln_value::value;
//! let patch = value!([{"op": "add", "path": "/metadata/labels/app", "value": "web"}]);
//! let patch = JsonPatch::parse(&patch, JsonPatchRules::kyverno()).unwrap();
//! let mut pod = value!({"metadata": {"name": "p"}});
//! patch.apply(&mut pod).unwrap();
//! assert_eq!(pod, value!({"metadata": {"name": "p", "labels": {"app": "web"}}}));
//! ```

mod apply;
mod error;
mod measure;
mod pointer;
mod rules;

use kiln_value::{Map, Value};

pub use error::{JsonPatchError, JsonPatchProblem};
pub use pointer::Pointer;
pub use rules::{JsonPatchRules, WholeDocument};

/// A patch that was read and can be applied to many documents.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    rules: JsonPatchRules,
    operations: Vec<JsonPatchOperation>,
}

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatchOperation {
    /// Where it acts.
    pub path: Pointer,
    pub action: Action,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sets a member, or inserts an element.
    Add(Value),
    /// Takes a member or an element away.
    Remove,
    /// Sets a member or an element that is there.
    Replace(Value),
    /// Takes away what is at another place and adds it here.
    Move(Pointer),
    /// Adds here what is at another place.
    Copy(Pointer),
    /// Fails unless this value is there.
    Test(Value),
}

impl Action {
    /// The name of the operation, as a patch writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Add(_) => "add",
            Action::Remove => "remove",
            Action::Replace(_) => "replace",
            Action::Move(_) => "move",
            Action::Copy(_) => "copy",
            Action::Test(_) => "test",
        }
    }
}

impl JsonPatch {
    /// A patch of these operations.
    pub fn new(operations: Vec<JsonPatchOperation>, rules: JsonPatchRules) -> Self {
        JsonPatch { rules, operations }
    }

    /// Reads a patch.
    ///
    /// # Errors
    /// When it is not a list of operations, or one of them is malformed under these rules.
    pub fn parse(patch: &Value, rules: JsonPatchRules) -> Result<Self, JsonPatchError> {
        let list = match patch {
            Value::List(list) => &**list,
            Value::Null if rules.null_is_an_empty_patch => &[],
            other => {
                return Err(JsonPatchError::whole(JsonPatchProblem::NotAPatch(other.type_name())));
            }
        };
        if list.len() > rules.max_operations {
            return Err(JsonPatchError::whole(JsonPatchProblem::TooManyOperations {
                count: list.len(),
                limit: rules.max_operations,
            }));
        }
        let operations = list.iter().enumerate().map(|(index, operation)| {
            parse_operation(operation, &rules).map_err(|problem| {
                let text = |key| operation.get(key).and_then(Value::as_str).map(str::to_owned);
                JsonPatchError {
                    index: Some(index),
                    operations: list.len(),
                    op: text("op"),
                    path: text("path"),
                    problem: Box::new(problem),
                }
            })
        });
        Ok(JsonPatch { rules, operations: operations.collect::<Result<_, _>>()? })
    }

    /// The operations, in order.
    pub fn operations(&self) -> &[JsonPatchOperation] {
        &self.operations
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The patch as it is written.
    pub fn to_value(&self) -> Value {
        self.operations.iter().map(JsonPatchOperation::to_value).collect()
    }
}

impl JsonPatchOperation {
    /// The operation as it is written.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("op", self.action.name());
        match &self.action {
            Action::Move(from) | Action::Copy(from) => {
                map.insert("from", from.as_str());
            }
            _ => {}
        }
        map.insert("path", self.path.as_str());
        match &self.action {
            Action::Add(value) | Action::Replace(value) | Action::Test(value) => {
                map.insert("value", value.clone());
            }
            _ => {}
        }
        Value::Map(map)
    }
}

fn parse_operation(
    operation: &Value,
    rules: &JsonPatchRules,
) -> Result<JsonPatchOperation, JsonPatchProblem> {
    if !matches!(operation, Value::Map(_)) {
        return Err(JsonPatchProblem::NotAnOperation(operation.type_name()));
    }
    let text = |member: &'static str| match operation.get(member) {
        Some(Value::String(text)) => Ok(text.as_str()),
        None => Err(JsonPatchProblem::MissingMember(member)),
        Some(other) => Err(JsonPatchProblem::WrongMember { member, found: other.type_name() }),
    };
    let pointer = |member| Pointer::parse(text(member)?, rules);
    let value = |needed: bool| match operation.get("value") {
        Some(value) => Ok(value.clone()),
        None if needed => Err(JsonPatchProblem::MissingMember("value")),
        None => Ok(Value::Null),
    };
    let action = match text("op")? {
        "add" => Action::Add(value(!rules.missing_value_is_null)?),
        "remove" => Action::Remove,
        "replace" => Action::Replace(value(!rules.missing_value_is_null)?),
        "move" => Action::Move(pointer("from")?),
        "copy" => Action::Copy(pointer("from")?),
        "test" => Action::Test(value(!rules.missing_test_value_is_null)?),
        other => return Err(JsonPatchProblem::UnknownOp(other.to_owned())),
    };
    Ok(JsonPatchOperation { path: pointer("path")?, action })
}
