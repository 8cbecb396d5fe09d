//! Who is behind the Services that webhooks call. Many webhooks call the same one, which is looked at once.

use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::Value;

use super::{Examination, Unread};

/// Who is behind a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// There is no such Service.
    NoService,
    /// No ready endpoint.
    Nobody,
    Somebody,
}

/// Who is behind a Service; what keeps it from being read is a finding.
pub(super) fn behind(
    look: &mut Examination<'_>,
    about: &'static str,
    (namespace, service): (&str, &str),
) -> Result<Behind, Unread> {
    let key = (namespace.to_owned(), service.to_owned());
    if let Some(known) = look.behind.get(&key) {
        return *known;
    }
    let found = ask(look, about, namespace, service);
    look.behind.insert(key, found);
    found
}

fn ask(
    look: &mut Examination<'_>,
    about: &'static str,
    namespace: &str,
    service: &str,
) -> Result<Behind, Unread> {
    let id = ObjectId::new(Gvk::new("v1", "Service"), namespace, service);
    let found = look.reader.object(&id);
    if found.map_err(|error| look.unread(about, &id.to_string(), &error))?.is_none() {
        return Ok(Behind::NoService);
    }
    let slices = look.all(about, &Gvk::new("discovery.k8s.io/v1", "EndpointSlice"), namespace)?;
    let is_ready = slices
        .iter()
        .filter(|slice| metadata::label(slice, "kubernetes.io/service-name") == Some(service))
        .filter_map(|slice| slice.get("endpoints")?.as_list())
        .flat_map(|endpoints| endpoints.iter())
        .any(|endpoint| {
            endpoint.get_path(["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
        });
    Ok(if is_ready { Behind::Somebody } else { Behind::Nobody })
}
