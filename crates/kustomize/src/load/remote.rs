//! Telling repository addresses from paths.
//!
//! Nothing is fetched here: the host does that through [`crate::Fetch`].

use std::time::Duration;

/// A git repository, a revision, and a directory in it, as one address names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    raw: String,
    host: String,
    repository: String,
    path: String,
    reference: String,
    timeout: Duration,
    submodules: bool,
}

/// An address cannot have `git` wait longer.
const LONGEST: u64 = 60 * 60;

const SCHEMES: [&str; 4] = ["ssh://", "https://", "http://", "file://"];

impl Repository {
    /// Reads an address, or finds that it is a path.
    pub fn parse(address: &str) -> Option<Self> {
        if address.starts_with('/') {
            return None;
        }
        let (rest, query) = address.split_once('?').unwrap_or((address, ""));
        let (host, rest) = split_host(rest)?;
        let (repository, path) = split_path(rest, host.starts_with("file://"))?;
        if repository.is_empty() {
            return None;
        }
        let path = path.trim_start_matches('/');
        if crate::load::paths::clean(path).split('/').next() == Some("..") {
            return None;
        }
        let mut found = Repository {
            raw: address.to_owned(),
            host,
            repository: repository.to_owned(),
            path: path.to_owned(),
            reference: String::new(),
            timeout: Duration::from_secs(27),
            submodules: true,
        };
        found.read_query(query);
        Some(found)
    }

    /// The address as written.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// What `git` is given.
    pub fn url(&self) -> String {
        format!("{}{}", self.host, self.repository)
    }

    /// The path of the repository on its host.
    pub fn repository(&self) -> &str {
        self.repository.trim_end_matches('/')
    }

    /// The name of its host, without user and port; a word of its own for what is none.
    pub fn host_name(&self) -> &str {
        let host = match self.host.split_once("://") {
            Some(("file", _)) => return "file-schemed",
            Some((_, host)) => host,
            None if self.host == "gh:" => return "gh",
            None => &self.host,
        };
        let host = host.rsplit('@').next().unwrap_or(host);
        host.split([':', '/']).next().unwrap_or(host)
    }

    /// Whether it lies on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.host == "file://"
    }

    /// The directory in the repository; empty is its top.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The branch, tag or commit; empty is the default one.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// How long `git` may take: at most an hour, whatever the address says.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether submodules are wanted.
    pub fn submodules(&self) -> bool {
        self.submodules
    }

    fn read_query(&mut self, query: &str) {
        let mut version = String::new();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() {
                continue;
            }
            match key {
                "ref" if self.reference.is_empty() => self.reference = value.to_owned(),
                "version" if version.is_empty() => version = value.to_owned(),
                "timeout" => {
                    let seconds = value.strip_suffix('s').unwrap_or(value);
                    if let Ok(seconds @ 1..) = seconds.parse() {
                        self.timeout = Duration::from_secs(LONGEST.min(seconds));
                    }
                }
                "submodules" => match value {
                    "0" | "f" | "F" | "false" | "FALSE" | "False" => self.submodules = false,
                    _ => {}
                },
                _ => {}
            }
        }
        if self.reference.is_empty() {
            self.reference = version;
        }
    }
}

