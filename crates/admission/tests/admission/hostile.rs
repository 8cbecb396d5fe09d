//! What any client may send to the port of a webhook.

use proptest::prelude::*;

use super::*;

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: ['*/*'], namespaces: ['*'], annotations: {a: '*'}}}, {resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {x: '{{ request.object.metadata.name }}'}}}}
";

/// JSON of any shape, with the words that reviews have.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("request".to_owned()),
        Just("object".to_owned()),
        Just("metadata".to_owned()),
        Just("kind".to_owned()),
        Just("name".to_owned()),
        Just("labels".to_owned()),
        "[a-z{}$()]{0,6}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        Just(Value::from("{{ request.object }}")),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from_iter),
            proptest::collection::vec((word.clone(), inner), 0..5)
                .prop_map(|pairs| Value::Map(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_review_has_an_answer(object in anything(), old in anything(), user in anything()) {
        let hooks = hooks(POLICY);
        let settings = Settings::new("kyverno");
        let kinds = Kinds::builtin();
        let mut review = yaml("{apiVersion: admission.k8s.io/v1, kind: AdmissionReview, request: {uid: '1', operation: UPDATE, kind: {group: '', version: v1, kind: ConfigMap}}}");
        review.set(["request", "object"], object).unwrap();
        review.set(["request", "oldObject"], old).unwrap();
        review.set(["request", "userInfo"], user).unwrap();
        let bytes = json::to_string(&review).into_bytes();
        if let Ok(request) = ReviewRequest::read(&bytes, 1 << 20, &kinds) {
            let reviewed = hooks.review("/mutate/fail", &request, &EvalEnv::of(&EmptyView, &kinds), &settings);
            prop_assert!(!reviewed.panicked);
            let answer = reviewed.response.to_bytes(&request.uid);
            prop_assert!(json::parse(std::str::from_utf8(&answer).unwrap()).is_ok());
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ReviewRequest::read(&bytes, 1 << 20, &Kinds::builtin());
    }
}

#[test]
fn deep_and_large_reviews_end_in_an_error() {
    let kinds = Kinds::builtin();
    let deep = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","operation":"CREATE","object":{}{}}}}}"#,
        r#"{"a":"#.repeat(100_000),
        "}".repeat(100_000)
    );
    let error = ReviewRequest::read(deep.as_bytes(), 16 << 20, &kinds).unwrap_err();
    assert_eq!(error.status(), 400);
    let error = ReviewRequest::read(&[b' '; 100], 99, &kinds).unwrap_err();
    assert_eq!(error.status(), 413);
}

#[test]
fn values_of_objects_are_no_structure() {
    let modrule = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: agent, namespace: dev}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: Pod}]
  patch:
  - op: add
    path: /spec/containers/-1
    value: |-
      name: agent
      image: agent:{{ .Target.metadata.annotations.v }}
";
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: agent}
spec:
  rules:
  - name: agent
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      patchesJson6902: |-
        - op: add
          path: /spec/containers/-
          value:
            name: agent
            image: agent:{{ request.object.metadata.annotations.v }}
";
    let request = |says: &str| {
        let says = json::to_string(&Value::from(says));
        format!(
            "{{kind: {{group: '', version: v1, kind: Pod}}, resource: {{group: '', version: v1, resource: pods}}, object: \
             {{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: dev, annotations: {{v: {says}}}}}, spec: {{containers: []}}}}}}"
        )
    };
    for (rules, path) in [(modrule, "/dragnet-webhook"), (policy, "/mutate/fail")] {
        for (says, image) in [
            ("1", "agent:1"),
            (
                "1\nsecurityContext: {privileged: true}",
                "agent:1\\nsecurityContext: {privileged: true}",
            ),
            (
                "1\n            securityContext: {privileged: true}",
                "agent:1\\n            securityContext: {privileged: true}",
            ),
        ] {
            let answer = patch(&send(&hooks(rules), path, &request(says)));
            assert_eq!(
                answer,
                format!(
                    r#"[{{"op":"add","path":"/spec/containers/0","value":{{"name":"agent","image":"{image}"}}}}]"#
                ),
                "{path} {says}"
            );
        }
    }
}

#[test]
fn values_of_objects_are_never_taken_for_templates() {
    let answer = send(
        &hooks(POLICY),
        "/mutate/fail",
        "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ request.userInfo }}', namespace: dev}}}",
    );
    assert_eq!(
        patch(&answer),
        r#"[{"op":"add","path":"/metadata/labels","value":{"x":"{{ request.userInfo }}"}}]"#
    );
}
