//! The endpoints of Services that webhooks call. Many webhooks call the same one, which is read once.

use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::Value;

use super::{Checks, Unread};

/// Whether a Service has endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    NoService,
    NotReady,
    Ready,
}

/// Whether a Service has endpoints; what keeps it from being read is a finding.
pub(super) fn endpoints(
    checks: &mut Checks<'_>,
    about: &'static str,
    (namespace, service): (&str, &str),
) -> Result<Endpoints, Unread> {
    let key = (namespace.to_owned(), service.to_owned());
    if let Some(known) = checks.endpoints.get(&key) {
        return *known;
    }
    let found = ask(checks, about, namespace, service);
    checks.endpoints.insert(key, found);
    found
}

fn ask(
    checks: &mut Checks<'_>,
    about: &'static str,
    namespace: &str,
    service: &str,
) -> Result<Endpoints, Unread> {
    let id = ObjectId::new(Gvk::new("v1", "Service"), namespace, service);
    let found = checks.reader.object(&id);
    if found.map_err(|error| checks.unread(about, &id.to_string(), &error))?.is_none() {
        return Ok(Endpoints::NoService);
    }
    let slices = checks.all(about, &Gvk::new("discovery.k8s.io/v1", "EndpointSlice"), namespace)?;
    let is_ready = slices
        .iter()
        .filter(|slice| metadata::label(slice, "kubernetes.io/service-name") == Some(service))
        .filter_map(|slice| slice.get("endpoints")?.as_list())
        .flat_map(|endpoints| endpoints.iter())
        .any(|endpoint| {
            endpoint.get_path(["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
        });
    Ok(if is_ready { Endpoints::Ready } else { Endpoints::NotReady })
}
