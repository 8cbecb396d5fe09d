//! Tells claims that the engine wrote from claims that any user may have written.
//!
//! A user who can create an object can give it any label and any annotation, also those that say which rule made it, of
//! which trigger, and who caused it. So the engine signs what it writes: the annotation `kiln.dev/signature` holds
//! a code (HMAC-SHA256) over the claim and over the place of the object that carries it, made with a key that only the
//! engine reads. A claim that is copied to another object, or of which one word is changed, is no longer signed.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use kiln_engine::{MANAGED_BY, SOURCE, is_ownership_label};
use kiln_object::{Gvk, metadata};
use kiln_value::{Map, Str, Value, json};
use sha2::Sha256;

/// The annotation that holds the signature: version, name of the key, code.
pub(crate) const SIGNATURE: &str = "kiln.dev/signature";

const VERSION: &str = "v1";

/// The annotations that are part of a claim. Others of Kiln's (`kiln.dev/author`, say) are written by others.
const SIGNED: [&str; 10] = [
    "kiln.dev/content",
    "kiln.dev/operation",
    "kiln.dev/pattern",
    "kiln.dev/policy-uid",
    "kiln.dev/rule",
    "kiln.dev/slot",
    SOURCE,
    "kiln.dev/trigger",
    "kiln.dev/trigger-content",
    "kiln.dev/user",
];

/// What is known of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The engine wrote it, for this very object.
    Proven,
    /// A key that the engine has signed something else.
    Edited,
    /// No key that the engine has signed it: another engine wrote it, an older version of this one, or any user; or
    /// the key is lost.
    Unsigned,
}

/// The keys that claims are signed with.
///
/// The first signs. The others were used before, and what they signed still counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClaimKeys {
    keys: Vec<ClaimKey>,
    /// Nothing is written, so claims need no proof.
    believes: bool,
}

/// A key and its name, which is not a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimKey {
    /// What it is called in signatures.
    pub name: Str,
    /// The key.
    pub secret: [u8; 32],
}

impl fmt::Debug for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClaimKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.keys).finish()
    }
}

impl ClaimKeys {
    /// Signs with the first key, and believes what any of them signed.
    pub fn new(keys: Vec<ClaimKey>) -> Self {
        ClaimKeys { keys, believes: false }
    }

    /// For those who only look, and may not read the keys: every claim counts as if it were signed.
    pub fn believing() -> Self {
        ClaimKeys { keys: Vec::new(), believes: true }
    }

    /// The signature of an object's claim; none without a key.
    pub(crate) fn sign(&self, object: &Value) -> Option<String> {
        let ClaimKey { name, secret } = self.keys.first()?;
        let code = code(secret, object).finalize().into_bytes();
        let code: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{VERSION}:{name}:{code}"))
    }

    /// What is known of the claim on an object.
    pub(crate) fn proof(&self, object: &Value) -> Proof {
        if self.believes {
            return Proof::Proven;
        }
        let Some(signature) = metadata::annotation(object, SIGNATURE) else {
            return Proof::Unsigned;
        };
        let mut parts = signature.splitn(3, ':');
        let (Some(VERSION), Some(name), Some(claimed)) = (parts.next(), parts.next(), parts.next())
        else {
            return Proof::Unsigned;
        };
        // Unsigned, not edited: keys are lost with their Secret, and an installation that lost them must not take all its
        // downstreams for tampered objects.
        let Some(key) = self.keys.iter().find(|key| key.name == name) else {
            return Proof::Unsigned;
        };
        let is_right = bytes(claimed)
            .is_some_and(|claimed| code(&key.secret, object).verify_slice(&claimed).is_ok());
        if is_right { Proof::Proven } else { Proof::Edited }
    }
}

fn code(secret: &[u8; 32], object: &Value) -> Hmac<Sha256> {
    // HMAC fills shorter keys with zeros.
    let mut block = [0; 64];
    block[..secret.len()].copy_from_slice(secret);
    let mut code = Hmac::<Sha256>::new(&block.into());
    code.update(json::to_canonical_string(&signed(object)).as_bytes());
    code
}

