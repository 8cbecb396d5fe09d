//! The comments of a YAML text, by what they belong to.

use std::ops::Range;

use kiln_value::{Path, Value};
use kiln_yaml::Places;

/// Comments that have not been written yet.
pub(super) struct Comments<'d> {
    text: &'d str,
    /// On lines of their own, by where the line begins.
    lines: Vec<(usize, &'d str)>,
    /// Behind something, by where they begin.
    behind: Vec<(usize, &'d str)>,
}

impl<'d> Comments<'d> {
    /// Finds them; `None` for texts with comments in places where they look like text. What is inside
    /// of values that are replaced goes with them.
    pub(super) fn of(
        text: &'d str,
        value: &Value,
        places: &Places,
        replaced: &[&Path],
    ) -> Option<Self> {
        let mut scalars = Vec::new();
        spans(value, &mut Path::root(), places, &mut scalars);
        let gone: Vec<Range<usize>> = replaced
            .iter()
            .filter(|path| matches!(value.get_path(**path), Some(Value::Map(_) | Value::List(_))))
            .map(|path| places.value(path).span())
            .collect();
        let mut comments = Comments { text, lines: Vec::new(), behind: Vec::new() };
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let begin = start;
            start += line.len();
            let line = line.trim_end();
            let marks = line.match_indices('#').map(|(at, _)| at);
            let mark =
                marks.filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t'])).find(|at| {
                    let at = begin + at;
                    !scalars.iter().any(|span| span.contains(&at))
                });
            let Some(mark) = mark else { continue };
            if gone.iter().any(|span| span.contains(&(begin + mark))) {
                continue;
            }
            if line[..mark].trim().is_empty() {
                comments.lines.push((begin, &line[mark..]));
            } else {
                comments.behind.push((begin + mark, &line[mark..]));
            }
        }
        // Block scalars have their comment inside of their span.
        let header = |span: &Range<usize>| {
            let written = text.get(span.clone()).unwrap_or_default();
            let first = written.lines().next().unwrap_or_default();
            written.starts_with(['|', '>']) && first.contains('#')
        };
        (!scalars.iter().any(header)).then_some(comments)
    }

    /// The comment at the beginning that a blank line sets apart, with that line.
    pub(super) fn take_top(&mut self) -> Vec<&'d str> {
        let mut end = 0;
        let mut count = 0;
        for (begin, line) in &self.lines {
            if *begin != end {
                break;
            }
            count += 1;
            end = begin + self.text[*begin..].find('\n').map_or(line.len(), |at| at + 1);
        }
        let blank = self.text[end..].lines().next().is_some_and(|line| line.trim().is_empty());
        if count == 0 || !blank {
            return Vec::new();
        }
        let mut top: Vec<&str> = self.lines.drain(..count).map(|(_, line)| line).collect();
        top.push("");
        top
    }

    /// The comments on the lines right above the line of a place.
    pub(super) fn take_above(&mut self, at: usize) -> Vec<&'d str> {
        let mut line = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let mut found = Vec::new();
        while line > 0 {
            let before = self.text[..line - 1].rfind('\n').map_or(0, |end| end + 1);
            let Some(at) = self.lines.iter().position(|(begin, _)| *begin == before) else { break };
            found.push(self.lines.remove(at).1);
            line = before;
        }
        found.reverse();
        found
    }

    /// The comment on the line of a place, behind it.
    pub(super) fn take_behind(&mut self, end: usize) -> Option<&'d str> {
        let line = end + self.text.get(end..)?.find('\n').unwrap_or(self.text.len() - end);
        let between = |mark: usize| {
            (end..line).contains(&mark)
                && self.text[end..mark].trim_matches([':', ' ', '\t']).is_empty()
        };
        let at = self.behind.iter().position(|(mark, _)| between(*mark))?;
        Some(self.behind.remove(at).1)
    }

    /// Whether all have been taken.
    pub(super) fn are_written(&self) -> bool {
        self.lines.is_empty() && self.behind.is_empty()
    }
}

/// Where the scalars and keys of a value stand.
fn spans(value: &Value, path: &mut Path, places: &Places, found: &mut Vec<Range<usize>>) {
    match value {
        Value::Map(map) => {
            for (key, inner) in map {
                path.push(key.as_str());
                found.push(places.key(path).span());
                spans(inner, path, places, found);
                path.pop();
            }
        }
        Value::List(list) => {
            for (at, inner) in list.iter().enumerate() {
                path.push(at);
                spans(inner, path, places, found);
                path.pop();
            }
        }
        _ => found.push(places.value(path).span()),
    }
}
