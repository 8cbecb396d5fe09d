//! Values stay values: what objects say fills the places of values, and never becomes structure, whatever language a rule
//! is written in and wherever in a text the value stands.

use crate::support::policies::{kyverno, scripted};
use crate::support::{Fixed, Objects, compiled, messages, objects, rules};
use kiln_engine::{
    Effect, EvalEnv, Event, ExternalData, ExternalDataError, Mutated, RuleSet, ServiceRequest,
};
use kiln_object::Kinds;
use kiln_value::{Value, value};
use proptest::prelude::*;

/// A value that is harmless, and is nowhere else in a result.
const HARMLESS: &str = "harmless";

/// A Pod that says something in its annotations, as a value and as a key. It has labels: where a path leads through a
/// parent that is not there, a step that is a number makes a list of it, as in Kyverno, wherever the number comes from.
fn pod(says: &str) -> Value {
    let mut pod = value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "home", "labels": {}, "annotations": {"v": says}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    });
    pod.set(["keys", says], "said").unwrap();
    pod
}

/// What rules that read may see, `own`, and what they must not.
const SEEN: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: harmless, namespace: home, labels: {app: harmless}}, data: {k: own}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: harmless}, data: {k: own}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: home, labels: {app: other}}, data: {k: stolen}}
---
{apiVersion: v1, kind: Secret, metadata: {name: prod, namespace: home}, data: {k: stolen}}
---
{apiVersion: v1, kind: Secret, metadata: {name: prod, namespace: platform}, data: {k: stolen}}
";

/// Services that answer with where they were asked: host, steps of the path, and names of the query.
struct Echo;

impl ExternalData for Echo {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        let (host, rest) = request.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |pair| pair.0));
        Ok(value!({
            "host": host, "steps": path.split('/').count() as u64, "own": path.split('/').next().unwrap(),
            "names": names.collect::<Vec<_>>().join(" "), "fragment": request.url.contains('#'),
        }))
    }
}

fn modrule(value: &str) -> String {
    let value = kiln_value::json::to_string(&Value::from(value));
    format!(
        "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: r, namespace: home}}\nspec:\n  type: Patch\n  \
         match: [{{select: $.kind, matchValue: Pod}}]\n  patch: [{{op: add, path: /spec/filled, value: {value}}}]\n"
    )
}

/// What a rule makes of a Pod: what it becomes and everything else, or `None` if the rule refuses to do anything.
fn result(set: &RuleSet, pod: &Value) -> Option<Value> {
    let kinds = Kinds::builtin();
    let mut seen = objects(SEEN);
    seen.push(pod.clone());
    let view = Objects(seen);
    let sources = Fixed(std::cell::Cell::new(0));
    let eval_env =
        EvalEnv { sources: &sources, external_data: &Echo, ..EvalEnv::of(&view, &kinds) };
    let Mutated { object, outcomes } = set.mutate(&Event::created(pod.clone()), &eval_env);
    let generated = set.evaluate(&Event::created(pod.clone()), &eval_env);
    let failed = outcomes.iter().chain(&generated).any(|outcome| !outcome.failures.is_empty());
    let made: Vec<Value> = generated
        .iter()
        .flat_map(|outcome| &outcome.effects)
        .filter_map(|effect| match effect {
            Effect::Ensure(ensure) => {
                let mut object = ensure.object.clone();
                kiln_engine::strip(&mut object);
                Some(object)
            }
            _ => None,
        })
        .collect();
    if failed {
        assert_eq!(&object, pod, "a rule that fails changes nothing");
        assert!(made.is_empty(), "a rule that fails makes nothing: {made:?}");
        return None;
    }
    Some(value!({"object": object, "made": made}))
}

/// Whether a text has something from the object, whatever functions made of it.
fn is_said(text: &str) -> bool {
    text.to_lowercase().contains(HARMLESS)
}

/// Whether two results differ in values only that the harmless one has from the object.
fn same_structure(harmless: &Value, hostile: &Value) -> bool {
    match (harmless, hostile) {
        (Value::String(text), other) if is_said(text) => {
            !matches!(other, Value::Map(_) | Value::List(_))
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_structure(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let (said, own): (Vec<_>, Vec<_>) = a.iter().partition(|(key, _)| is_said(key));
            let others: Vec<_> = b.iter().filter(|(key, _)| a.get(key).is_none()).collect();
            own.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_structure(a, b)))
                && said.len() == others.len()
                && said.iter().zip(&others).all(|((_, a), (_, b))| same_structure(a, b))
        }
        (a, b) => a == b,
    }
}

