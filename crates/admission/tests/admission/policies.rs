//! Which policies may be stored.

use kiln_admission::Response;
use kiln_admission::policies::PolicyCheck;

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
    let request =
        ReviewRequest::read(&review(&kiln_yaml::emit(&request)), 1 << 20, &kinds).unwrap();
    let check = PolicyCheck::of(&request.event, std::iter::empty(), &kinds)
        .held_to_author(&request.event, settings.authors);
    let is_granted = |review: &Value| {
        let text = |key: &str| review.str_at(["spec", "resourceAttributes", key]).unwrap_or("");
        let user = review.str_at(["spec", "user"]).unwrap_or("");
        let account = user.rsplit(':').next().unwrap().trim_start_matches("kyverno-");
        let sub = match text("subresource") {
            "" => String::new(),
            sub => format!("/{sub}"),
        };
        let asked = format!(
            "{account} {} {}{sub} {} {}",
            text("verb"),
            text("resource"),
            text("namespace"),
            text("name")
        );
        granted(asked.trim_end())
    };
    let asked: Vec<bool> = check
        .questions()
        .iter()
        .map(|question| {
            let instead = question.instead(None, &settings);
            is_granted(&question.to_value(&settings))
                || instead.is_some_and(|instead| instead.iter().all(is_granted))
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
            "background-controller list serviceaccounts",
            "background-controller watch serviceaccounts",
            "background-controller list configmaps",
            "background-controller watch configmaps",
            // Lists of everything are how the engine works: authors need no permission for them to store a policy.
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
            // What is made, and what fires rules, is known by following it everywhere.
            "background-controller list serviceaccounts",
            "background-controller watch serviceaccounts",
            "background-controller list configmaps",
            "background-controller watch configmaps",
        ]
    );
    let verbs = |text: &str| {
        let asked = std::cell::RefCell::new(Vec::new());
        answer(None, text, |question| {
            let words: Vec<&str> = question.split(' ').collect();
            if words[..3] == ["background-controller", words[1], "serviceaccounts"] {
                asked.borrow_mut().push(words[1].to_owned());
            }
            true
        });
        asked.into_inner()
    };
    let once = SYNC.replace("synchronize: true", "synchronize: false");
    assert_eq!(verbs(&once), ["get", "create", "list", "watch"]);
    let applied = SYNC.replace("  rules:", "  useServerSideApply: true\n  rules:");
    let wanted = ["get", "create", "update", "patch", "delete", "list", "watch"];
    assert_eq!(verbs(&applied), wanted);
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
            "background-controller list serviceaccounts",
            "background-controller watch serviceaccounts",
            "background-controller list configmaps",
            "background-controller watch configmaps",
        ]
    );
}

#[test]
fn missing_rights_are_named_with_what_grants_them() {
    let response = answer(None, SYNC, |question| {
        question.starts_with("admission")
            || question.contains(" get ")
            || question.contains("configmaps")
    });
    let message = response.refusal.unwrap().message;
    assert_eq!(
        message,
        "path: spec.rules[0].generate..: system:serviceaccount:kyverno:kyverno-background-controller requires \
         permissions create,update,delete for resource v1/ServiceAccount in namespace default; \
         path: spec.rules[0].generate..: system:serviceaccount:kyverno:kyverno-background-controller requires \
         permissions list,watch for resource v1/ServiceAccount\n\
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
         \x20 - list\n\
         \x20 - watch\n\
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

/// Everything but what is about these resources.
fn but<'a>(resources: &'a [&str]) -> impl Fn(&str) -> bool + 'a {
    |question| !resources.iter().any(|resource| question.split(' ').nth(2) == Some(resource))
}

