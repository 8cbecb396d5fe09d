//! A view of the file system in which only the directories of the plugin can be changed. Landlock does not hold modes,
//! owners, times and attributes of files; a mount that is read-only does. And, with it, the namespace for the plugin's
//! processes.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getgid, getuid};

use super::files;

/// What the system let this user have. In containers, for instance, it may be nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// Whether only the directories of the plugin can be changed.
    pub(super) rest_is_read_only: bool,
    /// Whether what is started next is the first process of a namespace. Nothing else can be started here then.
    pub(super) has_processes: bool,
}

/// Makes everything read-only but these, and a namespace for processes. What fails on the way opens nothing.
pub(super) fn enter_a_view_of_its_own(writable: &[PathBuf]) -> View {
    let who = (getuid(), getgid());
    let Ok((has_processes, has_names)) = unshare_all() else { return View::default() };
    let named = if has_names { Ok(()) } else { keep_names(who) };
    let made = named.and_then(|()| make_rest_read_only(writable));
    View { rest_is_read_only: made.is_ok(), has_processes }
}

fn make_rest_read_only(writable: &[PathBuf]) -> io::Result<()> {
    // Devices can be written to wherever they are.
    let writable: Vec<&PathBuf> = writable.iter().filter(|path| !is_device(path)).collect();
    change("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    for path in &writable {
        if let Some(opened) = files::open(path)? {
            let place = format!("/proc/self/fd/{}", opened.as_raw_fd());
            mount(
                Some(place.as_str()),
                place.as_str(),
                None::<&str>,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                None::<&str>,
            )?;
        }
    }
    for Mounted { place, flags } in mounted(&std::fs::read("/proc/self/mountinfo")?) {
        let is_writable = writable.iter().any(|directory| place.starts_with(directory));
        if is_writable || flags.contains(MsFlags::MS_RDONLY) {
            continue;
        }
        let flags = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        match change(&place, flags) {
            // It cannot be reached: it lies below another, or in a directory that is closed to this user.
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL | Errno::EACCES) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_device(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_char_device())
}

fn change(place: impl AsRef<Path>, flags: MsFlags) -> Result<(), Errno> {
    mount(None::<&str>, place.as_ref(), None::<&str>, flags, None::<&str>)
}

/// The superuser of the machine just may; others can where they are let be superusers of nothing but their own view.
/// Says whether that view has its own processes, and whether users have names in it.
fn unshare_all() -> io::Result<(bool, bool)> {
    let mounts = CloneFlags::CLONE_NEWNS;
    for (view, has_names) in [(mounts, true), (mounts | CloneFlags::CLONE_NEWUSER, false)] {
        for (processes, has_processes) in
            [(CloneFlags::CLONE_NEWPID, true), (CloneFlags::empty(), false)]
        {
            if unshare(view | processes).is_ok() {
                return Ok((has_processes, has_names));
            }
        }
    }
    Err(io::Error::last_os_error())
}

/// In a namespace of users, this one is who they were.
fn keep_names((user, group): (Uid, Gid)) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Something that is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    place: PathBuf,
    flags: MsFlags,
}

/// Reads the kernel's list: the fifth field of a line is the place, the sixth its options.
fn mounted(list: &[u8]) -> Vec<Mounted> {
    list.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(4);
            let place = PathBuf::from(OsString::from_vec(unescaped(fields.next()?)));
            let options = fields.next()?.split(|byte| *byte == b',');
            Some(Mounted { place, flags: options.map(flag).collect() })
        })
        .collect()
}

/// An option of a mount. Those of before must stay, or who is not a superuser of the machine may not change it.
fn flag(option: &[u8]) -> MsFlags {
    match option {
        b"ro" => MsFlags::MS_RDONLY,
        b"nosuid" => MsFlags::MS_NOSUID,
        b"nodev" => MsFlags::MS_NODEV,
        b"noexec" => MsFlags::MS_NOEXEC,
        b"noatime" => MsFlags::MS_NOATIME,
        b"nodiratime" => MsFlags::MS_NODIRATIME,
        b"relatime" => MsFlags::MS_RELATIME,
        b"nosymfollow" => MsFlags::from_bits_retain(256),
        _ => MsFlags::empty(),
    }
}

/// Blanks and the like are written as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, more)) = rest.split_first() {
        let digits =
            more.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) if *first == b'\\' => {
                plain.push(digits.iter().fold(0, |sum: u8, digit| (sum << 3) | (digit - b'0')));
                rest = &more[3..];
            }
            _ => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_mounts_is_read() {
        let list =
            b"36 35 98:0 /root /mnt/a\\040b\\134 rw,nosuid,relatime master:1 - ext4 /dev/root rw\n\
                     37 35 0:5 / /proc ro,noexec,strange - proc proc rw\n\nshort line\n";
        let wanted = [
            ("/mnt/a b\\", MsFlags::MS_NOSUID | MsFlags::MS_RELATIME),
            ("/proc", MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC),
        ]
        .map(|(place, flags)| Mounted { place: place.into(), flags });
        assert_eq!(mounted(list), wanted);
    }
}
