//! The fields of kustomizations.

use super::super::node::{Node, list, map, scalar};
use super::objects::Known;
use super::{KEYS, Random, anything, pairs, text};

/// Fills a kustomization with some of what it can say about these objects.
pub(super) fn fill(
    random: &mut Random,
    into: &mut Node,
    known: &[Known],
    directory: &str,
    files: &mut Vec<(String, Vec<Node>)>,
) {
    if random.once_in(5) {
        into.put("namespace", random.pick(&["prod", "ns1", "default"]));
    }
    if random.once_in(5) {
        into.put("namePrefix", random.pick(&["p-", "my-"]));
    }
    if random.once_in(6) {
        into.put("nameSuffix", random.pick(&["-s", "-v2"]));
    }
    if random.once_in(3) {
        let mut label = map([("pairs", pairs(random, 2, text))]);
        match random.below(4) {
            0 | 1 => label.put("includeSelectors", "true"),
            2 => label.put("includeTemplates", "true"),
            _ => {}
        }
        if random.once_in(5) {
            let spec = map([
                ("path", "spec/more".into()),
                ("create", "true".into()),
                ("kind", "Thing".into()),
            ]);
            label.put("fields", list([spec]));
        }
        into.put("labels", list([label]));
    }
    if random.once_in(6) {
        into.put("commonLabels", pairs(random, 2, text));
    }
    if random.once_in(5) {
        into.put("commonAnnotations", pairs(random, 2, text));
    }
    if random.once_in(5) {
        let mut image = map([(
            "name",
            random.pick(&["nginx", "busybox", "registry.example/team/app", "redis"]).into(),
        )]);
        match random.below(3) {
            0 => image.put("newTag", random.pick(&["\"2\"", "v2", "\"1.10\""])),
            1 => image.put(
                "digest",
                "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210",
            ),
            _ => image.put("newName", "mirror.example/x"),
        }
        into.put("images", list([image]));
    }
    let scaled: Vec<&Known> = known.iter().filter(|known| is_scaled(known.kind)).collect();
    if random.once_in(4) && !scaled.is_empty() {
        let name = random.pick(&scaled).name.as_str().into();
        into.put("replicas", list([map([("name", name), ("count", "4".into())])]));
    }
    if random.once_in(2) {
        let count = 1 + random.below(2);
        let entries = (0..count).map(|at| patch(random, known, directory, at, files));
        into.put("patches", list(entries.collect::<Vec<_>>()));
    }
    if random.once_in(8) {
        let one = of(random, known);
        into.put("patchesStrategicMerge", list([Node::Block(Box::new(merge_patch(random, &one)))]));
    }
    if random.once_in(8) {
        let one = of(random, known);
        let target =
            map([("version", "v1".into()), ("kind", one.kind.into()), ("name", one.name.into())]);
        let entry = map([
            ("target", target),
            ("patch", Node::Block(Box::new(operations(random, one.kind)))),
        ]);
        into.put("patchesJson6902", list([entry]));
    }
    if random.once_in(3) {
        let count = 1 + random.below(2);
        let entries = (0..count).map(|_| replacement(random, known));
        into.put("replacements", list(entries.collect::<Vec<_>>()));
    }
    // Kustomizations can change what a generator below them made, and nothing else.
    let settings = known.iter().any(|known| known.name == "settings");
    if random.once_in(4) && settings {
        let mut made = generator(random, "settings", directory, files);
        made.put("behavior", random.pick(&["merge", "replace"]));
        into.put("configMapGenerator", list([made]));
    }
    if random.once_in(8) {
        let mut options = map::<String>([]);
        if random.once_in(2) {
            options.put("labels", pairs(random, 2, text));
        }
        if random.once_in(2) {
            options.put("annotations", pairs(random, 2, text));
        }
        if random.once_in(2) {
            options.put("disableNameSuffixHash", "true");
        }
        if random.once_in(4) {
            options.put("immutable", "true");
        }
        into.put("generatorOptions", options);
    }
}

/// What only the outermost kustomization says.
pub(super) fn for_the_whole_build(random: &mut Random, into: &mut Node) {
    if random.once_in(6) {
        into.put(
            "buildMetadata",
            random.pick(&[
                "[originAnnotations]",
                "[transformerAnnotations]",
                "[managedByLabel]",
                "[originAnnotations, transformerAnnotations]",
            ]),
        );
    }
    if random.once_in(6) {
        into.put("sortOptions", map([("order", random.pick(&["legacy", "fifo"]).into())]));
    }
}

/// Generators of a base, and what they make.
pub(super) fn generators(
    random: &mut Random,
    into: &mut Node,
    directory: &str,
    files: &mut Vec<(String, Vec<Node>)>,
) -> Vec<Known> {
    let mut known = Vec::new();
    if random.once_in(3) {
        into.put("configMapGenerator", list([generator(random, "settings", directory, files)]));
        known.push(Known {
            api_version: "v1",
            kind: "ConfigMap",
            name: "settings".into(),
            namespace: None,
        });
    }
    if random.once_in(6) {
        into.put("secretGenerator", list([generator(random, "keys", directory, files)]));
        known.push(Known {
            api_version: "v1",
            kind: "Secret",
            name: "keys".into(),
            namespace: None,
        });
    }
    known
}

