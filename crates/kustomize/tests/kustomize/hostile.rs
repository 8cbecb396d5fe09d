//! Trees that are wrong or mean harm: clear errors, with places, within counted limits.

use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions, Error, Fetch, Output, Reorder, Repository};

fn build(tree: &Memory, directory: &str) -> Result<Output, Error> {
    let options = BuildOptions { reorder: Reorder::None, ..BuildOptions::default() };
    Build::new(tree, &options).run(directory).map_err(|failed| failed.error)
}

/// The error of a build, as `place: message`.
fn fails(tree: &Memory, directory: &str) -> String {
    match build(tree, directory) {
        Ok(output) => panic!("it succeeds:\n{}", output.yaml),
        Err(error) => match error.place() {
            Some(place) => format!("{place}: {error}"),
            None => error.to_string(),
        },
    }
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";

#[test]
fn bases_in_a_circle_are_refused() {
    let tree = Memory::new()
        .with("a/kustomization.yaml", "resources: [../b]\n")
        .with("b/kustomization.yaml", "resources: [../a]\n")
        .with("c/kustomization.yaml", "resources: [.]\n")
        .with("d/e/kustomization.yaml", "resources: [..]\n")
        .with("d/kustomization.yaml", "resources: [e]\n");
    for (directory, candidate) in [("/a", "/a"), ("/c", "/c"), ("/d/e", "/d")] {
        let message = fails(&tree, directory);
        let wanted = format!("cycle detected: candidate root '{candidate}' contains visited root");
        assert!(message.contains(&wanted), "{message}");
    }
}

/// Every repository lies in a folder with the last word of its address.
struct Clones;

impl Fetch for Clones {
    fn get(&self, url: &str) -> Result<Vec<u8>, Error> {
        Err(Error::http(format!("{url} is not there")))
    }

    fn clone_repository(&self, repository: &Repository) -> Result<String, Error> {
        let url = repository.url();
        Ok(format!("/clones/{}", url.rsplit('/').next().unwrap_or_default()))
    }
}

#[test]
fn what_comes_from_elsewhere_names_no_repository_of_this_machine() {
    let tree = Memory::new()
        .with("app/kustomization.yaml", "resources: ['https://git.example/o/hostile']\n")
        .with("own/kustomization.yaml", "resources: ['file:///home/me/chain']\n")
        .with("clones/hostile/kustomization.yaml", "resources: [below]\n")
        .with("clones/hostile/below/kustomization.yaml", "resources: ['FILE:///home/me/private']\n")
        .with("clones/chain/kustomization.yaml", "resources: ['file:///home/me/private']\n")
        .with("clones/private/kustomization.yaml", "resources: [pod.yaml]\n")
        .with("clones/private/pod.yaml", POD);
    let options = BuildOptions::default();
    let build = |directory| Build::new(&tree, &options).fetch(&Clones).run(directory);
    for directory in ["/app", "https://git.example/o/hostile"] {
        let error = build(directory).map(|output| output.yaml).unwrap_err().error.to_string();
        let wanted = "'FILE:///home/me/private' is a repository of this machine";
        assert!(error.contains(wanted), "{error}");
    }
    assert!(build("/own").unwrap().yaml.contains("kind: Pod"));
}

#[test]
fn a_chain_of_bases_ends_at_a_limit() {
    let mut tree = Memory::new();
    for level in 0..1000 {
        tree.write(
            &format!("l{level}/kustomization.yaml"),
            format!("namePrefix: p\nresources: [../l{}]\n", level + 1),
        );
    }
    let message = fails(&tree, "/l0");
    assert!(message.contains("more than 200 levels deep"), "{}", &message[message.len() - 200..]);
    // A hundred levels are fine, even on the small stack of a test thread.
    tree.write("l100/kustomization.yaml", "resources: [pod.yaml]\n");
    tree.write("l100/pod.yaml", POD);
    let name = format!("name: {}a\n", "p".repeat(100));
    assert!(build(&tree, "/l0").unwrap().yaml.contains(&name));
}

#[test]
fn bases_that_multiply_end_at_a_limit() {
    let mut tree = Memory::new();
    for level in 0..40 {
        for side in ["a", "b"] {
            let next = level + 1;
            tree.write(
                &format!("{side}{level}/kustomization.yaml"),
                format!("resources: [../a{next}, ../b{next}]\n"),
            );
        }
    }
    for side in ["a", "b"] {
        tree.write(&format!("{side}40/kustomization.yaml"), "resources: []\n");
    }
    let message = fails(&tree, "/a0");
    assert!(message.contains("kustomizations in one build"), "{message}");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n",
    );
    for level in 1..12 {
        let below = format!("*l{}", level - 1);
        let list = vec![below; 10].join(", ");
        bomb.push_str(&format!("  l{level}: &l{level} [{list}]\n"));
    }
    let tree =
        Memory::new().with("kustomization.yaml", "resources: [a.yaml]\n").with("a.yaml", bomb);
    let message = fails(&tree, "/");
    assert!(message.contains("a.yaml:"), "{message}");
}

