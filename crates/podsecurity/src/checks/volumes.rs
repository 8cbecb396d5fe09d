//! Checks on what a Pod mounts.

use kiln_value::Path;

use super::{CheckFinding, Values, containers, forbidden, plural, quoted};
use crate::pod::{ALLOWED_SOURCES, Pod};
use crate::violation::{BadValue, FieldError};

fn volume(index: usize, key: &'static str, bad: BadValue) -> FieldError {
    let path = Path::root().join("spec").join("volumes").join(index).join(key);
    FieldError::of_pod(path, bad)
}

pub(super) fn host_paths(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for (index, entry) in pod.volumes.iter().enumerate() {
        if let Some(path) = entry.host_path {
            names.push(entry.name);
            errors.push(volume(index, "hostPath", BadValue::Text(path.to_owned())));
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    CheckFinding::new("hostPath volumes", detail, errors)
}

/// Only volumes that need nothing of the node.
pub(super) fn kinds(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut kinds) = (Vec::new(), Vec::new(), Values::new());
    for (index, entry) in pod.volumes.iter().enumerate() {
        if entry.source.is_some_and(|source| ALLOWED_SOURCES.contains(&source)) {
            continue;
        }
        let kind = entry.source.unwrap_or("unknown");
        names.push(entry.name);
        kinds.insert(kind);
        errors.push(volume(index, kind, BadValue::Any));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds),
    );
    CheckFinding::new("restricted volume types", detail, errors)
}

/// `/proc` with the parts hidden that runtimes hide.
pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut bad) = (Vec::new(), Vec::new(), Values::new());
    for (at, container) in pod.containers.iter().enumerate() {
        let mount = container.security.proc_mount.filter(|mount| *mount != "Default");
        if let Some(mount) = mount {
            names.push(container.name);
            bad.insert(mount);
            let keys = ["securityContext", "procMount"];
            errors.push(forbidden(at, container, &keys, BadValue::Text(mount.to_owned())));
        }
    }
    if names.is_empty() {
        return None;
    }
    let (names, bad) = (containers(&names), quoted(bad));
    CheckFinding::new(
        "procMount",
        format!("{names} must not set securityContext.procMount to {bad}"),
        errors,
    )
}
