//! What generate rules make: whole documents in, whole effects out.

use crate::support::{Objects, made, objects, rules, run, shown};
use kiln_engine::{Claim, Effect, Event, Existing, Lineage, Ownership, Verdict};
use kiln_object::metadata;
use kiln_rules::Write;
use kiln_value::value;

const NAMESPACE: &str =
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, uid: u-1, labels: {tier: gold}}}";

/// A ClusterPolicy with one rule that fires on Namespaces.
fn on_namespaces(rest: &str) -> String {
    let rest = rest.trim_matches('\n').replace('\n', "\n    ");
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: p
spec:
  rules:
  - name: r
    match:
      any:
      - resources:
          kinds: [Namespace]
    {rest}
"
    )
}

#[test]
fn data_becomes_an_object_with_the_envelope_of_its_target() {
    let policy = on_namespaces(
        r#"
generate:
  apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  name: deny-{{ request.object.metadata.name }}
  namespace: "{{ request.object.metadata.name }}"
  data:
    metadata:
      name: overwritten
      namespace: overwritten
      annotations: {from: "{{ request.object.metadata.labels.tier }}"}
    spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
"#,
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "\
# r: pass
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  annotations:
    from: gold
  name: deny-team
  namespace: team
spec:
  podSelector: {}
  policyTypes:
  - Ingress
  - Egress
---
"
    );
}

#[test]
fn a_target_alone_becomes_a_bare_object() {
    let policy = on_namespaces(
        "generate: {apiVersion: v1, kind: ServiceAccount, name: robot, namespace: '{{request.object.metadata.name}}'}",
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "# r: pass\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: robot\n  namespace: team\n---\n"
    );
}

#[test]
fn values_keep_their_types_and_labels_become_text() {
    let policy = on_namespaces(
        r#"
generate:
  apiVersion: example.com/v1
  kind: Widget
  name: w
  namespace: team
  data:
    metadata:
      labels: {count: "{{ length(['a', 'b']) }}", "{{ request.object.metadata.name }}-key": "x"}
    spec:
      all: "{{ request.object.metadata.labels }}"
      count: "{{ length(['a', 'b']) }}"
      text: "n={{ length(['a', 'b']) }}"
      literal: \{{ request.object.metadata.name }}
"#,
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "\
# r: pass
apiVersion: example.com/v1
kind: Widget
metadata:
  labels:
    count: \"2\"
    team-key: x
  name: w
  namespace: team
spec:
  all:
    tier: gold
  count: 2
  literal: '{{ request.object.metadata.name }}'
  text: n=2
---
"
    );
}

#[test]
fn what_objects_say_is_never_read_as_a_template() {
    let policy = on_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: ConfigMap
  name: c
  namespace: team
  data: {data: {copied: "{{ request.object.metadata.annotations.note }}"}}
"#,
    );
    let trigger = "{apiVersion: v1, kind: Namespace, metadata: {name: team, annotations: {note: '{{ request.userInfo }}'}}}";
    assert!(made(&policy, trigger, "").contains("copied: '{{ request.userInfo }}'"));
}

const SOURCE: &str = "
apiVersion: v1
kind: Secret
metadata:
  name: regcred
  namespace: default
  uid: s-1
  resourceVersion: '7'
  creationTimestamp: 2025-01-01T00:00:00Z
  generation: 3
  managedFields: []
  finalizers: [x/y]
  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: z}]
  labels: {app: web, generate.kyverno.io/clone-source: '', app.kubernetes.io/managed-by: Helm}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', keep: me}
type: Opaque
data: {password: c2VjcmV0}
status: {phase: odd}
";

const CLONE: &str = r#"
generate:
  synchronize: true
  apiVersion: v1
  kind: Secret
  name: pull
  namespace: "{{ request.object.metadata.name }}"
  clone: {namespace: default, name: regcred}
"#;

#[test]
fn a_copy_takes_over_what_is_the_users() {
    assert_eq!(
        made(&on_namespaces(CLONE), NAMESPACE, SOURCE),
        "\
# r: pass
apiVersion: v1
data:
  password: c2VjcmV0
kind: Secret
metadata:
  annotations:
    keep: me
  labels:
    app: web
  name: pull
  namespace: team
type: Opaque
---
"
    );
}