/// Places of a ModRule's value where an action can stand.
const PLACES: &[&str] = &[
    "ACTION",
    "name: agent\nimage: agent:ACTION\nlast: 1\n",
    "- ACTION\n- b\n",
    "a: ACTION # a comment\nb: 1",
    "image: \"agent:ACTION\"\nlast: 1",
    "image: 'agent:ACTION'\nlast: 1",
    "text: |\n  before\n  ACTION\n  after\nlast: 1\n",
    "text: >-\n  before ACTION\n  after\nlast: 1\n",
    "{a: ACTION, b: [c, ACTION, d]}",
    "{\"a\": \"ACTION\", \"b\": [\"ACTION\"]}",
    "ACTION: a\nb: c\n",
    "\"k-ACTION\": a\nb: c\n",
    "{k-ACTION: a, b: c}",
    "a: !!str ACTION\nb: c\n",
    "a: &x ACTION\nb: *x\n",
    "# ACTION\na: b\n",
    "a: b\n---\nACTION\n",
    "a: ACTIONACTION\nb: c",
];

/// What an action can do with what an object says.
const ACTIONS: &[&str] = &[
    "V",
    "V | quote",
    "V | squote",
    "V | toJson",
    "V | toRawJson",
    "V | upper",
    "V | trunc 400",
    "V | trim | title",
    "V | trimPrefix \"a\"",
    "V | b64enc | b64dec",
    "V | indent 2",
    "V | nindent 4",
    "V | replace \"q\" \"w\"",
    "V | repeat 2",
    "printf \"%s\" V",
    "printf \"x-%s\" V",
    "printf \"%q\" V",
    "printf \"%#v\" V",
    "printf \"%-30s\" V",
    "printf V 1 2",
    "print V 1",
    "cat V \"a\"",
    "list V \"b\" | join \" \"",
    "splitList \"\\n\" V | join \"\\n\"",
    "splitList \",\" V | first",
    "index (splitList \":\" V) 0",
    "dict \"k\" V | toJson",
    "dict V \"v\" | toJson",
    "(dict \"k\" V).k",
    "V | default \"d\"",
    "ternary V \"no\" true",
    "coalesce V \"no\"",
    "regexReplaceAll \"^(.*)$\" V \"${1}\"",
    "regexFind \"(?s).*\" V",
    "V | html",
    "V | js",
    "V | urlquery",
    "wrap 10 V",
    "V | nospace",
    "V | toString",
    "toStrings (list V) | last",
    "keys .Target.keys | first",
    "keys .Target.keys | sortAlpha | join \"\"",
    ".Target.keys",
    ".Target.keys | toJson",
    "range $k, $v := .Target.keys }}{{ $k }}{{ end",
    "with V }}{{ . }}{{ end",
    "if V }}{{ V }}{{ else }}none{{ end",
    "range $i, $e := untilStep 0 1 1 }}{{ V }}{{ end",
    "$x := V }}{{ $x",
    "template \"t\" V",
    "(urlParse V).path",
    "range splitList \"\" V }}{{ printf \"%c\" (index . 0) }}{{ end",
];

/// Texts that want to be more than values. Empty ones leave a rule's own text alone, as in the originals.
fn hostile() -> impl Strategy<Value = String> {
    let fragments = proptest::sample::select(vec![
        "\n",
        "\r\n",
        "\n\n",
        " ",
        "  ",
        "\t",
        ": ",
        ":",
        "#",
        " # ",
        "- ",
        "-",
        "? ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        "''",
        "\"",
        "\\",
        "\\n",
        "\\\"",
        "&x ",
        "*x",
        "!!binary ",
        "!!map ",
        "!",
        "|",
        ">",
        "|\n  ",
        "%YAML 1.2\n",
        "---\n",
        "\n---\n",
        "...\n",
        "\n...\n",
        "<<",
        "<<: ",
        "null",
        "~",
        "true",
        "1",
        "0x1f",
        ".inf",
        "=",
        "@",
        "`",
        "\0",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{7f}",
        "\nsecurityContext: {privileged: true}",
        "\n  privileged: true",
        "\", \"b\": \"",
        "', b: '",
        "}, {",
        "], [",
        "kilndata0w0z",
        "kilnaction0z",
        "{{ .Target }}",
        "(( 1 ))",
        "{{request}}",
        "$(x)",
        "\\{{",
        "$patch",
        "(name)",
        "+(a)",
        "~1",
        "~0",
        "/",
        "../",
        "..",
        "?",
        "&",
        "%2f",
        "%2e%2e",
        "+",
        ";",
        "!=",
        "*",
        "prod?",
        "home/secrets/prod?",
        "platform/secrets/prod?",
        "&labelSelector=",
        "&labelSelector=app=other",
        "a",
        "b",
        "name",
        "image",
        "k",
        "x",
    ]);
    let text = prop_oneof![
        4 => proptest::collection::vec(fragments, 1..6).prop_map(|parts| parts.concat()),
        1 => "(?s).{0,12}",
    ];
    text.prop_filter("empty", |text| !text.trim_matches('\n').is_empty())
}

