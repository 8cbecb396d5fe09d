//! Who stores a policy: recorded where no one else can write, so that what its rules read and write can be held to that
//! person's rights. [`policies`](crate::policies) asks for these rights when the policy is stored; the code that reads and writes
//! for it asks again.

use kiln_engine::Event;
pub use kiln_engine::author::Authors;
use kiln_engine::author::{AUTHOR, author_of, signature};
use kiln_object::Gvk;
use kiln_object::policy_kinds::is_policy_group;
use kiln_patch::diff;
use kiln_rules::Operation;
use kiln_schema::Schema;
use kiln_value::{Str, Value};

use crate::review::Response;

/// The path at which policies get their author.
pub const AUTHOR_PATH: &str = "/policymutate";

/// Whether a policy would be held to the rights of its author, and that author is not recorded: it was stored while no
/// webhook of the engine was there.
pub fn is_unsigned(policy: &Value, authors: Authors) -> bool {
    // All that ModRules do, they do to requests of others.
    let is_signed = Gvk::of(policy).is_some_and(|gvk| is_policy_group(&gvk.group));
    is_signed && authors.hold(policy) && author_of(policy).is_none()
}

/// Answers a request for a policy: it gets the author of its `spec`, whatever it says itself.
pub fn sign(event: &Event, authors: Authors) -> Response {
    let written = matches!(event.operation, Some(Operation::Create | Operation::Update));
    let Some(policy) = event.object.as_ref().filter(|_| written && event.subresource.is_empty())
    else {
        return Response::allowed();
    };
    let path = ["metadata", "annotations", AUTHOR];
    let old = event.old_object.as_ref();
    let same = old.is_some_and(|old| old.get("spec") == policy.get("spec"));
    let author: Option<Str> = match (authors.hold(policy), same) {
        (false, _) => None,
        (true, true) if old.is_some_and(|old| old.str_at(path).is_some()) => {
            old.and_then(|old| old.str_at(path)).map(Str::from)
        }
        // Also for a policy from before, which has none yet.
        (true, _) => event.user.as_ref().map(|user| signature(user).into()),
    };
    if policy.str_at(path) == author.as_deref()
        && policy.get_path(path).is_some() == author.is_some()
    {
        return Response::allowed();
    }
    let mut signed = policy.clone();
    let done = match author {
        Some(author) => signed.set(path, author).is_ok(),
        None => signed.remove(path).is_some(),
    };
    if !done {
        return Response::refused("metadata.annotations must be a map");
    }
    Response { patch: Some(diff(policy, &signed, &Schema::empty())), ..Response::allowed() }
}

#[cfg(test)]
mod tests {
    use kiln_engine::User;
    use kiln_value::{json, value};

    use super::*;

    fn policy(namespace: &str, spec: i64, author: Option<&str>) -> Value {
        let mut policy = value!({"metadata": {"name": "p"}, "spec": {"n": spec}});
        if !namespace.is_empty() {
            policy.set(["metadata", "namespace"], namespace).unwrap();
        }
        if let Some(author) = author {
            policy.set(["metadata", "annotations", AUTHOR], author).unwrap();
        }
        policy
    }

    /// The annotation of what comes of a policy, after the patch.
    fn signed(new: &Value, old: Option<&Value>, authors: Authors) -> Option<String> {
        let mut event = match old {
            Some(old) => Event::updated(old.clone(), new.clone()),
            None => Event::created(new.clone()),
        };
        event.operation = Some(if old.is_some() { Operation::Update } else { Operation::Create });
        event.user = Some(User { username: "ann".into(), ..User::default() });
        let mut object = new.clone();
        if let Some(patch) = sign(&event, authors).patch {
            patch.apply(&mut object).unwrap();
        }
        object.str_at(["metadata", "annotations", AUTHOR]).map(str::to_owned)
    }

    #[test]
    fn nobody_can_claim_to_be_somebody_else() {
        let ann = r#"{"groups":[],"username":"ann"}"#;
        let bob = json::to_canonical_string(&value!({"username": "bob", "groups": []}));
        let bob = bob.as_str();
        let by_bob = policy("shop", 1, Some(bob));
        for (new, old, authors, wanted) in [
            (policy("shop", 1, None), None, Authors::Namespaced, Some(ann)),
            (policy("shop", 1, Some(bob)), None, Authors::Namespaced, Some(ann)),
            (policy("", 1, None), None, Authors::Namespaced, None),
            (policy("", 1, Some(bob)), None, Authors::Namespaced, None),
            (policy("", 1, None), None, Authors::All, Some(ann)),
            (policy("shop", 1, Some(bob)), None, Authors::Off, None),
            // A label that a user adds does not make them the author; a rule does.
            (policy("shop", 1, None), Some(&by_bob), Authors::Namespaced, Some(bob)),
            (policy("shop", 1, Some(ann)), Some(&by_bob), Authors::Namespaced, Some(bob)),
            // The first user who stores a policy without an author again becomes the author.
            (
                policy("shop", 1, Some(bob)),
                Some(&policy("shop", 1, None)),
                Authors::Namespaced,
                Some(ann),
            ),
            (policy("shop", 2, Some(bob)), Some(&by_bob), Authors::Namespaced, Some(ann)),
        ] {
            assert_eq!(signed(&new, old, authors).as_deref(), wanted, "{new:?} {old:?}");
        }
    }
}
