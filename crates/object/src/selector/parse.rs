//! The text form of selectors.

use super::{Requirement, SelectorError, SelectorOperator, invalid_key};

#[derive(Clone, Copy, PartialEq, Eq)]
enum SelectorToken {
    Word,
    Comma,
    Open,
    Close,
    Not,
    Compare(SelectorOperator),
    /// `in` and `notin`, which may be words too.
    Set(SelectorOperator),
    End,
    Unknown,
}

struct Tokens<'t> {
    tokens: Vec<(SelectorToken, &'t str)>,
    at: usize,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens { tokens: split(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match tokens.peek_value() {
            (SelectorToken::End, _) => break,
            (SelectorToken::Word | SelectorToken::Not, _) => {
                let requirement = requirement(&mut tokens)
                    .map_err(|error| failed(format!("unable to parse requirement: {error}")))?;
                requirements.push(requirement);
            }
            (_, found) => {
                return Err(expected(found, "!, identifier, or 'end of string'"));
            }
        }
        match tokens.next_value() {
            (SelectorToken::End, _) => break,
            (SelectorToken::Comma, _) => {
                let (token, found) = tokens.peek_value();
                if !matches!(token, SelectorToken::Word | SelectorToken::Not) {
                    return Err(expected(found, "identifier after ','"));
                }
            }
            (_, found) => return Err(expected(found, "',' or 'end of string'")),
        }
    }
    // Kubernetes: sorted by key, so that equal selectors print alike.
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(requirements)
}

fn failed(message: String) -> SelectorError {
    SelectorError(message)
}

fn expected(found: &str, what: &str) -> SelectorError {
    failed(format!("found '{found}', expected: {what}"))
}

impl<'t> Tokens<'t> {
    fn peek(&self) -> (SelectorToken, &'t str) {
        self.tokens.get(self.at).copied().unwrap_or((SelectorToken::End, ""))
    }

    fn next(&mut self) -> (SelectorToken, &'t str) {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// The next token where `in` and `notin` are ordinary words.
    fn peek_value(&self) -> (SelectorToken, &'t str) {
        match self.peek() {
            (SelectorToken::Set(_), word) => (SelectorToken::Word, word),
            token => token,
        }
    }

    fn next_value(&mut self) -> (SelectorToken, &'t str) {
        let token = self.peek_value();
        self.at += 1;
        token
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    let (mut token, mut key) = tokens.next_value();
    let negated = token == SelectorToken::Not;
    if negated {
        (token, key) = tokens.next_value();
    }
    if token != SelectorToken::Word {
        return Err(expected(key, "identifier"));
    }
    if let Some(problem) = invalid_key(key, "<nil>") {
        return Err(failed(problem));
    }
    if negated {
        return Requirement::new(key, SelectorOperator::DoesNotExist, [], "");
    }
    if matches!(tokens.peek(), (SelectorToken::End | SelectorToken::Comma, _)) {
        return Requirement::new(key, SelectorOperator::Exists, [], "");
    }
    match tokens.next() {
        (SelectorToken::Set(operator), _) => Requirement::new(key, operator, values(tokens)?, ""),
        (SelectorToken::Compare(operator), _) => {
            Requirement::new(key, operator, [value(tokens)?], "")
        }
        (_, found) => Err(expected(found, "in, notin, =, ==, !=, gt, lt")),
    }
}

/// One value, which may be missing.
fn value(tokens: &mut Tokens<'_>) -> Result<String, SelectorError> {
    if matches!(tokens.peek_value(), (SelectorToken::End | SelectorToken::Comma, _)) {
        return Ok(String::new());
    }
    match tokens.next_value() {
        (SelectorToken::Word, value) => Ok(value.to_owned()),
        (_, found) => Err(expected(found, "identifier")),
    }
}

/// Values in parentheses, each of which may be missing.
fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, SelectorError> {
    let (token, found) = tokens.next_value();
    if token != SelectorToken::Open {
        return Err(failed(format!("found '{found}' expected: '('")));
    }
    let mut values = Vec::new();
    loop {
        let (token, word) = tokens.peek_value();
        let possible = match token {
            SelectorToken::Word => "',' or ')'",
            _ if values.is_empty() => "',', ')' or identifier",
            _ => "',', or identifier",
        };
        if token == SelectorToken::Word {
            tokens.next_value();
            values.push(word.to_owned());
        } else {
            values.push(String::new());
        }
        match tokens.next_value() {
            (SelectorToken::Comma, _) => {}
            (SelectorToken::Close, _) => break,
            (_, found) => return Err(expected(found, possible)),
        }
    }
    // As a set: `(a,,)` has `a` and the empty text.
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

fn split(text: &str) -> Vec<(SelectorToken, &str)> {
    const SYMBOLS: &str = "=!(),><";
    const SPACES: &str = " \t\r\n";
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c| SPACES.contains(c));
        let Some(first) = rest.chars().next() else { break };
        let (token, length) = if SYMBOLS.contains(first) {
            symbol(rest)
        } else {
            let end =
                rest.find(|c| SYMBOLS.contains(c) || SPACES.contains(c)).unwrap_or(rest.len());
            let token = match &rest[..end] {
                "in" => SelectorToken::Set(SelectorOperator::In),
                "notin" => SelectorToken::Set(SelectorOperator::NotIn),
                _ => SelectorToken::Word,
            };
            (token, end)
        };
        tokens.push((token, &rest[..length]));
        rest = &rest[length..];
    }
    tokens
}

/// The longest symbol at the start, and its length.
fn symbol(text: &str) -> (SelectorToken, usize) {
    let two = [("==", SelectorOperator::DoubleEquals), ("!=", SelectorOperator::NotEquals)];
    if let Some((_, operator)) = two.into_iter().find(|(symbol, _)| text.starts_with(symbol)) {
        return (SelectorToken::Compare(operator), 2);
    }
    let token = match text.as_bytes().first() {
        Some(b',') => SelectorToken::Comma,
        Some(b'(') => SelectorToken::Open,
        Some(b')') => SelectorToken::Close,
        Some(b'!') => SelectorToken::Not,
        Some(b'=') => SelectorToken::Compare(SelectorOperator::Equals),
        Some(b'>') => SelectorToken::Compare(SelectorOperator::GreaterThan),
        Some(b'<') => SelectorToken::Compare(SelectorOperator::LessThan),
        _ => SelectorToken::Unknown,
    };
    (token, 1)
}

#[cfg(test)]
mod tests {
    use crate::Selector;

    #[test]
    fn selectors_print_in_one_form() {
        for (text, printed) in [
            ("", ""),
            (" z = 1 , a ", "a,z=1"),
            ("x in (b, a,,b)", "x in (,a,b)"),
            ("x in ()", "x in ()"),
            ("x notin (in,notin)", "x notin (in,notin)"),
            ("in in (a)", "in in (a)"),
            ("!x,y!=1,k==v", "k==v,!x,y!=1"),
            ("x=,y", "x=,y"),
            ("n>1,m<2", "m<2,n>1"),
            ("example.com/app=web", "example.com/app=web"),
            ("x=in", "x=in"),
        ] {
            let selector = Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.to_string(), printed);
            assert_eq!(Selector::parse(printed).unwrap(), selector);
        }
    }

    #[test]
    fn mistakes_are_said_in_kubernetes_words() {
        for (text, error) in [
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' \
                 operators, the value must be an integer",
            ),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().to_string(), error);
        }
        for text in ["a/b/c=d", "-a", "a=b/c", "é", "a=é", "a===b"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
