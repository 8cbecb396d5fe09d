//! `kiln plugin-sandbox`: gives up the right to touch any file but the ones that are named, then becomes the
//! plugin. `kiln build` starts it; nobody needs to type it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::exit::{CommandResult, Outcome};
use crate::ui::Ui;

/// The name of this command.
pub(crate) const NAME: &str = "plugin-sandbox";

/// Ends with this when there is no plugin to become. Not 127: that is a plugin's own answer.
const CANNOT_RUN: u8 = 126;

/// Run a program that can touch only some files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What it may read and execute
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,

    /// What it may also write
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    let why = confined::become_program(&args.read, &args.write, &args.command);
    let program = args.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    ui.status(&format!("cannot start {program}: {why}"));
    Ok(Outcome::Code(CANNOT_RUN))
}

/// Whether this system can do it.
pub(crate) fn is_supported() -> bool {
    confined::is_supported()
}

#[cfg(target_os = "linux")]
mod confined {
    use std::ffi::OsString;
    use std::io::ErrorKind;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;
    use std::time::Duration;

    use landlock::{
        ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
        RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
    };

    /// The newest rights that are asked for; kernels that lack some enforce the others.
    const RIGHTS: ABI = ABI::V5;

    fn ruleset(level: CompatLevel, rights: ABI) -> Result<RulesetCreated, RulesetError> {
        Ruleset::default()
            .set_compatibility(level)
            .handle_access(AccessFs::from_all(rights))?
            .create()
    }

    pub(super) fn is_supported() -> bool {
        ruleset(CompatLevel::HardRequirement, ABI::V1).is_ok()
    }

    fn restrict(read: &[PathBuf], write: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
        let status = ruleset(CompatLevel::BestEffort, RIGHTS)?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(RIGHTS)))?
            .add_rules(path_beneath_rules(write, AccessFs::from_all(RIGHTS)))?
            .restrict_self()?;
        Ok(status.ruleset)
    }

    /// Why it did not work; it does not return otherwise.
    pub(super) fn become_program(
        read: &[PathBuf],
        write: &[PathBuf],
        command: &[OsString],
    ) -> String {
        match restrict(read, write) {
            Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
            Ok(RulesetStatus::NotEnforced) => return "Landlock is missing".to_owned(),
            Err(error) => return format!("cannot give up rights: {error}"),
        }
        // A build that is killed takes its plugins along.
        let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        // Whatever leaves the plugin's session is still its child, and found when it is stopped.
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let Some((program, arguments)) = command.split_first() else {
            return "no program was named".to_owned();
        };
        let mut tries = 0;
        loop {
            let error = Command::new(program).args(arguments).exec();
            tries += 1;
            // Whoever wrote the plugin a moment ago may still hold it open.
            if error.kind() != ErrorKind::ExecutableFileBusy || tries > 20 {
                return error.to_string();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod confined {
    use std::ffi::OsString;
    use std::path::PathBuf;

    pub(super) fn is_supported() -> bool {
        false
    }

    pub(super) fn become_program(_: &[PathBuf], _: &[PathBuf], _: &[OsString]) -> String {
        "only Linux can keep it from files".to_owned()
    }
}
