//! ValidatingPolicy, ValidatingAdmissionPolicy, and `validate.cel` and `validate.podSecurity` of rules: what they make of
//! objects, and what is refused about them.

use kiln_engine::{EvalEnv, Event, RuleOutcome, RuleSet};
use kiln_object::Kinds;
use kiln_rules::Payload;
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Value, json, value};

use crate::support::{Objects, compiled, messages, objects};

pub(crate) const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default},
  spec: {hostNetwork: false, containers: [{name: a, image: nginx}]}}";
const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: default},
  spec: {template: {metadata: {labels: {app: web}}, spec: {hostNetwork: false, containers: [{name: a, image: nginx}]}}}}";

/// A ValidatingPolicy for Pods with this in its spec.
fn policy(rest: &str) -> String {
    let rest = rest.trim_matches('\n').replace('\n', "\n  ");
    format!(
        "apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: vp
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  {rest}
"
    )
}

pub(crate) fn outcomes(event: &Event, policies: &str, others: &str) -> Vec<RuleOutcome> {
    let compiled = compiled(policies);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
    let (kinds, view) = (Kinds::builtin(), Objects(objects(others)));
    rules.mutate(event, &EvalEnv::of(&view, &kinds)).outcomes
}

/// How each rule ended, and what it says.
pub(crate) fn verdicts(object: &str, policies: &str, others: &str) -> Vec<String> {
    let event = Event::created(objects(object).remove(0));
    said(&outcomes(&event, policies, others))
}

pub(crate) fn said(outcomes: &[RuleOutcome]) -> Vec<String> {
    let line = |outcome: &RuleOutcome| {
        let why = outcome.why.as_deref().unwrap_or_default();
        format!("{} {why}", outcome.status().as_str()).trim_end().to_owned()
    };
    outcomes.iter().map(line).collect()
}

fn refusal(policies: &str) -> String {
    let compiled = compiled(policies);
    assert!(compiled.has_errors(), "it is accepted: {policies}");
    messages(&compiled).join("\n")
}

