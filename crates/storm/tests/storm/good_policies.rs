//! Policies without mistakes: a storm has nothing to say.

use crate::findings;

#[test]
fn nothing_is_found_in_policies_that_stand_it() {
    let quota = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: quotas}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace]}}]}
    exclude: {any: [{resources: {names: [kube-*, kyverno]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: quota
      namespace: "{{request.object.metadata.name}}"
      data: {data: {pods: "10"}}
"#;
    let label = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labels}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap, Secret]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): none}}}}
"#;
    let generating = r#"
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: copies}
spec:
  evaluation: {synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE, UPDATE]}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.namespace, [{'apiVersion': 'v1', 'kind': 'ConfigMap',
      'metadata': {'name': object.metadata.name + '-info'}, 'data': {'of': object.metadata.name}}])
"#;
    for policies in [quota, label, generating] {
        let found = findings(policies, 30);
        let told: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}: {}", one.kind, one.about, one.message))
            .collect();
        assert!(told.is_empty(), "{told:#?}\n{policies}");
    }
}
