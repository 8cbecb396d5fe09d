//! `context`: named values and where they come from.

use kiln_fields::kyverno as table;
use kiln_jmespath::Expression;
use kiln_rules::{ApiCall, Callee, ContextEntry, Load, Method, QueryText, Scope};
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::document_reader::{DocumentFields, DocumentNode};

const SOURCES: &[&str] = &["configMap", "apiCall", "imageRegistry", "variable", "globalReference"];
/// Names that the engine itself gives.
const TAKEN: &[&str] = &[
    "images",
    "request",
    "serviceAccountName",
    "serviceAccountNamespace",
    "element",
    "elementIndex",
];

/// Reads a list of entries.
pub(crate) fn context(node: Option<DocumentNode<'_, '_>>, scope: &Scope) -> Vec<ContextEntry> {
    let elements = node.map(|node| node.elements()).unwrap_or_default();
    elements.iter().filter_map(|element| entry(element, scope)).collect()
}

fn entry(node: &DocumentNode<'_, '_>, scope: &Scope) -> Option<ContextEntry> {
    let fields = node.fields(&table::CONTEXT_ENTRY)?;
    let sources: Vec<_> = SOURCES.iter().filter_map(|key| Some((*key, fields.get(key)?))).collect();
    let [(word, source)] = &sources[..] else {
        node.error_with(
            "exactly one of configMap or apiCall or imageRegistry or variable is required for \
             context entries",
            if sources.is_empty() {
                "say where the value comes from"
            } else {
                "write one entry for each"
            },
        );
        return None;
    };
    let name = name(&fields, source)?;
    let load = match *word {
        "variable" => variable(source)?,
        "configMap" => config_map(source, scope)?,
        "apiCall" => call(source, scope)?,
        "globalReference" => {
            let fields = source.fields(&table::GLOBAL_REFERENCE)?;
            Load::Global { name: required(&fields, "name")?, query: query(&fields) }
        }
        _ => {
            let fields = source.fields(&table::IMAGE_REGISTRY)?;
            Load::Image { reference: required(&fields, "reference")?, query: query(&fields) }
        }
    };
    Some(ContextEntry { name, load, path: node.path.clone() })
}

