//! What is said of a mistake in a chart: where it is, which value is missing, what to do next.

use kiln_chart::{Chart, ChartError, ChartOptions, MemoryFiles, render};
use kiln_value::Map;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

fn mistake(files: &[(&str, &str)]) -> String {
    let rendered = || -> Result<String, ChartError> {
        let options = ChartOptions::default();
        let chart = Chart::load(&MemoryFiles::new(files.iter().copied()), &options)?;
        Ok(render(chart, &Map::new(), &options)?.text())
    };
    rendered().unwrap_err().to_string()
}

#[test]
fn a_template_that_fails_names_what_is_not_set() {
    for (template, said) in [
        (
            "a: {{ .Values.image.tag }}",
            "app/templates/a.yaml:1:7: nil pointer evaluating interface {}.tag (.Values.image has no value: set it, or test it with \
             `if`)",
        ),
        (
            "a: {{ $.Values.image.tag.name }}",
            "app/templates/a.yaml:1:7: nil pointer evaluating interface {}.tag ($.Values.image has no value: set it, or test it with \
             `if`)",
        ),
        (
            r#"a: {{ required "name a team" .Values.team }}"#,
            "app/templates/a.yaml:1:7: name a team (set .Values.team)",
        ),
        (
            r#"a: {{ .Values.team | required "name a team" }}"#,
            "app/templates/a.yaml:1:22: name a team",
        ),
        (
            "a: {{ nindnt 2 .Values }}",
            "app/templates/a.yaml:1:7: function \"nindnt\" not defined (did you mean nindent?)",
        ),
    ] {
        assert_eq!(mistake(&[("Chart.yaml", CHART), ("templates/a.yaml", template)]), said);
    }
}

#[test]
fn text_that_is_not_yaml_has_its_line_in_what_was_rendered() {
    let template = "{{ if true }}\n\n\na: b\n c: d\n{{ end }}";
    let said = mistake(&[("Chart.yaml", CHART), ("templates/a.yaml", template)]);
    assert!(said.starts_with("app/templates/a.yaml (rendered):"), "{said}");
    assert!(said.contains("what the template renders is not YAML"), "{said}");
}

#[test]
fn files_of_a_chart_that_are_wrong_are_named() {
    let said = mistake(&[("Chart.yaml", "apiVersion: v2\nname: app\nversoin: 1.0.0\n")]);
    assert_eq!(said, "Chart.yaml:1:1: validation: chart.metadata.version is required");
    let sub = "apiVersion: v2\nname: sub\n";
    let said = mistake(&[("Chart.yaml", CHART), ("charts/sub/Chart.yaml", sub)]);
    assert!(said.starts_with("charts/sub/Chart.yaml:1:1: "), "{said}");
    let schema = r#"{"required": ["team"]}"#;
    let said = mistake(&[("Chart.yaml", CHART), ("values.schema.json", schema)]);
    assert!(said.contains("missing property 'team'"), "{said}");
    assert!(
        said.ends_with("(give these values with --values or --set, or change values.yaml)"),
        "{said}"
    );
}
