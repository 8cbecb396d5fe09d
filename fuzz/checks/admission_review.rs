//! Any bytes as an AdmissionReview: there is an answer, and nothing panics.

use std::sync::LazyLock;

use kiln_admission::{Hooks, ReviewRequest, Settings};
use kiln_engine::{EmptyView, EvalEnv};
use kiln_object::Kinds;
use kiln_yaml::{ReadOptions, read_bytes};

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: ['*/*']}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(a): '{{ request.object.metadata.name }}'}}}}
";

static HOOKS: LazyLock<(Hooks, Settings, Kinds)> = LazyLock::new(|| {
    let (settings, kinds) = (Settings::new("kyverno"), Kinds::builtin());
    let documents =
        read_bytes("p", POLICY.as_bytes(), ReadOptions::kubernetes()).expect("it is YAML");
    let policies = kiln_dialects::compile(&documents, &kinds).policies;
    (Hooks::new(policies, &[], &kinds, &settings), settings, kinds)
});

pub(crate) fn check(bytes: &[u8]) {
    let (hooks, settings, kinds) = &*HOOKS;
    if let Ok(request) = ReviewRequest::read(bytes, 1 << 20, kinds) {
        let reviewed =
            hooks.review("/mutate/fail", &request, &EvalEnv::of(&EmptyView, kinds), settings);
        assert!(!reviewed.panicked);
        let _ = reviewed.response.to_bytes(&request.uid);
    }
}
