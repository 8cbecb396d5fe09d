//! The checks, and which of them a level has in a version.

mod host;
mod privileges;
mod profiles;
mod users;
mod volumes;

pub use host::safe_sysctls;
pub use privileges::DEFAULT_CAPABILITIES;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use kiln_value::Path;

use crate::level::{Level, PodSecurityVersion};
use crate::pod::{Container, Pod};
use crate::violation::{BadValue, FieldError, FieldFault, Violation};

/// A control, as the documentation of the standards names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// `AppArmor`
    AppArmor,
    /// `Capabilities`
    Capabilities,
    /// `Host Namespaces`
    HostNamespaces,
    /// `HostPath Volumes`
    HostPathVolumes,
    /// `Host Ports`
    HostPorts,
    /// `Host Probes / Lifecycle Hooks`
    HostProbes,
    /// `HostProcess`
    HostProcess,
    /// `Privilege Escalation`
    PrivilegeEscalation,
    /// `Privileged Containers`
    PrivilegedContainers,
    /// `/proc Mount Type`
    ProcMountType,
    /// `Running as Non-root`
    RunningAsNonRoot,
    /// `Running as Non-root user`
    RunningAsNonRootUser,
    /// `Seccomp`
    Seccomp,
    /// `SELinux`
    SeLinux,
    /// `Sysctls`
    Sysctls,
    /// `Volume Types`
    VolumeTypes,
}

/// Whose fields a control is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Fields of the Pod itself.
    Pod,
    /// Fields of its containers.
    Containers,
    /// Fields of the Pod and of its containers.
    Both,
}

impl Control {
    pub const ALL: [Control; 16] = [
        Control::AppArmor,
        Control::Capabilities,
        Control::HostNamespaces,
        Control::HostPathVolumes,
        Control::HostPorts,
        Control::HostProbes,
        Control::HostProcess,
        Control::PrivilegeEscalation,
        Control::PrivilegedContainers,
        Control::ProcMountType,
        Control::RunningAsNonRoot,
        Control::RunningAsNonRootUser,
        Control::Seccomp,
        Control::SeLinux,
        Control::Sysctls,
        Control::VolumeTypes,
    ];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Control::AppArmor => "AppArmor",
            Control::Capabilities => "Capabilities",
            Control::HostNamespaces => "Host Namespaces",
            Control::HostPathVolumes => "HostPath Volumes",
            Control::HostPorts => "Host Ports",
            Control::HostProbes => "Host Probes / Lifecycle Hooks",
            Control::HostProcess => "HostProcess",
            Control::PrivilegeEscalation => "Privilege Escalation",
            Control::PrivilegedContainers => "Privileged Containers",
            Control::ProcMountType => "/proc Mount Type",
            Control::RunningAsNonRoot => "Running as Non-root",
            Control::RunningAsNonRootUser => "Running as Non-root user",
            Control::Seccomp => "Seccomp",
            Control::SeLinux => "SELinux",
            Control::Sysctls => "Sysctls",
            Control::VolumeTypes => "Volume Types",
        }
    }

    /// Whose fields it is about.
    pub fn covers(self) -> Covers {
        match self {
            Control::HostNamespaces
            | Control::HostPathVolumes
            | Control::Sysctls
            | Control::VolumeTypes => Covers::Pod,
            Control::Capabilities
            | Control::HostPorts
            | Control::HostProbes
            | Control::PrivilegeEscalation
            | Control::PrivilegedContainers
            | Control::ProcMountType => Covers::Containers,
            Control::AppArmor
            | Control::HostProcess
            | Control::RunningAsNonRoot
            | Control::RunningAsNonRootUser
            | Control::Seccomp
            | Control::SeLinux => Covers::Both,
        }
    }

    /// The lowest level that has it.
    pub fn level(self) -> Level {
        let checks = CHECKS.iter().filter(|check| check.control == self);
        checks.map(|check| check.level).min().unwrap_or(Level::Restricted)
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Control {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Control::ALL.into_iter().find(|control| control.name() == name).ok_or(())
    }
}

/// A level in a version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    pub version: PodSecurityVersion,
    /// Report what a check of baseline finds although a stricter check of restricted stands in for it.
    pub with_twins: bool,
}

impl Standard {
    /// As the API server checks it.
    pub fn of_kubernetes(level: Level, version: PodSecurityVersion) -> Self {
        Standard { level, version, with_twins: false }
    }

