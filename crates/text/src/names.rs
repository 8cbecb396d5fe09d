//! The shapes that Kubernetes gives to names, label keys and label values.
//!
//! Each check returns what is wrong in Kubernetes' words; an empty list means valid.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The longest DNS label, label value and name part of a label key.
pub const MAX_LABEL: usize = 63;
/// The longest DNS subdomain.
pub const MAX_SUBDOMAIN: usize = 253;

/// Checks a DNS label of RFC 1123, such as a namespace's name.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut problems = too_long(name, MAX_LABEL, "characters");
    if !is_label(name) {
        problems.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            shape(LABEL_TEXT, LABEL, &["my-name", "123-abc"])
        });
    }
    problems
}

/// Checks a DNS subdomain of RFC 1123, such as most objects' names.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain(name, "characters")
}

fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut problems = too_long(name, MAX_SUBDOMAIN, unit);
    if !is_subdomain(name) {
        problems.push(shape(SUBDOMAIN_TEXT, SUBDOMAIN, &["example.com"]));
    }
    problems
}

/// Checks a DNS label of RFC 1035, such as a Service's name.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut problems = too_long(name, MAX_LABEL, "characters");
    if !is_label(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        problems.push(shape(LABEL_1035_TEXT, LABEL_1035, &["my-name", "abc-123"]));
    }
    problems
}

/// Checks a label key (a qualified name): a name, with a DNS subdomain and `/` before it or not.
pub fn qualified_name(key: &str) -> Vec<String> {
    let examples = ["MyName", "my.name", "123-abc"];
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            let shape = shape(KEY_TEXT, KEY, &examples);
            let rest = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {shape} {rest}")];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let found = subdomain(prefix, "bytes").into_iter();
            problems.extend(found.map(|problem| format!("prefix part {problem}")));
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    let long = too_long(name, MAX_LABEL, "bytes").into_iter();
    problems.extend(long.map(|problem| format!("name part {problem}")));
    if !is_key(name) {
        problems.push(format!("name part {}", shape(KEY_TEXT, KEY, &examples)));
    }
    problems
}

/// Checks a label value.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = too_long(value, MAX_LABEL, "bytes");
    if !value.is_empty() && !is_key(value) {
        problems.push(shape(VALUE_TEXT, VALUE, &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// Checks a name that only has to fit a path of the API, such as a Role's.
pub fn path_segment(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let parts = ["/", "%"].into_iter().filter(|part| name.contains(part));
    let mut problems: Vec<String> = parts.map(|part| format!("may not contain '{part}'")).collect();
    // Kubernetes takes them, although such a name cannot be typed or read.
    if name.contains(char::is_control) {
        problems.push("may not contain control characters".to_owned());
    }
    problems
}

/// What to check instead of a name to which something will be appended: a dash at its end is fine.
pub fn as_prefix(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

/// Kubernetes counts bytes either way, but says characters of names.
fn too_long(text: &str, max: usize, unit: &str) -> Vec<String> {
    let problem = || format!("must be no more than {max} {unit}");
    (text.len() > max).then(problem).into_iter().collect()
}

fn shape(text: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", quoted.join(" or "))
}

/// Whether the text is made of such bytes and begins and ends with a letter or digit.
fn is_made_of(text: &str, edge: fn(&u8) -> bool, between: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|byte| edge(byte) || between.contains(byte))
}

fn is_label(text: &str) -> bool {
    is_made_of(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), b"-")
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key(text: &str) -> bool {
    is_made_of(text, u8::is_ascii_alphanumeric, b"-_.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_have_no_problems() {
        for name in ["a", "0", "a-b", "123-abc", &"a".repeat(63)] {
            assert_eq!(dns1123_label(name), Vec::<String>::new(), "{name}");
        }
        for name in ["a", "a.b", "example.com", "1.2.3", &"a".repeat(253)] {
            assert_eq!(dns1123_subdomain(name), Vec::<String>::new(), "{name}");
        }
        for key in ["app", "A_b.C-d", "example.com/app", "0"] {
            assert_eq!(qualified_name(key), Vec::<String>::new(), "{key}");
        }
        for value in ["", "a", "My_value.1", "12345"] {
            assert_eq!(label_value(value), Vec::<String>::new(), "{value}");
        }
        assert_eq!(dns1035_label("abc-123"), Vec::<String>::new());
        assert_eq!(path_segment("system:controller"), Vec::<String>::new());
        assert_eq!(as_prefix("web-"), "weba");
        assert_eq!(as_prefix("-"), "-");
    }

    #[test]
    fn problems_are_said_in_kubernetes_words() {
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        for (problems, wanted) in [
            (dns1123_label("A"), vec![label]),
            (dns1123_label(""), vec![label]),
            (dns1123_label("a.b"), vec!["must not contain dots"]),
            (dns1123_label(&"a".repeat(64)), vec!["must be no more than 63 characters"]),
            (dns1123_subdomain(&"a".repeat(254)), vec!["must be no more than 253 characters"]),
            (qualified_name("/a"), vec!["prefix part must be non-empty"]),
            (label_value(&"a".repeat(64)), vec!["must be no more than 63 bytes"]),
            (path_segment(".."), vec!["may not be '..'"]),
            (path_segment("a/b%c"), vec!["may not contain '/'", "may not contain '%'"]),
            (path_segment("a\0b"), vec!["may not contain control characters"]),
        ] {
            assert_eq!(problems, wanted);
        }
        for (problems, start) in [
            (dns1123_subdomain("a..b"), "a lowercase RFC 1123 subdomain must"),
            (dns1035_label("1a"), "a DNS-1035 label must"),
            (qualified_name("a/b/c"), "a valid label key must consist"),
            (qualified_name("Ex/a"), "prefix part a lowercase RFC 1123 subdomain"),
            (qualified_name("a/"), "name part must be non-empty"),
            (qualified_name("-a"), "name part must consist"),
            (label_value("a,b"), "a valid label must"),
        ] {
            assert!(problems.first().is_some_and(|p| p.starts_with(start)), "{problems:?}");
        }
    }
}
