//! What sprig has and Kiln refuses: the network, and the making of keys and certificates.

use crate::error::Refusal;
use crate::functions::ParameterType::{Any, Text};
use crate::functions::{FunctionCall, TemplateFunction, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("buildCustomCert", &[], Some(Any), keys, "refused: certificates are made outside"),
    function("genCA", &[], Some(Any), keys, "refused: certificates are made outside"),
    function("genCAWithKey", &[], Some(Any), keys, "refused: certificates are made outside"),
    function("genPrivateKey", &[Text], None, private_key, "refused: keys are made outside"),
    function("genSelfSignedCert", &[], Some(Any), keys, "refused: certificates are made outside"),
    function(
        "genSelfSignedCertWithKey",
        &[],
        Some(Any),
        keys,
        "refused: certificates are made outside",
    ),
    function("genSignedCert", &[], Some(Any), keys, "refused: certificates are made outside"),
    function(
        "genSignedCertWithKey",
        &[],
        Some(Any),
        keys,
        "refused: certificates are made outside",
    ),
    function("getHostByName", &[Text], None, network, "refused: templates do not use the network"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn keys(_: &FunctionCall<'_>, _: &[Dyn]) -> Result {
    Err(Refusal::Refused(
        "keys and certificates are not made while rendering".into(),
        "make them once, and give them as values",
    ))
}

fn private_key(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    match text(a, 0) {
        "rsa" | "dsa" | "ecdsa" | "ed25519" | "" => keys(call, a),
        other => Ok(format!("Unknown type {other}").into()),
    }
}

fn network(_: &FunctionCall<'_>, _: &[Dyn]) -> Result {
    Err(Refusal::Refused("templates do not use the network".into(), "give the address as a value"))
}
