//! Signatures with a local key, as openssl makes them and cosign reads them: ECDSA over SHA-256, in base64.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::digest;

pub(super) const ENDING: &str = ".sig";
/// What is signed of an image: its digest, in the form of cosign.
const PAYLOAD: &str = "image.payload.json";

/// Signs the checksums, and the image if there is one. `cosign attach signature` takes both files of an image.
pub(super) fn sign(directory: &Path, key: &Path) -> Result<()> {
    let digest = directory.join("image.digest");
    if digest.exists() {
        let payload = payload(fs::read_to_string(digest)?.trim());
        fs::write(directory.join(PAYLOAD), payload)?;
        sign_file(&directory.join(PAYLOAD), key)?;
    }
    // The payload is part of what is published, and so may be files of other runs.
    fs::write(directory.join(digest::SUMS), digest::sums(&digest::files(directory)?))?;
    sign_file(&directory.join(digest::SUMS), key)
}

/// What cosign signs for an image without a name.
fn payload(digest: &str) -> String {
    json!({
        "critical": {
            "identity": {"docker-reference": ""},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
}

/// Writes the signature of a file beside it.
fn sign_file(file: &Path, key: &Path) -> Result<()> {
    let mut openssl = Command::new("openssl");
    let output = openssl.args(["dgst", "-sha256", "-sign"]).arg(key).arg(file).output();
    let output = output.context("signing needs openssl (Debian: apt-get install openssl)")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("openssl cannot sign with {}: {}", key.display(), why.trim());
    }
    let mut name = file.as_os_str().to_owned();
    name.push(ENDING);
    fs::write(&name, format!("{}\n", STANDARD.encode(output.stdout)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openssl(directory: &Path, args: &[&str]) -> bool {
        let run = Command::new("openssl").current_dir(directory).args(args).output();
        run.expect("openssl runs").status.success()
    }

    /// The commands are those of docs/guides/release-files.md.
    #[test]
    fn openssl_verifies_what_was_signed_and_nothing_else() {
        if Command::new("openssl").arg("version").output().is_err() {
            kiln_testkit::skip("there is no openssl", "install openssl");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("kiln.tar.gz"), "archive").unwrap();
        fs::write(path.join("image.digest"), "sha256:00\n").unwrap();
        let curve = ["-pkeyopt", "ec_paramgen_curve:P-256"];
        let make = [&["genpkey", "-algorithm", "EC"][..], &curve, &["-out", "../key.pem"]].concat();
        let place = tempfile::tempdir_in(path).unwrap();
        assert!(openssl(place.path(), &make));
        assert!(openssl(path, &["pkey", "-in", "key.pem", "-pubout", "-out", "kiln.pub"]));
        let key = place.path().join("key.pem");
        fs::rename(path.join("key.pem"), &key).unwrap();
        sign(path, &key).unwrap();
        let sums = fs::read_to_string(path.join(digest::SUMS)).unwrap();
        assert!(
            sums.contains("  kiln.tar.gz\n") && sums.contains("  image.payload.json\n"),
            "{sums}"
        );
        for file in [digest::SUMS, PAYLOAD] {
            let signature = format!("{file}{ENDING}");
            assert!(openssl(path, &["base64", "-d", "-in", &signature, "-out", "raw"]));
            let verify = ["dgst", "-sha256", "-verify", "kiln.pub", "-signature", "raw", file];
            assert!(openssl(path, &verify), "{file}");
            fs::write(path.join(file), "something else").unwrap();
            assert!(!openssl(path, &verify), "{file} was changed");
        }
    }
}
