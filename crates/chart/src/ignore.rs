//! `.helmignore`: which files of a directory are not part of the chart.

use crate::error::{ChartError, Result};

/// The rules of a `.helmignore`, in their order.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules(Vec<IgnoreRule>);

#[derive(Debug)]
struct IgnoreRule {
    pattern: Vec<char>,
    negated: bool,
    directories_only: bool,
    /// Whether it is compared with the whole path, not with the last name alone.
    whole_path: bool,
}

impl IgnoreRules {
    pub(crate) fn parse(&mut self, text: &[u8]) -> Result<()> {
        let text = String::from_utf8_lossy(text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text));
        text.lines().try_for_each(|line| self.add(line))
    }

    /// What is ignored in any case: files in `templates` that begin with a dot.
    pub(crate) fn add_defaults(&mut self) {
        let _ = self.add("templates/.?*");
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.contains("**") {
            return Err(ChartError::new("double-star (**) syntax is not supported")
                .hint("name each level of directories in .helmignore"));
        }
        let is_pattern = matches(&line.chars().collect::<Vec<_>>(), &['a', 'b', 'c']).is_some();
        if !is_pattern {
            return Err(ChartError::new("syntax error in pattern"));
        }
        let negated = line.starts_with('!');
        let line = line.strip_prefix('!').unwrap_or(line);
        let directories_only = line.ends_with('/');
        let line = line.strip_suffix('/').unwrap_or(line);
        let whole_path = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        let pattern = line.chars().collect();
        self.0.push(IgnoreRule { pattern, negated, directories_only, whole_path });
        Ok(())
    }

    /// Whether a file is ignored. A negated rule ignores everything that it does not match, as in Helm.
    pub(crate) fn ignores(&self, path: &str, is_directory: bool) -> bool {
        for rule in &self.0 {
            let name = if rule.whole_path { path } else { path.rsplit('/').next().unwrap_or(path) };
            let name: Vec<char> = name.chars().collect();
            let matched = matches(&rule.pattern, &name).unwrap_or(false);
            match rule.negated {
                true if rule.directories_only && !is_directory => return true,
                true if !matched => return true,
                true => {}
                false if rule.directories_only && !is_directory => {}
                false if matched => return true,
                false => {}
            }
        }
        false
    }
}

/// Go's `filepath.Match`: `*` and `?` do not match a slash. `None` if the pattern is not one.
fn matches(pattern: &[char], name: &[char]) -> Option<bool> {
    // Where the last star stands, and how much of the name it took: there is no need to go back further.
    let (mut at, mut position) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut failed = false;
    while at < pattern.len() || position < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, position));
                at += 1;
                continue;
            }
            None => None,
            Some('?') => name.get(position).filter(|c| **c != '/').map(|_| at + 1),
            Some('[') => {
                let (end, fits) = class(pattern, at, name.get(position).copied())?;
                fits.then_some(end)
            }
            Some('\\') => {
                let literal = pattern.get(at + 1)?;
                (name.get(position) == Some(literal)).then_some(at + 2)
            }
            Some(literal) => (name.get(position) == Some(literal)).then_some(at + 1),
        };
        match (step, star) {
            (Some(next), _) => (at, position) = (next, position + 1),
            (None, Some((star_at, taken))) if name.get(taken).is_some_and(|c| *c != '/') => {
                star = Some((star_at, taken + 1));
                (at, position) = (star_at + 1, taken + 1);
            }
            (None, _) => {
                failed = true;
                break;
            }
        }
    }
    // The rest of the pattern must be one, too.
    while failed && at < pattern.len() {
        at = match pattern[at] {
            '[' => class(pattern, at, None)?.0,
            '\\' => {
                pattern.get(at + 1)?;
                at + 2
            }
            _ => at + 1,
        };
    }
    Some(!failed)
}

/// A class in brackets: where it ends, and whether it has the character.
fn class(pattern: &[char], start: usize, c: Option<char>) -> Option<(usize, bool)> {
    let mut at = start + 1;
    let negated = pattern.get(at) == Some(&'^');
    at += usize::from(negated);
    let (mut found, mut any) = (false, false);
    let bound = |at: &mut usize| -> Option<char> {
        let mut c = *pattern.get(*at)?;
        if c == '-' || c == ']' {
            return None;
        }
        if c == '\\' {
            *at += 1;
            c = *pattern.get(*at)?;
        }
        *at += 1;
        Some(c)
    };
    loop {
        if any && pattern.get(at) == Some(&']') {
            at += 1;
            break;
        }
        let from = bound(&mut at)?;
        let mut to = from;
        if pattern.get(at) == Some(&'-') {
            at += 1;
            to = bound(&mut at)?;
        }
        any = true;
        found |= c.is_some_and(|c| from <= c && c <= to);
    }
    // Go: a class has no slash.
    Some((at, c.is_some_and(|c| c != '/') && found != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(rules: &str, path: &str, is_directory: bool) -> bool {
        let mut all = IgnoreRules::default();
        all.parse(rules.as_bytes()).unwrap();
        all.add_defaults();
        all.ignores(path, is_directory)
    }

    #[test]
    fn rules_match_names_paths_and_directories() {
        for (rules, path, is_directory, wanted) in [
            ("", "templates/.swp", false, true),
            ("", "templates/a.yaml", false, false),
            ("*.txt", "a/b.txt", false, true),
            ("a/*.txt", "a/b.txt", false, true),
            ("a/*.txt", "a/b/c.txt", false, false),
            ("/b.txt", "b.txt", false, true),
            ("/b.txt", "a/b.txt", false, false),
            ("ci/", "ci", true, true),
            ("ci/", "ci", false, false),
            ("[a-c]x", "bx", false, true),
            ("[^a-c]x", "bx", false, false),
            ("# x\n\nx", "x", false, true),
            ("!keep.txt", "other", false, true),
            ("!keep.txt", "keep.txt", false, false),
            ("a\\*b", "a*b", false, true),
            ("*a*b*", "xaxbx", false, true),
        ] {
            assert_eq!(ignored(rules, path, is_directory), wanted, "{rules:?} {path}");
        }
    }

    #[test]
    fn what_is_not_a_pattern_is_refused() {
        for rules in ["a/**", "[a", "a\\", "[]"] {
            assert!(IgnoreRules::default().parse(rules.as_bytes()).is_err(), "{rules}");
        }
    }
}
