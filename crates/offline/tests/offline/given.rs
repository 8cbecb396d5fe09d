//! What a run is given about the cluster and the request: values, users, objects that are only there.

use kiln_offline::{UserFile, Values};

use crate::run::{Given, assert_said, documents};

/// A ClusterPolicy with one mutate rule for ConfigMaps; the text stands beside `match`.
fn for_config_maps(rest: &str) -> String {
    let rest = rest.replace('\n', "\n    ");
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  background: false
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
{rest}
"
    )
}

const TWO: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: gold, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain, namespace: shop}}
";

#[test]
fn values_of_a_resource_count_more_than_global_ones() {
    let policies = for_config_maps(
        r#"
context: [{name: tier, configMap: {name: tiers, namespace: finance}}]
mutate: {patchStrategicMerge: {metadata: {labels: {tier: "{{ tier.data.name }}"}}}}
"#,
    );
    let values = "
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
globalValues: {tier.data.name: third}
policies: [{name: p, resources: [{name: gold, values: {tier.data.name: first}}]}]
";
    let given = Given { policies: &policies, resources: TWO, values, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:p/r on v1/ConfigMap/shop/gold: pass
  patched v1/ConfigMap/shop/gold
kyverno:p/r on v1/ConfigMap/shop/plain: pass
  patched v1/ConfigMap/shop/plain
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    tier: first
  name: gold
  namespace: shop
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    tier: third
  name: plain
  namespace: shop
",
    );
}

#[test]
fn an_entry_that_nothing_serves_is_an_error_that_says_so() {
    let policies = for_config_maps(
        r#"
context: [{name: tier, configMap: {name: tiers, namespace: finance}}]
mutate: {patchStrategicMerge: {metadata: {labels: {tier: "{{ tier.data.name }}"}}}}
"#,
    );
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: gold, namespace: shop}}";
    let given = Given { policies: &policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:p/r on v1/ConfigMap/shop/gold: error
  test.yaml:11:15: cannot load the context entry "tier": there is no ConfigMap finance/tiers (create it, or give it along with the objects)
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: gold
  namespace: shop
"#,
    );
}

#[test]
fn a_kind_of_which_nothing_is_given_is_not_taken_for_empty() {
    let policies = for_config_maps(
        r#"
context: [{name: nodes, apiCall: {urlPath: /api/v1/nodes, jmesPath: length(items)}}]
mutate: {patchStrategicMerge: {metadata: {labels: {nodes: "{{ nodes }}"}}}}
"#,
    );
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}";
    let given =
        Given { policies: &policies, resources, only_given_kinds: true, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:p/r on v1/ConfigMap/shop/c: error
  test.yaml:11:15: cannot load the context entry "nodes": no object of kind Node is given to answer /api/v1/nodes (give such objects, or the value by name)
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
"#,
    );
    let given = Given { only_given_kinds: false, ..given };
    assert_said(
        &given.shown(),
        r#"
kyverno:p/r on v1/ConfigMap/shop/c: pass
  patched v1/ConfigMap/shop/c
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    nodes: "0"
  name: c
  namespace: shop
"#,
    );
}

#[test]
fn other_objects_are_read_and_fire_nothing() {
    let policies = for_config_maps(
        r#"
context: [{name: owners, configMap: {name: owners, namespace: platform}}]
mutate: {patchStrategicMerge: {metadata: {labels: {owner: "{{ owners.data.shop }}"}}}}
"#,
    );
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}";
    let others = "{apiVersion: v1, kind: ConfigMap, metadata: {name: owners, namespace: platform}, data: {shop: till}}";
    let given = Given { policies: &policies, resources, others, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:p/r on v1/ConfigMap/shop/c: pass
  patched v1/ConfigMap/shop/c
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    owner: till
  name: c
  namespace: shop
",
    );
}

#[test]
fn labels_of_namespaces_decide_and_the_report_says_why_not() {
    let policies = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], namespaceSelector: {matchLabels: {billed: "true"}}}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {billed: "yes"}}}}
"#;
    let resources = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: lab}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: lab}}
";
    let values = "
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
namespaceSelector: [{name: shop, labels: {billed: 'true'}}]
";
    let given = Given { policies, resources, values, explain: true, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:p/r on v1/ConfigMap/shop/c: pass
  patched v1/ConfigMap/shop/c
kyverno:p/r on v1/ConfigMap/lab/c: no match: namespaceSelector: the labels are {"kubernetes.io/metadata.name":"lab"}
no rule names v1/Secret/lab/s
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    billed: "yes"
  name: c
  namespace: shop
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: lab
---
apiVersion: v1
kind: Secret
metadata:
  name: s
  namespace: lab
"#,
    );
}

