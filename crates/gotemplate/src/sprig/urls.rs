//! Addresses in parts, by the rules of Go's `net/url`.

use std::fmt::Write as _;

use kiln_text::quote::quote;

use crate::error::Refusal;
use crate::functions::{FunctionCall, key, map, text};
use crate::value::Dyn;

type Result<R = Dyn> = std::result::Result<R, Refusal>;

/// The parts of an address.
#[derive(Default)]
struct Url {
    scheme: String,
    opaque: String,
    /// The user as written, if there is an `@`.
    user: Option<String>,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

pub(super) fn parse(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let address = text(a, 0);
    let url = Url::parse(address).map_err(|problem| {
        Refusal::from(format!("unable to parse url: parse {}: {problem}", quote(address)))
    })?;
    let parts = [
        ("scheme", url.scheme.clone()),
        ("host", url.host.clone()),
        ("hostname", url.hostname().to_owned()),
        ("path", url.path),
        ("query", url.query),
        ("opaque", url.opaque),
        ("fragment", url.fragment),
        ("userinfo", url.user.unwrap_or_default()),
    ];
    Ok(Dyn::map(parts.into_iter().map(|(name, part)| (key(name), Dyn::from(part)))))
}

pub(super) fn join(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let parts = map(a, 0);
    let part = |name: &str| match parts.get(name) {
        None => Ok(String::new()),
        Some(Dyn::Text(text)) => Ok(text.to_string()),
        Some(other) => Err(Refusal::from(format!(
            "unable to parse {name} key, must be of type string, but {} found",
            other.type_name()
        ))),
    };
    let user = part("userinfo")?;
    let user = match user.is_empty() {
        true => None,
        false => {
            let whole = format!("proto://{user}@host");
            let url = Url::parse(&whole).map_err(|problem| {
                let whole = quote(&whole);
                format!("unable to parse userinfo in dict: parse {whole}: {problem}")
            })?;
            url.user
        }
    };
    let url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        user,
    };
    Ok(url.write().into())
}

impl Url {
    fn parse(address: &str) -> std::result::Result<Url, String> {
        if address.chars().any(|c| c < ' ' || c == '\x7f') {
            return Err("net/url: invalid control character in URL".into());
        }
        let (address, fragment) = address.split_once('#').unwrap_or((address, ""));
        let mut url = Url { fragment: unescaped(fragment)?, ..Url::default() };
        let mut rest = address;
        if let Some(colon) = scheme_end(rest)? {
            url.scheme = rest[..colon].to_ascii_lowercase();
            rest = &rest[colon + 1..];
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_owned();
        rest = before;
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_owned();
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        if let Some(authority) =
            rest.strip_prefix("//").filter(|rest| !rest.starts_with("//") || !url.scheme.is_empty())
        {
            let end = authority.find('/').unwrap_or(authority.len());
            url.authority(&authority[..end])?;
            rest = &authority[end..];
        }
        url.path = unescaped(rest)?;
        Ok(url)
    }

    fn authority(&mut self, text: &str) -> std::result::Result<(), String> {
        let host = match text.rsplit_once('@') {
            Some((user, host)) => {
                if user.contains(|c: char| {
                    !c.is_ascii_alphanumeric() && !"-._:~!$&'()*+,;=%@".contains(c)
                }) {
                    return Err("net/url: invalid userinfo".into());
                }
                let part = |part: &str| Ok::<_, String>(escaped(&unescaped(part)?, b"$&+,;="));
                self.user = Some(match user.split_once(':') {
                    Some((name, password)) => format!("{}:{}", part(name)?, part(password)?),
                    None => part(user)?,
                });
                host
            }
            None => text,
        };
        if host.starts_with('[') {
            let Some(close) = host.rfind(']') else { return Err("missing ']' in host".into()) };
            check_port(&host[close + 1..])?;
        } else if let Some(colon) = host.rfind(':') {
            check_port(&host[colon..])?;
        }
        if let Some(bad) =
            host.chars().find(|c| matches!(c, ' ' | '^' | '`' | '{' | '}' | '|' | '\\'))
        {
            return Err(format!("invalid character {} in host name", quote(&bad.to_string())));
        }
        self.host = unescaped(host)?;
        Ok(())
    }

    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, _)) => inside,
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    fn write(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if !self.opaque.is_empty() {
            out.push_str(&self.opaque);
        } else {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    out.push_str("//");
                }
                if let Some(user) = &self.user {
                    out.push_str(user);
                    out.push('@');
                }
                out.push_str(&self.host);
            }
            let path = escaped(&self.path, b"$&+,/:;=@");
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            out.push_str(&path);
        }
        if !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&escaped(&self.fragment, b"$&+,/:;=?@!()*'"));
        }
        out
    }
}

/// The index of the colon behind the scheme.
fn scheme_end(address: &str) -> std::result::Result<Option<usize>, String> {
    for (at, byte) in address.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Ok(Some(at)),
            b':' => return Err("missing protocol scheme".into()),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn check_port(text: &str) -> std::result::Result<(), String> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Ok(()),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(format!("invalid port {} after host", quote(text))),
    }
}

fn unescaped(text: &str) -> std::result::Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(percent) = rest.find('%') {
        out.extend_from_slice(&rest.as_bytes()[..percent]);
        let digits = rest.get(percent + 1..percent + 3);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else {
            let shown: String = rest[percent..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        };
        out.push(byte);
        rest = &rest[percent + 3..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escaped(text: &str, free: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || free.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
