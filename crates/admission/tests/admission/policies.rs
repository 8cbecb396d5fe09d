//! Which policies may be stored.

use kiln_admission::Response;
use kiln_admission::policies::Check;

use super::*;

const SYNC: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: sa}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: ServiceAccount
      name: robot
      namespace: default
      synchronize: true
      data: {automountServiceAccountToken: false}
";

/// What is answered when exactly these rights are there: `account verb resource`.
fn answer(old: Option<&str>, new: &str, granted: impl Fn(&str) -> bool) -> Response {
    let settings = Settings::new("kyverno");
    let kinds = Kinds::builtin();
    let mut request = Value::map();
    request.set(["object"], yaml(new)).unwrap();
    if let Some(old) = old {
        request.set(["oldObject"], yaml(old)).unwrap();
        request.set(["operation"], "UPDATE").unwrap();
    }
    let request = Request::read(&review(&kiln_yaml::emit(&request)), 1 << 20, &kinds).unwrap();
    let check = Check::of(&request.event, std::iter::empty(), &kinds)
        .held_to_author(&request.event, settings.authors);
    let asked: Vec<bool> = check
        .questions()
        .iter()
        .map(|question| {
            let review = question.to_value(&settings);
            let text =
                |path: &[&str]| review.str_at(path.iter().copied()).unwrap_or_default().to_owned();
            let user = text(&["spec", "user"]);
            let account = user.rsplit(':').next().unwrap().trim_start_matches("kyverno-");
            let sub = text(&["spec", "resourceAttributes", "subresource"]);
            let sub = if sub.is_empty() { sub } else { format!("/{sub}") };
            granted(&format!(
                "{account} {} {}{sub} {}",
                text(&["spec", "resourceAttributes", "verb"]),
                text(&["spec", "resourceAttributes", "resource"]),
                text(&["spec", "resourceAttributes", "namespace"]),
            ))
        })
        .collect();
    check.conclude(&asked, &settings)
}

fn refused(old: Option<&str>, new: &str) -> String {
    answer(old, new, |_| true).refusal.map(|refusal| refusal.message).unwrap_or_default()
}

#[test]
fn policies_of_namespaces_need_the_rights_of_their_author() {
    let own = SYNC
        .replace("ClusterPolicy", "Policy")
        .replace("name: sa", "name: sa, namespace: default")
        .replace("      synchronize: true\n", "");
    let asked = std::cell::RefCell::new(Vec::new());
    let response = answer(None, &own, |question| {
        asked.borrow_mut().push(question.to_owned());
        !question.starts_with("ann create")
    });
    assert_eq!(
        asked.into_inner(),
        [
            "background-controller get serviceaccounts default",
            "background-controller create serviceaccounts default",
            "ann get serviceaccounts default",
            "ann create serviceaccounts default",
            "ann get configmaps default",
        ]
    );
    let refusal = response.refusal.unwrap().message;
    let said = "ann may not create v1/ServiceAccount in namespace default, so a policy of theirs may not either";
    assert!(refusal.contains(said), "{refusal}");
    // Who may not see what fires a rule, or change what it changes, does not store it.
    let seen = |policy: &str, denied: &str| {
        let response = answer(None, policy, |question| question != denied);
        response.refusal.map(|refusal| refusal.message).unwrap_or_default()
    };
    let said = seen(&own, "ann get configmaps default");
    assert!(said.contains("ann may not get v1/ConfigMap in namespace default"), "{said}");
    let (head, _) = own.split_once("    generate:").unwrap();
    let changes =
        format!("{head}    mutate: {{patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}\n");
    let said = seen(&changes, "ann update configmaps default");
    assert!(said.contains("ann may not update v1/ConfigMap in namespace default"), "{said}");
    // What the engine lacks is said first, with the role that gives it.
    let both = answer(None, &own, |question| question.contains(" get ")).refusal.unwrap().message;
    assert!(both.contains("requires permissions create"), "{both}");
}