fn strip_prefix_any_case<'s>(text: &'s str, prefix: &str) -> Option<&'s str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// The part that names scheme, user and host, and the rest.
fn split_host(address: &str) -> Option<(String, &str)> {
    let rest = strip_prefix_any_case(address, "git::").unwrap_or(address);
    let (scheme, rest) = SCHEMES
        .iter()
        .find_map(|scheme| strip_prefix_any_case(rest, scheme).map(|rest| (*scheme, rest)))
        .unwrap_or(("", rest));
    let (user, after_user) = split_user(rest);
    let github = ["github.com/", "github.com:"]
        .iter()
        .any(|host| strip_prefix_any_case(after_user, host).is_some());
    // `user@host:path` has no scheme; everything else without one is a path on this machine.
    let colon_ends_host = scheme.is_empty() && (!user.is_empty() || github);
    if scheme.is_empty() && !colon_ends_host {
        return None;
    }
    if scheme == "file://" {
        return Some((scheme.to_owned(), rest));
    }
    let mut end = after_user.find('/');
    if colon_ends_host {
        let colon = after_user.find(':');
        match (end, colon) {
            (None, colon) => end = colon,
            (Some(slash), Some(colon)) if colon > 0 && colon < slash => end = Some(colon),
            _ => {}
        }
    }
    let (host, path) = end.map_or((after_user, ""), |at| after_user.split_at(at + 1));
    if github {
        return if scheme == "ssh://" || !user.is_empty() {
            Some((format!("{user}github.com:"), path))
        } else {
            Some(("https://github.com/".to_owned(), path))
        };
    }
    (!host.is_empty()).then(|| (format!("{scheme}{user}{host}"), path))
}

fn split_user(text: &str) -> (&str, &str) {
    match text.split_once('@') {
        Some((user, _))
            if user.starts_with(|c: char| c.is_ascii_alphabetic())
                && user.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') =>
        {
            text.split_at(user.len() + 1)
        }
        _ => ("", text),
    }
}

/// The repository and the directory in it.
fn split_path(path: &str, whole: bool) -> Option<(&str, &str)> {
    if let Some(at) = path.find("_git/") {
        let start = at + "_git/".len();
        let end = path[start..].find('/').map_or(path.len(), |slash| start + slash);
        return Some((&path[..end], &path[(end + 1).min(path.len())..]));
    }
    if let Some((repository, rest)) = path.split_once("//") {
        return Some((repository, rest));
    }
    if let Some(at) = path.find(".git") {
        return Some(path.split_at(at + ".git".len()));
    }
    if whole {
        return Some((path, ""));
    }
    let (_, after_owner) = path.split_once('/')?;
    let owner = path.len() - after_owner.len();
    match after_owner.find('/') {
        Some(slash) => Some((&path[..owner + slash], &path[owner + slash + 1..])),
        None => Some((path, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        for path in ["a.yaml", "../base", "/abs", "github.com", "base/overlay", "./x.git"] {
            assert_eq!(Repository::parse(path), None, "{path}");
        }
        let cases = [
            ("github.com/o/r/p/q?ref=v1", "https://github.com/o/r", "p/q", "v1"),
            ("https://h.example/o/r.git/p", "https://h.example/o/r.git", "p", ""),
            ("https://h.example/a/b/c//p?version=2", "https://h.example/a/b/c", "p", "2"),
            ("git@github.com:o/r.git", "git@github.com:o/r.git", "", ""),
            ("git@h.example:o/r//p", "git@h.example:o/r", "p", ""),
            ("ssh://git@h.example/o/r", "ssh://git@h.example/o/r", "", ""),
            ("https://dev.example/o/p/_git/r/k", "https://dev.example/o/p/_git/r", "k", ""),
            ("file:///tmp/r//k", "file:///tmp/r", "k", ""),
        ];
        for (address, url, path, reference) in cases {
            let found = Repository::parse(address).unwrap_or_else(|| panic!("{address}"));
            assert_eq!(
                (found.url().as_str(), found.path(), found.reference()),
                (url, path, reference)
            );
        }
        assert_eq!(Repository::parse("https://h.example/o/r//../x"), None);
    }

    #[test]
    fn an_address_chooses_no_endless_time() {
        for (written, seconds) in
            [("60s", 60), ("7200", 3600), ("18446744073709551615", 3600), ("0", 27), ("x", 27)]
        {
            let address = format!("https://h.example/o/r//p?timeout={written}");
            let found = Repository::parse(&address).unwrap();
            assert_eq!(found.timeout(), Duration::from_secs(seconds), "{written}");
        }
    }
}
