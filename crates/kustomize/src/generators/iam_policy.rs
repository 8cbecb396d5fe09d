//! IAMPolicyGenerator: a service account that is bound to one of a cloud.

use kiln_value::{Value, value};

use crate::error::{Error, Result};
use crate::load::decode::record;

record! {
    /// The configuration of an IAMPolicyGenerator.
    IamPolicyConfig = "IAMPolicyGeneratorArgs" {
        cloud: String = "cloud",
        kubernetes_service: KubernetesService = "kubernetesService",
        service_account: ServiceAccount = "serviceAccount",
    }
}

record! {
    KubernetesService = "KubernetesService" {
        name: String = "name",
        namespace: String = "namespace",
    }
}

record! {
    ServiceAccount = "ServiceAccount" {
        name: String = "name",
        project_id: String = "projectId",
    }
}

/// The service account.
///
/// # Errors
/// For any cloud but the one that is known.
pub(crate) fn generate(config: &IamPolicyConfig) -> Result<Value> {
    if config.cloud != "gke" {
        return Err(Error::new(format!("cloud provider {} not supported yet", config.cloud)));
    }
    let account = &config.service_account;
    let mut object = value!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "annotations": {
                "iam.gke.io/gcp-service-account":
                    format!("{}@{}.iam.gserviceaccount.com", account.name, account.project_id),
            },
            "name": config.kubernetes_service.name,
        },
    });
    if !config.kubernetes_service.namespace.is_empty() {
        // The map was just made.
        let _ = object.set(["metadata", "namespace"], config.kubernetes_service.namespace.as_str());
    }
    Ok(object)
}