/// The result of a rule for a hostile value is that for a harmless one, but for the value, or the rule fails.
fn holds(rule: &str, says: &str) -> Result<(), TestCaseError> {
    let set = rules(rule);
    let harmless = result(&set, &pod(HARMLESS));
    let Some(hostile) = result(&set, &pod(says)) else { return Ok(()) };
    let Some(harmless) = harmless else {
        return Err(TestCaseError::fail(format!("{rule} acts on {says:?} alone")));
    };
    prop_assert!(
        same_structure(&harmless, &hostile),
        "{rule}\nwith {says:?} makes\n{hostile:?}\nand otherwise\n{harmless:?}"
    );
    Ok(())
}

fn filled(place: &str, action: &str) -> String {
    let action = action.replace('V', "$.Target.metadata.annotations.v");
    let filled = place.replace("ACTION", &format!("{{{{ {action} }}}}"));
    format!("{{{{ define \"t\" }}}}{{{{ . }}}}{{{{ end }}}}{filled}")
}

/// Rules of all other languages, with the value wherever text is filled in.
fn others() -> Vec<String> {
    let v = "{{ request.object.metadata.annotations.v }}";
    let json = |text: &str| {
        let text = kiln_value::json::to_string(&Value::from(text.replace("VALUE", v)));
        kyverno("ClusterPolicy", "Pod", &format!("mutate: {{patchesJson6902: {text}}}"))
    };
    let each = |text: &str| {
        let text = text.replace("VALUE", "{{ element.metadata.annotations.v }}");
        let text = kiln_value::json::to_string(&Value::from(text));
        let each =
            format!("mutate: {{foreach: [{{list: '[request.object]', patchesJson6902: {text}}}]}}");
        kyverno("ClusterPolicy", "Pod", &each)
    };
    let merge = |patch: &str| {
        let patch = patch.replace("VALUE", v);
        kyverno("ClusterPolicy", "Pod", &format!("mutate: {{patchStrategicMerge: {patch}}}"))
    };
    let generate = |data: &str| {
        let data = data.replace("VALUE", v);
        kyverno(
            "ClusterPolicy",
            "Pod",
            &format!(
                "generate: {{apiVersion: v1, kind: ConfigMap, name: made, namespace: home, data: {data}}}"
            ),
        )
    };
    let cel = |template: &str| {
        let template = template.replace("VALUE", "(( object.metadata.annotations.v ))");
        let template = kiln_value::json::to_string(&Value::from(template));
        let spec = format!("generate: [{{template: {{interpolate: cel, value: {template}}}}}]");
        scripted("GeneratingPolicy", "pods", &spec)
    };
    // What a rule reads goes into an object, but for what is called as the object says.
    let reading = |entry: &str| {
        let entry = entry.replace("VALUE", v);
        let rule = format!(
            "context: [{{name: seen, {entry}}}]\ngenerate: {{apiVersion: v1, kind: ConfigMap, name: made, namespace: home, data: \
             {{data: {{seen: \"{{{{ to_string(seen) }}}}\"}}}}}}"
        );
        kyverno("ClusterPolicy", "Pod", &rule)
    };
    let path = |path: &str, query: &str| {
        reading(&format!("apiCall: {{urlPath: \"{path}\", jmesPath: \"{query}\"}}"))
    };
    let service = |url: &str| reading(&format!("apiCall: {{service: {{url: \"{url}\"}}}}"));
    let strangers = "items[?data.k != 'own'] | length(@)";
    let mutating =
        |mutation: &str| scripted("MutatingPolicy", "pods", &format!("mutations: [{mutation}]"));
    let mut all = vec![
        json("- op: add\n  path: /spec/filled\n  value: VALUE\n"),
        json("- op: add\n  path: /spec/filled\n  value: {image: agent:VALUE, b: [VALUE]}\n"),
        json("- op: add\n  path: /spec/filled\n  value:\n    image: agent:VALUE\n    last: 1\n"),
        json("- op: add\n  path: /spec/filled\n  value: \"agent:VALUE\"\n"),
        json("- op: add\n  path: /spec/filled\n  value: 'agent:VALUE'\n"),
        json("- op: add\n  path: /spec/filled\n  value: |\n    VALUE\n    last\n"),
        json("- op: add\n  path: /spec/filled\n  value: {k-VALUE: x, b: c}\n"),
        json("[{\"op\": \"add\", \"path\": \"/spec/filled\", \"value\": \"VALUE\"}]"),
        json(
            "[{\"op\": \"add\", \"path\": \"/spec/filled\", \"value\": {\"k-VALUE\": \"x\", \"b\": VALUE}}]",
        ),
        each("- op: add\n  path: /metadata/labels/x-VALUE\n  value: VALUE\n"),
        each("- {op: add, path: \"/metadata/labels/VALUE\", value: VALUE}"),
        each("- {op: add, path: /spec/filled, value: {a: VALUE}}"),
        each("VALUE"),
        each("- op: add\n  path: /spec/filled\n  value: a\nVALUE\n"),
        merge("{metadata: {labels: {x: 'VALUE'}}}"),
        merge("{metadata: {labels: {'VALUE': x, b: c}}}"),
        merge("{metadata: {labels: {'+(VALUE)': x, b: c}}}"),
        merge("{spec: {containers: [{name: agent, image: 'agent:VALUE'}]}}"),
        generate("{data: {x: 'VALUE', b: 'pre-VALUE'}}"),
        generate("{data: {'VALUE': x, b: c}}"),
        generate("{data: {'k-VALUE': x, b: c}}"),
        path("/api/v1/namespaces/home/configmaps/VALUE", "data.k"),
        path("/api/v1/namespaces/VALUE/configmaps/settings", "data.k"),
        path("/api/v1/namespaces/home/configmaps?labelSelector=app=VALUE", strangers),
        path("/api/v1/namespaces/home/configmaps?labelSelector=app+in+(VALUE)", strangers),
        path(
            "/api/v1/namespaces/home/configmaps?fieldSelector=metadata.name=VALUE&limit=9",
            strangers,
        ),
        reading("configMap: {name: 'VALUE', namespace: home}")
            .replace("to_string(seen)", "to_string(seen.data.k)"),
        service("http://prices/own/VALUE"),
        service("http://prices/own/VALUE/more?a=VALUE&b=c"),
        service("http://prices/own?a=x-VALUE"),
        mutating(
            "{patchType: JSONPatch, jsonPatch: {expression: \"[JSONPatch{op: 'add', path: '/spec/x', value: \
             object.metadata.annotations.v}]\"}}",
        ),
        mutating(
            "{patchType: ApplyConfiguration, applyConfiguration: {expression: \"Object{metadata: Object.metadata{labels: \
             {'x': object.metadata.annotations.v}}}\"}}",
        ),
    ];
    for text in [
        "VALUE",
        "agent:VALUE",
        "\"VALUE\"",
        "'a-VALUE'",
        "[VALUE]",
        "{a: VALUE}",
        "|\n    VALUE\n    b",
    ] {
        all.push(cel(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: made, namespace: home}}\ndata:\n  x: {text}\n  last: a\n"
        )));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_objects_say_is_no_structure_in_modrules(
        place in proptest::sample::select(PLACES),
        action in proptest::sample::select(ACTIONS),
        says in hostile(),
    ) {
        let rule = modrule(&filled(place, action));
        // Some actions cannot stand in some places, whatever is filled in.
        if result(&rules(&rule), &pod(HARMLESS)).is_some() {
            holds(&rule, &says)?;
        }
    }

    #[test]
    fn what_objects_say_is_no_structure_in_any_other_language(
        rule in proptest::sample::select(others()),
        says in hostile(),
    ) {
        holds(&rule, &says)?;
    }
}

