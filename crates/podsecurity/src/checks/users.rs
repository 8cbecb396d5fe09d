//! Checks on who the processes of a container run as.

use super::{CheckFinding, containers, forbidden, pod_security, required, setters};
use crate::pod::Pod;
use crate::violation::{BadValue, FieldError};

pub(super) fn non_root(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut errors, mut missing) = (Vec::new(), Vec::new());
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    let of_pod = pod.security.run_as_non_root;
    if of_pod == Some(false) {
        let path = pod_security(&["runAsNonRoot"]);
        errors.push(FieldError::of_pod(path, BadValue::Bool(false)));
    }
    for (at, container) in pod.containers.iter().enumerate() {
        let keys = ["securityContext", "runAsNonRoot"];
        match container.security.run_as_non_root {
            Some(true) => {}
            Some(false) => {
                explicit.push(container.name);
                errors.push(forbidden(at, container, &keys, BadValue::Bool(false)));
            }
            None if of_pod == Some(true) => {}
            None => {
                implicit.push(container.name);
                missing.push(required(at, container, &keys));
            }
        }
    }
    let must_set = || {
        let names = containers(&implicit);
        format!("pod or {names} must set securityContext.runAsNonRoot=true")
    };
    let detail = match setters(of_pod == Some(false), &explicit) {
        Some(setters) => format!("{setters} must not set securityContext.runAsNonRoot=false"),
        None if implicit.is_empty() => return None,
        None => must_set(),
    };
    errors.append(&mut missing);
    CheckFinding::new("runAsNonRoot != true", detail, errors)
}

pub(super) fn user(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let of_pod = pod.security.run_as_user == Some(0);
    if of_pod {
        errors.push(FieldError::of_pod(pod_security(&["runAsUser"]), BadValue::Int(0)));
    }
    for (at, container) in pod.containers.iter().enumerate() {
        if container.security.run_as_user == Some(0) {
            names.push(container.name);
            let keys = ["securityContext", "runAsUser"];
            errors.push(forbidden(at, container, &keys, BadValue::Int(0)));
        }
    }
    let setters = setters(of_pod, &names)?;
    CheckFinding::new("runAsUser=0", format!("{setters} must not set runAsUser=0"), errors)
}
