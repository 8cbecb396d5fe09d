//! Policies that are refused: what is wrong, where, and what to do next.

use crate::support::{compiled, documents, messages};
use kiln_dialects::kyverno::check_update;
use kiln_dialects::{PolicyHost, compile_for};
use kiln_object::Kinds;

/// A policy with these parts in place of the usual ones.
fn policy(kind: &str, spec: &str, rule: &str, generate: &str) -> String {
    let namespace = if kind == "Policy" { ", namespace: home" } else { "" };
    format!(
        "apiVersion: kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p{namespace}}}\nspec:\n{spec}  rules:\n  - name: r\n{rule}    generate:\n{generate}"
    )
}

const MATCH: &str = "    match: {any: [{resources: {kinds: [Namespace]}}]}\n";
const MATCH_CONFIG_MAPS: &str = "    match: {any: [{resources: {kinds: [ConfigMap]}}]}\n";
const TARGET: &str = "      {apiVersion: v1, kind: ConfigMap, name: c, namespace: x}\n";

fn errors(text: &str) -> Vec<String> {
    let all = messages(&compiled(text));
    all.into_iter()
        .filter_map(|m| m.strip_prefix("error: policy.yaml:").map(str::to_owned))
        .collect()
}

/// Compares every case before it fails.
fn check_all(cases: &[(String, &str)]) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|(text, wanted)| (errors(text), wanted))
        .filter(|(found, wanted)| found[..] != [wanted.to_string()])
        .map(|(found, wanted)| format!("found {found:#?}\nwanted {wanted}\n"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_wrong_is_said_with_place_and_next_step() {
    let generate =
        |generate: &str| policy("ClusterPolicy", "", MATCH, &format!("      {generate}\n"));
    let rule = |rule: &str| policy("ClusterPolicy", "", rule, TARGET);
    let spec = |spec: &str| policy("ClusterPolicy", &format!("  {spec}\n"), MATCH, TARGET);
    let cases: Vec<(String, &str)> = vec![
        // Slips of the pen.
        (
            generate("{apiVersion: v1, kind: ConfigMap, name: c, namespace: x, synchronise: true}"),
            "9:64: unknown field spec.rules[0].generate.synchronise (did you mean \"synchronize\"?)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: c, namespace: x, synchronize: 'yes'}",
            ),
            "9:77: spec.rules[0].generate.synchronize must be true or false, and this is a string (write it without quotes)",
        ),
        (
            generate("{apiVersion: v1, kind: ConfigMap, name: 7, namespace: x}"),
            "9:47: spec.rules[0].generate.name must be a string, and this is a number (put it in quotes)",
        ),
        (spec("applyRules: Some"), "5:15: unknown value \"Some\" of applyRules (use All or One)"),
        // Kyverno's refusals.
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: c, namespace: x, data: {}, clone: {name: a, namespace: b}}",
            ),
            "9:7: only one of generate patterns(data, clone, cloneList and foreach) can be specified, nor dataList with one of them (write one rule each for data and clone)",
        ),
        (
            generate("{apiVersion: v1, name: c, namespace: x}"),
            "9:7: kind can not be empty (add \"kind\" here)",
        ),
        (
            generate("{kind: ConfigMap, name: c, namespace: x}"),
            "9:7: apiVersion can not be empty (add \"apiVersion\" here)",
        ),
        (
            generate("{apiVersion: v1, kind: ConfigMap, namespace: x}"),
            "9:7: name can not be empty (add \"name\" here)",
        ),
        (
            generate("{apiVersion: v1, kind: ConfigMap, name: c}"),
            "9:7: target namespace must be set for a namespaced resource (add `namespace`, for example \"{{ request.object.metadata.name }}\")",
        ),
        (
            generate("{apiVersion: v1, kind: Namespace, name: c, namespace: x}"),
            "9:61: target namespace must not be set for a cluster-wide resource (remove it)",
        ),
        (
            generate(
                "{namespace: x, cloneList: {namespace: z, kinds: [v1/Secret, rbac.authorization.k8s.io/v1/ClusterRole]}}",
            ),
            "9:67: mixed scope of target resources is forbidden (write one rule for kinds in namespaces and one for kinds of the cluster)",
        ),
        (
            generate("{namespace: x, cloneList: {kinds: [v1/Secret]}}"),
            "9:33: namespace is required for namespaced target resources (add \"namespace\" here)",
        ),
        (
            generate("{cloneList: {namespace: z, kinds: [v1/Namespace]}}"),
            "9:31: namespace is forbidden for cluster-wide target resources (remove it)",
        ),
        (
            generate(
                "{namespace: x, cloneList: {namespace: z, kinds: [v1/Secret], selector: {matchLabels: {a: '*'}}}}",
            ),
            "9:96: selector: wildcard not supported (write the label out, or use matchExpressions with Exists)",
        ),
        (
            generate("{namespace: x, cloneList: {namespace: z, kinds: [Secret]}}"),
            "9:56: \"Secret\" is not a valid kind (write version/Kind or group/version/Kind)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: c, namespace: x, data: {+(data): {}}}",
            ),
            "9:71: anchors not supported on generate resources: +(data) (write the key without parentheses)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: c, namespace: x, data: {metadata: {labels: {a: 1}}}}",
            ),
            "9:94: labels and annotations supports only string values, \"use double quotes around the non string values\" (write a: \"1\")",
        ),
        (
            generate("{apiVersion: v1, kind: ConfigMap, name: Not_A_Name, namespace: x}"),
            "9:47: the target name \"Not_A_Name\" is not a valid name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') (choose another name)",
        ),
        (
            rule("    match: {resources: {kinds: [ConfigMap]}}\n"),
            "9:7: generation kind and match resource kind should not be the same (use match.any, and exclude the objects that the rule makes)",
        ),
        (
            rule("    match: {any: [{resources: {kinds: ['*']}}]}\n"),
            "7:40: wildcard policy not allowed in background mode. Set spec.background=false to disable background mode for this policy rule (name the kinds)",
        ),
        (
            policy(
                "ClusterPolicy",
                "  background: false\n",
                "    match: {any: [{resources: {kinds: ['*']}}]}\n",
                TARGET,
            ),
            "8:40: wildcard policy does not support rule type (name the kinds)",
        ),
        (
            rule("    match: {any: [{resources: {names: [a]}}]}\n"),
            "7:19: at least one element must be specified in a kind block, the kind attribute is mandatory when working with the resources element (add resources.kinds)",
        ),
        (
            rule("    match: {}\n"),
            "7:12: match cannot be empty (add match.any with a list of resources)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}], all: [{resources: {kinds: [Pod]}}]}\n",
            ),
            "7:12: spec.rules[0].match has any and all: only one of them can be there (move the filters of one into the other, or write a second rule)",
        ),
        (
            rule("    match: {any: [{resources: {kinds: [Pod], name: a, names: [b]}}]}\n"),
            "7:52: both name and names can not be specified together (move the name into the list of names)",
        ),
        (
            rule("    match: {any: [{resources: {kinds: [Pod], operations: [MAKE]}}]}\n"),
            "7:59: unknown operation \"MAKE\": use CREATE, UPDATE, DELETE or CONNECT",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    exclude: {any: [{resources: {kinds: [Pod]}}]}\n",
            ),
            "8:21: Rule is matching an empty set (it is matched and excluded at once: remove one of the two)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod], names: ['{{ request.name }}']}}]}\n",
            ),
            "7:12: rule \"r\" should not have variables in match section (compare with variables in preconditions)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}, subjects: [{kind: User, name: me}]}]}\n",
            ),
            "7:57: only select variables are allowed in background mode. Set spec.background=false to disable background mode for this policy rule: invalid variable used at path: spec/rules[0]/match/any[0]/subjects (add `background: false` below spec)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}, subjects: [{kind: ServiceAccount, name: me}]}]}\n",
            ),
            "7:58: the ServiceAccount \"me\" has no namespace (add \"namespace\" here)",
        ),
        (
            rule("    match: {any: [{resources: {kinds: [Pod]}}]}\n    celPreconditions: []\n"),
            "8:23: celPrecondition can only be used with validate.cel (write preconditions, or validate.cel)",
        ),
        (
            rule("    match: {any: [{resources: {kinds: [Pod]}}]}\n    validate: {}\n"),
            "6:5: Multiple operations defined in the rule 'r', only one operation (generate, mutate, validate, verifyImages) is allowed per rule (write one rule each for generate and validate)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    preconditions: {all: [{key: a, operator: Equls, value: b}]}\n",
            ),
            "8:46: entered value of `operator` is invalid: \"Equls\" (did you mean \"Equals\"?)",
        ),
        (
            spec("generateExistingOnPolicyUpdate: true"),
            "5:3: remove the deprecated field and use spec.generate[*].generateExisting instead (write `generateExisting: true` below `generate`)",
        ),
        (
            spec("admission: false"),
            "5:14: disabling admission processing is only allowed with validation policies (remove `admission: false`)",
        ),
        // Variables.
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: '{{ reqest.object.metadata.name }}', namespace: x}",
            ),
            "9:47: policy contains invalid variables: variable substitution failed for rule r: {{ reqest.object.metadata.name }} at spec.rules[0].generate.name: it names no part of the context and no context entry of the rule (did you mean \"request\"?)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: ConfigMap, name: '{{ request.userInfo.username }}', namespace: x}",
            ),
            "9:47: only select variables are allowed in background mode. Set spec.background=false to disable background mode for this policy rule: variable {{request.userInfo.username}} is not allowed (set spec.background to false)",
        ),
        (
            generate("{apiVersion: v1, kind: ConfigMap, name: '{{ element }}', namespace: x}"),
            "9:47: variable 'element' present outside of foreach at path spec.rules[0].generate.name (move it below foreach)",
        ),
        (
            generate(
                "{foreach: [{list: 'a |', apiVersion: v1, kind: ConfigMap, name: c, namespace: x}]}",
            ),
            "9:25: \"a |\" is not an expression: the expression ends too early at character 4",
        ),
        // Context.
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    context: [{name: request, variable: {value: 1}}]\n",
            ),
            "8:15: entry name \"request\" is invalid, it conflicts with a pre-defined variable \"request\" (choose another name)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    context: [{name: a, variable: {value: 1}, configMap: {name: a, namespace: b}}]\n",
            ),
            "8:15: exactly one of configMap or apiCall or imageRegistry or variable is required for context entries (write one entry for each)",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    context: [{name: a, variable: request.name}]\n",
            ),
            "8:35: spec.rules[0].context[0].variable must be a map, and this is a string",
        ),
        (
            rule(
                "    match: {any: [{resources: {kinds: [Pod]}}]}\n    context: [{name: a, apiCall: {urlPath: /api/v1/pods, data: [{key: a, value: 1}]}}]\n",
            ),
            "8:64: only POST requests can have data (add `method: POST`)",
        ),
    ];
    check_all(&cases);
}

