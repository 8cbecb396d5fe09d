//! What Kiln refuses that the original tools do, as far as the text of a policy shows it.

use std::sync::Arc;

use kiln_admission::Settings;
use kiln_admission::authors::{Authors, is_unsigned};
use kiln_engine::HostAllowlist;
use kiln_object::policy_kinds::is_cel;
use kiln_object::{Gvk, metadata};
use kiln_rules::Exception;
use kiln_value::Value;

use super::{Fate, Runs};

/// Functions of CEL that ask the network. All have a second spelling that begins with a small letter.
const HTTP: [&str; 3] = ["http.Get(", "http.Post(", "http.Put("];
/// What makes something that asks the network later.
const HTTP_CLIENT: &str = "http.Client(";
/// Functions of CEL that ask image registries.
const REGISTRY: &str = "image.GetMetadata(";
/// The function of CEL that reads the global context.
const GLOBALS: &str = "globalContext.Get(";

const NO_REGISTRY: &str =
    "it calls an image registry, which is denied: give the value in another way";

// Kyverno: newer versions refuse these in policies of namespaces as well.
const NO_GLOBALS: &str = "namespaced policies cannot read the global context";
const NO_SERVICES: &str = "namespaced policies cannot call services";

const NO_AUTHOR: &str = "its author is not recorded, so it has the engine's permissions in its namespace: a user who stores it again is \
     limited to their own permissions";
const NO_AUTHOR_OF_ALL: &str = "its author is not recorded, so it has the engine's permissions: a user who stores it again is limited to their \
     own permissions";

/// Exceptions that do not hold, for all that they say.
pub(super) fn of_exceptions(exceptions: &[Arc<Exception>], settings: &Settings) -> Vec<Fate> {
    let others = exceptions.iter().filter(|exception| !settings.holds(exception));
    let fate = |exception: &Arc<Exception>| Fate {
        policy: format!("PolicyException/{}", exception.name),
        runs: Runs::NotAtAll,
        // Kyverno: exceptions are off, or from one namespace, unless its flags say otherwise.
        why: vec![format!(
            "exceptions hold for all policies in {}: add its namespace to kiln.exceptionNamespaces if Kyverno's flag \
             --exceptionNamespace allows it",
            match settings.exception_namespaces.join(", ") {
                none if none.is_empty() => "no namespace".to_owned(),
                some => format!("{some} alone"),
            }
        )],
    };
    others.map(fate).collect()
}

/// What users may want to know of a policy that runs as it is.
pub(super) fn remark(policy: &Value, authors: Authors) -> Option<&'static str> {
    let words = if is_namespaced(policy) { NO_AUTHOR } else { NO_AUTHOR_OF_ALL };
    is_unsigned(policy, authors).then_some(words)
}

/// Everything that a policy asks for and does not get, each once.
pub(super) fn of(policy: &Value, services: &HostAllowlist) -> Vec<String> {
    let mut found = Vec::new();
    let is_cel = Gvk::of(policy).is_some_and(|gvk| is_cel(&gvk));
    let is_namespaced = is_namespaced(policy);
    walk(policy.get("spec").unwrap_or(&Value::Null), &mut |key, value| match value {
        Value::Map(_) if key == "apiCall" => {
            let address = value.str_at(["service", "url"]);
            found.extend(address.and_then(|address| match is_namespaced {
                true => Some(NO_SERVICES.to_owned()),
                false if address.contains("{{") => unasked("", services),
                false => unasked(address, services),
            }));
        }
        Value::Map(_) if key == "globalReference" && is_namespaced => {
            found.push(NO_GLOBALS.to_owned());
        }
        Value::Map(_) if key == "imageRegistry" => found.push(NO_REGISTRY.to_owned()),
        Value::String(text) if is_cel => {
            let addresses = HTTP.iter().flat_map(|call| calls(text, call)).map(literal);
            // Whom a client asks is said elsewhere.
            let addresses = addresses.chain(calls(text, HTTP_CLIENT).map(|_| ""));
            found.extend(addresses.filter_map(|address| match is_namespaced {
                true => Some(NO_SERVICES.to_owned()),
                false => unasked(address, services),
            }));
            if is_namespaced && calls(text, GLOBALS).next().is_some() {
                found.push(NO_GLOBALS.to_owned());
            }
            if calls(text, REGISTRY).next().is_some() {
                found.push(NO_REGISTRY.to_owned());
            }
        }
        _ => {}
    });
    found.sort();
    found.dedup();
    found
}

fn is_namespaced(policy: &Value) -> bool {
    metadata::namespace(policy).is_some_and(|namespace| !namespace.is_empty())
}

/// Why an entry of the global context would be empty.
pub(super) fn of_global(entry: &Value) -> Option<String> {
    let call = entry.get_path(["spec", "apiCall"])?;
    let asks = call.get("service").is_some() || call.str_at(["method"]) == Some("POST");
    asks.then(|| {
        "only responses of the API server are cached, so rules that use it fail".to_owned()
    })
}

/// Why a service would not be asked. An address that is put together when the rule runs is empty here.
fn unasked(address: &str, services: &HostAllowlist) -> Option<String> {
    let why = match address {
        "" if services.is_empty() => "it calls a service, and no services are allowed".to_owned(),
        "" => return None,
        address => services.keeps_from(address)?,
    };
    Some(format!("{why} (list the host under kiln.services in the ConfigMap)"))
}

