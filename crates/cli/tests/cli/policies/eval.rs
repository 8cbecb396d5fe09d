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
fn the_tree_and_the_functions_can_be_shown() {
    let run = kiln(&["eval", "jmespath", "--parse", "a || b"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "or\n  field \"a\"\n  field \"b\"\n"));
    let run = kiln(&["eval", "jmespath", "--functions"]);
    assert!(run.stdout.lines().any(|line| line.starts_with("to_upper(")), "{}", run.stdout);
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
fn every_language_lists_its_functions() {
    for (language, some) in [
        ("jmespath", "to_upper("),
        ("cel", "string.startsWith(string) -> bool"),
        ("cel", "RANGE.exists(x, TEST) (macro)"),
        ("jsonpath", "isDefined(value)"),
        ("gotemplate", "trunc "),
        ("conditions", "to_upper("),
    ] {
        for flag in ["--functions", "--list"] {
            let run = kiln(&["eval", language, flag]);
            assert_eq!(run.code, 0, "{language}: {}", run.stderr);
            assert!(run.stdout.contains(some), "{language}: {}", run.stdout);
        }
    }
    let run = kiln(&["eval", "cel", "--functions"]);
    assert!(run.stdout.lines().all(|line| !line.starts_with(['_', '@'])), "{}", run.stdout);
}

#[test]
fn a_pattern_that_takes_too_much_work_is_an_error() {
    let many = "a".repeat(20_000);
    let pattern = format!("data: {{k: '{}b'}}\n", "*a".repeat(20_000));
    let folder = Folder::with(&[
        ("pattern.yaml", pattern.as_str()),
        ("object.yaml", &format!("data: {{k: {many}}}\n")),
    ]);
    let run = folder.kiln(&["eval", "pattern", "pattern.yaml", "-i", "object.yaml"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("error: matching the pattern takes more than"), "{}", run.stderr);
    assert!(!run.stdout.contains("fail"), "{}", run.stdout);
}

#[test]
fn steps_of_a_pattern_that_are_left_out_are_told() {
    let items: Vec<String> = (0..1_200).map(|at| format!("{{name: n{at}}}")).collect();
    let folder = Folder::with(&[
        ("pattern.yaml", "items: [{name: '?*'}]\n"),
        ("object.yaml", &format!("items: [{}]\n", items.join(", "))),
    ]);
    let run = folder.kiln(&["eval", "pattern", "pattern.yaml", "-i", "object.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("only the first 1000 steps are shown"), "{}", run.stdout);
    let run = folder.kiln(&["eval", "pattern", "pattern.yaml", "-i", "object.yaml", "-o", "json"]);
    assert!(run.stdout.contains("\"stepsLeftOut\": true"), "{}", run.stdout.len());
}