#[test]
fn what_kyverno_takes_is_taken_with_a_warning() {
    let warnings = |rule: &str, generate: &str| {
        messages(&compiled(&policy("ClusterPolicy", "", rule, &format!("      {generate}\n"))))
    };
    // The copies would be the sources themselves.
    let cluster_wide =
        "{namespace: x, cloneList: {kinds: [rbac.authorization.k8s.io/v1/ClusterRole]}}";
    assert_eq!(
        warnings(MATCH, cluster_wide),
        [
            "warning: policy.yaml:9:19: cluster-wide objects are copied into no namespace, so that nothing is made (name kinds that live in namespaces)"
        ]
    );
    let nowhere = "{cloneList: {kinds: [rbac.authorization.k8s.io/v1/ClusterRole]}}";
    let said = warnings(MATCH, nowhere);
    assert!(matches!(&said[..], [one] if one.contains("so that nothing is made")), "{said:?}");
    let own_kind = "{namespace: x, cloneList: {namespace: z, kinds: [v1/Secret]}}";
    let old_form = warnings("    match: {resources: {kinds: [Secret]}}\n", own_kind);
    assert!(old_form.iter().all(|said| !said.starts_with("error")), "{old_form:?}");
    let excluded = |exclude: &str| {
        let include = "    match: {any: [{resources: {kinds: [Pod], namespaces: [dev]}}]}\n";
        let all = warnings(
            &format!("{include}    exclude: {{any: [{{resources: {exclude}}}]}}\n"),
            TARGET.trim(),
        );
        all.iter().any(|said| said.contains("rule is matching an empty set"))
    };
    assert!(excluded("{kinds: ['*']}") && excluded("{kinds: [Pod, Job]}"));
    assert!(excluded("{namespaces: ['d*']}"));
    assert!(!excluded("{namespaces: [prod]}") && !excluded("{kinds: [Pod], names: [x]}"));
    assert!(!excluded("{kinds: [Pod], selector: {matchLabels: {a: b}}}"));
    let compared = |value: &str| {
        let condition = format!(
            "    preconditions: {{any: [{{key: '{{{{ request.operation }}}}', operator: AnyIn, value: {value}}}]}}\n"
        );
        warnings(&format!("{MATCH}{condition}"), TARGET.trim())
    };
    assert_eq!(compared("[CREATE, UPDATE]"), Vec::<String>::new());
    assert_eq!(compared("'{{ request.operation }}'"), Vec::<String>::new());
    for (value, hint) in
        [("[CREATE, Update]", "write UPDATE"), ("MERGE", "the operations are CREATE")]
    {
        let said = compared(value);
        assert!(said[0].starts_with("warning:") && said[0].contains(hint), "{said:?}");
    }
}

