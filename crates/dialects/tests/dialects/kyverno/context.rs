//! What a rule names, and where it comes from.

use crate::support::{Objects, objects, rules, run, shown};
use kiln_engine::{Effect, EvalEnv, Event, ExternalData, ExternalDataError};
use kiln_object::Kinds;
use kiln_value::{Map, Value, value};

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: dev, labels: {app: web}}, \
                   spec: {containers: [{name: c, image: 'nginx:1.2'}]}}";

/// A policy whose rule names values and puts expressions into a ConfigMap.
fn policy(context: &str, expression: &str) -> String {
    let context = context.trim_matches('\n').replace('\n', "\n    ");
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}
    context:
    {context}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: out
      namespace: dev
      data: {{data: {{v: \"{expression}\"}}}}
"
    )
}

/// The value of an expression, or what went wrong.
fn value_of(context: &str, expression: &str, others: &str) -> Result<Value, String> {
    let rules = rules(&policy(context, expression));
    let trigger = objects(POD).remove(0);
    let outcomes = run(&rules, &Event::created(trigger), &Objects(objects(others)));
    match outcomes[0].effects.iter().find(|e| matches!(e, Effect::Ensure(_))) {
        Some(Effect::Ensure(ensure)) => Ok(ensure.object.get_path(["data", "v"]).cloned().unwrap()),
        _ => {
            Err(outcomes[0].failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
    }
}

const CLUSTER: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: dev, labels: {a: b}}, data: {mode: fast}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: dev, labels: {team: x}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ops, labels: {team: z}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: one, namespace: dev}, spec: {replicas: 2}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: two, namespace: dev}, spec: {replicas: 3}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: two, namespace: ops}, spec: {replicas: 4}}
";

#[test]
fn variables_take_values_searches_and_defaults() {
    for (context, wanted) in [
        ("- {name: x, variable: {value: 'a-{{ request.name }}'}}", value!("a-web")),
        ("- {name: x, variable: {value: {a: [1, 2]}, jmesPath: 'sum(a)'}}", value!(3)),
        ("- {name: x, variable: {jmesPath: request.object.metadata.labels.app}}", value!("web")),
        (
            "- {name: x, variable: {jmesPath: request.object.metadata.labels.nope, default: d}}",
            value!("d"),
        ),
        (
            "- {name: x, variable: {jmesPath: 'request.object.metadata.labels.{{ to_lower(''APP'') }}'}}",
            value!("web"),
        ),
        (
            "- {name: x, variable: {jmesPath: request.object.metadata.labels.nope, default: '{{ request.namespace }}'}}",
            value!("dev"),
        ),
        (
            "- {name: x, variable: {value: 1}}\n- {name: x, variable: {jmesPath: 'sum([x, `1`])'}}",
            value!(2),
        ),
        (
            "- {name: a.b, variable: {value: 1}}\n- {name: a.c, variable: {value: 2}}\n- {name: x, variable: {jmesPath: 'sum([a.b, a.c])'}}",
            value!(3),
        ),
    ] {
        assert_eq!(value_of(context, "{{ x }}", ""), Ok(wanted), "{context}");
    }
}

#[test]
fn what_cannot_be_had_says_why() {
    for (context, wanted) in [
        (
            "- {name: x, variable: {jmesPath: request.object.metadata.labels.nope}}",
            "cannot load the context entry \"x\": no key \"nope\" here (give a default with `|| ''`)",
        ),
        (
            "- {name: x, variable: {jmesPath: 'request.object.metadata.labels.nope || `null`'}}",
            "cannot load the context entry \"x\": failed to add context entry for variable x since it evaluated to nil \
             (give it a default)",
        ),
        (
            "- {name: x, configMap: {name: nope, namespace: dev}}",
            "cannot load the context entry \"x\": there is no ConfigMap dev/nope (create it, or give it along with the \
             objects)",
        ),
        (
            "- {name: x, apiCall: {urlPath: /api/v1/namespaces/dev/configmaps/nope}}",
            "cannot load the context entry \"x\": there is no ConfigMap dev/nope (give the call a default if the object \
             may be absent)",
        ),
        (
            "- {name: x, apiCall: {urlPath: /api/v1/wonders}}",
            "cannot load the context entry \"x\": \"/api/v1/wonders\" asks for \"wonders\", which is not a known resource of \
             this API (give the CustomResourceDefinition along with the objects)",
        ),
        (
            "- {name: x, apiCall: {urlPath: /version}}",
            "cannot load the context entry \"x\": \"/version\" reads no objects (write \
             /api/v1/namespaces/NAMESPACE/RESOURCE or /apis/GROUP/VERSION/RESOURCE)",
        ),
        (
            "- {name: x, imageRegistry: {reference: nginx}}",
            "cannot load the context entry \"x\": the registry of image \"nginx\" is not called (give a value named \"x\" \
             instead, for example in a values file)",
        ),
        (
            "- {name: x, apiCall: {service: {url: 'https://example.com'}}}",
            "cannot load the context entry \"x\": the service https://example.com is not called (give the value by \
             name instead, or allow the host)",
        ),
        (
            "- {name: x, globalReference: {name: g}}",
            "cannot load the context entry \"x\": there is no global value \"g\" (give the GlobalContextEntry, or a value \
             of this name)",
        ),
    ] {
        assert_eq!(
            value_of(context, "{{ x.data.a }}", CLUSTER),
            Err(wanted.to_owned()),
            "{context}"
        );
    }
}

