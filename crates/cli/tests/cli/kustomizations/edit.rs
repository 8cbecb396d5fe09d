//! `kiln edit` and `kiln create`

use crate::harness::Folder;

const HEAD: &str = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

fn folder(kustomization: &str) -> Folder {
    let folder = Folder::with(&[
        ("a.yaml", CONFIG_MAP),
        ("b.yaml", &CONFIG_MAP.replace("name: a", "name: b")),
        ("base/kustomization.yaml", "namePrefix: x-\n"),
        ("e.env", "A=b\n"),
        ("f.txt", "text\n"),
    ]);
    folder.write("kustomization.yaml", kustomization);
    folder
}

/// The words of a command, separated by spaces.
fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

#[test]
fn only_what_a_command_is_about_is_written() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "resources:\n- a.yaml # why\n",
            "add resource b.yaml",
            "resources:\n- a.yaml # why\n- b.yaml\n",
        ),
        ("resources: [a.yaml]\n", "add resource b*", "resources: [a.yaml, b.yaml, base]\n"),
        ("resources:\n  - a.yaml\n", "add base base", "resources:\n  - a.yaml\n  - base\n"),
        (
            "resources:\n# one\n- a.yaml # x\n# two\n- b.yaml\n",
            "remove resource a.yaml",
            "resources:\n# one\n# two\n- b.yaml\n",
        ),
        ("resources:\n- a.yaml\n", "remove resource *", ""),
        ("", "add component base", "components:\n- base\n"),
        ("", "add buildmetadata originAnnotations", "buildMetadata:\n- originAnnotations\n"),
        (
            "buildMetadata: [originAnnotations]\n",
            "set buildmetadata managedByLabel",
            "buildMetadata: [managedByLabel]\n",
        ),
        ("buildMetadata:\n- managedByLabel\n", "remove buildmetadata managedByLabel", ""),
        ("", "add annotation a:b", "commonAnnotations:\n  a: b\n"),
        (
            "commonAnnotations: # all\n  a: 'b' # c\n",
            "set annotation a:x",
            "commonAnnotations: # all\n  a: 'x' # c\n",
        ),
        ("commonLabels:\n  a: b # c\n", "add label d:e", "commonLabels:\n  a: b # c\n  d: e\n"),
        ("commonLabels: {a: b, c: d}\n", "remove label a", "commonLabels: {c: d}\n"),
        (
            "",
            "add label d:e --without-selector --include-templates",
            "labels:\n- includeTemplates: true\n  pairs:\n    d: e\n",
        ),
        (
            "",
            "add configmap c --from-literal=k=v",
            "configMapGenerator:\n- literals:\n  - k=v\n  name: c\n",
        ),
        (
            "configMapGenerator:\n- name: c # n\n  literals:\n  - \"k=v\" # l\n",
            "add configmap c --from-file=f.txt",
            "configMapGenerator:\n- name: c # n\n  literals:\n  - \"k=v\" # l\n  files:\n  - f.txt\n",
        ),
        (
            "configMapGenerator:\n- name: c # n\n  literals:\n  - \"k=v\" # l\n",
            "set configmap c --from-literal=k=w",
            "configMapGenerator:\n- name: c # n\n  literals:\n  - \"k=w\" # l\n",
        ),
        (
            "",
            "add secret s --from-env-file=e.env",
            "secretGenerator:\n- envs:\n  - e.env\n  name: s\n  type: Opaque\n",
        ),
        (
            "secretGenerator:\n- name: s\n- name: t\n",
            "remove secret s",
            "secretGenerator:\n- name: t\n",
        ),
        ("", "add generator a.yaml", "generators:\n- a.yaml\n"),
        (
            "transformers: [a.yaml, b.yaml]\n",
            "remove transformer a.yaml",
            "transformers: [b.yaml]\n",
        ),
        (
            "",
            "add patch --path a.yaml --kind Pod",
            "patches:\n- path: a.yaml\n  target:\n    kind: Pod\n",
        ),
        (
            "patches:\n- path: a.yaml # c\n- path: b.yaml\n",
            "remove patch --path b.yaml",
            "patches:\n- path: a.yaml # c\n",
        ),
        (
            "images:\n- name: nginx # the web\n  newTag: \"1.0\" # old\n",
            "set image nginx:1.1",
            "images:\n- name: nginx # the web\n  newTag: \"1.1\" # old\n",
        ),
        (
            "images:\n- name: b\n  newTag: x\n",
            "set image a=c@sha256:0",
            "images:\n- digest: sha256:0\n  name: a\n  newName: c\n- name: b\n  newTag: x\n",
        ),
        (
            "replicas:\n- name: a # n\n  count: 1\n",
            "set replicas a=3",
            "replicas:\n- name: a # n\n  count: 3\n",
        ),
        ("namespace: old # here\n# end\n", "set namespace new", "namespace: new # here\n# end\n"),
        ("# end\n", "set nameprefix p-", "# end\nnamePrefix: p-\n"),
        ("", "set namesuffix -s", "nameSuffix: -s\n"),
    ];
    for (before, command, after) in cases {
        let folder = folder(&format!("{HEAD}{before}"));
        let mut args = vec!["edit"];
        args.extend(words(command));
        let run = folder.kiln(&args);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{command}");
        assert_eq!(folder.read("kustomization.yaml"), format!("{HEAD}{after}"), "{command}");
    }
}