#[test]
fn claims_are_written_as_kyvernos_labels() {
    let rules = rules(&on_namespaces(CLONE));
    let trigger = objects(NAMESPACE).remove(0);
    let view = Objects(objects(SOURCE));
    let outcome = run(&rules, &Event::created(trigger), &view).remove(0);
    let Effect::Ensure(ensure) = &outcome.effects[0] else { panic!("{outcome:?}") };
    assert_eq!(
        ensure.object.get_path(["metadata", "labels"]).cloned(),
        Some(value!({
            "app": "web",
            "app.kubernetes.io/managed-by": "kyverno",
            "generate.kyverno.io/policy-name": "p",
            "generate.kyverno.io/policy-namespace": "",
            "generate.kyverno.io/rule-name": "r",
            "generate.kyverno.io/trigger-group": "",
            "generate.kyverno.io/trigger-version": "v1",
            "generate.kyverno.io/trigger-kind": "Namespace",
            "generate.kyverno.io/trigger-namespace": "",
            "generate.kyverno.io/trigger-uid": "u-1",
            "generate.kyverno.io/source-group": "",
            "generate.kyverno.io/source-version": "v1",
            "generate.kyverno.io/source-kind": "Secret",
            "generate.kyverno.io/source-namespace": "default",
            "generate.kyverno.io/source-uid": "s-1",
        }))
    );
    let Claim { sources, trigger, .. } = &ensure.claim;
    assert_eq!(sources[0].to_string(), "v1/Secret/default/regcred");
    assert_eq!(trigger.to_string(), "v1/Namespace/team");
    let read = Ownership::read(&ensure.object).unwrap().labels;
    assert!(read.names(&outcome.rule));
    assert_eq!(read.trigger_uid.as_deref(), Some("u-1"));
    let style = rules.rules().next().unwrap().lifecycle.labels;
    assert!(ensure.claim.is_on(&ensure.object, style));
    let mut other = ensure.claim.clone();
    other.trigger.uid = "u-2".into();
    assert!(!other.is_on(&ensure.object, style));
    // Without a UID nothing is ever found: another object may bear the name now.
    other.trigger.uid = "".into();
    assert!(!other.is_on(&ensure.object, style));
    assert_eq!((ensure.existing, ensure.write), (Existing::Update, Write::Replace));
}

#[test]
fn long_policy_names_are_cut_in_labels() {
    let name = "a-very-long-policy-name-that-goes-on-and-on-until-it-fits-no-label";
    let policy = on_namespaces(CLONE).replace("name: p\n", &format!("name: {name}\n"));
    let rules = rules(&policy);
    let outcome =
        run(&rules, &Event::created(objects(NAMESPACE).remove(0)), &Objects(objects(SOURCE)));
    let Effect::Ensure(ensure) = &outcome[0].effects[0] else { panic!() };
    let label = metadata::label(&ensure.object, "generate.kyverno.io/policy-name").unwrap();
    assert_eq!(label.len(), 63);
    assert!(label.starts_with(&name[..54]));
    assert!(Ownership::read(&ensure.object).unwrap().labels.names(&outcome[0].rule));
    let full = ensure.claim.annotations();
    assert!(full.iter().any(|(_, value)| value.contains(name)));
}

#[test]
fn a_missing_source_is_named() {
    assert_eq!(
        made(&on_namespaces(CLONE), NAMESPACE, ""),
        "# r: error\n# failed: policy.yaml:19:14: source resource v1/Secret/default/regcred not found, so \
         v1/Secret/team/pull is not made (create the source)\n"
    );
}

#[test]
fn a_source_is_not_copied_onto_itself() {
    let policy = on_namespaces(&CLONE.replace("name: pull", "name: regcred"));
    let trigger = "{apiVersion: v1, kind: Namespace, metadata: {name: default}}";
    assert_eq!(made(&policy, trigger, SOURCE), "# r: pass\n");
}

