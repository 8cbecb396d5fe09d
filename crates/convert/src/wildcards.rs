//! Texts with `*` and `?` as CEL conditions.

use kiln_text::wildcard;

use crate::cel::Cel;

/// Whether a text meets a wildcard.
pub(crate) fn matches(text: Cel, pattern: &str) -> Cel {
    if !wildcard::contains_wildcard(pattern) {
        return text.equals(Cel::text(pattern));
    }
    if pattern.chars().all(|c| c == '*') {
        return Cel::bool(true);
    }
    if matches!(pattern, "?*" | "*?") {
        return text.differs(Cel::text(""));
    }
    let plain = |part: &str| !wildcard::contains_wildcard(part) && !part.is_empty();
    let starts = pattern.strip_suffix('*').filter(|part| plain(part));
    let ends = pattern.strip_prefix('*').filter(|part| plain(part));
    let inside = pattern
        .strip_prefix('*')
        .and_then(|part| part.strip_suffix('*'))
        .filter(|part| plain(part));
    if let Some(part) = inside {
        return text.call("contains", vec![Cel::text(part)]);
    }
    if let Some(part) = starts {
        return text.call("startsWith", vec![Cel::text(part)]);
    }
    if let Some(part) = ends {
        return text.call("endsWith", vec![Cel::text(part)]);
    }
    text.call("matches", vec![Cel::text(regex(pattern))])
}

/// The regular expression of a wildcard.
fn regex(pattern: &str) -> String {
    let mut regex = String::from("^");
    for c in pattern.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            c if c.is_alphanumeric()
                || matches!(c, '-' | '_' | '/' | ':' | ' ' | '@' | ',' | '=') =>
            {
                regex.push(c);
            }
            c => {
                regex.push('\\');
                regex.push(c);
            }
        }
    }
    regex.push('$');
    regex
}

/// Whether a text meets one of several wildcards: the plain ones together, the others one by one.
pub(crate) fn matches_any<'p>(text: &Cel, patterns: impl IntoIterator<Item = &'p str>) -> Cel {
    Cel::any(patterns.into_iter().map(|pattern| matches(text.clone(), pattern)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel_printer::print;

    #[test]
    fn wildcards_are_the_simplest_functions_that_say_the_same() {
        for (pattern, wanted) in [
            ("nginx", "x == 'nginx'"),
            ("nginx:*", "x.startsWith('nginx:')"),
            ("*:latest", "x.endsWith(':latest')"),
            ("*:*", "x.contains(':')"),
            ("?*", "x != ''"),
            ("*", "true"),
            ("a*b.c", r"x.matches(r'^a.*b\.c$')"),
        ] {
            assert_eq!(print(&matches(Cel::name("x"), pattern)), wanted, "{pattern}");
        }
        let any = matches_any(&Cel::name("x"), ["a", "b", "c*"]);
        assert_eq!(print(&any), "x in ['a', 'b'] || x.startsWith('c')");
    }
}
