use std::cell::RefCell;

use kiln_value::value;

use super::*;
use crate::load::decode::Decode;
use crate::load::fs::{FileError, FileSystem, Memory, Resolved};
use crate::{Build, BuildOptions, ChartRenderer, Diagnostic, Helm, Programs};

#[test]
fn values_merge_map_by_map() {
    let file = value!({"a": {"b": 1, "c": [1]}, "d": 1});
    let inline = value!({"a": {"b": 2, "c": [2]}, "e": 3});
    assert_eq!(merged(&file, &inline), value!({"a": {"b": 2, "c": [2]}, "d": 1, "e": 3}));
    assert_eq!(merged(&inline, &file), value!({"a": {"b": 1, "c": [1]}, "d": 1, "e": 3}));
}

/// A tree in which `/app/link` leads to `/outside`.
struct Linked(Memory);

fn followed(path: &str) -> String {
    match path.strip_prefix("/app/link") {
        Some(rest) => format!("/outside{rest}"),
        None => path.to_owned(),
    }
}

impl FileSystem for Linked {
    fn resolve(&self, path: &str) -> std::result::Result<Resolved, FileError> {
        self.0.resolve(&followed(path))
    }

    fn read(&self, path: &str, limit: usize) -> std::result::Result<Vec<u8>, FileError> {
        self.0.read(&followed(path), limit)
    }

    fn is_executable(&self, _: &str) -> Option<bool> {
        Some(false)
    }

    fn links_below(&self, path: &str) -> std::result::Result<Vec<String>, FileError> {
        self.0.links_below(path)
    }
}

/// A helm that remembers what it was asked.
#[derive(Default)]
struct Asked(RefCell<Vec<Command>>);

impl Programs for Asked {
    fn run(&self, command: &Command) -> Result<Finished> {
        self.0.borrow_mut().push(command.clone());
        let output = match command.arguments.first() {
            Some(Argument::Text(word)) if word == "version" => "v3.15.0\n",
            _ => "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
        };
        Ok(Finished { output: output.into(), ..Finished::default() })
    }

    fn plugin_home(&self) -> Option<String> {
        None
    }
}

fn by_program() -> Helm {
    Helm { renderer: ChartRenderer::Program, ..Helm::default() }
}

/// What helm was asked, and how the build ended.
fn build(
    kustomization: &str,
    charts: &[&str],
) -> (Vec<Command>, std::result::Result<String, Diagnostic>) {
    build_with(BuildOptions::default(), kustomization, charts)
}

fn build_with(
    options: BuildOptions,
    kustomization: &str,
    charts: &[&str],
) -> (Vec<Command>, std::result::Result<String, Diagnostic>) {
    let mut tree = Memory::new()
        .with("app/kustomization.yaml", kustomization)
        .with("app/more.yaml", "z: 1\n")
        .with("outside/values.yaml", "token: s3cr3t\n");
    for chart in charts {
        tree.write(&format!("{chart}/values.yaml"), "y: 2\n");
    }
    let options = BuildOptions { helm: Some(by_program()), ..options };
    let asked = Asked::default();
    let built = Build::new(&Linked(tree), &options).programs(&asked).run("/app");
    let built = built.map(|output| output.yaml).map_err(|failed| failed.error.into());
    (asked.0.into_inner(), built)
}

/// Entries of `helmCharts`, each with this text in one of the fields that take any, by their names.
fn entries(hostile: &str) -> Vec<(String, String)> {
    let each = HelmChart::places(hostile).into_iter();
    each.map(|(field, value)| {
        let mut chart = Map::new();
        chart.insert("name", "web");
        chart.insert("repo", "https://charts.example");
        let set = value.as_map().unwrap();
        set.iter().for_each(|(key, value)| drop(chart.insert(key.clone(), value.clone())));
        let text = kiln_yaml::emit(&value!({"helmCharts": [Value::Map(chart)]}));
        (field.trim_start_matches('.').to_owned(), text)
    })
    .collect()
}

#[test]
fn no_field_of_a_chart_becomes_an_option_of_helm() {
    let mut refused = Vec::new();
    for hostile in ["--post-renderer=./evil.sh", "-f/etc/passwd"] {
        for (field, text) in entries(hostile) {
            // Both where the chart is there and where it must be fetched.
            for charts in [&["app/charts/web"][..], &[]] {
                let (asked, built) = build(&text, charts);
                for command in asked {
                    let words = format!("{:?} {:?}", command.arguments, command.environment);
                    assert!(!words.contains(hostile), "{field}: {words}");
                }
                if let Err(diagnostic) = built
                    && diagnostic.to_string().contains("of a chart cannot be")
                {
                    let said = diagnostic.to_string();
                    assert!(said.starts_with("/app/kustomization.yaml:"), "{said}");
                    assert!(said.contains("no value may begin with a dash"), "{said}");
                    refused.push(field.clone());
                }
            }
        }
    }
    refused.dedup();
    // For either text the same.
    let second = refused.split_off(refused.len() / 2);
    assert_eq!(refused, second);
    let texts = [
        "name",
        "version",
        "repo",
        "releaseName",
        "namespace",
        "additionalValuesFiles",
        "valuesFile",
        "apiVersions",
        "kubeVersion",
        "nameTemplate",
        "chartHome",
        "configHome",
    ];
    assert_eq!(refused, texts);
    // The namespace of the kustomization is that of its charts.
    let (asked, built) =
        build("namespace: --debug\nhelmCharts: [{name: web}]\n", &["app/charts/web"]);
    assert!(asked.is_empty() && built.is_err(), "{asked:?}");
}