#[test]
fn what_cannot_be_followed_is_never_made_so_the_policy_is_refused() {
    // As printed before, the role let the policy through, and nothing was ever made.
    let response = answer(None, SYNC, |question| {
        !question.starts_with("background-controller list serviceaccounts")
    });
    let message = response.refusal.unwrap().message;
    assert!(
        message.contains("requires permissions list for resource v1/ServiceAccount"),
        "{message}"
    );
    assert!(message.ends_with("  verbs:\n  - list\n"), "{message}");
    // What fires rules may be defined, and granted, later.
    let response = answer(None, SYNC, but(&["configmaps"]));
    assert!(response.is_allowed());
    let warning = "path: spec.rules[0].match.: system:serviceaccount:kyverno:kyverno-background-controller \
                   requires permissions list,watch for resource v1/ConfigMap (kiln doctor prints the \
                   ClusterRole to apply)";
    assert_eq!(response.warnings, [warning]);
}

const BINDING: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: admins}
spec:
  rules:
  - name: bind
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: rbac.authorization.k8s.io/v1
      kind: RoleBinding
      name: admin
      namespace: '{{request.object.metadata.name}}'
      data:
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

#[test]
fn rules_that_hand_out_rights_need_the_right_to() {
    let asked = std::cell::RefCell::new(Vec::new());
    let lacks = |text: &str, lacking: &'static str| {
        asked.borrow_mut().clear();
        let response = answer(None, text, |question| {
            asked.borrow_mut().push(question.to_owned());
            !question.starts_with(lacking)
        });
        // Kyverno stores them.
        assert!(response.is_allowed(), "{:?}", response.refusal);
        response.warnings.join("\n")
    };
    let warning = lacks(BINDING, "background-controller bind");
    assert!(
        warning.contains(
            "requires permissions bind for resource rbac.authorization.k8s.io/v1/ClusterRole admin"
        ),
        "{warning}"
    );
    let bind = "background-controller bind clusterroles  admin".to_owned();
    assert!(asked.borrow().contains(&bind), "{asked:?}");
    assert_eq!(lacks(BINDING, "nothing"), "");
    // With a variable it may be any role.
    let any = BINDING.replace("name: admin}", "name: '{{ request.object.metadata.labels.role }}'}");
    let warning = lacks(&any, "background-controller bind");
    assert!(warning.contains("v1/Role") && warning.contains("v1/ClusterRole"), "{warning}");
    // A user who has the permissions of a role may grant them.
    let role = BINDING.replace("kind: RoleBinding", "kind: Role").replace(
        "        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\n        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]\n",
        "        rules: [{apiGroups: [''], resources: [pods, pods/log], verbs: [get, list]}]\n",
    );
    assert_eq!(lacks(&role, "background-controller escalate"), "");
    assert!(
        asked.borrow().contains(&"background-controller list pods/log".to_owned()),
        "{asked:?}"
    );
    let unheld = answer(None, &role, |question| {
        !question.contains("escalate") && !question.contains("pods/log")
    });
    assert!(unheld.warnings.join("").contains("requires permissions escalate"), "{unheld:?}");
    // A binding to a role that the same policy makes.
    let (_, rules) = role.split_once("  rules:\n").unwrap();
    let both = BINDING.replace("kind: ClusterRole, name: admin}", "kind: Role, name: admin}");
    let both = format!("{both}{}", rules.replace("name: bind", "name: role"));
    let held = answer(None, &both, |question| {
        !question.contains("escalate") && !question.contains("controller bind")
    });
    assert_eq!(held.warnings, [""; 0]);
    // The role that is printed names the role that is bound, and nothing else.
    let refused = answer(None, BINDING, |question| {
        !question.contains("bind clusterroles") && !question.contains("create rolebindings")
    });
    let message = refused.refusal.unwrap().message;
    assert!(
        message.contains(
            "  resourceNames:\n  - admin\n  resources:\n  - clusterroles\n  verbs:\n  - bind\n"
        ),
        "{message}"
    );
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
    // What does not touch the rules is not checked, even for a policy that would be refused.
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
    let request =
        ReviewRequest::read(&review(&kiln_yaml::emit(&request)), 1 << 20, &kinds).unwrap();
    let check = PolicyCheck::of(&request.event, std::iter::empty(), &kinds);
    assert!(check.questions().is_empty());
    assert!(check.conclude(&[], &Settings::new("kyverno")).is_allowed());
}
