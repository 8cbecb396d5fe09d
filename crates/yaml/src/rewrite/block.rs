//! Maps and lists with one entry on each line.

use std::ops::Range;

use kiln_value::{Key, List, Map, Value};

use super::{Around, RewriteResult, Rewriter, Unclear, pairing};
use crate::emitter::emit::emit;
use crate::span::{Parts, Spot};

type BlockEntry = (Key, Range<usize>, Spot);

impl Rewriter<'_> {
    pub(super) fn block_map(
        &mut self,
        spot: &Spot,
        entries: &[BlockEntry],
        from: &Map,
        to: &Map,
        is_document: bool,
    ) -> RewriteResult {
        let first = entries.first().ok_or(Unclear)?;
        let indent = self.column(first.1.start);
        let inside = spot.span();
        let renamed = renamed(from, to);
        let mut removed = 0;
        for (at, entry) in entries.iter().enumerate() {
            let (key, key_span, value) = entry;
            let old = from.get(key).ok_or(Unclear)?;
            if to.get(key) == Some(old) {
                continue;
            }
            // What a merge key brought in stands elsewhere.
            if key_span.start < inside.start || key_span.end > inside.end {
                return Err(Unclear);
            }
            if let Some((_, name)) = renamed.iter().find(|(old, _)| *old == key) {
                self.splice(
                    key_span.clone(),
                    emit(&Value::from(name.as_str())).trim_end().to_owned(),
                );
            } else if let Some(new) = to.get(key) {
                let small = self.attempt(|this| this.change(value, old, new, &Around::Block));
                if small.is_err() {
                    self.replace_entry(entry, new, indent)?;
                }
            } else {
                removed += 1;
                let next = entries.get(at + 1).map(|(_, key, _)| key.start);
                self.remove_entry(entry, next, removed == 1 && at == 0)?;
            }
        }
        self.insert_entries(entries, from, to, &renamed, indent, is_document)
    }

    fn insert_entries(
        &mut self,
        entries: &[BlockEntry],
        from: &Map,
        to: &Map,
        renamed: &[(&Key, &Key)],
        indent: usize,
        is_document: bool,
    ) -> RewriteResult {
        // The old entry after which new ones go.
        let mut after: Option<usize> = None;
        for (key, value) in to {
            let was = renamed.iter().find(|(_, new)| *new == key).map_or(key, |(old, _)| *old);
            if from.contains_key(was) {
                after = entries.iter().position(|(old, ..)| old == was);
                continue;
            }
            let text = self.entry_text(key, value, indent);
            let pad = " ".repeat(indent);
            match after {
                Some(at) if is_document && self.alone && self.is_last(entries, at, to) => {
                    let end = self.text.len();
                    let newline = self.text.ends_with('\n');
                    let text =
                        if newline { format!("{pad}{text}\n") } else { format!("\n{pad}{text}") };
                    self.splice(end..end, text);
                }
                Some(at) => {
                    let end = self.line_end(self.entry_end(&entries[at]));
                    self.splice(end..end, format!("\n{pad}{text}"));
                }
                None => {
                    let start = entries.first().ok_or(Unclear)?.1.start;
                    if self.is_first_on_line(start) {
                        let start = self.line_start(start);
                        self.splice(start..start, format!("{pad}{text}\n"));
                    } else {
                        self.splice(start..start, format!("{text}\n{pad}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether no old entry that stays comes after this one in the text.
    fn is_last(&self, entries: &[BlockEntry], at: usize, to: &Map) -> bool {
        entries[at + 1..].iter().all(|(key, ..)| !to.contains_key(key))
    }

    pub(super) fn block_list(
        &mut self,
        elements: &[Spot],
        from: &List,
        to: &List,
    ) -> RewriteResult {
        let paired = pairing::pair(from, to);
        let mut dashes = Vec::with_capacity(elements.len());
        for element in elements {
            dashes.push(self.dash(element)?);
        }
        let indent = self.column(*dashes.first().ok_or(Unclear)?);
        for (at, element) in elements.iter().enumerate() {
            match paired.iter().position(|old| *old == Some(at)) {
                Some(new) => self.change_element(element, &from[at], &to[new], indent)?,
                None => {
                    if !self.is_first_on_line(dashes[at]) {
                        return Err(Unclear);
                    }
                    let end = self.line_end(self.end(element).max(dashes[at] + 1));
                    let range = self.lines(self.line_start(dashes[at])..end);
                    self.splice(range, String::new());
                }
            }
        }
        let mut after = None;
        for (new, was) in to.iter().zip(paired) {
            if was.is_some() {
                after = was;
                continue;
            }
            let pad = " ".repeat(indent);
            let text = shifted(&emit(new), indent + 2);
            match after {
                Some(at) => {
                    let end = self.line_end(self.end(&elements[at]).max(dashes[at] + 1));
                    self.splice(end..end, format!("\n{pad}- {text}"));
                }
                None if self.is_first_on_line(dashes[0]) => {
                    let start = self.line_start(dashes[0]);
                    self.splice(start..start, format!("{pad}- {text}\n"));
                }
                None => return Err(Unclear),
            }
        }
        Ok(())
    }

    fn change_element(
        &mut self,
        spot: &Spot,
        from: &Value,
        to: &Value,
        indent: usize,
    ) -> RewriteResult {
        let small = self.attempt(|this| this.change(spot, from, to, &Around::Block));
        if small.is_ok() {
            return Ok(());
        }
        let start = spot.span().start;
        let text = shifted(&emit(to), indent + 2);
        let range = start..self.end(spot).max(start);
        let gap = if self.text[..start].ends_with('-') { " " } else { "" };
        self.splice(range, format!("{gap}{text}"));
        Ok(())
    }

    /// Writes the value of a key anew.
    fn replace_entry(&mut self, entry: &BlockEntry, to: &Value, indent: usize) -> RewriteResult {
        let (_, key, value) = entry;
        let colon = self.colon(key)?;
        let line_end = self.line_end(colon);
        let span = value.span();
        let end = self.entry_end(entry);
        let text = self.value_text(to, indent);
        if span.start <= line_end {
            self.splice(colon..end, text);
            return Ok(());
        }
        // A comment behind the key stays there.
        let begins_below = text.starts_with('\n');
        if begins_below {
            self.splice(line_end..end, text);
        } else {
            self.splice(colon..colon, text);
            self.splice(line_end..end, String::new());
        }
        Ok(())
    }

    fn remove_entry(
        &mut self,
        entry: &BlockEntry,
        next: Option<usize>,
        is_first: bool,
    ) -> RewriteResult {
        let start = entry.1.start;
        if self.is_first_on_line(start) {
            let end = self.line_end(self.entry_end(entry));
            let range = self.lines(self.line_start(start)..end);
            self.splice(range, String::new());
            return Ok(());
        }
        match next {
            Some(next) if is_first => {
                self.splice(start..next, String::new());
                Ok(())
            }
            _ => Err(Unclear),
        }
    }

    /// A key and its value, without the indentation of the first line and without a line break at the end.
    fn entry_text(&self, key: &Key, value: &Value, indent: usize) -> String {
        let key = emit(&Value::from(key.as_str()));
        format!("{}:{}", key.trim_end_matches('\n'), self.value_text(value, indent))
    }

    /// What follows the colon.
    fn value_text(&self, value: &Value, indent: usize) -> String {
        let text = emit(value);
        match value {
            Value::Map(map) if !map.is_empty() => {
                let indent = indent + 2;
                format!("\n{}{}", " ".repeat(indent), shifted(&text, indent))
            }
            Value::List(list) if !list.is_empty() => {
                let indent = indent + self.list_step;
                format!("\n{}{}", " ".repeat(indent), shifted(&text, indent))
            }
            _ => format!(" {}", shifted(&text, indent)),
        }
    }

    /// How far below their keys the lists of this document stand.
    pub(super) fn usual_list_step(&self, root: &Spot) -> usize {
        let Parts::Map(entries) = root.parts() else { return 0 };
        entries
            .iter()
            .find_map(|(_, key, value)| {
                let Parts::List(elements) = value.parts() else { return None };
                let dash = self.dash(elements.first()?).ok()?;
                self.column(dash).checked_sub(self.column(key.start))
            })
            .unwrap_or(0)
    }

    /// Where the dash of an element is.
    fn dash(&self, element: &Spot) -> Result<usize, Unclear> {
        let before = self.text[..element.span().start].trim_end_matches(' ');
        if before.ends_with('-') { Ok(before.len() - 1) } else { Err(Unclear) }
    }

    /// The end of the colon behind a key.
    fn colon(&self, key: &Range<usize>) -> Result<usize, Unclear> {
        let rest = &self.text[key.end..];
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        if rest[gap..].starts_with(':') { Ok(key.end + gap + 1) } else { Err(Unclear) }
    }

    /// Where the text of a node ends, without the line breaks behind it.
    fn end(&self, spot: &Spot) -> usize {
        let span = spot.span();
        let last = last_scalar(spot).span();
        let text = &self.text[last.clone()];
        let header = text.split_ascii_whitespace().next().unwrap_or_default();
        // What an alias stands for may be written elsewhere.
        let is_inside = span.start <= last.start && last.end <= span.end;
        if is_inside && header.starts_with(['|', '>']) && header.contains('+') {
            // The empty lines behind it are its own.
            return last.start + text.strip_suffix('\n').unwrap_or(text).len();
        }
        let start = span.start;
        start + self.text[span].trim_end().len()
    }

    fn entry_end(&self, (_, key, value): &BlockEntry) -> usize {
        let end = self.end(value);
        let colon = self.colon(key).unwrap_or(key.end);
        // Nothing written as value: its place may be anywhere behind the key.
        if value.span().is_empty() || end < colon { colon } else { end }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        at + line.strip_suffix('\r').unwrap_or(line).len()
    }

    /// Whole lines with their line break: the one behind them or, at the end of the text, the one before.
    fn lines(&self, range: Range<usize>) -> Range<usize> {
        let rest = &self.text[range.end..];
        let after = rest.strip_prefix('\r').unwrap_or(rest);
        match after.strip_prefix('\n') {
            Some(after) => range.start..self.text.len() - after.len(),
            None => self.text[..range.start].trim_end_matches(['\r', '\n']).len()..range.end,
        }
    }

    fn column(&self, at: usize) -> usize {
        self.text[self.line_start(at)..at].chars().count()
    }

    fn is_first_on_line(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].bytes().all(|b| b == b' ')
    }
}

/// The scalar or empty collection that a node ends with.
fn last_scalar(spot: &Spot) -> &Spot {
    let last = match spot.parts() {
        Parts::Map(entries) => entries.last().map(|(_, _, value)| value),
        Parts::List(elements) => elements.last(),
        Parts::Scalar => None,
    };
    last.map_or(spot, last_scalar)
}

/// Fields that have the same value under another name: their text can stay.
fn renamed<'m>(from: &'m Map, to: &'m Map) -> Vec<(&'m Key, &'m Key)> {
    let mut pairs: Vec<(&Key, &Key)> = Vec::new();
    for (old, value) in from.iter().filter(|(old, _)| !to.contains_key(old)) {
        let is_collection = matches!(value, Value::List(_) | Value::Map(_));
        let new = to.iter().find(|(new, other)| {
            !from.contains_key(new)
                && is_collection
                && *other == value
                && pairs.iter().all(|(_, taken)| taken != new)
        });
        if let Some((new, _)) = new {
            pairs.push((old, new));
        }
    }
    pairs
}

/// A printed value, its lines from the second on this much further right, without the last line break.
fn shifted(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
            if !line.is_empty() {
                out.push_str(&pad);
            }
        }
        out.push_str(line);
    }
    out
}
