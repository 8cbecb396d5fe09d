//! Whether the author of a policy may do what its rules are about to do, or to read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::Method;
use kiln_admission::access::{ACCESS_REVIEWS, access_review};
use kiln_cluster::{ApiError, Call, Reason};
use kiln_controller::AccessCheck;
use kiln_engine::{AccessRequest, User, author};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_value::{Map, Value};

use crate::api::Api;

/// How long an answer counts, in milliseconds. Rights that are withdrawn end within this time.
const COUNTS_FOR: u64 = 10_000;
/// How many answers are held.
const MOST: usize = 4096;

/// What the API server answered of late.
#[derive(Debug, Default)]
pub struct Rights {
    known: Mutex<HashMap<String, (bool, u64)>>,
}

impl Rights {
    /// Why a call is not to be made in the name of an author; none when they may do it themselves.
    pub async fn refusal<A: Api>(
        &self,
        client: &A,
        kinds: &Kinds,
        author: &User,
        call: &Call,
    ) -> Option<ApiError> {
        if let Some(why) = refused_at_once(author, call) {
            return Some(ApiError::new(Reason::Forbidden, why));
        }
        for question in questions(call, kinds) {
            match self.has(client, author, question.clone()).await {
                Ok(true) => {}
                Ok(false) => {
                    return Some(ApiError::new(Reason::Forbidden, said(author, &question)));
                }
                Err(why) => return Some(ApiError::new(Reason::Unavailable, why)),
            }
        }
        None
    }

    /// Whether a user may read something.
    ///
    /// # Errors
    /// When that cannot be known at the moment.
    pub async fn may_read<A: Api>(
        &self,
        client: &A,
        kinds: &Kinds,
        AccessCheck { user, verb, object, subresource }: &AccessCheck,
    ) -> Result<bool, String> {
        let ObjectId { gvk, namespace, name } = object;
        // Kubernetes: what is asked about a Namespace is asked in it.
        let is_namespace = gvk.kind == "Namespace" && gvk.group.is_empty();
        let namespace = if is_namespace { name } else { namespace };
        // One answer about all objects of a kind serves many; where it is no, the one object counts.
        let all = attributes(kinds, verb, gvk, subresource, namespace, "");
        Ok(self.has(client, user, all).await?
            || (!name.is_empty()
                && self
                    .has(client, user, attributes(kinds, verb, gvk, subresource, namespace, name))
                    .await?))
    }

    async fn has<A: Api>(&self, client: &A, user: &User, attributes: Map) -> Result<bool, String> {
        let review = access_review(user.username.as_str(), &user.groups, attributes);
        let key = kiln_value::json::to_canonical_string(&review);
        if let Some(allowed) = self.remembered(&key, client.now()) {
            return Ok(allowed);
        }
        let answer = client.send(Method::POST, ACCESS_REVIEWS, Some(&review), "").await;
        let answer = answer
            .map_err(|error| format!("cannot find out what {} may do: {error}", user.username))?;
        let allowed = answer.get_path(["status", "allowed"]).and_then(Value::as_bool) == Some(true);
        self.remember(key, allowed, client.now());
        Ok(allowed)
    }

    fn remembered(&self, key: &str, now: u64) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(key)
            // A clock that was set back says nothing about how old an answer is.
            .filter(|(_, since)| now.checked_sub(*since).is_some_and(|age| age < COUNTS_FOR))
            .map(|(allowed, _)| *allowed)
    }

    fn remember(&self, key: String, allowed: bool, now: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (allowed, now));
    }
}