#[test]
fn a_rule_that_fires_on_what_it_makes_is_warned_of_at_the_kind() {
    let rule = format!("{MATCH_CONFIG_MAPS}    skipBackgroundRequests: false\n");
    let places = |generate: &str| -> Vec<String> {
        let all = messages(&compiled(&policy("ClusterPolicy", "", &rule, generate)));
        let words = "the rule makes objects of kind ConfigMap, which it also fires on";
        all.iter()
            .filter_map(|message| message.strip_prefix("warning: policy.yaml:"))
            .filter_map(|message| message.split_once(": "))
            .filter(|(_, message)| message.starts_with(words))
            .map(|(place, _)| place.to_owned())
            .collect()
    };
    let target = "apiVersion: v1\n      kind: ConfigMap\n      name: c\n      namespace: x\n";
    assert_eq!(places(&format!("      synchronize: true\n      {target}")), ["12:13"]);
    let each = "      synchronize: true\n      foreach:\n      - list: '[]'\n        apiVersion: v1\n        \
                kind: ConfigMap\n        name: c\n        namespace: x\n";
    assert_eq!(places(each), ["14:15"]);
}

#[test]
fn namespaced_policies_are_held_to_their_namespace() {
    let generate =
        |generate: &str| policy("Policy", "", MATCH_CONFIG_MAPS, &format!("      {generate}\n"));
    let cases = vec![
        (
            generate("{apiVersion: v1, kind: Namespace, name: c}"),
            "9:7: target resource scope mismatched: the target must be a namespaced resource: v1/Namespace (use a ClusterPolicy)",
        ),
        (
            generate("{apiVersion: v1, kind: Secret, name: c, namespace: away}"),
            "9:58: target resource scope mismatched: a namespaced policy cannot generate resources in other namespaces, expected: home, received: away (write `namespace: home`, or use a ClusterPolicy)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: Secret, name: c, namespace: '{{ request.namespace }}'}",
            ),
            "9:58: target resource scope mismatched: a namespaced policy cannot generate resources in other namespaces, expected: home, received: {{ request.namespace }} (write `namespace: home`, or use a ClusterPolicy)",
        ),
        (
            generate(
                "{apiVersion: v1, kind: Secret, name: c, namespace: home, clone: {name: d, namespace: away}}",
            ),
            "9:92: target resource scope mismatched: a namespaced policy cannot clone resources from other namespaces, expected: home, received: away (write `namespace: home`, or use a ClusterPolicy)",
        ),
        (
            generate("{namespace: home, cloneList: {namespace: away, kinds: [v1/Secret]}}"),
            "9:48: a namespaced policy cannot clone resources from other namespace, expected: home, received: away (write `namespace: home`, or use a ClusterPolicy)",
        ),
        (
            policy(
                "Policy",
                "",
                MATCH,
                "      {apiVersion: v1, kind: Secret, name: c, namespace: home}\n",
            ),
            "7:40: Cluster wide resource 'Namespace' not allowed in namespaced policy (use a ClusterPolicy)",
        ),
        (
            policy(
                "Policy",
                "",
                "    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [a]}}]}\n",
                "      {apiVersion: v1, kind: Secret, name: c, namespace: home}\n",
            ),
            "7:64: Filtering namespaces not allowed in namespaced policies (a Policy looks at its own namespace only: remove it, or use a ClusterPolicy)",
        ),
        (
            policy(
                "Policy",
                "",
                "    match: {any: [{resources: {kinds: [ConfigMap]}}]}\n    context: [{name: a, apiCall: {urlPath: /api/v1/namespaces/away/pods}}]\n",
                "      {apiVersion: v1, kind: Secret, name: c, namespace: home}\n",
            ),
            "8:44: a policy of namespace \"home\" can only read there: path must contain /namespaces/home/ (use a ClusterPolicy to read elsewhere)",
        ),
    ];
    check_all(&cases);
}

