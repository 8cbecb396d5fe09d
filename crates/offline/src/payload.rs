//! Requests to other servers: fields that were left out have the values that such a request gives them.

use kiln_rules::Payload;
use kiln_value::{Map, Value, value};

/// A request with all of its fields; other data as it is.
pub(crate) fn completed(payload: Payload, given: &Value) -> Value {
    match payload {
        Payload::Kubernetes | Payload::Json => given.clone(),
        Payload::Http => over(&http(), given),
        Payload::Envoy => over(&envoy(), &in_snake_case(given)),
    }
}

fn http() -> Value {
    value!({"attributes": {
        "method": "", "header": {}, "host": "", "protocol": "", "contentLength": 0, "scheme": "", "path": "",
        "query": {}, "fragment": "",
    }})
}

fn envoy() -> Value {
    let peer = || value!({"service": "", "labels": {}, "principal": "", "certificate": ""});
    let mut request = value!({"attributes": {
        "request": {"http": {
            "id": "", "method": "", "headers": {}, "path": "", "host": "", "scheme": "", "query": "", "fragment": "",
            "size": 0, "protocol": "", "body": "",
        }},
        "context_extensions": {},
    }});
    for side in ["source", "destination"] {
        // The path is there.
        let _ = request.set(["attributes", side], peer());
    }
    request
}

/// What is given, with defaults where it says nothing. Maps are joined; everything else is taken as it is given.
fn over(defaults: &Value, given: &Value) -> Value {
    match (defaults, given) {
        (Value::Map(defaults), Value::Map(given)) => {
            let mut joined = defaults.clone();
            for (key, value) in given {
                let value = match defaults.get(key) {
                    Some(default) => over(default, value),
                    None => value.clone(),
                };
                joined.insert(key.clone(), value);
            }
            Value::Map(joined)
        }
        (defaults, Value::Null) => defaults.clone(),
        (_, given) => given.clone(),
    }
}

/// The fields of Envoy's message, which may be written in two ways. What is below the headers, labels and extensions are
/// names of others.
fn in_snake_case(given: &Value) -> Value {
    fn fields(value: &Value, depth: usize) -> Value {
        // attributes, request, http: below that there are no fields of the message any more.
        let Value::Map(map) = value else { return value.clone() };
        if depth > 3 {
            return value.clone();
        }
        let renamed = map.iter().map(|(key, value)| {
            let name = snake_case(key);
            let inner = match name.as_str() {
                "headers" | "labels" | "context_extensions" => value.clone(),
                _ => fields(value, depth + 1),
            };
            (name, inner)
        });
        Value::Map(renamed.collect::<Map>())
    }
    fields(given, 0)
}

fn snake_case(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_leaves_out_is_empty() {
        let given = value!({"attributes": {
            "contextExtensions": {"camelCase": "stays"},
            "request": {"http": {"method": "GET", "headers": {"X-Team": "a"}}},
        }});
        let request = completed(Payload::Envoy, &given);
        let http = request.get_path(["attributes", "request", "http"]).unwrap();
        assert_eq!(http.str_at(["method"]), Some("GET"));
        assert_eq!(http.str_at(["path"]), Some(""));
        assert_eq!(http.str_at(["headers", "X-Team"]), Some("a"));
        let extensions = ["attributes", "context_extensions", "camelCase"];
        assert_eq!(request.str_at(extensions), Some("stays"));
        let request =
            completed(Payload::Http, &value!({"attributes": {"path": "/a", "host": null}}));
        assert_eq!(request.str_at(["attributes", "path"]), Some("/a"));
        assert_eq!(request.str_at(["attributes", "host"]), Some(""));
    }
}