    /// As Kyverno's rules check it: a Pod is allowed or not as by the API server, but more is reported.
    pub fn of_rules(level: Level, version: PodSecurityVersion) -> Self {
        Standard { level, version, with_twins: true }
    }

    /// The checks in force, in the order of their reports.
    fn checks(&self) -> Vec<(&'static LevelCheck, &'static Revision)> {
        let in_force = |check: &'static LevelCheck| {
            let newest = |revision: &&Revision| self.version.reaches(revision.since);
            Some((check, check.revisions.iter().rev().find(newest)?))
        };
        let of_level = |check: &&LevelCheck| check.level <= self.level;
        let mut all: Vec<_> = CHECKS.iter().filter(of_level).filter_map(in_force).collect();
        let stands_in = |check: &LevelCheck| !(self.with_twins && check.twin_reports);
        let replaced: Vec<&str> = all
            .iter()
            .filter(|(check, _)| stands_in(check))
            .filter_map(|(check, _)| check.replaces)
            .collect();
        all.retain(|(check, _)| !replaced.contains(&check.id));
        if !self.with_twins {
            all.sort_by_key(|(check, _)| check.level);
        }
        all
    }

    /// The checks that a Pod does not pass.
    pub fn check(&self, pod: &Pod<'_>) -> Vec<Violation> {
        let found = self.checks().into_iter().filter_map(|(check, revision)| {
            let CheckFinding { reason, detail, errors, behind } = (revision.run)(pod)?;
            let (id, control, level) = (check.id, check.control, check.level);
            Some(Violation { check: id, control, level, reason, detail, errors, behind })
        });
        found.collect()
    }
}

/// A check of one level.
struct LevelCheck {
    id: &'static str,
    control: Control,
    level: Level,
    /// Oldest first.
    revisions: &'static [Revision],
    /// The check of baseline that it stands in for.
    replaces: Option<&'static str>,
    /// Rules report what that check finds all the same.
    twin_reports: bool,
}

