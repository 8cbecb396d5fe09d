//! What kustomizations name that lies elsewhere: files and charts over HTTP, repositories through `git`, unless the user
//! forbids it.

mod charts;

use std::time::Duration;

use kiln_kustomize::local::{Git, Running};
use kiln_kustomize::{ChartSource, Error, Fetch, Repository, Result};
use ureq::Agent;

/// As long as kustomize gives `git`.
const TIMEOUT: Duration = Duration::from_secs(27);
const MOST_REDIRECTS: usize = 10;

/// Fetches, unless that is forbidden.
pub(crate) struct Remote {
    offline: bool,
    most_bytes: u64,
    git: Git,
}

impl Remote {
    pub(crate) fn new(offline: bool, most_bytes: u64, running: Running) -> Self {
        Remote { offline, most_bytes, git: Git::new(running) }
    }
}

impl Fetch for Remote {
    fn get(&self, url: &str) -> Result<Vec<u8>> {
        if self.offline {
            return Err(refused(url));
        }
        get(url, self.most_bytes)
    }

    fn chart(&self, chart: &ChartSource<'_>) -> Result<Vec<u8>> {
        charts::fetch(chart, self.offline, self.most_bytes)
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String> {
        if self.offline {
            return Err(refused(repository.raw()));
        }
        self.git.clone_repository(repository)
    }
}

fn refused(address: &str) -> Error {
    Error::new(format!("{address} is remote, and this build is offline"))
        .hint("build without --offline and KILN_OFFLINE to fetch it, or copy it beside the kustomization: kiln localize")
}

/// The content behind an address.
pub(crate) fn get(url: &str, most_bytes: u64) -> Result<Vec<u8>> {
    request(&FetchRequest { url, accept: "", token: None, most_bytes })?.content(url)
}

/// What is asked for.
struct FetchRequest<'r> {
    url: &'r str,
    /// The type of the answer; empty for any.
    accept: &'r str,
    /// A token for the server of the address, and for no other.
    token: Option<&'r str>,
    most_bytes: u64,
}

/// What a server says, redirects followed.
struct FetchResponse {
    status: u16,
    reason: &'static str,
    /// What the server asks of a client that it does not know.
    challenge: Option<String>,
    /// Where the next page is.
    next: Option<String>,
    /// The content; of an answer that is no success, nothing.
    body: Vec<u8>,
    address: String,
}

impl FetchResponse {
    /// The content, if the server has any.
    fn content(self, url: &str) -> Result<Vec<u8>> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let (status, reason) = (self.status, self.reason);
        let place = if self.address.is_empty() { url } else { &self.address };
        Err(Error::http(format!("HTTP Error: status code {status} ({reason})"))
            .hint(format!("look at {place}")))
    }
}

fn request(request: &FetchRequest<'_>) -> Result<FetchResponse> {
    let agent = agent();
    let mut address = request.url.to_owned();
    for _ in 0..=MOST_REDIRECTS {
        let failed = |error: &ureq::Error| unreachable(&address, error);
        let mut call = agent.get(&address);
        if !request.accept.is_empty() {
            call = call.header("accept", request.accept);
        }
        if let Some(token) = request.token.filter(|_| host_of(&address) == host_of(request.url)) {
            call = call.header("authorization", format!("Bearer {token}"));
        }
        let mut response = call.call().map_err(|error| failed(&error))?;
        let status = response.status();
        let header = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let (location, challenge) = (header("location"), header("www-authenticate"));
        let next = header("link").and_then(|links| next_page(&links).map(str::to_owned));
        let mut answer = FetchResponse {
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or("no reason given"),
            challenge,
            next,
            body: Vec::new(),
            address: address.clone(),
        };
        match location {
            _ if status.is_success() => {
                let bytes = kiln_services::read_within(response.body_mut(), request.most_bytes)
                    .map_err(|error| unreachable(&address, &error))?;
                answer.body = bytes.ok_or_else(|| {
                    let most = request.most_bytes;
                    Error::new(format!("{address} has more than {most} bytes"))
                        .hint("raise the limit with --max-input-size")
                })?;
                return Ok(answer);
            }
            Some(to) if status.is_redirection() => address = redirected(&address, &to)?,
            _ => return Ok(answer),
        }
    }
    Err(Error::new(format!("{} redirects more than {MOST_REDIRECTS} times", request.url)))
}

/// The address of the next page in a `Link` header.
fn next_page(links: &str) -> Option<&str> {
    let is_next = |link: &&str| link.split(';').skip(1).any(|part| part.trim() == "rel=\"next\"");
    let link = links.split(", ").find(is_next)?;
    link.trim_start().strip_prefix('<')?.split('>').next()
}

/// The scheme and the server of an address.
fn host_of(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    Some((scheme, rest.split(['/', '?', '#']).next()?))
}

fn unreachable(address: &str, error: &impl std::fmt::Display) -> Error {
    Error::new(format!("cannot fetch {address}: {error}"))
        .hint("check the address, the network and the proxy settings")
}

fn agent() -> Agent {
    // Without authorities of its own there is nothing that could be read wrongly.
    let tls = kiln_services::tls(None).unwrap_or_default();
    Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        // A server may close a connection that waits.
        .max_idle_connections(0)
        // Where a redirect may lead is decided here.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("kiln/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// Where a redirect leads: never from https to anything else, and never to another scheme.
fn redirected(from: &str, to: &str) -> Result<String> {
    let bad = || {
        Error::new(format!("{from} redirects to {to}"))
            .hint("only addresses with https are followed from there")
    };
    let (scheme, rest) = from.split_once("://").ok_or_else(bad)?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let target = if to.contains("://") {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{host}{to}")
    } else {
        let path = rest.split(['?', '#']).next().unwrap_or(rest);
        let directory = path.rfind('/').map_or(host, |end| &path[..end]);
        format!("{scheme}://{directory}/{to}")
    };
    let allowed: &[&str] =
        if scheme.eq_ignore_ascii_case("https") { &["https://"] } else { &["http://", "https://"] };
    let fits = |scheme: &&str| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if allowed.iter().any(fits) { Ok(target) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_one_that_a_link_says() {
        let next = "</v2/web/tags/list?last=b&n=2>; rel=\"next\"";
        assert_eq!(next_page(next), Some("/v2/web/tags/list?last=b&n=2"));
        let several = format!("</first>; rel=\"first\", {next}");
        assert_eq!(next_page(&several), Some("/v2/web/tags/list?last=b&n=2"));
        for none in ["", "</x>; rel=\"prev\"", "/x; rel=\"next\""] {
            assert_eq!(next_page(none), None, "{none}");
        }
    }

    #[test]
    fn redirects_stay_with_http_and_never_leave_https() {
        for (from, to, wanted) in [
            ("http://h/a/b", "/c", Some("http://h/c")),
            ("http://h/a/b?x=/y", "c", Some("http://h/a/c")),
            ("http://h", "c", Some("http://h/c")),
            ("http://h/a", "//i/c", Some("http://i/c")),
            ("http://h/a", "https://i/c", Some("https://i/c")),
            ("https://h/a", "https://i/c", Some("https://i/c")),
            ("https://h/a", "http://i/c", None),
            ("http://h/a", "file:///etc/passwd", None),
            ("http://h/a", "ftp://h/x", None),
        ] {
            assert_eq!(redirected(from, to).ok().as_deref(), wanted, "{from} {to}");
        }
    }
}
