//! Paths as text, as Go's `path.Clean` has them.

/// The shortest equivalent path: no `.`, no `x/..`, no double or final slash. The empty path is `.`.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                _ if rooted => {}
                _ => parts.push(".."),
            },
            name => parts.push(name),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_by_their_text() {
        for (path, cleaned) in [
            ("", "."),
            ("a/../..", ".."),
            ("a/../../b/..", ".."),
            ("/../a/./b//c/..", "/a/b"),
            ("./", "."),
            ("//", "/"),
            ("..//..", "../.."),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
    }
}