fn said(author: &User, question: &Map) -> String {
    let text = |key: &str| question.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = match text("group") {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let slash = if text("subresource").is_empty() { "" } else { "/" };
    let what = format!("{}{group}{slash}{}", text("resource"), text("subresource"));
    author::refusal(author, text("verb"), &what, text("namespace"))
}

/// The permission that a user needs to make a call themselves, as attributes of a review.
fn questions(call: &Call, kinds: &Kinds) -> Vec<Map> {
    let about = call.about();
    let (verbs, subresource): (&[&str], &str) = match call {
        Call::Create { .. } => (&["create"], ""),
        Call::Update { subresource, .. } | Call::Patch { subresource, .. } => {
            (&["update"], subresource)
        }
        Call::Apply { .. } => (&["create", "update"], ""),
        // What rules made they may also clear away. What rules read is asked where they read it: these reads are the
        // engine's own.
        Call::Get(_) | Call::List { .. } | Call::Delete { .. } => (&[], ""),
    };
    let mut questions: Vec<Map> = verbs
        .iter()
        .map(|verb| {
            // No right to create is about one name, so one answer serves many objects.
            let name = if *verb == "create" { "" } else { about.name.as_str() };
            attributes(kinds, verb, &about.gvk, subresource, &about.namespace, name)
        })
        .collect();
    if verbs.is_empty() {
        return questions;
    }
    // The API server would ask the engine, which may hand out more than the author may.
    let object = match call {
        Call::Create { object, .. } | Call::Update { object, .. } | Call::Apply { object, .. } => {
            Some(object)
        }
        _ => None,
    };
    questions.extend(
        AccessRequest::for_roles(&about, object).into_iter().map(|(verb, role)| {
            attributes(kinds, verb, &role.gvk, "", &role.namespace, &role.name)
        }),
    );
    questions
}

/// Why a call is made in the name of no author, whatever they may do.
fn refused_at_once(author: &User, call: &Call) -> Option<String> {
    let kind = call.about().gvk;
    let writes = call.changes() && !matches!(call, Call::Delete { .. });
    (writes && author::is_policy(&kind)).then(|| author::refusal_of_policy(author, &kind))
}

/// The attributes of a review.
fn attributes(
    kinds: &Kinds,
    verb: &str,
    gvk: &Gvk,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Map {
    let resource = kinds
        .get(gvk)
        .map_or_else(|| kiln_rules::usual_plural(&gvk.kind), |kind| kind.plural().to_owned());
    let mut attributes = Map::new();
    for (key, text) in [
        ("verb", verb),
        ("group", gvk.group.as_str()),
        ("version", gvk.version.as_str()),
        ("resource", &resource),
        ("subresource", subresource),
        ("namespace", namespace),
        ("name", name),
    ] {
        if !text.is_empty() {
            attributes.insert(key, text);
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use kiln_cluster::ObjectPatch;
    use kiln_value::{json, value};

    use super::*;

    fn asked(call: &Call) -> Vec<String> {
        let shown = |map: &Map| json::to_canonical_string(&Value::Map(map.clone()));
        questions(call, &Kinds::builtin()).iter().map(shown).collect()
    }

    #[test]
    fn calls_become_questions() {
        let secret = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}});
        assert_eq!(
            asked(&Call::create(secret.clone())),
            [r#"{"namespace":"n","resource":"secrets","verb":"create","version":"v1"}"#]
        );
        let binding = value!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "n"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        });
        let asked_of_binding = asked(&Call::create(binding.clone()));
        assert_eq!(asked_of_binding.len(), 2);
        assert_eq!(
            asked_of_binding[1],
            r#"{"group":"rbac.authorization.k8s.io","name":"cluster-admin","namespace":"n","resource":"clusterroles","verb":"bind","version":"v1"}"#
        );
        let role = value!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "r", "namespace": "n"}, "rules": [],
        });
        assert!(asked(&Call::create(role.clone()))[1].contains(r#""verb":"escalate""#));
        // Every way to write is a right of its own, and roles are more than objects in each of them.
        let verbs = |call: &Call| -> Vec<String> {
            let verb =
                |map: &Map| map.get("verb").and_then(Value::as_str).unwrap_or_default().to_owned();
            questions(call, &Kinds::builtin()).iter().map(verb).collect()
        };
        let update = |object: &Value, subresource: &str| Call::Update {
            object: object.clone(),
            subresource: subresource.into(),
            dry_run: false,
        };
        assert_eq!(verbs(&update(&role, "")), ["update", "escalate"]);
        assert_eq!(verbs(&update(&binding, "")), ["update", "bind"]);
        assert_eq!(verbs(&update(&secret, "")), ["update"]);
        // What does not say which role it is about may be about any.
        let apply = |object: &Value| Call::Apply {
            object: object.clone(),
            manager: "m".into(),
            force: true,
        };
        let mut subjects = binding.clone();
        subjects.remove(["roleRef"]);
        assert_eq!(verbs(&apply(&subjects)), ["create", "update", "bind", "bind"]);
        let patch = |object: &Value| Call::Patch {
            target: ObjectId::of(object).unwrap(),
            patch: ObjectPatch::Merge(value!({})),
            subresource: "".into(),
        };
        assert_eq!(verbs(&patch(&binding)), ["update", "bind", "bind"]);
        assert_eq!(verbs(&patch(&role)), ["update", "escalate"]);
        let scaled = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}});
        assert_eq!(
            asked(&update(&scaled, "scale")),
            [
                r#"{"group":"apps","name":"d","namespace":"n","resource":"deployments","subresource":"scale","verb":"update","version":"v1"}"#
            ]
        );
        let id = kiln_object::ObjectId::new(Gvk::new("v1", "Secret"), "n", "s");
        assert!(asked(&Call::delete(id.clone())).is_empty() && asked(&Call::Get(id)).is_empty());
    }
    #[test]
    fn no_author_has_policies_written_for_them() {
        let jane = User { username: "jane".into(), ..User::default() };
        for (api_version, kind) in [
            ("kyverno.io/v1", "Policy"),
            ("kyverno.io/v1", "ClusterPolicy"),
            ("kyverno.io/v2", "PolicyException"),
            ("policies.kyverno.io/v1", "NamespacedGeneratingPolicy"),
            ("policies.kyverno.io/v1beta1", "PolicyException"),
            ("api.kubemod.io/v1beta1", "ModRule"),
        ] {
            let object = value!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": "p", "namespace": "n"},
            });
            let id = ObjectId::of(&object).unwrap();
            let update =
                Call::Update { object: object.clone(), subresource: "".into(), dry_run: false };
            let apply = Call::Apply { object: object.clone(), manager: "m".into(), force: true };
            let patch = Call::Patch {
                target: id.clone(),
                patch: ObjectPatch::Merge(value!({})),
                subresource: "".into(),
            };
            for call in [Call::create(object), update, apply, patch] {
                let refused = refused_at_once(&jane, &call).unwrap_or_default();
                let wanted = format!("author, jane, may not write objects of kind {kind}");
                assert!(refused.contains(&wanted), "{call:?}: {refused}");
            }
            // What was made before may go.
            assert_eq!(refused_at_once(&jane, &Call::delete(id.clone())), None);
            assert_eq!(refused_at_once(&jane, &Call::Get(id)), None);
        }
        let map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}});
        assert_eq!(refused_at_once(&jane, &Call::create(map)), None);
    }
}
