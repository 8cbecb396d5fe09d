//! What comes in and what goes out, as data. Sockets are the host's business.

pub(crate) mod media;
pub(crate) mod options;
pub(crate) mod paths;

use std::num::IntErrorKind;

use kiln_value::{Value, json};

use crate::status::RequestFailure;

#[derive(Clone, Debug, Default)]
pub struct ApiRequest {
    /// `GET`, `POST`, ...
    pub method: String,
    /// The path, decoded nowhere yet.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Headers; names in any case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ApiRequest {
    /// A request without headers and body.
    pub fn new(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        ApiRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            ..ApiRequest::default()
        }
    }

    /// The same with a header more.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn with_body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.with_header("Content-Type", content_type)
    }

    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// All headers of a name.
    pub(crate) fn headers_of<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        let named = move |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).map(|(_, value)| value.as_str())
    }

    /// The parameters, in order, decoded.
    pub(crate) fn parameters(&self) -> Parameters {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty() && *pair != "?");
        Parameters(
            pairs
                .map(|pair| {
                    let pair = pair.strip_prefix('?').unwrap_or(pair);
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, true), decode(value, true))
                })
                .collect(),
        )
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on.
    // Kubernetes: whatever is given turns it on, also nothing, but for `false` and `0`.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// A whole number, if one is given.
    ///
    /// # Errors
    /// When something else is given.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, RequestFailure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        // Go's `strconv.ParseInt` takes the same forms.
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            RequestFailure::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }
}

/// Undoes percent signs, and plus signs where they mean spaces.
pub(crate) fn decode(text: &str, plus: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match bytes[at] {
            b'%' if hex(at + 1).is_some() && hex(at + 2).is_some() => {
                let (high, low) = (hex(at + 1).unwrap_or(0), hex(at + 2).unwrap_or(0));
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            b'+' if plus => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An answer that is there as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// An answer in JSON.
    pub(crate) fn json(status: u16, value: &Value) -> Self {
        let mut body = json::to_string(value).into_bytes();
        body.push(b'\n');
        Response::bytes(status, "application/json", body)
    }

    pub(crate) fn bytes(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Response { status, headers, body }
    }

    pub(crate) fn text(status: u16, text: &str) -> Self {
        Response::bytes(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
    }

    #[must_use]
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// The body as a value; null when it is not JSON.
    pub fn value(&self) -> Value {
        std::str::from_utf8(&self.body)
            .ok()
            .and_then(|text| json::parse(text).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_leniently() {
        let request = ApiRequest::new("GET", "/api/v1/pods??&a=b%20c&d=e+f&watch=true&g");
        let parameters = request.parameters();
        assert_eq!(parameters.get("a"), Some("b c"));
        assert_eq!(parameters.get("d"), Some("e f"));
        assert_eq!(parameters.get("g"), Some(""));
        assert!(parameters.is_on("watch"));
        assert_eq!(parameters.get("x"), None);
        assert_eq!(decode("%zz%4", true), "%zz%4");
    }
}
