//! Packaged charts from repositories and registries, and the cache of them.
//!
//! Whatever is fetched is checked against the digest that the index or the manifest names, and kept in
//! `$XDG_CACHE_HOME/kiln/charts`: a version that is there is not fetched again, and is all that there is offline.

use std::path::{Path, PathBuf};

use kiln_chart::repository::{
    IndexEntry, chart_in_manifest, check_digest, digest_of, find_in_index, newest, read_tags,
    tag_of,
};
use kiln_kustomize::{ChartSource, Error, Result};
use kiln_value::{KeyTable, Value, json};

use super::{FetchRequest, FetchResponse, get, host_of, redirected, request};

const OCI: &str = "oci://";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// How many pages of tags are read.
const MOST_PAGES: usize = 100;

/// Where a package comes from, and what it should be.
struct PackageSource {
    version: String,
    package: Vec<u8>,
}

/// A packaged chart: from the cache, or from where it is published.
pub(super) fn fetch(chart: &ChartSource<'_>, offline: bool, most_bytes: u64) -> Result<Vec<u8>> {
    check_names(chart)?;
    let cache = Cache::of(chart);
    let is_exact = kiln_gotemplate::is_version(chart.version);
    if let Some(cache) = &cache
        && (offline || is_exact)
        && let Some(package) = cache.find(chart)
    {
        return Ok(package);
    }
    if offline {
        return Err(Error::new(format!(
            "the chart {} lies elsewhere ({}), and this build is offline",
            chart.name, chart.repository
        ))
        .hint(
            "build once without --offline and KILN_OFFLINE, which keeps the chart in the cache",
        ));
    }
    let found = match chart.repository.strip_prefix(OCI) {
        Some(registry) => from_registry(chart, registry, most_bytes)?,
        None => from_repository(chart, most_bytes)?,
    };
    if let Some(cache) = &cache {
        cache.keep(chart, &found);
    }
    Ok(found.package)
}

/// Names and versions become parts of addresses and of files.
fn check_names(chart: &ChartSource<'_>) -> Result<()> {
    let is_part = |text: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !text.is_empty() && !text.starts_with('.') && text.chars().all(fits)
    };
    // Below a registry, charts may lie in directories.
    if chart.name.split('/').all(is_part) {
        return Ok(());
    }
    Err(Error::new(format!("'{}' is not the name of a chart", chart.name)))
}

fn failed(error: &kiln_chart::ChartError) -> Error {
    let hint = error.diagnostic().hint.clone().unwrap_or_default();
    Error::new(error.to_string()).hint(hint)
}

fn from_repository(chart: &ChartSource<'_>, most_bytes: u64) -> Result<PackageSource> {
    let repository = chart.repository.trim_end_matches('/');
    let index = get(&format!("{repository}/index.yaml"), most_bytes)?;
    let entry = find_in_index(&index, chart.name, chart.version, chart.devel)
        .map_err(|error| failed(&error))?;
    let url = package_url(repository, &entry)?;
    let package = match url.strip_prefix(OCI) {
        // Some indexes lead to a registry, with the tag in the address.
        Some(address) => {
            let (registry, name, tag) = in_registry(address, chart.name, &entry.version);
            let chart = ChartSource { name, version: tag, ..*chart };
            from_registry(&chart, registry, most_bytes)?.package
        }
        None => get(&url, most_bytes)?,
    };
    if !entry.digest.is_empty() {
        check_digest(&url, &package, &entry.digest).map_err(|error| failed(&error))?;
    }
    Ok(PackageSource { version: entry.version, package })
}

/// Where the package of an entry of an index is.
fn package_url(repository: &str, entry: &IndexEntry) -> Result<String> {
    let url = match entry.url.contains("://") {
        true => entry.url.clone(),
        false => format!("{repository}/{}", entry.url.trim_start_matches('/')),
    };
    let is_safe = |url: &str| url.starts_with("https://") || url.starts_with(OCI);
    if entry.digest.is_empty() && is_safe(repository) && !is_safe(&url) {
        return Err(Error::new(format!(
            "{repository} has no digest for {url}, an address without https"
        ))
        .hint("put the chart into chartHome, or let helm fetch it: --enable-helm=external"));
    }
    Ok(url)
}

/// The registry, name and tag in an address; what it does not say is as the index has it.
fn in_registry<'a>(
    address: &'a str,
    name: &'a str,
    version: &'a str,
) -> (&'a str, &'a str, &'a str) {
    let (path, tag) = match address.rsplit_once(':') {
        // What follows the last colon may also be the port of the registry.
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (address, version),
    };
    let (registry, name) = path.rsplit_once('/').unwrap_or((path, name));
    (registry, name, tag)
}

