//! Many ModRules against one Deployment, and the templates of their values; Go's text/template competes from a program of
//! its own, which keeps the templates and the Deployment.
//!
//! Every rule is about Deployments, so that none is left out by its kind; one in ten matches, and patches.

use kiln_bench_libraries::{Contest, KILN, Outcome, main as run, often, once};
use kiln_dialects::{Compiled, compile};
use kiln_engine::{EmptyView, EvalEnv, Event, RuleSet};
use kiln_gotemplate::{TemplateEnvironment, TemplateField, FunctionSet, Numbers, TemplateOptions, Template};
use kiln_object::Kinds;
use kiln_value::{Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

const TEMPLATES: &str = include_str!("../../text-template/templates.txt");
const DEPLOYMENT: &str = include_str!("../../text-template/deployment.json");

fn main() {
    let contest = |workload, run| Contest {
        workload,
        who: "kiln",
        version: KILN,
        peak: false,
        instructions: false,
        run,
    };
    let mut contests = vec![
        contest("100 ModRules on one Deployment", || admit(100)),
        contest("1,000 ModRules on one Deployment", || admit(1000)),
        contest("load 1,000 ModRules", load),
    ];
    contests.extend(TEMPLATES.lines().map(|template| contest(template, render)));
    run(&contests);
}

/// Rules as people write them: labels, regular expressions on images, filters, templates as values.
fn rules(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let own = if number % 10 == 0 { "web".to_owned() } else { format!("web-{number}") };
        text.push_str(&format!(
            r#"apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {{name: rule-{number:04}, namespace: team-3}}
spec:
  type: Patch
  executionTier: {tier}
  match:
  - {{select: $.kind, matchValue: Deployment}}
  - {{select: '$.spec.template.spec.containers[*].image', matchRegex: '^registry\.example\.com/'}}
  - {{select: '$.spec.template.spec.containers[? @.name == "main"].ports[0].containerPort', matchValue: '8080'}}
  - {{select: $.metadata.labels.app, matchValue: {own}}}
  patch:
  - {{op: add, path: /metadata/annotations/rule-{number:04}, value: '"{{{{ .Namespace }}}}/{{{{ .Target.metadata.name }}}}"'}}
---
"#,
            tier = number % 3,
        ));
    }
    text
}

fn compiled(text: &str) -> Compiled {
    let documents = read_bytes("rules.yaml", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let compiled = compile(&documents, &Kinds::builtin());
    assert!(!compiled.has_errors());
    compiled
}

fn admit(count: usize) -> Outcome {
    let set = RuleSet::new(compiled(&rules(count)).policies);
    let kinds = Kinds::builtin();
    let event = Event::created(deployment());
    let admit = || set.mutate(&event, &EvalEnv::of(&EmptyView, &kinds)).object;
    let after = admit();
    let annotations = after.get_path(["metadata", "annotations"]).and_then(Value::as_map).unwrap();
    assert_eq!(annotations.len(), 1 + count / 10);
    often(admit)
}

fn load() -> Outcome {
    let text = rules(1000);
    once(|| compiled(&text))
}

/// The workload that was asked for is the template itself.
fn render() -> Outcome {
    let text = std::env::args().nth(1).expect("a contest was chosen by its workload");
    let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
    let template = Template::parse("value", &text, &options).unwrap();
    let (namespace, target) = (Value::from("team-3"), deployment());
    let fields = [
        TemplateField { name: "Namespace", value: &namespace, numbers: Numbers::Floats },
        TemplateField { name: "Target", value: &target, numbers: Numbers::Floats },
    ];
    let environment = TemplateEnvironment::default();
    let render = || template.render_fields(&fields, &environment).unwrap();
    let check = render();
    often(render).check(check.text)
}

fn deployment() -> Value {
    json::parse(DEPLOYMENT).unwrap()
}
