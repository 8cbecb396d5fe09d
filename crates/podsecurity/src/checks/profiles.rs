//! Checks on profiles that confine containers: AppArmor, seccomp, SELinux.

use kiln_text::quote::quote;
use kiln_value::Path;

use super::{
    CheckFinding, Values, containers, forbidden, plural, pod_security, quoted, required, setters,
};
use crate::pod::{Pod, SeLinux};
use crate::violation::{BadValue, FieldError};

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn is_profile_type(text: &str) -> bool {
    matches!(text, "RuntimeDefault" | "Localhost")
}

fn text(value: &str) -> BadValue {
    BadValue::Text(value.to_owned())
}

fn annotation(key: &str, value: &str) -> FieldError {
    let path = Path::root().join("metadata").join("annotations").join(key);
    FieldError::of_pod(path, text(value))
}

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut bad) = (Vec::new(), Vec::new(), Values::new());
    let of_pod = pod.security.app_armor.filter(|profile| !is_profile_type(profile));
    if let Some(profile) = of_pod {
        let path = pod_security(&["appArmorProfile", "type"]);
        errors.push(FieldError::of_pod(path, text(profile)));
        bad.insert(profile);
    }
    for (at, container) in pod.containers.iter().enumerate() {
        let profile = container.security.app_armor.filter(|profile| !is_profile_type(profile));
        if let Some(profile) = profile {
            names.push(container.name);
            let keys = ["securityContext", "appArmorProfile", "type"];
            errors.push(forbidden(at, container, &keys, text(profile)));
            bad.insert(profile);
        }
    }
    let is_allowed = |profile: &str| {
        profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/")
    };
    let mut annotations: Vec<(&str, &str)> = pod
        .annotations
        .iter()
        .copied()
        .filter(|(key, profile)| key.starts_with(APP_ARMOR_ANNOTATION) && !is_allowed(profile))
        .collect();
    annotations.sort_unstable();
    errors.extend(annotations.iter().map(|(key, profile)| annotation(key, profile)));

    let mut all: Vec<String> = bad.into_iter().map(str::to_owned).collect();
    all.extend(annotations.iter().map(|(key, profile)| format!("{key}={}", quote(profile))));
    let mut setters: Vec<String> = setters(of_pod.is_some(), &names).into_iter().collect();
    if !annotations.is_empty() {
        setters.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", all.len());
    let detail =
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(all));
    CheckFinding::new(reason, detail, errors)
}

/// The annotations that came before fields for seccomp.
pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<CheckFinding> {
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let mut bad: Vec<(String, FieldError)> = Vec::new();
    let mut look = |key: &str| {
        if let Some(profile) = pod.annotation(key).filter(|profile| !is_allowed(profile)) {
            bad.push((format!("{key}={}", quote(profile)), annotation(key, profile)));
        }
    };
    look(SECCOMP_ANNOTATION_OF_POD);
    let names: Values<'_> = pod.containers.iter().map(|container| container.name).collect();
    for name in names {
        look(&format!("{SECCOMP_ANNOTATION}{name}"));
    }
    if bad.is_empty() {
        return None;
    }
    bad.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (texts, errors): (Vec<String>, Vec<FieldError>) = bad.into_iter().unzip();
    let word = plural("annotation", "annotations", texts.len());
    CheckFinding::new("seccompProfile", format!("forbidden {word} {}", texts.join(", ")), errors)
}

/// No profile is set but those that confine.
pub(super) fn seccomp(pod: &Pod<'_>) -> Option<CheckFinding> {
    let mut found = seccomp_everywhere(pod)?;
    // A value that is not set does not count here, and decides only if nothing bad is set.
    found.behind = Vec::new();
    found.errors.retain(|error| !error.is_unset());
    (!found.errors.is_empty()).then_some(found)
}

/// Every container has a profile that confines it, of its own or from the Pod.
pub(super) fn seccomp_everywhere(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut errors, mut missing, mut bad) = (Vec::new(), Vec::new(), Values::new());
    let (mut explicit, mut implicit) = (Vec::new(), Vec::new());
    let of_pod = pod.security.seccomp.filter(|profile| !is_profile_type(profile));
    if let Some(profile) = of_pod {
        let path = pod_security(&["seccompProfile", "type"]);
        errors.push(FieldError::of_pod(path, text(profile)));
        bad.insert(profile);
    }
    let pod_has_one = pod.security.seccomp.is_some_and(is_profile_type);
    for (at, container) in pod.containers.iter().enumerate() {
        let keys = ["securityContext", "seccompProfile", "type"];
        match container.security.seccomp {
            Some(profile) if is_profile_type(profile) => {}
            Some(profile) => {
                explicit.push(container.name);
                errors.push(forbidden(at, container, &keys, text(profile)));
                bad.insert(profile);
            }
            None if pod_has_one => {}
            None => {
                implicit.push(container.name);
                missing.push(required(at, container, &keys));
            }
        }
    }
    if let Some(setters) = setters(of_pod.is_some(), &explicit) {
        let bad = quoted(bad);
        let detail = format!("{setters} must not set securityContext.seccompProfile.type to {bad}");
        let found = CheckFinding::new("seccompProfile", detail, errors)?;
        return Some(CheckFinding { behind: missing, ..found });
    }
    if implicit.is_empty() {
        return None;
    }
    let detail = format!(
        r#"pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#,
        containers(&implicit)
    );
    CheckFinding::new("seccompProfile", detail, missing)
}

pub(super) fn se_linux(pod: &Pod<'_>, besides: &[&str]) -> Option<CheckFinding> {
    let is_allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || besides.contains(&kind)
    };
    let wrong = |options: &SeLinux<'_>| {
        let mut wrong: Vec<(&'static str, String)> = Vec::new();
        if !is_allowed(options.kind) {
            wrong.push(("type", options.kind.to_owned()));
        }
        for (key, value) in [("user", options.user), ("role", options.role)] {
            if !value.is_empty() {
                wrong.push((key, value.to_owned()));
            }
        }
        wrong
    };
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let of_pod = pod.security.se_linux.as_ref().map(wrong).unwrap_or_default();
    for (key, value) in &of_pod {
        let path = pod_security(&["seLinuxOptions", key]);
        errors.push(FieldError::of_pod(path, text(value)));
    }
    let pod_is_wrong = !of_pod.is_empty();
    all.extend(of_pod);
    for (at, container) in pod.containers.iter().enumerate() {
        let wrong = container.security.se_linux.as_ref().map(wrong).unwrap_or_default();
        if !wrong.is_empty() {
            names.push(container.name);
        }
        for (key, value) in wrong {
            let keys = ["securityContext", "seLinuxOptions", key];
            errors.push(forbidden(at, container, &keys, text(&value)));
            all.push((key, value));
        }
    }
    let setters = setters(pod_is_wrong, &names)?;
    let types: Values<'_> =
        all.iter().filter(|(key, _)| *key == "type").map(|(_, value)| value.as_str()).collect();
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for key in ["user", "role"] {
        if all.iter().any(|(wrong, _)| *wrong == key) {
            data.push(format!("{key} may not be set"));
        }
    }
    let data = data.join("; ");
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {data}");
    CheckFinding::new("seLinuxOptions", detail, errors)
}
