//! Pod Security Standards as CEL: one condition for each control, as the documentation of Kubernetes lists them.

use kiln_podsecurity::{ALLOWED_SOURCES, DEFAULT_CAPABILITIES, PodSecurityVersion, safe_sysctls};
use kiln_value::{Path, Value};

use crate::cel::{Cel, Operator};
use crate::term::Place;
use crate::verdict::Obstacle;

/// The conditions of a level, each with what to say.
pub(crate) fn validations(
    check: &Value,
    pod: &Place,
    path: &Path,
) -> Result<Vec<(Cel, String)>, Obstacle> {
    let level = check.str_at(["level"]).unwrap_or("baseline");
    if let Some(version) = check.str_at(["version"]).filter(|version| *version != "latest") {
        return Err(Obstacle::new(
            format!("podSecurity of version {version}"),
            "use version latest, or label the namespaces with pod-security.kubernetes.io/enforce-version",
        )
        .at(&path.join("version")));
    }
    let mut excluded: Vec<(String, Vec<String>)> = Vec::new();
    for (at, entry) in check
        .get("exclude")
        .and_then(Value::as_list)
        .into_iter()
        .flat_map(|list| list.iter())
        .enumerate()
    {
        let path = path.join("exclude").join(at);
        if entry.get("restrictedField").is_some() {
            return Err(Obstacle::new(
                "podSecurity.exclude with restrictedField",
                "write the condition of this control by hand",
            )
            .at(&path));
        }
        let images =
            entry.get("images").and_then(Value::as_list).into_iter().flat_map(|list| list.iter());
        let images = images.filter_map(Value::as_str).map(str::to_owned).collect();
        excluded.push((entry.str_at(["controlName"]).unwrap_or_default().to_owned(), images));
    }
    let controls = Controls { spec: pod.field("spec"), metadata: pod.field("metadata") };
    let mut found = controls.baseline();
    if level == "restricted" {
        found.extend(controls.restricted());
    }
    let mut validations = Vec::new();
    for mut control in found {
        let exempt: Vec<&(String, Vec<String>)> =
            excluded.iter().filter(|(name, _)| *name == control.name).collect();
        let images: Vec<&str> =
            exempt.iter().flat_map(|(_, images)| images).map(String::as_str).collect();
        let is_exempt = exempt.iter().any(|(_, images)| images.is_empty());
        if is_exempt && images.is_empty() {
            continue;
        }
        // An entry without images is about the Pod itself.
        if is_exempt {
            control.pod = Cel::bool(true);
        }
        validations
            .push((control.cel(&controls, &images), format!("{}: {}", control.name, control.says)));
    }
    Ok(validations)
}

/// A control: what it asks of the Pod, and of each container.
struct Control {
    name: &'static str,
    says: &'static str,
    pod: Cel,
    container: Option<Cel>,
}

impl Control {
    fn cel(&self, controls: &Controls, images: &[&str]) -> Cel {
        let Some(container) = &self.container else { return self.pod.clone() };
        let mut check = container.clone();
        if !images.is_empty() {
            let image = Cel::name("container").select("image");
            check =
                Cel::any([crate::wildcards::matches_any(&image, images.iter().copied()), check]);
        }
        Cel::all([self.pod.clone(), controls.containers().each("all", "container", check)])
    }
}

struct Controls {
    spec: Place,
    metadata: Place,
}

fn container(path: &[&str]) -> Cel {
    path.iter().fold(Cel::name("container"), |cel, field| cel.maybe(field))
}

impl Controls {
    fn at(&self, path: &[&str]) -> Place {
        path.iter().fold(self.spec.clone(), |place, field| place.field(field))
    }

    fn containers(&self) -> Cel {
        let list = |field: &str| self.at(&[field]).or(Cel::empty_list());
        list("containers").plus(list("initContainers")).plus(list("ephemeralContainers"))
    }

