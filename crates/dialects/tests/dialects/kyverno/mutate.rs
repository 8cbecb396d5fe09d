//! Mutate rules: whole policies and objects in, whole objects out.

use crate::support::{Fixed, Objects, compiled, messages, objects};
use kiln_engine::{
    Effect, EvalEnv, EvaluationLimits, Event, Lineage, Mutated, PatchTarget, RuleOutcome, RuleSet,
};
use kiln_object::Kinds;
use kiln_value::Value;
use kiln_yaml::emit;

fn mutated_within(
    rules: &RuleSet,
    event: &Event,
    others: &str,
    limits: EvaluationLimits,
) -> Mutated {
    let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
    let view = Objects(objects(others));
    rules.mutate(event, &EvalEnv { sources: &sources, limits, ..EvalEnv::of(&view, &kinds) })
}

fn rules(text: &str) -> RuleSet {
    let compiled = compiled(text);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions)
}

/// What becomes of a new object, and a line for each rule that took it.
fn mutated(policies: &str, object: &str, others: &str) -> String {
    let event = Event::created(objects(object).remove(0));
    let run = mutated_within(&rules(policies), &event, others, EvaluationLimits::default());
    format!("{}{}", emit(&run.object), lines(&run.outcomes))
}

fn lines(outcomes: &[RuleOutcome]) -> String {
    let line = |outcome: &RuleOutcome| {
        let why = outcome.why.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        let failed: String = outcome.failures.iter().map(|f| format!(": {f}")).collect();
        format!("# {}: {}{why}{failed}\n", outcome.rule.rule, outcome.verdict.as_str())
    };
    outcomes.iter().map(line).collect()
}

/// What a trigger changes in stored objects.
fn changed(policies: &str, event: &Event, others: &str) -> String {
    let outcomes = crate::support::run(&rules(policies), event, &Objects(objects(others)));
    let mut text = String::new();
    for outcome in &outcomes {
        for effect in &outcome.effects {
            let Effect::Patch(patch) = effect else { panic!("{effect:?}") };
            assert!(matches!(patch.target, PatchTarget::Stored { .. }), "{:?}", patch.target);
            text.push_str(&emit(&patch.after));
            text.push_str("---\n");
        }
    }
    text + &lines(&outcomes)
}

/// A policy of these rules.
fn policy(name: &str, rules: &str) -> String {
    let rules = rules.replace('\n', "\n  ");
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  background: false\n  rules:\n  {rules}\n---\n"
    )
}

#[test]
fn rules_and_policies_chain_in_matching_and_in_variables() {
    let first = policy(
        "a",
        "- name: tier
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {tier: web}}}}
- name: only-web
  match: {any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {tier: web}}}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {copy: '{{ request.object.metadata.labels.tier }}'}}}}",
    );
    let second = policy(
        "b",
        "- name: count
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {data: {labels: '{{ length(keys(request.object.metadata.labels)) | to_string(@) }}'}}}
- name: never
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  preconditions: {all: [{key: '{{ request.object.data.labels }}', operator: Equals, value: '0'}]}
  mutate: {patchStrategicMerge: {data: {x: y}}}
- name: again
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {+(tier): db}}}}",
    );
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}}";
    let wanted = "apiVersion: v1
data:
  labels: \"2\"
kind: ConfigMap
metadata:
  labels:
    copy: web
    tier: web
  name: c
  namespace: team
# tier: pass
# only-web: pass
# count: pass
# never: skip (preconditions not met)
# again: skip (no patches applied)
";
    assert_eq!(mutated(&format!("{second}{first}"), object, ""), wanted);
}

#[test]
fn a_rule_that_fails_changes_nothing_and_stops_no_other() {
    let policy = policy(
        "p",
        "- name: missing
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {data: {a: '{{ request.object.data.none }}'}}}
- name: test
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    patchesJson6902: |-
      - {op: add, path: /data/b, value: '1'}
      - {op: test, path: /data/k, value: other}
- name: fine
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    patchesJson6902: |-
      - {op: add, path: /metadata/annotations/a~1b, value: '{{ request.object.data.k }}'}",
    );
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}";
    let run = mutated(&policy, object, "");
    assert_eq!(
        run,
        "apiVersion: v1
data:
  k: v
kind: ConfigMap
metadata:
  annotations:
    a/b: v
  name: c
# missing: error: cannot resolve {{ request.object.data.none }} at spec.rules[0].mutate.patchStrategicMerge.data.a: no key \"none\" here (give a default with `|| ''`)
# test: error: operation 2 of 2 (test \"/data/k\"): the test wants \"other\", found \"v\"
# fine: pass
"
    );
}

