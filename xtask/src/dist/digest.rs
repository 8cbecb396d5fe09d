//! Digests, and the file with the checksums of a release.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

/// The file with the checksums, in the form that `sha256sum --check` reads.
pub(super) const SUMS: &str = "SHA256SUMS";

/// A digest in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The files that are published, with their digests: what lies in the directory, without checksums and signatures. The
/// layout of the image is there a second time, as one file.
pub(super) fn files(directory: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && name != SUMS && !name.ends_with(super::sign::ENDING) {
            files.insert(name, sha256(&fs::read(entry.path())?));
        }
    }
    Ok(files)
}

/// The text of the file with the checksums.
pub(super) fn sums(files: &BTreeMap<String, String>) -> String {
    files.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("b", "abc"), ("a", ""), (SUMS, "x"), ("a.sig", "x")] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        assert_eq!(
            sums(&files(directory.path()).unwrap()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n\
             ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
        );
    }
}