/// The rules above act at all.
#[test]
fn the_rules_of_the_properties_act_on_harmless_values() {
    for rule in others() {
        let refused = rule.contains("\"{{ element.metadata.annotations.v }}\"")
            || rule.contains("value: a\\n{{ element");
        assert_eq!(result(&rules(&rule), &pod(HARMLESS)).is_some(), !refused, "{rule}");
    }
    for place in PLACES {
        assert!(result(&rules(&modrule(&filled(place, "V"))), &pod(HARMLESS)).is_some(), "{place}");
    }
    for action in ACTIONS {
        let rule = modrule(&filled("a: |\n  x\n  ACTION\nb: c", action));
        assert!(result(&rules(&rule), &pod(HARMLESS)).is_some(), "{action}");
    }
}

/// What a ModRule with this value writes for a Pod that says this.
fn written(template: &str, says: &str) -> Value {
    let rule = modrule(&template.replace('V', ".Target.metadata.annotations.v"));
    let result = result(&rules(&rule), &pod(says));
    let result = result.unwrap_or_else(|| panic!("{template} acts"));
    result.get_path(["object", "spec", "filled"]).cloned().unwrap_or_default()
}

#[test]
fn values_are_written_exactly_as_objects_say_them() {
    let privileged = "1\nsecurityContext: {privileged: true}";
    for (template, says, wanted) in [
        (
            "name: a\nimage: agent:{{ V }}",
            privileged,
            value!({"name": "a", "image": format!("agent:{privileged}")}),
        ),
        ("a: \"{{ V }}\"", "\", b: \"c", value!({"a": "\", b: \"c"})),
        ("a: '{{ V }}'", "it's", value!({"a": "it's"})),
        ("a: {{ V }}", "{b: c}", value!({"a": "{b: c}"})),
        ("a: {{ V }}", "*x", value!({"a": "*x"})),
        ("a: {{ V }}", "&x y", value!({"a": "&x y"})),
        ("a: {{ V }}", "!!binary aGk=", value!({"a": "!!binary aGk="})),
        ("a: {{ V }}", "b # c", value!({"a": "b # c"})),
        ("a: {{ V }}", "b: c", value!({"a": "b: c"})),
        ("a: {{ V }}", "- b", value!({"a": "- b"})),
        ("a: x{{ V }}", "\n---\nb: c", value!({"a": "x\n---\nb: c"})),
        ("{{ V }}: c", "a: b", value!({"a: b": "c"})),
        ("{{ V }}: {a: b}", "<<", value!({"<<": {"a": "b"}})),
        ("a: |\n  {{ V }}", "one\ntwo", value!({"a": "one\ntwo"})),
        ("a: {{ V | toJson }}", "b\n\"c\"", value!({"a": "b\n\"c\""})),
        ("{{ dict \"a\" V | toJson }}", "b\n\"c\"", value!({"a": "b\n\"c\""})),
        ("a: {{ V | quote }}", "b\n\"c\"", value!({"a": "b\n\"c\""})),
        // A text of JSON inside of a text keeps its escapes.
        ("a: '{\"b\": {{ V | quote }}}'", "c\"d", value!({"a": "{\"b\": \"c\\\"d\"}"})),
        ("a: '{{ V | toJson }}'", "c\"d", value!({"a": "\"c\\\"d\""})),
    ] {
        assert_eq!(written(template, says), wanted, "{template} with {says:?}");
    }
}

