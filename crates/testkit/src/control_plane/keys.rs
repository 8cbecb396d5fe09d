//! The keys of a control plane: one authority, one server, two clients, one signer of tokens.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// What a kubeconfig says about its user, for each of the two clients.
pub(super) struct Keys {
    pub(super) admin: String,
    pub(super) controllers: String,
}

impl Keys {
    /// Makes all keys and writes those that the servers read into a directory.
    pub(super) fn write(directory: &Path) -> Result<Self, String> {
        make(directory).map_err(|error| format!("cannot make keys: {error}"))
    }
}

fn make(directory: &Path) -> Result<Keys, Box<dyn std::error::Error>> {
    let mut params = named("kiln-test-authority", None)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(directory.join("ca.crt"), authority.pem())?;
    fs::write(directory.join("ca.key"), authority.key().serialize_pem())?;

    let mut params = named("kube-apiserver", None)?;
    params.subject_alt_names =
        CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    fs::write(directory.join("apiserver.crt"), params.signed_by(&key, &authority)?.pem())?;
    fs::write(directory.join("apiserver.key"), key.serialize_pem())?;

    let signer = KeyPair::generate()?;
    fs::write(directory.join("accounts.key"), signer.serialize_pem())?;
    fs::write(directory.join("accounts.pub"), signer.public_key_pem())?;

    let client = |name: &str, group: Option<&str>| -> Result<String, rcgen::Error> {
        let mut params = named(name, group)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        Ok(format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            BASE64_STANDARD.encode(certificate.pem()),
            BASE64_STANDARD.encode(key.serialize_pem())
        ))
    };
    Ok(Keys {
        admin: client("kubernetes-admin", Some("system:masters"))?,
        controllers: client("system:kube-controller-manager", None)?,
    })
}

/// A certificate's name: the API server takes the common name for the user and the organization for a group.
fn named(name: &str, group: Option<&str>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    Ok(params)
}

/// A file in the form that a kubeconfig embeds.
pub(super) fn encoded(file: &Path) -> io::Result<String> {
    Ok(BASE64_STANDARD.encode(fs::read(file)?))
}

/// The bytes behind base64; none for what is not.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text.trim()).unwrap_or_default()
}
