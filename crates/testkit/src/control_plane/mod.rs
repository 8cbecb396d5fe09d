//! A real Kubernetes control plane for tests: etcd, kube-apiserver and kube-controller-manager as
//! processes on loopback, with RBAC on and no nodes.
//!
//! [`ControlPlane::start`] takes a few seconds and about half a gigabyte, so share one between the cases of a
//! test file. Tests ask [`ControlPlane::for_test`], which says loudly why a test is skipped when the programs
//! cannot be had. Everything ends with the value, also when the test process is killed.
//!
//! ```no_run
//! use kiln_testkit::control_plane::ControlPlane;
//!
//! let Some(cluster) = ControlPlane::for_test() else { return };
//! cluster.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n").unwrap();
//! assert!(cluster.kubectl(&["get", "namespace", "shop"]).is_ok());
//! ```

mod binaries;
mod keys;
pub mod kyverno;
mod ports;
mod process;

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use binaries::{Binaries, chainsaw, helm, kubeconform, python_packages};
pub use ports::free_port;
use ports::is_free;
pub use process::Watched;

use keys::Keys;
use process::Removed;

/// How long one server may take to answer. A start takes four seconds; a busy machine gets more.
const PATIENCE: Duration = Duration::from_secs(90);

/// What to do where the programs of a control plane are missing.
pub const HOW_TO_GET_IT: &str = "install Go 1.26 or newer, with which they are built, or name a directory that has them in \
     KUBEBUILDER_ASSETS";

/// Controllers that the tests need. Names alone turn all others off.
const CONTROLLERS: &[&str] = &[
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "disruption-controller",
    "job-controller",
    "cronjob-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller",
];

/// Why there is no control plane.
#[derive(Debug)]
pub enum Error {
    /// The programs are not there and cannot be built; a test that needs them is skipped.
    Unavailable(String),
    /// They are there, but did not do what they should.
    Failed(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unavailable(why) | Error::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Failed(format!("cannot prepare the control plane: {error}"))
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in order: the servers before their directory.
    processes: Mutex<Vec<Server>>,
    _removed: Removed,
    binaries: Binaries,
    port: u16,
    directory: tempfile::TempDir,
}

/// One of the servers, and how it was started.
#[derive(Debug)]
struct Server {
    name: &'static str,
    args: Vec<String>,
    process: Option<Watched>,
}

impl ControlPlane {
    /// Starts one, or says on the real standard error why the test is skipped.
    ///
    /// # Panics
    /// When the programs are there but do not start.
    pub fn for_test() -> Option<Self> {
        match Self::start() {
            Ok(cluster) => Some(cluster),
            Err(Error::Unavailable(why)) => {
                crate::skip(&format!("there is no control plane: {why}"), HOW_TO_GET_IT);
                None
            }
            Err(Error::Failed(why)) => panic!("the control plane does not start: {why}"),
        }
    }

    /// Starts etcd, kube-apiserver and kube-controller-manager, and waits until the namespace `default` is usable.
    pub fn start() -> Result<Self, Error> {
        Self::started(true)
    }

    /// Starts etcd and kube-apiserver alone: whatever is stored stays as clients leave it.
    pub fn start_without_controllers() -> Result<Self, Error> {
        Self::started(false)
    }

    fn started(with_controllers: bool) -> Result<Self, Error> {
        let binaries = Binaries::find()?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Self::attempt(binaries.clone(), with_controllers) {
                // Another process may have taken a port between our look and the server's.
                Err(Error::Failed(why))
                    if attempts < 3 && why.contains("address already in use") => {}
                outcome => return outcome,
            }
        }
    }