#[test]
fn clone_list_copies_what_its_selector_selects() {
    let policy = on_namespaces(
        r#"
generate:
  namespace: "{{ request.object.metadata.name }}"
  cloneList:
    namespace: default
    kinds: [v1/Secret, v1/ConfigMap]
    selector:
      matchLabels: {copy: "{{ request.object.metadata.labels.tier }}"}
"#,
    );
    let sources = "
{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: default, labels: {copy: gold}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: b, namespace: default, labels: {copy: iron}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: c, namespace: other, labels: {copy: gold}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: default, labels: {copy: gold}}, data: {k: v}}
";
    assert_eq!(
        made(&policy, NAMESPACE, sources),
        "\
# r: pass
apiVersion: v1
kind: Secret
metadata:
  labels:
    copy: gold
  name: a
  namespace: team
---
apiVersion: v1
data:
  k: v
kind: ConfigMap
metadata:
  labels:
    copy: gold
  name: d
  namespace: team
---
"
    );
    // Into the namespace of the sources nothing is copied.
    let trigger = NAMESPACE.replace("name: team", "name: default");
    assert_eq!(made(&policy, &trigger, sources), "# r: pass\n");
}

#[test]
fn foreach_makes_one_object_per_element_that_passes() {
    let policy = on_namespaces(
        r#"
context:
- name: prefix
  variable: {value: np}
generate:
  foreach:
  - list: request.object.metadata.annotations.teams | split(@, ',')
    context:
    - name: who
      variable: {jmesPath: to_upper(element)}
    preconditions:
      all:
      - {key: "{{ who }}", operator: NotEquals, value: B}
    apiVersion: v1
    kind: ConfigMap
    name: "{{ prefix }}-{{ elementIndex }}-{{ element }}"
    namespace: team
    data:
      data: {who: "{{ who }}"}
"#,
    );
    let trigger =
        "{apiVersion: v1, kind: Namespace, metadata: {name: team, annotations: {teams: 'a,b,c'}}}";
    assert_eq!(
        made(&policy, trigger, ""),
        "\
# r: pass
apiVersion: v1
data:
  who: A
kind: ConfigMap
metadata:
  name: np-0-a
  namespace: team
---
apiVersion: v1
data:
  who: C
kind: ConfigMap
metadata:
  name: np-2-c
  namespace: team
---
"
    );
}

#[test]
fn lists_that_are_none_and_elements_that_are_null() {
    let policy = |list: &str| {
        on_namespaces(&format!(
            "
generate:
  foreach:
  - list: {list}
    apiVersion: v1
    kind: ConfigMap
    name: c-{{{{ elementIndex }}}}
    namespace: team
    data: {{data: {{v: '{{{{ element }}}}'}}}}
"
        ))
    };
    let names = |list: &str| -> Vec<String> {
        made(&policy(list), NAMESPACE, "")
            .lines()
            .filter_map(|line| line.strip_prefix("  name: ").or(line.strip_prefix("# failed: ")))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(names("\"'one'\""), ["c-0"]);
    assert_eq!(names("\"`null`\""), [""; 0]);
    assert_eq!(names("\"['x', `null`, 'z']\""), ["c-0", "c-2"]);
    assert_eq!(
        names("request.object.metadata.missing"),
        [
            "policy.yaml:15:15: in foreach.list: no key \"missing\" here (give a default with `|| ''`)"
        ]
    );
}

#[test]
fn one_failing_part_keeps_the_others() {
    let policy = on_namespaces(
        r#"
generate:
  foreach:
  - {list: "request.object.nothing", apiVersion: v1, kind: ConfigMap, name: a, namespace: team}
  - {list: "['x', 'Y']", apiVersion: v1, kind: ConfigMap, name: "{{ element }}", namespace: team}
"#,
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "\
# r: error
apiVersion: v1
kind: ConfigMap
metadata:
  name: x
  namespace: team
---
# failed: policy.yaml:15:16: in foreach.list: no key \"nothing\" here (give a default with `|| ''`)
# failed: policy.yaml:16:9: cannot make v1/ConfigMap/team/Y: its name \"Y\" is not a valid name: a lowercase RFC 1123 \
subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') \
(join, cut and replace parts until it is one)
"
    );
}

#[test]
fn equal_objects_join_and_different_ones_conflict() {
    let policy = |value: &str| {
        on_namespaces(&format!(
            "
generate:
  foreach:
  - list: \"['a', 'b']\"
    apiVersion: v1
    kind: ConfigMap
    name: same
    namespace: team
    data: {{data: {{v: '{value}'}}}}
"
        ))
    };
    let equal = made(&policy("x"), NAMESPACE, "");
    assert_eq!(equal.matches("kind: ConfigMap").count(), 1, "{equal}");
    assert_eq!(
        made(&policy("{{ element }}"), NAMESPACE, ""),
        "# r: error\n# failed: policy.yaml:15:9: two parts of the rule make different objects of the name \
         v1/ConfigMap/team/same: spec.rules[0].generate.foreach[0] for element 0 and \
         spec.rules[0].generate.foreach[0] for element 1 (give them different names, for example with the \
         number of the element)\n"
    );
}

#[test]
fn a_trigger_that_stops_matching_lapses() {
    let policy = |sync: bool| {
        on_namespaces(&format!(
            "
preconditions:
  all:
  - {{key: '{{{{ request.object.metadata.labels.tier }}}}', operator: Equals, value: gold}}
generate: {{synchronize: {sync}, apiVersion: v1, kind: ConfigMap, name: c, namespace: team}}
"
        ))
        .replace(
            "kinds: [Namespace]",
            "kinds: [Namespace]\n          selector: {matchLabels: {on: 'yes'}}",
        )
    };
    let namespace = |labels: &str| {
        objects(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: team, uid: u, labels: {labels}}}}}"
        ))
        .remove(0)
    };
    let matching = || namespace("{on: 'yes', tier: gold}");
    let lapsed = |event: Event| {
        let rules = rules(&policy(true));
        shown(&run(&rules, &event, &Objects::default()), &rules)
    };
    assert_eq!(
        lapsed(Event::updated(matching(), namespace("{on: 'no', tier: gold}"))),
        "# r: lapsed\n# delete of v1/Namespace/team: the trigger no longer matches\n"
    );
    assert_eq!(
        lapsed(Event::updated(matching(), namespace("{on: 'yes', tier: iron}"))),
        "# r: lapsed\n# delete of v1/Namespace/team: the preconditions no longer hold\n"
    );
    assert_eq!(
        lapsed(Event::deleted(matching())),
        "# r: lapsed\n# delete of v1/Namespace/team: the trigger is deleted\n"
    );
    assert_eq!(
        lapsed(Event::updated(
            namespace("{on: 'yes', tier: iron}"),
            namespace("{on: 'yes', tier: iron}")
        )),
        "# r: skip\n"
    );
    assert_eq!(lapsed(Event::updated(namespace("{}"), namespace("{}"))), "");
    // What is not kept in step stays.
    let rules = rules(&policy(false));
    let outcomes = run(&rules, &Event::deleted(matching()), &Objects::default());
    assert_eq!((outcomes[0].verdict, outcomes[0].effects.len()), (Verdict::Lapsed, 0));
}