#[test]
fn an_entry_sees_those_before_it_and_only_what_is_asked_for_is_loaded() {
    let forward = "- {name: x, variable: {jmesPath: w}}\n- {name: w, variable: {value: 1}}";
    let failed = value_of(forward, "{{ x }}", "").unwrap_err();
    assert!(failed.contains("no key \"w\""), "{failed}");
    let unused =
        "- {name: bad, configMap: {name: nope, namespace: dev}}\n- {name: x, variable: {value: 1}}";
    assert_eq!(value_of(unused, "{{ x }}", ""), Ok(value!(1)));
    assert_eq!(value_of(unused, "{{ x || bad }}", ""), Ok(value!(1)));
}

#[test]
fn calls_are_answered_from_the_objects_in_view() {
    let call = |path: &str, query: &str| {
        let query =
            if query.is_empty() { String::new() } else { format!(", jmesPath: \"{query}\"") };
        value_of(
            &format!("- {{name: x, apiCall: {{urlPath: \"{path}\"{query}}}}}"),
            "{{ x }}",
            CLUSTER,
        )
    };
    let deployments = "/apis/apps/v1/namespaces/dev/deployments";
    for (path, query, wanted) in [
        ("/api/v1/namespaces/dev/configmaps/settings", "data.mode", value!("fast")),
        ("api/v1/namespaces/dev/configmaps/settings/", "data.mode", value!("fast")),
        ("/api/v1/namespaces", "items[].metadata.name", value!(["dev", "ops"])),
        ("/api/v1/namespaces/ops", "metadata.labels.team", value!("z")),
        ("/api/v1/namespaces?labelSelector=team%3Dx", "items[].metadata.name", value!(["dev"])),
        (
            "/api/v1/namespaces?labelSelector=team in (x,z)&limit=1",
            "items[].metadata.name",
            value!(["dev"]),
        ),
        ("/api/v1/namespaces?limit=1", "metadata.continue", value!("more")),
        (
            "/api/v1/namespaces?fieldSelector=metadata.name!=dev",
            "items[].metadata.name",
            value!(["ops"]),
        ),
        ("/apis/apps/v1/deployments", "length(items)", value!(3)),
        (deployments, "sum(items[].spec.replicas)", value!(5)),
        (deployments, "[kind, apiVersion]", value!(["DeploymentList", "apps/v1"])),
        (
            "/apis/apps/v1/namespaces/{{ request.namespace }}/deployments/one/status",
            "spec.replicas",
            value!(2),
        ),
    ] {
        assert_eq!(call(path, query), Ok(wanted), "{path} {query}");
    }
}

#[test]
fn defaults_stand_in_for_calls_that_fail() {
    let context = "- {name: x, apiCall: {urlPath: /api/v1/namespaces/dev/configmaps/nope, jmesPath: data.mode, default: slow}}";
    assert_eq!(value_of(context, "{{ x }}", CLUSTER), Ok(value!("slow")));
    let context = "- {name: x, apiCall: {urlPath: /api/v1/namespaces/dev/configmaps/settings, jmesPath: data.nope, default: {a: 1}}}";
    assert_eq!(value_of(context, "{{ x.a }}", CLUSTER), Ok(value!(1)));
}

#[test]
fn config_maps_give_data_and_metadata() {
    let context = "- {name: x, configMap: {name: \"{{ to_lower('SETTINGS') }}\", namespace: '{{ request.namespace }}'}}";
    assert_eq!(
        value_of(context, "{{ x.data.mode }}-{{ x.metadata.labels.a }}", CLUSTER),
        Ok(value!("fast-b"))
    );
}

#[test]
fn images_are_known_by_container() {
    let context = "- {name: x, variable: {jmesPath: images.containers.c.referenceWithTag}}";
    assert_eq!(value_of(context, "{{ x }}", ""), Ok(value!("docker.io/nginx:1.2")));
}