#[test]
fn loops_nest_and_keep_their_indices() {
    let policy = policy(
        "p",
        "- name: hosts
  match: {any: [{resources: {kinds: [Ingress]}}]}
  mutate:
    foreach:
    - list: request.object.spec.tls
      foreach:
      - list: element.hosts
        context:
        - name: renamed
          variable: {jmesPath: \"replace_all(element, '.old', '.new')\"}
        preconditions: {all: [{key: '{{ element }}', operator: Equals, value: '*.old'}]}
        patchesJson6902: |-
          - op: replace
            path: /spec/tls/{{ elementIndex0 }}/hosts/{{ elementIndex1 }}
            value: '{{ renamed }}'
    - list: request.object.spec.tls[].hosts[]
      patchStrategicMerge: {metadata: {annotations: {'{{ element }}': '{{ elementIndex }}'}}}
- name: drop
  match: {any: [{resources: {kinds: [Ingress]}}]}
  mutate:
    foreach:
    - list: request.object.spec.tls
      order: Descending
      preconditions: {all: [{key: '{{ element.hosts }}', operator: AnyIn, value: b.new}]}
      patchesJson6902: '[{\"op\": \"remove\", \"path\": \"/spec/tls/{{elementIndex}}\"}]'",
    );
    let object = "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i}
spec: {tls: [{hosts: [a.old, x.keep]}, null, {hosts: [b.old]}]}";
    assert_eq!(
        mutated(&policy, object, ""),
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  annotations:
    a.new: \"0\"
    b.new: \"2\"
    x.keep: \"1\"
  name: i
spec:
  tls:
  - hosts:
    - a.new
    - x.keep
  - null
# hosts: pass
# drop: pass
"
    );
}

#[test]
fn a_loop_sees_what_the_loop_before_it_left() {
    let policy = policy(
        "p",
        "- name: r
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  context:
  - {name: early, variable: {jmesPath: \"request.object.data.num\"}}
  - {name: late, variable: {jmesPath: \"request.object.data.num\"}}
  mutate:
    foreach:
    - list: \"`[1, 2]`\"
      order: Ascending
      patchStrategicMerge: {data: {num: '{{ early }}{{ element }}', seen: '{{ request.object.data.num }}'}}
    - list: \"'once'\"
      patchStrategicMerge: {data: {after: '{{ request.object.data.num }}', early: '{{ early }}', late: '{{ late }}'}}",
    );
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {num: a}}";
    assert_eq!(
        mutated(&policy, object, ""),
        "apiVersion: v1
data:
  after: a2
  early: a
  late: a2
  num: a2
  seen: a
kind: ConfigMap
metadata:
  name: c
# r: pass
"
    );
}

const TARGETS: &str = "- name: restart
  match: {any: [{resources: {kinds: [ConfigMap], operations: [CREATE, UPDATE, DELETE]}}]}
  mutate:
    targets:
    - apiVersion: apps/v1
      kind: Deployment
      namespace: '{{ request.namespace }}'
      name: 'web-*'
      selector: {matchLabels: {uses: '{{ request.object.metadata.name }}'}}
      context:
      - {name: hash, variable: {jmesPath: \"target.metadata.annotations.hash || 'none'\"}}
      preconditions: {all: [{key: '{{ target.spec.paused }}', operator: NotEquals, value: true}]}
    patchStrategicMerge:
      metadata: {annotations: {hash: '{{@}}-{{ request.object.data.v }}', was: '{{ hash }}'}}";

#[test]
fn targets_are_found_asked_and_changed() {
    let deployment = |name: &str, namespace: &str, labels: &str, rest: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, namespace: {namespace}, labels: {labels}, annotations: {{hash: '1'}}}}, spec: {rest}}}\n---\n"
        )
    };
    let others = [
        deployment("web-a", "team", "{uses: c}", "{paused: false}"),
        deployment("web-b", "team", "{uses: c}", "{paused: true}"),
        deployment("web-c", "team", "{uses: other}", "{paused: false}"),
        deployment("db", "team", "{uses: c}", "{paused: false}"),
        deployment("web-d", "m", "{uses: c}", "{paused: false}"),
        // Who cannot be asked fails alone.
        deployment("web-e", "team", "{uses: c}", "{}"),
    ]
    .concat();
    let object = objects(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}, data: {v: x}}",
    )
    .remove(0);
    let wanted = "apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    hash: 1-x
    was: \"1\"
  labels:
    uses: c
  name: web-a
  namespace: team