    fn baseline(&self) -> Vec<Control> {
        let truth = Cel::bool(true);
        let is_false = |place: Place| place.or(Cel::bool(false)).equals(Cel::bool(false));
        let control = |name, says, pod, container| Control { name, says, pod, container };
        let options = ["seLinuxOptions"];
        let of_pod = |field: &str| self.at(&["securityContext"]).field(options[0]).field(field);
        let of_container = |field: &str| container(&["securityContext", options[0], field]);
        let types = Cel::texts([
            "",
            "container_t",
            "container_init_t",
            "container_kvm_t",
            "container_engine_t",
        ]);
        let linux = |ty: Cel, user: Cel, role: Cel| {
            Cel::all([
                ty.within(types.clone()),
                user.equals(Cel::text("")),
                role.equals(Cel::text("")),
            ])
        };
        let empty = |cel: Cel| cel.or_value(Cel::text(""));
        let sysctls = Cel::texts(safe_sysctls(PodSecurityVersion::Latest));
        let capabilities = Cel::texts(DEFAULT_CAPABILITIES);
        let volume = Cel::name("volume").select("hostPath").has().negate();
        let port = Cel::name("port").maybe("hostPort").or_value(Cel::int(0)).equals(Cel::int(0));
        let annotations = self.metadata.field("annotations").or(Cel::Map(Vec::new()));
        let armor = "container.apparmor.security.beta.kubernetes.io/";
        let profile = annotations.clone().index(Cel::name("key"), false);
        let old_armor = annotations.each(
            "all",
            "key",
            Cel::any([
                Cel::name("key").call("startsWith", vec![Cel::text(armor)]).negate(),
                profile.clone().within(Cel::texts(["", "runtime/default"])),
                profile.call("startsWith", vec![Cel::text("localhost/")]),
            ]),
        );
        let profiles = |cel: Cel| {
            cel.or_value(Cel::text("RuntimeDefault"))
                .within(Cel::texts(["RuntimeDefault", "Localhost"]))
        };
        vec![
            control(
                "HostProcess",
                "hostProcess must not be true",
                is_false(self.at(&["securityContext", "windowsOptions", "hostProcess"])),
                Some(
                    container(&["securityContext", "windowsOptions", "hostProcess"])
                        .or_value(Cel::bool(false))
                        .equals(Cel::bool(false)),
                ),
            ),
            control(
                "Host Namespaces",
                "hostNetwork, hostPID and hostIPC must not be true",
                Cel::all(
                    ["hostNetwork", "hostPID", "hostIPC"].map(|field| is_false(self.at(&[field]))),
                ),
                None,
            ),
            control(
                "Privileged Containers",
                "privileged must not be true",
                truth.clone(),
                Some(
                    container(&["securityContext", "privileged"])
                        .or_value(Cel::bool(false))
                        .equals(Cel::bool(false)),
                ),
            ),
            control(
                "Capabilities",
                "only the default capabilities may be added",
                truth.clone(),
                Some(
                    container(&["securityContext", "capabilities", "add"])
                        .or_value(Cel::empty_list())
                        .each("all", "capability", Cel::name("capability").within(capabilities)),
                ),
            ),
            control(
                "HostPath Volumes",
                "hostPath volumes are not allowed",
                self.at(&["volumes"]).or(Cel::empty_list()).each("all", "volume", volume),
                None,
            ),
            control(
                "Host Ports",
                "host ports are not allowed",
                truth.clone(),
                Some(container(&["ports"]).or_value(Cel::empty_list()).each("all", "port", port)),
            ),
            control(
                "AppArmor",
                "AppArmor profiles must be RuntimeDefault or Localhost",
                Cel::all([
                    old_armor,
                    profiles(self.at(&["securityContext", "appArmorProfile", "type"]).optional()),
                ]),
                Some(profiles(container(&["securityContext", "appArmorProfile", "type"]))),
            ),
            control(
                "SELinux",
                "SELinux options must be the default ones",
                linux(
                    of_pod("type").or(Cel::text("")),
                    of_pod("user").or(Cel::text("")),
                    of_pod("role").or(Cel::text("")),
                ),
                Some(linux(
                    empty(of_container("type")),
                    empty(of_container("user")),
                    empty(of_container("role")),
                )),
            ),
            control(
                "/proc Mount Type",
                "procMount must be Default",
                truth,
                Some(
                    container(&["securityContext", "procMount"])
                        .or_value(Cel::text("Default"))
                        .equals(Cel::text("Default")),
                ),
            ),
            control(
                "Seccomp",
                "seccomp profiles must not be Unconfined",
                self.at(&["securityContext", "seccompProfile", "type"])
                    .or(Cel::text("RuntimeDefault"))
                    .differs(Cel::text("Unconfined")),
                Some(
                    container(&["securityContext", "seccompProfile", "type"])
                        .or_value(Cel::text("RuntimeDefault"))
                        .differs(Cel::text("Unconfined")),
                ),
            ),
            control(
                "Sysctls",
                "only safe sysctls may be set",
                self.at(&["securityContext", "sysctls"]).or(Cel::empty_list()).each(
                    "all",
                    "sysctl",
                    Cel::name("sysctl").select("name").within(sysctls),
                ),
                None,
            ),
        ]
    }

