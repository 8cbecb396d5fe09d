//! What is known from the text of an expression without running it.

use kiln_object::{GroupVersion, Gvk, Kinds};

/// A word, a text or a sign of an expression.
#[derive(Debug, PartialEq, Eq)]
enum ExpressionToken<'t> {
    Word(&'t str),
    Text(&'t str),
    Sign(char),
}

/// The tokens of an expression; none when it cannot be read, which compiling it reports.
fn tokens(source: &str) -> Vec<ExpressionToken<'_>> {
    let lexed = kiln_cel::lex(source).unwrap_or_default();
    let token = |(token, span): &(kiln_cel::CelToken, kiln_cel::Span)| {
        let text = &source[span.range()];
        Some(match token {
            kiln_cel::CelToken::String => ExpressionToken::Text(inside(text)),
            kiln_cel::CelToken::Ident => ExpressionToken::Word(text),
            _ => ExpressionToken::Sign(text.chars().next()?),
        })
    };
    lexed.iter().filter_map(token).collect()
}

/// A text without its quotes.
fn inside(text: &str) -> &str {
    let text = text.trim_start_matches(['r', 'R']);
    let quotes = ["\"\"\"", "'''", "\"", "'"];
    let quote =
        quotes.iter().find(|quote| text.starts_with(**quote) && text.len() >= 2 * quote.len());
    let quote = quote.map_or(0, |quote| quote.len());
    text.get(quote..text.len() - quote).unwrap_or_default()
}

/// The kinds that expressions name: those of objects written out, and those they read.
pub(super) fn named_kinds<'s>(sources: impl Iterator<Item = &'s str>, kinds: &Kinds) -> Vec<Gvk> {
    let mut found = Vec::new();
    for source in sources {
        let tokens = tokens(source);
        let value_after = |at: usize| match &tokens[at + 1..] {
            [ExpressionToken::Sign(':'), ExpressionToken::Text(text), ..] => Some(*text),
            [
                ExpressionToken::Sign(':'),
                ExpressionToken::Word("dyn"),
                ExpressionToken::Sign('('),
                ExpressionToken::Text(text),
                ..,
            ] => Some(*text),
            _ => None,
        };
        let mut written: Vec<(usize, &str, &str)> = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                ExpressionToken::Text(key @ ("kind" | "apiVersion")) => {
                    written.extend(value_after(at).map(|value| (at, *key, value)));
                }
                ExpressionToken::Word("Get" | "get" | "List" | "list") => {
                    if let [
                        ExpressionToken::Sign('('),
                        ExpressionToken::Text(version),
                        ExpressionToken::Sign(','),
                        ExpressionToken::Text(plural),
                        ..,
                    ] = &tokens[at + 1..]
                    {
                        let GroupVersion { group, version } = GroupVersion::parse(version);
                        let kind = kinds.by_resource(&group, &version, plural);
                        found.extend(kind.map(kiln_object::Kind::gvk));
                    }
                }
                _ => {}
            }
        }
        for (at, _, kind) in written.iter().filter(|(_, key, _)| *key == "kind") {
            // The envelope of an object is written together.
            let versions = written.iter().filter(|(_, key, _)| *key == "apiVersion");
            if let Some((_, _, version)) = versions.min_by_key(|(there, _, _)| there.abs_diff(*at))
            {
                found.push(Gvk::new(version, kind));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Whether an expression calls a library.
pub(super) fn calls(source: &str, receiver: &str) -> bool {
    tokens(source)
        .windows(2)
        .any(|pair| matches!(pair, [ExpressionToken::Word(word), ExpressionToken::Sign('.')] if *word == receiver))
}

/// Whether an expression mentions a variable; fields and functions of that name are others.
pub(super) fn reads(source: &str, variable: &str) -> bool {
    let tokens = tokens(source);
    tokens.iter().enumerate().any(|(at, token)| {
        let is_field = at > 0 && matches!(tokens[at - 1], ExpressionToken::Sign('.'));
        let is_called = matches!(tokens.get(at + 1), Some(ExpressionToken::Sign('(')));
        matches!(token, ExpressionToken::Word(word) if *word == variable) && !is_field && !is_called
    })
}

/// Whether the generator is called inside `exists`, which stops at the first call.
pub(super) fn generates_in_exists(source: &str) -> bool {
    let tokens = tokens(source);
    tokens.iter().enumerate().any(|(at, token)| {
        if !matches!(token, ExpressionToken::Word("exists" | "exists_one")) {
            return false;
        }
        let mut depth = 0;
        for token in &tokens[at + 1..] {
            match token {
                ExpressionToken::Sign('(') => depth += 1,
                ExpressionToken::Sign(')') if depth == 1 => return false,
                ExpressionToken::Sign(')') => depth -= 1,
                ExpressionToken::Word("generator") => return true,
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_from_envelopes_and_reads() {
        let kinds = Kinds::builtin();
        let named = |source: &str| -> Vec<String> {
            named_kinds([source].into_iter(), &kinds).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            named(
                r#"[{"kind": dyn("ConfigMap"), "apiVersion": dyn("v1")},
                    {'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy'}]"#
            ),
            ["v1/ConfigMap", "networking.k8s.io/v1/NetworkPolicy"]
        );
        assert_eq!(named("resource.List('v1', 'secrets', 'x').items"), ["v1/Secret"]);
        assert!(named("object.kind == 'Pod' // 'kind': 'X', 'apiVersion': 'v1'").is_empty());
    }

    #[test]
    fn calls_are_told_from_texts() {
        assert!(calls("http.Get('x')", "http"));
        assert!(!calls("'http.Get' + x.https", "http"));
        assert!(reads("request.name == 'a'", "request"));
        assert!(!reads("object.request == 'request'", "request"));
        assert!(generates_in_exists("l.exists(n, generator.Apply(n, []))"));
        assert!(!generates_in_exists("l.exists(n, n == 'a') && generator.Apply('a', [])"));
        assert!(!generates_in_exists("l.all(n, generator.Apply(n, []))"));
    }
}
