//! What a build has under way on this machine, processes and temporary directories, and how to put an end to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::processes::{self, Seen};

/// A process that is asked to end gets this long before it is made to.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// A runtime that is to kill a container gets this long.
const KILLING: Duration = Duration::from_secs(10);
/// What a process starts while it is killed is looked for so often.
const ROUNDS: usize = 20;
/// What was killed is gone after this long at most: a machine that is busy takes its time.
const GONE: Duration = Duration::from_secs(5);

/// What is under way; copies stand for the same.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<RunningShared>);

#[derive(Debug, Default)]
struct RunningShared {
    state: Mutex<RunningState>,
    /// Told when a process has ended.
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct RunningState {
    is_over: bool,
    directories: BTreeSet<PathBuf>,
    processes: BTreeMap<u32, Stoppable>,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, RunningState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all processes with whatever they started, and deletes all temporary directories. Nothing new is begun
    /// afterwards.
    pub fn end(&self) {
        let processes: Vec<Stoppable> = {
            let mut state = self.state();
            state.is_over = true;
            state.processes.values().cloned().collect()
        };
        thread::scope(|scope| {
            for process in &processes {
                scope.spawn(|| process.stop(|until| self.is_gone(process.pid, until)));
            }
        });
        for directory in std::mem::take(&mut self.state().directories) {
            // Another process may have cleaned up.
            let _ = std::fs::remove_dir_all(directory);
        }
    }

    /// Whether it was put an end to.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Waits until a process has ended, but not longer than that.
    fn is_gone(&self, pid: u32, until: Instant) -> bool {
        let mut state = self.state();
        while state.processes.contains_key(&pid) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.0.fewer.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A new temporary directory.
    pub(super) fn directory(&self) -> io::Result<TemporaryDirectory> {
        let mut state = self.going()?;
        loop {
            let path = std::env::temp_dir().join(new_name());
            #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes to set"))]
            let mut directory = std::fs::DirBuilder::new();
            // Configurations may hold secrets.
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
            match directory.create(&path) {
                Ok(()) => {
                    state.directories.insert(path.clone());
                    return Ok(TemporaryDirectory { path, running: self.clone() });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a process. While that lasts stopping everything waits.
    pub(super) fn start(
        &self,
        command: &mut Command,
        kind: ProcessKind,
        name: &str,
    ) -> io::Result<(Child, Started)> {
        command.env(processes::MARK, name);
        // Only what may have to be stopped leaves the group that the terminal's signals go to.
        #[cfg(unix)]
        if kind.has_a_group() && !kind.makes_its_group() {
            std::os::unix::process::CommandExt::process_group(command, 0);
        }
        let mut nap = Duration::from_millis(1);
        loop {
            let mut state = self.going()?;
            match command.spawn() {
                Ok(child) => {
                    let process = Stoppable { pid: child.id(), kind, name: name.to_owned() };
                    state.processes.insert(process.pid, process.clone());
                    drop(state);
                    return Ok((child, Started { process, running: self.clone() }));
                }
                // A script that was just written may still be open in another thread's child.
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy
                        && nap < Duration::from_millis(200) =>
                {
                    drop(state);
                    thread::sleep(nap);
                    nap *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn going(&self) -> io::Result<MutexGuard<'_, RunningState>> {
        let state = self.state();
        if state.is_over { Err(io::ErrorKind::Interrupted.into()) } else { Ok(state) }
    }
}

/// A name for a run or a directory that is unique on this machine.
pub(super) fn new_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("kiln-{}-{count}", std::process::id())
}

/// A directory that goes away with its owner.
#[derive(Debug)]
pub(super) struct TemporaryDirectory {
    path: PathBuf,
    running: Running,
}

impl TemporaryDirectory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // Another process may have cleaned up.
        let _ = std::fs::remove_dir_all(&self.path);
        self.running.state().directories.remove(&self.path);
    }
}

/// What a process is, which says how it is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessKind {
    /// The user's own tool, in the group of this process.
    Tool,
    /// `git`, which ends with what it started when it takes too long.
    Git,
    /// A plugin, with a group of its own.
    Plugin {
        /// Whether it makes a session of its own, and the group with it. The leader of a group could not.
        leads_session: bool,
    },
    /// What runs a container that has the name of the run.
    Container {
        /// The program, which also kills containers.
        runtime: String,
    },
}

#[cfg(unix)]
impl ProcessKind {
    /// Whether it leads a group of processes of its own.
    fn has_a_group(&self) -> bool {
        match self {
            ProcessKind::Tool => false,
            // Who is in another group cannot ask at the terminal for the passphrase of a key, so where children are
            // found without a group it gets none.
            ProcessKind::Git => !cfg!(target_os = "linux"),
            ProcessKind::Plugin { .. } | ProcessKind::Container { .. } => true,
        }
    }

    /// Whether it makes that group itself, once it runs.
    fn makes_its_group(&self) -> bool {
        *self == ProcessKind::Plugin { leads_session: true }
    }
}

/// A process that is known as running for as long as this lives.
pub(super) struct Started {
    process: Stoppable,
    running: Running,
}

impl Started {
    /// Ends it and whatever it started; `has_ended` waits for the process itself.
    pub(super) fn stop(&self, has_ended: impl FnMut(Instant) -> bool) {
        self.process.stop(has_ended);
    }

    /// Tells the sandbox that what the plugin left running has nothing to say any more, and is to end with it. To any other process
    /// who does not wait for this signal, it means nothing.
    pub(super) fn tell_output_ended(&self) {
        #[cfg(unix)]
        if self.process.kind.makes_its_group()
            && let Ok(pid) = i32::try_from(self.process.pid)
        {
            use nix::sys::signal::{Signal, kill};
            // It may have ended by itself.
            let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGCONT);
        }
    }

    pub(super) fn kind(&self) -> &ProcessKind {
        &self.process.kind
    }

    /// Ends what it left in its group, once it has ended itself.
    pub(super) fn sweep(&self) {
        match self.process.kind {
            // What they leave running is theirs to decide.
            ProcessKind::Tool | ProcessKind::Git => {}
            ProcessKind::Plugin { .. } | ProcessKind::Container { .. } => {
                self.process.signal(Signal::Kill);
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.running.state().processes.remove(&self.process.pid);
        self.running.0.fewer.notify_all();
    }
}

#[derive(Clone, Debug)]
struct Stoppable {
    pid: u32,
    kind: ProcessKind,
    name: String,
}

impl Stoppable {
    fn stop(&self, mut has_ended: impl FnMut(Instant) -> bool) {
        // Who its children are is known only while it is there.
        let before = self.others();
        self.signal(Signal::Terminate);
        has_ended(Instant::now() + GRACE);
        if let ProcessKind::Container { runtime } = &self.kind {
            kill_container(runtime, &self.name);
        }
        let mut killed = before;
        killed.iter().for_each(|seen| seen.kill());
        for _ in 0..ROUNDS {
            let others = self.others();
            if others.is_empty() {
                break;
            }
            others.iter().for_each(|seen| seen.kill());
            killed.extend(others);
        }
        self.signal(Signal::Kill);
        has_ended(Instant::now() + GRACE);
        let patience = Instant::now() + GONE;
        while killed.iter().any(|seen| seen.is_there()) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn others(&self) -> Vec<Seen> {
        match self.kind {
            // What they leave running is theirs to decide.
            ProcessKind::Tool => Vec::new(),
            ProcessKind::Git | ProcessKind::Plugin { .. } | ProcessKind::Container { .. } => {
                processes::started_by(self.pid, &self.name)
            }
        }
    }

    /// Sends a signal to a process and all its children that did not leave its group.
    #[cfg(unix)]
    fn signal(&self, signal: Signal) {
        use nix::sys::signal::{Signal as Unix, kill, killpg};
        let Ok(pid) = i32::try_from(self.pid) else { return };
        let pid = nix::unistd::Pid::from_raw(pid);
        let signal = match signal {
            Signal::Terminate => Unix::SIGTERM,
            Signal::Kill => Unix::SIGKILL,
        };
        let sent = if self.kind.has_a_group() { killpg(pid, signal) } else { kill(pid, signal) };
        // One that has just been started may not have made its group yet.
        if sent.is_err() && signal == Unix::SIGTERM && self.kind.makes_its_group() {
            // There may be no process left.
            let _ = kill(pid, signal);
        }
    }

    #[cfg(not(unix))]
    fn signal(&self, _: Signal) {}
}

#[derive(Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

/// Has a container killed; that there is none any more is not a failure.
fn kill_container(runtime: &str, name: &str) {
    let killing = Command::new(runtime)
        .args(["kill", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut killing) = killing else { return };
    let deadline = Instant::now() + KILLING;
    while matches!(killing.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = killing.kill();
            let _ = killing.wait();
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
