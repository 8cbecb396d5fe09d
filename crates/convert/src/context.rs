//! Context entries of Kyverno's rules as CEL variables and calls of `resource`, `globalContext`, `image` and `http`.

use kiln_object::Kinds;
use kiln_value::{Path, Value};

use crate::cel::{Cel, is_identifier};
use crate::jmespath_to_cel::{Scope, translate, translate_in};
use crate::shape::Shape;
use crate::templates::{self, Part};
use crate::term::Term;
use crate::verdict::{CoveredRequests, Difference, Obstacle};

/// A CEL variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CelVariable {
    pub(crate) name: String,
    pub(crate) cel: Cel,
}

/// Adds the entries of a context to a scope. Those outside of loops become variables of their own; the value of an entry
/// inside of one is written where it is used.
pub(crate) fn add(
    entries: Option<&Value>,
    kinds: &Kinds,
    scope: &mut Scope,
    mut variables: Option<&mut Vec<CelVariable>>,
    path: &Path,
) -> Result<(), Obstacle> {
    let Some(Value::List(entries)) = entries else { return Ok(()) };
    for (at, entry) in entries.iter().enumerate() {
        let path = path.join(at);
        let name = entry.str_at(["name"]).unwrap_or_default();
        let term = loaded(entry, kinds, scope, &path)?;
        let term = match (variables.as_deref_mut(), term) {
            (
                _,
                term @ (Term::Literal(Value::String(_) | Value::Number(_) | Value::Bool(_))
                | Term::Images(_)),
            ) => term,
            (Some(variables), term) => {
                let shape = term.shape();
                let name = variable_name(name);
                // A list that comes of nothing is empty.
                let cel = match &term {
                    Term::Guarded { .. } => term.list(),
                    term => term.strict(),
                };
                variables.push(CelVariable { name: name.clone(), cel });
                Term::Value(Cel::name("variables").select(&name), shape)
            }
            (None, term) => term,
        };
        scope.set(name, term);
    }
    Ok(())
}

/// A name that CEL takes.
pub(crate) fn variable_name(name: &str) -> String {
    if is_identifier(name) {
        return name.to_owned();
    }
    let mut camel = String::new();
    let mut upper = false;
    for c in name.chars() {
        match c.is_ascii_alphanumeric() {
            true if upper => {
                camel.extend(c.to_uppercase());
                upper = false;
            }
            true => camel.push(c),
            false => upper = !camel.is_empty(),
        }
    }
    if camel.starts_with(|c: char| c.is_ascii_digit()) || camel.is_empty() {
        format!("v{camel}")
    } else {
        camel
    }
}

fn loaded(entry: &Value, kinds: &Kinds, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    let at = |obstacle: Obstacle| obstacle.at(path);
    if let Some(variable) = entry.get("variable") {
        return self::variable(variable, scope, &path.join("variable"));
    }
    if let Some(map) = entry.get("configMap") {
        let text = |field: &str| {
            templates::text_term(map.str_at([field]).unwrap_or_default(), scope).map_err(at)
        };
        let namespace = match map.get("namespace") {
            Some(_) => text("namespace")?.strict(),
            None => Cel::text("default"),
        };
        let args =
            vec![Cel::text("v1"), Cel::text("configmaps"), namespace, text("name")?.strict()];
        let get = Cel::name("resource").call("Get", args);
        return Ok(Term::Value(get, Shape::of_kinds([("v1", "ConfigMap")])));
    }
    if let Some(call) = entry.get("apiCall") {
        return api_call(call, kinds, scope, &path.join("apiCall"));
    }
    if let Some(global) = entry.get("globalReference") {
        let name = global.str_at(["name"]).unwrap_or_default();
        let args = match name.split_once('.') {
            Some((name, projection)) => vec![Cel::text(name), Cel::text(projection)],
            None => vec![Cel::text(name)],
        };
        let term = Term::Value(Cel::name("globalContext").call("Get", args), Shape::Unknown);
        return queried(global, term, scope).map_err(at);
    }
    if let Some(registry) = entry.get("imageRegistry") {
        let reference =
            templates::text_term(registry.str_at(["reference"]).unwrap_or_default(), scope)
                .map_err(at)?;
        scope.note(Difference::other(
            "images whose registry does not answer",
            "the rule takes the default of what it reads of the image, or does not run; the new policy cannot be evaluated",
            CoveredRequests::NewErrorOf("image data"),
        ));
        let get = Cel::name("image").call("GetMetadata", vec![reference.strict()]);
        // The configuration of the image is called otherwise here.
        let data = Term::Value(get, Shape::Unknown);
        let fields = ["registry", "repository", "identifier", "image", "resolvedImage", "manifest"];
        let mut parts: Vec<(String, Term)> =
            fields.iter().map(|field| ((*field).to_owned(), data.field(field))).collect();
        parts.push(("configData".to_owned(), data.field("config")));
        return queried(registry, Term::Fields(parts), scope).map_err(at);
    }
    Err(Obstacle::new("a context entry of an unknown kind", "write a CEL variable").at(path))
}