#[test]
fn deep_documents_are_refused() {
    let deep = format!(
        "apiVersion: v1\nkind: A\nmetadata: {{name: a}}\nx: {}{}\n",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let tree =
        Memory::new().with("kustomization.yaml", "resources: [a.yaml]\n").with("a.yaml", deep);
    assert!(fails(&tree, "/").contains("MalformedYAMLError"));
}

#[test]
fn a_component_must_be_a_directory_with_a_component() {
    let tree = Memory::new()
        .with("file/kustomization.yaml", "components: [pod.yaml]\n")
        .with("file/pod.yaml", POD)
        .with("kind/kustomization.yaml", "components: [base]\n")
        .with("kind/base/kustomization.yaml", "resources: [pod.yaml]\n")
        .with("kind/base/pod.yaml", POD);
    let message = fails(&tree, "/file");
    assert!(message.starts_with("/file/kustomization.yaml:1:14: "), "{message}");
    assert!(message.contains("file is not directory"), "{message}");
    let message = fails(&tree, "/kind");
    assert!(message.contains("expected kind 'Component'"), "{message}");
}

#[test]
fn files_outside_the_root_are_refused() {
    let tree = Memory::new()
        .with("secret.yaml", POD)
        .with("a/kustomization.yaml", "resources: [../secret.yaml]\n")
        .with("b/kustomization.yaml", "configMapGenerator: [{name: c, files: [/secret.yaml]}]\n")
        .with("c/kustomization.yaml", "resources: [/secret.yaml]\n")
        .with("d/kustomization.yaml", "resources: ['']\n");
    for directory in ["/a", "/b", "/c"] {
        let message = fails(&tree, directory);
        assert!(message.contains("security; file '/secret.yaml' is not in or below"), "{message}");
    }
    assert!(fails(&tree, "/d").contains("new root cannot be empty"));
}

#[test]
fn no_field_that_names_a_file_leads_out() {
    let long = "x/".repeat(5000);
    let cases = [
        ("configMapGenerator: [{name: c, files: ['k=../secret.yaml']}]", "is not in or below"),
        ("configMapGenerator: [{name: c, envs: ['../secret.yaml']}]", "is not in or below"),
        ("secretGenerator: [{name: c, files: ['../a/../secret.yaml']}]", "is not in or below"),
        ("patches: [{path: ../secret.yaml}]", "is not in or below"),
        ("patchesStrategicMerge: [../secret.yaml]", "is not in or below"),
        ("replacements: [{path: ../secret.yaml}]", "is not in or below"),
        ("openapi: {path: ../secret.yaml}", "is not in or below"),
        ("crds: [../secret.yaml]", "is not in or below"),
        ("configurations: [../secret.yaml]", "is not in or below"),
        ("transformers: [../secret.yaml]", "is not in or below"),
        ("components: [/other]", "cannot be absolute"),
        ("resources: [\"a\\0b.yaml\"]", "no such file or directory"),
        ("resources: ['~/secret.yaml']", "no such file or directory"),
        ("resources: ['https://h.example/a/b//../../c']", "this build is offline"),
        ("resources: ['file:///secret.yaml']", "this build is offline"),
    ];
    for (text, wanted) in cases {
        let tree = Memory::new()
            .with("secret.yaml", POD)
            .with("other/kustomization.yaml", "kind: Component\n")
            .with("a/pod.yaml", POD)
            .with("a/kustomization.yaml", format!("{text}\nnamePrefix: x-\n"));
        let message = fails(&tree, "/a");
        assert!(message.contains(wanted), "{text}: {message}");
    }
    let tree = Memory::new().with("a/kustomization.yaml", format!("resources: [{long}y]\n"));
    assert!(fails(&tree, "/a").contains("no such file or directory"));
}

#[test]
fn typos_are_placed_and_corrected() {
    let tree = Memory::new()
        .with("kustomization.yaml", "resources: [pod.yaml]\nnamePrefx: x-\n")
        .with("pod.yaml", POD);
    let error = build(&tree, "/").unwrap_err();
    assert_eq!(error.to_string(), "invalid Kustomization: json: unknown field \"namePrefx\"");
    let diagnostic = kiln_diagnostic::Diagnostic::from(error);
    assert_eq!(diagnostic.place.unwrap().to_string(), "/kustomization.yaml:2:1");
    assert_eq!(diagnostic.hint.as_deref(), Some("did you mean \"namePrefix\"?"));
}

#[test]
fn conflicting_ids_name_both_places() {
    let tree = Memory::new()
        .with("kustomization.yaml", "resources: [a.yaml, b.yaml]\n")
        .with("a.yaml", POD)
        .with("b.yaml", format!("# second\n{POD}"));
    let error = build(&tree, "/").unwrap_err();
    assert!(
        error.message().contains(
            "may not add resource with an already registered id: Pod.v1.[noGrp]/a.[noNs]"
        )
    );
    let diagnostic = kiln_diagnostic::Diagnostic::from(error);
    assert_eq!(diagnostic.place.unwrap().to_string(), "/b.yaml:2:1");
    assert_eq!(diagnostic.hint.as_deref(), Some("the first object with this id is at /a.yaml:1:1"));
}

#[test]
fn a_missing_file_is_placed_at_its_entry() {
    let tree = Memory::new().with("kustomization.yaml", "resources:\n- gone.yaml\n");
    let message = fails(&tree, "/");
    assert!(message.starts_with("/kustomization.yaml:2:3: accumulating resources: "), "{message}");
    assert!(message.contains("lstat /gone.yaml: no such file or directory"), "{message}");
}

#[test]
fn what_does_not_fit_an_object_is_placed_where_the_user_wrote_it() {
    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a}]}}}\n";
    let said = |kustomization: &str, file: &str| {
        let tree = Memory::new()
            .with("d.yaml", DEPLOYMENT)
            .with("file.yaml", file)
            .with("kustomization.yaml", format!("resources: [d.yaml]\n{kustomization}"));
        let diagnostic = kiln_diagnostic::Diagnostic::from(build(&tree, "/").unwrap_err());
        let place = diagnostic.place.map(|place| place.to_string()).unwrap_or_default();
        (place, diagnostic.hint.unwrap_or_default())
    };
    let operations =
        "- {op: add, path: /metadata/labels, value: {}}\n- {op: remove, path: /spec/templat}\n";
    let replacement = |fields: &str| {
        format!(
            "replacements:\n- source: {{kind: Deployment, name: web}}\n  targets:\n  - select: {{kind: Deployment}}\n    {fields}\n"
        )
    };
    let containers = "spec.template.spec.contianers.0.image";
    let meant = "spec.template.spec of Deployment/web has no contianers; did you mean containers?";
    let missing = "operation 2 of 2 (remove \"/spec/templat\"): /spec has no \"templat\"; it has template (in Deployment/web)";
    for (kustomization, file, place, hint) in [
        // In a file, and in the kustomization itself.
        (
            "patches:\n- path: file.yaml\n  target: {kind: Deployment}\n".to_owned(),
            operations.to_owned(),
            "/file.yaml:2:22",
            missing,
        ),
        (
            format!(
                "patches:\n- target: {{kind: Deployment}}\n  patch: |-\n    {}\n",
                operations.trim_end().replace('\n', "\n    ")
            ),
            String::new(),
            "/kustomization.yaml:6:26",
            missing,
        ),
        (
            "patchesJson6902:\n- path: file.yaml\n  target: {version: v1, kind: Deployment, name: web}\n".to_owned(),
            operations.to_owned(),
            "/file.yaml:2:22",
            missing,
        ),
        (
            replacement(&format!("fieldPaths: [metadata.name, {containers}]")),
            String::new(),
            "/kustomization.yaml:6:33",
            meant,
        ),
        (
            "replacements: [{path: file.yaml}]\n".to_owned(),
            format!(
                "source: {{kind: Deployment, name: web}}\ntargets:\n- select: {{kind: Deployment}}\n  fieldPaths: [{containers}]\n"
            ),
            "/file.yaml:4:16",
            meant,
        ),
        (
            replacement("fieldPaths: [metadata.name]").replace("name: web", "name: wbe"),
            String::new(),
            "/kustomization.yaml:3:11",
            "did you mean Deployment/web?",
        ),
        (
            replacement("fieldPaths: [metadata.name]")
                .replace("name: web", "name: web, fieldPath: metadata.nam"),
            String::new(),
            "/kustomization.yaml:3:52",
            "metadata of Deployment/web has no nam; did you mean name?",
        ),
        (
            "patches:\n- path: file.yaml\n".to_owned(),
            DEPLOYMENT.replace("name: web", "name: wbe"),
            "/kustomization.yaml:3:3",
            "did you mean Deployment/web?",
        ),
    ] {
        let found = said(&kustomization, &file);
        assert_eq!((found.0.as_str(), found.1.as_str()), (place, hint), "{kustomization}");
    }
}

