//! Field selectors: which fields a kind lets itself be selected by.

use kiln_object::Gvk;
use kiln_value::{Map, Str, Value};

use crate::crd::Customs;
use crate::status::RequestFailure;

/// Selects objects by fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSelector {
    terms: Vec<(Str, bool, Str)>,
}

impl FieldSelector {
    /// Reads a selector for a kind.
    pub(crate) fn parse(text: &str, gvk: &Gvk, customs: &Customs) -> Result<Self, RequestFailure> {
        let mut terms = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (field, equal, value) =
                match (term.split_once("!="), term.split_once("=="), term.split_once('=')) {
                    (Some((field, value)), ..) => (field, false, value),
                    (None, Some((field, value)), _) | (None, None, Some((field, value))) => {
                        (field, true, value)
                    }
                    _ => {
                        let message =
                            format!("invalid selector: '{text}'; can't understand '{term}'");
                        return Err(RequestFailure::bad_request(message));
                    }
                };
            if !is_known(field, gvk, customs) {
                let why = match gvk.kind.as_str() {
                    "Pod"
                    | "Event"
                    | "Secret"
                    | "Namespace"
                    | "Node"
                    | "Service"
                    | "ReplicationController"
                    | "Job"
                    | "CertificateSigningRequest"
                        if customs.get(gvk).is_none() =>
                    {
                        format!("field label not supported: {field}")
                    }
                    _ if customs.get(gvk).is_some() => {
                        format!("field label not supported: {field}")
                    }
                    _ => format!(
                        "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                };
                return Err(RequestFailure::bad_request(why));
            }
            terms.push((Str::new(field), equal, Str::new(value)));
        }
        Ok(FieldSelector { terms })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|(field, equal, value)| (text_at(object, field) == value.as_str()) == *equal)
    }
}

fn is_known(field: &str, gvk: &Gvk, customs: &Customs) -> bool {
    if let Some(custom) = customs.get(gvk) {
        return matches!(field, "metadata.name" | "metadata.namespace")
            || custom.selectable.iter().any(|selectable| selectable == field);
    }
    let more: &[&str] = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "ReplicationController") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        ("resource.k8s.io", "ResourceSlice") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    };
    let clusterwide = matches!(
        gvk.kind.as_str(),
        "Namespace" | "Node" | "CertificateSigningRequest" | "ResourceSlice"
    );
    field == "metadata.name"
        || field == "metadata.namespace" && !clusterwide
        || more.contains(&field)
}

/// The value of a field, as a text; what is missing is empty, or what it counts as.
fn text_at(object: &Value, field: &str) -> String {
    let path = match field {
        "status.successful" => "status.succeeded",
        "source" => "source.component",
        field => field,
    };
    match object.get_path(path.split('.')) {
        None | Some(Value::Null) => match field {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.replicas" | "status.successful" => "0".to_owned(),
            _ => String::new(),
        },
        Some(Value::String(text)) => text.to_string(),
        Some(Value::List(list)) => {
            let ips: Vec<&str> = list.iter().filter_map(|ip| ip.str_at(["ip"])).collect();
            ips.join(",")
        }
        Some(other) => kiln_value::json::to_string(other),
    }
}

/// The labels of an object.
pub(crate) fn labels(object: &Value) -> Option<&Map> {
    object.get_path(["metadata", "labels"]).and_then(Value::as_map)
}
