//! `kiln fn run`. What is printed and written is what kustomize 5.8.1 prints and writes for the same files.

use super::{Case, holds};

/// Two objects with comments, and a function for them.
const WEB: &str = "# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
    name: web # its name
    labels: {tier: back}
spec:
    # one is enough
    replicas: 1
---
apiVersion: v1
kind: Service
metadata:
    name: web
    labels:
        tier: back # as above
";

const LABEL: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: label
  annotations:
    config.kubernetes.io/function: |
      exec:
        path: ./label.sh
data: {to: front}
";

/// Puts objects of the back in front, and makes one more.
const SCRIPT: &str = "#!/bin/sh
sed -e 's/tier: back/tier: front/' -e 's/^items:/items:\\
- {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: shop}}/'
";

fn shop() -> Case {
    Case::new("", &[("shop/web.yaml", WEB), ("shop/functions/label.yaml", LABEL)])
        .executable("label.sh", SCRIPT)
}

#[test]
fn declared_functions_rewrite_files_and_comments_stay() {
    let case = shop();
    let run = case.kiln(&["fn", "run", "shop", "--enable-exec", "--log-steps"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    holds(&run.stderr, &["Running ./label.sh"]);
    assert_eq!(
        case.0.read("shop/web.yaml"),
        "# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # its name
  labels: {tier: front}
spec:
  # one is enough
  replicas: 1
---
apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    tier: front # as above
"
    );
    assert_eq!(
        case.0.read("shop/shop/configmap_made.yaml"),
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: shop}}\n"
    );
    assert_eq!(case.0.read("shop/functions/label.yaml"), LABEL);
}

#[test]
fn a_dry_run_prints_and_writes_nothing() {
    let case = shop();
    let run = case.kiln(&["fn", "run", "shop", "--enable-exec", "--dry-run"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        run.stdout,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: shop, annotations: {internal.config.kubernetes.io/path: 'shop/configmap_made.yaml', config.kubernetes.io/path: 'shop/configmap_made.yaml'}}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: label
  annotations:
    config.kubernetes.io/function: |
      exec:
        path: ./label.sh
    config.kubernetes.io/path: 'functions/label.yaml'
    internal.config.kubernetes.io/path: 'functions/label.yaml'
data: {to: front}
---
# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # its name
  labels: {tier: front}
  annotations:
    config.kubernetes.io/path: 'web.yaml'
    internal.config.kubernetes.io/path: 'web.yaml'
spec:
  # one is enough
  replicas: 1
---
apiVersion: v1
kind: Service
metadata:
  name: web
  labels:
    tier: front # as above
  annotations:
    config.kubernetes.io/path: 'web.yaml'
    internal.config.kubernetes.io/path: 'web.yaml'
"
    );
    assert_eq!(case.0.read("shop/web.yaml"), WEB);
}

#[test]
fn a_program_that_is_typed_gets_its_configuration_and_all_objects() {
    let case = Case::new(
        "",
        &[("shop/web.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s # s\n")],
    )
    .executable("show.sh", "#!/bin/sh\ncat >&2\nexit 3\n");
    let words = ["fn", "run", "shop", "--exec-path", "./show.sh", "--", "Kind", "a=1", "b=x"];
    let refused = case.kiln(&words);
    assert_eq!(refused.code, 2);
    holds(&refused.stderr, &["must specify --enable-exec with --exec-path"]);
    let run = case.kiln(&[&["fn", "run", "--enable-exec"], &words[2..]].concat());
    assert_eq!(run.code, 2, "{}", run.stderr);
    // Errors of several lines are set in under the first.
    let said = run.stderr.replace("\n       ", "\n");
    holds(
        &said,
        &[
            "function Kind function-input: couldn't execute function: exit status 3",
            "kind: ResourceList\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata:\n    name: s # s\n",
            "      config.kubernetes.io/path: 'web.yaml'\n",
            "functionConfig:\n  metadata:\n    name: function-input\n    annotations:\n      config.kubernetes.io/function: |\n        exec: {path: ./show.sh}\n  data: {a: 1, b: x}\n  kind: Kind\n  apiVersion: v1",
        ],
    );
}

#[test]
fn functions_that_are_not_allowed_are_left_out_or_refused() {
    let case = shop();
    let run = case.kiln(&["fn", "run", "shop", "--dry-run"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    holds(&run.stdout, &["tier: back # as above"]);
    holds(&run.stderr, &["the function ConfigMap label was not run", "--enable-exec"]);
    let container =
        LABEL.replace("exec:\n        path: ./label.sh", "container:\n        image: label:v1");
    case.0.write("shop/functions/label.yaml", container);
    let run = case.kiln(&["fn", "run", "shop", "--enable-exec"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    holds(
        &run.stderr,
        &["is the image label:v1, and containers are not allowed", "--enable-alpha-plugins"],
    );
}

#[test]
fn a_function_cannot_put_another_folder_into_the_place_of_the_one_that_is_written() {
    let script = "#!/bin/sh\ncat\nmv shop moved\nln -s elsewhere shop\n";
    let case = Case::new("", &[("shop/web.yaml", WEB), ("elsewhere/web.yaml", "a: b\n")])
        .executable("move.sh", script);
    let run = case.kiln(&["fn", "run", "shop", "--enable-exec", "--exec-path", "./move.sh"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    holds(&run.stderr, &["is another directory than before the functions ran"]);
    assert_eq!(case.0.read("elsewhere/web.yaml"), "a: b\n");
    assert_eq!(case.0.read("moved/web.yaml"), WEB);
}

#[test]
fn a_path_may_be_written_in_several_ways() {
    let script = "#!/bin/sh\nsed -e \"s#config.kubernetes.io/path: 'web.yaml'#config.kubernetes.io/path: './a/../web.yaml'#\"\n";
    let case = Case::new("", &[("shop/web.yaml", WEB)]).executable("move.sh", script);
    let run = case.kiln(&["fn", "run", "shop", "--enable-exec", "--exec-path", "./move.sh"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    holds(&case.0.read("shop/web.yaml"), &["name: web # its name", "kind: Service"]);
}

#[test]
fn a_function_writes_nothing_outside_of_the_folder() {
    for (path, said) in [
        ("../outside.yaml", "resource must be written under package"),
        ("/tmp/outside.yaml", "package paths may not be absolute paths"),
        ("link/outside.yaml", "is a link"),
        ("nowhere.yaml", "is a link"),
    ] {
        let script = format!(
            "#!/bin/sh\nsed -e \"s#config.kubernetes.io/path: 'web.yaml'#config.kubernetes.io/path: '{path}'#\"\n"
        );
        let case = Case::new("", &[("shop/web.yaml", WEB), ("elsewhere/.keep", "")])
            .executable("move.sh", &script);
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, case.0.path().join("shop").join(name)).unwrap();
        };
        link("../elsewhere", "link");
        link("../elsewhere/outside.yaml", "nowhere.yaml");
        let run = case.kiln(&["fn", "run", "shop", "--enable-exec", "--exec-path", "./move.sh"]);
        assert_eq!(run.code, 2, "{path}: {}", run.stderr);
        holds(&run.stderr, &[said]);
        assert_eq!(case.0.read("shop/web.yaml"), WEB, "{path}");
        for file in ["outside.yaml", "elsewhere/outside.yaml"] {
            assert!(!case.0.path().join(file).exists(), "{path}");
        }
    }
}