#[test]
fn validations_decide_in_order() {
    for (rest, wanted) in [
        (
            "validations: [{expression: 'object.spec.hostNetwork == true', message: need host}]",
            "fail need host",
        ),
        (
            "validations: [{expression: 'true'}, {expression: 'false'}]",
            "fail CEL expression validation failed at index 1",
        ),
        (
            "validations: [{expression: 'false', message: one}, {expression: 'false', message: two}]",
            "fail one",
        ),
        (
            "validations: [{expression: 'object.spec.hostPID == true'}]",
            "error error: no such key: hostPID",
        ),
        (
            "failurePolicy: Ignore\nvalidations: [{expression: 'object.spec.hostPID == true'}]",
            "error error: no such key: hostPID",
        ),
        (r#"validations: [{expression: 'false', messageExpression: "'a\\nb'"}]"#, "fail a\nb"),
        (r#"validations: [{expression: 'false', messageExpression: "''", message: m}]"#, "fail m"),
        (
            "validations: [{expression: 'false', messageExpression: string(object.spec.nope)}]",
            "fail failed to evaluate message expression: no such key: nope",
        ),
        ("validations: []", "pass success"),
        (
            "variables: [{name: x, expression: object.nope.nope}]\nvalidations: [{expression: 'true'}]",
            "pass success",
        ),
        (
            "variables: [{name: count, expression: 'object.spec.containers.size()'}]
validations: [{expression: 'variables.count == 1'}]",
            "pass success",
        ),
        (
            "validations: [{expression: 'object.spec.containers.all(i, c, c.name != \"\")'}]",
            "pass success",
        ),
        (
            "validations: [{expression: 'object.spec.containers.orValue([]).size() == 1'}]",
            "pass success",
        ),
        (
            "validations: [{expression: 'object.spec.nope.orValue([]).size() == 0'}]",
            "error error: no such key: nope",
        ),
        (
            "validations: [{expression: 'request.userInfo.username == \"\"'}]",
            "error error: no such key: username",
        ),
        (
            "validations: [{expression: 'namespaceObject.metadata.name == \"default\"'}]",
            "pass success",
        ),
    ] {
        assert_eq!(verdicts(POD, &policy(rest), ""), [wanted], "{rest}");
    }
}

#[test]
fn conditions_that_are_false_count_more_than_those_that_fail() {
    let with = |conditions: &str, rest: &str| {
        let rest = format!(
            "{rest}matchConditions: [{conditions}]\nvalidations: [{{expression: 'false'}}]"
        );
        verdicts(POD, &policy(&rest), "").join(", ")
    };
    let (no, bad) = ("{name: a, expression: 'false'}", "{name: b, expression: object.spec.x == 1}");
    assert_eq!(with(no, ""), "skip skip");
    assert_eq!(with(bad, ""), "error failed to load context: no such key: x");
    assert_eq!(with(bad, "failurePolicy: Ignore\n"), "skip skip");
    assert_eq!(with(&format!("{bad}, {no}"), ""), "skip skip");
    let seen = "matchConditions: [{name: a, expression: variables.x}]\nvariables: [{name: x, expression: 'true'}]";
    assert!(refusal(&policy(seen)).contains("variables"));
}

#[test]
fn types_are_asked_for() {
    for (rest, wanted) in [
        (
            "validations: [{expression: object.spec.hostNetwork}]",
            "output is expected to be of type bool",
        ),
        (
            "validations: [{expression: 'true', messageExpression: object.spec.x}]",
            "output is expected to be of type string",
        ),
        ("validations: [{expression: \"[1, 'a'].size() == 2\"}]", "expected type"),
        ("validations: [{expression: 'params.x == 1'}]", "undeclared reference to 'params'"),
        (
            "validationActions: [test]",
            "Unsupported value: \"test\": supported values: \"Deny\", \"Audit\", \"Warn\"",
        ),
        ("failurePolicy: Maybe", "unknown value \"Maybe\" of failurePolicy"),
    ] {
        let said = refusal(&policy(rest));
        assert!(said.contains(wanted), "{rest}: {said}");
    }
}

#[test]
fn annotations_are_reported_and_hide_nothing() {
    let event = Event::created(objects(POD).remove(0));
    let properties = |expression: &str, value: &str| {
        let rest = format!(
            "auditAnnotations: [{{key: k, valueExpression: \"{value}\"}}]
validations: [{{expression: '{expression}', message: m}}]"
        );
        let outcome = outcomes(&event, &policy(&rest), "").remove(0);
        let pairs: Vec<String> =
            outcome.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{} {} [{}]", outcome.status().as_str(), outcome.why.unwrap(), pairs.join(" "))
    };
    assert_eq!(properties("true", "'v ' + object.metadata.name"), "pass success [k=v p]");
    assert_eq!(
        properties("false", "'v ' + object.metadata.name"),
        "fail m [cel.validationIndex=0 k=v p]"
    );
    let hidden = properties("false", "string(object.nope)");
    assert!(hidden.starts_with("fail m (failed to evaluate auditAnnotation: "), "{hidden}");
}

#[test]
fn policies_for_pods_hold_for_their_controllers() {
    let rest = "validations: [{expression: 'object.spec.hostNetwork == true', message: need host}]";
    assert_eq!(verdicts(DEPLOYMENT, &policy(rest), ""), ["fail need host"]);
    let none = format!("autogen: {{podControllers: {{controllers: []}}}}\n{rest}");
    assert!(verdicts(DEPLOYMENT, &policy(&none), "").is_empty());
    let kind = format!("autogen: {{podControllers: {{controllers: [Deployment]}}}}\n{rest}");
    assert_eq!(verdicts(DEPLOYMENT, &policy(&kind), ""), ["fail need host"]);
    let found = compiled(&policy(&kind));
    assert!(
        messages(&found).join("\n").contains("write \"deployments\""),
        "{:?}",
        messages(&found)
    );
    // What is about the object itself stays so.
    let own = "validations: [{expression: \"object.metadata.namespace == 'default' && object.kind == 'Deployment' && object.metadata.labels['app'] == 'web'\"}]";
    assert_eq!(verdicts(DEPLOYMENT, &policy(own), ""), ["pass success"]);
}

#[test]
fn exceptions_hold_in_whole_or_in_part() {
    let exception = |spec: &str| {
        format!(
            "---
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {{name: e, namespace: default}}
spec:
  policyRefs: [{{name: vp, kind: ValidatingPolicy}}]
  matchConditions: [{{name: c, expression: \"object.metadata.name == 'p'\"}}]
  {spec}
"
        )
    };
    let rest = "validations: [{expression: 'object.spec.containers.all(c, c.image in exceptions.allowedImages)', message: m}]";
    let run =
        |spec: &str| verdicts(POD, &format!("{}{}", policy(rest), exception(spec)), "").join(", ");
    assert_eq!(run(""), "skip rule is skipped due to policy exception: default/e");
    assert_eq!(run("reportResult: pass"), "pass rule is passed due to policy exception: default/e");
    assert_eq!(run("images: [nginx]"), "pass success");
    assert_eq!(run("images: [other]"), "fail m");
}

#[test]
fn namespaced_policies_see_their_own_namespace() {
    let namespaced = policy("validations: [{expression: 'false', message: m}]")
        .replace("kind: ValidatingPolicy", "kind: NamespacedValidatingPolicy")
        .replace("name: vp", "name: vp\n  namespace: team");
    assert!(verdicts(POD, &namespaced, "").is_empty());
    let own = POD.replace("namespace: default", "namespace: team");
    assert_eq!(verdicts(&own, &namespaced, ""), ["fail m"]);
}

#[test]
fn data_and_requests_are_judged() {
    let with_mode = |mode: &str, expression: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {{name: vp}}
spec:
  evaluation: {{mode: {mode}}}
  validations: [{{expression: '{expression}', message: m}}]
"
        )
    };
    let judge = |payload: Payload, mode: &str, expression: &str| {
        let data = value!({"a": 1, "attributes": {"path": "/x", "header": {}}});
        let event = Event::brought(payload, "data.json", data);
        said(&outcomes(&event, &with_mode(mode, expression), "")).join(", ")
    };
    assert_eq!(judge(Payload::Json, "JSON", "object.a == 1"), "pass success");
    assert_eq!(judge(Payload::Json, "JSON", "object.a == 2"), "fail m");
    assert_eq!(
        judge(Payload::Json, "JSON", "request == null && oldObject == null"),
        "pass success"
    );
    assert_eq!(judge(Payload::Json, "HTTP", "http.Allowed().Response()"), "");
    assert_eq!(judge(Payload::Http, "HTTP", "http.Allowed().Response()"), "pass request allowed");
    let denied = r#"object.attributes.path == "/x" ? http.Denied("no").Response() : null"#;
    assert_eq!(judge(Payload::Http, "HTTP", denied), "fail request denied, reason: no");
    assert_eq!(judge(Payload::Http, "HTTP", "null"), "skip request does not match");
    assert_eq!(
        judge(Payload::Envoy, "Envoy", "envoy.Denied(401).Response()"),
        "fail request denied with status code 401"
    );
    // Objects are data, too; policies for objects look at nothing else.
    assert_eq!(verdicts(POD, &with_mode("JSON", "object.kind == \"Pod\""), ""), ["pass success"]);
    let event = Event::brought(Payload::Json, "data.json", objects(POD).remove(0));
    assert!(outcomes(&event, &policy("validations: [{expression: 'false'}]"), "").is_empty());
    let said = refusal(&with_mode("HTTP", "true"));
    assert!(said.contains("neither a response nor null"), "{said}");
}

#[test]
fn expressions_that_explode_end_within_their_budget() {
    let list = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let mut expression = "true".to_owned();
    for name in ["a", "b", "c", "d", "e", "f"] {
        expression = format!("{list}.all({name}, {expression})");
    }
    let rest = format!("validations: [{{expression: '{expression}'}}]");
    let said = verdicts(POD, &policy(&rest), "");
    assert_eq!(said, ["error error: operation cancelled: actual cost limit exceeded"]);
}

/// A ValidatingAdmissionPolicy for Deployments with this in its spec.
fn admission_policy(rest: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: vap}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}}
  {}
",
        rest.replace('\n', "\n  ")
    )
}

