//! Paths as text: cleaned and joined without asking any file system.
//!
//! Paths use `/`. The rules are Go's: `a/../b` is `b`, the empty path is `.`.

pub(crate) use kiln_text::path::clean;

/// Both joined and cleaned; an empty part is left out.
pub(crate) fn join(base: &str, path: &str) -> String {
    match (base.is_empty(), path.is_empty()) {
        (true, true) => String::new(),
        (true, false) => clean(path),
        (false, true) => clean(base),
        (false, false) => clean(&format!("{base}/{path}")),
    }
}

/// Where a path leads that is written down in a directory.
pub(crate) fn absolute(directory: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { join(directory, path) }
}

/// The last part.
pub(crate) fn base(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        return if path.is_empty() { "." } else { "/" };
    }
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

/// All but the last part of a cleaned absolute path.
pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => &path[..at],
        None => ".",
    }
}

/// The way from a directory to a path; both absolute and clean.
pub(crate) fn relative(directory: &str, path: &str) -> String {
    let parts = |path: &'_ str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (from, to) = (parts(directory), parts(path));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", from.len() - common);
    let way: Vec<&str> = up.chain(to[common..].iter().map(String::as_str)).collect();
    if way.is_empty() { ".".to_owned() } else { way.join("/") }
}

/// Whether `path` is `directory` or lies below it; both absolute and clean.
pub(crate) fn is_within(path: &str, directory: &str) -> bool {
    directory == "/"
        || path == directory
        || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans_as_go_does() {
        for (path, cleaned) in [
            ("", "."),
            ("a//b/", "a/b"),
            ("./a/./b", "a/b"),
            ("a/../../b", "../b"),
            ("/../a", "/a"),
            ("/", "/"),
            ("a/..", "."),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
        assert_eq!(join("/a/b", "../c"), "/a/c");
        assert_eq!(base("a/b/"), "b");
        assert_eq!(parent("/a"), "/");
        assert_eq!(parent("/a/b"), "/a");
        assert_eq!(relative("/a/b", "/a/c/d"), "../c/d");
        assert_eq!(relative("/a", "/a"), ".");
        assert_eq!(relative("/", "/a"), "a");
    }

    #[test]
    fn within_means_below_not_merely_beginning_alike() {
        assert!(is_within("/a/b", "/a"));
        assert!(is_within("/a", "/a"));
        assert!(is_within("/a", "/"));
        assert!(!is_within("/ab", "/a"));
    }
}
