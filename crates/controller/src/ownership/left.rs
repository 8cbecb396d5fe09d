//! A trigger as a user left it.
//!
//! What a rule makes in a user's name, it makes of the trigger as they sent it. A user who changes the trigger afterwards
//! does not speak for them, and a claim that was true once is not true again because another user restores what it was
//! about.

use kiln_engine::{ContentHash, User};
use kiln_value::{Map, Str, Value};

use crate::cache::revision_of;
use crate::work_queue::WorkKey;

/// The content of a trigger, and when it was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    content: Str,
    pub(crate) revision: u64,
}

/// Who caused something, and the trigger as they left it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sender {
    pub(crate) user: User,
    pub(crate) left: Left,
}

/// What the server and the controllers of Kubernetes write by themselves.
const OF_THE_CLUSTER: [&str; 9] = [
    "uid",
    "selfLink",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "resourceVersion",
    "generation",
    "finalizers",
];
const NOTES_OF_THE_CLUSTER: [&str; 6] = [
    "deployment.kubernetes.io/revision",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

impl Left {
    pub(crate) fn of(trigger: &Value) -> Self {
        let mut content = trigger.clone();
        content.remove(["status"]);
        if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_map_mut) {
            OF_THE_CLUSTER.iter().for_each(|field| drop(metadata.remove(field)));
            if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_map_mut) {
                notes.retain(|key, _| !NOTES_OF_THE_CLUSTER.contains(&key.as_str()));
            }
            for field in ["labels", "annotations"] {
                if metadata.get(field).and_then(Value::as_map).is_some_and(Map::is_empty) {
                    metadata.remove(field);
                }
            }
        }
        let content = ContentHash::of(&content).to_string().into();
        Left { content, revision: revision_of(trigger) }
    }

    /// Whether a trigger is still so.
    pub(crate) fn is(&self, trigger: &Value) -> bool {
        self.is_as(&Left::of(trigger))
    }

    /// Whether the trigger was the same, at whatever time.
    pub(crate) fn is_as(&self, other: &Left) -> bool {
        self.content == other.content
    }

    pub(crate) fn to_text(&self) -> String {
        format!("{}:{}", self.revision, self.content)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (revision, content) = text.split_once(':')?;
        Some(Left { content: content.into(), revision: revision.parse().ok()? })
    }
}

/// What a key is called where it is remembered up to when claims in a user's name do not count any more.
pub(crate) fn ended_name(key: &WorkKey) -> Str {
    format!("{} {}", key.trigger, key.rule).into()
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn a_trigger_is_as_it_was_left_until_somebody_changes_it() {
        let trigger = value!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "t", "namespace": "n", "resourceVersion": "7"},
            "data": {"k": "v"},
        });
        let left = Left::of(&trigger);
        assert_eq!(Left::parse(&left.to_text()), Some(left.clone()));
        assert_eq!(left.revision, 7);
        let edits: [(&[&str], Value, bool); 8] = [
            (&["status"], value!({"phase": "Active"}), true),
            (&["metadata", "resourceVersion"], "9".into(), true),
            (&["metadata", "finalizers"], value!(["example.org/f"]), true),
            (
                &["metadata", "annotations"],
                value!({"deployment.kubernetes.io/revision": "1"}),
                true,
            ),
            (&["metadata", "labels"], value!({"a": "b"}), false),
            (&["metadata", "annotations"], value!({"a": "b"}), false),
            (&["data", "k"], "w".into(), false),
            (&["metadata", "ownerReferences"], value!([{"name": "o"}]), false),
        ];
        for (path, value, is) in edits {
            let mut edited = trigger.clone();
            edited.set(path.iter().copied(), value).unwrap();
            assert_eq!(left.is(&edited), is, "{path:?}");
        }
    }
}
