//! What `kiln apply` prints about resources that fail: places, fixes, SARIF, JUnit and policy reports.

use kiln_testkit::{Tally, corpus, corpus_json};
use kiln_value::{Value, json};

use crate::harness::Folder;

const POLICY: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: limits
  annotations:
    policies.kyverno.io/title: Limits
    policies.kyverno.io/category: Best Practices
    policies.kyverno.io/severity: medium
spec:
  rules:
  - name: memory
    match: {any: [{resources: {kinds: [Pod]}}]}
    reportProperties:
      team: \"{{ request.object.metadata.labels.team || 'none' }}\"
      failMessage: 'ask {{ request.object.metadata.name }}'
    validate:
      message: limits are required
      pattern:
        spec:
          =(hostNetwork): false
          containers:
          - resources:
              limits:
                memory: '?*'
                cpu: '<=4'
";

const PODS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  hostNetwork: true
  containers:
  - name: x
    image: nginx
---
apiVersion: v1
kind: Pod
metadata: {name: b, labels: {team: shop}}
spec:
  containers:
  - name: x
    image: nginx
    resources: {limits: {memory: 1Gi}}
";

fn folder() -> Folder {
    Folder::with(&[("policy.yaml", POLICY), ("pods.yaml", PODS)])
}

fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    let steps = pointer.split('/');
    steps.fold(value, |value, step| {
        let next = match step.parse::<usize>() {
            Ok(index) => value.index(index),
            Err(_) => value.get(step),
        };
        next.unwrap_or_else(|| panic!("{pointer}: no {step} in {}", json::to_string(value)))
    })
}

fn line_and_column(region: &Value) -> (Option<i64>, Option<i64>) {
    (at(region, "startLine").as_i64(), at(region, "startColumn").as_i64())
}