#[test]
fn rights_are_asked_for_by_verb_and_account() {
    let asked = std::cell::RefCell::new(Vec::new());
    let response = answer(None, SYNC, |question| {
        asked.borrow_mut().push(question.to_owned());
        true
    });
    assert!(response.is_allowed());
    assert_eq!(
        asked.into_inner(),
        [
            "admission-controller list serviceaccounts default",
            "admission-controller get serviceaccounts default",
            "background-controller get serviceaccounts default",
            "background-controller create serviceaccounts default",
            "background-controller update serviceaccounts default",
            "background-controller delete serviceaccounts default",
        ]
    );
    let asked = std::cell::RefCell::new(Vec::new());
    answer(None, &SYNC.replace("synchronize: true", "synchronize: false"), |question| {
        asked.borrow_mut().push(question.split(' ').nth(1).unwrap().to_owned());
        true
    });
    assert_eq!(asked.into_inner(), ["get", "create"]);
}

#[test]
fn subresources_are_asked_for_apart_from_their_objects() {
    let asked = std::cell::RefCell::new(Vec::new());
    let text = SYNC.replace("kind: ServiceAccount", "kind: ServiceAccount/token");
    answer(None, &text, |question| {
        asked.borrow_mut().push(question.replace(" default", ""));
        true
    });
    assert_eq!(
        asked.into_inner(),
        [
            "admission-controller list serviceaccounts",
            "admission-controller get serviceaccounts/token",
            "background-controller create serviceaccounts",
            "background-controller delete serviceaccounts",
            "background-controller get serviceaccounts/token",
            "background-controller update serviceaccounts/token",
        ]
    );
}

#[test]
fn missing_rights_are_named_with_what_grants_them() {
    let response = answer(None, SYNC, |question| {
        question.starts_with("admission") || question.contains(" get ")
    });
    let message = response.refusal.unwrap().message;
    assert_eq!(
        message,
        "path: spec.rules[0].generate..: system:serviceaccount:kyverno:kyverno-background-controller requires \
         permissions create,update,delete for resource v1/ServiceAccount in namespace default\n\
         to grant them, apply:\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRole\n\
         metadata:\n\
         \x20 labels:\n\
         \x20   rbac.kyverno.io/aggregate-to-background-controller: \"true\"\n\
         \x20 name: kyverno:background-controller:sa\n\
         rules:\n\
         - apiGroups:\n\
         \x20 - \"\"\n\
         \x20 resources:\n\
         \x20 - serviceaccounts\n\
         \x20 verbs:\n\
         \x20 - create\n\
         \x20 - update\n\
         \x20 - delete\n"
    );
    let response = answer(None, SYNC, |question| question.starts_with("background"));
    let message = response.refusal.unwrap().message;
    assert!(message.contains("aggregate-to-admission-controller"), "{message}");
}