#[test]
fn harmless_values_are_written_as_by_kubemod() {
    for (template, says, wanted) in [
        ("a: {{ V }}", "5", value!({"a": 5})),
        ("a: {{ V }}", "true", value!({"a": true})),
        ("a: {{ V }}", "null", value!({"a": null})),
        ("a: {{ V }}", "~", value!({"a": null})),
        ("a: {{ V }}", "", value!({"a": null})),
        ("a: {{ V }}", "0x1F", value!({"a": 31})),
        ("a: \"{{ V }}\"", "5", value!({"a": "5"})),
        ("a: 1{{ V }}", "5", value!({"a": 15})),
        ("a: {{ V }}", " b ", value!({"a": "b"})),
        ("a: {{ V }}\nb: c", "b\n", value!({"a": "b", "b": "c"})),
        ("a: |\n  {{ V }}\nb: c", "one\n", value!({"a": "one\n", "b": "c"})),
        (
            "a: |\n{{ V | indent 2 }}\nb: c",
            "one\n  two\n\nthree",
            value!({"a": "one\n  two\n\nthree\n", "b": "c"}),
        ),
        ("a: |{{ V | nindent 2 }}\nb: c", "one\ntwo\n", value!({"a": "one\ntwo\n", "b": "c"})),
        (
            "a: {{ V | replace \",\" \"\\n- \" | printf \"\\n- %s\" }}",
            "x,z",
            value!({"a": ["x", "z"]}),
        ),
        ("{{ range splitList \",\" V }}\n- {{ . }}{{ end }}", "x,5", value!(["x", 5])),
        ("[{{ splitList \",\" V | join \", \" }}]", "x,z", value!(["x", "z"])),
        ("{{ V | fromJson | toJson }}", "{\"a\": [1, \"b\"]}", value!({"a": [1, "b"]})),
        (
            "a:{{ V | fromJson | toPrettyJson | nindent 2 }}",
            "{\"a\": [1, \"b\"]}",
            value!({"a": {"a": [1, "b"]}}),
        ),
        ("{{ printf \"%s: %s\" \"a\" V }}", "b", value!({"a": "b"})),
        ("{{ $k := \"a\" }}{{ print $k \": \" V }}", "b", value!({"a": "b"})),
        ("{{ if eq V \"b\" }}a: [1]{{ else }}c{{ end }}", "b", value!({"a": [1]})),
        ("{{ default \"{a: b}\" .Target.none }}", "x", value!({"a": "b"})),
        (
            "{{ range $k, $v := .Target.keys }}{{ $k }}: {{ $v }}\n{{ end }}",
            "x",
            value!({"x": "said"}),
        ),
        ("{{ list \"a\" V }}", "x", value!(["a x"])),
    ] {
        assert_eq!(written(template, says), wanted, "{template} with {says:?}");
    }
}

#[test]
fn a_value_is_no_key_that_is_written_already() {
    let rule = modrule("image: agent:1\n{{ .Target.metadata.annotations.v }}: x");
    assert!(result(&rules(&rule), &pod("name")).is_some());
    assert!(result(&rules(&rule), &pod("image")).is_none());
}

