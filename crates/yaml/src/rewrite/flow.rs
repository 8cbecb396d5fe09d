//! Maps and lists in brackets.

use kiln_value::{Key, List, Map, Value};
use std::ops::Range;

use super::{Around, RewriteResult, Rewriter, Unclear, pairing};
use crate::emitter::emit::emit;
use crate::span::Spot;

impl Rewriter<'_> {
    pub(super) fn flow_list(
        &mut self,
        spot: &Spot,
        elements: &[Spot],
        from: &List,
        to: &List,
    ) -> RewriteResult {
        if from.is_empty() && !to.is_empty() && !self.json {
            // Brackets around nothing are not a wish for brackets.
            return Err(Unclear);
        }
        let spans: Vec<Range<usize>> = elements.iter().map(Spot::span).collect();
        let mut parts = Vec::with_capacity(to.len());
        for (new, was) in to.iter().zip(pairing::pair(from, to)) {
            parts.push(match was {
                Some(at) => self.flow_part(&elements[at], &from[at], new)?,
                None => self.flow_text(new),
            });
        }
        self.flow_parts(spot, &spans, &parts)
    }

    pub(super) fn flow_map(
        &mut self,
        spot: &Spot,
        entries: &[(Key, Range<usize>, Spot)],
        from: &Map,
        to: &Map,
    ) -> RewriteResult {
        let spans: Vec<Range<usize>> = entries
            .iter()
            .map(|(_, key, value)| key.start..value.span().end.max(key.end))
            .collect();
        let mut parts = Vec::with_capacity(to.len());
        for (key, new) in to {
            let old = entries.iter().position(|(old, ..)| old == key).zip(from.get(key));
            parts.push(match old {
                Some((at, old)) => {
                    let (_, key, value) = &entries[at];
                    let lead = self.text.get(key.start..value.span().start).ok_or(Unclear)?;
                    format!("{lead}{}", self.flow_part(value, old, new)?)
                }
                None if self.json => {
                    let key = kiln_value::json::to_string(&Value::from(key.as_str()));
                    format!("{key}: {}", self.flow_text(new))
                }
                None => {
                    let key = self.flow_text(&Value::from(key.as_str()));
                    format!("{key}: {}", self.flow_text(new))
                }
            });
        }
        self.flow_parts(spot, &spans, &parts)
    }

    /// The text of a part: as it was, as far as it stays.
    fn flow_part(&mut self, spot: &Spot, from: &Value, to: &Value) -> Result<String, Unclear> {
        let span = spot.span();
        if from == to {
            return Ok(self.text[span].to_owned());
        }
        let before = self.splices.len();
        let changed = self.change(spot, from, to, &Around::Flow);
        let mut inner = self.splices.split_off(before);
        if changed.is_err() {
            return Ok(self.flow_text(to));
        }
        inner.sort_by_key(|(range, _)| range.start);
        let mut text = String::new();
        let mut at = span.start;
        for (range, new) in inner {
            text.push_str(self.text.get(at..range.start).ok_or(Unclear)?);
            text.push_str(&new);
            at = range.end;
        }
        text.push_str(self.text.get(at..span.end).ok_or(Unclear)?);
        Ok(text)
    }

    /// Puts other parts between the brackets, with the gaps that were between the old ones.
    fn flow_parts(&mut self, spot: &Spot, old: &[Range<usize>], parts: &[String]) -> RewriteResult {
        let span = spot.span();
        let inside = span.start + 1..span.end.checked_sub(1).ok_or(Unclear)?;
        let gap = |range: Range<usize>| {
            self.text.get(range).filter(|gap| !gap.contains('#')).ok_or(Unclear)
        };
        let (lead, trail, between) = match old {
            [] => ("", "", ", ".to_owned()),
            [first, rest @ ..] => {
                let lead = gap(inside.start..first.start)?;
                let last = rest.last().unwrap_or(first);
                let trail = gap(last.end..inside.end)?;
                let between = match rest.first() {
                    Some(second) => gap(first.end..second.start)?.to_owned(),
                    None if lead.contains('\n') => format!(",{lead}"),
                    None if self.json => ",".to_owned(),
                    None => ", ".to_owned(),
                };
                (lead, trail.trim_start_matches([' ', ',']), between)
            }
        };
        let text = format!("{lead}{}{trail}", parts.join(&between));
        self.splice(inside, text);
        Ok(())
    }

    /// A value on one line.
    pub(super) fn flow_text(&self, value: &Value) -> String {
        if self.json {
            return kiln_value::json::to_string(value);
        }
        match value {
            Value::List(list) => {
                let parts: Vec<String> = list.iter().map(|value| self.flow_text(value)).collect();
                format!("[{}]", parts.join(", "))
            }
            Value::Map(map) => {
                let parts: Vec<String> = map
                    .iter()
                    .map(|(key, value)| {
                        let key = self.flow_text(&Value::from(key.as_str()));
                        format!("{key}: {}", self.flow_text(value))
                    })
                    .collect();
                format!("{{{}}}", parts.join(", "))
            }
            Value::String(text) => {
                let plain = emit(value);
                let plain = plain.trim_end_matches('\n');
                let safe = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
                if plain == text.as_str() && text.chars().all(safe) {
                    plain.to_owned()
                } else {
                    kiln_value::json::to_string(value)
                }
            }
            scalar => emit(scalar).trim_end().to_owned(),
        }
    }
}
