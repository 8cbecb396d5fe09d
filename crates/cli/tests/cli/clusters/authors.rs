//! Policies of namespaces on a real control plane: they may do what those may who store them. Skipped, and loudly, where
//! there is none.

use crate::clusters::live::Running;

const JANE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: jane, namespace: shop}
rules:
- {apiGroups: [kyverno.io], resources: [policies], verbs: ['*']}
- {apiGroups: [''], resources: [configmaps], verbs: [get, create, update, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [get, create, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jane}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

/// A policy that makes an object for each ConfigMap whose name begins with its own.
fn policy(name: &str, annotations: &str, target: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {{name: {name}, namespace: shop, annotations: {{{annotations}}}}}\nspec:\n  rules:\n  - name: make\n    match: {{any: [{{resources: {{kinds: [ConfigMap], names: ['{name}-*']}}}}]}}\n    generate:\n      name: 'made-{{{{ request.object.metadata.name }}}}'\n      namespace: shop\n{target}\n"
    )
}

const CONFIG_MAP: &str = "      apiVersion: v1\n      kind: ConfigMap\n      data: {data: {a: b}}";
const BINDING: &str = "      apiVersion: rbac.authorization.k8s.io/v1\n      kind: RoleBinding\n      data:\n        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]";

#[test]
fn policies_of_namespaces_do_what_their_authors_may() {
    let Some(running) = Running::start(&["--no-workload", "--grant=standard"], &[]) else { return };
    running.cluster.apply(JANE).unwrap();
    // The engine itself may do more than Jane: what a cluster's administrator gave it.
    let grant = [
        "create",
        "clusterrolebinding",
        "engine",
        "--clusterrole=cluster-admin",
        "--serviceaccount=kyverno:kyverno-background-controller",
    ];
    running.cluster.kubectl(&grant).unwrap();
    let mutating = ["get", "mutatingwebhookconfiguration", "kyverno-policy-mutating-webhook-cfg"];
    running.wait("the webhook for authors", || running.cluster.kubectl(&mutating).is_ok());
    let as_jane = |document: &str| {
        let args = ["create", "--as=jane", "-f", "-"];
        let made = running.cluster.kubectl_with_input(&args, document);
        made.map_err(|error| error.to_string())
    };

    // A user is not the author of what another user stores.
    let claim =
        "kiln.dev/author: '{\"username\":\"kubernetes-admin\",\"groups\":[\"system:masters\"]}'";
    running.wait("Jane's policy", || as_jane(&policy("maps", claim, CONFIG_MAP)).is_ok());
    let stored = running.get(&["policy.kyverno.io/maps", "-n", "shop"]);
    let author = stored.str_at(["metadata", "annotations", "kiln.dev/author"]).unwrap().to_owned();
    assert!(author.contains("\"username\":\"jane\"") && !author.contains("admin"), "{author}");

    // What Jane may not make, a policy of hers may not make either.
    let secret = "      apiVersion: v1\n      kind: Secret\n      data: {stringData: {a: b}}";
    let refusal = as_jane(&policy("secrets", "", secret)).unwrap_err();
    assert!(refusal.contains("jane may not get, create v1/Secret in namespace shop"), "{refusal}");

    // Nor may it fire on what she may not see, or change what she may not change.
    let watches =
        policy("watches", "", CONFIG_MAP).replace("kinds: [ConfigMap]", "kinds: [Secret]");
    let refusal = as_jane(&watches).unwrap_err();
    assert!(refusal.contains("jane may not get v1/Secret in namespace shop"), "{refusal}");
    let (head, _) = watches.split_once("    generate:").unwrap();
    let changes = "    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}\n";
    let refusal = as_jane(&format!("{head}{changes}").replace("[Secret]", "[Pod]")).unwrap_err();
    assert!(refusal.contains("jane may not get, update v1/Pod in namespace shop"), "{refusal}");

    // A binding or a role that is changed at admission grants permissions, to Jane as well.
    let binds = "    mutate: {patchStrategicMerge: {subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}}\n";
    let changed = format!("{head}{binds}").replace("[Secret]", "[RoleBinding]");
    let refusal = as_jane(&changed).unwrap_err();
    assert!(refusal.contains("jane may not bind rbac.authorization.k8s.io/v1/Role"), "{refusal}");

    // A policy that a policy makes would have the engine for its author.
    let policies =
        "      apiVersion: kyverno.io/v1\n      kind: Policy\n      data: {spec: {rules: []}}";
    let refusal = as_jane(&policy("policies", "", policies)).unwrap_err();
    let wanted = "its author, jane, may not write objects of kind Policy";
    assert!(refusal.contains(wanted), "{refusal}");
    let unnamed = policies.replace("kind: Policy", "kind: \"{{ request.object.data.kind }}\"");
    as_jane(&policy("unnamed", "", &unnamed)).unwrap();

    // What Jane may make is made.
    let ready = ["wait", "--for=condition=Ready", "policies.kyverno.io", "--all", "-n", "shop"];
    running.cluster.kubectl(&ready).unwrap();
    let there =
        |name: &str| running.cluster.kubectl(&["get", "configmap", name, "-n", "shop"]).is_ok();
    running.cluster.kubectl(&["create", "configmap", "maps-1", "-n", "shop"]).unwrap();
    running.wait("what Jane's policy makes", || there("made-maps-1"));

    let names = ["create", "configmap", "unnamed-1", "--from-literal=kind=Policy", "-n", "shop"];
    running.cluster.kubectl(&names).unwrap();
    running.wait("the reason", || running.folder.read("engine.log").contains(wanted));
    let made = ["get", "policy.kyverno.io", "made-unnamed-1", "-n", "shop"];
    assert!(running.cluster.kubectl(&made).is_err());

    // A binding gives away more than the right to make one.
    as_jane(&policy("bindings", "", BINDING)).unwrap();
    running.cluster.kubectl(&ready).unwrap();
    running.cluster.kubectl(&["create", "configmap", "bindings-1", "-n", "shop"]).unwrap();
    let said = |words: &str| running.folder.read("engine.log").contains(words);
    running.wait("the reason", || said("jane, may not bind clusterroles"));
    let binding = ["get", "rolebinding", "made-bindings-1", "-n", "shop"];
    assert!(running.cluster.kubectl(&binding).is_err());

    // What Jane may not read, no policy of hers shows her: neither in what it makes nor in what it changes.
    let secret = ["create", "secret", "generic", "s", "--from-literal=k=hidden", "-n", "shop"];
    running.cluster.kubectl(&secret).unwrap();
    let reads =
        "    context: [{name: found, apiCall: {urlPath: /api/v1/namespaces/shop/secrets/s}}]\n";
    let shows = CONFIG_MAP.replace("a: b", "a: '{{ found.data.k }}'");
    let shown =
        policy("shown", "", &shows).replace("    generate:", &format!("{reads}    generate:"));
    as_jane(&shown).unwrap();
    let changes = "    mutate: {patchStrategicMerge: {data: {a: '{{ found.data.k }}'}}}\n";
    let (head, _) = shown.split_once("    generate:").unwrap();
    as_jane(&format!("{head}{changes}").replace("shown", "changed")).unwrap();
    running.cluster.kubectl(&ready).unwrap();
    running.cluster.kubectl(&["create", "configmap", "shown-1", "-n", "shop"]).unwrap();
    running
        .wait("the reason", || said("jane, may not get objects of kind Secret in namespace shop"));
    assert!(!there("made-shown-1"));
    let changing = ["create", "configmap", "changed-1", "-n", "shop", "-o", "json"];
    // What others send passes such a policy: it must not keep them from their work.
    let stored = running.cluster.kubectl(&changing).unwrap();
    assert!(!stored.contains("aGlkZGVu") && !stored.contains("hidden"), "{stored}");

    // Rights that are withdrawn end what the policy does.
    running.cluster.kubectl(&["delete", "rolebinding", "jane", "-n", "shop"]).unwrap();
    let mut number = 1;
    running.wait("the reason", || {
        number += 1;
        let name = format!("maps-{number}");
        running.cluster.kubectl(&["create", "configmap", &name, "-n", "shop"]).unwrap();
        said("jane, may not get objects of kind ConfigMap in namespace shop")
    });
    assert!(!there(&format!("made-maps-{number}")));
}
