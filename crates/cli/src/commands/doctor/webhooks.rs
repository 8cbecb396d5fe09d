//! Whether webhooks are registered, and whether somebody answers them.

use kiln_admission::webhooks::CONFIGURATIONS;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::Value;

use super::{Examination, certificates};

pub(super) fn look(look: &mut Examination<'_>) {
    let about = "webhooks";
    for (kind, name) in CONFIGURATIONS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Some(found) = look.object(about, gvk, name) else {
            let message = format!("{name} is not registered");
            let hint = "`kiln run` registers it unless it runs with --only controller; rules at admission do not act without it";
            look.doubtful(about, message, hint);
            continue;
        };
        let webhooks = found.get("webhooks").and_then(Value::as_list).cloned().unwrap_or_default();
        let mut is_well = true;
        for webhook in &webhooks {
            is_well &= one(look, name, webhook);
        }
        if is_well {
            look.good(about, format!("{name} is registered, and somebody answers"));
        }
    }
}

/// Whether a webhook can be answered.
fn one(look: &mut Examination<'_>, configuration: &str, webhook: &Value) -> bool {
    let about = "webhooks";
    let name = webhook.str_at(["name"]).unwrap_or_default();
    let which = format!("{name} in {configuration}");
    let stops = if webhook.str_at(["failurePolicy"]) == Some("Ignore") {
        "rules do not act"
    } else {
        "requests that it is asked about are refused"
    };
    let bundle = webhook.str_at(["clientConfig", "caBundle"]).unwrap_or_default();
    if !certificates::bundle(look, &which, bundle) {
        return false;
    }
    let text = |field| webhook.str_at(["clientConfig", "service", field]).unwrap_or_default();
    let (namespace, service) = (text("namespace").to_owned(), text("name").to_owned());
    if service.is_empty() {
        // A developer's machine: only the API server can tell whether it is there.
        return true;
    }
    let id = ObjectId::new(Gvk::new("v1", "Service"), &namespace, &service);
    match look.reader.object(&id) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let message = format!(
                "{which} calls the Service {namespace}/{service}, which is not there: {stops}"
            );
            look.bad(about, message, "start `kiln run`, or delete the configuration");
            return false;
        }
        Err(error) => {
            look.doubtful(
                about,
                format!("cannot read {id}: {error}"),
                "ask with other credentials",
            );
            return false;
        }
    }
    let slices = look.all(about, &Gvk::new("discovery.k8s.io/v1", "EndpointSlice"), &namespace);
    let is_answered = slices
        .iter()
        .filter(|slice| metadata::label(slice, "kubernetes.io/service-name") == Some(&service))
        .filter_map(|slice| slice.get("endpoints")?.as_list())
        .flat_map(|endpoints| endpoints.iter())
        .any(|endpoint| {
            endpoint.get_path(["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
        });
    if !is_answered {
        let message = format!(
            "nobody answers behind the Service {namespace}/{service} that {which} calls: {stops}"
        );
        look.bad(about, message, "start `kiln run`, or look at why its pods are not ready");
    }
    is_answered
}
