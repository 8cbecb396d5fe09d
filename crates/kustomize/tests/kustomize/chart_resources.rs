//! `Chart` resources of `helm.kustomize.io`: generated without a flag, then customized.

use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions};

const CHART: &str = "groupVersion: helm.kustomize.io/v1beta1\nkind: Chart\n";

fn tree(kustomization: &str, chart: &str) -> Memory {
    Memory::new()
        .with("app/kustomization.yaml", kustomization)
        .with("app/chart.yaml", chart)
        .with("app/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")
        .with("app/web/values.yaml", "k1: default\nk2: default\nk3: default\n")
        .with(
            "app/web/templates/c.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  \
             all: '{{ .Values.k1 }} {{ .Values.k2 }} {{ .Values.k3 }} {{ .Release.Namespace }}'\n",
        )
}

fn built(kustomization: &str, chart: &str) -> String {
    let tree = tree(kustomization, chart);
    Build::new(&tree, &BuildOptions::default()).run("/app").unwrap().yaml
}

/// The message, and the line and column that it points to.
fn refused(kustomization: &str, chart: &str) -> (String, String) {
    let tree = tree(kustomization, chart);
    let failed = Build::new(&tree, &BuildOptions::default()).run("/app").unwrap_err();
    let place = failed.error.place().map(|place| {
        let position = place.position();
        format!("{}:{}:{}", place.source().name(), position.line, position.column)
    });
    (failed.error.to_string(), place.unwrap_or_default())
}

#[test]
fn charts_are_generated_as_printed_and_customized() {
    let chart =
        format!("{CHART}generate:\n    chart: ./web\n    values:\n      k1: v1\n      k2: v2\n");
    let kustomization = "generators:\n- chart.yaml\nnamePrefix: a-\nnamespace: shop\n";
    assert_eq!(
        built(kustomization, &chart),
        "apiVersion: v1\ndata:\n  all: v1 v2 default shop\nkind: ConfigMap\nmetadata:\n  name: a-web\n  namespace: shop\n"
    );
}

#[test]
fn charts_may_have_versions_names_and_releases() {
    let generate = "generate: {chart: web, releaseName: blue}\n";
    for (head, name) in [
        ("apiVersion: helm.kustomize.io/v1beta1\nkind: Chart\n", "blue"),
        ("apiVersion: helm.kustomize.io\nkind: Chart\nmetadata: {name: own}\n", "blue"),
    ] {
        let yaml = built("generators: [chart.yaml]\n", &format!("{head}{generate}"));
        assert!(yaml.contains(&format!("  name: {name}\n")), "{yaml}");
    }
    let named = format!("{CHART}metadata: {{name: own}}\ngenerate: {{chart: web}}\n");
    assert!(built("generators: [chart.yaml]\n", &named).contains("  name: own\n"));
}

#[test]
fn patches_reach_the_chart_before_it_is_rendered() {
    let chart =
        format!("{CHART}metadata: {{name: own}}\ngenerate: {{chart: web, values: {{k1: a}}}}\n");
    let patch = "apiVersion: helm.kustomize.io/v1beta1\nkind: Chart\nmetadata: {name: own}\ngenerate: {values: {k2: patched, k3: null}}\n";
    let kustomization = format!(
        "generators: [chart.yaml]\npatches:\n- patch: |\n{}",
        patch.lines().map(|line| format!("    {line}\n")).collect::<String>()
    );
    let yaml = built(&kustomization, &chart);
    assert!(yaml.contains("all: a patched default default"), "{yaml}");
    assert!(!yaml.contains("kind: Chart"), "virtual resources are not printed: {yaml}");
}

#[test]
fn wrong_charts_are_refused_with_their_place() {
    let listed = "generators: [chart.yaml]\n";
    let cases = [
        ("generate: {chart: nowhere}\n", "there is no chart at nowhere", "3:19"),
        ("generate: {chart: web, vales: {}}\n", "unknown field \"vales\"", "3:24"),
        ("generate: {chart: ../other}\n", "is not in or below '/app'", "3:19"),
        ("generate: {values: {}}\n", "generate.chart is missing", "3:11"),
        ("metadata: {name: a}\n", "generate.chart is missing", "1:1"),
        ("generate: {chart: web, releaseName: --x}\n", "cannot be '--x'", "3:37"),
    ];
    for (text, message, place) in cases {
        let (said, at) = refused(listed, &format!("{CHART}{text}"));
        assert!(said.contains(message), "{text}: {said}");
        assert_eq!(at, format!("/app/chart.yaml:{place}"), "{text}: {said}");
    }
    let (said, _) = refused(listed, "groupVersion: helm.kustomize.io/v1\nkind: Release\n");
    assert!(said.contains("helm.kustomize.io has no kind Release"), "{said}");
    let (said, _) =
        refused("transformers: [chart.yaml]\n", &format!("{CHART}generate: {{chart: web}}\n"));
    assert!(said.contains("not a transformer"), "{said}");
}