fn binding(name: &str, rest: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: vap
  {}
",
        rest.replace('\n', "\n  ")
    )
}

#[test]
fn admission_policies_act_through_their_bindings() {
    let no = "validations: [{expression: 'object.spec.replicas <= 2'}]";
    let three = DEPLOYMENT.replace("spec: {template", "spec: {replicas: 3, template");
    let run = |object: &str, rest: &str, bindings: &str| {
        verdicts(object, &format!("{}{bindings}", admission_policy(rest)), "")
    };
    assert_eq!(run(&three, no, ""), ["fail failed expression: object.spec.replicas <= 2"]);
    assert_eq!(
        run(DEPLOYMENT, no, ""),
        ["error expression 'object.spec.replicas <= 2' resulted in error: no such key: replicas"]
    );
    let elsewhere =
        "validationActions: [Deny]\nmatchResources: {objectSelector: {matchLabels: {a: b}}}";
    assert!(run(&three, no, &binding("b", elsewhere)).is_empty());
    let both = format!("{}{}", binding("b", elsewhere), binding("c", "validationActions: [Warn]"));
    let event = Event::created(objects(&three).remove(0));
    let found = outcomes(&event, &format!("{}{both}", admission_policy(no)), "");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].rule.to_string(), "vap:vap/c");
    let actions = found[0].violation().unwrap().actions;
    assert!(actions.warn && !actions.deny);
    let unmet = format!("matchConditions: [{{name: a, expression: 'false'}}]\n{no}");
    assert_eq!(run(&three, &unmet, ""), ["skip match conditions aren't met"]);
    let message =
        "validations: [{expression: 'false', message: m, messageExpression: \"'a\\\\nb'\"}]";
    assert_eq!(run(&three, message, ""), ["fail m"]);
    let refused =
        |rest: &str, binding: &str| refusal(&format!("{}{binding}", admission_policy(rest)));
    assert!(refused("validations: []", "").contains("must contain at least one item"));
    let unsaid = compiled(&format!("{}{}", admission_policy(no), binding("b", "")));
    assert!(messages(&unsaid).join("\n").contains("spec.validationActions: Required value"));
    // None of Kyverno's libraries: an API server does not have them.
    let foreign = "validations: [{expression: \"resource.Get('v1', 'pods', 'a', 'b') != null\"}]";
    assert!(refused(foreign, "").contains("undeclared reference to 'resource'"));
}

