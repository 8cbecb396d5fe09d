//! Links and headings of Markdown pages, as far as our own pages use them.

use std::collections::BTreeSet;
use std::ops::Range;

/// A link of a page, with the places of its parts.
#[derive(Debug)]
pub struct Link {
    /// All of it, from the first bracket (or the `!` of an image) to the last.
    pub whole: Range<usize>,
    /// What is shown.
    pub text: Range<usize>,
    /// Where it leads.
    pub target: Range<usize>,
}

/// The links of a page outside of code.
pub fn links(page: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (start, line) in prose(page) {
        let mut at = 0;
        while let Some(&byte) = line.as_bytes().get(at) {
            match byte {
                b'`' => at = after_code(line, at),
                b'[' => match link(line, at) {
                    Some((text, target)) => {
                        let image = at > 0 && line.as_bytes()[at - 1] == b'!';
                        let end = target.end + 1;
                        let place = |range: Range<usize>| start + range.start..start + range.end;
                        found.push(Link {
                            whole: place(at - usize::from(image)..end),
                            text: place(text),
                            target: place(target),
                        });
                        at = end;
                    }
                    None => at += 1,
                },
                _ => at += 1,
            }
        }
    }
    found
}

/// What the headings of a page are called in addresses.
pub fn anchors(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.strip_prefix(' ').map(str::to_owned)).flatten()
    };
    prose(page).filter_map(|(_, line)| heading(line)).map(|text| anchor(&text)).collect()
}

/// The path in the project that a target means on the page at another path; a heading is not part of it.
pub fn resolve(page: &str, target: &str) -> String {
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() {
        return page.to_owned();
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a target lies outside of the project.
pub fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The lines outside of code blocks, with their offsets.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    let mut in_code = false;
    page.split_inclusive('\n').filter_map(move |line| {
        let start = offset;
        offset += line.len();
        let fence = line.trim_start().starts_with("```");
        let shown = !in_code && !fence;
        in_code ^= fence;
        shown.then_some((start, line.trim_end_matches('\n')))
    })
}

/// Behind the code that begins here, or behind its backticks if it does not end in the line.
fn after_code(line: &str, at: usize) -> usize {
    let ticks = line[at..].bytes().take_while(|byte| *byte == b'`').count();
    let begin = at + ticks;
    line[begin..].find(&line[at..begin]).map_or(begin, |end| begin + end + ticks)
}

/// Text and target of the link that begins at a bracket.
fn link(line: &str, at: usize) -> Option<(Range<usize>, Range<usize>)> {
    let mut depth = 0;
    let mut end = at;
    loop {
        match line.as_bytes().get(end)? {
            b'`' => {
                end = after_code(line, end);
                continue;
            }
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        end += 1;
    }
    let target = line[end + 1..].strip_prefix('(')?;
    let length = target.find(')')?;
    (!target[..length].contains(' ')).then_some((at + 1..end, end + 2..end + 2 + length))
}

fn anchor(heading: &str) -> String {
    // Of a link in a heading, the text counts.
    let mut text = heading.to_owned();
    for link in links(heading).iter().rev() {
        text.replace_range(link.whole.clone(), &heading[link.text.clone()]);
    }
    text.trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{anchors, links, resolve};

    #[test]
    fn links_are_found_outside_of_code() {
        let page =
            "see [`a`](b.md#c), `[no](x)` and ![p](q.svg)\n```\n[no](y)\n```\n[z [1]](../w.md)\n";
        let found: Vec<_> =
            links(page).iter().map(|l| (&page[l.text.clone()], &page[l.target.clone()])).collect();
        assert_eq!(found, [("`a`", "b.md#c"), ("p", "q.svg"), ("z [1]", "../w.md")]);
        assert_eq!(&page[links(page)[1].whole.clone()], "![p](q.svg)");
    }

    #[test]
    fn headings_are_addressed_as_hosts_do() {
        let page = "# Triggers, sources\n```\n# no\n```\n## `foreach` in [rules](x.md)\n#no\n";
        assert_eq!(
            anchors(page).into_iter().collect::<Vec<_>>(),
            ["foreach-in-rules", "triggers-sources"]
        );
    }

    #[test]
    fn targets_start_at_their_page() {
        assert_eq!(resolve("docs/guides/a.md", "../../README.md#x"), "README.md");
        assert_eq!(resolve("docs/a.md", "#x"), "docs/a.md");
        assert_eq!(resolve("README.md", "docs/b/"), "docs/b");
    }
}
