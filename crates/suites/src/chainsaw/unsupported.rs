//! What a test expects of things that no sandbox has: nodes that run pods, and registries.

use kiln_object::Gvk;
use kiln_value::Value;

use super::error::ServerMessage;

/// Why an object does not come to look as expected, if that takes a node: pods stay Pending without one.
pub(super) fn nodes(wanted: &Value) -> Option<String> {
    let Gvk { group, kind, .. } = Gvk::of(wanted)?;
    let status = wanted.get("status")?;
    let of_pod = group.is_empty() && kind == "Pod";
    // What controllers count are pods that run.
    let counts = ["readyReplicas", "availableReplicas", "numberReady", "succeeded", "ready"];
    let of_workload = ["apps", "batch"].contains(&&*group)
        && counts.iter().any(|count| status.get(count).is_some());
    (of_pod || of_workload)
        .then(|| "not run: the sandbox has no nodes, so pods stay Pending".to_owned())
}

/// Why a write was rejected, if a rule wanted to know something of a registry.
pub(super) fn registry(rejection: &ServerMessage) -> Option<String> {
    let (_, after) = rejection.message.as_deref()?.split_once("the registry of image ")?;
    let (image, _) = after.split_once(" is not called")?;
    Some(format!("not run: a rule calls the registry of {image}, and Kiln calls no registries"))
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::super::ApiResponse;
    use super::*;

    #[test]
    fn only_the_status_of_pods_and_of_what_counts_them_needs_nodes() {
        let of = |kind: &str, status: Value| {
            nodes(&value!({"apiVersion": "v1", "kind": kind, "status": status})).is_some()
        };
        assert!(of("Pod", value!({"phase": "Running"})));
        assert!(!of("Namespace", value!({"phase": "Active"})));
        let deployment = |status: Value| {
            let wanted = value!({"apiVersion": "apps/v1", "kind": "Deployment", "status": status});
            nodes(&wanted).is_some()
        };
        assert!(deployment(value!({"readyReplicas": 1})));
        assert!(!deployment(value!({"observedGeneration": 1})));
        assert!(nodes(&value!({"apiVersion": "v1", "kind": "Pod", "spec": {}})).is_none());
    }

    #[test]
    fn a_registry_is_named_by_its_image() {
        let rejection = |message: &str| {
            let value = value!({"message": message});
            registry(&ServerMessage::of(&ApiResponse { status: 403, value }))
        };
        let said = "denied the request: failed to get image data: the registry of image \
                    \"ghcr.io/a/b:1\" is not called, for v1/Pod/a/b";
        let why = rejection(said).unwrap();
        assert!(why.contains("\"ghcr.io/a/b:1\""), "{why}");
        assert!(rejection("denied the request").is_none());
    }
}
