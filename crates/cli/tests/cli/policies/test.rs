//! `kiln test`

use std::io::{BufRead, BufReader};

use crate::harness::{Folder, Run};

const POLICY: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: add-label}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    preconditions:
      all:
      - {key: \"{{ request.object.metadata.name }}\", operator: NotEquals, value: skipped}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: shop}}}}
";

const RESOURCES: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: good, namespace: a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: skipped, namespace: a}
";

const PATCHED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: good, namespace: a, labels: {team: shop}}
";

fn suite(results: &str) -> String {
    format!(
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {{name: t}}\npolicies: [policy.yaml]\n\
         resources: [resources.yaml]\nresults:\n{results}"
    )
}

const GOOD: &str = "\
- {policy: add-label, rule: label, kind: ConfigMap, resources: [good], patchedResources: patched.yaml, result: pass}
- {policy: add-label, rule: label, kind: ConfigMap, resources: [a/skipped], result: skip}
";

fn folder(results: &str) -> Folder {
    Folder::with(&[
        ("s/policy.yaml", POLICY),
        ("s/resources.yaml", RESOURCES),
        ("s/patched.yaml", PATCHED),
        ("s/kyverno-test.yaml", &suite(results)),
    ])
}

fn test(results: &str, args: &[&str]) -> Run {
    folder(results).kiln(&[&["test"], args].concat())
}

#[test]
fn results_without_resources_are_about_all_that_match() {
    let all = "- {policy: add-label, rule: label, kind: ConfigMap, patchedResources: patched.yaml, result: pass}\n";
    let run = test(all, &[]);
    assert!(run.stdout.contains("ConfigMap a/good      pass"), "{}", run.stdout);
    assert!(run.stdout.contains("ConfigMap a/skipped   fail"), "{}", run.stdout);
}

#[test]
fn an_expected_failure_is_met_by_another_object() {
    let fails = "- {policy: add-label, rule: label, resources: [good], patchedResources: other.yaml, result: fail}\n";
    let folder = folder(fails);
    folder.write("s/other.yaml", PATCHED.replace("shop", "office"));
    assert_eq!(folder.kiln(&["test"]).code, 0);
    folder.write("s/other.yaml", PATCHED);
    let run = folder.kiln(&["test"]);
    assert!(run.code == 1 && run.stdout.contains("want fail, got pass"), "{}", run.stdout);
}

#[test]
fn a_selector_takes_some_results() {
    for (selector, shown, hidden) in [
        ("resource=good", "a/good", "a/skipped"),
        ("policy=add-*,resource=sk*", "a/skipped", "a/good"),
        ("rule=other", "0 passed", "a/good"),
    ] {
        let run = test(GOOD, &["--test-case-selector", selector]);
        assert_eq!(run.code, 0, "{selector}");
        assert!(
            run.stdout.contains(shown) && !run.stdout.contains(hidden),
            "{selector}: {}",
            run.stdout
        );
    }
    let run = test(GOOD, &["-t", "polcy=x"]);
    assert!(run.code == 2 && run.stderr.contains("did you mean policy=NAME?"), "{}", run.stderr);
}