fn name(fields: &DocumentFields<'_, '_>, source: &DocumentNode<'_, '_>) -> Option<Str> {
    let name = match (fields.get("name"), source.value.get("name")) {
        (Some(name), _) => name.text()?,
        // A proposal for foreach writes the name inside `variable`.
        (None, Some(Value::String(inside))) if source.path.to_string().ends_with("variable") => {
            source.report.warn(
                &source.path.join("name"),
                format!("the name {inside:?} stands inside variable; it is taken from there"),
                Some("write name beside variable, so that others understand it too".into()),
            );
            inside.clone()
        }
        _ => fields.required_text("name")?,
    };
    let taken = TAKEN.iter().find(|taken| {
        name.strip_prefix(**taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    if let Some(taken) = taken {
        fields.report().error(
            fields.path(),
            format!(
                "entry name {name:?} is invalid, it conflicts with a pre-defined variable {taken:?}"
            ),
            Some("choose another name".into()),
        );
        return None;
    }
    if name.is_empty() {
        fields.error("a name is required for context entries", Some("add \"name\" here".into()));
        return None;
    }
    Some(name)
}

fn variable(node: &DocumentNode<'_, '_>) -> Option<Load> {
    let fields = node.fields(&table::VARIABLE)?;
    let (value, query, default) =
        (template(&fields, "value"), query(&fields), template(&fields, "default"));
    if value.is_none() && query.is_none() {
        // `default` alone says nothing about where the value comes from.
        node.error_with(
            "a variable must define a value or a jmesPath expression",
            "add \"value\" or \"jmesPath\" here",
        );
        return None;
    }
    if let (Some(default), None) = (fields.get("default"), &query) {
        default.error_with(
            "a variable must define a default value only when a jmesPath expression is defined",
            "add \"jmesPath\", or move the default to \"value\"",
        );
    }
    Some(Load::Variable { value, query, default })
}

fn config_map(node: &DocumentNode<'_, '_>, scope: &Scope) -> Option<Load> {
    let fields = node.fields(&table::CONFIG_MAP)?;
    let name = required(&fields, "name")?;
    let Some(namespace) = fields.get("namespace") else {
        node.error_with(
            "a namespace is required for configMap context entry",
            "add \"namespace\" here",
        );
        return None;
    };
    if let (Some(own), Some(text)) = (scope.namespace(), namespace.value.as_str())
        && text != own
        && !text.contains("{{")
    {
        namespace.error_with(
            format!("a policy of namespace {own:?} cannot read a ConfigMap of namespace {text:?}"),
            "use a ClusterPolicy, or a ConfigMap of the same namespace",
        );
    }
    Some(Load::ConfigMap { name, namespace: string_template(&namespace) })
}

fn call(node: &DocumentNode<'_, '_>, scope: &Scope) -> Option<Load> {
    let fields = node.fields(&table::API_CALL)?;
    let method = match fields.text("method").as_deref() {
        None | Some("GET") => Method::Get,
        Some("POST") => Method::Post,
        Some(other) => {
            let method = fields.get("method")?;
            method.error_with(format!("the method {other:?} is not allowed"), "use GET or POST");
            return None;
        }
    };
    let data = fields.get("data").map(|data| pairs(&data)).unwrap_or_default();
    if let Some(written) = fields.get("data").filter(|_| method == Method::Get && !data.is_empty())
    {
        written.error_with("only POST requests can have data", "add `method: POST`");
    }
    let callee = match (fields.get("urlPath"), fields.get("service")) {
        (Some(path), None) => {
            if let (Some(own), Some(text)) = (scope.namespace(), path.value.as_str()) {
                in_own_namespace(&path, text, own);
            }
            Callee::ApiServer(string_template(&path)?)
        }
        (None, Some(service)) => {
            let fields = service.fields(&table::SERVICE)?;
            Callee::Service {
                url: required(&fields, "url")?,
                headers: fields.get("headers").map(|node| pairs(&node)).unwrap_or_default(),
                ca_bundle: fields.text("caBundle"),
            }
        }
        (path, _) => {
            node.error_with(
                if path.is_some() {
                    "a urlPath cannot be used for service API calls"
                } else {
                    "an apiCall needs a urlPath or a service"
                },
                "write one of urlPath and service",
            );
            return None;
        }
    };
    Some(Load::Call(Box::new(ApiCall {
        callee,
        method,
        data,
        query: query(&fields),
        default: template(&fields, "default"),
    })))
}

fn in_own_namespace(node: &DocumentNode<'_, '_>, path: &str, own: &str) {
    let place = path.split('?').next().unwrap_or_default();
    let mut parts = place.split('/').skip_while(|part| *part != "namespaces").skip(1);
    let inside = parts.next().is_some_and(|namespace| namespace == own || namespace.contains("{{"))
        && parts.next().is_some();
    if !inside && !place.trim_start().starts_with("{{") {
        node.error_with(
            format!("a policy of namespace {own:?} can only read there: path must contain /namespaces/{own}/"),
            "use a ClusterPolicy to read elsewhere",
        );
    }
}

/// A list of keys and values.
fn pairs(node: &DocumentNode<'_, '_>) -> Vec<(Str, Template)> {
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.fields(&table::KEY_VALUE)?;
        Some((fields.required_text("key")?, template(&fields, "value")?))
    };
    node.elements().iter().filter_map(read).collect()
}

/// A field of any type that may hold variables.
pub(crate) fn template(fields: &DocumentFields<'_, '_>, key: &str) -> Option<Template> {
    let node = fields.get(key)?;
    Some(Template::compile_part(node.value, &node.path))
}

/// A text that may hold variables.
pub(crate) fn string_template(node: &DocumentNode<'_, '_>) -> Option<Template> {
    node.text()?;
    Some(Template::compile_part(node.value, &node.path))
}

fn required(fields: &DocumentFields<'_, '_>, key: &str) -> Option<Template> {
    fields.required_text(key)?;
    string_template(&fields.get(key)?)
}

fn query(fields: &DocumentFields<'_, '_>) -> Option<QueryText> {
    expression(&fields.get("jmesPath")?)
}

/// An expression that may hold variables.
pub(crate) fn expression(node: &DocumentNode<'_, '_>) -> Option<QueryText> {
    let text = node.text()?;
    if text.contains("{{") {
        return Some(QueryText::Unfilled(Template::compile_part(node.value, &node.path)));
    }
    ready(node, &text)
}

/// The expression of `foreach.list`: bare, or as the only variable of the text.
pub(crate) fn list_expression(node: &DocumentNode<'_, '_>) -> Option<QueryText> {
    let text = node.text()?;
    let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    match inside {
        Some(inside) if inside.contains("{{") => {
            let inside = Value::from(inside.trim());
            Some(QueryText::Unfilled(Template::compile_part(&inside, &node.path)))
        }
        Some(inside) => ready(node, inside.trim()),
        None => expression(node),
    }
}

fn ready(node: &DocumentNode<'_, '_>, text: &str) -> Option<QueryText> {
    match Expression::compile(text) {
        Ok(expression) => {
            for error in expression.check() {
                let hint = error.hint_text().map(str::to_owned);
                node.report.warn(&node.path, format!("in {text:?}: {}", error.message()), hint);
            }
            Some(QueryText::Ready(expression))
        }
        Err(error) => {
            let column =
                text.get(..error.span().start).map_or(0, |before| before.chars().count()) + 1;
            let message =
                format!("{text:?} is not an expression: {} at character {column}", error.message());
            node.report.error(&node.path, message, error.hint_text().map(str::to_owned));
            None
        }
    }
}