fn from_registry(
    chart: &ChartSource<'_>,
    registry: &str,
    most_bytes: u64,
) -> Result<PackageSource> {
    let registry = registry.trim_end_matches('/');
    let (host, directory) = registry.split_once('/').unwrap_or((registry, ""));
    let path = match directory {
        "" => chart.name.to_owned(),
        directory => format!("{directory}/{}", chart.name),
    };
    let base = format!("{}://{host}/v2/{path}", scheme(host));
    let mut session = RegistrySession { token: None, most_bytes };
    let version = match kiln_gotemplate::is_version(chart.version) {
        true => chart.version.to_owned(),
        false => {
            let tags = session.tags(&base)?;
            let tags = tags.iter().map(String::as_str);
            let found = newest(tags, chart.version, chart.devel).map(str::to_owned);
            found.ok_or_else(|| {
                Error::new(format!(
                    "the registry has no version {} of {}",
                    chart.version, chart.name
                ))
            })?
        }
    };
    let tag = tag_of(&version);
    let manifest = session.get(&format!("{base}/manifests/{tag}"), MANIFEST)?;
    let digest = chart_in_manifest(&manifest).map_err(|error| failed(&error))?;
    let url = format!("{base}/blobs/{digest}");
    let package = session.get(&url, "")?;
    check_digest(&url, &package, &digest).map_err(|error| failed(&error))?;
    Ok(PackageSource { version, package })
}

/// Registries speak HTTPS, but for those of this machine.
fn scheme(host: &str) -> &'static str {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    match name {
        "localhost" | "127.0.0.1" | "[::1]" => "http",
        _ => "https",
    }
}

/// What a registry is asked with: the token that it sends clients for.
struct RegistrySession {
    token: Option<String>,
    most_bytes: u64,
}

impl RegistrySession {
    fn get(&mut self, url: &str, accept: &str) -> Result<Vec<u8>> {
        self.ask(url, accept)?.content(url)
    }

    fn ask(&mut self, url: &str, accept: &str) -> Result<FetchResponse> {
        let ask = |token: Option<&str>| {
            request(&FetchRequest { url, accept, token, most_bytes: self.most_bytes })
        };
        let answer = ask(self.token.as_deref())?;
        let challenge = match (answer.status, &answer.challenge) {
            (401, Some(challenge)) if self.token.is_none() => challenge.clone(),
            _ => return Ok(answer),
        };
        let token = token(&challenge, self.most_bytes)?;
        let answer = ask(Some(&token));
        self.token = Some(token);
        answer
    }

    /// All tags of a repository, page by page.
    fn tags(&mut self, base: &str) -> Result<Vec<String>> {
        let mut tags = Vec::new();
        let mut url = format!("{base}/tags/list");
        for _ in 0..MOST_PAGES {
            let mut answer = self.ask(&url, "")?;
            let next = answer.next.take();
            let page = answer.content(&url)?;
            tags.extend(read_tags(&page).map_err(|error| failed(&error))?);
            let Some(next) = next else { return Ok(tags) };
            let next = redirected(&url, &next)?;
            if host_of(&next) != host_of(&url) {
                return Err(Error::new(format!("{url} continues at {next}, another server")));
            }
            url = next;
        }
        Err(Error::new(format!("{base} has more than {MOST_PAGES} pages of tags"))
            .hint("name the version of the chart"))
    }
}

