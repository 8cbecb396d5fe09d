//! Strategic merges in every dialect: first line the object (a pod unless it says otherwise), the rest
//! the patch.

use kiln_patch::{StrategicRules, strategic_merge};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (object, patch) = text.split_once('\n').unwrap_or(("{}", text));
    let (Ok(mut object), Ok(patch)) = (json::parse(object), json::parse(patch)) else { return };
    if let Value::Map(map) = &mut object
        && !map.contains_key("kind")
    {
        map.insert("apiVersion", "v1");
        map.insert("kind", "Pod");
    }
    for (version, rules) in [
        (KubernetesVersion::V1_21, StrategicRules::kustomize()),
        (KubernetesVersion::V1_21, StrategicRules::kyverno()),
        (KubernetesVersion::V1_36, StrategicRules::kubernetes()),
    ] {
        let mut merged = object.clone();
        let schema = Schema::builtin(version);
        if let Err(error) = strategic_merge(&mut merged, &patch, &schema, &rules) {
            assert!(!error.to_string().is_empty());
            assert!(merged.same(&object), "a refused patch must change nothing");
        }
    }
}
