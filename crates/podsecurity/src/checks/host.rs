//! Checks on what a Pod shares with its node: namespaces, ports, hosts that probes ask, kernel settings.

use kiln_value::Path;

use super::{CheckFinding, Values, containers, forbidden, plural, pod_security, quoted};
use crate::level::PodSecurityVersion;
use crate::pod::Pod;
use crate::violation::{BadValue, FieldError};

/// Kernel settings that are safe, with the version that says so.
const SAFE_SYSCTLS: [(u16, &str); 14] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
    (37, "net.ipv4.tcp_slow_start_after_idle"),
    (37, "net.ipv4.tcp_notsent_lowat"),
];

/// The kernel settings that are safe in a version.
pub fn safe_sysctls(version: PodSecurityVersion) -> impl Iterator<Item = &'static str> {
    let in_force = SAFE_SYSCTLS.iter().filter(move |(since, _)| version.reaches(*since));
    in_force.map(|(_, name)| *name)
}

pub(super) fn namespaces(pod: &Pod<'_>) -> Option<CheckFinding> {
    let all =
        [("hostNetwork", pod.host_network), ("hostPID", pod.host_pid), ("hostIPC", pod.host_ipc)];
    let shared: Vec<&str> = all.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    if shared.is_empty() {
        return None;
    }
    let detail: Vec<String> = shared.iter().map(|key| format!("{key}=true")).collect();
    let errors = shared
        .iter()
        .map(|key| FieldError::of_pod(Path::root().join("spec").join(*key), BadValue::Bool(true)));
    CheckFinding::new("host namespaces", detail.join(", "), errors.collect())
}

pub(super) fn ports(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for (at, container) in pod.containers.iter().enumerate() {
        for &(index, port) in &container.host_ports {
            let mut error = forbidden(at, container, &["ports"], BadValue::Int(port));
            error.path.push(index);
            error.path.push("hostPort");
            errors.push(error);
            ports.push(port.to_string());
        }
        if !container.host_ports.is_empty() {
            names.push(container.name);
        }
    }
    if names.is_empty() {
        return None;
    }
    ports.sort();
    ports.dedup();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.join(", "),
    );
    CheckFinding::new("hostPort", detail, errors)
}

pub(super) fn probes(pod: &Pod<'_>) -> Option<CheckFinding> {
    let (mut names, mut errors, mut hosts) = (Values::new(), Vec::new(), Values::new());
    for (at, container) in pod.containers.iter().enumerate() {
        for (keys, host) in &container.hosts {
            names.insert(container.name);
            hosts.insert(host);
            errors.push(forbidden(at, container, keys, BadValue::Text((*host).to_owned())));
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts),
    );
    CheckFinding::new("probe or lifecycle host", detail, errors)
}

pub(super) fn sysctls(pod: &Pod<'_>, version: u16) -> Option<CheckFinding> {
    let is_safe =
        |name: &str| SAFE_SYSCTLS.iter().any(|(since, safe)| *since <= version && *safe == name);
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for (index, name) in pod.sysctls.iter().enumerate() {
        if !is_safe(name) {
            names.push(*name);
            let path = pod_security(&["sysctls"]).join(index).join("name");
            errors.push(FieldError::of_pod(path, BadValue::Text((*name).to_owned())));
        }
    }
    if names.is_empty() {
        return None;
    }
    CheckFinding::new("forbidden sysctls", names.join(", "), errors)
}