/// What a check looks at from a version on.
struct Revision {
    /// The version, `v1.N`.
    since: u16,
    run: fn(&Pod<'_>) -> Option<CheckFinding>,
}

/// What a check found.
struct CheckFinding {
    reason: String,
    detail: String,
    errors: Vec<FieldError>,
    behind: Vec<FieldError>,
}

impl CheckFinding {
    fn new(reason: &str, detail: String, errors: Vec<FieldError>) -> Option<Self> {
        Some(CheckFinding { reason: reason.to_owned(), detail, errors, behind: Vec::new() })
    }
}

const fn since(since: u16, run: fn(&Pod<'_>) -> Option<CheckFinding>) -> Revision {
    Revision { since, run }
}

const fn baseline(
    id: &'static str,
    control: Control,
    revisions: &'static [Revision],
) -> LevelCheck {
    let level = Level::Baseline;
    LevelCheck { id, control, level, revisions, replaces: None, twin_reports: false }
}

const fn restricted(
    id: &'static str,
    control: Control,
    revisions: &'static [Revision],
) -> LevelCheck {
    let level = Level::Restricted;
    LevelCheck { id, control, level, revisions, replaces: None, twin_reports: false }
}

/// In the order of their reports, which is that of their names but for the case of letters.
const CHECKS: &[LevelCheck] = &[
    restricted(
        "allowPrivilegeEscalation",
        Control::PrivilegeEscalation,
        &[
            since(8, privileges::escalation),
            since(25, |pod| unless_windows(pod, privileges::escalation)),
        ],
    ),
    baseline("appArmorProfile", Control::AppArmor, &[since(0, profiles::app_armor)]),
    baseline(
        "capabilities_baseline",
        Control::Capabilities,
        &[since(0, privileges::default_capabilities)],
    ),
    LevelCheck {
        replaces: Some("capabilities_baseline"),
        twin_reports: true,
        ..restricted(
            "capabilities_restricted",
            Control::Capabilities,
            &[
                since(22, privileges::no_capabilities),
                since(25, |pod| unless_windows(pod, privileges::no_capabilities)),
            ],
        )
    },
    baseline("hostNamespaces", Control::HostNamespaces, &[since(0, host::namespaces)]),
    baseline("hostPathVolumes", Control::HostPathVolumes, &[since(0, volumes::host_paths)]),
    baseline("hostPorts", Control::HostPorts, &[since(0, host::ports)]),
    baseline("hostProbesAndHostLifecycle", Control::HostProbes, &[since(34, host::probes)]),
    baseline("privileged", Control::PrivilegedContainers, &[since(0, privileges::privileged)]),
    baseline(
        "procMount",
        Control::ProcMountType,
        &[
            since(0, volumes::proc_mount),
            since(35, |pod| unless_own_users(pod, volumes::proc_mount)),
        ],
    ),
    LevelCheck {
        replaces: Some("procMount"),
        ..restricted(
            "procMount_restricted",
            Control::ProcMountType,
            &[since(35, volumes::proc_mount)],
        )
    },
    LevelCheck {
        replaces: Some("hostPathVolumes"),
        twin_reports: true,
        ..restricted("restrictedVolumes", Control::VolumeTypes, &[since(0, volumes::kinds)])
    },
    restricted(
        "runAsNonRoot",
        Control::RunningAsNonRoot,
        &[since(0, users::non_root), since(35, |pod| unless_own_users(pod, users::non_root))],
    ),
    restricted(
        "runAsUser",
        Control::RunningAsNonRootUser,
        &[since(23, users::user), since(35, |pod| unless_own_users(pod, users::user))],
    ),
    baseline(
        "seLinuxOptions",
        Control::SeLinux,
        &[
            since(0, |pod| profiles::se_linux(pod, &[])),
            since(31, |pod| profiles::se_linux(pod, &["container_engine_t"])),
        ],
    ),
    baseline(
        "seccompProfile_baseline",
        Control::Seccomp,
        &[since(0, profiles::seccomp_annotations), since(19, profiles::seccomp)],
    ),
    LevelCheck {
        replaces: Some("seccompProfile_baseline"),
        twin_reports: true,
        ..restricted(
            "seccompProfile_restricted",
            Control::Seccomp,
            &[
                since(19, profiles::seccomp_everywhere),
                since(25, |pod| unless_windows(pod, profiles::seccomp_everywhere)),
            ],
        )
    },
    baseline(
        "sysctls",
        Control::Sysctls,
        &[
            since(0, |pod| host::sysctls(pod, 0)),
            since(27, |pod| host::sysctls(pod, 27)),
            since(29, |pod| host::sysctls(pod, 29)),
            since(32, |pod| host::sysctls(pod, 32)),
            since(37, |pod| host::sysctls(pod, 37)),
        ],
    ),
    baseline("windowsHostProcess", Control::HostProcess, &[since(0, privileges::host_process)]),
];

/// Pods for Windows cannot set what these checks ask for.
fn unless_windows(
    pod: &Pod<'_>,
    check: fn(&Pod<'_>) -> Option<CheckFinding>,
) -> Option<CheckFinding> {
    if pod.is_windows { None } else { check(pod) }
}

/// Root in a user namespace is not root outside.
fn unless_own_users(
    pod: &Pod<'_>,
    check: fn(&Pod<'_>) -> Option<CheckFinding>,
) -> Option<CheckFinding> {
    if pod.own_users { None } else { check(pod) }
}

/// A bad value of a container.
fn forbidden(
    at: usize,
    container: &Container<'_>,
    keys: &[&'static str],
    bad: BadValue,
) -> FieldError {
    let fault = FieldFault::Forbidden(bad);
    FieldError { path: container.path(keys), fault, container: Some(at) }
}

/// A value that a container lacks.
fn required(at: usize, container: &Container<'_>, keys: &[&'static str]) -> FieldError {
    FieldError { path: container.path(keys), fault: FieldFault::Required, container: Some(at) }
}

/// A field of the securityContext of the Pod itself.
fn pod_security(keys: &[&'static str]) -> Path {
    let path = Path::root().join("spec").join("securityContext");
    keys.iter().fold(path, |path, key| path.join(*key))
}

/// The names in quotes.
fn quoted<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> =
        names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    quoted.join(", ")
}

/// Containers by their names: `container "a"`, `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

fn plural<'w>(one: &'w str, many: &'w str, count: usize) -> &'w str {
    if count == 1 { one } else { many }
}

/// `pod and containers "a", "b"`, as far as they have something to answer for.
fn setters(of_pod: bool, of_containers: &[&str]) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    if of_pod {
        all.push("pod".to_owned());
    }
    if !of_containers.is_empty() {
        all.push(containers(of_containers));
    }
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Values, each once, in order.
type Values<'v> = BTreeSet<&'v str>;

/// The values as an error has them.
fn listed(values: &Values<'_>) -> BadValue {
    BadValue::List(values.iter().map(|&value| value.to_owned()).collect())
}