    /// `kiln up` in the place of the servers: with RBAC, without an engine of its own.
    pub fn sandbox(kiln: &Path) -> Result<Self, Error> {
        let binaries = Binaries::find()?;
        let directory = temporary_directory()?;
        let port = free_port()?;
        let cluster = ControlPlane {
            processes: Mutex::default(),
            _removed: Removed::spawn(directory.path())?,
            binaries,
            port,
            directory,
        };
        let mut command = Command::new(kiln);
        command
            .args(["up", "--bare", "--authorization=rbac", &format!("--listen=127.0.0.1:{port}")])
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .current_dir(cluster.directory.path());
        let process = Watched::spawn(&command, &cluster.path("sandbox.log"))?;
        cluster.servers().push(Server {
            name: "sandbox",
            args: Vec::new(),
            process: Some(process),
        });
        // Until it accepts clients, kubectl would only keep the processor busy.
        let began = Instant::now();
        while !(cluster.kubeconfig().exists()
            && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
            && began.elapsed() < Duration::from_secs(5)
        {
            thread::sleep(Duration::from_millis(2));
        }
        cluster.wait("sandbox", || cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok())?;
        let kubeconfig = std::fs::read_to_string(cluster.kubeconfig())?;
        let authority = kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
        std::fs::write(cluster.path("ca.crt"), keys::decoded(authority.unwrap_or_default()))?;
        Ok(cluster)
    }

    fn attempt(binaries: Binaries, with_controllers: bool) -> Result<Self, Error> {
        let directory = temporary_directory()?;
        let (clients, peers, port, controllers) =
            (free_port()?, free_port()?, free_port()?, free_port()?);
        let keys = Keys::write(directory.path()).map_err(Error::Failed)?;
        let cluster = ControlPlane {
            processes: Mutex::default(),
            _removed: Removed::spawn(directory.path())?,
            binaries,
            port,
            directory,
        };
        cluster.write_kubeconfig("admin", &keys.admin)?;
        cluster.write_kubeconfig("controllers", &keys.controllers)?;

        let etcd = format!("http://127.0.0.1:{clients}");
        cluster.run(
            "etcd",
            &[
                format!("--data-dir={}", cluster.path("etcd").display()),
                "--unsafe-no-fsync=true".to_owned(),
                "--log-level=warn".to_owned(),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
            ],
        )?;
        cluster.wait("etcd", || TcpStream::connect((Ipv4Addr::LOCALHOST, clients)).is_ok())?;
        let file = |name: &str| cluster.path(name).display().to_string();
        let server = vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", file("apiserver")),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-issuer=https://127.0.0.1:{port}"),
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!("--service-account-signing-key-file={}", file("accounts.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // As kubeadm starts it; otherwise no Pod may be privileged, whatever policies say.
            "--allow-privileged=true".to_owned(),
            // The default one looks for a network interface and complains about loopback.
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        let manager = vec![
            format!("--kubeconfig={}", file("controllers.kubeconfig")),
            // Without it the controllers lack rights, and policies would see other user names than in a real cluster.
            "--use-service-account-credentials=true".to_owned(),
            format!("--controllers={}", CONTROLLERS.join(",")),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={controllers}"),
            format!("--cert-dir={}", file("manager")),
            format!("--cluster-signing-cert-file={}", file("ca.crt")),
            format!("--cluster-signing-key-file={}", file("ca.key")),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
            "--concurrent-namespace-syncs=20".to_owned(),
        ];
        cluster.run("kube-apiserver", &server)?;
        cluster.wait("kube-apiserver", || cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok())?;
        if !with_controllers {
            return Ok(cluster);
        }
        cluster.run("kube-controller-manager", &manager)?;
        cluster.wait("kube-controller-manager", || {
            cluster.kubectl(&["get", "serviceaccount", "default", "--namespace=default"]).is_ok()
        })?;
        Ok(cluster)
    }

    fn run(&self, name: &'static str, args: &[String]) -> Result<(), Error> {
        let process = Some(self.spawn(name, args)?);
        self.servers().push(Server { name, args: args.to_vec(), process });
        Ok(())
    }

    fn spawn(&self, name: &str, args: &[String]) -> Result<Watched, Error> {
        let mut command = Command::new(self.binaries.path(name));
        command.args(args).current_dir(self.directory.path());
        Ok(Watched::spawn(&command, &self.path(&format!("{name}.log")))?)
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the API server and starts it again on the same data, and waits until it answers.
    pub fn restart_server(&self) -> Result<(), Error> {
        let name = "kube-apiserver";
        for server in self.servers().iter_mut().filter(|server| server.name == name) {
            drop(server.process.take());
            // It is killed, and keeps its port until the system has cleared it away.
            let begin = Instant::now();
            while !is_free(self.port) && begin.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(10));
            }
            server.process = Some(self.spawn(name, &server.args)?);
        }
        self.wait(name, || self.kubectl(&["get", "--raw", "/readyz"]).is_ok())
    }

    /// Waits until something is true, or the newest server has ended.
    fn wait(&self, name: &str, up: impl Fn() -> bool) -> Result<(), Error> {
        let begin = Instant::now();
        while !up() {
            let servers = self.servers();
            let server = servers.iter().find(|server| server.name == name);
            let ended = server.is_some_and(|s| s.process.as_ref().is_some_and(Watched::has_ended));
            drop(servers);
            if ended || begin.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.path(&format!("{name}.log")));
                let log = log.unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(15)..].join("\n");
                let what = if ended { "has ended" } else { "does not answer" };
                return Err(Error::Failed(format!("{name} {what}; its last lines:\n{tail}")));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The address of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A directory that lives as long as the servers; their logs are in it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The kubeconfig of `kubernetes-admin`, a member of `system:masters`, with embedded keys.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path("admin.kubeconfig")
    }

