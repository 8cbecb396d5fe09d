//! Whether webhooks are registered, and whether somebody answers them.

use kiln_admission::webhooks::CONFIGURATIONS;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::Value;

use super::super::left_webhooks::{self, Left};
use super::address::{Address, Unanswered};
use super::{Examination, Unread, certificates};

const ABOUT: &str = "webhooks";

pub(super) fn look(look: &mut Examination<'_>) {
    for (kind, name) in CONFIGURATIONS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = look.object(ABOUT, gvk, name) else { continue };
        let Some(found) = found else {
            let message = format!("{name} is not registered");
            let hint = "`kiln run` registers it unless it runs with --only controller; rules at admission do not act without it";
            look.doubtful(ABOUT, message, hint);
            continue;
        };
        let webhooks = found.get("webhooks").and_then(Value::as_list).cloned().unwrap_or_default();
        let mut is_well = true;
        for webhook in &webhooks {
            is_well &= one(look, name, webhook);
        }
        if is_well {
            look.good(ABOUT, format!("{name} is registered, and somebody answers"));
        }
    }
    for kind in left_webhooks::KINDS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = look.all(ABOUT, &gvk, "") else { continue };
        let namespace = look.settings.namespace.clone();
        for left in found.iter().filter_map(|found| Left::of(found, &namespace)) {
            // KubeMod may still be there.
            let (at, service) = &left.service;
            if left.path.is_some() || matches!(is_answered(look, at, service), Ok(false)) {
                let message = format!(
                    "{} is of an engine that is gone: requests that it is asked about are refused",
                    left.describe()
                );
                look.bad(ABOUT, message, &format!("`{}`", left.removal()));
            }
        }
    }
}

/// Whether a webhook is answered.
fn one(look: &mut Examination<'_>, configuration: &str, webhook: &Value) -> bool {
    let name = webhook.str_at(["name"]).unwrap_or_default();
    let which = format!("{name} in {configuration}");
    let stops = if webhook.str_at(["failurePolicy"]) == Some("Ignore") {
        "rules do not act"
    } else {
        "requests that it is asked about are refused"
    };
    let config = webhook.get("clientConfig").cloned().unwrap_or_default();
    let bundle = config.str_at(["caBundle"]).unwrap_or_default();
    if let Some(address) = Address::of(&config) {
        let is_trusted = certificates::bundle(look, configuration, bundle, &address.host);
        return is_there(look, &which, &address, stops) && is_trusted;
    }
    let text = |field| config.str_at(["service", field]).unwrap_or_default();
    let (namespace, service) = (text("namespace"), text("name"));
    let called = format!("{service}.{namespace}.svc");
    let is_trusted = certificates::bundle(look, configuration, bundle, &called);
    has_endpoints(look, &which, namespace, service, stops) && is_trusted
}

/// Whether an engine answers at an address.
fn is_there(look: &mut Examination<'_>, which: &str, address: &Address, stops: &str) -> bool {
    let origin = &address.origin;
    let start = "start `kiln run`, or delete the configuration";
    match look.said_at(address) {
        Ok(_) => return true,
        Err(Unanswered::Nobody(why)) => {
            let message = format!("{which} calls {origin}, where nobody answers: {stops}: {why}");
            look.bad(ABOUT, message, start);
        }
        Err(Unanswered::Distrusted(why)) => {
            let message = format!(
                "{which} calls {origin}, where nobody answers whom it trusts: {stops}: {why}"
            );
            look.bad(ABOUT, message, start);
        }
        Err(Unanswered::Unreachable(why)) => look.doubtful(
            ABOUT,
            format!("{which} calls {origin}, which cannot be reached from here: {why}"),
            "only the API server has to reach it: ask from where it runs",
        ),
    }
    false
}

/// Whether somebody is ready behind a Service.
fn has_endpoints(
    look: &mut Examination<'_>,
    which: &str,
    namespace: &str,
    service: &str,
    stops: &str,
) -> bool {
    let id = ObjectId::new(Gvk::new("v1", "Service"), namespace, service);
    match look.reader.object(&id) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let message = format!(
                "{which} calls the Service {namespace}/{service}, which is not there: {stops}"
            );
            look.bad(ABOUT, message, "start `kiln run`, or delete the configuration");
            return false;
        }
        Err(error) => {
            look.doubtful(
                ABOUT,
                format!("cannot read {id}: {error}"),
                "ask with other credentials",
            );
            return false;
        }
    }
    let Ok(is_answered) = is_answered(look, namespace, service) else { return false };
    if !is_answered {
        let message = format!(
            "nobody answers behind the Service {namespace}/{service} that {which} calls: {stops}"
        );
        look.bad(ABOUT, message, "start `kiln run`, or look at why its pods are not ready");
    }
    is_answered
}

/// Whether some endpoint of a Service is ready.
fn is_answered(look: &mut Examination<'_>, namespace: &str, service: &str) -> Result<bool, Unread> {
    let kind = Gvk::new("discovery.k8s.io/v1", "EndpointSlice");
    let slices = look.all(ABOUT, &kind, namespace)?;
    Ok(slices
        .iter()
        .filter(|slice| metadata::label(slice, "kubernetes.io/service-name") == Some(service))
        .filter_map(|slice| slice.get("endpoints")?.as_list())
        .flat_map(|endpoints| endpoints.iter())
        .any(|endpoint| {
            endpoint.get_path(["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
        }))
}
