//! What kustomize makes of folded text (`>`).
//!
//! kustomize writes every object as YAML and reads it again before it prints it. go-yaml v3 keeps
//! the style but counts line breaks from the wrong end, so that some are doubled.

use std::borrow::Cow;

use crate::emitter::style::{is_break, is_printable};
use crate::events::event::YamlEvent;
use crate::events::parse::Events;

/// The text after it was written as folded text and read again.
pub(crate) fn as_kustomize_reads_it(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains(is_break) || !is_written_folded(&text) {
        return text;
    }
    match read(&write(&text)) {
        Some(again) => Cow::Owned(again),
        None => text,
    }
}

/// Other texts are written in double quotes, which lose nothing.
fn is_written_folded(text: &str) -> bool {
    let mut previous = None;
    for c in text.chars() {
        let breaks = is_break(c);
        if breaks && previous == Some(' ') || c != '\t' && !breaks && !is_printable(c) {
            return false;
        }
        previous = Some(c);
    }
    !text.ends_with(' ')
}

/// Writes folded text as go-yaml v3 does, as the only item of a list.
fn write(text: &str) -> String {
    let mut out = String::from("- >");
    if text.starts_with(|c: char| c == ' ' || is_break(c)) {
        out.push('2');
    }
    let mut ends = text.chars().rev().map(is_break);
    match (ends.next().unwrap_or(false), ends.next()) {
        (false, _) => out.push('-'),
        (true, None | Some(true)) => out.push('+'),
        (true, Some(false)) => {}
    }
    out.push('\n');
    // go-yaml v3: looks at the first line of the text where it should look at the next one.
    let doubles = !text.trim_start_matches(is_break).starts_with([' ', '\t']);
    let mut after_break = true;
    let mut blank_line = true;
    for c in text.chars() {
        if is_break(c) {
            if !after_break && !blank_line && c == '\n' && doubles {
                out.push('\n');
            }
            out.push(c);
            after_break = true;
        } else {
            if after_break {
                out.push_str("  ");
                blank_line = matches!(c, ' ' | '\t');
            }
            out.push(c);
            after_break = false;
        }
    }
    if !after_break {
        out.push('\n');
    }
    out
}

fn read(yaml: &str) -> Option<String> {
    let mut events = Events::new(yaml, 0);
    loop {
        match events.next() {
            Ok((YamlEvent::Scalar(scalar), _)) => return Some(scalar.text.into_owned()),
            Ok((YamlEvent::StreamEnd, _)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::as_kustomize_reads_it;

    #[test]
    fn some_breaks_are_doubled() {
        for (text, wanted) in [
            ("a b\nc\n", "a b\nc\n"),
            ("a\n b\nc\n", "a\n\n b\nc\n"),
            ("a\n\n", "a\n\n\n"),
            (" a\nb\n", " a\nb\n"),
            ("a \nb\n", "a \nb\n"),
            ("a", "a"),
        ] {
            assert_eq!(as_kustomize_reads_it(text.into()), wanted, "{text:?}");
        }
    }
}