#[test]
fn sarif_points_at_the_wrong_value_and_at_the_pattern() {
    let run = folder().kiln(&["apply", "policy.yaml", "-r", "pods.yaml", "-o", "sarif"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let log = json::parse(&run.stdout).unwrap();
    assert_eq!(log.str_at(["version"]), Some("2.1.0"));
    let run = at(&log, "runs/0");
    let rule = at(run, "tool/driver/rules/0");
    assert_eq!(rule.str_at(["id"]), Some("limits/memory"));
    assert_eq!(at(rule, "shortDescription/text").as_str(), Some("Limits"));
    assert_eq!(at(rule, "properties/security-severity").as_str(), Some("5.5"));
    let results = at(run, "results").as_list().unwrap();
    assert_eq!(results.len(), 1, "the Pod that passes is no finding");
    let finding = &results[0];
    assert_eq!(finding.str_at(["ruleId"]), Some("limits/memory"));
    assert_eq!(finding.str_at(["level"]), Some("warning"));
    let text = at(finding, "message/text").as_str().unwrap();
    assert!(text.contains("spec.hostNetwork: true does not match false"), "{text}");
    assert!(text.contains("To pass, set spec.hostNetwork to false and set spec.con"), "{text}");
    let place = at(finding, "locations/0/physicalLocation");
    assert_eq!(at(place, "artifactLocation/uri").as_str(), Some("pods.yaml"));
    assert_eq!(line_and_column(at(place, "region")), (Some(5), Some(16)));
    let policy = at(finding, "relatedLocations/0/physicalLocation");
    assert_eq!(at(policy, "artifactLocation/uri").as_str(), Some("policy.yaml"));
    assert_eq!(line_and_column(at(policy, "region")), (Some(20), Some(27)));
}

#[test]
fn sarif_of_policies_in_cel_points_at_the_resource() {
    let policy = "\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: named}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: object.metadata.name == 'b', message: not b}]
";
    let folder = folder();
    folder.write("policy.yaml", policy);
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml", "--format", "sarif"]);
    let log = json::parse(&run.stdout).unwrap();
    let finding = at(&log, "runs/0/results/0");
    assert_eq!(finding.str_at(["ruleId"]), Some("named"));
    assert_eq!(finding.str_at(["level"]), Some("error"));
    let region = at(finding, "locations/0/physicalLocation/region");
    assert_eq!(line_and_column(region), (Some(1), Some(1)));
    let region = at(finding, "relatedLocations/0/physicalLocation/region");
    assert_eq!(line_and_column(region), (Some(7), Some(30)));
}

#[test]
fn without_findings_there_is_an_empty_run() {
    let folder = folder();
    folder.write("pods.yaml", PODS.split("---\n").nth(1).unwrap());
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml", "-o", "sarif"]);
    let log = json::parse(&run.stdout).unwrap();
    assert_eq!((run.code, at(&log, "runs/0/results").as_list().unwrap().len()), (0, 0));
}

#[test]
fn junit_has_a_case_for_each_rule_and_resource() {
    let run = folder().kiln(&["apply", "policy.yaml", "-r", "pods.yaml", "-o", "junit"]);
    assert_eq!(run.code, 1);
    let lines: Vec<&str> = run.stdout.lines().map(str::trim).collect();
    assert_eq!(
        lines[2],
        "<testsuite name=\"limits\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\">"
    );
    let case = "<testcase classname=\"limits/memory\" name=\"Pod default/";
    assert_eq!(lines[3], format!("{case}a\" file=\"pods.yaml\" line=\"5\">"));
    assert!(run.stdout.contains("pods.yaml:5:16: spec.hostNetwork: true does not"), "{run:?}");
    assert!(lines.contains(&format!("{case}b\" file=\"pods.yaml\" line=\"10\"/>").as_str()));
}

#[test]
fn only_failures_are_shown_and_all_are_counted() {
    for form in ["text", "table", "json", "junit"] {
        let args = ["apply", "policy.yaml", "-r", "pods.yaml", "--fail-only", "--format", form];
        let run = folder().kiln(&args);
        assert_eq!(run.code, 1);
        let (a, b) = (run.stdout.contains("default/a"), run.stdout.contains("default/b"));
        assert_eq!((a, b), (true, false), "{form}: {}", run.stdout);
        if form == "text" {
            assert!(run.stdout.ends_with("pass: 1, fail: 1, warn: 0, error: 0, skip: 0\n"));
        }
    }
}

#[test]
fn a_fix_names_every_change_and_is_one_that_passes() {
    let folder = folder();
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml"]);
    let fix = "    help: set spec.hostNetwork to false and set spec.containers[0].resources.limits.memory\n";
    assert!(run.stdout.contains(fix), "{}", run.stdout);
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml", "-o", "json"]);
    let fix = json::parse(&run.stdout).unwrap();
    let fix = at(&fix, "results/0/fix");
    assert_eq!(
        json::to_string(fix),
        "[{\"path\":\"spec.hostNetwork\",\"pointer\":\"/spec/hostNetwork\",\"action\":\"set\",\"value\":false},\
         {\"path\":\"spec.containers[0].resources.limits.memory\",\
         \"pointer\":\"/spec/containers/0/resources/limits/memory\",\"action\":\"set\",\"matching\":\"?*\"}]"
    );
    let fixed = PODS.replace("hostNetwork: true", "hostNetwork: false").replacen(
        "image: nginx\n",
        "image: nginx\n    resources: {limits: {memory: x}}\n",
        1,
    );
    folder.write("pods.yaml", fixed);
    assert_eq!(folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml"]).code, 0);
}

/// A pattern that asks for another value each time: any value alone would meet it.
#[test]
fn a_fix_that_does_not_pass_is_not_shown() {
    let wanted = "=(hostname): 'not-{{ request.object.spec.hostname }}'";
    let folder = folder();
    folder.write("policy.yaml", POLICY.replace("=(hostNetwork): false", wanted));
    let pod = PODS.replace("hostNetwork: true", "hostname: a");
    folder.write("pods.yaml", pod.split("---\n").next().unwrap());
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml"]);
    let fault = "spec.hostname: \"a\" does not match \"not-a\"";
    assert!(run.stdout.contains(fault), "{}", run.stdout);
    assert!(!run.stdout.contains("help:"), "{}", run.stdout);
}

/// Of several patterns, the one that takes the fewest changes is named, unless another takes as few.
#[test]
fn a_fix_for_several_patterns_is_the_smallest() {
    let policy = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: root}
spec:
  rules:
  - name: root
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      anyPattern:
      - spec: {securityContext: {runAsNonRoot: true}}
      - spec: {containers: [{securityContext: {runAsNonRoot: true}}]}
";
    let folder = folder();
    folder.write("policy.yaml", policy);
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml"]);
    assert!(!run.stdout.contains("help:"), "either would do: {}", run.stdout);
    let two = PODS.replace("  - name: x\n", "  - name: y\n    image: nginx\n  - name: x\n");
    folder.write("pods.yaml", two);
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pods.yaml"]);
    let fix = "help: set spec.securityContext.runAsNonRoot to true\n";
    assert_eq!(run.stdout.matches(fix).count(), 2, "{}", run.stdout);
}

#[test]
fn reports_carry_what_readers_of_reports_ask_for() {
    let args = ["apply", "policy.yaml", "-r", "pods.yaml", "-p", "--output-format", "json"];
    let run = folder().kiln(&args);
    let report = json::parse(&run.stdout).unwrap();
    let failed = at(&report, "results/0");
    for (key, wanted) in [
        ("source", "kyverno"),
        ("policy", "limits"),
        ("rule", "memory"),
        ("message", "ask a"),
        ("result", "fail"),
        ("category", "Best Practices"),
        ("severity", "medium"),
    ] {
        assert_eq!(failed.str_at([key]), Some(wanted), "{key}");
    }
    assert_eq!(at(failed, "scored").as_bool(), Some(true));
    assert_eq!(at(failed, "properties/team").as_str(), Some("none"));
    assert_eq!(at(failed, "properties/process").as_str(), Some("background scan"));
    assert!(at(failed, "timestamp/seconds").as_i64() > Some(0));
    let passed = at(&report, "results/1");
    assert_eq!(at(passed, "properties/team").as_str(), Some("shop"));
    assert_eq!(passed.str_at(["message"]), Some("validation rule 'memory' passed."));
}

/// What reports of Kiln say and what Kyverno's say, without what may differ.
fn comparable(result: &Value) -> String {
    let resource = match result.get("resources").and_then(|list| list.index(0)) {
        Some(Value::String(text)) => text.to_string(),
        Some(resource) => {
            let parts = ["apiVersion", "kind", "namespace", "name"];
            let parts = parts.into_iter().filter_map(|part| resource.str_at([part]));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
        }
        None => String::new(),
    };
    // Kyverno: data and requests have no name.
    let is_payload = resource == "///"
        || ["JSON/", "HTTP/", "Envoy/"].iter().any(|mode| resource.starts_with(mode));
    let resource = if is_payload { "data".to_owned() } else { resource };
    let text = |key: &str| result.str_at([key]).unwrap_or_default().to_owned();
    // Kyverno: a blank is missing.
    let message = text("message").replace("policy exceptions", "policy exception ");
    // Kiln says what was patched, and which conditions.
    let is_patched = message.starts_with("patched ") || message.contains("successfully applied");
    let message = match message.as_str() {
        _ if is_patched => "success".to_owned(),
        "match conditions aren't met" => "the conditions do not hold".to_owned(),
        _ => message,
    };
    [
        text("source"),
        text("policy"),
        text("rule"),
        text("result"),
        resource,
        message,
        text("category"),
        text("severity"),
    ]
    .join(" · ")
}

#[test]
fn recorded_runs_of_kyverno_end_with_the_same_report() {
    let (Some(files), Some(cases)) = (
        corpus("kyverno-cli-validate/apply/files"),
        corpus_json("kyverno-cli-validate/apply/cases.json"),
    ) else {
        return;
    };
    let mut tally = Tally::new("runs of kyverno apply");
    let folder = Folder::with(&[]);
    for case in cases.as_list().unwrap() {
        let kinds: Vec<&str> =
            at(case, "kinds").as_list().unwrap().iter().filter_map(Value::as_str).collect();
        let deletes = kinds.iter().any(|kind| ["DeletingPolicy", "CleanupPolicy"].contains(kind));
        let mut args = vec!["apply".to_owned()];
        let path = |value: &Value| match value.as_str().unwrap() {
            "-" => "-".to_owned(),
            path => files.join(path).display().to_string(),
        };
        let list = |key: &str| {
            case.get(key).and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default()
        };
        args.extend(list("policies").iter().map(path));
        for (key, option) in [
            ("resources", "--resource"),
            ("json", "--json"),
            ("http", "--http-payload"),
            ("envoy", "--envoy-payload"),
            ("exceptions", "--exception"),
            ("crds", "--crd-paths"),
            ("parameterResources", "--parameter-resource"),
        ] {
            args.extend(list(key).iter().flat_map(|value| [option.to_owned(), path(value)]));
        }
        for (key, option) in
            [("values", "--values-file"), ("userinfo", "--userinfo"), ("context", "--context-file")]
        {
            args.extend(
                case.get(key).into_iter().flat_map(|value| [option.to_owned(), path(value)]),
            );
        }
        for (key, option) in [
            ("auditWarn", "--audit-warn"),
            ("exceptionsWithinPolicies", "--exceptions-within-policies"),
            ("exceptionsWithinResources", "--exceptions-within-resources"),
        ] {
            args.extend(case.get(key).map(|_| option.to_owned()));
        }
        for set in list("set") {
            args.extend(["--set".to_owned(), set.as_str().unwrap().to_owned()]);
        }
        if let Some(code) = case.get("warnExitCode") {
            args.extend(["--warn-exit-code".to_owned(), json::to_string(code)]);
        }
        args.extend(["-p", "--output-format", "json"].map(str::to_owned));
        let input = case.str_at(["stdin"]).map(|path| std::fs::read(files.join(path)).unwrap());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let run = folder.kiln_with_input(&args, &input.unwrap_or_default());
        let of = |report: &Value| {
            let results = report.get("results").and_then(Value::as_list);
            results.into_iter().flat_map(|list| list.iter()).map(comparable).collect::<Vec<_>>()
        };
        let observed = at(case, "observed");
        let mut wanted = of(observed);
        let texts = run.stdout.split("\n---\n").filter(|text| !text.trim().is_empty());
        let reports = texts.map(json::parse).collect::<Result<Vec<_>, _>>();
        let reports = reports.unwrap_or_else(|error| panic!("{error}: {run:?}"));
        let mut got = reports.iter().flat_map(of).collect::<Vec<_>>();
        if observed.get("results").is_none() {
            // Of this one the test of Kyverno only counts.
            for (key, word) in [("wantPass", " · pass · "), ("wantFail", " · fail · ")] {
                let many = got.iter().filter(|line| line.contains(word)).count();
                let expected = at(case, key).as_i64().unwrap();
                assert_eq!(i64::try_from(many).unwrap(), expected, "{key} {got:#?}");
            }
            got.clear();
        }
        wanted.sort();
        got.sort();
        tally.case(case.str_at(["id"]).unwrap(), || {
            // Kyverno: a resource that is kept has failed. Here nothing is wrong with it.
            let code = if deletes { 0 } else { at(observed, "exitCode").as_i64().unwrap() };
            match i64::from(run.code) == code && got == wanted {
                true => Ok(()),
                false => Err(format!(
                    "exit {}, wanted {code}\n got {got:#?}\n wanted {wanted:#?}\n{}",
                    run.code, run.stderr
                )),
            }
        });
    }
    tally.finish();
}
