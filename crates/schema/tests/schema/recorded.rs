//! The built-in tables and CRD reading against what a real API server states.

use std::collections::HashSet;

use kiln_schema::{KindScope, KubernetesVersion, ListType, MapType, Schema, SchemaNode};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Value, json};

fn text<'v>(shape: &'v Value, key: &str) -> Option<&'v str> {
    shape.get(key).and_then(Value::as_str)
}

/// Compares what a node says with a recorded shape; a missing node says nothing.
fn agree(node: Option<SchemaNode<'_>>, shape: &Value, atomic_map: bool) -> Result<(), String> {
    let is_list = shape.get("items").is_some() || shape.get("listType").is_some();
    let wanted_list = match text(shape, "listType") {
        Some("set") => Some(ListType::Set),
        Some("map") => Some(ListType::Map),
        _ => is_list.then_some(ListType::Atomic),
    };
    let got_list = node.and_then(SchemaNode::list_type);
    // A table need not list plain atomic lists: that is what an unknown list is anyway.
    if wanted_list.unwrap_or_default() != got_list.unwrap_or_default() {
        return Err(format!("list type {got_list:?}, wanted {wanted_list:?}"));
    }
    let keys: Vec<&str> =
        node.map(|node| node.map_keys().iter().map(|key| &**key).collect()).unwrap_or_default();
    let wanted_keys: Vec<&str> = shape
        .get("listMapKeys")
        .and_then(Value::as_list)
        .map(|keys| keys.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if keys != wanted_keys {
        return Err(format!("map keys {keys:?}, wanted {wanted_keys:?}"));
    }
    let merge_key = node.and_then(SchemaNode::merge_key);
    if merge_key != text(shape, "patchMergeKey") {
        return Err(format!("merge key {merge_key:?}"));
    }
    let strategy = node.map(SchemaNode::patch_strategy).unwrap_or_default();
    let wanted: HashSet<&str> =
        text(shape, "patchStrategy").map(|s| s.split(',').collect()).unwrap_or_default();
    for (word, says) in [
        ("merge", strategy.merges()),
        ("replace", strategy.replaces()),
        ("retainKeys", strategy.retains_keys()),
    ] {
        if wanted.contains(word) != says {
            return Err(format!("strategy {strategy:?}, wanted {wanted:?}"));
        }
    }
    let wanted_map = match text(shape, "mapType") {
        Some("atomic") => MapType::Atomic,
        Some(_) => MapType::Granular,
        None if atomic_map => MapType::Atomic,
        None => MapType::Granular,
    };
    let map_type = node.map(SchemaNode::map_type).unwrap_or_default();
    if map_type != wanted_map {
        return Err(format!("map type {map_type:?}, wanted {wanted_map:?}"));
    }
    Ok(())
}

struct Walk<'v> {
    definitions: &'v Value,
    seen: HashSet<String>,
    tally: Tally,
}

impl<'v> Walk<'v> {
    fn definition(&self, shape: &'v Value) -> Option<(&'v str, &'v Value)> {
        let name = text(shape, "ref")?;
        Some((name, self.definitions.get(name)?))
    }

    fn shape(&mut self, node: Option<SchemaNode<'_>>, shape: &'v Value, path: &str) {
        let definition = self.definition(shape);
        let atomic = definition.is_some_and(|(_, found)| text(found, "mapType") == Some("atomic"));
        self.tally.case(path, || agree(node, shape, atomic));
        if let Some((name, found)) = definition
            && self.seen.insert(format!("{name} {}", node.is_some()))
        {
            self.fields(node, found, path);
        }
        for (key, next) in [
            ("items", node.and_then(SchemaNode::items)),
            ("values", node.and_then(|n| n.field("any"))),
        ] {
            if let Some(inner) = shape.get(key) {
                self.shape(next, inner, &format!("{path}.{key}"));
            }
        }
    }

    fn fields(&mut self, node: Option<SchemaNode<'_>>, definition: &'v Value, path: &str) {
        for (name, field) in definition.get("fields").and_then(Value::as_map).into_iter().flatten()
        {
            self.shape(node.and_then(|n| n.field(name)), field, &format!("{path}.{name}"));
        }
    }
}

#[test]
fn the_table_of_1_36_says_what_the_server_says() {
    let Some(recorded) = corpus_json("apiserver/schema.json") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    let definitions = recorded.get("definitions").unwrap();
    let mut walk =
        Walk { definitions, seen: HashSet::new(), tally: Tally::new("merge rules of 1.36") };
    for (gvk, name) in recorded.get("kinds").and_then(Value::as_map).unwrap() {
        let (api_version, kind) = gvk.rsplit_once('/').unwrap();
        if gvk.contains("example") || definitions.get(name.as_str().unwrap()).is_none() {
            continue;
        }
        let root = schema.root(api_version.trim_start_matches('/'), kind);
        walk.tally.case(gvk, || root.map(|_| ()).ok_or_else(|| "no such kind".to_owned()));
        walk.fields(root, definitions.get(name.as_str().unwrap()).unwrap(), gvk);
    }
    walk.tally.finish();
}