#[test]
fn a_value_in_a_path_is_one_step() {
    let rule = |path: &str| {
        let text = format!("- {{op: add, path: \"{path}\", value: x}}");
        let text = kiln_value::json::to_string(&Value::from(text));
        kyverno(
            "ClusterPolicy",
            "Pod",
            &format!(
                "mutate: {{foreach: [{{list: '[request.object.metadata.annotations.v]', patchesJson6902: {text}}}]}}"
            ),
        )
    };
    for (path, says, key) in [
        ("/metadata/labels/{{ element }}", "a/b", "a/b"),
        ("/metadata/labels/{{ element }}", "../../spec", "../../spec"),
        ("/metadata/labels/{{ element }}", "a~1b", "a/b"),
        ("/metadata/labels/{{ replace_all(element, '/', '~1') }}", "a/b", "a/b"),
        ("/metadata/labels/{{ elementIndex }}", "a/b", "0"),
    ] {
        let mut pod = pod(says);
        pod.set(["metadata", "labels", "own"], "x").unwrap();
        let after = result(&rules(&rule(path)), &pod).expect(path);
        assert_eq!(
            after.str_at(["object", "metadata", "labels", key]),
            Some("x"),
            "{path} {says} {after:?}"
        );
    }
}

/// What a rule sees that reads by a path, for a Pod that says this; `None` if it fails.
fn read_by(path: &str, context: &str, says: &str) -> Option<String> {
    let rule = format!(
        "context: [{context}{{name: seen, apiCall: {{urlPath: \"{path}\"}}}}]\ngenerate: {{apiVersion: v1, kind: ConfigMap, \
         name: made, namespace: home, data: {{data: {{seen: \"{{{{ to_string(seen) }}}}\"}}}}}}"
    );
    let rule = kyverno("ClusterPolicy", "Pod", &rule);
    let made = result(&rules(&rule), &pod(says))?;
    Some(made.get("made")?.index(0)?.str_at(["data", "seen"])?.to_owned())
}

#[test]
fn a_value_in_a_path_of_the_api_server_is_one_step_or_one_value() {
    let v = "{{ request.object.metadata.annotations.v }}";
    let within = "/api/v1/namespaces/VALUE/configmaps/settings";
    let named = "/api/v1/namespaces/home/configmaps/VALUE";
    let labelled = "/api/v1/namespaces/home/configmaps?labelSelector=app=VALUE";
    let selected = "/api/v1/namespaces/home/configmaps?labelSelector=VALUE&limit=5";
    let field = "/api/v1/namespaces/home/configmaps?fieldSelector=metadata.name=VALUE";
    for (path, says, wanted) in [
        (within, "harmless", Some("own")),
        (within, "platform/secrets/prod?", None),
        (within, "platform/secrets/prod#", None),
        (within, "", None),
        (within, "..", None),
        (named, "harmless", Some("own")),
        (named, "", None),
        (named, ".", None),
        (named, "x?labelSelector=", None),
        (labelled, "harmless", Some("own")),
        (labelled, "x&labelSelector=", None),
        (labelled, "x,app!=y", None),
        (labelled, "x%26labelSelector%3D", None),
        (selected, "", None),
        (selected, "app=harmless", Some("own")),
        (selected, "app in (harmless)", Some("own")),
        (field, "harmless", Some("own")),
        (field, "a!=b", None),
        ("/apis/VALUE/namespaces/home/deployments", "apps/v1", Some("DeploymentList")),
        ("/apis/VALUE/namespaces/home/deployments", "apps/v1/x", None),
        ("/apis/VALUE/v1/namespaces/home/deployments", "apps", Some("DeploymentList")),
        ("/apis/VALUE/v1/namespaces/home/deployments", "apps/v1", None),
        ("VALUE", "/api/v1/namespaces/platform/secrets/prod", None),
        ("/VALUE", "api/v1/namespaces/platform/secrets/prod", None),
    ] {
        let seen = read_by(&path.replace("VALUE", v), "", says);
        match wanted {
            Some(wanted) => {
                let seen = seen.unwrap_or_else(|| panic!("{path} with {says:?} fails"));
                assert!(
                    seen.contains(wanted) && !seen.contains("stolen"),
                    "{path} {says:?}: {seen}"
                );
            }
            None => assert_eq!(seen, None, "{path} with {says:?}"),
        }
    }
}

/// A path may be kept in a variable, where its own variables are steps of it as well.
#[test]
fn the_policys_own_text_makes_the_structure_of_a_path() {
    let v = "{{ request.object.metadata.annotations.v }}";
    let text = |value: &str| format!("{{name: a, variable: {{value: \"{value}\"}}}}, ");
    let whole = text(&format!("/api/v1/namespaces/home/configmaps/{v}"));
    let chosen = "{name: a, variable: {value: {c: configmaps/harmless, s: secrets/prod}}}, ";
    let said = text(v);
    for (context, path, says, wanted) in [
        (whole.as_str(), "{{ a }}", "harmless", true),
        (whole.as_str(), "{{ a }}", "../secrets/prod", false),
        (said.as_str(), "/api/v1/namespaces/home/{{ a }}", "configmaps/harmless", false),
        (said.as_str(), "/api/v1/namespaces/home/configmaps/{{ a }}", "harmless", true),
        (chosen, "/api/v1/namespaces/home/{{ a.c }}", "", true),
        (
            chosen,
            "/api/v1/namespaces/home/{{ a.{{ request.object.metadata.annotations.v }} }}",
            "c",
            true,
        ),
        (
            chosen,
            "/api/v1/namespaces/home/{{ a.{{ request.object.metadata.annotations.v }} }}",
            "x || 'secrets/prod'",
            false,
        ),
    ] {
        let seen = read_by(path, context, says);
        assert_eq!(
            seen.as_ref().is_some_and(|seen| seen.contains("own")),
            wanted,
            "{path} {seen:?}"
        );
        assert!(wanted || seen.is_none(), "{path} with {says:?}: {seen:?}");
    }
}

