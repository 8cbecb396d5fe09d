//! Versions and groups of one kind. Most differ in nothing but their name.

use kiln_object::Kind;
use kiln_value::{Map, Value, json, value};

/// An object as it is stored.
pub(crate) fn to_storage(object: Value, kind: &Kind) -> Value {
    match (kind.group(), kind.version(), kind.kind()) {
        ("events.k8s.io", _, "Event") => event_to_core(object),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => autoscaler_to_v2(object),
        _ => object,
    }
}

/// A stored object in the version it is asked for.
pub(crate) fn from_storage(object: &Value, kind: &Kind) -> Value {
    let wanted = kind.gvk().api_version();
    let mut object = match (kind.group(), kind.version(), kind.kind()) {
        ("events.k8s.io", _, "Event") => event_from_core(object),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => autoscaler_from_v2(object),
        _ => object.clone(),
    };
    if object.str_at(["apiVersion"]) != Some(wanted.as_str())
        && let Some(map) = object.as_map_mut()
    {
        map.insert("apiVersion", wanted);
    }
    object
}

/// Pairs of fields: in core, and in events.k8s.io.
const EVENT: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

fn rename(object: Value, pairs: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Map(map) = object else { return object };
    let renamed =
        map.iter().map(|(key, value)| (pairs(key).unwrap_or(key).to_owned(), value.clone()));
    Value::Map(renamed.collect::<Map>())
}

fn event_to_core(object: Value) -> Value {
    let mut event = rename(object, |key| match key {
        "deprecatedCount" => Some("count"),
        key => EVENT.iter().find(|(_, new)| *new == key).map(|(old, _)| *old),
    });
    if let Some(map) = event.as_map_mut() {
        map.insert("apiVersion", "v1");
        for (field, empty) in [
            ("source", value!({})),
            ("firstTimestamp", Value::Null),
            ("lastTimestamp", Value::Null),
        ] {
            map.get_or_insert_with(field, || empty);
        }
    }
    event
}

fn event_from_core(object: &Value) -> Value {
    rename(object.clone(), |key| match key {
        "count" => Some("deprecatedCount"),
        key => EVENT.iter().find(|(old, _)| *old == key).map(|(_, new)| *new),
    })
}

fn autoscaler_to_v2(mut object: Value) -> Value {
    let percent = object.remove(["spec", "targetCPUUtilizationPercentage"]);
    if let Some(percent) = percent.filter(|percent| !percent.is_null()) {
        let metrics = value!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]);
        let _ = object.set(["spec", "metrics"], metrics);
        if let Some(metric) = object.get_path_mut(["spec", "metrics"]).and_then(Value::as_list_mut)
            && let Some(first) = metric.first_mut()
        {
            let _ = first.set(["resource", "target", "averageUtilization"], percent);
        }
    }
    let _ = object.set(["apiVersion"], "autoscaling/v2");
    crate::defaults::fill(
        &kiln_object::Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler"),
        &mut object,
    );
    object
}

fn autoscaler_from_v2(object: &Value) -> Value {
    let mut object = object.clone();
    let metrics = object.remove(["spec", "metrics"]);
    object.remove(["spec", "behavior"]);
    let list = metrics.as_ref().and_then(Value::as_list);
    let cpu = list.into_iter().flat_map(|list| list.iter()).find_map(|metric| {
        (metric.str_at(["resource", "name"]) == Some("cpu"))
            .then(|| metric.get_path(["resource", "target", "averageUtilization"]).cloned())
            .flatten()
    });
    if let Some(cpu) = cpu {
        let _ = object.set(["spec", "targetCPUUtilizationPercentage"], cpu);
    } else if let Some(metrics) = metrics {
        let text = json::to_string(&metrics);
        let _ = object
            .set(["metadata", "annotations", "autoscaling.alpha.kubernetes.io/metrics"], text);
    }
    for field in ["currentMetrics", "conditions"] {
        object.remove(["status", field]);
    }
    object
}
