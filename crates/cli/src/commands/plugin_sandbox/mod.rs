//! `kiln plugin-sandbox`: gives up the right to touch anything but what is named, then becomes the plugin. `kiln build`
//! starts it; users do not type it.
//!
//! In this order, because each step takes what the next would need from the steps after it: a session without a
//! terminal, no descriptors but the three streams, a view of the file system that is read-only but for the directories
//! of the plugin (`mounts.rs`), a world of processes that ends with the plugin (`processes.rs`), files (`files.rs`),
//! capabilities, system calls (`calls.rs`). What a kernel lacks is reported by `kiln build` beforehand; what it has must
//! work, or the plugin does not start.

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
mod calls;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod processes;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// The name of this command.
pub(crate) const NAME: &str = "plugin-sandbox";

/// Ends with this when there is no plugin to become. Not 127: that is a plugin's own answer.
const CANNOT_RUN: u8 = 126;

/// Run a program that can touch only some files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path that the program may read and execute
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,

    /// Path that the program may also write
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,

    /// Let it use the network
    #[arg(long)]
    network: bool,

    /// Which of the processes in the plugin's own world this is
    #[arg(long, hide = true, value_enum)]
    within: Option<Within>,

    /// Files elsewhere cannot be changed already
    #[arg(long, hide = true, requires = "within")]
    rest_is_read_only: bool,

    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Who is who in a world of processes of the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Within {
    /// Takes in orphans
    First,
    /// Becomes the plugin
    Plugin,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    let why = match confined::become_program(args) {
        Ok(code) => return Ok(CommandOutcome::Code(code)),
        Err(why) => why,
    };
    let program = args.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    ui.status(&format!("cannot start {program}: {why}"));
    Ok(CommandOutcome::Code(CANNOT_RUN))
}

/// From what this system cannot keep a plugin, as sentences; nothing where there is no sandbox at all.
pub(crate) fn not_held() -> Option<Vec<String>> {
    confined::not_held()
}

#[cfg(target_os = "linux")]
mod confined {
    use std::ffi::{OsStr, OsString};
    use std::io::{self, ErrorKind};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::Duration;

    use kiln_kustomize::local::CARRIED;
    use nix::sys::prctl;
    use nix::sys::signal::Signal;
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::{Args, Within, calls, files, mounts, processes};

    /// What the superuser keeps: it may work on files of others in its directories. Everything else is about the machine.
    const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
        .union(CapabilitySet::DAC_OVERRIDE)
        .union(CapabilitySet::FOWNER)
        .union(CapabilitySet::FSETID);

    pub(super) fn not_held() -> Option<Vec<String>> {
        let mut lacking = Vec::new();
        if !files::is_supported() {
            lacking.push("this system cannot keep plugins from files outside of their kustomization: Landlock is missing");
        }
        if !files::holds_signals() {
            lacking.push("this system cannot keep plugins from sending signals to your other processes: Landlock has that since Linux 6.12");
        }
        if !calls::is_supported() {
            lacking.push("this system cannot keep plugins from sockets, the network, and the modes and times of files: seccomp is missing");
        }
        Some(lacking.into_iter().map(str::to_owned).collect())
    }

    /// Becomes the plugin, or waits for it and tells how it ended.
    ///
    /// # Errors
    /// Why it did not work.
    pub(super) fn become_program(args: &Args) -> Result<u8, String> {
        let Some((program, arguments)) = args.command.split_first() else {
            return Err("no program was named".to_owned());
        };
        match args.within {
            None => {
                let view = enter(args)?;
                if view.has_processes {
                    return processes::lead(args, view.rest_is_read_only);
                }
                confine(args)?;
                // A build that is killed takes its plugins along. Forgotten when rights change, so not earlier.
                let _ = prctl::set_pdeathsig(Signal::SIGKILL);
                // Whatever leaves the plugin's session is still its child, and found when it is stopped.
                let _ = prctl::set_child_subreaper(true);
                refuse_calls(args, view.rest_is_read_only)?;
            }
            Some(Within::First) => return processes::be_first(args),
            Some(Within::Plugin) => {
                confine(args)?;
                refuse_calls(args, args.rest_is_read_only)?;
            }
        }
        let mut tries = 0;
        loop {
            let error = Command::new(program).args(arguments).env_clear().envs(variables()).exec();
            tries += 1;
            // The process that wrote the plugin a moment ago may still hold it open.
            if error.kind() != ErrorKind::ExecutableFileBusy || tries > 20 {
                return Err(error.to_string());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn failed(what: &'static str) -> impl Fn(io::Error) -> String {
        move |error| format!("cannot {what}: {error}")
    }

    /// Leaves the session and the view of the user who started the build.
    fn enter(args: &Args) -> Result<mounts::View, String> {
        nix::unistd::setsid().map_err(|error| failed("leave the terminal")(error.into()))?;
        close_what_was_inherited().map_err(failed("close what was inherited"))?;
        // Without it, changes of modes and times are refused everywhere, so it is not a failure.
        let view = mounts::enter_a_view_of_its_own(&args.write);
        // The directory of before lies below what is mounted now.
        std::env::current_dir()
            .and_then(std::env::set_current_dir)
            .map_err(failed("go to the directory of the kustomization"))?;
        Ok(view)
    }

    /// Gives up files and capabilities.
    fn confine(args: &Args) -> Result<(), String> {
        close_what_was_inherited().map_err(failed("close what was inherited"))?;
        if files::is_supported() {
            files::restrict(&args.read, &args.write)?;
        }
        give_up_capabilities().map_err(failed("give up capabilities"))
    }

    fn refuse_calls(args: &Args, rest_is_read_only: bool) -> Result<(), String> {
        if calls::is_supported() {
            calls::refuse(args.network, rest_is_read_only)?;
        }
        Ok(())
    }

    /// Plugins do not inherit open files of the build.
    fn close_what_was_inherited() -> io::Result<()> {
        let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|descriptor| *descriptor > 2)
            .collect();
        for descriptor in open {
            // The one that listed them is closed already.
            let _ = nix::unistd::close(descriptor);
        }
        Ok(())
    }

    fn give_up_capabilities() -> io::Result<()> {
        let CapabilitySets { permitted, .. } = capabilities(None)?;
        let kept = permitted.intersection(CAPABILITIES);
        // Starting the plugin brings none back, because nothing here may gain privileges any more.
        rustix::thread::set_no_new_privs(true)?;
        let inheritable = CapabilitySet::empty();
        Ok(set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable },
        )?)
    }

    /// The variables of the plugin, and the mark by which its processes are known.
    fn variables() -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().map(|(name, value)| {
            match name.as_bytes().strip_prefix(CARRIED.as_bytes()) {
                Some(rest) => (OsStr::from_bytes(rest).to_owned(), value),
                None => (name, value),
            }
        })
    }
}

/// Architectures without filters.
#[cfg(all(
    target_os = "linux",
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))
))]
mod calls {
    pub(super) fn is_supported() -> bool {
        false
    }

    pub(super) fn refuse(_network: bool, _rest_is_read_only: bool) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod confined {
    pub(super) fn not_held() -> Option<Vec<String>> {
        None
    }

    pub(super) fn become_program(_: &super::Args) -> Result<u8, String> {
        Err("only Linux can keep it from files".to_owned())
    }
}
