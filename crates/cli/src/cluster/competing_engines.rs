//! Which engines a cluster has: others by the images that Deployments run, ours by what `kiln install` prints.

use kiln_install::{Crds, Grant, Monitoring, Permissions, manifests, no_longer_installed};
use kiln_object::{EngineNames, ObjectId, metadata};
use kiln_value::Value;

/// A Deployment that runs, as `NAMESPACE/NAME`, and the engine that it belongs to.
pub(crate) type CompetingEngine = (String, &'static str);

pub(crate) const KYVERNO: &str = "Kyverno";
pub(crate) const KUBEMOD: &str = "KubeMod";

/// The chapter of docs/guides/from-kyverno.md on running Kyverno beside Kiln.
pub(crate) const KEEPING: &str = "Keeping Kyverno for what Kiln does not run";

/// Images of those who answer webhooks. Images go by the last name of their repository, which mirrors keep.
const ANSWERING: [(&str, &str); 2] = [("kyverno", KYVERNO), ("kubemod", KUBEMOD)];
/// Images of controllers that act on rules and answer no requests.
const ACTING: [(&str, &str); 2] =
    [("background-controller", KYVERNO), ("cleanup-controller", KYVERNO)];
/// Images of those who act on no rules of Kiln's, but need the definitions.
const SHARING: [(&str, &str); 1] = [("reports-controller", KYVERNO)];

/// A Deployment that acts on the same rules.
pub(crate) fn other_engine(deployment: &Value) -> Option<CompetingEngine> {
    running(deployment, &ANSWERING).or_else(|| running(deployment, &ACTING))
}

/// A Deployment that uses the same definitions.
pub(crate) fn sharing_engine(deployment: &Value) -> Option<CompetingEngine> {
    other_engine(deployment).or_else(|| running(deployment, &SHARING))
}

/// A Deployment that answers the webhooks of another engine.
pub(crate) fn answering_engine(deployment: &Value) -> Option<CompetingEngine> {
    running(deployment, &ANSWERING)
}

/// A Deployment that has pods with one of these images.
fn running(deployment: &Value, images: &[(&str, &'static str)]) -> Option<CompetingEngine> {
    let replicas = deployment.get_path(["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(1);
    if replicas == 0 {
        return None;
    }
    let containers = deployment.get_path(["spec", "template", "spec", "containers"])?.as_list()?;
    let found = |container: &Value| {
        let name = repository(container.str_at(["image"])?);
        images.iter().find(|(image, _)| *image == name).map(|(_, engine)| *engine)
    };
    let engine = containers.iter().find_map(found)?;
    let namespace = metadata::namespace(deployment).unwrap_or_default();
    Some((format!("{namespace}/{}", metadata::name(deployment)?), engine))
}

/// The last name of an image, without registry, tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split(':').next().unwrap_or(name)
}

/// Everything that `kiln install` may have printed, also in earlier versions.
pub(crate) fn installed(namespace: &str, names: &EngineNames) -> Vec<Value> {
    let options = |split| kiln_install::InstallOptions {
        namespace: namespace.to_owned(),
        name: names.name().to_owned(),
        crds: Crds { own_group: true, ..Crds::default() },
        split,
        permissions: Permissions { grant: Grant::Standard, ..Permissions::default() },
        monitoring: Monitoring::all(),
        ..kiln_install::InstallOptions::default()
    };
    let id = |object: &Value| ObjectId::of(object).ok();
    let mut objects = manifests(&options(false));
    let more = manifests(&options(true)).into_iter();
    let more = more.filter(|object| objects.iter().all(|known| id(known) != id(object)));
    let more: Vec<Value> = more.collect();
    objects.extend(more);
    objects.extend(no_longer_installed(&options(false)));
    objects
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn deployment(image: &str, replicas: i64) -> Value {
        value!({
            "metadata": {"name": "d", "namespace": "n"},
            "spec": {
                "replicas": replicas,
                "template": {"spec": {"containers": [{"image": "proxy:1"}, {"image": image}]}},
            },
        })
    }

    #[test]
    fn engines_are_known_by_the_last_name_of_their_image() {
        for (image, acts, answers, shares) in [
            ("reg.kyverno.io/kyverno/kyverno:v1.15.0", Some(KYVERNO), Some(KYVERNO), Some(KYVERNO)),
            ("registry:5000/mirror/kyverno@sha256:ab", Some(KYVERNO), Some(KYVERNO), Some(KYVERNO)),
            ("registry:5000/mirror/background-controller:v1", Some(KYVERNO), None, Some(KYVERNO)),
            ("registry:5000/mirror/cleanup-controller:v1", Some(KYVERNO), None, Some(KYVERNO)),
            ("registry:5000/mirror/reports-controller", None, None, Some(KYVERNO)),
            ("kubemod/kubemod:v0.20.1", Some(KUBEMOD), Some(KUBEMOD), Some(KUBEMOD)),
            ("registry:5000/kyverno/kyvernopre:v1", None, None, None),
            ("registry:5000/cleanup-controller/other:v1", None, None, None),
            ("kiln:7", None, None, None),
        ] {
            let runs = deployment(image, 2);
            let engine = |found: Option<CompetingEngine>| found.map(|(_, engine)| engine);
            assert_eq!(engine(other_engine(&runs)), acts, "{image}");
            assert_eq!(engine(answering_engine(&runs)), answers, "{image}");
            assert_eq!(engine(sharing_engine(&runs)), shares, "{image}");
            assert_eq!(sharing_engine(&deployment(image, 0)), None, "{image} is stopped");
        }
        let name = sharing_engine(&deployment("kubemod", 1)).map(|(name, _)| name);
        assert_eq!(name.as_deref(), Some("n/d"));
    }
}
