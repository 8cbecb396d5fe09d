//! ValidatingAdmissionPolicies of policies that ask for them. Only the leader keeps them.
//!
//! Desired against actual: what policies want, against what carries the engine's label. A policy whose status says that its
//! present version is generated leaves the webhooks ([`is_generated`]); so the objects are written before the status says
//! so, and deleted after it no longer does. They belong to their policy, and go with it.

use std::collections::BTreeMap;

use kiln_admission::Settings;
use kiln_admission::native_policies::{NativeForm, NativePolicy, native_form};
use kiln_cluster::{ApiError, Call, ObjectPatch, Preconditions, Reason, Reply};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_value::{Str, Value, value};

use crate::api::Api;
use crate::calls::{FencedCalls, list_all};
use crate::policy_store::{Registry, StoredPolicy};
use crate::status::covers;

/// Kubernetes' kinds: of policies, then of bindings. A policy without a binding does nothing, so it is made first, and goes last.
fn kinds() -> [Gvk; 2] {
    ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
        .map(|kind| Gvk::new("admissionregistration.k8s.io/v1", kind))
}

/// Whether the API server checks objects for the present version of a policy.
pub fn is_generated(policy: &Value) -> bool {
    let status = policy.get("status").unwrap_or(&Value::Null);
    let of_generation = |place: Option<&Value>| {
        let generation = policy.get_path(["metadata", "generation"]).and_then(Value::as_i64);
        place.is_some_and(|place| {
            place.get("generated").and_then(Value::as_bool) == Some(true)
                && place.get("generatedGeneration").and_then(Value::as_i64) == generation
        })
    };
    of_generation(Some(status)) || of_generation(status.get("validatingadmissionpolicy"))
}

/// Whether the cluster has the kinds.
pub fn are_served(served: &Kinds) -> bool {
    kinds().iter().all(|kind| served.get(kind).is_some())
}

/// Makes the ValidatingAdmissionPolicies of a cluster what the stored policies want, in a process that begins with `settings`.
///
/// # Errors
/// When something cannot be read or written. What can be, was.
pub async fn reconcile<A: Api, C: FencedCalls>(
    api: &A,
    calls: &C,
    kinds: &Kinds,
    settings: &Settings,
    stored: &Registry,
) -> Result<(), ApiError> {
    let settings = settings.clone().read(stored.config.as_ref()).0;
    Keeper { api, calls, kinds, settings }.reconcile(stored).await
}

struct Keeper<'k, A, C> {
    api: &'k A,
    calls: &'k C,
    kinds: &'k Kinds,
    /// With what the stored ConfigMap says.
    settings: Settings,
}

