//! Opening files that others may put something else in the place of, at any moment.

use std::fs::File;
use std::io;

/// Opens what a path leads to, without waiting for the other end of a pipe.
pub(super) fn through_links(path: &str) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, waiting_for_nobody().bits());
    options.read(true).open(path)
}

#[cfg(not(unix))]
pub(super) fn without_links(path: &str) -> io::Result<File> {
    through_links(path)
}

#[cfg(unix)]
use nix::fcntl::OFlag;

#[cfg(unix)]
fn waiting_for_nobody() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY
}

/// The same for an absolute path without links. One that is there is an error.
#[cfg(target_os = "linux")]
pub(super) fn without_links(path: &str) -> io::Result<File> {
    use nix::errno::Errno;
    use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new().flags(waiting_for_nobody()).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        // Older kernels, and containers that know no newer ones.
        Err(Errno::ENOSYS | Errno::EPERM) => step_by_step(path),
        opened => opened.map(File::from).map_err(io::Error::from),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn without_links(path: &str) -> io::Result<File> {
    step_by_step(path)
}

/// Opens each directory on the way.
#[cfg(unix)]
fn step_by_step(path: &str) -> io::Result<File> {
    use nix::fcntl::{open, openat};
    use nix::sys::stat::Mode;
    let (directories, file) = path.rsplit_once('/').unwrap_or(("", path));
    let no_link = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut place = open("/", no_link | OFlag::O_DIRECTORY, Mode::empty())?;
    for directory in directories.split('/').filter(|part| !part.is_empty()) {
        #[cfg(target_os = "linux")]
        let flags = no_link | OFlag::O_DIRECTORY | OFlag::O_PATH;
        #[cfg(not(target_os = "linux"))]
        let flags = no_link | OFlag::O_DIRECTORY;
        place = openat(&place, directory, flags, Mode::empty())?;
    }
    Ok(openat(&place, file, no_link | waiting_for_nobody(), Mode::empty())?.into())
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_on_the_way_leads_nowhere() {
        let directory = std::env::temp_dir().join(format!("kiln-opened-{}", std::process::id()));
        let directory = {
            std::fs::create_dir_all(directory.join("a/b")).unwrap();
            directory.canonicalize().unwrap()
        };
        std::fs::write(directory.join("a/b/file"), "inside").unwrap();
        symlink("a", directory.join("way")).unwrap();
        symlink("file", directory.join("a/b/link")).unwrap();
        let text = |opened: io::Result<File>| {
            let mut text = String::new();
            opened.and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        let named = |path: &str| directory.join(path).display().to_string();
        type Opens = fn(&str) -> io::Result<File>;
        for opens in [without_links as Opens, step_by_step as Opens] {
            assert_eq!(text(opens(&named("a/b/file"))).unwrap(), "inside");
            for path in ["way/b/file", "a/b/link", "a/b/gone", "gone/file"] {
                assert!(text(opens(&named(path))).is_err(), "{path}");
            }
        }
        for path in ["way/b/file", "a/b/link"] {
            assert_eq!(text(through_links(&named(path))).unwrap(), "inside");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