/// What a `jmesPath` finds in a value, if there is one.
fn queried(entry: &Value, term: Term, scope: &Scope) -> Result<Term, Obstacle> {
    match entry.str_at(["jmesPath"]) {
        Some(query) => translate_in(query, scope, &term),
        None => Ok(term),
    }
}

fn variable(variable: &Value, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    let query = variable.str_at(["jmesPath"]);
    let term = match (variable.get("value"), query) {
        (Some(value), query) => {
            let value = templates::term(value, scope, &path.join("value"))?;
            match query {
                Some(query) => {
                    translate_in(query, scope, &value).map_err(|obstacle| obstacle.at(path))?
                }
                None => value,
            }
        }
        (None, Some(query)) => {
            translate(query, scope).map_err(|obstacle| obstacle.at(&path.join("jmesPath")))?
        }
        (None, None) => Term::Literal(Value::Null),
    };
    match variable.get("default") {
        Some(default) => {
            let default = templates::term(default, scope, &path.join("default"))?;
            let shape = match term.shape() {
                Shape::Unknown => default.shape(),
                shape => shape,
            };
            Ok(match term {
                Term::Literal(Value::Null) => default,
                term => Term::Value(term.or(default.strict()), shape),
            })
        }
        None => Ok(term),
    }
}

fn api_call(call: &Value, kinds: &Kinds, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    if let Some(service) = call.get("service") {
        let url = templates::text_term(service.str_at(["url"]).unwrap_or_default(), scope)
            .map_err(|obstacle| obstacle.at(path))?;
        if service.get("caBundle").is_some() || service.get("headers").is_some() {
            return Err(Obstacle::new(
                "a service with caBundle or headers",
                "call http.Client(caBundle) or http.Get(url, headers) in CEL",
            )
            .at(path));
        }
        let client = Cel::name("http");
        let answer = match call.str_at(["method"]) {
            Some("POST") => {
                let mut body = Vec::new();
                for entry in call
                    .get("data")
                    .and_then(Value::as_list)
                    .into_iter()
                    .flat_map(|list| list.iter())
                {
                    let key = entry.str_at(["key"]).unwrap_or_default();
                    let value = entry.get("value").unwrap_or(&Value::Null);
                    let value = templates::term(value, scope, &path.join("data"))?;
                    body.push((Cel::text(key), Cel::function("dyn", vec![value.strict()])));
                }
                client.call("Post", vec![url.strict(), Cel::Map(body)])
            }
            _ => client.call("Get", vec![url.strict()]),
        };
        let term = Term::Value(answer, Shape::Unknown);
        return with_default(
            call,
            queried(call, term, scope).map_err(|obstacle| obstacle.at(path))?,
            scope,
            path,
        );
    }
    let url = call.str_at(["urlPath"]).unwrap_or_default();
    if call.str_at(["method"]).is_some_and(|method| method == "POST") {
        let post = posted(url, call, scope, path)?;
        return queried(call, post, scope).map_err(|obstacle| obstacle.at(path));
    }
    let term =
        read_path(url, kinds, scope).map_err(|obstacle| obstacle.at(&path.join("urlPath")))?;
    with_default(
        call,
        queried(call, term, scope).map_err(|obstacle| obstacle.at(path))?,
        scope,
        path,
    )
}

fn with_default(call: &Value, term: Term, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    let Some(default) = call.get("default") else { return Ok(term) };
    let default = templates::term(default, scope, &path.join("default"))?;
    let shape = term.shape();
    Ok(Term::Value(term.or(default.strict()), shape))
}

/// An access review, or another object that is only sent.
fn posted(url: &str, call: &Value, scope: &Scope, path: &Path) -> Result<Term, Obstacle> {
    let parts: Vec<&str> = url.trim_matches('/').split('/').collect();
    let (api_version, resource) = match parts.as_slice() {
        ["api", version, resource] => ((*version).to_owned(), *resource),
        ["apis", group, version, resource] => (format!("{group}/{version}"), *resource),
        _ => {
            return Err(
                Obstacle::new(format!("a POST to {url}"), "call resource.Post in CEL").at(path)
            );
        }
    };
    let mut body = Vec::new();
    for entry in call.get("data").and_then(Value::as_list).into_iter().flat_map(|list| list.iter())
    {
        let key = entry.str_at(["key"]).unwrap_or_default();
        let value = entry.get("value").unwrap_or(&Value::Null);
        let value = templates::term(value, scope, &path.join("data"))?;
        body.push((Cel::text(key), Cel::function("dyn", vec![value.strict()])));
    }
    let args = vec![Cel::text(api_version), Cel::text(resource), Cel::text(""), Cel::Map(body)];
    Ok(Term::Value(Cel::name("resource").call("Post", args), Shape::Unknown))
}