#[test]
fn a_command_that_fails_changes_nothing() {
    let cases = [
        ("add resource gone.yaml", "gone.yaml has no match"),
        ("add base gone", "gone does not exist"),
        ("add buildmetadata x", "invalid buildMetadata option: x"),
        ("add annotation :b", "need k:v pair"),
        ("add label a:c", "label a already in kustomization file"),
        ("remove label z", "label z is not defined in kustomization file"),
        ("add configmap c", "at least from-env-file, or from-file or from-literal must be set"),
        ("add configmap c --from-literal=k=v --behavior=x", "invalid behavior"),
        ("add configmap c --from-env-file=gone.env", "gone.env"),
        ("set configmap c --from-literal=k=v", "unable to find ConfigMap with name \"c\""),
        ("remove secret s", "no specified secret(s) were found"),
        ("add patch", "must provide either patch or path"),
        ("add patch --path a --patch b", "can't be set at the same time"),
        ("set image nginx", "invalid format of image"),
        ("set replicas a=b", "invalid format of replica"),
        ("set annotation a!b:c", "invalid annotation key"),
        ("remove resource [", "syntax error in pattern"),
    ];
    let text = format!("{HEAD}commonLabels: {{a: b}} # c\n");
    for (command, message) in cases {
        let folder = folder(&text);
        let mut args = vec!["edit"];
        args.extend(words(command));
        let run = folder.kiln(&args);
        assert_eq!(run.code, 2, "{command}");
        assert!(run.stderr.contains(message), "{command}: {}", run.stderr);
        assert_eq!(folder.read("kustomization.yaml"), text, "{command}");
    }
}

