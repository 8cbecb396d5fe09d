//! What is answered to reviews.

use kiln_engine::{ReadError, Status};
use kiln_rules::Operation;

use super::*;

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  emitWarning: true
  background: false
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): '{{ request.userInfo.username }}'}}}}
";

const BROKEN: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: broken}
spec:
  failurePolicy: POLICY
  rules:
  - name: missing
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: '{{ request.object.data.missing }}'}}}}
";

const GENERATE: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: copies}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace, Pod/exec]}}]}
    generate: {apiVersion: v1, kind: ResourceQuota, name: q, namespace: default, data: {spec: {}}}
";

const CONFIG_MAP: &str =
    "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dev}}}";

#[test]
fn a_mutate_rule_answers_with_the_smallest_patch() {
    let hooks = hooks(LABEL);
    let answer = send(&hooks, "/mutate/fail", CONFIG_MAP);
    assert!(answer.response.is_allowed());
    assert_eq!(
        patch(&answer),
        r#"[{"op":"add","path":"/metadata/labels","value":{"team":"ann"}}]"#
    );
    assert_eq!(
        answer.response.warnings,
        ["policy label.team: mutated ConfigMap/a in namespace dev"]
    );
    assert!(answer.hint.is_none());
    let labelled = "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dev, labels: {team: x}}}}";
    let answer = send(&hooks, "/mutate/fail", labelled);
    assert_eq!(patch(&answer), "");
    assert_eq!(answer.response.warnings, Vec::<String>::new());
    let other = send(&hooks, "/mutate/ignore", CONFIG_MAP);
    assert_eq!(patch(&other), "", "the policy answers at its own path only");
}

#[test]
fn deleted_objects_and_other_kinds_are_left_alone() {
    let hooks = hooks(LABEL);
    for request in [
        "{operation: DELETE, oldObject: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dev}}}",
        "{object: {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: dev}}}",
    ] {
        let answer = send(&hooks, "/mutate/fail", request);
        assert!(answer.response.is_allowed());
        assert_eq!(patch(&answer), "", "{request}");
    }
}

#[test]
fn a_failing_rule_refuses_or_warns_as_its_policy_says() {
    let fail = hooks(&BROKEN.replace("POLICY", "Fail"));
    let answer = send(&fail, "/mutate/fail", CONFIG_MAP);
    let refusal = answer.response.refusal.unwrap().message;
    let start = "mutation policy broken error: failed to apply policy broken rules [missing: ";
    assert!(refusal.starts_with(start), "{refusal}");
    let ignore = hooks(&BROKEN.replace("POLICY", "Ignore"));
    let answer = send(&ignore, "/mutate/ignore", CONFIG_MAP);
    assert!(answer.response.is_allowed());
    assert!(answer.response.warnings[0].starts_with(start));
}

#[test]
fn the_good_rules_of_a_broken_lot_still_act() {
    let text = format!(
        "{}---{}",
        BROKEN.replace("POLICY", "Ignore"),
        LABEL.replace("spec:", "spec:\n  failurePolicy: Ignore")
    );
    let answer = send(&hooks(&text), "/mutate/ignore", CONFIG_MAP);
    assert_eq!(
        patch(&answer),
        r#"[{"op":"add","path":"/metadata/labels","value":{"team":"ann"}}]"#
    );
}

#[test]
fn a_trigger_is_allowed_and_told_to_the_controller() {
    let hooks = hooks(GENERATE);
    let request = "{object: {apiVersion: v1, kind: Namespace, metadata: {name: dev, uid: u1}}, namespace: dev}";
    let answer = send(&hooks, "/validate/ignore", request);
    assert!(answer.response.is_allowed());
    let hint = answer.hint.unwrap();
    assert_eq!(
        (hint.operation, hint.name.as_str(), hint.namespace.as_str()),
        (Operation::Create, "dev", "")
    );
    assert_eq!(hint.user.username, "ann");
    let dry = request.replace("{object", "{dryRun: true, object");
    assert!(send(&hooks, "/validate/ignore", &dry).hint.is_none(), "a trial tells nothing");
    let other = "{object: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: dev}}}";
    assert!(send(&hooks, "/validate/ignore", other).hint.is_none());
    let gone = "{operation: DELETE, namespace: dev, oldObject: {apiVersion: v1, kind: Namespace, metadata: {name: dev}}}";
    let hint = send(&hooks, "/validate/ignore", gone).hint.unwrap();
    assert_eq!(hint.operation, Operation::Delete);
    assert!(hint.object.is_none() && hint.old_object.is_some());
}