#[test]
fn crds_carry_their_list_and_map_types() {
    let Some(crds) = corpus_json("apiserver/crds.json") else { return };
    let mut tally = Tally::new("CRD schemas");
    for crd in crds.as_map().unwrap().values() {
        let schema = Schema::empty().with_crd(crd).unwrap();
        let group = crd.str_at(["spec", "group"]).unwrap();
        let kind = crd.str_at(["spec", "names", "kind"]).unwrap();
        for version in crd.get_path(["spec", "versions"]).unwrap().as_list().unwrap() {
            let api_version = format!("{group}/{}", version.get("name").unwrap().as_str().unwrap());
            let root = schema.root(&api_version, kind).unwrap();
            tally.case(&format!("{api_version} {kind} metadata"), || {
                let owners =
                    root.at(["metadata", "ownerReferences"]).ok_or("no owner references")?;
                assert_eq!(owners.element_keys(), ["uid"]);
                assert_eq!(schema.scope(&api_version, kind), Some(KindScope::Namespaced));
                Ok(())
            });
            let written = version.get_path(["schema", "openAPIV3Schema"]).unwrap();
            properties(&mut tally, Some(root), written, kind);
        }
    }
    tally.finish();
}

fn properties(tally: &mut Tally, node: Option<SchemaNode<'_>>, written: &Value, path: &str) {
    for (name, property) in written.get("properties").and_then(Value::as_map).into_iter().flatten()
    {
        if name == "metadata" {
            continue;
        }
        let path = format!("{path}.{name}");
        let node = node.and_then(|node| node.field(name));
        tally.case(&path, || {
            let mut shape = Value::map();
            for (ours, theirs) in [
                ("items", "items"),
                ("listType", "x-kubernetes-list-type"),
                ("listMapKeys", "x-kubernetes-list-map-keys"),
                ("mapType", "x-kubernetes-map-type"),
            ] {
                if let Some(said) = property.get(theirs) {
                    shape.set([ours], said.clone()).unwrap();
                }
            }
            agree(node, &shape, false).map_err(|e| format!("{e} in {}", json::to_string(property)))
        });
        properties(tally, node, property, &path);
        if let Some(items) = property.get("items") {
            properties(tally, node.and_then(SchemaNode::items), items, &path);
        }
    }
}

#[test]
fn the_table_of_1_21_says_what_its_source_says() {
    let Some(source) = corpus_json("../reference/kustomize-merge-schema.json") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_21);
    let mut tally = Tally::new("merge rules of 1.21");
    for resource in source.get("resources").unwrap().as_list().unwrap() {
        let (api_version, kind) =
            (text(resource, "apiVersion").unwrap(), text(resource, "kind").unwrap());
        tally.case(&format!("{api_version} {kind}"), || {
            let wanted = text(resource, "scope").map(|scope| match scope {
                "Cluster" => KindScope::Cluster,
                _ => KindScope::Namespaced,
            });
            let scope = schema.scope(api_version, kind);
            if scope != wanted {
                return Err(format!("scope {scope:?}, wanted {wanted:?}"));
            }
            let Some(name) = text(resource, "def") else { return Ok(()) };
            let root = schema.root(api_version, kind).ok_or("unknown kind")?;
            follow(&source, name, root, &mut Vec::new())
        });
    }
    tally.finish();
}

fn follow<'v>(
    source: &'v Value,
    name: &'v str,
    node: SchemaNode<'_>,
    above: &mut Vec<&'v str>,
) -> Result<(), String> {
    if above.contains(&name) {
        return Ok(());
    }
    above.push(name);
    let definition = source.get_path(["definitions", name]).ok_or("no definition")?;
    for (field, shape) in definition.as_map().unwrap() {
        let found = node.field(field).ok_or_else(|| format!("{name}.{field} is missing"))?;
        let keys: Vec<&str> = found.element_keys().iter().map(|key| &**key).collect();
        let wanted: Vec<&str> = match shape.get("keys").and_then(Value::as_list) {
            Some(keys) => keys.iter().filter_map(Value::as_str).collect(),
            None => text(shape, "key").into_iter().collect(),
        };
        let merges = text(shape, "strategy").is_some_and(|s| s.split(',').any(|w| w == "merge"));
        if keys != wanted || found.patch_strategy().merges() != merges {
            return Err(format!("{name}.{field}: {found:?}"));
        }
        for (key, next) in
            [("ref", Some(found)), ("items", found.items()), ("values", found.field("any"))]
        {
            if let Some(inner) = text(shape, key)
                && !source
                    .get_path(["definitions", inner])
                    .is_none_or(|d| d.as_map().unwrap().is_empty())
            {
                let next = next.ok_or_else(|| format!("{name}.{field} leads nowhere"))?;
                follow(source, inner, next, above)?;
            }
        }
    }
    above.pop();
    Ok(())
}