/// What stands behind each call of a function, in either spelling: `http.Get(` is also `http.get(`.
fn calls<'t>(text: &'t str, call: &str) -> impl Iterator<Item = &'t str> + use<'t> {
    let small = match call.split_once('.') {
        Some((library, function)) => {
            let mut letters = function.chars();
            let first = letters.next().map(|first| first.to_ascii_lowercase());
            format!("{library}.{}{}", first.unwrap_or_default(), letters.as_str())
        }
        None => call.to_owned(),
    };
    let found: Vec<&str> =
        [call, &small].into_iter().flat_map(|call| text.split(call).skip(1)).collect();
    found.into_iter()
}

/// The text that a call begins with; empty when that is not a plain text, or only the beginning of one.
fn literal(arguments: &str) -> &str {
    let arguments = arguments.trim_start();
    let Some(quote) = arguments.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        return "";
    };
    let Some((text, rest)) = arguments[1..].split_once(quote) else { return "" };
    if rest.trim_start().starts_with('+') { "" } else { text }
}

fn walk(value: &Value, see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Map(map) => {
            for (key, value) in map.iter() {
                see(key, value);
                walk(value, see);
            }
        }
        Value::List(list) => {
            for value in list {
                see("", value);
                walk(value, see);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn cel(expression: &str) -> Value {
        value!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "GeneratingPolicy",
            "spec": {"variables": [{"name": "x", "expression": expression}]},
        })
    }

    fn rule(entry: &Value) -> Value {
        let rules = value!([{"name": "r", "context": [entry.clone()]}]);
        let mut policy = value!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy"});
        policy.set(["spec", "rules"], rules).unwrap();
        policy
    }

    fn service(url: &str) -> Value {
        rule(&value!({"name": "x", "apiCall": {"service": {"url": url}}}))
    }

    #[test]
    fn what_is_refused_is_found() {
        let listed = "it is not on the allowlist";
        let listed_as = |host: &str| Some(format!("the service {host} is not called: {listed}"));
        let none = || Some("no services are allowed".to_owned());
        for (policy, without, with) in [
            (service("http://shop.svc/a"), none(), None),
            (service("http://other.svc/a"), none(), listed_as("other.svc:80")),
            (service("http://{{ host }}/a"), none(), None),
            (cel("http.Get('http://shop.svc/a').price"), none(), None),
            (cel("http.Post(\"http://other.svc\", {})"), none(), listed_as("other.svc:80")),
            (cel("http.Get('http://' + object.data.host)"), none(), None),
            (cel("http.get('http://other.svc/a')"), none(), listed_as("other.svc:80")),
            (cel("http.Client('certificate').Get('http://other.svc')"), none(), None),
            (
                cel("image.getMetadata('a').config"),
                Some(NO_REGISTRY.to_owned()),
                Some(NO_REGISTRY.to_owned()),
            ),
            (cel("'http.' + 'Get'"), None, None),
            (rule(&value!({"name": "x", "apiCall": {"urlPath": "/api/v1/pods"}})), None, None),
            (
                rule(&value!({"name": "x", "variable": {"value": "http.Get('http://a')"}})),
                None,
                None,
            ),
            (
                rule(&value!({"name": "x", "imageRegistry": {"reference": "a"}})),
                Some(NO_REGISTRY.to_owned()),
                Some(NO_REGISTRY.to_owned()),
            ),
            (
                cel("image.GetMetadata('a').config"),
                Some(NO_REGISTRY.to_owned()),
                Some(NO_REGISTRY.to_owned()),
            ),
        ] {
            for (services, wanted) in [("", without), ("shop.svc", with)] {
                let said = of(&policy, &HostAllowlist::read(services).unwrap());
                let as_wanted = match &wanted {
                    Some(wanted) => said.len() == 1 && said[0].contains(wanted.as_str()),
                    None => said.is_empty(),
                };
                assert!(as_wanted, "{services:?} {policy:?}: {said:?}, not {wanted:?}");
            }
        }
    }

    #[test]
    fn policies_of_a_namespace_see_less() {
        let listed = HostAllowlist::read("shop.svc").unwrap();
        let global = rule(&value!({"name": "x", "globalReference": {"name": "y"}}));
        for (mut policy, wanted) in [
            (service("http://shop.svc/a"), NO_SERVICES),
            (global, NO_GLOBALS),
            (cel("globalContext.Get('y', '')"), NO_GLOBALS),
            (cel("globalContext.get('y', '')"), NO_GLOBALS),
            (cel("http.Get('http://shop.svc/a')"), NO_SERVICES),
            (cel("http.client('certificate').get('http://shop.svc/a')"), NO_SERVICES),
        ] {
            assert_eq!(of(&policy, &listed), Vec::<String>::new(), "{policy:?}");
            policy.set(["metadata", "namespace"], "team").unwrap();
            assert_eq!(of(&policy, &listed), [wanted], "{policy:?}");
        }
    }

    #[test]
    fn entries_of_the_global_context_hold_answers_of_the_server() {
        let entry = |call: Value| {
            let mut entry = value!({"kind": "GlobalContextEntry"});
            entry.set(["spec", "apiCall"], call).unwrap();
            entry
        };
        assert!(of_global(&entry(value!({"service": {"url": "http://a"}}))).is_some());
        assert!(of_global(&entry(value!({"urlPath": "/x", "method": "POST"}))).is_some());
        assert!(of_global(&entry(value!({"urlPath": "/x"}))).is_none());
        assert!(of_global(&value!({"spec": {"kubernetesResource": {}}})).is_none());
    }
}
