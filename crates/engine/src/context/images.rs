//! The `images` variable: what a Pod, or something that holds one, runs.

use kiln_text::image::Image;
use kiln_value::{Map, Path, Value};

/// The images of an object by container, or none for kinds that run no containers.
pub(crate) fn of(object: &Value) -> Option<Value> {
    let spec: &[&str] = match object.str_at(["kind"])? {
        "Pod" => &["spec"],
        "DaemonSet"
        | "Deployment"
        | "Job"
        | "StatefulSet"
        | "ReplicaSet"
        | "ReplicationController" => &["spec", "template", "spec"],
        "CronJob" => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    };
    let mut images = Map::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let mut path: Path = spec.iter().copied().collect();
        path.push(list);
        let containers = object.get_path(&path).and_then(Value::as_list);
        let mut found = Map::new();
        for (at, container) in containers.into_iter().flat_map(|list| list.iter()).enumerate() {
            let (name, image) = (container.str_at(["name"]), container.str_at(["image"]));
            // A name that cannot be read is left out; an expression that uses it fails as missing.
            if let (Some(name), Some(Ok(image))) = (name, image.map(Image::parse)) {
                let pointer = path.join(at).join("image").to_pointer();
                found.insert(name, described(&image, &pointer));
            }
        }
        if !found.is_empty() {
            images.insert(list, found);
        }
    }
    (!images.is_empty()).then_some(Value::Map(images))
}

fn described(image: &Image, pointer: &str) -> Value {
    let mut parts = Map::new();
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            parts.insert(key, text);
        }
    };
    put("registry", &image.registry);
    put("name", &image.name);
    put("path", &image.path);
    put("tag", &image.tag);
    put("digest", &image.digest);
    put("reference", &image.to_string());
    put("referenceWithTag", &image.reference_with_tag());
    put("jsonPointer", pointer);
    Value::Map(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn images_are_named_by_their_containers() {
        let deployment = value!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [
            {"name": "web", "image": "ghcr.io/acme/web:2"}, {"name": "odd", "image": "A B"},
        ]}}}});
        assert_eq!(
            of(&deployment),
            Some(value!({"containers": {"web": {
                "registry": "ghcr.io", "name": "web", "path": "acme/web", "tag": "2",
                "reference": "ghcr.io/acme/web:2", "referenceWithTag": "ghcr.io/acme/web:2",
                "jsonPointer": "/spec/template/spec/containers/0/image",
            }}}))
        );
        assert_eq!(of(&value!({"kind": "ConfigMap"})), None);
    }
}
