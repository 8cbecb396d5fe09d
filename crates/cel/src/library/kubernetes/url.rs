//! URLs as Go's `url.ParseRequestURI` takes them apart.

use std::any::Any;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::{MapBuilder, MapKey, Opaque};
use crate::{Type, Val};

/// A URL: absolute, or an absolute path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    text: String,
    scheme: String,
    /// With the port.
    host: String,
    path: String,
    query: String,
}

impl Opaque for Url {
    fn type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Url>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        Some(self.text.clone())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("kubernetes.URL"));
    registry.add(
        |context, args| Ok(Arc::new(parse(context, args)?).into()),
        &["url(string): kubernetes.URL"],
    );
    registry.add(
        |context, args| match &args[0] {
            Val::String(_) => Ok(Val::Bool(parse(context, args).is_ok())),
            _ => Err(no_such_overload()),
        },
        &["isURL(string): bool"],
    );
    registry.add(
        |_, args| Ok(Val::string(&url(args)?.scheme)),
        &["(kubernetes.URL).getScheme(): string"],
    );
    registry
        .add(|_, args| Ok(Val::string(&url(args)?.host)), &["(kubernetes.URL).getHost(): string"]);
    registry.add(
        |_, args| Ok(Val::string(split_port(&url(args)?.host).0)),
        &["(kubernetes.URL).getHostname(): string"],
    );
    registry.add(
        |_, args| Ok(Val::string(split_port(&url(args)?.host).1)),
        &["(kubernetes.URL).getPort(): string"],
    );
    registry.add(
        |_, args| Ok(Val::from(escape_path(&url(args)?.path))),
        &["(kubernetes.URL).getEscapedPath(): string"],
    );
    registry.add(query, &["(kubernetes.URL).getQuery(): map(string, list(string))"]);
}

fn url(args: &[Val]) -> Result<&Url, EvalFailure> {
    args[0].as_opaque::<Url>().ok_or_else(no_such_overload)
}

fn parse(context: &mut Context<'_>, args: &[Val]) -> Result<Url, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Url::parse(text).map_err(|why| {
        failure(format!("URL parse error during conversion from string: parse {text:?}: {why}"))
    })
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err("invalid control character in URL".to_owned());
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Url {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: String::new(),
            path: String::new(),
            query: query.to_owned(),
        };
        if !rest.starts_with('/') {
            // Opaque, such as `mailto:x`.
            return if scheme.is_empty() {
                Err("invalid URI for request".to_owned())
            } else {
                Ok(url)
            };
        }
        let mut path = rest;
        if !scheme.is_empty()
            && let Some(authority) = rest.strip_prefix("//")
        {
            let end = authority.find('/').unwrap_or(authority.len());
            let host =
                authority[..end].rsplit_once('@').map_or(&authority[..end], |(_, host)| host);
            check_host(host)?;
            host.clone_into(&mut url.host);
            path = &authority[end..];
        }
        check_escapes(path)?;
        path.clone_into(&mut url.path);
        Ok(url)
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Ok((&text[..at], &text[at + 1..])),
            b':' => return Err("missing protocol scheme".to_owned()),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<(), String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port),
            None => return Err("missing ']' in host".to_owned()),
        },
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && (!port.starts_with(':') || !digits.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("invalid port {port:?} after host"));
    }
    match name
        .chars()
        .find(|c| matches!(c, ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}'))
    {
        Some(bad) => Err(format!("invalid character {bad:?} in host name")),
        None => Ok(()),
    }
}

fn check_escapes(path: &str) -> Result<(), String> {
    let bytes = path.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        if *byte == b'%' && !(hex(at + 1) && hex(at + 2)) {
            let shown = path.get(at..at + 3).unwrap_or(&path[at..]);
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

/// The name without brackets, and the port without its colon.
fn split_port(host: &str) -> (&str, &str) {
    if let Some(rest) = host.strip_prefix('[') {
        let (name, port) = rest.split_once(']').unwrap_or((rest, ""));
        return (name, port.strip_prefix(':').unwrap_or(port));
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

fn escape_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte);
        if plain {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Names and values of the query; pairs that are not well-formed are left out, as in Go.
fn query(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let query = &url(args)?.query;
    context.meter.charge_text(query.len() as u64)?;
    let mut values: Vec<(String, Vec<Val>)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescape_query(name), unescape_query(value)) else {
            continue;
        };
        context.meter.charge(values.len() as u64)?;
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, list)) => list.push(Val::from(value)),
            None => values.push((name, vec![Val::from(value)])),
        }
    }
    let mut map = MapBuilder::with_capacity(values.len());
    for (name, list) in values {
        map.insert(MapKey::String(name.into()), Val::list(list)?)?;
    }
    map.finish()
}

fn unescape_query(text: &str) -> Option<String> {
    check_escapes(text).ok()?;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_go_reads_them() {
        for (text, host, path) in [
            ("https://example.com:80/a%20b?x=1", "example.com:80", "/a%20b"),
            ("/path/to", "", "/path/to"),
            ("http://user@[::1]:8080/", "[::1]:8080", "/"),
            ("https://example.com", "example.com", ""),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.path.as_str()), (host, path), "{text}");
        }
        for bad in ["", "relative", "http://a b/", "http://h:port/", "/a%zz", ":x", "http://[::1/"]
        {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(split_port("[::1]:8080"), ("::1", "8080"));
    }
}
