//! Policies without mistakes: a storm has nothing to say.

use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::Value;

use crate::{findings, sparsely, told, try_storm};

/// Policies of the library that have a mistake.
const MISTAKES: [(&str, &str); 3] = [
    ("add-emptydir-sizelimit.yaml", "it fails on Pods without volumes"),
    ("other-mpol/prepend-image-registry/prepend-image-registry.yaml", "each update prepends again"),
    ("add-volume-deployment.yaml", "it fails on Pod templates without annotations"),
];

/// The stories of each policy of the library.
const STORIES: u64 = 4;

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
        let found = findings(policies, 5);
        assert!(found.is_empty(), "{}\n{policies}", told(&found));
    }
}

#[test]
fn nothing_is_found_in_policies_of_the_library_that_generate_and_mutate() {
    let (Some(root), Some(index)) =
        (corpus("policy-library"), corpus_json("policy-library/index.json"))
    else {
        return;
    };
    let policies = index.get("policies").and_then(Value::as_list).expect("policies");
    let mut meant = Vec::new();
    for policy in policies {
        let text = |field: &str| policy.str_at([field]).expect("a text");
        let rules = policy.get("rules").and_then(Value::as_list);
        let writes = |rule: &Value| {
            rule.as_str().is_some_and(|rule| rule.starts_with("mutate") || rule == "generate")
        };
        let is_meant = matches!(text("kind"), "MutatingPolicy" | "GeneratingPolicy")
            || rules.is_some_and(|rules| rules.iter().any(writes));
        if is_meant {
            meant.push(root.join(text("dir")).join(text("file")));
        }
    }
    let mut tally = Tally::new("storms over the policy library");
    for file in meant.into_iter().step_by(sparsely(40)) {
        let text = std::fs::read_to_string(&file).expect("a policy");
        let Ok(storm) = try_storm(&text) else {
            tally.leave_out();
            continue;
        };
        let mistake = MISTAKES.iter().find(|(name, _)| file.ends_with(name));
        if let Some((_, what)) = mistake {
            tally.known_failure(file.display().to_string(), *what);
        }
        tally.case(&file.display().to_string(), || {
            let found = storm.run(|so_far| so_far.stories < STORIES).findings;
            if found.is_empty() { Ok(()) } else { Err(told(&found)) }
        });
    }
    tally.finish();
}