#[test]
fn the_operation_of_the_values_makes_an_update_or_a_deletion() {
    let policies = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: update
    match: {any: [{resources: {kinds: [ConfigMap], operations: [UPDATE]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {was: "{{ request.oldObject.metadata.name }}"}}}}
  - name: delete
    match: {any: [{resources: {kinds: [ConfigMap], operations: [DELETE]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: gone
      namespace: "{{ request.namespace }}"
      data: {stringData: {was: "{{ request.oldObject.metadata.name }}"}}
"#;
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}";
    let values = |operation: &str| {
        format!(
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nglobalValues: {{request.operation: {operation}}}\n"
        )
    };
    let given = Given { policies, resources, values: &values("UPDATE"), ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:p/update on v1/ConfigMap/shop/c: pass
  patched v1/ConfigMap/shop/c
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    was: c
  name: c
  namespace: shop
",
    );
    let given = Given { policies, resources, values: &values("DELETE"), ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:p/delete on v1/ConfigMap/shop/c: pass
  created v1/Secret/shop/gone
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: p
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: delete
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: gone
  namespace: shop
stringData:
  was: c
"#,
    );
}

#[test]
fn who_sends_the_request_is_seen_and_matched() {
    let policies = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  background: false
  rules:
  - name: people
    match: {any: [{resources: {kinds: [ConfigMap]}, clusterRoles: [editors]}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {by: "{{ request.userInfo.username }}"}}}}
  - name: robots
    match: {any: [{resources: {kinds: [ConfigMap]}, subjects: [{kind: ServiceAccount, name: robot, namespace: ci}]}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {robot: "yes"}}}}
"#;
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}";
    let user = "
apiVersion: cli.kyverno.io/v1alpha1
kind: UserInfo
clusterRoles: [editors]
userInfo: {username: alice, groups: [till]}
";
    let given = Given { policies, resources, user, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:p/people on v1/ConfigMap/shop/c: pass
  patched v1/ConfigMap/shop/c
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    by: alice
  name: c
  namespace: shop
",
    );
}

#[test]
fn an_object_of_a_subresource_is_a_request_to_its_parent() {
    let policies = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Deployment/scale]}}]}
    mutate: {patchStrategicMerge: {spec: {replicas: 2}}}
"#;
    let resources = "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web, namespace: shop}, spec: {replicas: 1}}";
    let values = "
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
subresources:
- subresource: {name: deployments/scale, kind: Scale, group: autoscaling, version: v1}
  parentResource: {name: deployments, kind: Deployment, group: apps, version: v1}
";
    let given = Given { policies, resources, values, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:p/r on autoscaling/v1/Scale/shop/web: pass
  patched autoscaling/v1/Scale/shop/web
---
apiVersion: autoscaling/v1
kind: Scale
metadata:
  name: web
  namespace: shop
spec:
  replicas: 2
",
    );
}

#[test]
fn slips_in_values_and_user_files_have_a_place() {
    let wrong = |text: &str| {
        let documents = documents(text);
        Values::read(&documents[0]).map(|_| ()).unwrap_err().to_string()
    };
    assert_said(
        &(wrong("globalValue: {a: b}\n") + "\n"),
        r#"
test.yaml:1:1: globalValue: unknown field "globalValue" (did you mean "globalValues"?)
"#,
    );
    assert_said(
        &(wrong("globalValues: {request.operation: WISH}\n") + "\n"),
        r#"
test.yaml:1:35: request.operation "WISH" is not an operation (use CREATE, UPDATE, DELETE or CONNECT)
"#,
    );
    assert_said(
        &(wrong("policies:\n- rules: []\n") + "\n"),
        r#"
test.yaml:2:3: policies[0]: missing field "name" (add "name" here)
"#,
    );
    let user = UserFile::read(&documents("userInfo: {user: alice}\n")[0]);
    assert_said(
        &(user.map(|_| ()).unwrap_err().to_string() + "\n"),
        r#"
test.yaml:1:12: userInfo.user: unknown field "user" (the fields here are username, uid, groups, extra)
"#,
    );
}

#[test]
fn the_global_context_is_made_of_the_given_objects() {
    let policies = for_config_maps(
        r#"
context: [{name: names, globalReference: {name: maps.names, jmesPath: "join(',', @)"}}]
mutate: {patchStrategicMerge: {metadata: {labels: {names: "{{ names }}"}}}}
"#,
    );
    let entry = "
---
apiVersion: kyverno.io/v2
kind: GlobalContextEntry
metadata: {name: maps}
spec:
  kubernetesResource: {version: v1, resource: configmaps, namespace: shop}
  projections: [{name: names, jmesPath: '[].metadata.name'}]
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: elsewhere}}
";
    let resources = format!("{TWO}{entry}");
    let given = Given { policies: &policies, resources: &resources, ..Given::default() };
    assert!(given.shown().contains("names: gold,plain\n"), "{}", given.shown());
    let called = resources.replace(
        "kubernetesResource: {version: v1, resource: configmaps, namespace: shop}",
        "apiCall: {urlPath: /api/v1/configmaps}",
    );
    let given = Given { policies: &policies, resources: &called, ..Given::default() };
    let shown = given.shown();
    assert!(shown.contains("it calls the API server, and there is none here"), "{shown}");
}

#[test]
fn nothing_follows_from_a_denied_resource_unless_that_is_asked_for() {
    let policies = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: deny}
spec:
  validationFailureAction: Enforce
  rules:
  - name: deny
    match: {any: [{resources: {kinds: [Namespace]}}]}
    validate: {message: never, deny: {}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: make}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: shop, data: {data: {a: b}}}
";
    let resources = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let given = Given { policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:deny/deny on v1/Namespace/shop: fail: never
refused v1/Namespace/shop
",
    );
    let shown = Given { follows_denied: true, ..given }.shown();
    assert!(shown.contains("kyverno:deny/deny on v1/Namespace/shop: fail: never\n"), "{shown}");
    assert!(shown.contains("created v1/ConfigMap/shop/made"), "{shown}");
    assert!(!shown.contains("refused"), "{shown}");
}
