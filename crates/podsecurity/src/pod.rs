//! The fields of a Pod that checks look at.

use kiln_value::{List, Map, Path, Segment, Value};
use thiserror::Error;

/// A Pod, or the template of one, as far as checks look at it.
#[derive(Debug)]
pub struct Pod<'v> {
    pub(crate) annotations: Vec<(&'v str, &'v str)>,
    pub(crate) host_network: bool,
    pub(crate) host_pid: bool,
    pub(crate) host_ipc: bool,
    /// It runs in a user namespace of its own.
    pub(crate) own_users: bool,
    pub(crate) is_windows: bool,
    pub(crate) security: Security<'v>,
    pub(crate) sysctls: Vec<&'v str>,
    pub(crate) volumes: Vec<Volume<'v>>,
    /// In the order in which checks look at them: init containers, containers, ephemeral containers.
    pub(crate) containers: Vec<Container<'v>>,
}

/// The securityContext of a Pod or a container.
#[derive(Debug, Default)]
pub(crate) struct Security<'v> {
    /// It is there, though perhaps empty.
    pub(crate) is_set: bool,
    pub(crate) privileged: Option<bool>,
    pub(crate) privilege_escalation: Option<bool>,
    pub(crate) run_as_non_root: Option<bool>,
    pub(crate) run_as_user: Option<i64>,
    pub(crate) proc_mount: Option<&'v str>,
    pub(crate) host_process: Option<bool>,
    /// The type, for profiles that are there; it may be empty.
    pub(crate) app_armor: Option<&'v str>,
    pub(crate) seccomp: Option<&'v str>,
    pub(crate) se_linux: Option<SeLinux<'v>>,
    pub(crate) capabilities: Option<Capabilities<'v>>,
}

#[derive(Debug)]
pub(crate) struct SeLinux<'v> {
    pub(crate) kind: &'v str,
    pub(crate) user: &'v str,
    pub(crate) role: &'v str,
}

#[derive(Debug)]
pub(crate) struct Capabilities<'v> {
    pub(crate) add: Vec<&'v str>,
    pub(crate) drop: Vec<&'v str>,
}

#[derive(Debug)]
pub(crate) struct Volume<'v> {
    pub(crate) name: &'v str,
    /// The first of its sources that is known, those that restricted allows before the others.
    pub(crate) source: Option<&'static str>,
    /// The path on the host, for a volume that has one.
    pub(crate) host_path: Option<&'v str>,
}

#[derive(Debug)]
pub(crate) struct Container<'v> {
    pub(crate) list: ContainerList,
    pub(crate) index: usize,
    pub(crate) name: &'v str,
    pub(crate) image: &'v str,
    pub(crate) security: Security<'v>,
    /// Positions and numbers of ports on the host.
    pub(crate) host_ports: Vec<(usize, i64)>,
    /// Hosts that probes and handlers ask, with the keys that lead there.
    pub(crate) hosts: Vec<(Vec<&'static str>, &'v str)>,
}

/// The lists of a Pod that hold containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerList {
    /// `initContainers`.
    Init,
    /// `containers`.
    Ordinary,
    /// `ephemeralContainers`.
    Ephemeral,
}

impl ContainerList {
    /// The key of the list.
    pub fn key(self) -> &'static str {
        match self {
            ContainerList::Init => "initContainers",
            ContainerList::Ordinary => "containers",
            ContainerList::Ephemeral => "ephemeralContainers",
        }
    }
}

/// The kinds of volumes that the restricted level allows.
pub const ALLOWED_SOURCES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// The others.
const OTHER_SOURCES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// A field that has another type than a Pod gives it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: expected {expected}, found {found}")]
pub struct Malformed {
    /// The field, from the root of the Pod.
    pub path: Path,
    /// What a Pod has there.
    pub expected: &'static str,
    pub found: &'static str,
}

impl<'v> Pod<'v> {
    /// Reads the metadata and the spec of a Pod, or of the template of one.
    pub fn read(metadata: Option<&'v Value>, spec: Option<&'v Value>) -> Result<Self, Malformed> {
        Self::read_fields(metadata, spec).map_err(|mut malformed| {
            malformed.path = malformed
                .path
                .segments()
                .iter()
                .rev()
                .cloned()
                .fold(Path::root(), |path, segment| path.join(segment));
            malformed
        })
    }