#[test]
fn a_patch_without_an_object_is_an_error_and_one_that_selects_none_a_warning() {
    let patch = |target: &str| {
        Memory::new()
            .with("pod.yaml", POD)
            .with(
                "kustomization.yaml",
                format!("resources: [pod.yaml]\npatches:\n- path: p.yaml\n{target}"),
            )
            .with("p.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {x: 1}\n")
    };
    let message = fails(&patch(""), "/");
    assert!(
        message.starts_with("/kustomization.yaml:3:3: no resource matches strategic merge patch"),
        "{message}"
    );
    let output = build(&patch("  target: {kind: Job}\n"), "/").unwrap();
    let [warning] = output.warnings.as_slice() else { panic!("{:?}", output.warnings) };
    assert_eq!(
        warning.to_string(),
        "/kustomization.yaml:3:3: the target of the patch [path: \"p.yaml\"] selects no object (correct the target, or remove the patch)"
    );
}

#[test]
fn odd_texts_are_errors_not_panics() {
    let texts = [
        "",
        "null",
        "[]",
        "1",
        "x: [",
        "resources: 1",
        "resources: [1]",
        "resources: [null]",
        "patches: [{}]",
        "patches: [{patch: ''}]",
        "patches: [{patch: x}]",
        "patchesStrategicMerge: ['']",
        "patchesJson6902: [{}]",
        "patchesJson6902: [{target: {name: a}, patch: '[1]'}]",
        "configMapGenerator: [{}]",
        "configMapGenerator: [{name: a, literals: ['=']}]",
        "configMapGenerator: [{name: a, files: ['a=b=c', '=']}]",
        "images: [{name: '('}]\nresources: []",
        "replacements: [{}]",
        "replacements: [{source: {}, targets: [{}]}]",
        "vars: [{}]",
        "generators: ['{}']",
        "transformers: ['x: y']",
        "openapi: {version: v9}",
        "crds: [nope]",
        "replicas: [{name: a, count: x}]",
        "sortOptions: {order: x}\nresources: []",
        "labels: [{pairs: {a: 1}}]",
        "kind: Kustomization",
        "helmCharts: [{}]",
        "namespace: x\nnamespace: y",
        "buildMetadata: [x]\nresources: []",
    ];
    for text in texts {
        let tree = Memory::new().with("kustomization.yaml", text).with("pod.yaml", POD);
        let _ = build(&tree, "/");
    }
    let objects = [
        "kind: List",
        "kind: List\nitems: 1",
        "kind: List\nitems: [1, null, {}]",
        "kind: A\nmetadata: 1",
        "kind: [a]\nmetadata: {name: b}",
        "kind: A\nmetadata: {name: [b]}",
        "--- a\n--- b\n",
        "kind: A\nmetadata: {name: a, annotations: 1, labels: [x]}",
        "kind: A\nmetadata: {name: a, annotations: {a: [1], b: {c: d}, e: null}}\nspec: .inf",
    ];
    let kustomization = "resources: [a.yaml]\nnamePrefix: x-\nnamespace: n\nlabels: [{pairs: {a: b}, includeSelectors: true}]\ncommonAnnotations: {a: b}\nimages: [{name: a, newTag: b}]\nconfigMapGenerator: [{name: c}]\n";
    for text in objects {
        let tree = Memory::new().with("kustomization.yaml", kustomization).with("a.yaml", text);
        let _ = build(&tree, "/");
    }
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c0}\ndata: {a: b}\n";