impl<A: Api, C: FencedCalls> Keeper<'_, A, C> {
    async fn reconcile(&self, stored: &Registry) -> Result<(), ApiError> {
        let settings = &self.settings;
        let exceptions = settings.in_force(&stored.exceptions);
        let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
        let mut forms = Vec::new();
        for policy in &stored.policies {
            let Ok(compiled) = &policy.compiled else { continue };
            // A shadow refuses nothing, whoever evaluates it.
            let is_shadow = compiled.delivery.shadow_of.is_some();
            let form = match settings.reporting.native_policies && !is_shadow {
                true => {
                    native_form(&policy.object, compiled, &exceptions, self.kinds, &settings.names)
                }
                false => NativeForm::Unasked,
            };
            if let NativeForm::Possible(native) = &form {
                for object in [&native.policy, &native.binding] {
                    wanted.insert(key(object), object.clone());
                }
            }
            forms.push((policy, form));
        }
        let mut left = Vec::new();
        for kind in kinds() {
            let listed = list_all(self.api, self.kinds, &kind, "", "").await;
            let listed = match listed {
                Ok(listed) => listed.objects,
                // Where they may not be read, there are none of ours to delete.
                Err(error) if error.reason == Reason::Forbidden => Vec::new(),
                Err(error) => return Err(error),
            };
            let manager = settings.names.name();
            left.extend(listed.into_iter().filter(|object| {
                metadata::label(object, "app.kubernetes.io/managed-by") == Some(manager)
                    && object.get_path(["metadata", "ownerReferences"]).is_some()
                    && !wanted.contains_key(&key(object))
            }));
        }
        for (policy, form) in forms {
            let (generated, message) = match &form {
                NativeForm::Unasked => (false, String::new()),
                NativeForm::Impossible(why) => {
                    (false, format!("skip generating ValidatingAdmissionPolicy: {why}"))
                }
                NativeForm::Possible(native) => match self.ensure_both(native).await {
                    Ok(()) => (true, String::new()),
                    Err(error) if error.reason == Reason::Forbidden => {
                        let why =
                            "insufficient permissions to generate ValidatingAdmissionPolicies";
                        (false, why.to_owned())
                    }
                    Err(error) => return Err(error),
                },
            };
            let asked = form != NativeForm::Unasked;
            self.show(policy, asked, generated, &message).await?;
        }
        // Bindings first: a binding without its policy is an error at every request.
        for object in left.iter().rev() {
            self.delete(object).await?;
        }
        Ok(())
    }

    async fn ensure_both(&self, native: &NativePolicy) -> Result<(), ApiError> {
        self.ensure(&native.policy).await?;
        self.ensure(&native.binding).await
    }

    async fn ensure(&self, wanted: &Value) -> Result<(), ApiError> {
        let id = ObjectId::of(wanted)
            .map_err(|error| ApiError::new(Reason::Invalid, error.to_string()))?;
        let live = match self.call(&Call::Get(id)).await {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(live) = live else {
            return self.call(&Call::create(wanted.clone())).await.map(drop);
        };
        // The API server fills in defaults.
        if covers(&live, wanted) {
            return Ok(());
        }
        let mut object = wanted.clone();
        let version = metadata::resource_version(&live).unwrap_or_default();
        let _ = object.set(["metadata", "resourceVersion"], version);
        self.call(&Call::update(object)).await.map(drop)
    }

    async fn delete(&self, object: &Value) -> Result<(), ApiError> {
        let Ok(target) = ObjectId::of(object) else { return Ok(()) };
        let preconditions =
            Preconditions { uid: metadata::uid(object).map(Str::from), resource_version: None };
        match self.call(&Call::Delete { target, preconditions }).await {
            Err(error) if !matches!(error.reason, Reason::NotFound | Reason::Conflict) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Says in the status of a policy whether it is generated.
    async fn show(
        &self,
        policy: &StoredPolicy,
        asked: bool,
        generated: bool,
        message: &str,
    ) -> Result<(), ApiError> {
        let generation = policy.object.get_path(["metadata", "generation"]).cloned();
        let generation = generation.filter(|_| generated).unwrap_or(Value::Null);
        let status = match policy.id.gvk.kind.as_str() {
            "ClusterPolicy" => value!({"validatingadmissionpolicy": {
                "generated": generated, "generatedGeneration": generation, "message": message,
            }}),
            "ValidatingPolicy" => value!({
                "generated": generated, "generatedGeneration": generation, "generatedMessage": message,
            }),
            _ => return Ok(()),
        };
        let stored = policy.object.get("status").unwrap_or(&Value::Null);
        let says_so =
            stored.get_path(["validatingadmissionpolicy", "generated"]).or(stored.get("generated"));
        // Nothing is said of a policy that never asked.
        let silent = !asked && says_so.and_then(Value::as_bool) != Some(true);
        if silent || covers(stored, &status) {
            return Ok(());
        }
        let patch = Call::Patch {
            target: policy.id.clone(),
            patch: ObjectPatch::Merge(value!({"status": status})),
            subresource: "status".into(),
        };
        match self.call(&patch).await {
            Err(error) if error.reason != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    async fn call(&self, asked: &Call) -> Result<Reply, ApiError> {
        self.calls.call(self.kinds, asked).await
    }
}

/// Kind and name.
fn key(object: &Value) -> String {
    let name = metadata::name(object).unwrap_or_default();
    format!("{} {name}", object.str_at(["kind"]).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_leaves_webhooks_only_if_its_present_version_is_generated() {
        let policy = |status: Value| value!({"metadata": {"generation": 2}, "status": status});
        for (status, expected) in [
            (value!({"generated": true, "generatedGeneration": 2}), true),
            (value!({"generated": true, "generatedGeneration": 1}), false),
            (value!({"generated": true}), false),
            (value!({"generated": false, "generatedGeneration": 2}), false),
            (
                value!({"validatingadmissionpolicy": {"generated": true, "generatedGeneration": 2}}),
                true,
            ),
            (value!({}), false),
        ] {
            assert_eq!(is_generated(&policy(status.clone())), expected, "{status:?}");
        }
    }
}