#[test]
fn admission_policies_are_given_parameters() {
    let rest = "paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{expression: 'object.metadata.name.startsWith(params.data.prefix)', messageExpression: \"'not ' + params.data.prefix\"}]";
    let by = |reference: &str| {
        let rest_of = format!("validationActions: [Deny]\nparamRef: {{{reference}}}");
        format!("{}{}", admission_policy(rest), binding("b", &rest_of))
    };
    let params = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: default, labels: {a: b}}, data: {prefix: d}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: default, labels: {a: b}}, data: {prefix: x}}";
    let run = |reference: &str| verdicts(DEPLOYMENT, &by(reference), params).join(", ");
    assert_eq!(run("name: one, parameterNotFoundAction: Deny"), "pass");
    assert_eq!(run("name: two, parameterNotFoundAction: Deny"), "fail not x");
    // Once for each: the one that fails decides.
    assert_eq!(run("selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny"), "fail not x");
    assert_eq!(run("name: none, parameterNotFoundAction: Allow"), "skip there are no parameters");
    let missing = run("name: none, parameterNotFoundAction: Deny");
    assert!(missing.starts_with("error"), "{missing}");
}

/// A ClusterPolicy with one rule for Pods that validates so.
pub(crate) fn rule(validate: &str, more: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: cp}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}
    {}
    validate:
      {}
",
        more.replace('\n', "\n    "),
        validate.replace('\n', "\n      ")
    )
}