    /// Reads everything. Errors collect their path from the inside, so it is the wrong way round.
    fn read_fields(
        metadata: Option<&'v Value>,
        spec: Option<&'v Value>,
    ) -> Result<Self, Malformed> {
        let annotations = (|| {
            let metadata = map(metadata)?;
            let annotations =
                map(metadata.and_then(|m| m.get("annotations"))).map_err(at("annotations"))?;
            let pairs = annotations.into_iter().flat_map(Map::iter);
            pairs
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| {
                    Ok((key.as_str(), text(Some(value)).map_err(at(key.as_str()))?.unwrap_or("")))
                })
                .collect::<Result<Vec<_>, Malformed>>()
                .map_err(at("annotations"))
        })()
        .map_err(at("metadata"))?;
        Self::read_spec(annotations, spec).map_err(at("spec"))
    }

    fn read_spec(
        annotations: Vec<(&'v str, &'v str)>,
        spec: Option<&'v Value>,
    ) -> Result<Self, Malformed> {
        let empty = map(spec)?;
        let get = |key: &str| empty.and_then(|spec| spec.get(key));
        let flag = |key: &'static str| boolean(get(key)).map_err(at(key));
        let security_context = map(get("securityContext")).map_err(at("securityContext"))?;
        let sysctls = (|| {
            let sysctls = security_context.and_then(|s| s.get("sysctls"));
            each(list(sysctls)?, |sysctl| {
                let name = map(Some(sysctl))?.and_then(|s| s.get("name"));
                Ok(text(name).map_err(at("name"))?.unwrap_or(""))
            })
        })()
        .map_err(at("sysctls"))
        .map_err(at("securityContext"))?;
        let mut pod = Pod {
            annotations,
            host_network: flag("hostNetwork")?.unwrap_or(false),
            host_pid: flag("hostPID")?.unwrap_or(false),
            host_ipc: flag("hostIPC")?.unwrap_or(false),
            own_users: flag("hostUsers")? == Some(false),
            is_windows: {
                let os = map(get("os")).map_err(at("os"))?.and_then(|os| os.get("name"));
                text(os).map_err(at("name")).map_err(at("os"))? == Some("windows")
            },
            security: Security::read(security_context).map_err(at("securityContext"))?,
            sysctls,
            volumes: each(list(get("volumes")).map_err(at("volumes"))?, Volume::read)
                .map_err(at("volumes"))?,
            containers: Vec::new(),
        };
        for which in [ContainerList::Init, ContainerList::Ordinary, ContainerList::Ephemeral] {
            let key = which.key();
            let entries = list(get(key)).map_err(at(key))?;
            for (index, entry) in entries.into_iter().flat_map(|l| l.iter()).enumerate() {
                let container = Container::read(which, index, entry);
                pod.containers.push(container.map_err(at(index)).map_err(at(key))?);
            }
        }
        Ok(pod)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&'v str> {
        self.annotations.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }
}

impl<'v> Security<'v> {
    fn read(context: Option<&'v Map>) -> Result<Self, Malformed> {
        let Some(context) = context else { return Ok(Security::default()) };
        let get = |key: &str| context.get(key);
        let flag = |key: &'static str| boolean(get(key)).map_err(at(key));
        let inner = |key: &'static str| map(get(key)).map_err(at(key));
        let field = |of: Option<&'v Map>, key: &'static str, name: &'static str| {
            let value = text(of.and_then(|of| of.get(name)));
            value.map(|v| v.unwrap_or("")).map_err(at(name)).map_err(at(key))
        };
        let profile = |key: &'static str| {
            inner(key)?.map(|profile| field(Some(profile), key, "type")).transpose()
        };
        let windows = inner("windowsOptions")?.and_then(|w| w.get("hostProcess"));
        let se_linux = inner("seLinuxOptions")?
            .map(|options| {
                let field = |name| field(Some(options), "seLinuxOptions", name);
                Ok(SeLinux { kind: field("type")?, user: field("user")?, role: field("role")? })
            })
            .transpose()?;
        let capabilities = inner("capabilities")?
            .map(|capabilities| {
                let names = |key: &'static str| {
                    let names = list(capabilities.get(key))
                        .and_then(|names| each(names, |name| Ok(text(Some(name))?.unwrap_or(""))));
                    names.map_err(at(key)).map_err(at("capabilities"))
                };
                Ok(Capabilities { add: names("add")?, drop: names("drop")? })
            })
            .transpose()?;
        Ok(Security {
            is_set: true,
            privileged: flag("privileged")?,
            privilege_escalation: flag("allowPrivilegeEscalation")?,
            run_as_non_root: flag("runAsNonRoot")?,
            run_as_user: integer(get("runAsUser")).map_err(at("runAsUser"))?,
            proc_mount: text(get("procMount")).map_err(at("procMount"))?,
            host_process: boolean(windows)
                .map_err(at("hostProcess"))
                .map_err(at("windowsOptions"))?,
            app_armor: profile("appArmorProfile")?,
            seccomp: profile("seccompProfile")?,
            se_linux,
            capabilities,
        })
    }
}