#[test]
fn subresources_are_told_with_their_parent() {
    let request = "
operation: CONNECT
name: web
namespace: dev
subResource: exec
kind: {group: '', version: v1, kind: PodExecOptions}
resource: {group: '', version: v1, resource: pods}
object: {apiVersion: v1, kind: PodExecOptions, command: [ls]}
";
    let hint = send(&hooks(GENERATE), "/validate/ignore", request).hint.unwrap();
    assert_eq!((hint.kind.kind.as_str(), hint.subresource.as_str()), ("Pod", "exec"));
    assert_eq!((hint.namespace.as_str(), hint.name.as_str()), ("dev", "web"));
}

#[test]
fn filters_and_excluded_people_are_honoured() {
    let hooks = hooks(LABEL);
    for request in [
        CONFIG_MAP.replace("dev", "kube-system"),
        CONFIG_MAP.replace("dev", "kyverno"),
        CONFIG_MAP.replace("{object", "{userInfo: {username: n, groups: [system:nodes]}, object"),
    ] {
        let answer = send(&hooks, "/mutate/fail", &request);
        assert!(answer.passed_over && answer.response.is_allowed(), "{request}");
        assert_eq!(patch(&answer), "");
    }
}

#[test]
fn roles_are_resolved_when_somebody_asks_for_them() {
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: by-role}
spec:
  background: false
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}, clusterRoles: [edit]}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
";
    let binding = yaml(
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b},
          subjects: [{kind: User, name: ann}], roleRef: {kind: ClusterRole, name: edit}}",
    );
    let settings = Settings::new("kyverno");
    let hooks = hooks(policy);
    let with = |view: &dyn View| send_with(&hooks, "/mutate/fail", CONFIG_MAP, &settings, view);
    assert_ne!(patch(&with(&Objects(vec![binding]))), "");
    assert_eq!(patch(&with(&Objects(Vec::new()))), "");
    let answer = with(&Unreadable);
    let refusal = answer.response.refusal.unwrap();
    assert_eq!(refusal.code, 500, "unknown roles are not roles: {}", refusal.message);
}

struct Unreadable;

impl View for Unreadable {
    fn get(&self, _: &Gvk, _: Option<&str>, _: &str) -> Result<Option<Value>, ReadError> {
        Err(ReadError::Unavailable("the server sleeps".into()))
    }

    fn list(&self, _: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        Err(ReadError::Unavailable("the server sleeps".into()))
    }
}

#[test]
fn an_author_without_rights_stops_nobody() {
    struct Denies;
    impl View for Denies {
        fn get(&self, _: &Gvk, _: Option<&str>, _: &str) -> Result<Option<Value>, ReadError> {
            Ok(None)
        }
        fn list(&self, _: &ListQuery<'_>) -> Result<ListPage, ReadError> {
            Ok(ListPage::default())
        }
        fn permits(&self, access: &kiln_engine::AccessRequest<'_>) -> Result<(), ReadError> {
            Err(ReadError::Denied(format!("its author may not {}", access.verb)))
        }
    }
    let settings = Settings::new("kyverno");
    let of_namespace = LABEL
        .replace("kind: ClusterPolicy", "kind: Policy")
        .replace("{name: label}", "{name: label, namespace: dev}")
        .replace("kinds: [ConfigMap]", "kinds: ['*']");
    let answer = send_with(&hooks(&of_namespace), "/mutate/fail", CONFIG_MAP, &settings, &Denies);
    assert!(answer.response.is_allowed(), "{:?}", answer.response);
    assert_eq!(patch(&answer), "");
    let warnings = answer.response.warnings.join("\n");
    assert!(warnings.contains("is skipped: its author may not update"), "{warnings}");
    assert!(answer.ran.iter().all(|result| result.status == Status::Skip), "{:?}", answer.ran);
    // A policy for the cluster is from a trusted author.
    let answer = send_with(&hooks(LABEL), "/mutate/fail", CONFIG_MAP, &settings, &Denies);
    assert!(!answer.response.is_allowed(), "{:?}", answer.response);
}

#[test]
fn a_panic_ends_at_the_request() {
    struct Panics;
    impl View for Panics {
        fn get(&self, _: &Gvk, _: Option<&str>, _: &str) -> Result<Option<Value>, ReadError> {
            panic!("as a test of what happens then")
        }
        fn list(&self, _: &ListQuery<'_>) -> Result<ListPage, ReadError> {
            panic!("as a test of what happens then")
        }
    }
    let text =
        LABEL.replace("[ConfigMap]", "[ConfigMap], namespaceSelector: {matchLabels: {a: b}}");
    let settings = Settings::new("kyverno");
    let answer = send_with(&hooks(&text), "/mutate/fail", CONFIG_MAP, &settings, &Panics);
    assert!(answer.panicked);
    assert_eq!(answer.response.refusal.unwrap().code, 500);
    let text = text.replace("spec:\n", "spec:\n  failurePolicy: Ignore\n");
    let answer = send_with(&hooks(&text), "/mutate/ignore", CONFIG_MAP, &settings, &Panics);
    assert!(answer.panicked && answer.response.is_allowed());
}