#[test]
fn roles_of_policies_in_several_namespaces_have_names_of_their_own() {
    let role = |namespace: &str| {
        let text = SYNC
            .replace("kind: ClusterPolicy", "kind: Policy")
            .replace("name: sa}", &format!("name: sa, namespace: {namespace}}}"))
            .replace("namespace: default", &format!("namespace: {namespace}"));
        let message = answer(None, &text, |_| false).refusal.unwrap().message;
        let (_, role) = message.split_once("to grant them, apply:\n").unwrap();
        let names = role.lines().filter_map(|line| line.strip_prefix("  name: "));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    for namespace in ["shop", "lab"] {
        let names = role(namespace);
        assert_eq!(
            names,
            ["admission", "background"]
                .map(|who| format!("kyverno:{who}-controller:{namespace}:sa"))
        );
        // Kubernetes: names of roles are parts of paths.
        assert!(!names.iter().any(|name| name.contains(['/', '%'])), "{names:?}");
    }
}

#[test]
fn variables_in_kinds_are_not_reviewed() {
    let text = SYNC.replace("kind: ServiceAccount", "kind: '{{ request.object.data.kind }}'");
    assert!(answer(None, &text, |_| false).is_allowed());
    let text =
        SYNC.replace("namespace: default", "namespace: '{{ request.object.metadata.namespace }}'");
    let message = answer(None, &text, |_| false).refusal.unwrap().message;
    assert!(message.contains("in namespace {{ request.object.metadata.namespace }}"), "{message}");
}

#[test]
fn targets_of_mutate_rules_are_reviewed() {
    let text = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: flag}
spec:
  rules:
  - name: apply
    match: {any: [{resources: {kinds: [Namespace]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: PersistentVolumeClaim, namespace: '{{ request.object.metadata.name }}'}]
      patchStrategicMerge: {metadata: {labels: {a: b}}}
";
    let message = answer(None, text, |_| false).refusal.unwrap().message;
    assert!(
        message.starts_with(
            "path: spec.rules[0].mutate.targets.: auth check fails, additional privileges are required for the \
             service account 'system:serviceaccount:kyverno:kyverno-background-controller': get,update on \
             v1/PersistentVolumeClaim"
        ),
        "{message}"
    );
}

#[test]
fn compile_errors_refuse_in_kyvernos_words() {
    for (change, to, says) in [
        (
            "      namespace: default\n",
            "",
            "target namespace must be set for a namespaced resource",
        ),
        (
            "  rules:",
            "  admission: false\n  rules:",
            "disabling admission processing is only allowed with validation policies",
        ),
        (
            "    generate:",
            "    celPreconditions: [{name: a, expression: 'true'}]\n    generate:",
            "celPrecondition can only be used with validate.cel",
        ),
        (
            "  rules:",
            "  generateExistingOnPolicyUpdate: true\n  rules:",
            "remove the deprecated field and use spec.generate[*].generateExisting instead",
        ),
        ("kind: ServiceAccount", "kind: Unheard", "failed to get GVR for kind v1/Unheard"),
        (
            "  rules:",
            "  webhookConfiguration: {matchConditions: [{name: a, expression: 'object.'}]}\n  rules:",
            "spec.webhookConfiguration.matchConditions[0].expression: Invalid value",
        ),
    ] {
        let text = SYNC.replace(change, to);
        assert_ne!(text, SYNC, "{change}");
        let message = refused(None, &text);
        assert!(message.contains(says), "{message:?} should say {says:?}");
    }
}

#[test]
fn changes_of_rules_are_checked() {
    let other_target = SYNC.replace("name: robot", "name: other");
    let response = answer(Some(SYNC), &other_target, |_| false);
    assert!(response.is_allowed(), "nothing else is looked at");
    assert!(response.warnings.iter().any(|warning| warning.starts_with(
        "no synchronization will be performed to the old target resource upon policy updates"
    )));
    let other_match = SYNC.replace("kinds: [ConfigMap]", "kinds: [Secret]");
    let message = refused(Some(SYNC), &other_match);
    assert!(
        message.starts_with(
            "changes of immutable fields of a rule spec in a generate rule is disallowed"
        ),
        "{message}"
    );
    // What does not touch the rules is nobody's business, even for a policy that would be refused.
    let broken = SYNC.replace("      namespace: default\n", "");
    assert_eq!(
        refused(Some(&broken), &broken.replace("{name: sa}", "{name: sa, labels: {a: b}}")),
        ""
    );
}

#[test]
fn circles_of_rules_are_warned_about() {
    let rule = |name: &str, from: &str, to: &str| {
        format!(
            "
  - name: {name}
    skipBackgroundRequests: false
    match: {{any: [{{resources: {{kinds: [{from}]}}}}]}}
    generate: {{apiVersion: v1, kind: {to}, name: x, namespace: default, data: {{}}}}"
        )
    };
    let policy = |rules: String| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:{rules}\n"
        )
    };
    let round = policy(rule("a", "ConfigMap", "Secret") + &rule("b", "Secret", "ConfigMap"));
    let response = answer(None, &round, |_| true);
    assert!(response.is_allowed());
    assert!(
        response
            .warnings
            .iter()
            .any(|warning| warning.contains("kyverno:p/a -> kyverno:p/b -> kyverno:p/a")),
        "{:?}",
        response.warnings
    );
    let line = policy(rule("a", "ConfigMap", "Secret") + &rule("b", "Secret", "Service"));
    assert_eq!(answer(None, &line, |_| true).warnings, Vec::<String>::new());
}

#[test]
fn deletions_and_statuses_are_nobodys_business() {
    let kinds = Kinds::builtin();
    let mut request = Value::map();
    request.set(["oldObject"], yaml(SYNC)).unwrap();
    request.set(["operation"], "DELETE").unwrap();
    let request = Request::read(&review(&kiln_yaml::emit(&request)), 1 << 20, &kinds).unwrap();
    let check = Check::of(&request.event, std::iter::empty(), &kinds);
    assert!(check.questions().is_empty());
    assert!(check.conclude(&[], &Settings::new("kyverno")).is_allowed());
}