/// A token for a client without credentials, from where the registry says.
fn token(challenge: &str, most_bytes: u64) -> Result<String> {
    let refused = |why: &str| {
        Error::new(format!("the registry asks for credentials: {why}"))
            .hint("put the chart into chartHome, or let helm fetch it: --enable-helm=external")
    };
    let parts = challenge.strip_prefix("Bearer ").ok_or_else(|| refused("it takes no tokens"))?;
    let part = |name: &str| {
        let at = parts.find(&format!("{name}=\""))? + name.len() + 2;
        parts[at..].split('"').next()
    };
    let realm = part("realm").ok_or_else(|| refused("it does not say where"))?;
    let host = realm.split("://").nth(1).and_then(|rest| rest.split('/').next());
    let is_safe = realm.starts_with("https://") || host.is_some_and(|host| scheme(host) == "http");
    if !is_safe {
        return Err(refused("it sends clients to an address without https"));
    }
    let mut url = realm.to_owned();
    for name in ["service", "scope"] {
        if let Some(value) = part(name) {
            let separator = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{separator}{name}={}", encoded(value));
        }
    }
    let answer = get(&url, most_bytes)?;
    let answer = json::parse_bytes(&answer, &mut KeyTable::new()).unwrap_or(Value::Null);
    let token = answer.str_at(["token"]).or_else(|| answer.str_at(["access_token"]));
    token
        .map(str::to_owned)
        .ok_or_else(|| refused("it gives no token to clients without credentials"))
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The packages of one repository on this machine.
struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The cache for a repository, if the user has a directory for caches.
    fn of(chart: &ChartSource<'_>) -> Option<Self> {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let caches =
            absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        let repository = digest_of(chart.repository.trim_end_matches('/').as_bytes());
        Some(Cache { directory: caches.join("kiln/charts").join(&repository[..32]) })
    }

    fn file(&self, chart: &ChartSource<'_>, version: &str, ending: &str) -> PathBuf {
        let name = format!("{}@{version}.{ending}", chart.name.replace('/', "%"));
        self.directory.join(name)
    }

    /// The package that fits best, if it is still what was fetched.
    fn find(&self, chart: &ChartSource<'_>) -> Option<Vec<u8>> {
        let prefix = format!("{}@", chart.name.replace('/', "%"));
        let mut versions = Vec::new();
        for entry in std::fs::read_dir(&self.directory).ok()?.flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let version = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".tgz"));
            versions.extend(version.map(str::to_owned));
        }
        let version = newest(versions.iter().map(String::as_str), chart.version, chart.devel)?;
        let package = std::fs::read(self.file(chart, version, "tgz")).ok()?;
        let digest = std::fs::read_to_string(self.file(chart, version, "sha256")).ok()?;
        check_digest("it", &package, digest.trim()).ok().map(|()| package)
    }

    /// Keeps a package. A machine without room for it does without.
    fn keep(&self, chart: &ChartSource<'_>, found: &PackageSource) {
        if !kiln_gotemplate::is_version(&found.version) {
            return;
        }
        let write = |path: &Path, content: &[u8]| {
            // Others may read it meanwhile.
            let unfinished = path.with_extension(format!("{}.part", std::process::id()));
            std::fs::write(&unfinished, content).and_then(|()| std::fs::rename(&unfinished, path))
        };
        let _ = std::fs::create_dir_all(&self.directory).and_then(|()| {
            write(&self.file(chart, &found.version, "tgz"), &found.package)?;
            let digest = digest_of(&found.package) + "\n";
            write(&self.file(chart, &found.version, "sha256"), digest.as_bytes())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registries_of_this_machine_speak_plain_http() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:80", "[::1]:5000"] {
            assert_eq!(scheme(host), "http", "{host}");
        }
        for host in ["h.example", "localhost.h.example", "127.0.0.1.h.example:80", "10.0.0.1"] {
            assert_eq!(scheme(host), "https", "{host}");
        }
    }

    #[test]
    fn packages_without_a_digest_are_not_fetched_without_https() {
        let entry = |url: &str, digest: &str| IndexEntry {
            version: "1.0.0".to_owned(),
            url: url.to_owned(),
            digest: digest.to_owned(),
        };
        for (repository, url, digest, wanted) in [
            ("https://h.example/c", "web.tgz", "", Some("https://h.example/c/web.tgz")),
            ("https://h.example/c", "https://i.example/w.tgz", "", Some("https://i.example/w.tgz")),
            ("https://h.example/c", "http://i.example/w.tgz", "aa", Some("http://i.example/w.tgz")),
            ("https://h.example/c", "http://i.example/w.tgz", "", None),
            ("http://h.example/c", "/w.tgz", "", Some("http://h.example/c/w.tgz")),
        ] {
            let found = package_url(repository, &entry(url, digest)).ok();
            assert_eq!(found.as_deref(), wanted, "{repository} {url} {digest}");
        }
    }

    #[test]
    fn a_port_of_a_registry_is_not_a_tag() {
        for (address, wanted) in [
            ("h.example/team/web:2.0.0", ("h.example/team", "web", "2.0.0")),
            ("h.example:5000/team/web:2.0.0", ("h.example:5000/team", "web", "2.0.0")),
            ("h.example:5000/team/web", ("h.example:5000/team", "web", "1.0.0")),
        ] {
            assert_eq!(in_registry(address, "chart", "1.0.0"), wanted, "{address}");
        }
    }

    #[test]
    fn names_of_charts_lead_nowhere_else() {
        let chart = |name| ChartSource { repository: "", name, version: "", devel: false };
        for good in ["web", "team/web", "web-2.x_y"] {
            check_names(&chart(good)).unwrap();
        }
        for bad in ["", "..", "../web", "a//b", "a/../b", "/a", "a?b", "a%2fb", "a b"] {
            assert!(check_names(&chart(bad)).is_err(), "{bad}");
        }
    }
}