#[test]
fn reports_have_forms_for_programs() {
    let folder = folder(GOOD);
    folder.write("s/patched.yaml", PATCHED.replace("shop", "<office>"));
    let json = folder.kiln(&["test", "--format", "json"]).stdout;
    for said in
        ["\"verdict\": \"fail\"", "\"got\": \"skip\"", "\"objectsCompared\": 1", "\"line\": 7"]
    {
        assert!(json.contains(said), "{said}: {json}");
    }
    let yaml = folder.kiln(&["test", "--format", "yaml"]).stdout;
    assert!(yaml.contains("summary:\n  brokenSuites: 0\n"), "{yaml}");
    let table = folder.kiln(&["test", "--format", "table"]).stdout;
    assert!(table.contains("objects differ") && !table.contains("+++"), "{table}");
    let run = folder.kiln(&["test", "--format", "junit", "-o", "report.xml"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    let xml = folder.read("report.xml");
    assert!(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"kiln test\" tests=\"2\" failures=\"1\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"add-label/label\" name=\"ConfigMap a/good\" file=\"s/kyverno-test.yaml\" line=\"7\">"), "{xml}");
    assert!(xml.contains("&lt;office&gt;") && !xml.contains("<office>"), "{xml}");
    let detailed = folder.kiln(&["test", "--detailed-results"]).stdout;
    assert!(
        detailed.contains("MESSAGE") && detailed.contains("patched v1/ConfigMap/a/good"),
        "{detailed}"
    );
}

#[test]
fn suites_are_found_by_name() {
    let folder = folder(GOOD);
    folder.write("s/deep/er/kyverno-test.yml", suite(GOOD).replace("[", "[../../"));
    folder.write("s/mine.yaml", suite(GOOD));
    let count = |args: &[&str]| {
        let run = folder.kiln(&[&["test"], args].concat());
        run.stdout
            .lines()
            .last()
            .unwrap_or_default()
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(count(&["s"]), "2");
    assert_eq!(count(&["s/kyverno-test.yaml"]), "1");
    assert_eq!(count(&["s/", "./s"]), "2");
    assert_eq!(count(&["--file-name", "mine.yaml"]), "1");
    let none = folder.kiln(&["test", "--file-name", "none.yaml"]);
    assert_eq!(none.code, 0);
    assert!(none.stderr.contains("there is no none.yaml below ."), "{}", none.stderr);
    assert_eq!(folder.kiln(&["test", "--file-name", "none.yaml", "--require-tests"]).code, 1);
    assert_eq!(folder.kiln(&["test", "nowhere"]).code, 2);
    assert_eq!(folder.kiln(&["test", "https://example.com/policies"]).code, 2);
}

#[test]
fn files_may_be_folders_and_patterns() {
    let folder = folder(GOOD);
    let moved = suite(GOOD)
        .replace("[policy.yaml]", "[policies]")
        .replace("[resources.yaml]", "[\"res*.yaml\"]");
    folder.write("s/kyverno-test.yaml", moved);
    folder.write("s/policies/one.yaml", POLICY);
    assert_eq!(folder.kiln(&["test"]).code, 0);
    folder.write("s/kyverno-test.yaml", suite(GOOD).replace("resources.yaml", "no*.yaml"));
    let run = folder.kiln(&["test"]);
    assert!(run.code == 2 && run.stderr.contains("no*.yaml means no file"), "{}", run.stderr);
}

#[test]
fn a_lookup_that_nothing_answers_is_an_error_that_says_so() {
    let policy = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: count}
spec:
  rules:
  - name: services
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: number
      apiCall: {urlPath: \"/api/v1/namespaces/a/services\", jmesPath: \"items | length(@)\"}
    mutate: {patchStrategicMerge: {data: {services: \"{{ number }}\"}}}
";
    let folder = Folder::with(&[
        ("policy.yaml", policy),
        ("resources.yaml", RESOURCES),
        (
            "kyverno-test.yaml",
            &suite("- {policy: count, rule: services, resources: [good], result: pass}\n"),
        ),
        (
            "patched.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: a}, data: {services: 2}}\n",
        ),
    ]);
    let run = folder.kiln(&["test"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout
            .contains("no object of kind Service is given to answer /api/v1/namespaces/a/services"),
        "{}",
        run.stdout
    );
    let expected = "- {policy: count, rule: services, resources: [good], patchedResources: patched.yaml, result: pass}\n";
    for answer in [
        "clusterResources: [cluster.yaml]\n",
        "apiCallResponses: [{urlPath: /api/v1/namespaces/a/services, response: {body: {items: [1, 2]}}}]\n",
        "values: {policies: [{name: count, rules: [{name: services, values: {number: 2}}]}]}\n",
    ] {
        folder.write(
            "cluster.yaml",
            "{kind: ClusterResource, spec: {resources: [\
            {apiVersion: v1, kind: Service, metadata: {name: x, namespace: a}}, \
            {apiVersion: v1, kind: Service, metadata: {name: z, namespace: a}}]}}",
        );
        folder.write("kyverno-test.yaml", suite(expected) + answer);
        let run = folder.kiln(&["test"]);
        assert_eq!(run.code, 0, "{answer}: {}{}", run.stdout, run.stderr);
    }
}

#[test]
fn values_are_given_to_the_elements_of_loops_and_to_subresources() {
    let policy = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: images}
spec:
  rules:
  - name: entry
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      foreach:
      - list: request.object.spec.containers
        context:
        - name: data
          imageRegistry: {reference: \"{{ element.image }}\"}
        patchesJson6902: |-
          - {op: add, path: \"/metadata/annotations/{{element.name}}\", value: \"{{ data.configData.user }}\"}
  - name: bind
    match: {any: [{resources: {kinds: [Pod/binding]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {bound: \"yes\"}}}}
";
    let resources = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: a}
spec: {containers: [{name: one, image: x}, {name: two, image: y}]}
---
apiVersion: v1
kind: Binding
metadata: {name: web, namespace: a}
target: {kind: Node, name: n}
";
    let values = "\
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
policies:
- name: images
  rules:
  - name: entry
    foreachValues:
      data.configData.user: [root, nobody]
subresources:
- subresource: {name: pods/binding, kind: Binding, version: v1, namespaced: true}
  parentResource: {name: pods, kind: Pod, version: v1, namespaced: true}
";
    let patched = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: a, annotations: {one: root, two: nobody}}
spec: {containers: [{name: one, image: x}, {name: two, image: y}]}
---
apiVersion: v1
kind: Binding
metadata: {name: web, namespace: a, labels: {bound: \"yes\"}}
target: {kind: Node, name: n}
";
    let results = "\
- {policy: images, rule: entry, kind: Pod, resources: [web], patchedResources: patched.yaml, result: pass}
- {policy: images, rule: bind, kind: Binding, resources: [web], patchedResources: patched.yaml, result: pass}
";
    let folder = Folder::with(&[
        ("policy.yaml", policy),
        ("resources.yaml", resources),
        ("values.yaml", values),
        ("patched.yaml", patched),
        ("kyverno-test.yaml", &(suite(results) + "variables: values.yaml\n")),
    ]);
    let run = folder.kiln(&["test"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("2 passed, 0 failed; 2 objects compared"), "{}", run.stdout);
}

#[test]
fn operations_are_those_of_the_result() {
    let policy = POLICY
        .replace("NotEquals, value: skipped", "NotEquals, value: nothing")
        .replace("kinds: [ConfigMap]", "kinds: [ConfigMap], operations: [UPDATE]");
    let results = "\
- {policy: add-label, rule: label, resources: [good], operation: UPDATE, patchedResources: patched.yaml, result: pass}
- {policy: add-label, rule: label, resources: [good], operation: CREATE, result: skip}
";
    let folder = folder(results);
    folder.write("s/policy.yaml", policy);
    let run = folder.kiln(&["test"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("1 passed, 0 failed, 1 excluded"), "{}", run.stdout);
    folder.write("s/kyverno-test.yaml", suite(&results.replace("CREATE", "MAKE")));
    assert_eq!(folder.kiln(&["test"]).code, 2);
}

#[test]
fn expected_objects_that_nothing_is_compared_with_are_named() {
    let folder = folder(GOOD);
    folder.write("s/patched.yaml", format!("{PATCHED}---\n{}", PATCHED.replace("good", "other")));
    let run = folder.kiln(&["test"]);
    assert_eq!(run.code, 0);
    assert!(
        run.stderr.contains("warning: nothing was compared with v1/ConfigMap/a/other"),
        "{}",
        run.stderr
    );
}

#[test]
fn watching_runs_again_when_a_file_changes() {
    let folder = folder(GOOD);
    let mut child = folder.leave_running(&["test", "--watch"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_summary = || {
        let summary =
            |line: &std::io::Result<String>| line.as_ref().is_ok_and(|l| l.contains("compared"));
        lines.find(summary).unwrap().unwrap()
    };
    assert_eq!(next_summary(), "1 suite: 2 passed, 0 failed; 1 object compared");
    folder.write("s/patched.yaml", PATCHED.replace("shop", "somebody"));
    assert_eq!(next_summary(), "1 suite: 1 passed, 1 failed; 1 object compared");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn words_of_forms_are_forms_as_for_kyverno() {
    let folder = folder(GOOD);
    for (word, begins) in
        [("json", "{"), ("yaml", "suites:"), ("junit", "<?xml"), ("markdown", "| ID |")]
    {
        for option in ["-o", "--output-format"] {
            let run = folder.kiln(&["test", option, word]);
            assert!(run.code == 0 && run.stdout.starts_with(begins), "{word}: {}", run.stdout);
            assert!(!folder.path().join(word).exists());
        }
    }
    assert_eq!(folder.kiln(&["test", "-o", "./json"]).stdout, "");
    assert!(folder.read("json").starts_with("s/kyverno-test.yaml\n"));
}

#[test]
fn a_file_holds_several_suites() {
    let folder = folder(GOOD);
    let one = suite(GOOD);
    folder.write("s/kyverno-test.yaml", format!("{one}---\n{one}"));
    let run = folder.kiln(&["test"]);
    assert!(
        run.code == 0 && run.stdout.ends_with("1 suite: 4 passed, 0 failed; 2 objects compared\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn letter_case_and_unknown_rules_are_warned_about() {
    let run = test(
        "- {policy: add-label, rule: label, kind: ConfigMap, resources: [good], isMUtatingPolicy: false, result: pass}\n",
        &[],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("warning: results[0].isMUtatingPolicy is in another letter case")
            && run.stderr.contains("write isMutatingPolicy"),
        "{}",
        run.stderr
    );
    let unknown =
        "- {policy: add-label, rule: lable, kind: ConfigMap, resources: [good], result: pass}\n";
    let run = test(unknown, &[]);
    assert!(run.code == 0 && run.stdout.contains("excluded"), "{}", run.stdout);
    assert!(
        run.stderr.contains(
            "warning: policy \"add-label\" has no rule \"lable\", so nothing is tested here"
        ) && run.stderr.contains("did you mean \"label\"?"),
        "{}",
        run.stderr
    );
    assert_eq!(test(unknown, &["--warnings-as-errors"]).code, 1);
}

#[test]
fn targets_that_were_expected_and_never_made_fail() {
    let policy = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: mark}
spec:
  rules:
  - name: mark
    match: {any: [{resources: {kinds: [Namespace], names: [other]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Secret, name: s, namespace: a}]
      patchStrategicMerge: {metadata: {labels: {marked: 'yes'}}}
";
    let target = |labels: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: a{labels}}}\n")
    };
    let suite = "\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [ns.yaml]
targetResources: [target.yaml]
results:
- {policy: mark, rule: mark, kind: Namespace, resources: [shop], patchedResources: patched.yaml, result: pass}
";
    let folder = Folder::with(&[
        ("policy.yaml", policy),
        ("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"),
        ("target.yaml", &target("")),
        ("patched.yaml", &target(", labels: {marked: 'yes'}")),
        ("kyverno-test.yaml", suite),
    ]);
    let run = folder.kiln(&["test"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.contains("Secret a/s was never changed"), "{}", run.stdout);
    folder.write("patched.yaml", target("").replace("name: s", "name: nobody"));
    let run = folder.kiln(&["test"]);
    assert!(
        run.code == 1 && run.stdout.contains("Secret a/nobody was expected and never made"),
        "{}",
        run.stdout
    );
    // What is as it was given was not to be changed.
    folder.write("patched.yaml", target(""));
    assert_eq!(folder.kiln(&["test"]).code, 0);
}

#[test]
fn rules_that_are_not_run_are_known_by_rewritten_names() {
    let folder = folder(
        "- {policy: add-label, rule: autogen-label, kind: ConfigMap, resources: [good], result: fail}\n",
    );
    folder.write(
        "s/policy.yaml",
        POLICY
            .replace(
                "mutate: {patchStrategicMerge: {metadata: {labels: {team: shop}}}}",
                "verifyImages: [{imageReferences: ['*']}]",
            )
            .replace("kyverno.io/v1", "kyverno.io/v2beta1"),
    );
    let run = folder.kiln(&["test"]);
    assert!(
        run.code == 0 && run.stdout.contains("not run by Kiln: verifyImages"),
        "{} {}",
        run.stdout,
        run.stderr
    );
}

#[test]
fn many_suites_come_in_order() {
    let names: Vec<String> = (0..24).map(|n| format!("s{n:02}")).collect();
    let folder = Folder::with(&[]);
    for name in &names {
        folder.write(&format!("{name}/policy.yaml"), POLICY);
        folder.write(&format!("{name}/resources.yaml"), RESOURCES);
        folder.write(&format!("{name}/patched.yaml"), PATCHED);
        folder.write(&format!("{name}/kyverno-test.yaml"), suite(GOOD));
    }
    let run = folder.kiln(&["test", "--jobs", "4"]);
    let shown: Vec<&str> =
        run.stdout.lines().filter(|line| line.ends_with("kyverno-test.yaml")).collect();
    let wanted: Vec<String> =
        names.iter().map(|name| format!("{name}/kyverno-test.yaml")).collect();
    assert_eq!(shown, wanted);
    assert!(run.stdout.contains("\n48   add-label"), "rows are counted through: {}", run.stdout);
    assert!(run.stdout.ends_with("24 suites: 48 passed, 0 failed; 24 objects compared\n"));
}