/// What a signature is about: the claim, and the object that carries it, whatever its version.
///
/// What is left out was weighed. Not the UID: it is known only after the object is created, and a claim without a proof
/// would be visible until a second write. Not the content: servers add defaults and other controllers write fields, so
/// that every proof would break; the hash of what was sent is in the claim instead. Not the version of the API group: the
/// same object is read in several.
fn signed(object: &Value) -> Value {
    let Gvk { group, kind, .. } = Gvk::of(object).unwrap_or_default();
    let texts = |texts: Option<&Map>, is_signed: fn(&str) -> bool| -> Value {
        let texts = texts.into_iter().flat_map(Map::iter);
        Value::Map(
            texts
                .filter(|(key, _)| is_signed(key))
                .map(|(key, text)| (key.clone(), text.clone()))
                .collect(),
        )
    };
    let is_label = |key: &str| key == MANAGED_BY || is_ownership_label(key);
    let is_note = |key: &str| SIGNED.contains(&key);
    Value::from_iter([
        Value::from(group),
        Value::from(kind),
        Value::from(metadata::namespace(object).unwrap_or_default()),
        Value::from(metadata::name(object).unwrap_or_default()),
        texts(metadata::labels(object), is_label),
        texts(metadata::annotations(object), is_note),
    ])
}

/// Bytes in hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn key(name: &str, byte: u8) -> ClaimKey {
        ClaimKey { name: name.into(), secret: [byte; 32] }
    }

    fn object() -> Value {
        value!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "s", "namespace": "n",
                "labels": {
                    "app.kubernetes.io/managed-by": "kyverno",
                    "generate.kyverno.io/policy-name": "p",
                    "generate.kyverno.io/trigger-uid": "u",
                    "team": "a",
                },
                "annotations": {"kiln.dev/rule": "kyverno:p/r", "kiln.dev/user": "{}", "note": "x"},
            },
            "data": {"k": "dg=="},
        })
    }

    fn signed_by(keys: &ClaimKeys) -> Value {
        let mut object = object();
        let signature = keys.sign(&object).unwrap();
        metadata::set_annotation(&mut object, SIGNATURE, &signature).unwrap();
        object
    }

    #[test]
    fn a_signature_is_about_the_claim_and_its_object_alone() {
        let keys = ClaimKeys::new(vec![key("a", 1)]);
        let object = signed_by(&keys);
        assert_eq!(keys.proof(&object), Proof::Proven);
        let edits: [(&[&str], &str, Proof); 11] = [
            (&["metadata", "annotations", "kiln.dev/user"], "{\"username\":\"x\"}", Proof::Edited),
            (&["metadata", "annotations", "kiln.dev/operation"], "CREATE", Proof::Edited),
            (&["metadata", "labels", "generate.kyverno.io/trigger-uid"], "v", Proof::Edited),
            (&["metadata", "labels", "generate.kyverno.io/more"], "v", Proof::Edited),
            (&["metadata", "name"], "t", Proof::Edited),
            (&["metadata", "namespace"], "m", Proof::Edited),
            (&["kind"], "ConfigMap", Proof::Edited),
            (&["apiVersion"], "x/v1", Proof::Edited),
            // What is not part of the claim belongs to others.
            (&["metadata", "labels", "team"], "b", Proof::Proven),
            (&["metadata", "annotations", "kiln.dev/author"], "{}", Proof::Proven),
            (&["data", "k"], "ZQ==", Proof::Proven),
        ];
        for (path, text, proof) in edits {
            let mut edited = object.clone();
            edited.set(path.iter().copied(), text).unwrap();
            assert_eq!(keys.proof(&edited), proof, "{path:?}");
        }
    }

    #[test]
    fn old_keys_count_and_lost_ones_prove_nothing() {
        let old = ClaimKeys::new(vec![key("a", 1)]);
        let object = signed_by(&old);
        let rotated = ClaimKeys::new(vec![key("b", 2), key("a", 1)]);
        assert_eq!(rotated.proof(&object), Proof::Proven);
        assert!(rotated.sign(&object).unwrap().starts_with("v1:b:"));
        assert_eq!(ClaimKeys::new(vec![key("b", 2)]).proof(&object), Proof::Unsigned);
        // Another key with the name of ours.
        assert_eq!(ClaimKeys::new(vec![key("a", 3)]).proof(&object), Proof::Edited);
        assert_eq!(ClaimKeys::default().proof(&object), Proof::Unsigned);
        assert_eq!(ClaimKeys::default().sign(&object), None);
    }

    #[test]
    fn what_is_no_signature_proves_nothing() {
        let keys = ClaimKeys::new(vec![key("a", 1)]);
        for (signature, proof) in [
            ("", Proof::Unsigned),
            ("v1", Proof::Unsigned),
            ("v2:a:00", Proof::Unsigned),
            ("v1:a:", Proof::Edited),
            ("v1:a:0", Proof::Edited),
            ("v1:a:zz", Proof::Edited),
            ("v1:a:é", Proof::Edited),
            ("v1:a:00:00", Proof::Edited),
        ] {
            let mut object = object();
            metadata::set_annotation(&mut object, SIGNATURE, signature).unwrap();
            assert_eq!(keys.proof(&object), proof, "{signature:?}");
        }
    }
}
