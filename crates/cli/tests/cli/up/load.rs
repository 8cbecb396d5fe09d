//! What is given: its order, what is refused, what was kept.

use nix::sys::signal::Signal;

use super::files::{names, temporary};
use super::{SETTINGS, SHOP, Up};
use crate::harness::Folder;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: web}]}}\n";

#[test]
fn pods_may_come_right_after_their_namespace() {
    let both = format!("{POD}---\n{SHOP}");
    let folder = Folder::with(&[("shop.yaml", &both)]);
    let up = Up::start(&folder, &["--bare", "--resource", "shop.yaml"], "Ctrl-C");
    assert!(
        up.printed.iter().any(|line| line == "stored 0 rules and 2 objects"),
        "{:?}",
        up.printed
    );
    assert_eq!(up.get("/api/v1/namespaces/shop/pods/web").0, 200);
    for name in ["a", "b", "c"] {
        let namespace =
            format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        assert_eq!(up.post("/api/v1/namespaces", &namespace), 201);
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#;
        assert_eq!(up.post(&format!("/api/v1/namespaces/{name}/pods"), pod), 201);
    }
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_kill_leaves_nothing_in_the_way() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS), ("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["rules.yaml", "--data", "state"], "Ctrl-C");
    let kept = names(&temporary(&folder));
    assert_eq!(kept.len(), 1);
    assert_eq!(up.end(Signal::SIGKILL), None);
    assert_eq!(names(&temporary(&folder)), kept);
    let again =
        Up::start(&folder, &["rules.yaml", "--resource", "shop.yaml", "--data", "state"], "Ctrl-C");
    assert!(again.printed.iter().any(|line| line == "stored 1 rule and 1 object"));
    again.wait_for("/api/v1/namespaces/shop/configmaps/settings");
    let swept = names(&temporary(&folder));
    assert!(swept.len() == 1 && swept != kept, "{kept:?} {swept:?}");
    assert_eq!(again.end(Signal::SIGKILL), None);
    // Without the engine nothing would answer its webhooks.
    let bare = Up::start(&folder, &["--bare", "--data", "state"], "Ctrl-C");
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bank"}}"#;
    assert_eq!(bare.post("/api/v1/namespaces", namespace), 201);
    assert_eq!(bare.end(Signal::SIGTERM), Some(0));
    assert_eq!(names(&temporary(&folder)), Vec::<String>::new());
}

#[test]
fn stored_rules_are_at_work_before_anything_new_is_stored() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS), ("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["rules.yaml", "--data", "state"], "Ctrl-C");
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
    let again = Up::start(&folder, &["--resource", "shop.yaml", "--data", "state"], "Ctrl-C");
    again.wait_for("/api/v1/namespaces/shop/configmaps/settings");
    assert_eq!(again.end(Signal::SIGTERM), Some(0));
}

#[test]
fn namespaces_and_kinds_come_before_what_needs_them() {
    let rules = r#"
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: label-carts, namespace: shop}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Cart]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: "yes"}}}}
"#;
    let resources = r#"
{apiVersion: example.com/v1, kind: Cart, metadata: {name: first, namespace: shop}, spec: {items: 1}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: carts, singular: cart, kind: Cart}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;
    let all = format!("{rules}---\n{SETTINGS}");
    let folder = Folder::with(&[("rules.yaml", &all), ("objects.yaml", resources)]);
    let up = Up::start(&folder, &["rules.yaml", "--resource", "objects.yaml"], "Ctrl-C");
    assert!(
        up.printed.iter().any(|line| line == "stored 2 rules and 3 objects"),
        "{:?}",
        up.printed
    );
    let (_, cart) = up.get("/apis/example.com/v1/namespaces/shop/carts/first");
    assert!(cart.contains(r#""seen":"yes""#), "{cart}");
    // The Namespace came after the rules of the cluster, which it sets off.
    up.wait_for("/api/v1/namespaces/shop/configmaps/settings");
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

#[test]
fn rules_are_checked_before_anything_starts() {
    let rules =
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  ruls: []\n";
    let folder = Folder::with(&[("rules.yaml", rules)]);
    let run = folder.kiln(&["up", "rules.yaml", "--data", "state"]);
    assert_eq!(run.code, 2);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("unknown field spec.ruls"), "{}", run.stderr);
    assert!(run.stderr.contains("--> rules.yaml:5:3"), "{}", run.stderr);
    assert!(!folder.path().join("state").exists());
    // What `kiln check` says of the same file.
    let check = folder.kiln(&["check", "rules.yaml"]);
    assert_eq!(check.stderr, run.stderr);
}

#[test]
fn policies_that_are_not_at_work_are_named() {
    // In a list the policy is not a document of its own: the engine finds out.
    let rules = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: policies.kyverno.io/v1, kind: GeneratingPolicy, metadata: {name: broken}, spec: {matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]}, generate: [{expression: \"1 +\"}]}}\n";
    let folder = Folder::with(&[("rules.yaml", rules)]);
    let run = folder.kiln(&["up", "rules.yaml", "--", "true"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("GeneratingPolicy broken does not run"), "{}", run.stderr);
}

#[test]
fn what_is_refused_is_named_with_its_place_and_the_rest_is_stored() {
    let objects = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: Web
    image: web
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: lost
  namespace: nowhere
---
apiVersion: example.com/v1
kind: Cart
metadata:
  name: cart
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: good
";
    let folder = Folder::with(&[("objects.yaml", objects)]);
    let args = ["up", "--bare", "--resource", "objects.yaml", "--", "sh", "-c", "exit 0"];
    let run = folder.kiln(&args);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for words in [
        "Pod web is not stored: Pod \"web\" is invalid: spec.containers[0].name",
        "--> objects.yaml:7:11",
        "ConfigMap nowhere/lost is not stored: namespaces \"nowhere\" not found",
        "--> objects.yaml:13:9",
        "help: give the Namespace nowhere along",
        "Cart cart is not stored: example.com/v1 Cart is not served",
        "--> objects.yaml:17:7",
        "help: give its CustomResourceDefinition along",
        "3 objects were refused",
    ] {
        assert!(run.stderr.contains(words), "{words} is missing in\n{}", run.stderr);
    }
    let up = Up::start(&folder, &["--bare", "--resource", "objects.yaml"], "Ctrl-C");
    assert!(
        up.printed.iter().any(|line| line == "of 0 rules and 4 objects, 3 objects were refused"),
        "{:?}",
        up.printed
    );
    assert_eq!(up.get("/api/v1/namespaces/default/configmaps/good").0, 200);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