#[test]
fn a_deletion_fires_rules_that_ask_for_it() {
    let policy = on_namespaces(
        r#"
generate:
  synchronize: true
  apiVersion: v1
  kind: ConfigMap
  name: "gone-{{ request.object.metadata.name }}-{{ request.oldObject.metadata.name }}"
  namespace: default
"#,
    )
    .replace("kinds: [Namespace]", "kinds: [Namespace]\n          operations: [DELETE]");
    let rules = rules(&policy);
    let namespace = objects(NAMESPACE).remove(0);
    let outcomes = run(&rules, &Event::deleted(namespace.clone()), &Objects::default());
    let Effect::Ensure(ensure) = &outcomes[0].effects[0] else { panic!("{outcomes:?}") };
    assert_eq!(ensure.target.name, "gone-team-team");
    assert_eq!(ensure.claim.operation, Some(kiln_rules::Operation::Delete));
    assert!(run(&rules, &Event::created(namespace), &Objects::default()).is_empty());
}

#[test]
fn apply_rules_one_stops_at_the_first_that_fires() {
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  applyRules: One
  rules:
  - name: no
    match: {any: [{resources: {kinds: [Namespace]}}]}
    preconditions: {all: [{key: a, operator: Equals, value: b}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: no, namespace: x}
  - name: yes
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: yes, namespace: x}
  - name: late
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: late, namespace: x}
"
    .replace("name: yes", "name: 'yes'")
    .replace("name: no", "name: 'no'");
    let text = made(&policy, NAMESPACE, "");
    assert!(text.starts_with("# no: skip\n# yes: pass\n"), "{text}");
    assert!(!text.contains("late"), "{text}");
}