#[test]
fn given_values_stand_in_for_what_lies_outside() {
    let context = "
- {name: x, imageRegistry: {reference: nginx}}
- {name: w, configMap: {name: nope, namespace: dev}}
- {name: z, variable: {value: own}}
";
    let rules =
        rules(&policy(context, "{{ x.tag }} {{ w.data.k }} {{ z }} {{ request.operation }}"));
    let given = Map::from_iter([
        ("x", value!({"tag": "1"})),
        ("w.data.k", value!("v")),
        ("z", value!("given")),
        ("request.operation", value!("UPDATE")),
    ]);
    let mut event = Event::created(objects(POD).remove(0));
    event.context.given = given;
    let outcomes = run(&rules, &event, &Objects::default());
    assert!(shown(&outcomes, &rules).contains("v: 1 v own UPDATE"), "{}", shown(&outcomes, &rules));
}

struct Registry;

impl ExternalData for Registry {
    fn image(&self, reference: &str) -> Result<Value, ExternalDataError> {
        Ok(value!({"registry": "docker.io", "asked": reference}))
    }

    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        Ok((name == "g").then(|| value!([1, 2])))
    }
}

#[test]
fn a_host_may_allow_the_outside() {
    let context = "
- {name: x, imageRegistry: {reference: 'nginx:{{ request.name }}', jmesPath: asked}}
- {name: w, globalReference: {name: g, jmesPath: sum(@)}}
";
    let rules = rules(&policy(context, "{{ x }} {{ w }}"));
    let (kinds, view) = (Kinds::builtin(), Objects::default());
    let eval_env = EvalEnv { external_data: &Registry, ..EvalEnv::of(&view, &kinds) };
    let outcomes = rules.evaluate(&Event::created(objects(POD).remove(0)), &eval_env);
    assert!(shown(&outcomes, &rules).contains("v: nginx:web 3"), "{}", shown(&outcomes, &rules));
}

#[test]
fn time_and_chance_come_from_the_host() {
    let expression =
        "{{ time_add('{{ time_now_utc() }}', '4h') | time_to_cron(@) }} {{ random('[a-z]{4}') }}";
    let first = value_of("- {name: x, variable: {value: 1}}", expression, "").unwrap();
    assert_eq!(first, value_of("- {name: x, variable: {value: 1}}", expression, "").unwrap());
    assert!(first.as_str().unwrap().starts_with("0 16 3 5 6 "), "{first:?}");
}

#[test]
fn reads_are_recorded_for_whoever_watches() {
    let rules = rules(&policy(
        "- {name: x, apiCall: {urlPath: '/api/v1/namespaces?labelSelector=team=x', jmesPath: length(items)}}\n- {name: w, configMap: {name: settings, namespace: dev}}",
        "{{ x }} {{ w.data.mode }}",
    ));
    let outcomes = run(&rules, &Event::created(objects(POD).remove(0)), &Objects(objects(CLUSTER)));
    let reads: Vec<_> = outcomes[0]
        .reads
        .iter()
        .map(|read| match read {
            kiln_engine::RecordedRead::Object(id) => id.to_string(),
            kiln_engine::RecordedRead::List { kind, .. } => format!("all {kind}"),
            kiln_engine::RecordedRead::Global(name) => format!("global {name}"),
        })
        .collect();
    assert_eq!(reads, ["all v1/Namespace", "v1/ConfigMap/dev/settings"]);
}

#[test]
fn a_trace_says_what_was_asked_and_answered() {
    let policy = policy("- {name: x, variable: {jmesPath: request.object.metadata.labels.app}}", "{{ x }}")
        .replace("    context:", "    preconditions: {all: [{key: '{{ request.name }}', operator: Equals, value: w*}]}\n    context:");
    let rules = rules(&policy);
    let limits = kiln_engine::EvaluationLimits::default().traced();
    let outcomes = crate::support::run_within(
        &rules,
        &Event::created(objects(POD).remove(0)),
        &Objects::default(),
        limits,
    );
    assert_eq!(
        outcomes[0].trace.as_ref().unwrap().to_string(),
        "\
rule kyverno:p/r (pass)
├─ match: yes
│  └─ any[0]: yes
│     └─ kinds: yes (v1/Pod is one of Pod)
├─ preconditions: yes
│  ├─ {{ request.name }} = \"web\"
│  └─ spec.rules[0].preconditions.all[0]: \"web\" Equals \"w*\" holds, compared as text and pattern: yes
└─ generate
   ├─ context x (variable) = \"web\"
   ├─ {{ x }} = \"web\"
   └─ v1/ConfigMap/dev/out
"
    );
}
