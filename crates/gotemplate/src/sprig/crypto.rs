//! Passwords and ciphers. They are slow on purpose, so a rendering has budget for a few of them only.

use aes::Aes256;
use aes::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{encoding, random};
use crate::error::Refusal;
use crate::functions::ParameterType::{Text, Uint32};
use crate::functions::{FunctionCall, TemplateFunction, function, int, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("bcrypt", &[Text], None, bcrypt, "the bcrypt hash of a password"),
    function("decryptAES", &[Text, Text], None, decrypt, "what encryptAES made unreadable"),
    function(
        "derivePassword",
        &[Uint32, Text, Text, Text, Text],
        None,
        derive_password,
        "a password for a site from a master password",
    ),
    function("encryptAES", &[Text, Text], None, encrypt, "unreadable without the password"),
    function("htpasswd", &[Text, Text], None, htpasswd, "a line for a file of passwords"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// What one slow computation takes of the budget: with the default limits a rendering can have ten.
const SLOW: u64 = 190_000;
/// bcrypt's rounds, as a power of two.
const COST: u32 = 10;

fn hashed(call: &FunctionCall<'_>, password: &str) -> Result<String> {
    call.meter.step(SLOW)?;
    let mut salt = [0; 16];
    random::fill(call, &mut salt)?;
    bcrypt::hash_with_salt(password, COST, salt)
        .map(|parts| parts.format_for_version(bcrypt::Version::TwoA))
        .map_err(|error| format!("failed to encrypt string with bcrypt: {error}").into())
}

fn bcrypt(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    hashed(call, text(a, 0)).map(Dyn::from)
}

fn htpasswd(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let user = text(a, 0);
    if user.contains(':') {
        return Ok(format!("invalid username: {user}").into());
    }
    Ok(format!("{user}:{}", hashed(call, text(a, 1))?).into())
}

/// The forms of passwords: each letter stands for a set of characters.
const FORMS: &[(&str, &[&str])] = &[
    ("maximum", &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"]),
    (
        "long",
        &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
    ),
    ("medium", &["CvcnoCvc", "CvcCvcno"]),
    ("short", &["Cvcn"]),
    ("basic", &["aaanaaan", "aannaaan", "aaannaaa"]),
    ("pin", &["nnnn"]),
];

fn characters(letter: u8) -> &'static [u8] {
    match letter {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'A' => b"AEIOUBCDFGHJKLMNPQRSTVWXYZ",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

fn derive_password(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    let counter = int(a, 0) as u32;
    let [form, password, user, site] = [1, 2, 3, 4].map(|at| text(a, at));
    let Some((_, forms)) = FORMS.iter().find(|(name, _)| *name == form) else {
        return Ok(format!("cannot find password template {form}").into());
    };
    call.meter.step(SLOW)?;
    let failed = |what: &str| Refusal::from(format!("failed to derive password: {what}"));
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    let salt = [SEED, &length(user), user.as_bytes()].concat();
    let parameters = scrypt::Params::new(15, 8, 2).map_err(|_| failed("bad parameters"))?;
    let mut key = [0; 64];
    scrypt::scrypt(password.as_bytes(), &salt, &parameters, &mut key)
        .map_err(|_| failed("bad length"))?;
    let message = [SEED, &length(site), site.as_bytes(), &counter.to_be_bytes()].concat();
    let mut code =
        <Hmac<Sha256> as KeyInit>::new_from_slice(&key).map_err(|_| failed("bad key"))?;
    code.update(&message);
    let seed = code.finalize().into_bytes();
    let form = forms[usize::from(seed[0]) % forms.len()];
    let derived = form.bytes().zip(seed.iter().skip(1)).map(|(letter, byte)| {
        let set = characters(letter);
        char::from(set[usize::from(*byte) % set.len()])
    });
    Ok(derived.collect::<String>().into())
}

const BLOCK: usize = 16;

fn cipher(password: &str) -> Aes256 {
    // Sprig: the password is cut or filled with zeros to the length of a key.
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().zip(password.bytes()) {
        *place = byte;
    }
    Aes256::new(&key.into())
}

fn encrypt(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut plain = text(a, 1).as_bytes().to_vec();
    call.meter.make(plain.len() as u64 * 3)?;
    let padding = BLOCK - plain.len() % BLOCK;
    plain.resize(plain.len() + padding, u8::try_from(padding).unwrap_or(0));
    let mut before = [0; BLOCK];
    random::fill(call, &mut before)?;
    let cipher = cipher(text(a, 0));
    let mut out = before.to_vec();
    for chunk in plain.chunks(BLOCK) {
        let mut block = Block::<Aes256>::default();
        for (place, (byte, chained)) in block.iter_mut().zip(chunk.iter().zip(before)) {
            *place = byte ^ chained;
        }
        cipher.encrypt_block(&mut block);
        before.copy_from_slice(&block);
        out.extend_from_slice(&block);
    }
    Ok(STANDARD.encode(out).into())
}

fn decrypt(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let encoded = text(a, 1);
    call.meter.make(encoded.len() as u64 * 2)?;
    if encoded.is_empty() {
        return Ok("".into());
    }
    let bytes = encoding::base64_decoded(encoded.as_bytes())?;
    if bytes.len() < 2 * BLOCK || bytes.len() % BLOCK != 0 {
        return Err("the text was not made by encryptAES".into());
    }
    let cipher = cipher(text(a, 0));
    let mut plain = Vec::with_capacity(bytes.len());
    for (before, chunk) in bytes.chunks(BLOCK).zip(bytes.chunks(BLOCK).skip(1)) {
        let mut block = Block::<Aes256>::default();
        block.copy_from_slice(chunk);
        cipher.decrypt_block(&mut block);
        plain.extend(block.iter().zip(before).map(|(byte, chained)| byte ^ chained));
    }
    let padding = usize::from(plain.last().copied().unwrap_or(0));
    if padding == 0 || padding > BLOCK {
        return Err("the password is not the one of encryptAES".into());
    }
    plain.truncate(plain.len() - padding);
    Ok(Dyn::bytes(&plain))
}