#[test]
fn one_bad_policy_keeps_no_other_from_compiling() {
    let bad = policy("ClusterPolicy", "", "    matches: {}\n", TARGET);
    let good = policy("ClusterPolicy", "", MATCH, TARGET).replace("name: p", "name: good");
    let compiled = compiled(&format!("{bad}---\n{good}"));
    assert_eq!(
        messages(&compiled),
        [
            "error: policy.yaml:7:5: unknown field spec.rules[0].matches (did you mean \"match\"?)",
            "error: policy.yaml:6:5: rule \"r\" has no match (add match.any)",
        ]
    );
    let names: Vec<_> = compiled.policies.iter().map(|policy| policy.id.key()).collect();
    assert_eq!(names, ["good"]);
}

#[test]
fn rules_of_other_kinds_are_named_not_dropped() {
    let text = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: mixed}
spec:
  rules:
  - name: check
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: 'no', pattern: {anything: goes}}
  - name: signed
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages: [{whatever: there is}]
  - name: change
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
  - name: make
    match: {any: [{resources: {kinds: [Pod]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: x}
---
{apiVersion: policies.kyverno.io/v1, kind: ImageValidatingPolicy, metadata: {name: signed}, spec: {}}
";
    let documents = documents("policy.yaml", text);
    for host in [PolicyHost::Files, PolicyHost::Cluster] {
        let run = vec!["validate check", "mutate change", "generate make"];
        let compiled = compile_for(host, &documents, &Kinds::builtin());
        let everywhere = [
            "note: policy.yaml:10:5: rule \"signed\" of policy \"mixed\" is not run by Kiln: verifyImages",
            "note: policy.yaml:20:1: policy \"signed\" is not run by Kiln: verifyImages",
        ];
        assert_eq!(messages(&compiled), everywhere, "{host:?}");
        let words: Vec<_> = compiled.policies[0]
            .rules
            .iter()
            .map(|rule| format!("{} {}", rule.program.word(), rule.id.rule))
            .collect();
        assert_eq!(words, run, "{host:?}");
    }
}

#[test]
fn changes_of_a_policy_are_judged_as_kyverno_does() {
    let policy = |rule: &str, generate: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - {{name: r, {rule}, generate: {{apiVersion: v1, kind: ConfigMap, namespace: x, {generate}}}}}\n"
        )
    };
    let check = |old: &str, new: &str| -> Vec<String> {
        let (old, new) =
            (documents("old.yaml", old).remove(0), documents("new.yaml", new).remove(0));
        let found = check_update(&old, &new);
        found.iter().map(|d| format!("{}: {d}", d.severity.as_str())).collect()
    };
    let any = |kind: &str| format!("match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}");
    let sync = "name: c, synchronize: true, data: {a: b}";
    let old = policy(&any("Namespace"), sync);
    // Free to change.
    for generate in [
        "name: c, synchronize: false, data: {a: b}",
        "name: c, synchronize: true, data: {a: c}",
        "name: c, synchronize: true, orphanDownstreamOnPolicyDelete: true, generateExisting: true",
    ] {
        assert_eq!(check(&old, &policy(&any("Namespace"), generate)), [""; 0], "{generate}");
    }
    // Targets: a warning, and nothing else is compared.
    assert_eq!(
        check(&old, &policy(&any("Pod"), "name: d, synchronize: true")),
        [
            "warning: new.yaml:6:70: no synchronization will be performed to the old target resource upon policy updates: \
             changes in the generate rule pattern could result in stale targets (rule \"r\")"
        ]
    );
    // A rule that is taken out: what becomes of what it made.
    let without =
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules: []\n";
    let deleted =
        "the objects that it made are deleted (orphanDownstreamOnPolicyDelete: true keeps them)";
    let copies = "the clones that it made stay, and are no longer synchronized \
                  (orphanDownstreamOnPolicyDelete: false deletes them)";
    let stay = "the objects that it made stay, and are no longer synchronized";
    let clone = "name: c, synchronize: true, clone: {namespace: y, name: c}";
    for (generate, becomes) in [
        (sync.to_owned(), deleted),
        (format!("{sync}, orphanDownstreamOnPolicyDelete: true"), stay),
        ("name: c, data: {a: b}".to_owned(), stay),
        (clone.to_owned(), copies),
        (format!("{clone}, orphanDownstreamOnPolicyDelete: false"), deleted),
    ] {
        assert_eq!(
            check(&policy(&any("Namespace"), &generate), without),
            [format!("warning: new.yaml:5:10: rule \"r\" is removed: {becomes}")],
            "{generate}"
        );
    }
    // The rest of the rule.
    assert_eq!(
        check(&old, &policy(&any("Pod"), sync)),
        [
            "error: new.yaml:6:22: changes of immutable fields of a rule spec in a generate rule is disallowed: match of \
             rule \"r\" (annotate the policy with kiln.allowGenerateRuleChanges: \"true\", delete it and create it again, or add a rule of another name)"
        ]
    );
    let with = |more: &str| policy(&format!("{}, {more}", any("Namespace")), sync);
    assert!(
        check(&old, &with("preconditions: {all: []}"))[0].contains("disallowed: preconditions of")
    );
    assert!(
        check(&old, &old.replace("name: r,", "name: s,"))[0]
            .contains("disallowed: name of rule \"r\"")
    );
    assert_eq!(check(&old, &with("skipBackgroundRequests: true")), [""; 0]);
    // A policy that says so may be edited.
    let head = "metadata: {name: p}";
    let allows = "metadata: {name: p, annotations: {kiln.allowGenerateRuleChanges: 'true'}}";
    let found = check(&old, &policy(&any("Pod"), sync).replace(head, allows));
    assert!(
        found[0].starts_with("note: new.yaml:6:22: match of generate rule \"r\" changes"),
        "{found:?}"
    );
    // Without synchronisation the match may change.
    let loose = "name: c, data: {a: b}";
    assert_eq!(check(&policy(&any("Namespace"), loose), &policy(&any("Pod"), loose)), [""; 0]);
    // More rules are welcome.
    let more = format!(
        "{old}  - {{name: t, {}, generate: {{apiVersion: v1, kind: Secret, name: t, namespace: x}}}}\n",
        any("Pod")
    );
    assert_eq!(check(&old, &more), [""; 0]);
}