#[test]
fn a_value_in_an_expression_is_a_value_or_a_name() {
    let v = "{{ request.object.metadata.annotations.v }}";
    let read = |query: &str, context: &str, says: &str| {
        let query = kiln_value::json::to_string(&Value::from(query.replace("VALUE", v)));
        let path = "/api/v1/namespaces/home/configmaps";
        let rule = format!(
            "context: [{context}{{name: seen, apiCall: {{urlPath: {path}, jmesPath: {query}}}}}]\ngenerate: {{apiVersion: v1, \
             kind: ConfigMap, name: made, namespace: home, data: {{data: {{seen: \"{{{{ to_string(seen) }}}}\"}}}}}}"
        );
        let made = result(&rules(&kyverno("ClusterPolicy", "Pod", &rule)), &pod(says))?;
        Some(made.get("made")?.index(0)?.str_at(["data", "seen"])?.to_owned())
    };
    let named = "items[?metadata.name == 'VALUE'].data.k";
    let keyed = "items[?metadata.labels.app == 'harmless'].data.VALUE";
    let literal = "items[?metadata.name == `\"VALUE\"`].data.k";
    let listed = "items[?contains('{{ keys(request.object.keys) }}', metadata.name)].data.k";
    let own = "{name: a, variable: {value: \"items[?metadata.name == 'harmless'].data.k\"}}, ";
    for (query, context, says, wanted) in [
        (named, "", "harmless", Some("[\"own\"]")),
        (named, "", "it's", Some("[]")),
        (named, "", "x' || 'a' == 'a", Some("[]")),
        (named, "", "x\\' || 'a' == 'a", None),
        (named, "", "x\\", None),
        (literal, "", "harmless", Some("[\"own\"]")),
        (literal, "", "x\" ` || `true", None),
        (listed, "", "harmless", Some("[\"own\"]")),
        (listed, "", "x', metadata.name) || 'a' == 'a' || contains('", Some("[]")),
        (keyed, "", "k", Some("[\"own\"]")),
        (keyed, "", "k || items", None),
        ("VALUE", "", "items[].data.k", None),
        ("{{ a }}", own, "", Some("[\"own\"]")),
    ] {
        assert_eq!(read(query, context, says).as_deref(), wanted, "{query} with {says:?}");
    }
}

/// What was asked of a service, for a Pod that says this; `None` if nothing was.
fn asked(url: &str, context: &str, says: &str) -> Option<String> {
    struct Asked(std::cell::RefCell<Option<String>>);
    impl ExternalData for Asked {
        fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
            *self.0.borrow_mut() = Some(request.url.to_owned());
            Ok(value!({}))
        }
    }
    let rule = format!(
        "context: [{context}{{name: seen, apiCall: {{service: {{url: \"{url}\"}}}}}}]\ngenerate: {{apiVersion: v1, kind: \
         ConfigMap, name: made, namespace: home, data: {{data: {{seen: \"{{{{ to_string(seen) }}}}\"}}}}}}"
    );
    let rules = rules(&kyverno("ClusterPolicy", "Pod", &rule));
    let (view, kinds) = (Objects(objects(CONFIG)), Kinds::builtin());
    let external_data = Asked(std::cell::RefCell::default());
    let eval_env = EvalEnv { external_data: &external_data, ..EvalEnv::of(&view, &kinds) };
    rules.evaluate(&Event::created(pod(says)), &eval_env);
    external_data.0.take()
}

const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: home}, data: {url: 'http://prices/v1'}}";

