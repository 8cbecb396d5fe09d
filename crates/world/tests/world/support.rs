//! A world with policies and objects, from YAML.

use std::sync::OnceLock;

use kiln_object::{Gvk, ObjectId};
use kiln_value::Value;
use kiln_world::{World, WorldImage, WorldOptions};
use kiln_yaml::ReadOptions;

pub(crate) fn image() -> &'static WorldImage {
    static IMAGE: OnceLock<WorldImage> = OnceLock::new();
    IMAGE.get_or_init(|| WorldImage::with_engine(&[], None).unwrap())
}

pub(crate) fn world(options: &WorldOptions) -> World {
    World::new(options, image())
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = kiln_yaml::read_bytes("test", text.as_bytes(), ReadOptions::kubernetes());
    documents.unwrap().into_iter().map(kiln_yaml::Document::into_value).collect()
}

/// Applies objects, one after the other, as a user who waits for each.
pub(crate) fn apply(world: &mut World, text: &str) {
    for object in objects(text) {
        world.apply(&object, "default").unwrap();
        world.run_now();
    }
}

pub(crate) fn id(version: &str, kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(Gvk::new(version, kind), namespace, name)
}

/// Lets everything happen that is to happen within so many seconds.
pub(crate) fn settle(world: &mut World, seconds: u64) {
    let limit = world.now() + seconds * 1000;
    assert!(world.run_until_quiet(limit), "it goes round in a circle");
}

pub(crate) const QUOTAS: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: quotas}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {quota: "yes"}}}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: quota
      namespace: "{{request.object.metadata.name}}"
      data: {data: {pods: "10"}}
"#;
