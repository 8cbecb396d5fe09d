//! Checks on what a container may do: privileges, their escalation, capabilities, host processes.

use super::{
    CheckFinding, Values, containers, forbidden, listed, pod_security, quoted, required, setters,
};
use crate::pod::Pod;
use crate::violation::{BadValue, FieldError};

/// The capabilities that containers may add by the baseline level.
pub const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(super) fn privileged(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for (at, container) in pod.containers.iter().enumerate() {
        if container.security.privileged == Some(true) {
            names.push(container.name);
            let keys = ["securityContext", "privileged"];
            errors.push(forbidden(at, container, &keys, BadValue::Bool(true)));
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.privileged=true", containers(&names));
    CheckFinding::new("privileged", detail, errors)
}

pub(super) fn escalation(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for (at, container) in pod.containers.iter().enumerate() {
        let keys = ["securityContext", "allowPrivilegeEscalation"];
        errors.push(match container.security.privilege_escalation {
            Some(false) => continue,
            None if !container.security.is_set => required(at, container, &keys),
            None => forbidden(at, container, &keys, BadValue::Unset),
            Some(true) => forbidden(at, container, &keys, BadValue::Bool(true)),
        });
        names.push(container.name);
    }
    if names.is_empty() {
        return None;
    }
    let names = containers(&names);
    let detail = format!("{names} must set securityContext.allowPrivilegeEscalation=false");
    CheckFinding::new("allowPrivilegeEscalation != false", detail, errors)
}

/// No capability is added that containers do not have by default.
pub(super) fn default_capabilities(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut all) = (Vec::new(), Vec::new(), Values::new());
    for (at, container) in pod.containers.iter().enumerate() {
        let added = container.security.capabilities.iter().flat_map(|caps| &caps.add).copied();
        let bad: Values<'_> = added.filter(|name| !DEFAULT_CAPABILITIES.contains(name)).collect();
        if !bad.is_empty() {
            names.push(container.name);
            let keys = ["securityContext", "capabilities", "add"];
            errors.push(forbidden(at, container, &keys, listed(&bad)));
            all.extend(bad);
        }
    }
    if names.is_empty() {
        return None;
    }
    let (names, all) = (containers(&names), quoted(all));
    let detail = format!("{names} must not include {all} in securityContext.capabilities.add");
    CheckFinding::new("non-default capabilities", detail, errors)
}

/// All capabilities are dropped, and none but one is added.
pub(super) fn no_capabilities(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut keeping, mut adding, mut all) = (Vec::new(), Vec::new(), Values::new());
    let (mut kept, mut added): (Vec<FieldError>, Vec<FieldError>) = (Vec::new(), Vec::new());
    for (at, container) in pod.containers.iter().enumerate() {
        let keys = ["securityContext", "capabilities", "drop"];
        let Some(capabilities) = &container.security.capabilities else {
            keeping.push(container.name);
            kept.push(required(at, container, &keys));
            continue;
        };
        if !capabilities.drop.contains(&"ALL") {
            keeping.push(container.name);
            let dropped: Values<'_> = capabilities.drop.iter().copied().collect();
            kept.push(if dropped.is_empty() {
                required(at, container, &keys)
            } else {
                forbidden(at, container, &keys, listed(&dropped))
            });
        }
        let bad = capabilities.add.iter().copied().filter(|name| *name != "NET_BIND_SERVICE");
        let bad: Values<'_> = bad.collect();
        if !bad.is_empty() {
            adding.push(container.name);
            let keys = ["securityContext", "capabilities", "add"];
            added.push(forbidden(at, container, &keys, listed(&bad)));
            all.extend(bad);
        }
    }
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let names = containers(&keeping);
        details.push(format!(r#"{names} must set securityContext.capabilities.drop=["ALL"]"#));
    }
    if !adding.is_empty() {
        let (names, all) = (containers(&adding), quoted(all));
        details.push(format!("{names} must not include {all} in securityContext.capabilities.add"));
    }
    if details.is_empty() {
        return None;
    }
    kept.append(&mut added);
    CheckFinding::new("unrestricted capabilities", details.join("; "), kept)
}

pub(super) fn host_process(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let of_pod = pod.security.host_process == Some(true);
    if of_pod {
        let path = pod_security(&["windowsOptions", "hostProcess"]);
        errors.push(FieldError::of_pod(path, BadValue::Bool(true)));
    }
    for (at, container) in pod.containers.iter().enumerate() {
        if container.security.host_process == Some(true) {
            names.push(container.name);
            let keys = ["securityContext", "windowsOptions", "hostProcess"];
            errors.push(forbidden(at, container, &keys, BadValue::Bool(true)));
        }
    }
    let setters = setters(of_pod, &names)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    CheckFinding::new("hostProcess", detail, errors)
}
