//! What a build can say about itself: counts, times, and what touched an object.

use std::cell::Cell;
use std::time::Duration;

use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions, Phase, What};

fn tree() -> Memory {
    Memory::new()
        .with("base/kustomization.yaml", "resources: [d.yaml]\nconfigMapGenerator: [{name: c, literals: [a=b]}]\n")
        .with(
            "base/d.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: m, image: nginx, envFrom: [{configMapRef: {name: c}}]}]}}}\n",
        )
        .with(
            "kustomization.yaml",
            "resources: [base]\nnamePrefix: x-\npatches:\n- target: {kind: Deployment}\n  patch: '[{\"op\": \"add\", \"path\": \"/spec/replicas\", \"value\": 2}]'\n",
        )
}

#[test]
fn every_step_that_touched_an_object_is_told() {
    let options = BuildOptions { explain: true, ..BuildOptions::default() };
    let output = Build::new(&tree(), &options).run("/").unwrap();
    let told: Vec<(What, &str, &str)> = output
        .touches
        .iter()
        .filter(|touch| touch.kind == "Deployment")
        .map(|touch| (touch.what, touch.by.as_str(), touch.file.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (What::Read, "", "/base/d.yaml"),
            (What::Changed, "PatchTransformer", "/kustomization.yaml"),
            (What::Changed, "PrefixTransformer", "/kustomization.yaml"),
            (What::References, "", "/kustomization.yaml"),
        ]
    );
    let hashed = output.touches.iter().find(|touch| touch.what == What::Hashed).unwrap();
    assert_eq!(hashed.original, "ConfigMap./c.default");
    assert!(hashed.name.starts_with("x-c-"));
    // Whatever an object is called on its way, its history is one.
    for original in ["ConfigMap./c.default", "Deployment.apps/d.default"] {
        let of_object = output.touches.iter().filter(|touch| touch.original == original);
        let first = of_object.clone().next().map(|touch| touch.what);
        assert!(matches!(first, Some(What::Read | What::Generated)), "{original}");
        let renamed = of_object.filter(|touch| touch.name.starts_with("x-"));
        assert!(renamed.count() > 0, "{original}: {:?}", output.touches);
    }
}

#[test]
fn work_is_counted_and_timed_by_the_hosts_clock() {
    let ticks = Cell::new(0);
    let now = || {
        ticks.set(ticks.get() + 1);
        Duration::from_millis(ticks.get())
    };
    let options = BuildOptions::default();
    let output = Build::new(&tree(), &options).clock(&now).run("/").unwrap();
    let stats = &output.stats;
    // The patch is a document too.
    assert_eq!((stats.kustomizations, stats.documents, stats.objects), (2, 2, 2));
    assert_eq!(stats.transformers, 2);
    assert_eq!(stats.bytes_written, output.yaml.len());
    for phase in Phase::ALL {
        assert!(stats.time(phase) > Duration::ZERO, "{}", phase.as_str());
    }
    assert_eq!(
        output.file_names,
        ["v1_configmap_x-c-4h2mbtbbt6.yaml", "apps_v1_deployment_x-d.yaml"]
    );
}

#[test]
fn reading_grows_with_the_input_and_no_faster() {
    // One read of each document, however many overlays stand on top.
    let mut tree = tree();
    for level in 0..50 {
        let below = if level == 0 { "../base".to_owned() } else { format!("../o{}", level - 1) };
        tree.write(
            &format!("o{level}/kustomization.yaml"),
            format!("namePrefix: p-\nresources: [{below}]\n"),
        );
    }
    let output = Build::new(&tree, &BuildOptions::default()).run("/o49").unwrap();
    assert_eq!((output.stats.kustomizations, output.stats.documents), (51, 1));
}

/// Where kustomize loses something that Kiln keeps, the outputs differ, and the user reads why.
#[test]
fn what_is_kept_where_kustomize_loses_it_is_a_warning() {
    let warnings = |object: &str, kustomization: &str| -> Vec<String> {
        let tree = Memory::new()
            .with("r.yaml", object)
            .with("kustomization.yaml", format!("resources: [r.yaml]\n{kustomization}"));
        let output = Build::new(&tree, &BuildOptions::default()).run("/").unwrap();
        output.warnings.into_iter().map(|warning| warning.message).collect()
    };
    let thing = |number: &str| {
        format!(
            "apiVersion: x.io/v1\nkind: Thing\nmetadata: {{name: t}}\nspec: {{n: [{number}]}}\n"
        )
    };
    let json = "patches:\n- target: {kind: Thing}\n  patch: '[{\"op\":\"add\",\"path\":\"/spec/x\",\"value\":1}]'\n";
    assert_eq!(
        warnings(&thing("9007199254740993"), json),
        [
            "9007199254740993 in Thing.v1.x.io/t.[noNs] stays as it is, where kustomize rounds it after a JSON patch"
        ]
    );
    for number in ["9007199254740992", "-5", "1.5", "\"9007199254740993\""] {
        assert!(warnings(&thing(number), json).is_empty(), "{number}");
    }
    assert!(warnings(&thing("9007199254740993"), "nameSuffix: -x\n").is_empty());

    let create = "replacements:\n- source: {kind: Thing}\n  targets:\n  - select: {kind: Thing}\n    fieldPaths: [PATH]\n    options: {create: true}\n";
    let thing =
        |rest: &str| format!("apiVersion: x.io/v1\nkind: Thing\nmetadata: {{name: t}}\n{rest}");
    assert_eq!(
        warnings(&thing("spec:\n"), &create.replace("PATH", "spec.x.y")),
        [
            "spec.x.y of Thing.v1.x.io/t.[noNs] is made where null was; kustomize fails there, or makes nothing"
        ]
    );
    assert!(warnings(&thing("spec: {}\n"), &create.replace("PATH", "spec.x.y")).is_empty());
    let named =
        |name: &str| format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}}}\n");
    assert_eq!(
        warnings(&named("e3"), "namePrefix: '1'\n"),
        [
            "the name 1e3 of ServiceAccount.v1.[noGrp]/1e3.[noNs] stays text, where kustomize prints a value of another type"
        ]
    );
    assert!(warnings(&named("'1'"), "").is_empty());
    assert!(warnings(&named("e3"), "namePrefix: a1\n").is_empty());
}
