//! Go's replacement templates: `$1`, `${name}`, `$$`.

use super::{Captures, Output, OutputTooLarge, Regex};

/// Writes the template for one match.
pub(super) fn expand(
    template: &str,
    regex: &Regex,
    captures: &Captures<'_>,
    out: &mut Output,
) -> Result<(), OutputTooLarge> {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push(before)?;
        if let Some(after) = after.strip_prefix('$') {
            out.push("$")?;
            rest = after;
        } else if let Some((name, after)) = group_name(after) {
            let text = match number(name) {
                Some(number) => captures.get(number),
                // Of several groups with the name, the first that took part.
                None => (regex.group_names().zip(captures.iter()))
                    .find_map(|(group, text)| text.filter(|_| group == Some(name))),
            };
            out.push(text.unwrap_or(""))?;
            rest = after;
        } else {
            // Malformed: the sign stands for itself.
            out.push("$")?;
            rest = after;
        }
    }
    out.push(rest)
}

/// Splits off a group's name: the longest run of letters, digits and underscores, or what is in
/// braces if it is such a run.
fn group_name(text: &str) -> Option<(&str, &str)> {
    let braced = text.strip_prefix('{');
    let text = braced.unwrap_or(text);
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    let after = if braced.is_some() { after.strip_prefix('}')? } else { after };
    (!name.is_empty()).then_some((name, after))
}

/// The number of a group; a leading zero makes it a name.
fn number(name: &str) -> Option<usize> {
    let plain = name.bytes().all(|byte| byte.is_ascii_digit());
    let zero = name.len() > 1 && name.starts_with('0');
    (plain && !zero).then(|| name.parse().unwrap_or(usize::MAX))
}
