//! The variables that an expression can read: where they are defined, and their values where these are known.

use std::ops::Range;

use kiln_cel::{Budget, Env, NoHost, PolicyScope, Session};
use kiln_jmespath::{Expression, JmesPathEnvironment, JmesPathLimits, NoAmbientSources};
use kiln_value::{Path, Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

use crate::outline::{Entry, OutlineStep, unquoted};
use crate::subject::TextLanguage;

/// What every rule of Kyverno can read, with what it is.
pub(crate) const REQUEST_VARIABLES: &[(&str, &str)] = &[
    (
        "request",
        "the admission request: `object`, `oldObject`, `operation`, `userInfo`, `namespace`, `name`",
    ),
    ("request.object", "the object as it is to be stored"),
    ("request.oldObject", "the object as it was stored"),
    ("request.operation", "`CREATE`, `UPDATE`, `DELETE` or `CONNECT`"),
    ("request.namespace", "namespace of the object"),
    ("request.name", "name of the object"),
    ("request.userInfo", "the user who sent the request: `username`, `groups`"),
    ("request.roles", "Roles of the user"),
    ("request.clusterRoles", "ClusterRoles of the user"),
    ("serviceAccountName", "name of the service account that sent the request"),
    ("serviceAccountNamespace", "namespace of that service account"),
    ("images", "the images of the object, taken apart"),
    ("element", "the element of a foreach"),
    ("elementIndex", "the number of the element, from 0"),
    ("target", "the object that a mutate rule with targets changes"),
    ("@", "in patterns, the value that stands here"),
];

/// What templates of ModRules can read.
pub(crate) const TEMPLATE_FIELDS: &[(&str, &str)] = &[
    (".Target", "the object as it came in"),
    (".SelectedItem", "the value that `select` found"),
    (".SelectKeyParts", "the parts of the path that `select` captured"),
    (".Namespace", "namespace of the ModRule"),
];

/// A variable that a document defines.
#[derive(Debug)]
pub(crate) struct Variable {
    /// As expressions write it: `replicas`, `variables.replicas`.
    pub(crate) name: String,
    /// What fills it.
    pub(crate) about: String,
    /// Its value as JSON, where that does not depend on a request or a cluster.
    pub(crate) value: Option<String>,
    /// Where it gets its name.
    pub(crate) place: Range<usize>,
    /// Only what is below this path can read it.
    pub(crate) scope: Vec<OutlineStep>,
}

/// The variables of a language that one document defines.
pub(crate) fn variables(
    language: TextLanguage,
    text: &str,
    part: &Range<usize>,
    entries: &[Entry],
) -> Vec<Variable> {
    let list = match language {
        TextLanguage::JmesPath => "context",
        TextLanguage::Cel => "variables",
        TextLanguage::Vars => "vars",
        TextLanguage::GoTemplate => return Vec::new(),
    };
    let whole = read_bytes("", &text.as_bytes()[part.clone()], ReadOptions::kubernetes());
    let whole =
        whole.ok().and_then(|read| read.into_iter().next()).map(kiln_yaml::Document::into_value);
    let named = entries.iter().filter_map(|entry| match entry.path.as_slice() {
        [scope @ .., OutlineStep::Key(key), OutlineStep::Index(at), OutlineStep::Key(name)]
            if key == list && name == "name" =>
        {
            Some((entry, scope, *at))
        }
        _ => None,
    });
    named
        .map(|(entry, scope, at)| {
            let written = &text[entry.value.clone()];
            let name = unquoted(written);
            let offset = written.find(name).unwrap_or(0);
            let place = entry.value.start + offset..entry.value.start + offset + name.len();
            let path: Path = scope
                .iter()
                .map(|step| match step {
                    OutlineStep::Key(key) => kiln_value::Segment::from(key.as_str()),
                    OutlineStep::Index(index) => kiln_value::Segment::from(*index),
                })
                .chain([list.into(), at.into()])
                .collect();
            let definition = whole.as_ref().and_then(|value| value.get_path(&path));
            let (about, value) = definition.map(|found| facts(language, found)).unwrap_or_default();
            let name = match language {
                TextLanguage::Cel => format!("variables.{name}"),
                _ => name.to_owned(),
            };
            Variable { name, about, value, place, scope: scope.to_vec() }
        })
        .collect()
}

/// What fills a variable, and its value if that can be told.
fn facts(language: TextLanguage, definition: &Value) -> (String, Option<String>) {
    match language {
        TextLanguage::JmesPath => kyverno(definition),
        TextLanguage::Cel => {
            let expression = definition.str_at(["expression"]).unwrap_or_default();
            (format!("CEL: `{}`", expression.trim()), constant(expression))
        }
        TextLanguage::Vars => {
            let part = |path: [&str; 2]| definition.str_at(path).unwrap_or_default().to_owned();
            let field = definition.str_at(["fieldref", "fieldPath"]).unwrap_or("metadata.name");
            let kind = part(["objref", "kind"]);
            (format!("`{field}` of {kind} `{}`", part(["objref", "name"])), None)
        }
        TextLanguage::GoTemplate => (String::new(), None),
    }
}

fn kyverno(definition: &Value) -> (String, Option<String>) {
    let shown = |value: &Value| json::to_string(value);
    for source in ["configMap", "apiCall", "imageRegistry", "globalReference"] {
        if let Some(from) = definition.get(source) {
            return (format!("{source} `{}`", shown(from)), None);
        }
    }
    let Some(variable) = definition.get("variable") else { return (String::new(), None) };
    let value = variable.get("value");
    let path = variable.str_at(["jmesPath"]);
    let about = match (value, path) {
        (Some(_), Some(path)) => format!("JMESPath `{path}` on a value"),
        (Some(_), None) => "a value".to_owned(),
        (None, Some(path)) => format!("JMESPath: `{}`", path.trim()),
        (None, None) => String::new(),
    };
    let about = match variable.get("default") {
        Some(default) => format!("{about}, by default `{}`", shown(default)),
        None => about,
    };
    // What has variables of its own is known only when the rule runs.
    let fixed = value.filter(|value| !shown(value).contains("{{"));
    let known = match (value, path) {
        (Some(_), None) => fixed.cloned(),
        (Some(_), Some(path)) => fixed.and_then(|value| search(path, value)),
        (None, Some(path)) => {
            let reads_nothing = Expression::compile(path)
                .is_ok_and(|found| found.roots().is_empty() && !found.uses_whole_root());
            reads_nothing.then(|| search(path, &Value::Null)).flatten()
        }
        (None, None) => None,
    };
    (about, known.as_ref().map(shown))
}

fn search(path: &str, value: &Value) -> Option<Value> {
    if path.contains("{{") {
        return None;
    }
    let environment =
        JmesPathEnvironment { sources: &NoAmbientSources, limits: JmesPathLimits::default() };
    Expression::compile(path).ok()?.search(value, &environment).ok()
}

/// The value of a CEL expression that reads nothing.
fn constant(expression: &str) -> Option<String> {
    let env = Env::policies(PolicyScope::Cluster);
    // The variables of requests are declared there, and have no value here.
    let program = env.compile(expression).ok()?;
    let mut host = NoHost;
    let mut session = Session::with_budget(&env, &mut host, Budget::default());
    session.eval_json(&program).ok().map(|value| json::to_string(&value))
}

/// The dotted name around a byte of an expression: `request.object`, and where it is.
pub(crate) fn name_at(text: &str, at: usize) -> Option<(String, Range<usize>)> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '@');
    let at = text.floor_char_boundary(at);
    let start = text[..at]
        .rfind(|c| !is_part(c))
        .map_or(0, |found| found + text[found..].chars().next().map_or(1, char::len_utf8));
    // Only up to the end of the word that the place is in.
    let ends = |c: char| !is_part(c) || c == '.';
    let end = text[at..].find(ends).map_or(text.len(), |length| at + length);
    (start < end).then(|| (text[start..end].to_owned(), start..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outline::outline;

    fn of(language: TextLanguage, text: &str) -> Vec<(String, Option<String>)> {
        let entries = outline(text, 0..text.len());
        variables(language, text, &(0..text.len()), &entries)
            .into_iter()
            .map(|variable| {
                assert!(variable.name.ends_with(&text[variable.place]));
                (variable.name, variable.value)
            })
            .collect()
    }

    #[test]
    fn values_that_need_no_request_are_known() {
        let text = "spec:\n  rules:\n  - context:\n    - name: a\n      variable: {value: {x: [1, 2]}}\n    - name: b\n      variable: {value: {x: 3}, jmesPath: x}\n    - name: c\n      variable: {jmesPath: request.object.kind}\n    - name: d\n      variable: {jmesPath: \"to_upper('x')\"}\n    - name: 'e'\n      configMap: {name: m}\n    - name: f\n      variable: {value: '{{ a }}'}\n";
        let known = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(
            of(TextLanguage::JmesPath, text),
            [
                known("a", Some("{\"x\":[1,2]}")),
                known("b", Some("3")),
                known("c", None),
                known("d", Some("\"X\"")),
                known("e", None),
                known("f", None),
            ]
        );
        let text = "spec:\n  variables:\n  - name: a\n    expression: 1 + 2\n  - name: b\n    expression: object.metadata.name\n";
        assert_eq!(
            of(TextLanguage::Cel, text),
            [known("variables.a", Some("3")), known("variables.b", None)]
        );
    }

    #[test]
    fn a_name_goes_up_to_the_word() {
        let text = "len(request.object.metadata) > é.x";
        let at = |word: &str| text.find(word).unwrap() + 1;
        assert_eq!(name_at(text, at("object")).unwrap().0, "request.object");
        assert_eq!(name_at(text, at("request")).unwrap().0, "request");
        assert_eq!(name_at(text, at("len")).unwrap().0, "len");
        assert_eq!(name_at(text, text.len()).unwrap().0, "é.x");
        assert!(name_at(text, text.find(" >").unwrap() + 1).is_none());
    }
}
