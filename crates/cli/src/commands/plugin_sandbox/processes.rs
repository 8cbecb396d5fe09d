//! A world of processes for the plugin alone. The kernel ends a PID namespace with its first process, so everything that
//! the plugin started ends with it, however it hides.
//!
//! Three processes: the outer one, for which `kiln build` waits, passes on how the plugin ended; the first inside takes
//! in orphans; the third becomes the plugin. The first dies with the outer one, which dies with the build.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, pipe2};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};
use signal_hook::consts::{SIGCONT, SIGTERM};

use super::{Args, NAME, Within};

/// Waiting is over after at most this long once there is a reason.
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// How the plugin ended.
enum End {
    Code(u8),
    Signal(i32),
}

/// Has the plugin run inside, and ends as it ended.
///
/// # Errors
/// When nothing can be started inside.
pub(super) fn lead(args: &Args, rest_is_read_only: bool) -> Result<u8, String> {
    let failed = |error: io::Error| format!("cannot start a process of its own: {error}");
    // A build that is killed takes its plugins along. Forgotten when rights change, so not earlier.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    keep_the_right_to_mount();
    // The plugin is asked to end by the same signal, and its end is waited for.
    let asked_to_end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, asked_to_end).map_err(failed)?;
    let output_ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGCONT, Arc::clone(&output_ended)).map_err(failed)?;

    let (reports, report) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
    fcntl(report.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))
        .map_err(|error| failed(error.into()))?;
    let mut command = again(args, Within::First, rest_is_read_only);
    let mut first = command.env(REPORT, report.as_raw_fd().to_string()).spawn().map_err(failed)?;
    drop(report);
    let_go_of_the_streams();

    let mut lines = BufReader::new(File::from(reports)).lines().map_while(Result::ok);
    let end = lines.find_map(|line| read(&line));
    // What the plugin left running may still write; the build says when none does.
    let mut nap = Duration::from_micros(50);
    while end.is_some() && !output_ended.load(Ordering::Relaxed) && !has_ended(&mut first) {
        thread::sleep(nap);
        nap = (nap * 2).min(LONGEST_NAP);
    }
    if end.is_some() {
        // It may have ended by itself.
        let _ = first.kill();
    }
    // When it is gone, everything inside is.
    let status = first.wait().map_err(failed)?;
    match end.or_else(|| end_of(status)) {
        Some(End::Code(code)) => Ok(code),
        Some(End::Signal(signal)) => {
            // The image of this process says nothing about the plugin.
            let _ = prctl::set_dumpable(false);
            // It returns for none that ends a process.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
        None => Err("its exit status is unknown".to_owned()),
    }
}

/// Names the descriptor for the report to the first process. Variables of the plugin have another beginning.
const REPORT: &str = "KILN_REPORT";

/// Starts the plugin, reaps orphaned processes, and reports how the plugin ended.
///
/// # Errors
/// When the plugin cannot be started.
pub(super) fn be_first(args: &Args) -> Result<u8, String> {
    let failed = |error: io::Error| format!("cannot start a process of its own: {error}");
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let report = std::env::var(REPORT).ok().and_then(|text| text.parse::<i32>().ok());
    let report = report.ok_or_else(|| "only Kiln itself can start this".to_owned())?;
    let mut reports =
        OpenOptions::new().write(true).open(format!("/proc/self/fd/{report}")).map_err(failed)?;
    nix::unistd::close(report).map_err(|error| failed(error.into()))?;
    // A parent that died before could not end this process.
    writeln!(reports).map_err(failed)?;
    // Without it, what the kernel says of processes is found under their numbers outside.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    let _ = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);

    let mut command = again(args, Within::Plugin, args.rest_is_read_only);
    let plugin = command.env_remove(REPORT).spawn().map_err(failed)?;
    let_go_of_the_streams();
    let plugin = i32::try_from(plugin.id()).unwrap_or_default();
    loop {
        let ended = match wait() {
            Ok(WaitStatus::Exited(pid, code)) => (pid, format!("code {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("signal {}", signal as i32)),
            // No process is left.
            Err(Errno::ECHILD) => return Ok(0),
            Ok(_) | Err(_) => continue,
        };
        if ended.0.as_raw() == plugin {
            writeln!(reports, "{}", ended.1).map_err(failed)?;
        }
    }
}

/// This program again, for the next of the three.
fn again(args: &Args, within: Within, rest_is_read_only: bool) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let who = match within {
        Within::First => "first",
        Within::Plugin => "plugin",
    };
    command.args([NAME, "--within", who]);
    for (option, paths) in [("--read", &args.read), ("--write", &args.write)] {
        for path in paths {
            command.arg(option).arg(path);
        }
    }
    for (option, is_on) in [("--network", args.network), ("--rest-is-read-only", rest_is_read_only)]
    {
        if is_on {
            command.arg(option);
        }
    }
    command.arg("--").args(&args.command);
    command
}

fn read(line: &str) -> Option<End> {
    let (what, number) = line.split_once(' ')?;
    match what {
        "code" => number.parse().ok().map(End::Code),
        _ => number.parse().ok().map(End::Signal),
    }
}

fn end_of(status: std::process::ExitStatus) -> Option<End> {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).map(End::Code);
    code.or_else(|| status.signal().map(End::Signal))
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// The reader of the plugin's output sees its end only if no other process can write.
fn let_go_of_the_streams() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

/// Who is not a superuser loses all rights in the namespaces when another program begins, but for those of this list. The
/// plugin gets none.
fn keep_the_right_to_mount() {
    let kept = CapabilitySet::SYS_ADMIN;
    // Where it does not work, `/proc` stays as it is.
    let _ = capabilities(None).and_then(|sets| {
        set_capabilities(None, CapabilitySets { inheritable: sets.inheritable | kept, ..sets })?;
        configure_capability_in_ambient_set(kept, true)
    });
}
