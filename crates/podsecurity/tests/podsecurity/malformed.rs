//! Pods whose fields have other types than Pods give them are refused with the field, and never pass.

use kiln_podsecurity::Pod;
use kiln_value::{Value, value};

fn message(spec: &Value) -> String {
    Pod::read(None, Some(spec)).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_field_is_named() {
    for (spec, wanted) in [
        (value!({"hostNetwork": "true"}), "spec.hostNetwork: expected a boolean, found string"),
        (value!({"containers": {}}), "spec.containers: expected a list, found map"),
        (
            value!({"containers": [{}, {"securityContext": {"runAsUser": "0"}}]}),
            "spec.containers[1].securityContext.runAsUser: expected an integer, found string",
        ),
        (
            value!({"initContainers": [{"securityContext": {"capabilities": {"add": [1]}}}]}),
            "spec.initContainers[0].securityContext.capabilities.add[0]: expected a string, found number",
        ),
        (
            value!({"volumes": [{"hostPath": {"path": true}}]}),
            "spec.volumes[0].hostPath.path: expected a string, found boolean",
        ),
        (
            value!({"containers": [{"livenessProbe": {"httpGet": {"host": 1}}}]}),
            "spec.containers[0].livenessProbe.httpGet.host: expected a string, found number",
        ),
        (
            value!({"containers": [{"lifecycle": {"preStop": []}}]}),
            "spec.containers[0].lifecycle.preStop: expected a map, found list",
        ),
    ] {
        assert_eq!(message(&spec), wanted);
    }
    let metadata = value!({"annotations": {"a": 1}});
    let error = Pod::read(Some(&metadata), None).unwrap_err();
    assert_eq!(error.to_string(), "metadata.annotations.a: expected a string, found number");
}

#[test]
fn null_is_as_good_as_nothing() {
    let spec = value!({
        "hostNetwork": null, "volumes": null, "securityContext": null, "os": null,
        "containers": [{"name": null, "securityContext": {"seccompProfile": null}, "ports": null}, null],
    });
    assert!(Pod::read(None, Some(&spec)).is_ok());
    assert!(Pod::read(Some(&Value::Null), Some(&Value::Null)).is_ok());
}