impl<'v> Volume<'v> {
    fn read(volume: &'v Value) -> Result<Self, Malformed> {
        let volume = map(Some(volume))?;
        let get = |key: &str| volume.and_then(|v| v.get(key)).filter(|v| !v.is_null());
        let host_path = map(get("hostPath"))
            .and_then(|host| {
                host.map(|host| Ok(text(host.get("path")).map_err(at("path"))?.unwrap_or("")))
                    .transpose()
            })
            .map_err(at("hostPath"))?;
        let all = ALLOWED_SOURCES.iter().chain(&OTHER_SOURCES);
        // Kubernetes: a volume that says nothing is an empty directory.
        let is_bare = || {
            let mut fields = volume.into_iter().flat_map(Map::iter);
            fields.all(|(key, value)| key.as_str() == "name" || value.is_null())
        };
        Ok(Volume {
            name: text(get("name")).map_err(at("name"))?.unwrap_or(""),
            source: all
                .copied()
                .find(|source| get(source).is_some())
                .or_else(|| is_bare().then_some("emptyDir")),
            host_path,
        })
    }
}

impl<'v> Container<'v> {
    fn read(list_of: ContainerList, index: usize, container: &'v Value) -> Result<Self, Malformed> {
        let fields = map(Some(container))?;
        let get = |key: &str| fields.and_then(|fields| fields.get(key));
        let word =
            |key: &'static str| text(get(key)).map(|word| word.unwrap_or("")).map_err(at(key));
        let ports = each(list(get("ports")).map_err(at("ports"))?, |port| {
            let host = map(Some(port))?.and_then(|port| port.get("hostPort"));
            Ok(integer(host).map_err(at("hostPort"))?.unwrap_or(0))
        })
        .map_err(at("ports"))?;
        let mut hosts = Vec::new();
        let mut ask = |parent: Option<&'v Value>, above: &[&'static str], key: &'static str| {
            let handler = map(parent.and_then(|parent| parent.get(key))).map_err(at(key))?;
            for way in ["httpGet", "tcpSocket"] {
                let host = map(handler.and_then(|handler| handler.get(way)))
                    .and_then(|way| text(way.and_then(|way| way.get("host"))).map_err(at("host")))
                    .map_err(at(way))
                    .map_err(at(key))?;
                if let Some(host) = host.filter(|host| !host.is_empty()) {
                    let mut keys = above.to_vec();
                    keys.extend([key, way, "host"]);
                    hosts.push((keys, host));
                }
            }
            Ok::<(), Malformed>(())
        };
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            ask(Some(container), &[], probe)?;
        }
        map(get("lifecycle")).map_err(at("lifecycle"))?;
        for handler in ["postStart", "preStop"] {
            ask(get("lifecycle"), &["lifecycle"], handler).map_err(at("lifecycle"))?;
        }
        let security = map(get("securityContext")).and_then(Security::read);
        Ok(Container {
            list: list_of,
            index,
            name: word("name")?,
            image: word("image")?,
            security: security.map_err(at("securityContext"))?,
            host_ports: ports.into_iter().enumerate().filter(|(_, port)| *port != 0).collect(),
            hosts,
        })
    }

    /// The place of a field of the container.
    pub(crate) fn path(&self, keys: &[&'static str]) -> Path {
        let mut path = Path::root().join("spec").join(self.list.key()).join(self.index);
        for key in keys {
            path.push(*key);
        }
        path
    }
}

/// Adds a step to the path of an error, from the inside.
fn at(segment: impl Into<Segment>) -> impl FnOnce(Malformed) -> Malformed {
    let segment = segment.into();
    move |mut malformed| {
        malformed.path.push(segment);
        malformed
    }
}

fn typed<'v, T>(
    value: Option<&'v Value>,
    expected: &'static str,
    read: impl FnOnce(&'v Value) -> Option<T>,
) -> Result<Option<T>, Malformed> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    match read(value) {
        Some(read) => Ok(Some(read)),
        None => Err(Malformed { path: Path::root(), expected, found: value.type_name() }),
    }
}

fn map(value: Option<&Value>) -> Result<Option<&Map>, Malformed> {
    typed(value, "a map", Value::as_map)
}

fn list(value: Option<&Value>) -> Result<Option<&List>, Malformed> {
    typed(value, "a list", Value::as_list)
}

fn text(value: Option<&Value>) -> Result<Option<&str>, Malformed> {
    typed(value, "a string", Value::as_str)
}

fn boolean(value: Option<&Value>) -> Result<Option<bool>, Malformed> {
    typed(value, "a boolean", Value::as_bool)
}

fn integer(value: Option<&Value>) -> Result<Option<i64>, Malformed> {
    typed(value, "an integer", Value::as_i64)
}

fn each<'v, T>(
    entries: Option<&'v List>,
    mut read: impl FnMut(&'v Value) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let entries = entries.into_iter().flat_map(|entries| entries.iter());
    entries.enumerate().map(|(index, entry)| read(entry).map_err(at(index))).collect()
}
