//! `kiln eval`

use crate::harness::{Folder, kiln};

const POD: &str = "kind: Pod\nspec:\n  containers:\n  - {name: web, image: nginx}\n";

#[test]
fn jmespath_reads_yaml_or_json_from_a_file_or_standard_input() {
    let folder = Folder::with(&[("pod.yaml", POD)]);
    let run = folder.kiln(&["eval", "jmespath", "--input", "pod.yaml", "spec.containers[0]"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "{\n  \"name\": \"web\",\n  \"image\": \"nginx\"\n}\n")
    );
    let run = folder.kiln_with_input(&["eval", "jmespath", "length(@)"], b"[1, 2, 3]");
    assert_eq!((run.code, run.stdout.as_str()), (0, "3\n"));
    let run = folder.kiln(&["eval", "jmespath", "-i", "pod.yaml", "spec", "--format", "yaml"]);
    assert_eq!(run.stdout, "containers:\n- image: nginx\n  name: web\n");
    let run = folder.kiln(&["eval", "jmespath", "add('1h', '90s')"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "\"1h1m30s\"\n"), "{}", run.stderr);
}

#[test]
fn a_failing_expression_has_a_caret_and_code_1() {
    let folder = Folder::with(&[("pod.yaml", POD)]);
    let run = folder.kiln(&["eval", "jmespath", "-i", "pod.yaml", "spec.missing"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("1 | spec.missing\n  |      ^^^^^^^"), "{}", run.stderr);
    let run = folder.kiln(&["eval", "jmespath", "spec.["]);
    assert_eq!(run.code, 1);
    let run = folder.kiln(&["eval", "jmespath", "-i", "pod.yaml", "lenght(spec)"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("length"), "{}", run.stderr);
}

#[test]
fn bad_data_has_code_2() {
    let folder = Folder::with(&[("two.yaml", "a: 1\n---\na: 2\n"), ("bad.yaml", "a: [\n")]);
    let run = folder.kiln(&["eval", "jmespath", "-i", "two.yaml", "a"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("two.yaml:3:1"), "{}", run.stderr);
    assert_eq!(folder.kiln(&["eval", "jmespath", "-i", "bad.yaml", "a"]).code, 2);
    assert_eq!(folder.kiln(&["eval", "jmespath", "-i", "none.yaml", "a"]).code, 2);
}

#[test]
fn the_tree_and_the_functions_can_be_shown() {
    let run = kiln(&["eval", "jmespath", "--parse", "a || b"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "or\n  field \"a\"\n  field \"b\"\n"));
    let run = kiln(&["eval", "jmespath", "--functions"]);
    assert!(run.stdout.lines().any(|line| line.starts_with("to_upper(")), "{}", run.stdout);
}

const CONDITIONS: &str = "\
any:
- key: '{{ request.operation }}'
  operator: In
  value: [CREATE, UPDATE]
all:
- key: '{{ spec.memory }}'
  operator: LessThan
  value: 1Gi
";

#[test]
fn conditions_say_what_was_compared_and_how() {
    let folder = Folder::with(&[
        ("conditions.yaml", CONDITIONS),
        ("good.yaml", "request: {operation: CREATE}\nspec: {memory: 512Mi}\n"),
        ("bad.yaml", "request: {operation: DELETE}\nspec: {memory: 512Mi}\n"),
        ("poor.yaml", "request: {operation: CREATE}\n"),
        ("typo.yaml", "all:\n- key: a\n  operator: Equls\n  value: b\n"),
    ]);
    let run = folder.kiln(&["eval", "conditions", "conditions.yaml", "--input", "good.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let wanted = "any[0]: \"CREATE\" In [\"CREATE\",\"UPDATE\"] holds, ";
    assert!(run.stdout.starts_with(wanted), "{}", run.stdout);
    assert!(
        run.stdout.contains("all[0]: \"512Mi\" LessThan \"1Gi\" holds, compared as quantities")
    );
    assert!(run.stdout.ends_with("\nthe conditions hold\n"));

    let run = folder.kiln(&[
        "eval",
        "conditions",
        "conditions.yaml",
        "-i",
        "bad.yaml",
        "--format",
        "json",
    ]);
    assert_eq!(run.code, 1);
    let result = kiln_value::json::parse(&run.stdout).unwrap();
    assert_eq!(result.get("holds"), Some(&false.into()));

    let run = folder.kiln(&["eval", "conditions", "conditions.yaml", "-i", "poor.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("conditions.yaml:6:8"), "{}", run.stderr);

    let run = folder.kiln(&["eval", "conditions", "typo.yaml", "-i", "good.yaml"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("typo.yaml:3:13") && run.stderr.contains("Equals"),
        "{}",
        run.stderr
    );
}

#[test]
fn cel_takes_variables_from_the_input_and_from_files() {
    let folder =
        Folder::with(&[("pod.yaml", POD), ("vars.yaml", "object: {replicas: 3}\nname: web\n")]);
    let run = folder.kiln(&[
        "eval",
        "cel",
        "-i",
        "vars.yaml",
        "object.replicas > 2 && name.startsWith('w')",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "true\n"), "{}", run.stderr);
    let run = folder.kiln(&[
        "eval",
        "cel",
        "--var",
        "pod=pod.yaml",
        "pod.spec.containers.map(c, c.image)",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "[\n  \"nginx\"\n]\n"), "{}", run.stderr);
    for (expression, result) in [
        ("b'abc'", "\"YWJj\"\n"),
        ("timestamp('2024-01-02T03:04:05Z')", "\"2024-01-02T03:04:05Z\"\n"),
        ("type(1)", "\"int\"\n"),
        ("optional.none()", "null\n"),
        ("optional.of('x')", "\"x\"\n"),
        ("quantity('1Gi').isGreaterThan(quantity('512Mi'))", "true\n"),
    ] {
        let run = folder.kiln(&["eval", "cel", expression]);
        assert_eq!((run.code, run.stdout.as_str()), (0, result), "{expression}: {}", run.stderr);
    }
    let run = folder.kiln(&["eval", "cel", "--type", "[1].map(x, x * 2)"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "list(int)\n"), "{}", run.stderr);
}

#[test]
fn cel_errors_have_a_caret_and_code_1() {
    let folder = Folder::with(&[("list.json", "[1]"), ("vars.yaml", "object: {}\n")]);
    let run = folder.kiln(&["eval", "cel", "1 + 'a'"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("1 | 1 + 'a'\n  |   ^"), "{}", run.stderr);
    let run = folder.kiln(&["eval", "cel", "-i", "vars.yaml", "object.missing"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("missing"), "{}", run.stderr);
    assert_eq!(folder.kiln(&["eval", "cel", "unknown"]).code, 1);
    assert_eq!(folder.kiln(&["eval", "cel", "-i", "list.json", "1"]).code, 2);
    assert_eq!(folder.kiln(&["eval", "cel", "--var", "x", "1"]).code, 2);
}

#[test]
fn a_map_without_conditions_does_not_hold() {
    let folder = Folder::with(&[("c.yaml", "al:\n- {key: a, operator: Equals, value: b}\n")]);
    let run = folder.kiln(&["eval", "conditions", "c.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("there are no conditions here"), "{}", run.stderr);
}

#[test]
fn cel_says_which_variables_there_are() {
    let folder = Folder::with(&[("in.yaml", "object: {a: 1}\nother: 2\n")]);
    let hint = |expression: &str, input: &str| {
        let run = folder.kiln(&["eval", "cel", "-i", input, expression]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        run.stderr.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(hint("objct.a", "in.yaml"), "help: did you mean \"object\"?");
    assert_eq!(hint("nobody.a", "in.yaml"), "help: the variables are object, other");
}