spec:
  paused: false
---
# restart: error: target apps/v1/Deployment/team/web-e: cannot resolve {{ target.spec.paused }} at spec.rules[0].mutate.targets[0].preconditions.all[0].key: no key \"paused\" here (give a default with `|| ''`)
";
    let policy = policy("p", TARGETS);
    assert_eq!(changed(&policy, &Event::created(object.clone()), &others), wanted);
    // Of a deleted trigger, its last state is there.
    assert_eq!(changed(&policy, &Event::deleted(object.clone()), &others), wanted);
    // A trial changes nothing elsewhere, and neither does what we wrote ourselves.
    for event in [
        Event::created(object.clone()).as_dry_run(),
        Event::created(object.clone()).by_engine(Lineage::default()),
    ] {
        assert_eq!(changed(&policy, &event, &others), "");
    }
    assert_eq!(
        changed(&policy, &Event::created(object), ""),
        "# restart: skip (no patches applied)\n"
    );
}

#[test]
fn an_anchor_around_a_whole_map_is_a_condition_and_changes_nothing_of_it() {
    let policy = policy(
        "anchored",
        "- name: r
  match: {any: [{resources: {kinds: [Deployment]}}]}
  mutate: {patchStrategicMerge: {(metadata): {name: 'w*'}, spec: {replicas: 3}}}",
    );
    let deployment = |name: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, namespace: dev}}, spec: {{replicas: 1}}}}"
        )
    };
    assert_eq!(
        mutated(&policy, &deployment("web"), ""),
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: dev\nspec:\n  replicas: 3\n# r: pass\n"
    );
    let other = mutated(&policy, &deployment("api"), "");
    assert!(other.contains("replicas: 1") && other.contains("# r: skip"), "{other}");
}

#[test]
fn a_loop_that_puts_everything_back_has_done_its_work() {
    let policy = policy(
        "reorders",
        "- name: r
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    foreach:
    - list: request.object.list
      patchesJson6902: |-
        - {op: move, from: /list/0, path: /list/1}",
    );
    let map = |list: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: dev}}, list: {list}}}"
        )
    };
    let twice = mutated(&policy, &map("[a, b]"), "");
    assert!(twice.contains("list:\n- a\n- b\n") && twice.contains("# r: pass"), "{twice}");
    let never = mutated(&policy, &map("[]"), "");
    assert!(never.contains("# r: skip (no patches applied)"), "{never}");
}

#[test]
fn a_target_that_is_named_and_not_there_is_an_error() {
    let policy = |name: &str| {
        policy(
            "targets",
            &format!(
                "- name: r
  match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
  mutate:
    targets: [{{apiVersion: v1, kind: Secret, name: '{name}', namespace: dev}}]
    patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}"
            ),
        )
    };
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: dev}}";
    let event = Event::created(objects(map).remove(0));
    let said = |name: &str| changed(&policy(name), &event, map);
    assert!(said("x").starts_with("# r: error: secrets \"x\" not found"), "{}", said("x"));
    // An expression that lists everything gets nothing.
    assert_eq!(said("x*"), "# r: skip (no patches applied)\n");
}