/// A path of the API as `resource.Get` or `resource.List`.
fn read_path(url: &str, kinds: &Kinds, scope: &Scope) -> Result<Term, Obstacle> {
    let unknown =
        || Obstacle::new(format!("the path {url:?}"), "call resource.Get or resource.List in CEL");
    let (url_path, query) = match split_query(url) {
        (path, query) if !path.is_empty() => (path, query),
        _ => return Err(unknown()),
    };
    // Segments may hold variables, which may hold slashes.
    let mut segments: Vec<Vec<Part>> = vec![Vec::new()];
    for part in templates::parts(url_path.trim_start_matches('/').trim_end_matches('/')) {
        match part {
            Part::Text(text) => {
                for (number, piece) in text.split('/').enumerate() {
                    if number > 0 {
                        segments.push(Vec::new());
                    }
                    if !piece.is_empty()
                        && let Some(last) = segments.last_mut()
                    {
                        last.push(Part::Text(piece.to_owned()));
                    }
                }
            }
            variable => {
                segments.last_mut().into_iter().for_each(|last| last.push(variable.clone()));
            }
        }
    }
    segments.retain(|segment| !segment.is_empty());
    let plain = |segment: &[Part]| match segment {
        [Part::Text(text)] => Some(text.clone()),
        _ => None,
    };
    let cel = |segment: &[Part]| -> Result<Cel, Obstacle> {
        let text: String = segment
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Variable(variable) => format!("{{{{ {variable} }}}}"),
            })
            .collect();
        Ok(templates::text_term(&text, scope)?.strict())
    };
    let first = segments.first().and_then(|segment| plain(segment)).ok_or_else(unknown)?;
    let (api_version, rest) = match first.as_str() {
        "api" => (plain(segments.get(1).ok_or_else(unknown)?).ok_or_else(unknown)?, &segments[2..]),
        "apis" if segments.len() >= 3 => {
            let group = plain(&segments[1]).ok_or_else(unknown)?;
            let version = plain(&segments[2]).ok_or_else(unknown)?;
            (format!("{group}/{version}"), &segments[3..])
        }
        _ => return Err(unknown()),
    };
    let (namespace, rest) = match rest {
        [word, namespace, rest @ ..]
            if plain(word).as_deref() == Some("namespaces") && !rest.is_empty() =>
        {
            (Some(cel(namespace)?), rest)
        }
        rest => (None, rest),
    };
    let (resource, name) = match rest {
        [resource] => (plain(resource).ok_or_else(unknown)?, None),
        [resource, name] => (plain(resource).ok_or_else(unknown)?, Some(cel(name)?)),
        _ => return Err(unknown()),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = kinds.by_resource(group, version, &resource);
    let shape =
        kind.map_or(Shape::Unknown, |kind| Shape::of_kinds([(api_version.as_str(), kind.kind())]));
    let mut args = vec![
        Cel::text(&api_version),
        Cel::text(&resource),
        namespace.unwrap_or_else(|| Cel::text("")),
    ];
    let target = Cel::name("resource");
    match name {
        Some(name) => {
            args.push(name);
            Ok(Term::Value(target.call("Get", args), shape))
        }
        None => {
            if let Some(labels) = labels_of(query, scope)? {
                args.push(labels);
            }
            let list = target.call("List", args);
            let items = Term::Value(list.select("items"), Shape::List(Box::new(shape)));
            Ok(Term::Fields(vec![("items".to_owned(), items)]))
        }
    }
}

fn split_query(url: &str) -> (&str, &str) {
    // A question mark inside of a variable is not one of the path.
    let mut depth = 0usize;
    for (at, c) in url.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '?' if depth == 0 => return (&url[..at], &url[at + 1..]),
            _ => {}
        }
    }
    (url, "")
}

/// The labels of a `labelSelector`; other parts of a query only make answers shorter.
fn labels_of(query: &str, scope: &Scope) -> Result<Option<Cel>, Obstacle> {
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("labelSelector", selector)) => {
                let selector = selector.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
                let mut labels = Vec::new();
                for pair in selector.split(',') {
                    let Some((key, value)) =
                        pair.split_once('=').filter(|(key, _)| !key.ends_with('!'))
                    else {
                        return Err(Obstacle::new(
                            format!("labelSelector {selector:?}"),
                            "filter the items in CEL",
                        ));
                    };
                    let value = templates::text_term(value.trim_start_matches('='), scope)?;
                    labels.push((Cel::text(key), value.strict()));
                }
                return Ok(Some(Cel::Map(labels)));
            }
            Some(("limit", _)) | None => {}
            Some((name, _)) => {
                return Err(Obstacle::new(
                    format!("parameter {name:?} of a path"),
                    "filter the items in CEL",
                ));
            }
        }
    }
    Ok(None)
}
