//! URLs and image references.

use std::net::IpAddr;

use kiln_text::image::Image;
use kiln_value::Value;

use super::{Arguments, JmesPathFunction, STRING, function, parameter};
use crate::eval::EvalFault;

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "image_normalize",
        &[parameter("image", STRING)],
        "string",
        "the full name of an image, with its registry and its tag or digest",
        image_normalize,
    ),
    function(
        "is_external_url",
        &[parameter("url", STRING)],
        "boolean",
        "whether the host of a URL has no loopback or private address",
        is_external_url,
    ),
];

fn image_normalize(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let image = args.string(0)?;
    args.text(Image::parse(image).map_err(|error| args.fail(error))?.to_string())
}

fn is_external_url(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let url = args.string(0)?;
    let host = host(url).map_err(|problem| args.fail(problem))?;
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => args
            .sources()
            .resolve(&host)
            .ok_or_else(|| {
                args.fail(format_args!("the name {host:?} would need DNS, which is not used here"))
            })?
            .map_err(|problem| args.fail(problem))?,
    };
    Ok(Value::Bool(!addresses.into_iter().any(is_internal)))
}

/// Loopback and private addresses. Kyverno: link-local and shared ones count as external.
fn is_internal(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

/// The host of a URL as Go's `net/url` finds it: empty without `//`.
fn host(url: &str) -> Result<String, String> {
    if url.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("the URL has a control character".to_owned());
    }
    let without_fragment = url.split_once('#').map_or(url, |(before, _)| before);
    if without_fragment.is_empty() {
        return Ok(String::new());
    }
    let rest = after_scheme(without_fragment)?;
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    let Some(authority) = rest.strip_prefix("//") else {
        check_escapes(rest)?;
        return Ok(String::new());
    };
    let (authority, path) = match authority.find('/') {
        Some(slash) => authority.split_at(slash),
        None => (authority, ""),
    };
    check_escapes(path)?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host.strip_prefix('[') {
        Some(inside) => {
            let (host, port) = inside.split_once(']').ok_or("the URL has no ']' after its '['")?;
            // A zone (`%25eth0`) is not part of the address.
            (host.split_once('%').map_or(host, |(host, _)| host), port)
        }
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !digits.bytes().all(|byte| byte.is_ascii_digit())
        || (port.len() == digits.len() && !port.is_empty())
    {
        return Err(format!("{port:?} after the host of the URL is not a port"));
    }
    if host.bytes().any(|byte| {
        matches!(byte, b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
    }) {
        return Err(format!("{host:?} is not a host name"));
    }
    check_escapes(host)?;
    Ok(host.to_owned())
}

/// What stands after `scheme:`, or the whole text if there is no scheme.
fn after_scheme(url: &str) -> Result<&str, String> {
    let Some(colon) = url.find(':') else {
        return Ok(url);
    };
    let scheme = &url[..colon];
    let valid = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    match scheme.bytes().next() {
        None => Err("the URL has no scheme before its ':'".to_owned()),
        Some(first) if valid && first.is_ascii_alphabetic() => Ok(&url[colon + 1..]),
        // Go: the first part of a relative path must not have a colon.
        _ if scheme.contains('/') => Ok(url),
        _ => Err("the first part of the URL has a colon and is not a scheme".to_owned()),
    }
}

fn check_escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('%') {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if !hex(at + 1) || !hex(at + 2) {
            return Err("the URL has a '%' without two hexadecimal digits behind it".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_as_go_finds_them() {
        for (url, wanted) in [
            ("http://a.example:80/x?y#z", Some("a.example")),
            ("http://user:pass@10.0.0.1", Some("10.0.0.1")),
            ("https://[::1]:443/", Some("::1")),
            ("http://[fe80::1%25eth0]", Some("fe80::1")),
            ("//host/path", Some("host")),
            ("/path:x", Some("")),
            ("10.0.0.1", Some("")),
            ("mailto:a@b", Some("")),
            ("http://", Some("")),
            ("", Some("")),
            ("http://h?q=/:", Some("h")),
            ("%", None),
            ("http://a/%zz", None),
            ("10.0.0.1:80", None),
            (":x", None),
            ("http://h:port", None),
            ("http://[::1", None),
            ("http://[::1]x", None),
            ("http://a b", None),
            ("http://a\u{7f}", None),
        ] {
            assert_eq!(host(url).ok().as_deref(), wanted, "{url}");
        }
    }
}