/// The error of a build that makes too much: with a place and a hint.
fn makes_too_much(tree: &Memory) -> String {
    let error = build(tree, "/").map(|output| output.yaml.len()).unwrap_err();
    let diagnostic = kiln_diagnostic::Diagnostic::from(error);
    let place = diagnostic.place.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(place.contains(".yaml:"), "{diagnostic}");
    assert!(diagnostic.hint.is_some(), "{diagnostic}");
    diagnostic.message
}

#[test]
fn replacements_that_copy_data_into_itself_end_at_a_limit() {
    let select = "{kind: ConfigMap, name: c0}";
    let mut text = "resources: [a.yaml]\nreplacements:\n".to_owned();
    for at in 0..60 {
        text.push_str(&format!(
            "- source: {{kind: ConfigMap, name: c0, fieldPath: data}}\n  targets: [{{select: {select}, fieldPaths: [data.k{at}], options: {{create: true}}}}]\n"
        ));
    }
    let tree = Memory::new().with("kustomization.yaml", text).with("a.yaml", CONFIG_MAP);
    assert!(makes_too_much(&tree).contains("one build makes more than"));
}

#[test]
fn patches_that_copy_data_into_itself_end_at_a_limit() {
    let mut text = "resources: [a.yaml]\npatches:\n".to_owned();
    for at in 0..60 {
        text.push_str(&format!(
            "- target: {{kind: ConfigMap}}\n  patch: '[{{\"op\": \"copy\", \"from\": \"/data\", \"path\": \"/data/k{at}\"}}]'\n"
        ));
    }
    let tree = Memory::new().with("kustomization.yaml", text).with("a.yaml", CONFIG_MAP);
    makes_too_much(&tree);
}

