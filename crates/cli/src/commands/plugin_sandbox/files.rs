//! The files that a plugin can open, by Landlock, and the processes outside that it cannot send signals to.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

/// The newest rights that are held; kernels that lack some hold the others.
const RIGHTS: ABI = ABI::V9;

/// What a plugin may do in its directories: neither make devices, which lead to whole disks, nor use their commands, nor
/// connect to sockets.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(RIGHTS)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix)
}

pub(super) fn is_supported() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1));
    ruleset.and_then(Ruleset::create).is_ok()
}

pub(super) fn holds_signals() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::from_all(ABI::V6));
    ruleset.and_then(Ruleset::create).is_ok()
}

/// Opens a path without following links, if there is one: putting a link there now gains nothing.
pub(super) fn open(path: &Path) -> io::Result<Option<OwnedFd>> {
    // Always a link, to what the plugin is about to be, by the number that it has there.
    let own = Path::new("/proc/self");
    let own = if path == own {
        own.read_link().map(|number| Path::new("/proc").join(number))
    } else {
        Ok(path.into())
    };
    let Ok(path) = own else { return Ok(None) };
    let parts = path.components();
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut place: Option<OwnedFd> = None;
    for part in parts {
        let opened = match (&place, part) {
            (None, Component::RootDir) => openat(AT_FDCWD, "/", flags, Mode::empty()),
            (Some(directory), Component::Normal(name)) => {
                openat(directory, name, flags, Mode::empty())
            }
            // It led nowhere when links were followed.
            _ => return Ok(None),
        };
        let is_link = |opened: &OwnedFd| {
            fstat(opened).map(|about| {
                SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK
            })
        };
        match opened.and_then(|opened| is_link(&opened).map(|is_link| (opened, is_link))) {
            Ok((opened, false)) => place = Some(opened),
            Ok((_, true)) => {
                let why = format!("{}: a link is on the way", path.display());
                return Err(io::Error::other(why));
            }
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => return Ok(None),
            Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
        }
    }
    Ok(place)
}

/// Leaves nothing but these files to open.
pub(super) fn restrict(read: &[PathBuf], write: &[PathBuf]) -> Result<(), String> {
    let failed = |error: RulesetError| format!("cannot give up rights to files: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(RIGHTS)))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for (paths, rights) in [(read, AccessFs::from_read(RIGHTS)), (write, writing())] {
        for path in paths {
            let opened = open(path).map_err(|error| format!("cannot open {error}"))?;
            if let Some(opened) = opened {
                ruleset = ruleset.add_rule(PathBeneath::new(opened, rights)).map_err(failed)?;
            }
        }
    }
    match ruleset.restrict_self().map_err(failed)?.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("Landlock is missing".to_owned()),
    }
}