#[test]
fn a_file_that_is_no_kustomization_is_named_with_its_place() {
    let folder = folder("resuorces: []\n");
    let run = folder.kiln(&["edit", "set", "namespace", "x"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("kustomization.yaml:1:1"), "{}", run.stderr);
    assert!(run.stderr.contains("resources"), "{}", run.stderr);
    let empty = Folder::with(&[]);
    let run = empty.kiln(&["edit", "set", "namespace", "x"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("kiln create"), "{}", run.stderr);
    folder.write("Kustomization", "resources: []\n");
    let run = folder.kiln(&["edit", "set", "namespace", "x"]);
    assert!(run.stderr.contains("Found multiple kustomization files"), "{}", run.stderr);
}

#[test]
fn what_is_there_already_is_said_and_left() {
    let folder = folder(&format!("{HEAD}resources:\n- a.yaml\n"));
    let run = folder.kiln(&["edit", "add", "resource", "a.yaml", "b.yaml"]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("resource a.yaml already in kustomization file"), "{}", run.stderr);
    assert_eq!(
        folder.read("kustomization.yaml"),
        format!("{HEAD}resources:\n- a.yaml\n- b.yaml\n")
    );
}

#[test]
fn old_fields_get_their_new_form_and_keep_their_comments() {
    let folder = folder(
        "# top\nbases:\n- base # b\ncommonLabels:\n  a: b\npatchesStrategicMerge:\n- |-\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n",
    );
    let run = folder.kiln(&["edit", "fix"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for fixed in
        ["bases -> resources", "commonLabels -> labels", "patchesStrategicMerge -> patches"]
    {
        assert!(run.stderr.contains(fixed), "{}", run.stderr);
    }
    let text = folder.read("kustomization.yaml");
    assert!(text.starts_with("# top\nresources:\n- base # b\n"), "{text}");
    for part in
        ["labels:\n- includeSelectors: true\n  pairs:\n    a: b\n", "patches:\n- patch: |-\n"]
    {
        assert!(text.contains(part), "{text}");
    }
    let again = folder.kiln(&["edit", "fix"]);
    assert!(!again.stderr.contains("fixed"), "{}", again.stderr);
    assert_eq!(folder.read("kustomization.yaml"), text);
}

#[test]
fn vars_become_replacements_and_the_build_stays_the_same() {
    let folder = Folder::with(&[
        ("svc.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c # main\n    env: [{name: X, value: http://$(V)}]\n",
        ),
        (
            "kustomization.yaml",
            "namePrefix: x-\nresources: [pod.yaml, svc.yaml]\nvars:\n- name: V\n  objref: {apiVersion: v1, kind: Service, name: s}\n",
        ),
    ]);
    let before = folder.kiln(&["build"]).stdout;
    assert!(before.contains("http://x-s"), "{before}");
    let run = folder.kiln(&["edit", "fix", "--vars"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("vars -> replacements"), "{}", run.stderr);
    assert!(folder.read("pod.yaml").contains("- name: c # main\n"), "{}", folder.read("pod.yaml"));
    assert!(
        folder.read("pod.yaml").contains("http://V_PLACEHOLDER"),
        "{}",
        folder.read("pod.yaml")
    );
    assert!(!folder.read("kustomization.yaml").contains("vars:"));
    assert_eq!(folder.kiln(&["build"]).stdout, before);
}

#[test]
fn create_finds_what_is_there() {
    let folder = Folder::with(&[
        ("a.yaml", CONFIG_MAP),
        ("notes.txt", "no: objects\n"),
        ("broken.yaml", "a: ["),
        ("below/b.yaml", CONFIG_MAP),
        ("base/kustomization.yaml", "resources: [c.yaml]\n"),
        ("base/c.yaml", CONFIG_MAP),
    ]);
    let run = folder.kiln(&[
        "create",
        "--autodetect",
        "--recursive",
        "--namespace",
        "shop",
        "--labels",
        "x:y",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let wanted = format!(
        "{HEAD}resources:\n- a.yaml\n- base\n- below/b.yaml\nnamespace: shop\ncommonLabels:\n  x: \"y\"\n"
    );
    assert_eq!(folder.read("kustomization.yaml"), wanted);
    let run = folder.kiln(&["init", "--kustomization"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("kustomization file already exists"), "{}", run.stderr);
    assert_eq!(folder.read("kustomization.yaml"), wanted);
}

#[cfg(unix)]
#[test]
fn links_lead_no_change_out_of_the_folder_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let outside = Folder::with(&[("victim.yaml", "namespace: a\n")]);
    let inside = Folder::with(&[]);
    let victim = outside.path().join("victim.yaml");
    symlink(&victim, inside.path().join("kustomization.yaml")).unwrap();
    let run = inside.kiln(&["edit", "set", "namespace", "b"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("is a link to"), "{}", run.stderr);
    assert_eq!(outside.read("victim.yaml"), "namespace: a\n");
    assert_eq!(inside.kiln(&["create"]).code, 2);

    let own = folder(&format!("{HEAD}namespace: a\n"));
    let path = own.path().join("kustomization.yaml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(own.kiln(&["edit", "set", "namespace", "b"]).code, 0);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let left: Vec<_> = std::fs::read_dir(own.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(".kiln")));
}