#[test]
fn lifecycle_settings_reach_the_rule() {
    use kiln_rules::OnPolicyDelete::{Delete, DeleteMade, Keep};
    let lifecycle = |spec: &str, generate: &str| {
        let policy = on_namespaces(&format!(
            "generate: {{apiVersion: v1, kind: ConfigMap, name: c, namespace: x{generate}}}"
        ))
        .replace("spec:\n", &format!("spec:\n  {spec}\n"));
        rules(&policy).rules().next().unwrap().lifecycle.clone()
    };
    for (spec, generate, existing) in [
        ("background: true", "", false),
        ("generateExisting: true", "", true),
        ("generateExisting: true", ", generateExisting: false", false),
        ("generateExisting: false", ", generateExisting: true", true),
    ] {
        assert_eq!(lifecycle(spec, generate).existing, existing, "{spec} {generate}");
    }
    for (generate, wanted) in [
        ("", DeleteMade),
        (", orphanDownstreamOnPolicyDelete: false", Delete),
        (", orphanDownstreamOnPolicyDelete: true", Keep),
    ] {
        assert_eq!(lifecycle("background: true", generate).on_policy_delete, wanted);
    }
    assert!(lifecycle("background: true", ", synchronize: true").synchronize);
    assert_eq!(
        lifecycle("useServerSideApply: true", "").write,
        Write::Apply { manager: "kyverno-generate" }
    );
}

#[test]
fn trials_and_own_requests_fire_nothing() {
    let policy =
        on_namespaces("generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: x}");
    let event = || Event::created(objects(NAMESPACE).remove(0));
    let fires =
        |policy: &str, event: Event| !run(&rules(policy), &event, &Objects::default()).is_empty();
    assert!(fires(&policy, event()));
    assert!(!fires(&policy, event().as_dry_run()));
    assert!(!fires(&policy, event().by_engine(Lineage::default())));
    let chained = policy.replace("- name: r", "- name: r\n    skipBackgroundRequests: false");
    assert!(fires(&chained, event().by_engine(Lineage::default())));
}

#[test]
fn subresources_are_matched_by_their_parent() {
    let policy = on_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: Event
  name: exec-{{ request.name }}
  namespace: "{{ request.namespace }}"
  data: {message: "{{ request.object.command }}"}
"#,
    )
    .replace("kinds: [Namespace]", "kinds: [Pod/exec]");
    let rules = rules(&policy);
    let options = objects("{apiVersion: v1, kind: PodExecOptions, command: [sh, -c]}").remove(0);
    let event = Event {
        operation: Some(kiln_rules::Operation::Connect),
        matched_as: kiln_rules::Operation::Connect,
        kind: kiln_object::Gvk::new("v1", "Pod"),
        subresource: "exec".into(),
        name: "web".into(),
        namespace: Some("prod".into()),
        ..Event::created(options)
    };
    let outcomes = run(&rules, &event, &Objects::default());
    let Effect::Ensure(ensure) = &outcomes[0].effects[0] else { panic!("{outcomes:?}") };
    assert_eq!(ensure.target.to_string(), "v1/Event/prod/exec-web");
    assert_eq!(ensure.object.get("message"), Some(&value!(["sh", "-c"])));
    let labels = Ownership::read(&ensure.object).unwrap().labels;
    assert_eq!(labels.trigger_kind.kind, "PodExecOptions");
    assert_eq!(labels.trigger_namespace.as_deref(), Some("prod"));
}

#[test]
fn a_namespaced_policy_stays_at_home() {
    let policy = "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: p, namespace: home}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: seen
      apiCall: {urlPath: '/api/v1/namespaces/{{ request.object.data.where }}/secrets', jmesPath: 'items[].metadata.name'}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: home
      data: {stringData: {seen: \"{{ join(',', seen) }}\"}}
";
    let trigger = |namespace: &str, place: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: {namespace}}}, data: {{where: {place}}}}}"
        )
    };
    let secrets = "
{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: home}}
---
{apiVersion: v1, kind: Secret, metadata: {name: b, namespace: away}}
";
    assert!(made(policy, &trigger("home", "home"), secrets).contains("seen: a\n"));
    assert_eq!(made(policy, &trigger("away", "home"), secrets), "");
    assert_eq!(
        made(policy, &trigger("home", "away"), secrets),
        "# r: error\n# failed: policy.yaml:10:7: cannot load the context entry \"seen\": a policy of namespace \
         \"home\" cannot read the objects of kind Secret in namespace \"away\"\n"
    );
}