#[test]
fn rules_check_expressions() {
    for (validate, more, wanted) in [
        (
            "cel: {expressions: [{expression: 'object.spec.hostNetwork == false'}]}",
            "",
            "pass Validation rule 'r' passed.",
        ),
        ("cel: {expressions: [{expression: 'object.spec.hostNetwork'}]}", "", ""),
        (
            "cel: {expressions: [{expression: 'object.spec.hostNetwork == true'}]}",
            "",
            "fail failed expression: object.spec.hostNetwork == true",
        ),
        (
            "message: of the rule\ncel: {expressions: [{expression: 'false'}]}",
            "",
            "fail of the rule",
        ),
        (
            "message: of the rule\ncel: {expressions: [{expression: 'false', messageExpression: \"'made'\"}]}",
            "",
            "fail made",
        ),
        (
            "cel: {expressions: [{expression: \"object.spec.nodeName == 'a'\"}]}",
            "",
            "fail expression 'object.spec.nodeName == 'a'' resulted in error: no such key: nodeName",
        ),
        (
            "cel: {expressions: [{expression: 'false'}]}",
            "celPreconditions: [{name: c, expression: 'false'}]",
            "skip cel preconditions not met",
        ),
        (
            "cel: {expressions: [{expression: 'false'}]}",
            "celPreconditions: [{name: c, expression: object.spec.x == 1}]",
            "fail no such key: x",
        ),
        (
            "cel: {variables: [{name: own, expression: object.metadata.name}], expressions: [{expression: \"variables.own == 'p'\"}]}",
            "",
            "pass Validation rule 'r' passed.",
        ),
    ] {
        if wanted.is_empty() {
            let said = refusal(&rule(validate, more));
            assert!(said.contains("output is expected to be of type bool"), "{said}");
        } else {
            assert_eq!(verdicts(POD, &rule(validate, more), ""), [wanted], "{validate} {more}");
        }
    }
    let on_deployments =
        rule("cel: {expressions: [{expression: 'object.spec.hostNetwork == true'}]}", "");
    assert_eq!(
        verdicts(DEPLOYMENT, &on_deployments, ""),
        ["fail failed expression: object.spec.template.spec.hostNetwork == true"]
    );
    for (cel, wanted) in [
        (
            "{expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}}",
            "cel.paramRef is required",
        ),
        (
            "{expressions: [{expression: 'true'}], paramRef: {name: a, parameterNotFoundAction: Deny}}",
            "cel.paramKind is required",
        ),
    ] {
        let said = refusal(&rule(&format!("cel: {cel}"), ""));
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn rules_check_pod_security() {
    let baseline = "podSecurity: {level: baseline, version: latest}";
    let host = POD.replace("hostNetwork: false", "hostNetwork: true");
    assert_eq!(verdicts(POD, &rule(baseline, ""), ""), ["pass Validation rule 'r' passed."]);
    assert_eq!(
        verdicts(&host, &rule(baseline, ""), ""),
        [
            "fail Validation rule 'r' failed. It violates PodSecurity \"baseline:latest\": (Forbidden reason: host namespaces, field error list: [spec.hostNetwork is forbidden, forbidden values found: true])"
        ]
    );
    let host_deployment = DEPLOYMENT.replace("hostNetwork: false", "hostNetwork: true");
    let said = verdicts(&host_deployment, &rule(baseline, ""), "");
    assert!(said[0].contains("[spec.template.spec.hostNetwork is forbidden"), "{said:?}");
    let excluded = "podSecurity: {level: baseline, exclude: [{controlName: Host Namespaces}]}";
    assert_eq!(verdicts(&host, &rule(excluded, ""), ""), ["pass Validation rule 'r' passed."]);
    let privileged = "podSecurity: {level: privileged}";
    assert_eq!(verdicts(&host, &rule(privileged, ""), ""), ["pass Validation rule 'r' passed."]);
    let event = Event::created(objects(&host).remove(0));
    let outcome = outcomes(&event, &rule(baseline, ""), "").remove(0);
    let faults = &outcome.violation().unwrap().faults;
    assert_eq!(faults[0].at.as_ref().unwrap().to_string(), "spec.hostNetwork");
    let properties: Vec<_> = outcome.properties.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        properties,
        [
            "standard=baseline",
            "version=latest",
            "controls=hostNamespaces",
            r#"controlsJSON=[{"ID":"hostNamespaces","Name":"Host Namespaces","Images":null}]"#,
        ]
    );
    for (exclude, wanted) in [
        (
            "{controlName: Capabilities}",
            "exclude.images must be specified for the container level control",
        ),
        (
            "{controlName: Sysctls, images: [a]}",
            "exclude.images must not be specified for the pod level control",
        ),
        ("{controlName: Volume Types}", "Invalid control name defined at the given level"),
        ("{controlName: SELinux, restrictedField: a}", "values is required"),
        ("{controlName: SELinux, values: [a]}", "restrictedField is required"),
        ("{controlName: Selinux}", "did you mean \"SELinux\"?"),
    ] {
        let said =
            refusal(&rule(&format!("podSecurity: {{level: baseline, exclude: [{exclude}]}}"), ""));
        assert!(said.contains(wanted), "{exclude}: {said}");
    }
    assert!(
        refusal(&rule("podSecurity: {level: strict}", ""))
            .contains("privileged, baseline, restricted")
    );
    assert!(
        refusal(&rule("podSecurity: {level: baseline, version: '1'}", ""))
            .contains("must be \"latest\" or \"v1.x\"")
    );
}

#[test]
fn exceptions_leave_out_controls() {
    let host = POD.replace("hostNetwork: false", "hostNetwork: true, hostPID: true");
    let with = |pod_security: &str| {
        let exception = format!(
            "---
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {{name: e, namespace: default}}
spec:
  exceptions: [{{policyName: cp, ruleNames: [r]}}]
  match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}
  {pod_security}
"
        );
        let rule = rule("podSecurity: {level: baseline}", "");
        verdicts(&host, &format!("{rule}{exception}"), "").join(", ")
    };
    assert!(with("").starts_with("skip rule is skipped due to policy exception"));
    assert_eq!(
        with("podSecurity: [{controlName: Host Namespaces}]"),
        "skip rule is skipped due to policy exceptions default/e"
    );
    let part = "podSecurity: [{controlName: Host Namespaces, restrictedField: spec.hostPID, values: ['true']}]";
    let left = with(part);
    assert!(left.starts_with("fail") && !left.contains("hostPID"), "{left}");
}