#[test]
fn no_field_of_a_chart_leads_out() {
    for hostile in ["../outside", "/outside", "link", "../../outside", "a/../link/."] {
        for below in ["", "/values.yaml"] {
            let hostile = format!("{hostile}{below}");
            for (field, text) in entries(&hostile) {
                for charts in [&["app/charts/web", "outside/web"][..], &["outside/web"], &[]] {
                    let (asked, built) = build(&text, charts);
                    for command in &asked {
                        let words = format!("{:?} {:?}", command.arguments, command.environment);
                        // The name of a release and the like may be any text; it is not a path then.
                        let is_path = words.contains("/outside") && !words.contains(&hostile)
                            || words.contains("/app/link");
                        assert!(!is_path, "{field}: {hostile}: {words}");
                        let values = command.file.clone().unwrap_or_default();
                        assert!(!String::from_utf8_lossy(&values).contains("s3cr3t"), "{field}");
                    }
                    let is_file = field.ends_with("Home") || field.contains("File");
                    if is_file || field == "name" && hostile.starts_with("../../") {
                        let said = built.unwrap_err().to_string();
                        let is_refused = said.contains("security; file '")
                            || said.contains("must resolve to a file");
                        assert!(is_refused, "{field}: {hostile}: {said}");
                    }
                }
            }
        }
    }
}

#[test]
fn helm_is_asked_with_everything_that_a_chart_says() {
    let text = "namespace: shop\nhelmCharts: [{name: web, version: 1.2.3, repo: 'https://charts.example', releaseName: r, additionalValuesFiles: [more.yaml], apiVersions: [a/v1, b/v1], kubeVersion: '1.33', nameTemplate: x, includeCRDs: true, configHome: conf}]\n";
    let allowed = BuildOptions { enable_exec: true, ..BuildOptions::default() };
    let (asked, built) = build_with(allowed, text, &["app/charts/web-1.2.3/web"]);
    built.unwrap();
    let template = asked.last().unwrap();
    let words: Vec<&str> = template
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Text(text) => text.as_str(),
            Argument::File => "FILE",
            Argument::Name => "NAME",
        })
        .collect();
    assert_eq!(
        words.join(" "),
        "template r /app/charts/web-1.2.3/web --namespace=shop --name-template=x -f FILE --values=/app/more.yaml \
         --api-versions=a/v1 --api-versions=b/v1 --kube-version=1.33 --include-crds"
    );
    assert_eq!(template.environment, [("HELM_CONFIG_HOME".to_owned(), "/app/conf".to_owned())]);
    assert_eq!(template.file.as_deref(), Some(&b"y: 2\n"[..]));
}

#[test]
fn no_configuration_of_a_kustomization_reaches_helm_where_programs_may_not_run() {
    for text in [
        "helmCharts: [{name: web, configHome: conf}]\n",
        "helmGlobals: {configHome: conf}\nhelmCharts: [{name: web}]\n",
    ] {
        let (asked, built) = build(text, &["app/charts/web"]);
        built.unwrap();
        for command in asked {
            assert_eq!((command.environment, command.directory), (Vec::new(), String::new()));
        }
    }
}

/// A kustomization with a chart, rendered in the process.
fn build_in_process(kustomization: &str, helm: Helm) -> std::result::Result<String, Diagnostic> {
    let tree = Memory::new()
        .with("app/kustomization.yaml", kustomization)
        .with("app/more.yaml", "text: more\n")
        .with("app/charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")
        .with("app/charts/web/values.yaml", "text: own\nsecret: null\n")
        .with("app/charts/web/crds/a.yaml", "apiVersion: v1\nkind: Crd\nmetadata: {name: c}\n")
        .with(
            "app/charts/web/templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\n\
             data:\n  text: {{ .Values.text }}\n  secret: {{ if .Values.secret }}{{ .Values.secret }}{{ else }}{{ randAlpha 4 }}{{ end }}\n",
        );
    let options = BuildOptions { helm: Some(helm), ..BuildOptions::default() };
    // Nothing may be started.
    let asked = Asked::default();
    let built = Build::new(&tree, &options).programs(&asked).run("/app");
    assert!(asked.0.borrow().is_empty(), "{:?}", asked.0);
    built.map(|output| output.yaml).map_err(|failed| failed.error.into())
}

#[test]
fn charts_are_rendered_in_the_process() {
    for (fields, wanted) in [
        ("valuesInline: {secret: s}", "text: own"),
        ("valuesInline: {secret: s, text: inline}", "text: inline"),
        ("valuesInline: {secret: s}, additionalValuesFiles: [more.yaml]", "text: more"),
        ("valuesInline: {secret: s}, releaseName: r", "name: r"),
        ("valuesInline: {secret: s}, nameTemplate: 'n-{{ upper \"x\" | lower }}'", "name: n-x"),
        ("valuesInline: {secret: s}, namespace: shop", "namespace: shop"),
        ("valuesInline: {secret: s}, includeCRDs: true", "kind: Crd"),
    ] {
        let text = format!("helmCharts: [{{name: web, {fields}}}]\n");
        let built = build_in_process(&text, Helm::default()).unwrap();
        assert!(built.contains(wanted), "{fields}: {built}");
    }
}

#[test]
fn charts_in_the_process_have_no_randomness_but_a_seed() {
    let text = "helmCharts: [{name: web}]\n";
    let said = build_in_process(text, Helm::default()).unwrap_err().to_string();
    assert!(said.contains("there is no randomness here"), "{said}");
    assert!(said.contains("web/templates/a.yaml:8:"), "{said}");
    let seeded = |seed: &str| {
        build_in_process(text, Helm { seed: Some(seed.to_owned()), ..Helm::default() }).unwrap()
    };
    assert_eq!(seeded("a"), seeded("a"));
    assert_ne!(seeded("a"), seeded("b"));
}