#[test]
fn a_namespaced_policy_changes_only_its_own_namespace() {
    let policy = policy("p", TARGETS)
        .replace(
            "kind: ClusterPolicy\nmetadata: {name: p}",
            "kind: Policy\nmetadata: {name: p, namespace: team}",
        )
        .replace("namespace: '{{ request.namespace }}'", "namespace: '*'")
        .replace("selector: {matchLabels: {uses: '{{ request.object.metadata.name }}'}}", "");
    let others = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-a, namespace: team, annotations: {hash: a}}, spec: {paused: false}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-a, namespace: m, annotations: {hash: a}}, spec: {paused: false}}";
    let refused = messages(&compiled(&policy));
    assert_eq!(
        refused,
        [
            "error: policy.yaml:13:20: a policy of namespace \"team\" cannot change objects of \"*\" (remove the namespace, or use a ClusterPolicy)"
        ]
    );
    let policy = policy.replace("namespace: '*'\n", "\n");
    let object = objects(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: team}, data: {v: x}}",
    )
    .remove(0);
    assert_eq!(
        changed(&policy, &Event::created(object), others),
        "apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    hash: a-x
    was: a
  name: web-a
  namespace: team
spec:
  paused: false
---
# restart: pass
"
    );
}

const PULL: &str = "- name: pull
  match: {any: [{resources: {kinds: [Pod]}}]}
  mutate:
    patchStrategicMerge:
      spec: {containers: [{(image): '*:latest', imagePullPolicy: Always}]}";

#[test]
fn rules_for_pods_reach_their_controllers() {
    let policy = policy("p", PULL);
    let pod = "spec: {containers: [{name: a, image: 'a:1'}, {name: b, image: 'b:latest'}]}";
    let spec = "spec:
SPACEcontainers:
SPACE- image: b:latest
SPACE  imagePullPolicy: Always
SPACE  name: b
SPACE- image: a:1
SPACE  name: a
";
    for (kind, front, back, space, rule) in [
        ("apiVersion: v1\nkind: Pod", "", "", "  ", "pull"),
        (
            "apiVersion: apps/v1\nkind: Deployment",
            "spec: {template: {",
            "}}",
            "      ",
            "autogen-pull",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob",
            "spec: {jobTemplate: {spec: {template: {",
            "}}}}",
            "          ",
            "autogen-cronjob-pull",
        ),
    ] {
        let object = format!("{kind}\nmetadata: {{name: x}}\n{front}{pod}{back}\n");
        let got = mutated(&policy, &object, "");
        let wanted = spec.replace("SPACE", space);
        assert!(got.contains(&wanted), "{got}");
        assert!(got.ends_with(&format!("# {rule}: pass\n")), "{got}");
    }
    let off = policy.replace(
        "metadata: {name: p}",
        "metadata: {name: p, annotations: {pod-policies.kyverno.io/autogen-controllers: none}}",
    );
    let names: Vec<_> = rules(&off).rules().map(|rule| rule.id.rule.to_string()).collect();
    assert_eq!(names, ["pull"]);
}

#[test]
fn exceptions_leave_objects_alone_and_say_so() {
    let exception = "apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: old-images, namespace: ops}
spec:
  match: {any: [{resources: {kinds: [Pod], namespaces: [legacy]}}]}
  conditions: {all: [{key: '{{ request.object.metadata.name }}', operator: Equals, value: 'x*'}]}
  exceptions:
  - {policyName: p, ruleNames: ['pu*']}
---
";
    let policies = format!("{exception}{}", policy("p", PULL));
    let pod = |name: &str, namespace: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{containers: [{{name: b, image: 'b:latest'}}]}}}}"
        )
    };
    let verdict = |name: &str, namespace: &str| {
        let run = mutated(&policies, &pod(name, namespace), "");
        run.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        verdict("x1", "legacy"),
        "# pull: skip (rule is skipped due to policy exception ops/old-images)"
    );
    assert_eq!(verdict("y", "legacy"), "# pull: pass");
    assert_eq!(verdict("x1", "new"), "# pull: pass");
    // One that applies to nothing is stored all the same.
    let nothing = "apiVersion: kyverno.io/v2beta1\nkind: PolicyException\nmetadata: {name: e}\nspec: {match: {}, exceptions: [{policyName: p, ruleNames: ['*']}]}\n---\n";
    let policies = format!("{nothing}{}", policy("p", PULL));
    let run = mutated(&policies, &pod("x1", "legacy"), "");
    assert_eq!(run.lines().last(), Some("# pull: pass"));
    assert_eq!(
        messages(&compiled(nothing)),
        [
            "warning: policy.yaml:4:15: match is empty: the exception applies to nothing (add match.any with a list of resources)"
        ]
    );
    let wrong = "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {match: {resources: {kinds: [Pod]}}, exceptions: [{policyname: p, ruleNames: [r]}], background: yes}}";
    assert_eq!(
        messages(&compiled(wrong)),
        [
            "error: policy.yaml:1:99: spec.match.resources cannot stand in this version of the API (put it into an element of any)",
            "error: policy.yaml:1:130: unknown field spec.exceptions[0].policyname (did you mean \"policyName\"?)",
            "error: policy.yaml:1:129: the field policyName of spec.exceptions[0] is missing (add \"policyName\" here)",
            "error: policy.yaml:1:79: the exception names no rules (add exceptions with policyName and ruleNames)",
        ]
    );
}