fn generator(
    random: &mut Random,
    name: &str,
    directory: &str,
    files: &mut Vec<(String, Vec<Node>)>,
) -> Node {
    let mut made = map([("name", name.into())]);
    if random.once_in(2) {
        let literals = ["a=1", "\"b=x y\"", "c=\"q\"", "d=", "e=a=b"];
        let literals = &literals[..1 + random.below(literals.len())];
        made.put("literals", list(literals.iter().map(|text| scalar(*text))));
    }
    if random.once_in(3) {
        let path = format!("{name}.txt");
        files.push((format!("{directory}/{path}"), vec![pairs(random, 3, anything)]));
        made.put(
            "files",
            list([scalar(if random.once_in(2) { path } else { format!("k={path}") })]),
        );
    }
    if random.once_in(5) {
        let path = format!("{name}.env");
        files.push((format!("{directory}/{path}"), vec![scalar("A=1\n# note\nB=two words")]));
        made.put("envs", list([scalar(path)]));
    }
    if random.once_in(4) {
        let mut options = map([("labels", pairs(random, 2, text))]);
        if random.once_in(2) {
            options.put("disableNameSuffixHash", "true");
        }
        made.put("options", options);
    }
    made
}

/// One of the objects.
fn of(random: &mut Random, known: &[Known]) -> Known {
    let nobody =
        Known { api_version: "v1", kind: "ConfigMap", name: "nobody".into(), namespace: None };
    if known.is_empty() { nobody } else { known[random.below(known.len())].clone() }
}

fn is_scaled(kind: &str) -> bool {
    matches!(kind, "Deployment" | "StatefulSet")
}

fn patch(
    random: &mut Random,
    known: &[Known],
    directory: &str,
    at: usize,
    files: &mut Vec<(String, Vec<Node>)>,
) -> Node {
    let one = of(random, known);
    let is_json = random.once_in(2);
    let body = if is_json { operations(random, one.kind) } else { merge_patch(random, &one) };
    let mut entry = map::<String>([]);
    if random.once_in(4) {
        let path = format!("patch{at}.yaml");
        files.push((format!("{directory}/{path}"), vec![body]));
        entry.put("path", path);
    } else {
        entry.put("patch", Node::Block(Box::new(body)));
    }
    if is_json || random.once_in(3) {
        let mut target = map([("kind", one.kind.into())]);
        if random.once_in(2) {
            target.put("name", one.name);
        }
        if random.once_in(6) {
            target.put(
                "labelSelector",
                format!("{}={}", random.pick(&KEYS), random.pick(&["web", "prod", "db"])),
            );
        }
        entry.put("target", target);
    }
    if !is_json && random.once_in(8) {
        entry.put(
            "options",
            map([(random.pick(&["allowNameChange", "allowKindChange"]), "true".into())]),
        );
    }
    entry
}

fn merge_patch(random: &mut Random, one: &Known) -> Node {
    let mut metadata = map([("name", one.name.as_str().into())]);
    if let Some(namespace) = one.namespace {
        metadata.put("namespace", namespace);
    }
    if random.once_in(3) {
        metadata.put("labels", pairs(random, 2, removing));
    }
    if random.once_in(3) {
        metadata.put("annotations", pairs(random, 2, removing));
    }
    let mut patch = map([
        ("apiVersion", one.api_version.into()),
        ("kind", one.kind.into()),
        ("metadata", metadata),
    ]);
    if random.once_in(25) {
        patch.put("$patch", random.pick(&["delete", "replace", "merge"]));
    }
    match one.kind {
        "ConfigMap" => patch.put("data", pairs(random, 3, removing)),
        "Secret" => patch.put("stringData", pairs(random, 3, removing)),
        "Deployment" | "StatefulSet" => {
            let mut spec = map::<String>([]);
            if random.once_in(3) {
                spec.put("replicas", random.pick(&["2", "null", "\"3\""]));
            }
            let mut template = map::<String>([]);
            if random.once_in(3) {
                let mut metadata = map([("labels", pairs(random, 2, removing))]);
                if random.once_in(2) {
                    metadata.put("annotations", pairs(random, 2, removing));
                }
                template.put("metadata", metadata);
            }
            if random.once_in(2) {
                template.put("spec", map([("containers", containers(random))]));
            }
            if !template.is_empty() {
                spec.put("template", template);
            }
            patch.put("spec", spec);
        }
        "Thing" => {
            let mut spec = map([("more", pairs(random, 2, removing))]);
            if random.once_in(3) {
                spec.put("items", list([pairs(random, 2, removing)]));
            }
            patch.put("spec", spec);
        }
        _ => {}
    }
    patch
}

