//! As much of HTTP/1.1 as a page on this machine needs: one request for each connection, with limits. What is not understood is
//! refused.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The most bytes of a request's head, and of its body.
const MAX_HEAD: u64 = 16 << 10;
const MAX_BODY: usize = 8 << 20;
/// How long a client may take with either.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request.
#[derive(Debug, Default)]
pub(super) struct HttpRequest {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl HttpRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Reads a request; the status to refuse it with.
    pub(super) fn read(stream: &TcpStream) -> Result<Self, u16> {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_write_timeout(Some(PATIENCE));
        Self::read_from(stream)
    }

    fn read_from(source: impl Read) -> Result<Self, u16> {
        let mut reader = BufReader::new(source.take(MAX_HEAD));
        let mut line = || -> Result<String, u16> {
            let mut line = Vec::new();
            reader.read_until(b'\n', &mut line).map_err(|_| 408_u16)?;
            // Without an end of line the head is too long, or the client is gone.
            let text = line.strip_suffix(b"\n").ok_or(431_u16)?;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            String::from_utf8(text.to_vec()).map_err(|_| 400)
        };
        let first = line()?;
        let words: Vec<&str> = first.split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words.as_slice() else {
            return Err(400);
        };
        let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
        let mut request = HttpRequest { method: (*method).to_owned(), path, ..Self::default() };
        loop {
            let line = line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or(400_u16)?;
            if name.is_empty() || name.contains(|c: char| c.is_ascii_whitespace()) {
                return Err(400);
            }
            let name = name.to_ascii_lowercase();
            // What is decided by a header must not depend on which of two is read.
            if request.header(&name).is_some() {
                return Err(400);
            }
            request.headers.push((name, value.trim().to_owned()));
        }
        if request.headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Err(411);
        }
        let length = match request.header("content-length") {
            Some(text) => text.parse::<usize>().map_err(|_| 400_u16)?,
            None => 0,
        };
        if length > MAX_BODY {
            return Err(413);
        }
        // The limit of the head does not hold for the body.
        reader.get_mut().set_limit(u64::try_from(length).unwrap_or(0));
        let mut body = Vec::new();
        reader
            .take(u64::try_from(length).unwrap_or(0))
            .read_to_end(&mut body)
            .map_err(|_| 408_u16)?;
        if body.len() < length {
            return Err(400);
        }
        request.body = body;
        Ok(request)
    }
}

/// What is answered.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl HttpResponse {
    pub(super) fn json(status: u16, body: String) -> Self {
        HttpResponse { status, content_type: "application/json", body: body.into_bytes() }
    }

    pub(super) fn refusal(status: u16) -> Self {
        HttpResponse::json(
            status,
            format!("{{\"error\":{{\"severity\":\"error\",\"message\":{:?}}}}}", reason(status)),
        )
    }

    /// Writes the answer, with what keeps the page to itself: nothing is loaded from elsewhere, no frame holds it, nothing is
    /// stored.
    pub(super) fn write(&self, mut out: impl Write) -> io::Result<()> {
        write!(
            out,
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
             X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        )?;
        out.write_all(&self.body)?;
        out.flush()
    }
}

/// The editor writes style elements, so styles may be inline; scripts may not.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HttpRequest, u16> {
        HttpRequest::read_from(text.as_bytes())
    }

    #[test]
    fn a_request_is_read_with_its_body() {
        let request =
            read("POST /api/call?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{ä}x")
                .unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/api/call"));
        assert_eq!(request.header("host"), Some("a"));
        assert_eq!(request.body, "{ä}".as_bytes());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(20_000));
        for (text, status) in [
            ("", 431),
            ("GET /\r\n\r\n", 400),
            ("GET / HTTP/2\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
            ("GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab", 400),
            ("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
            (long.as_str(), 431),
        ] {
            assert_eq!(read(text).unwrap_err(), status, "{text:?}");
        }
        assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap_err(), 400);
    }
}