#[test]
fn the_engine_itself_is_told_apart() {
    let skips = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: existing}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Secret, name: s, namespace: dev}]
      patchStrategicMerge: {metadata: {labels: {a: b}}}
";
    let answer = send(&hooks(skips), "/validate/ignore", CONFIG_MAP);
    assert_eq!(patch(&answer), "", "the trigger of such a rule is not changed");
    assert!(answer.hint.is_some());
    let own = CONFIG_MAP.replace(
        "{object",
        "{userInfo: {username: 'system:serviceaccount:kyverno:kyverno-background-controller'}, object",
    );
    // Ordinary mutate rules act on what the engine writes.
    assert_ne!(patch(&send(&hooks(LABEL), "/mutate/fail", &own)), "");
}

/// A policy with one generate rule, made at noon.
fn made_at_noon(matching: &str, more: &str, data: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n\
         metadata: {{name: p, generation: 1, creationTimestamp: '2024-01-01T12:00:00Z'}}\n\
         spec: {{background: false, {more} rules: [{{name: r, match: {{any: [{matching}]}}, \
         generate: {{synchronize: true, apiVersion: v1, kind: Secret, name: s, namespace: default, data: {data}}}}}]}}\n"
    )
}

#[test]
fn what_no_watch_tells_must_not_be_lost() {
    let plain = made_at_noon("{resources: {kinds: [ConfigMap]}}", "", "{}");
    let of_user = made_at_noon(
        "{resources: {kinds: [ConfigMap]}, subjects: [{kind: User, name: ann}]}",
        "",
        "{}",
    );
    let by_user = made_at_noon(
        "{resources: {kinds: [ConfigMap]}}",
        "",
        "{stringData: {by: '{{request.userInfo.username}}'}}",
    );
    let on_delete =
        made_at_noon("{resources: {kinds: [ConfigMap], operations: [DELETE]}}", "", "{}");
    let of_old = made_at_noon(
        "{resources: {kinds: [ConfigMap]}}",
        "",
        "{stringData: {was: '{{request.oldObject.data.a}}'}}",
    );
    let no_sync = plain.replace("synchronize: true", "synchronize: false");
    let conditional = made_at_noon(
        "{resources: {kinds: [ConfigMap]}}",
        "webhookConfiguration: {failurePolicy: Fail, matchConditions: [{name: a, expression: \"request.name != 'b'\"}]},",
        "{}",
    );
    let object = |born: &str, a: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: dev, uid: u, \
             creationTimestamp: '2024-01-01T{born}Z'}}, data: {{a: '{a}'}}}}"
        )
    };
    let new = object("13:00:00", "1");
    let create = format!("{{object: {new}}}");
    let update =
        format!("{{operation: UPDATE, object: {}, oldObject: {new}}}", object("13:00:00", "2"));
    let again = format!("{{operation: UPDATE, object: {new}, oldObject: {new}}}");
    let old = object("11:00:00", "1");
    let old_again = format!("{{operation: UPDATE, object: {old}, oldObject: {old}}}");
    let delete = format!("{{operation: DELETE, oldObject: {new}}}");
    let node = format!("{{object: {new}, userInfo: {{username: n, groups: ['system:nodes']}}}}");
    for (policy, request, needed, what) in [
        (&plain, &create, false, "a watch tells"),
        (&plain, &update, false, "a watch tells"),
        (&plain, &delete, false, "what is gone is gone"),
        (&plain, &again, false, "the rule saw it come"),
        (&plain, &old_again, true, "the rule never saw it"),
        (&no_sync, &again, true, "it fires once more"),
        (&of_user, &create, true, "who"),
        (&by_user, &update, true, "who"),
        (&of_user, &delete, true, "who"),
        (&on_delete, &delete, true, "its end"),
        (&of_old, &update, true, "what it was"),
        (&of_old, &create, false, "it was nothing"),
        (&conditional, &create, true, "what the condition asks for"),
        (&plain, &node, true, "that it is excluded"),
    ] {
        let path = match policy == &conditional {
            true => "/validate/fail/finegrained/p",
            false => "/validate/ignore",
        };
        let reviewed = send(&hooks(policy), path, request);
        assert!(reviewed.response.is_allowed());
        assert_eq!(!reviewed.needed_by.is_empty(), needed, "{what}: {policy} {request}");
        assert_eq!(reviewed.strict, policy == &conditional);
        let hint = reviewed.hint.unwrap();
        assert_eq!(hint.passed_over, request == &node);
        assert_eq!(reviewed.passed_over, request == &node);
    }
}