#[test]
fn a_value_in_the_address_of_a_service_is_one_step_or_one_value() {
    let v = "{{ request.object.metadata.annotations.v }}";
    let config = "{name: c, configMap: {name: c, namespace: home}}, ";
    let chosen = format!("{{name: c, configMap: {{name: '{v}', namespace: home}}}}, ");
    for (context, url, says, wanted) in [
        ("", "http://prices/VALUE", "app", Some("http://prices/app")),
        ("", "http://prices/VALUE", "a b", Some("http://prices/a%20b")),
        ("", "http://prices/VALUE", "../admin", None),
        ("", "http://prices/VALUE/x", "..", None),
        ("", "http://prices/x?image=VALUE", "hub/app:1", Some("http://prices/x?image=hub/app:1")),
        ("", "http://prices/x?image=VALUE", "a&b=c#d", Some("http://prices/x?image=a%26b=c%23d")),
        ("", "http://VALUE.prices/x", "a", Some("http://a.prices/x")),
        ("", "http://VALUE.prices/x", "evil.example/", None),
        ("", "http://VALUE.prices/x", "u@evil:80", None),
        ("", "http://VALUE.prices/x", "evil.example", None),
        ("", "http://VALUE/x", "prices", None),
        ("", "VALUE", "http://evil.example/", None),
        ("", "VALUE://prices/", "http", None),
        (config, "{{ c.data.url }}/VALUE", "a", Some("http://prices/v1/a")),
        (config, "{{ c.data.url }}/VALUE", "a/b", None),
        (chosen.as_str(), "{{ c.data.url }}", "c", None),
    ] {
        let found = asked(&url.replace("VALUE", v), context, says);
        assert_eq!(found.as_deref(), wanted, "{url} with {says:?}");
    }
}

/// Names in which the policy may write wildcards, or a subresource.
#[test]
fn a_value_is_no_wildcard_and_no_subresource() {
    let v = "{{ request.object.metadata.annotations.v }}";
    let target = |kind: &str, name: &str, namespace: &str| {
        let rule = format!(
            "mutate: {{targets: [{{apiVersion: v1, kind: \"{kind}\", name: \"{name}\", namespace: \"{namespace}\"}}], \
             patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}"
        );
        kyverno("ClusterPolicy", "Pod", &rule)
    };
    for (rule, says, changed) in [
        (target("Secret", v, "home"), "prod", 1),
        (target("Secret", v, "home"), "*", 0),
        (target("Secret", v, "home"), "", 0),
        (target("Secret", "*", v), "home", 1),
        (target("Secret", "*", v), "*", 0),
        (target("Secret", "*", v), "", 0),
        (target("Secret", "*", "*"), "", 2),
        (target(v, "prod", "home"), "Secret", 1),
        (target(v, "prod", "home"), "*", 0),
        (target(v, "prod", "home"), "Secret/status", 0),
    ] {
        let (view, kinds) = (Objects(objects(SEEN)), Kinds::builtin());
        let eval_env = EvalEnv::of(&view, &kinds);
        let outcomes = rules(&rule).evaluate(&Event::created(pod(says)), &eval_env);
        let patches = outcomes.iter().flat_map(|outcome| &outcome.effects);
        assert_eq!(patches.count(), changed, "{rule} with {says:?}: {outcomes:?}");
    }
}

#[test]
fn a_value_is_no_instruction_of_a_merge() {
    let patch = "{metadata: {annotations: '{{ request.object.more }}'}}";
    let rule =
        kyverno("ClusterPolicy", "Pod", &format!("mutate: {{patchStrategicMerge: {patch}}}"));
    for (more, acts) in [
        (value!({"a": "b"}), true),
        (value!({"$patch": "delete"}), false),
        (value!({"a": {"(b)": "c"}}), false),
        (value!([{"$retainKeys": ["a"]}]), false),
    ] {
        let mut pod = pod("x");
        pod.set(["more"], more.clone()).unwrap();
        assert_eq!(result(&rules(&rule), &pod).is_some(), acts, "{more:?}");
    }
}

#[test]
fn values_that_count_on_objects_for_structure_are_warned_of() {
    let text = "stands where structure would";
    for (value, warned) in [
        ("name: a\n{{ .Target.metadata.annotations.v }}\nimage: b\n", true),
        ("{name: a, {{ .Target.metadata.annotations.v }} }", true),
        ("name: a\n{{ .Target.metadata.annotations.v | indent 0 }}\n", true),
        ("name: a\nmore: {{ .Target.metadata.annotations | toJson }}\n", false),
        ("name: a\nimage: agent:{{ .Target.metadata.annotations.v }}\n", false),
        ("{{ .Target.metadata.annotations.v }}", false),
        ("{{ .Target.metadata.annotations.v }}: a", false),
        ("{{ range .Target.spec.containers }}\n- {{ .name }}{{ end }}", false),
        ("{{ if .Target.x }}a: b{{ else }}{{ .Target.y }}{{ end }}", false),
        ("text: |\n  {{ .Target.metadata.annotations.v }}\n", false),
    ] {
        let said = messages(&compiled(&modrule(value)));
        assert_eq!(said.iter().any(|message| message.contains(text)), warned, "{value}: {said:?}");
    }
    let each = "mutate: {foreach: [{list: request.object.spec.containers, patchesJson6902: '{{ element.patch }}'}]}";
    let said = messages(&compiled(&kyverno("ClusterPolicy", "Pod", each)));
    assert!(said.iter().any(|message| message.contains("stand where structure would")), "{said:?}");
}