    fn restricted(&self) -> Vec<Control> {
        let truth = Cel::bool(true);
        let control = |name, says, pod, container| Control { name, says, pod, container };
        let volume = Cel::any(ALLOWED_SOURCES.map(|field| Cel::name("volume").select(field).has()));
        let is_windows = self.at(&["os", "name"]).or(Cel::text("")).equals(Cel::text("windows"));
        let not_root = |cel: Cel, default: Cel| cel.or_value(default).equals(Cel::bool(true));
        let pod_not_root = self.at(&["securityContext", "runAsNonRoot"]).or(Cel::bool(false));
        let user =
            |place: Cel| Cel::binary(Operator::NotEqual, place.or_value(Cel::int(1)), Cel::int(0));
        let pod_seccomp = self.at(&["securityContext", "seccompProfile", "type"]).or(Cel::text(""));
        let profiles = Cel::texts(["RuntimeDefault", "Localhost"]);
        let drops =
            container(&["securityContext", "capabilities", "drop"]).or_value(Cel::empty_list());
        let adds =
            container(&["securityContext", "capabilities", "add"]).or_value(Cel::empty_list());
        vec![
            control(
                "Volume Types",
                "only ephemeral volumes and persistent volume claims are allowed",
                self.at(&["volumes"]).or(Cel::empty_list()).each("all", "volume", volume),
                None,
            ),
            control(
                "Privilege Escalation",
                "allowPrivilegeEscalation must be false",
                truth.clone(),
                Some(Cel::any([
                    is_windows.clone(),
                    container(&["securityContext", "allowPrivilegeEscalation"])
                        .or_value(Cel::bool(true))
                        .equals(Cel::bool(false)),
                ])),
            ),
            control(
                "Running as Non-root",
                "runAsNonRoot must be true",
                truth.clone(),
                Some(not_root(container(&["securityContext", "runAsNonRoot"]), pod_not_root)),
            ),
            control(
                "Running as Non-root user",
                "runAsUser must not be 0",
                user(self.at(&["securityContext", "runAsUser"]).optional()),
                Some(user(container(&["securityContext", "runAsUser"]))),
            ),
            control(
                "Seccomp",
                "seccomp profiles must be RuntimeDefault or Localhost",
                truth.clone(),
                Some(Cel::any([
                    is_windows.clone(),
                    container(&["securityContext", "seccompProfile", "type"])
                        .or_value(pod_seccomp)
                        .within(profiles),
                ])),
            ),
            control(
                "Capabilities",
                "ALL capabilities must be dropped, and only NET_BIND_SERVICE added",
                truth,
                Some(Cel::any([
                    is_windows,
                    Cel::all([
                        Cel::text("ALL").within(drops),
                        adds.each(
                            "all",
                            "capability",
                            Cel::name("capability").equals(Cel::text("NET_BIND_SERVICE")),
                        ),
                    ]),
                ])),
            ),
        ]
    }
}