/// Kyverno gives each kind of policy its own libraries, and Kubernetes none of them: what they refuse to compile is
/// refused here.
#[test]
fn libraries_belong_to_kinds_of_policies() {
    let matched = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
                   resources: [configmaps]}]}";
    let kyverno = |kind: &str, rest: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p}}\nspec:\n  {matched}\n{rest}"
        )
    };
    let generating = |expression: &str| {
        let rest = format!(
            "  variables: [{{name: v, expression: '{expression}'}}]\n  generate: [{{expression: 'generator.Apply(\"a\", [])'}}]\n"
        );
        kyverno("GeneratingPolicy", &rest)
    };
    let patch = "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]\n";
    let mutating = |expression: &str| {
        let rest = format!("  variables: [{{name: v, expression: '{expression}'}}]\n{patch}");
        kyverno("MutatingPolicy", &rest)
    };
    let admission = |expression: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {{name: p}}\nspec:\n  \
             {matched}\n  reinvocationPolicy: Never\n  variables: [{{name: v, expression: '{expression}'}}]\n{patch}"
        )
    };
    let account = "parseServiceAccount(\"system:serviceaccount:a:b\").Name";
    for (text, name) in [
        (generating(account), "parseServiceAccount"),
        (generating(&format!("user.{account}")), "user"),
        (mutating("generator.Apply(\"a\", [])"), "generator"),
        (
            mutating("authorizer.group(\"\").resource(\"pods\").check(\"get\").allowed()"),
            "authorizer",
        ),
        (
            generating("authorizer.group(\"\").resource(\"pods\").check(\"get\").allowed()"),
            "authorizer",
        ),
        (generating("jsonpatch.escapeKey(\"a/b\")"), "jsonpatch"),
        (admission(account), "parseServiceAccount"),
        (admission("resource.Get(\"v1\", \"configmaps\", \"a\", \"b\")"), "resource"),
        (admission("sha256(\"a\")"), "sha256"),
        (admission("json.Unmarshal(\"1\")"), "json"),
    ] {
        let said = messages(&compiled(&text));
        let wanted = format!("undeclared reference to '{name}");
        assert!(said.iter().any(|said| said.contains(&wanted)), "{text}\n{said:?}");
    }
    for text in [
        mutating(account),
        generating("sha256(\"a\")"),
        mutating("resource.Get(\"v1\", \"configmaps\", \"a\", \"b\")"),
        admission("object.metadata.name.startsWith(\"a\") && quantity(\"1\").isInteger()"),
    ] {
        let said = messages(&compiled(&text));
        assert_eq!(said, Vec::<String>::new(), "{text}");
    }
}
