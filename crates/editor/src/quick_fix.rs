//! Hints that can be carried out: each says with its words what to write instead.

use std::ops::Range;

use kiln_diagnostic::{Diagnostic, did_you_mean};

/// A change of the text that removes a problem.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuickFix {
    pub(crate) title: String,
    pub(crate) span: Range<usize>,
    pub(crate) text: String,
}

/// The change that the hint of a problem asks for, if it is one word of the text.
pub(crate) fn quick_fix(problem: &Diagnostic) -> Option<QuickFix> {
    let hint = problem.hint.as_deref()?;
    let place = problem.place.as_ref()?;
    let (span, source) = (place.span(), place.source().text());
    let written = source.get(span.clone())?;
    if let Some(meant) = meant(hint) {
        let word = wrong_word(written, meant)?;
        let title = format!("Replace {:?} with {meant:?}", &written[word.clone()]);
        let span = span.start + word.start..span.start + word.end;
        return Some(QuickFix { title, span, text: meant.to_owned() });
    }
    // A place may be more than a scalar.
    let scalar = written.trim_end();
    let span = span.start..span.start + scalar.len();
    let is_scalar = !scalar.is_empty() && !scalar.contains(['\n', '{', '[', '#']);
    if hint.starts_with("put it in quotes") && is_scalar && !scalar.starts_with(['"', '\'']) {
        let text = format!("\"{}\"", scalar.replace('\\', "\\\\").replace('"', "\\\""));
        return Some(QuickFix { title: "Put it in quotes".to_owned(), span, text });
    }
    if hint.starts_with("write it without quotes") && is_scalar {
        let inner = ['"', '\''].into_iter().find_map(|quote| {
            scalar.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
        })?;
        let text = inner.to_owned();
        return Some(QuickFix { title: "Write it without quotes".to_owned(), span, text });
    }
    None
}

/// The word in `did you mean "WORD"?`.
fn meant(hint: &str) -> Option<&str> {
    let rest = &hint[hint.find("did you mean ")? + "did you mean ".len()..];
    let word = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split('?').next()?,
    };
    (!word.is_empty() && !word.contains(char::is_whitespace)).then_some(word)
}

/// The only word of a text that is near to another one, and not that one itself.
fn wrong_word(written: &str, meant: &str) -> Option<Range<usize>> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut found: Option<Range<usize>> = None;
    let mut at = 0;
    while at < written.len() {
        let rest = &written[at..];
        let Some(begin) = rest.find(is_part) else { break };
        let begin = at + begin;
        let end = written[begin..].find(|c: char| !is_part(c)).map_or(written.len(), |n| begin + n);
        let word = &written[begin..end];
        if word != meant && did_you_mean(word, [meant]).is_some() {
            if found.as_ref().is_some_and(|known| written[known.clone()] != *word) {
                return None;
            }
            found.get_or_insert(begin..end);
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kiln_diagnostic::{Source, SourceLocation};

    use super::*;

    fn fixed(text: &str, part: &str, hint: &str) -> Option<String> {
        let at = text.find(part).unwrap();
        let source = Arc::new(Source::new("p.yaml", text));
        let place = SourceLocation::new(source, at..at + part.len());
        let fix = quick_fix(&Diagnostic::error("p").at(place).hint(hint))?;
        let mut text = text.to_owned();
        text.replace_range(fix.span, &fix.text);
        Some(text)
    }

    #[test]
    fn hints_change_one_word() {
        let meant = "did you mean \"request\"?";
        for (text, part, hint, wanted) in [
            ("ruls: []", "ruls", "did you mean \"rules\"?", Some("rules: []")),
            ("a: '{{ reqest.x }}'", "'{{ reqest.x }}'", meant, Some("a: '{{ request.x }}'")),
            ("a: request", "request", meant, None),
            ("a: reqest || reqeust", "reqest || reqeust", meant, None),
            ("n: 12", "12", "put it in quotes", Some("n: \"12\"")),
            ("b: 'true'", "'true'", "write it without quotes", Some("b: true")),
            ("b: [1]", "[1]", "put it in quotes", None),
            ("b: 1", "1", "remove it", None),
            (
                "k: Podd",
                "Podd",
                "did you mean \"Pod\"? if not, give its definition along",
                Some("k: Pod"),
            ),
        ] {
            assert_eq!(fixed(text, part, hint).as_deref(), wanted, "{text} {hint}");
        }
    }
}