/// The fixtures of the standards through rules, in every version, and those with exclusions with the words of Kyverno.
#[test]
fn recorded_pod_security() {
    let Some(recorded) = corpus_json("pod-security/cases.json") else { return };
    let mut tally = Tally::new("podSecurity rules on the fixtures of the standards");
    for case in recorded.as_list().unwrap() {
        let versions = case.get("versions").and_then(Value::as_list).unwrap();
        let newest = versions.iter().filter_map(Value::as_str).next_back().unwrap();
        let level = case.str_at(["level"]).unwrap();
        tally.case(case.str_at(["id"]).unwrap(), || {
            let validate = format!("podSecurity: {{level: {level}, version: {newest}}}");
            let pod = json::to_string(case.get("pod").unwrap());
            let said = verdicts(&pod, &rule(&validate, ""), "");
            let wanted = match case.get("allowed").and_then(Value::as_bool).unwrap() {
                true => "pass",
                false => "fail",
            };
            let got = said.join(", ");
            if got.starts_with(wanted) {
                Ok(())
            } else {
                Err(format!("wanted {wanted}, got {got}"))
            }
        });
    }
    tally.finish();
    let Some(recorded) = corpus_json("validate/pod-security.json") else { return };
    let mut tally = Tally::new("podSecurity rules with exclusions, through rules");
    tally.known_failure(
        "pod-security-181",
        "without images, what is unset is excluded in every container, and nothing that is set",
    );
    for case in recorded.as_list().unwrap() {
        // The others say the same as the fixtures of the standards.
        let Some(observed) = case.get("observed") else {
            tally.leave_out();
            continue;
        };
        let mut pod = case.get("pod").unwrap().clone();
        if pod.get("apiVersion").is_none() {
            pod.as_map_mut().unwrap().insert("apiVersion", "v1");
        }
        let validate =
            format!("podSecurity: {}", json::to_string(case.get("podSecurity").unwrap()));
        let policy = rule(&validate, "");
        let refused = compiled(&policy).has_errors();
        if observed.get("refused").is_some() || refused {
            tally.case(case.str_at(["id"]).unwrap(), || {
                match refused == observed.get("refused").is_some() {
                    true => Ok(()),
                    false => Err(format!("refused {refused}: {:?}", messages(&compiled(&policy)))),
                }
            });
            continue;
        }
        tally.case(case.str_at(["id"]).unwrap(), || {
            let got = verdicts(&json::to_string(&pod), &policy, "").join(", ");
            let said = observed.str_at(["message"]).unwrap_or_default();
            // Kyverno moves the annotations of Pods into a template that Pods do not have.
            let said = said.replace("spec.template.metadata", "metadata");
            let wanted = format!("{} {said}", observed.str_at(["result"]).unwrap_or_default());
            if got == wanted { Ok(()) } else { Err(format!("\nwanted {wanted}\ngot    {got}")) }
        });
    }
    tally.finish();
}