fn containers(random: &mut Random) -> Node {
    let mut container = map([("name", random.pick(&["app", "side", "new"]).into())]);
    if random.once_in(2) {
        container.put("image", random.pick(&["nginx:9", "other"]));
    }
    if random.once_in(2) {
        let mut variable = map([("name", random.pick(&["A", "B", "C"]).into())]);
        variable.put("value", anything(random));
        container.put("env", list([variable]));
    }
    if random.once_in(4) {
        container
            .put("ports", list([map([("containerPort", "443".into()), ("name", "https".into())])]));
    }
    if random.once_in(8) {
        container.put("$patch", random.pick(&["delete", "replace"]));
    }
    list([container])
}

fn removing(random: &mut Random) -> Node {
    if random.once_in(5) { random.pick(&["null", "", "~"]).into() } else { anything(random) }
}

fn operations(random: &mut Random, kind: &str) -> Node {
    let count = 1 + random.below(2);
    let operations = (0..count).map(|_| {
        let key = random.pick(&KEYS).replace('/', "~1");
        let mut paths = vec![
            format!("/metadata/labels/{key}"),
            format!("/metadata/annotations/{key}"),
            "/metadata/annotations".to_owned(),
            "/metadata/labels".to_owned(),
        ];
        match kind {
            "ConfigMap" => paths.extend([format!("/data/{key}"), "/data".to_owned()]),
            "Deployment" | "StatefulSet" => paths.extend([
                "/spec/replicas".to_owned(),
                "/spec/template/spec/containers/0/image".to_owned(),
                "/spec/template/spec/containers/-".to_owned(),
                format!("/spec/template/metadata/labels/{key}"),
            ]),
            "Thing" => paths.extend([format!("/spec/more/{key}"), "/spec/items/0".to_owned()]),
            _ => {}
        }
        let path = paths[random.below(paths.len())].clone();
        let op =
            if random.once_in(12) { random.pick(&["replace", "remove", "test"]) } else { "add" };
        let mut operation = map([("op", op.into()), ("path", path.as_str().into())]);
        if op != "remove" {
            let whole =
                path.ends_with("labels") || path.ends_with("annotations") || path.ends_with("data");
            let value = match path.rsplit('/').next() {
                _ if whole => pairs(random, 2, text),
                Some("-") => map([("name", "more".into()), ("image", "m".into())]),
                Some("replicas") => "7".into(),
                _ if path.starts_with("/metadata") => text(random),
                _ => anything(random),
            };
            operation.put("value", value);
        }
        operation
    });
    list(operations.collect::<Vec<_>>())
}

fn replacement(random: &mut Random, known: &[Known]) -> Node {
    let from = of(random, known);
    let mut source = map([("kind", from.kind.into()), ("name", from.name.into())]);
    let mut fields = vec![
        "metadata.name".to_owned(),
        format!("metadata.labels.{}", random.pick(&["app", "env", "k"])),
        format!("metadata.annotations.{}", random.pick(&["app", "env", "k"])),
    ];
    match from.kind {
        "ConfigMap" => fields.push(format!("data.{}", random.pick(&["app", "env", "k"]))),
        "Deployment" => fields.extend([
            "spec.replicas".to_owned(),
            "spec.template.spec.containers.0.image".to_owned(),
        ]),
        _ => {}
    }
    // Most objects have names alone.
    if random.once_in(5) {
        source.put("fieldPath", fields[random.below(fields.len())].clone());
    }
    if random.once_in(8) {
        source.put(
            "options",
            map([
                ("delimiter", random.pick(&["'-'", "':'", "'.'"]).into()),
                ("index", random.pick(&["0", "1"]).into()),
            ]),
        );
    }
    let to = of(random, known);
    let mut select = map([("kind", to.kind.into())]);
    if random.once_in(2) {
        select.put("name", to.name);
    }
    let mut paths = vec![
        format!("metadata.annotations.{}", random.pick(&["app", "env", "k"])),
        format!("metadata.labels.{}", random.pick(&["app", "env", "k"])),
    ];
    match to.kind {
        "ConfigMap" => paths.extend([
            format!("data.{}", random.pick(&["app", "env", "k"])),
            "data.[conf.yaml].server.host".to_owned(),
            "data.[conf.yaml].server.new".to_owned(),
            "data.[conf.json].server.host".to_owned(),
        ]),
        "Deployment" | "StatefulSet" => paths.extend([
            "spec.replicas".to_owned(),
            "spec.template.spec.containers.[name=app].image".to_owned(),
            "spec.template.spec.containers.*.env.[name=A].value".to_owned(),
            "spec.selector.matchLabels.app".to_owned(),
        ]),
        "Thing" => paths.extend(["spec.more.k".to_owned(), "spec.items.0.k".to_owned()]),
        _ => {}
    }
    let mut target = map([("select", select)]);
    let count = 1 + random.below(2);
    let chosen: Vec<Node> =
        (0..count).map(|_| scalar(paths[random.below(paths.len())].clone())).collect();
    target.put("fieldPaths", list(chosen));
    if !random.once_in(8) {
        let mut options = map::<String>([]);
        if !random.once_in(8) {
            options.put("create", "true");
        }
        if random.once_in(4) {
            options.put("delimiter", random.pick(&["'-'", "':'", "'/'"]));
            options.put("index", random.pick(&["0", "1", "-1", "9"]));
        }
        target.put("options", options);
    }
    map([("source", source), ("targets", list([target]))])
}
