//! The kubeconfig on disk, for this user alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use kiln_diagnostic::Diagnostic;
use kiln_sandbox::KUBECONFIG_HEADER;

use crate::input::cannot;

/// Where the kubeconfig goes, from the root.
pub(super) fn place(
    asked: Option<&Path>,
    data: Option<&Path>,
    directory: &Path,
) -> Result<PathBuf, Diagnostic> {
    let path = match (asked, data) {
        (Some(path), _) => path.to_path_buf(),
        (None, Some(data)) => data.join("kubeconfig"),
        (None, None) => directory.join("kubeconfig"),
    };
    std::path::absolute(&path).map_err(|error| cannot("find", &path.display().to_string(), &error))
}

/// Refuses a file that is there and that no sandbox wrote: it may be the kubeconfig of another cluster.
pub(super) fn keep_foreign(path: &Path) -> Result<(), Diagnostic> {
    let shown = path.display().to_string();
    // Opening a pipe would wait for a writer.
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("read", &shown, &error)),
    };
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "not a regular file" };
        return Err(Diagnostic::error(format!("{shown} is {what}"))
            .hint("give --kubeconfig the name of a file"));
    }
    let file = File::open(path).map_err(|error| cannot("read", &shown, &error))?;
    let mut start = Vec::new();
    file.take(KUBECONFIG_HEADER.len() as u64)
        .read_to_end(&mut start)
        .map_err(|error| cannot("read", &shown, &error))?;
    if start.is_empty() || start == KUBECONFIG_HEADER.as_bytes() {
        return Ok(());
    }
    Err(Diagnostic::error(format!("{shown} already exists, and was not written by kiln up")).hint(
        "choose another --kubeconfig; kubectl reads several at once with KUBECONFIG=ONE:OTHER",
    ))
}

/// Writes what only this user may read.
pub(in crate::commands) fn write(path: &Path, text: &str) -> Result<(), Diagnostic> {
    keep_foreign(path)?;
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        options.mode(0o600);
        let mut file = options.open(path)?;
        // It may have been readable for others: that ends before the secret comes in.
        #[cfg(unix)]
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())
    };
    written().map_err(|error| cannot("write", &path.display().to_string(), &error))
}

/// A path as a shell reads it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn shells_read_paths_as_they_are() {
        for (path, wanted) in [
            ("/tmp/kiln-up-x1/kubeconfig", "/tmp/kiln-up-x1/kubeconfig"),
            ("/home/me/my files/config", "'/home/me/my files/config'"),
            ("/it's", r"'/it'\''s'"),
            ("/a$(b)", "'/a$(b)'"),
        ] {
            assert_eq!(quoted(Path::new(path)), wanted);
        }
    }

    #[test]
    fn only_files_of_our_own_are_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, &format!("{KUBECONFIG_HEADER}\none\n")).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write(&path, &format!("{KUBECONFIG_HEADER}\ntwo\n")).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(fs::read_to_string(&path).unwrap().ends_with("two\n"));
        fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        assert!(write(&path, "x").unwrap_err().to_string().contains("was not written by kiln up"));
        assert!(fs::read_to_string(&path).unwrap().starts_with("apiVersion"));
        assert!(keep_foreign(directory.path()).unwrap_err().to_string().contains("is a directory"));
        let device = keep_foreign(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(device.contains("is not a regular file"), "{device}");
    }
}