#[test]
fn field_paths_lead_no_deeper_than_values_may_nest() {
    let long = vec!["x"; 8000];
    let texts = [
        format!(
            "replacements:\n- source: {{kind: ConfigMap, name: c0, fieldPath: data.a}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: [{}], options: {{create: true}}}}]\n",
            long.join(".")
        ),
        format!(
            "labels:\n- pairs: {{a: b}}\n  fields: [{{path: {}, create: true}}]\n",
            long.join("/")
        ),
        format!(
            "transformers:\n- |-\n  apiVersion: builtin\n  kind: ValueAddTransformer\n  metadata: {{name: v}}\n  value: x\n  targets: [{{fieldPath: {}}}]\n",
            long.join("/")
        ),
    ];
    for text in texts {
        let tree = Memory::new()
            .with("kustomization.yaml", format!("resources: [a.yaml]\n{text}"))
            .with("a.yaml", CONFIG_MAP);
        let error = build(&tree, "/").map(|output| output.yaml.len()).unwrap_err();
        assert!(error.message().contains("deeper than 500 levels"), "{error}");
    }
    // Copies of copies nest deeper each time.
    let mut text = "resources: [a.yaml]\nreplacements:\n".to_owned();
    for _ in 0..600 {
        text.push_str("- source: {kind: ConfigMap, name: c0, fieldPath: data}\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a], options: {create: true}}]\n");
    }
    let object = CONFIG_MAP.replace("{a: b}", "{a: {}}");
    let tree = Memory::new().with("kustomization.yaml", text).with("a.yaml", object);
    assert!(makes_too_much(&tree).contains("deeper than 500 levels"));
}

#[test]
fn vars_in_vars_in_vars_end_at_a_limit() {
    let large = "x".repeat(1 << 20);
    let mut objects =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c0}}\ndata: {{a: {large}}}\n");
    for at in 0..10 {
        let args = "$(A)".repeat(100);
        objects.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}}}\nspec: {{containers: [{{name: c, args: ['{args}']}}]}}\n"
        ));
    }
    let tree = Memory::new()
        .with("kustomization.yaml", "resources: [a.yaml]\nvars:\n- name: A\n  objref: {kind: ConfigMap, name: c0, apiVersion: v1}\n  fieldref: {fieldPath: data.a}\n")
        .with("a.yaml", objects);
    assert!(makes_too_much(&tree).contains("bytes of text"));
}

#[test]
fn annotations_of_very_many_objects_end_at_a_limit() {
    let large = "x".repeat(1 << 20);
    let objects: String = (0..600)
        .map(|at| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{at}}}\n"))
        .collect();
    for field in ["commonAnnotations: {a: LARGE}", "namePrefix: LARGE"] {
        let text = format!("resources: [a.yaml]\n{}\n", field.replace("LARGE", &large));
        let tree = Memory::new().with("kustomization.yaml", text).with("a.yaml", objects.as_str());
        assert!(makes_too_much(&tree).contains("bytes of text"), "{}", &field[..10]);
    }
}