    /// A kubeconfig with a token of a ServiceAccount, which must exist.
    pub fn kubeconfig_of_account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let token =
            self.kubectl(&["create", "token", name, "--namespace", namespace, "--duration=24h"])?;
        let file = format!("{namespace}.{name}");
        self.write_kubeconfig(&file, &format!("token: {}", token.trim()))?;
        Ok(self.path(&format!("{file}.kubeconfig")))
    }

    /// A kubeconfig of the administrator who acts as another user, who need not exist.
    pub fn kubeconfig_as(&self, user: &str) -> Result<PathBuf, Error> {
        let name = user.replace(':', ".");
        let admin = std::fs::read_to_string(self.kubeconfig())?;
        let path = self.path(&format!("{name}.kubeconfig"));
        std::fs::write(&path, format!("{admin}    as: {user}\n"))?;
        Ok(path)
    }

    /// The kubectl program.
    pub fn kubectl_path(&self) -> PathBuf {
        self.binaries.path("kubectl").to_owned()
    }

    /// Runs kubectl as the administrator and gives what it prints; the error holds what it prints on standard error.
    pub fn kubectl(&self, args: &[&str]) -> Result<String, Error> {
        self.kubectl_with_input(args, "")
    }

    /// Applies documents on the server's side.
    pub fn apply(&self, documents: &str) -> Result<String, Error> {
        self.kubectl_with_input(
            &["apply", "--server-side", "--force-conflicts", "--filename=-"],
            documents,
        )
    }

    /// Like [`Self::kubectl`], with standard input.
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String, Error> {
        let mut child = Command::new(self.binaries.path("kubectl"))
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.path("kubectl-cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.to_owned();
        // kubectl may print before it has read everything.
        let writer = thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        // Whether kubectl read all of its input shows in its exit code.
        let _ = writer.join();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Error::Failed(format!("kubectl {}: {}", args.join(" "), text(&output.stderr))))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write_kubeconfig(&self, name: &str, user: &str) -> Result<(), Error> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: kiln\n\
             clusters:\n- name: kiln\n  cluster:\n    server: {}\n    certificate-authority-data: {}\n\
             contexts:\n- name: kiln\n  context: {{cluster: kiln, user: {name}}}\n\
             users:\n- name: {name}\n  user:\n    {user}\n",
            self.url(),
            keys::encoded(&self.path("ca.crt"))?,
        );
        std::fs::write(self.path(&format!("{name}.kubeconfig")), text)?;
        Ok(())
    }
}

/// In memory where that is possible: it keeps times steady when others use the disk.
fn temporary_directory() -> io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("kiln-cluster-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())
}
