//! Who stored a policy, as the admission side wrote it down.
//!
//! The annotation is written by the engine's own webhook whenever a policy is stored with another `spec` or has none yet,
//! and kept as it was otherwise, so it says what the API server knew about the request and not what a client claims. What
//! rules of such a policy read and write is held to the rights of this person.

use kiln_object::policy_kinds::is_policy_group;
use kiln_object::{Gvk, metadata};
use kiln_value::{Str, Value, json, value};

/// Whose policies are limited to the permissions of those who store them.
use crate::input::event::User;

/// Whose policies are held to the rights of those who store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authors {
    /// No author.
    Off,
    /// Policies that live in a namespace: their authors need be no administrators.
    #[default]
    Namespaced,
    /// Also cluster-scoped policies.
    All,
}

impl Authors {
    /// Reads the word of a setting.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(word: &str) -> Result<Self, String> {
        match word.trim() {
            "off" => Ok(Authors::Off),
            "namespaced" => Ok(Authors::Namespaced),
            "all" => Ok(Authors::All),
            other => Err(format!("{other:?} is neither off, namespaced nor all")),
        }
    }

    /// Whether a policy is held to the rights of its author.
    pub fn hold(self, policy: &Value) -> bool {
        self.hold_those(is_namespaced(policy))
    }

    /// Whether policies of namespaces, or of the cluster, are held to the rights of their authors.
    pub fn hold_those(self, namespaced: bool) -> bool {
        match self {
            Authors::Off => false,
            Authors::Namespaced => namespaced,
            Authors::All => true,
        }
    }
}

/// The annotation of a policy that says who stored it.
pub const AUTHOR: &str = "kiln.dev/author";

/// Who stored a policy; none when it is not recorded, or unreadable.
pub fn author_of(policy: &Value) -> Option<User> {
    let written = policy.str_at(["metadata", "annotations", AUTHOR])?;
    let written = json::parse(written).ok()?;
    let groups = written.get("groups").and_then(Value::as_list);
    let groups = groups.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str);
    Some(User {
        username: written.str_at(["username"]).filter(|name| !name.is_empty())?.into(),
        groups: groups.map(Str::from).collect(),
        ..User::default()
    })
}

/// What the annotation says about a user.
pub fn signature(user: &User) -> String {
    let groups = Value::from_iter(user.groups.iter().cloned());
    json::to_canonical_string(&value!({"username": user.username.as_str(), "groups": groups}))
}

/// The message when an author may not do what a policy of theirs is about to do.
pub fn refusal(author: &User, verb: &str, what: &str, namespace: &str) -> String {
    let place = match namespace {
        "" => String::new(),
        namespace => format!(" in namespace {namespace}"),
    };
    format!(
        "the author of the policy, {}, may not {verb} {what}{place}: grant them the permission, or let a user who has it \
         store the policy",
        author.username
    )
}

/// Whether objects of a kind are policies, or say which policies count.
pub fn is_policy(kind: &Gvk) -> bool {
    is_policy_group(&kind.group) || kind.group == "api.kubemod.io"
}

/// What is said when a policy is about to write another one in the name of its author. The engine would be the author of
/// what it writes, whatever the author of the first one may do.
pub fn refusal_of_policy(author: &User, kind: &Gvk) -> String {
    format!(
        "a policy that is limited to the permissions of its author, {}, may not write objects of kind {}: what the \
         engine writes would not be limited to them; store them without a policy, or let an administrator make them by a policy of the \
         cluster",
        author.username, kind.kind
    )
}

/// Whether a policy lives in a namespace, so that people who are not administrators can store it.
pub fn is_namespaced(policy: &Value) -> bool {
    metadata::namespace(policy).is_some_and(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let user = User {
            username: "ann \"x\"".into(),
            groups: vec!["a".into(), "b,c".into()],
            ..User::default()
        };
        let mut policy = value!({"metadata": {"namespace": "shop"}});
        assert_eq!(author_of(&policy), None);
        policy.set(["metadata", "annotations", AUTHOR], signature(&user)).unwrap();
        assert_eq!(author_of(&policy), Some(user));
        assert!(is_namespaced(&policy));
        for wrong in ["", "ann", "[]", "{}", r#"{"username": ""}"#, r#"{"username": 7}"#] {
            policy.set(["metadata", "annotations", AUTHOR], wrong).unwrap();
            assert_eq!(author_of(&policy), None, "{wrong}");
        }
    }
}
