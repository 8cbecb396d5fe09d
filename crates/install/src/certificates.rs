//! What cert-manager needs to issue the certificate of the webhooks.
//!
//! The engine reads the Secret that it issues into: with `ca.crt` beside `tls.crt` and `tls.key`, the certificate is the
//! user's own, and the engine neither makes nor renews one.

use kiln_value::{Value, value};

use crate::{CertificateSource, InstallOptions, metadata};

/// The Secret with the webhook server's certificate, under Kyverno's name for it.
fn serving_secret(options: &InstallOptions) -> String {
    format!("{}.{}.svc.kyverno-tls-pair", options.names().service(), options.namespace)
}

/// Where the authority is that signed what is served: the name of a Secret and a key in it.
pub(crate) fn authority(options: &InstallOptions) -> (String, &'static str) {
    match options.certificates.source {
        CertificateSource::Generated => {
            let service = options.names().service();
            (format!("{service}.{}.svc.kyverno-tls-ca", options.namespace), "tls.crt")
        }
        CertificateSource::Secret | CertificateSource::CertManager => {
            (serving_secret(options), "ca.crt")
        }
    }
}

pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let certificates = &options.certificates;
    if certificates.source != CertificateSource::CertManager {
        return Vec::new();
    }
    let (namespace, service) = (options.namespace.as_str(), options.names().service());
    let object = |kind: &str, name: &str, spec: Value| {
        value!({
            "apiVersion": "cert-manager.io/v1",
            "kind": kind,
            "metadata": metadata(options, namespace, name, "certificates"),
            "spec": spec,
        })
    };
    let mut objects = Vec::new();
    let mut issuer = value!({
        "name": certificates.issuer_ref.name.as_str(),
        "kind": certificates.issuer_ref.kind.as_str(),
        "group": certificates.issuer_ref.group.as_str(),
    });
    if certificates.issuer_ref.name.is_empty() {
        // An authority of its own, that signs nothing but this certificate.
        let own = |name: &str| value!({"name": name, "kind": "Issuer", "group": "cert-manager.io"});
        issuer = own("kiln-ca");
        objects.push(object("Issuer", "kiln-self-signed", value!({"selfSigned": {}})));
        objects.push(object(
            "Certificate",
            "kiln-ca",
            value!({
                "isCA": true,
                "commonName": "kiln webhooks",
                "secretName": "kiln-ca",
                "duration": "87600h",
                "renewBefore": "720h",
                "privateKey": {"algorithm": "ECDSA", "size": 256},
                "issuerRef": own("kiln-self-signed"),
            }),
        ));
        objects.push(object("Issuer", "kiln-ca", value!({"ca": {"secretName": "kiln-ca"}})));
    }
    objects.push(object(
        "Certificate",
        "kiln",
        value!({
            "secretName": serving_secret(options),
            "dnsNames": [
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}"),
                service.as_str(),
            ],
            "usages": ["digital signature", "server auth"],
            "duration": certificates.duration.as_str(),
            "renewBefore": certificates.renew_before.as_str(),
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "issuerRef": issuer,
        }),
    ));
    objects
}