#[test]
fn what_rules_make_passes_through_mutate_rules() {
    let policy = policy(
        "p",
        "- name: owner
  match: {any: [{resources: {kinds: [NetworkPolicy]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {+(owner): platform}}}}",
    );
    let rules = rules(&policy);
    let made = objects("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: d, namespace: team}, spec: {}}").remove(0);
    let event = Event::created(made).by_engine(Lineage::default());
    let once = mutated_within(&rules, &event, "", EvaluationLimits::default());
    assert_eq!(once.object.str_at(["metadata", "labels", "owner"]), Some("platform"));
    // Comparing after mutation finds nothing left to do.
    let event = Event::created(once.object.clone()).by_engine(Lineage::default());
    let twice = mutated_within(&rules, &event, "", EvaluationLimits::default());
    assert_eq!(twice.object, once.object);
    assert_eq!(lines(&twice.outcomes), "# owner: skip (no patches applied)\n");
}

#[test]
fn the_trace_says_which_anchor_said_no() {
    let policy = policy("p", &PULL.replace("(image)", "<(image)"));
    let pod = objects("{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: a, image: 'a:1'}]}}").remove(0);
    let limits = EvaluationLimits::default().traced();
    let run = mutated_within(&rules(&policy), &Event::created(pod), "", limits);
    let trace = run.outcomes[0].trace.as_ref().unwrap().to_string();
    assert!(
        trace.ends_with(
            "└─ conditions of the patch: no (spec.containers[0][\"<(image)\"]: \"a:1\" does not match \"*:latest\")\n"
        ),
        "{trace}"
    );
}

#[test]
fn loops_and_patches_end_at_their_limits() {
    let policy = policy(
        "p",
        "- name: r
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    foreach:
    - list: request.object.list
      patchStrategicMerge: {data: {x: '{{ elementIndex }}'}}",
    );
    let mut object = objects("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}").remove(0);
    object.set(["list"], (0..500u64).map(Value::from).collect::<Value>()).unwrap();
    let event = Event::created(object.clone());
    let rules = rules(&policy);
    for (limits, message) in [
        (
            EvaluationLimits { elements: 100, ..EvaluationLimits::default() },
            "the rule runs for more than 100 elements",
        ),
        (
            EvaluationLimits { patched: 10_000, ..EvaluationLimits::default() },
            "the rule patches more than 10000 values",
        ),
    ] {
        let run = mutated_within(&rules, &event, "", limits);
        assert_eq!(run.object, object);
        assert_eq!(run.outcomes[0].failures[0].message, message);
    }
}

#[test]
fn the_deepest_patch_in_the_deepest_loops_fits_on_a_small_stack() {
    let deep = |depth: usize, end: &str| "{a: ".repeat(depth) + end + &"}".repeat(depth);
    let mut block =
        format!("patchStrategicMerge: {{data: {}}}", deep(430, "'{{ elementIndex7 }}'"));
    for level in 0..8 {
        let list = if level == 7 { "'`[1]`'" } else { "'[element || `1`]'" };
        block = format!("foreach: [{{list: {list}, {block}}}]");
    }
    let rules_text = format!(
        "- name: r\n  match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}\n  mutate: {{{block}}}"
    );
    let policy = policy("p", &rules_text);
    let object = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}, data: {}}}",
        deep(430, "x")
    );
    let run = move || mutated(&policy, &object, "");
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    let text = thread.join().unwrap();
    assert!(text.ends_with("# r: pass\n"), "{}", &text[text.len().saturating_sub(300)..]);
}
