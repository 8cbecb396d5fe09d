//! What happens in a story, as data.

use std::fmt;

use kiln_object::identity::describe;
use kiln_value::{Map, Value, value};

/// Something that a user, or a controller of theirs, does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Applies an object.
    Apply(Value),
    /// Deletes an object; only what names it counts.
    Delete(Value),
    /// Sets a label of an object.
    Label { object: Value, key: String, value: String },
    /// Deletes an object that rules made, by its number among them.
    DeleteMade(u64),
    /// Changes an object that rules made, by its number among them.
    EditMade(u64),
    /// The engine is restarted.
    Restart,
    /// So many seconds pass.
    Wait(u64),
}

/// A story: what happens, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    pub seed: u64,
    pub actions: Vec<Action>,
}

/// A stored story that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadStory(pub String);

impl fmt::Display for BadStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadStory {}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Apply(object) => write!(f, "apply {}", describe(object)),
            Action::Delete(object) => write!(f, "delete {}", describe(object)),
            Action::Label { object, key, value } => {
                write!(f, "label {} {key}={value}", describe(object))
            }
            Action::DeleteMade(number) => write!(f, "delete downstream number {}", number + 1),
            Action::EditMade(number) => write!(f, "edit downstream number {}", number + 1),
            Action::Restart => f.write_str("restart the engine"),
            Action::Wait(seconds) => write!(f, "wait {seconds} s"),
        }
    }
}

impl Action {
    fn to_value(&self) -> Value {
        match self {
            Action::Apply(object) => value!({"apply": (object.clone())}),
            Action::Delete(object) => value!({"delete": (object.clone())}),
            Action::Label { object, key, value } => value!({"label": {
                "object": (object.clone()), "key": (key.as_str()), "value": (value.as_str()),
            }}),
            Action::DeleteMade(number) => value!({"deleteMade": (*number)}),
            Action::EditMade(number) => value!({"editMade": (*number)}),
            Action::Restart => value!({"restart": true}),
            Action::Wait(seconds) => value!({"wait": (*seconds)}),
        }
    }

    fn read(value: &Value) -> Result<Self, BadStory> {
        let wrong = || BadStory("an action is a map with one field, such as apply".to_owned());
        let (key, field) = value.as_map().and_then(|map| map.iter().next()).ok_or_else(wrong)?;
        let number = || field.as_i64().and_then(|number| u64::try_from(number).ok());
        let number = || number().ok_or_else(|| BadStory(format!("{key} needs a number")));
        Ok(match key.as_str() {
            "apply" => Action::Apply(field.clone()),
            "delete" => Action::Delete(field.clone()),
            "label" => {
                let text = |path: &str| field.str_at([path]).unwrap_or_default().to_owned();
                let object = field.get("object").cloned().unwrap_or_default();
                Action::Label { object, key: text("key"), value: text("value") }
            }
            "deleteMade" => Action::DeleteMade(number()?),
            "editMade" => Action::EditMade(number()?),
            "restart" => Action::Restart,
            "wait" => Action::Wait(number()?),
            other => return Err(BadStory(format!("{other:?} is not an action of a story"))),
        })
    }
}

impl Story {
    /// The story as it is stored.
    pub fn to_value(&self) -> Value {
        let actions: Vec<Value> = self.actions.iter().map(Action::to_value).collect();
        let mut map = Map::new();
        map.insert("kind", "Story");
        map.insert("seed", self.seed);
        map.insert("actions", Value::from(actions));
        Value::Map(map)
    }

    /// Reads a stored story.
    ///
    /// # Errors
    /// When it is none, in words.
    pub fn read(value: &Value) -> Result<Self, BadStory> {
        if value.str_at(["kind"]) != Some("Story") {
            return Err(BadStory("it is not a story: kind is not Story".to_owned()));
        }
        let seed = value.get("seed").and_then(Value::as_i64).unwrap_or(0);
        let actions = value.get("actions").and_then(Value::as_list);
        let actions = actions.ok_or_else(|| BadStory("it has no actions".to_owned()))?;
        Ok(Story {
            seed: u64::try_from(seed).unwrap_or(0),
            actions: actions.iter().map(Action::read).collect::<Result<_, _>>()?,
        })
    }

    /// The story as the steps of a Chainsaw test. What is expected after them only the author of the policies knows.
    pub fn to_chainsaw(&self, policies: &[Value], name: &str) -> Value {
        let operation = |verb: &str, object: &Value| {
            let mut fields = Map::new();
            fields.insert("resource", object.clone());
            let mut one = Map::new();
            one.insert(kiln_value::Key::from(verb), Value::Map(fields));
            Value::Map(one)
        };
        let mut steps: Vec<Value> =
            policies.iter().map(|policy| operation("apply", policy)).collect();
        for action in &self.actions {
            steps.push(match action {
                Action::Apply(object) => operation("apply", object),
                Action::Label { object, key, value } => {
                    let mut labelled = named(object);
                    let _ = labelled.set(["metadata", "labels", key.as_str()], value.as_str());
                    operation("apply", &labelled)
                }
                Action::Delete(object) => {
                    let mut reference = Map::new();
                    for (field, path) in [
                        ("apiVersion", &["apiVersion"][..]),
                        ("kind", &["kind"]),
                        ("name", &["metadata", "name"]),
                        ("namespace", &["metadata", "namespace"]),
                    ] {
                        if let Some(text) = object.str_at(path.iter().copied()) {
                            reference.insert(field, text);
                        }
                    }
                    value!({"delete": {"ref": (Value::Map(reference))}})
                }
                Action::Wait(seconds) => value!({"sleep": {"duration": (format!("{seconds}s"))}}),
                // Which object that is, a test with fixed names does not know.
                Action::DeleteMade(_) | Action::EditMade(_) | Action::Restart => {
                    value!({"sleep": {"duration": "1s"}})
                }
            });
        }
        value!({
            "apiVersion": "chainsaw.kyverno.io/v1alpha1", "kind": "Test",
            "metadata": {"name": name},
            "spec": {"steps": [{"name": "story", "try": (Value::from(steps))}]},
        })
    }
}

/// What names an object, and nothing else of it.
fn named(object: &Value) -> Value {
    let mut only = Value::map();
    for path in [&["apiVersion"][..], &["kind"], &["metadata", "name"], &["metadata", "namespace"]]
    {
        if let Some(text) = object.str_at(path.iter().copied()) {
            let _ = only.set(path.iter().copied(), text);
        }
    }
    only
}
