//! Objects do not choose the namespaces that a cluster lives on. Authors of policies may.

use crate::support::policies::{config_map, kyverno, labelling, scripted};
use crate::support::{Fixed, Objects, objects, rules};
use kiln_engine::{Effect, EvalEnv, Event};
use kiln_object::Kinds;
use kiln_text::wildcard;
use kiln_value::Str;

const SECRETS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: other}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: kube-system}}
";

#[test]
fn objects_do_not_choose_protected_namespaces() {
    let generate = |namespace: &str, context: &str| {
        let rule = format!(
            "exclude: {{any: [{{resources: {{namespaces: [kube-system]}}}}]}}\ncontext: [{context}]\ngenerate: {{apiVersion: v1, kind: Secret, name: made, namespace: \"{namespace}\", data: {{stringData: {{a: b}}}}}}"
        );
        kyverno("ClusterPolicy", "ConfigMap", &rule)
    };
    let cel_with = |variables: &str, namespace: &str, object: &str| {
        let spec = format!(
            "variables: [{variables}]\nmatchConditions: [{{name: c, expression: \"object.metadata.namespace != 'kube-system'\"}}]\ngenerate:\n- expression: \"generator.Apply({namespace}, [{object}])\""
        );
        scripted("GeneratingPolicy", "configmaps", &spec)
    };
    let made = "{'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'made'}}";
    let cel = |namespace: &str| cel_with("", namespace, made);
    let namespace = "{'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': NAME}}";
    let into = |expression: &str| {
        let variables = "{name: to, expression: \"'kube-system'\"}, {name: list, expression: \"['kube-system']\"}";
        let expression = expression.replace("MADE", made);
        let spec = format!("variables: [{variables}]\ngenerate:\n- expression: \"{expression}\"");
        scripted("GeneratingPolicy", "configmaps", &spec)
    };
    let targets = |namespace: &str| {
        let rule = format!(
            "mutate: {{targets: [{{apiVersion: v1, kind: Secret, name: key, namespace: \"{namespace}\"}}], patchStrategicMerge: {{metadata: {{labels: {{a: b}}}}}}}}"
        );
        kyverno("ClusterPolicy", "ConfigMap", &rule)
    };
    let scripted_targets = |targets: &str| {
        labelling("MutatingPolicy", "configmaps", &format!("expression: \"{targets}\""))
    };
    let x = "{{ request.object.data.x }}";
    let protected = ["kube-*".into(), "engine".into()];
    for (policy, x, wanted) in [
        (generate(x, ""), "kube-system", false),
        (generate(x, ""), "engine", false),
        (generate(x, ""), "other", true),
        (generate("kube-system", ""), "", true),
        (generate("{{ to }}", "{name: to, variable: {value: kube-system}}"), "", true),
        (
            generate(
                "{{ to }}",
                "{name: to, variable: {value: not-kube-system, jmesPath: \"replace_all(@, 'not-', '')\"}}",
            ),
            "",
            false,
        ),
        (generate("kube-{{ request.object.data.x }}", ""), "system", false),
        // The trigger lives there, so the user who stored it may write there.
        (generate("{{ request.namespace }}", ""), "home", true),
        (cel("object.data.x"), "kube-system", false),
        (cel("object.data.x"), "other", true),
        (cel("'kube-system'"), "", true),
        (cel_with("{name: to, expression: \"'kube-system'\"}", "variables.to", made), "", true),
        (
            cel_with("{name: to, expression: \"['a', 'kube-system']\"}", "variables.to[1]", made),
            "",
            true,
        ),
        (
            cel_with("{name: not, expression: \"'kube-system'\"}", "object.data.x", made),
            "kube-system",
            false,
        ),
        (
            cel_with(
                "{name: to, expression: \"object.data.x == 'kube-system' ? object.data.x : 'a'\"}",
                "variables.to",
                made,
            ),
            "kube-system",
            false,
        ),
        // Words that say something else open nothing.
        (
            generate(x, "")
                .replace("stringData: {a: b}", "metadata: {labels: {created-by: engine}}"),
            "engine",
            false,
        ),
        (
            generate(x, "{name: c, configMap: {name: c, namespace: kube-system}}"),
            "kube-system",
            false,
        ),
        (
            generate(x, "").replace(
                "data: {stringData: {a: b}}",
                "clone: {name: key, namespace: kube-system}",
            ),
            "kube-public",
            false,
        ),
        (
            generate(x, "").replace(
                "data: {stringData: {a: b}}",
                "clone: {name: key, namespace: kube-system}",
            ),
            "kube-system",
            false,
        ),
        (cel("object.data.x != 'kube-system' ? object.data.x : 'a'"), "kube-public", false),
        (cel("object.data.x in ['kube-system'] ? object.data.x : 'a'"), "kube-system", false),
        (
            cel("object.data.x in ['kube-public', 'kube-system'] ? object.data.x : 'a'"),
            "kube-system",
            false,
        ),
        (
            cel("object.data.x.startsWith('kube-system') ? object.data.x : 'a'"),
            "kube-system",
            false,
        ),
        (cel("('kube-system' == object.data.x) ? object.data.x : 'a'"), "kube-system", false),
        (cel("[object.data.x, 'kube-system'][0]"), "kube-system", false),
        (cel("object.data.x + string('')"), "kube-system", false),
        (
            into("'kube-system' != object.data.y && generator.Apply(object.data.x, [MADE])"),
            "kube-system",
            false,
        ),
        (
            into("variables.to != object.data.y && generator.Apply(object.data.x, [MADE])"),
            "kube-system",
            false,
        ),
        (
            into("['kube-system'].all(n, true) && generator.Apply(object.data.x, [MADE])"),
            "kube-system",
            false,
        ),
        (
            into(
                "['kube-system'].all(n, true) && [object.data.x].all(n, generator.Apply(n, [MADE]))",
            ),
            "kube-system",
            false,
        ),
        (
            into("['kube-system'].all(n, [object.data.x].all(n, generator.Apply(n, [MADE])))"),
            "kube-system",
            false,
        ),
        (
            into("['kube-system', object.data.x].all(n, generator.Apply(n, [MADE]))"),
            "kube-system",
            false,
        ),
        (
            into(
                "{'metadata': {'namespace': 'kube-system'}} != object && generator.Apply(object.data.x, [MADE])",
            ),
            "kube-system",
            false,
        ),
        (
            cel_with(
                "",
                "object.data.x",
                &made.replace("'made'", "object.data.x == 'a' ? 'namespace' : 'kube-system'"),
            ),
            "kube-system",
            false,
        ),
        (
            cel_with("", "object.data.x", "resource.get('v1', 'secrets', 'kube-system', 'key')"),
            "kube-system",
            false,
        ),
        // A loop over names, written or a value, and what only changes their type.
        (into("['kube-system'].all(n, generator.Apply(n, [MADE]))"), "", true),
        (
            into(
                "['a', 'kube-system'].filter(n, n != object.data.x).all(n, generator.Apply(n, [MADE]))",
            ),
            "a",
            true,
        ),
        (into("variables.list.all(n, generator.ApplyAll(n, [MADE]))"), "", true),
        (cel("string('kube-system')"), "", true),
        (
            cel_with("{name: to, expression: \"'kube-system'\"}", "string(variables.to)", made),
            "",
            true,
        ),
        // A Namespace in CEL, too, is what it is called.
        (cel_with("", "'a'", &namespace.replace("NAME", "'kube-system'")), "", true),
        (cel_with("", "'a'", &namespace.replace("NAME", "object.data.x")), "kube-system", false),
        (
            cel_with("", "'kube-system'", &namespace.replace("NAME", "object.data.x")),
            "kube-system",
            false,
        ),
        // Only the entry that a variable begins with is meant by it, and only where nothing else is said.
        (
            generate("{{ request.object.data.x }}", "{name: x, variable: {value: kube-system}}"),
            "kube-system",
            false,
        ),
        (
            generate(
                "{{ request.object.data.x }}",
                "{name: data, variable: {value: {x: kube-system}}}",
            ),
            "kube-system",
            false,
        ),
        (
            generate(
                "{{ to && request.object.data.x }}",
                "{name: to, variable: {value: kube-system}}",
            ),
            "kube-system",
            false,
        ),
        (
            generate(
                "{{ request.object.data.x }}{{ to.b }}",
                "{name: to, variable: {value: {a: kube-system, b: ''}}}",
            ),
            "kube-system",
            false,
        ),
        (
            generate(
                "{{ to }}",
                "{name: to, variable: {value: kube-system}}, {name: to, variable: {value: '{{ request.object.data.x }}'}}",
            ),
            "kube-system",
            false,
        ),
        (generate("{{ to.a }}", "{name: to, variable: {value: {a: kube-system, b: c}}}"), "", true),
        (generate("{{ to[1] }}", "{name: to, variable: {value: [a, kube-system]}}"), "", true),
        // Where something is read from is not where it goes, and what an object is called is not where it is.
        (
            cel_with("", "object.data.x", "resource.Get('v1', 'secrets', 'kube-system', 'key')"),
            "kube-system",
            false,
        ),
        (
            cel_with("", "object.data.x", "resource.Get('v1', 'secrets', 'kube-system', 'key')"),
            "other",
            true,
        ),
        (cel_with("", "object.data.x", &made.replace("'made'", "'engine'")), "engine", false),
        (cel_with("", "object.data.x", &made.replace("'made'", "'engine'")), "other", true),
        // A Namespace is what it is called.
        (
            generate("", "").replace(
                "kind: Secret, name: made, namespace: \"\", data: {stringData: {a: b}}",
                &format!(
                    "kind: Namespace, name: \"{x}\", data: {{metadata: {{labels: {{a: b}}}}}}"
                ),
            ),
            "kube-system",
            false,
        ),
        (
            generate("", "").replace(
                "kind: Secret, name: made, namespace: \"\", data: {stringData: {a: b}}",
                "kind: Namespace, name: kube-system, data: {metadata: {labels: {a: b}}}",
            ),
            "",
            true,
        ),
        // A list of names is a way to name them.
        (
            generate("{{ element }}", "")
                .replace(
                    "generate: {apiVersion",
                    "generate: {foreach: [{list: \"['other', 'kube-system']\", apiVersion",
                )
                .replace("{a: b}}}", "{a: b}}}]}"),
            "",
            true,
        ),
        (
            scripted_targets("resource.Get('v1', 'secrets', object.data.x, 'key')"),
            "kube-system",
            false,
        ),
        (scripted_targets("resource.Get('v1', 'secrets', object.data.x, 'key')"), "other", true),
        (scripted_targets("resource.Get('v1', 'secrets', 'kube-system', 'key')"), "", true),
        (scripted_targets("resource.list('v1', 'secrets', 'kube-system')"), "", true),
        (
            scripted_targets(
                "'kube-system' == object.data.x ? resource.Get('v1', 'secrets', object.data.x, 'key') : {}",
            ),
            "kube-system",
            false,
        ),
        (targets(x), "kube-system", false),
        (targets(x), "other", true),
        (targets("kube-system"), "", true),
        (targets("*"), "", true),
    ] {
        let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
        let view = Objects(objects(SECRETS));
        let eval_env = EvalEnv {
            sources: &sources,
            protected_namespaces: &protected,
            ..EvalEnv::of(&view, &kinds)
        };
        let outcomes = rules(&policy).evaluate(&Event::created(config_map(x)), &eval_env);
        let writes = outcomes.iter().flat_map(|outcome| &outcome.effects);
        let into =
            |namespace: &str| protected.iter().any(|p: &Str| wildcard::matches(p, namespace));
        let done = writes
            .map(|effect| match effect {
                Effect::Ensure(ensure) => ensure.target.namespace.to_string(),
                Effect::Patch(patch) => {
                    patch.after.str_at(["metadata", "namespace"]).unwrap_or_default().to_owned()
                }
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>();
        let said = format!("{outcomes:?}").contains("it is protected");
        assert_eq!(said, !wanted, "{x:?} of {policy}: {done:?}");
        match wanted {
            true => assert!(!done.is_empty(), "{x:?} of {policy}: {outcomes:?}"),
            false => assert!(!done.iter().any(|namespace| into(namespace)), "{policy}: {done:?}"),
        }
    }
}

/// What rules may read, and what they may not.
const READ: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: other}, data: {k: visible}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: kube-system}, data: {k: visible}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: other}, data: {k: visible}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: kube-system}, data: {k: visible}}
---
{apiVersion: v1, kind: Secret, metadata: {name: kiln-claim-keys, namespace: engine}, data: {k: kept}}
---
{apiVersion: v1, kind: Secret, metadata: {name: svc.engine.svc.kyverno-tls-ca, namespace: engine}, data: {k: kept}}
---
{apiVersion: v1, kind: Secret, metadata: {name: svc.engine.svc.kyverno-tls-pair, namespace: engine}, data: {k: kept}}
---
{apiVersion: v1, kind: Secret, metadata: {name: kiln-claim-keys, namespace: other}, data: {k: visible}}
";

/// What comes of a policy in a cluster where the engine lives in `engine`, as text.
fn told(policy: &str, event: &Event) -> String {
    let protected = ["kube-*".into(), "engine".into()];
    let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
    let view = Objects(objects(READ));
    let eval_env = EvalEnv {
        sources: &sources,
        protected_namespaces: &protected,
        home: "engine",
        ..EvalEnv::of(&view, &kinds)
    };
    let outcomes = rules(policy).evaluate(event, &eval_env);
    let told = |outcome: &kiln_engine::RuleOutcome| {
        format!("{:?} {:?}", outcome.effects, outcome.failures)
    };
    outcomes.iter().map(told).collect()
}

const DATA: &str = "data: {data: {seen: \"{{ to_string(seen) }}\"}}";

/// A rule that makes something of what it reads.
fn shows(context: &str, makes: &str) -> String {
    let rule = format!(
        "context: [{context}]\ngenerate: {{apiVersion: v1, kind: Secret, name: made, namespace: home, {makes}}}"
    );
    kyverno("ClusterPolicy", "ConfigMap", &rule)
}

fn lists(namespace: &str) -> String {
    let rule = format!(
        "generate: {{namespace: home, cloneList: {{namespace: \"{namespace}\", kinds: [v1/Secret]}}}}"
    );
    kyverno("ClusterPolicy", "ConfigMap", &rule)
}

fn makes(expression: &str) -> String {
    let spec = format!(
        "generate:\n- expression: \"generator.Apply('home', [{{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': \
         {{'name': 'made'}}, 'data': {{'seen': string({expression})}}}}])\""
    );
    scripted("GeneratingPolicy", "configmaps", &spec)
}

#[test]
fn objects_do_not_choose_protected_namespaces_to_read_from() {
    let x = "{{ request.object.data.x }}";
    let call =
        |path: &str| shows(&format!("{{name: seen, apiCall: {{urlPath: \"{path}\"}}}}"), DATA);
    let config_map = |namespace: &str| {
        shows(
            &format!("{{name: seen, configMap: {{name: key, namespace: \"{namespace}\"}}}}"),
            DATA,
        )
    };
    let clone =
        |namespace: &str| shows("", &format!("clone: {{name: key, namespace: \"{namespace}\"}}"));
    let to = "{name: to, variable: {value: kube-system}}, ";
    let named = shows(
        &format!("{to}{{name: seen, configMap: {{name: key, namespace: '{{{{ to }}}}'}}}}"),
        DATA,
    );
    for (policy, says, shown) in [
        (call(&format!("/api/v1/namespaces/{x}/secrets/key")), "kube-system", false),
        (call(&format!("/api/v1/namespaces/{x}/secrets/key")), "other", true),
        (call(&format!("/api/v1/namespaces/{x}/configmaps")), "kube-system", false),
        (call(&format!("/api/v1/namespaces/kube-{x}/secrets/key")), "system", false),
        (call(&format!("/api/v1/namespaces/kube-system/secrets/{x}")), "key", true),
        (config_map(x), "kube-system", false),
        (config_map(x), "other", true),
        (config_map("kube-system"), "", true),
        (named, "", true),
        (clone(x), "kube-system", false),
        (clone(x), "other", true),
        (clone("kube-system"), "", true),
        (lists(x), "kube-system", false),
        (lists(x), "", false),
        (lists(x), "other", true),
        (lists("kube-system"), "", true),
        (makes("resource.Get('v1', 'secrets', object.data.x, 'key').data.k"), "kube-system", false),
        (makes("resource.Get('v1', 'secrets', object.data.x, 'key').data.k"), "other", true),
        (makes("resource.Get('v1', 'secrets', 'kube-system', object.data.x).data.k"), "key", true),
        (
            makes(
                "resource.Get('v1', 'configmaps', 'kube-system', 'key').metadata.name + \
                 string(resource.Get('v1', 'secrets', object.data.x, 'key').data.k)",
            ),
            "kube-system",
            false,
        ),
        (
            makes("resource.List('v1', 'secrets', object.data.x).items[0].data.k"),
            "kube-system",
            false,
        ),
        (makes("resource.List('v1', 'secrets', object.data.x).items[0].data.k"), "", false),
        (makes("resource.List('v1', 'secrets', object.data.x).items[0].data.k"), "other", true),
        (makes("resource.List('v1', 'secrets', 'kube-system').items[0].data.k"), "", true),
    ] {
        let told = told(&policy, &Event::created(crate::support::policies::config_map(says)));
        assert_eq!(told.contains("visible"), shown, "{says:?} of {policy}: {told}");
    }
}

#[test]
fn no_rule_is_shown_the_keys_of_the_engine() {
    let call = |path: &str| {
        shows(&format!("{{name: seen, apiCall: {{urlPath: \"{path}\", default: {{}}}}}}"), DATA)
    };
    let clone = |name: &str, namespace: &str| {
        shows("", &format!("clone: {{name: \"{name}\", namespace: {namespace}}}"))
    };
    for (policy, shown) in [
        (call("/api/v1/namespaces/engine/secrets/kiln-claim-keys"), false),
        (call("/api/v1/namespaces/engine/secrets/svc.engine.svc.kyverno-tls-pair"), false),
        (call("/api/v1/namespaces/engine/secrets"), false),
        (call("/api/v1/secrets"), true),
        (clone("kiln-claim-keys", "engine"), false),
        (clone("svc.engine.svc.kyverno-tls-ca", "engine"), false),
        (clone("kiln-claim-keys", "other"), true),
        (lists("engine"), false),
        (makes("resource.Get('v1', 'secrets', 'engine', 'kiln-claim-keys').data.k"), false),
        (makes("resource.List('v1', 'secrets', '').items.map(i, i.data.k).join(' ')"), true),
    ] {
        let told = told(&policy, &Event::created(config_map("")));
        assert!(!told.contains("kept"), "{policy}: {told}");
        assert_eq!(told.contains("visible"), shown, "{policy}: {told}");
    }
    // Nor do these fire rules.
    let copies = shows("", "data: {data: {seen: '{{ request.object.data.k }}'}}")
        .replace("kinds: [ConfigMap]", "kinds: [Secret]");
    for secret in
        objects(READ).into_iter().filter(|object| object.str_at(["kind"]) == Some("Secret"))
    {
        let told = told(&copies, &Event::created(secret));
        assert!(!told.contains("kept"), "{told}");
    }
}

/// Messages of a cluster's rules are read by people who may not read Secrets.
#[test]
fn failures_quote_no_values_of_secrets() {
    let parse = "{{ time_parse('2006', seen.data.k) }}";
    let call = "{name: seen, apiCall: {urlPath: /api/v1/namespaces/other/secrets/key}}";
    let config = "{name: seen, configMap: {name: key, namespace: other}}";
    let name = |context: &str, name: &str| {
        shows(context, "data: {data: {a: b}}").replace("name: made", &format!("name: \"{name}\""))
    };
    let fires = shows("", "data: {data: {a: \"{{ time_parse('2006', request.object.data.k) }}\"}}")
        .replace("kinds: [ConfigMap]", "kinds: [Secret]");
    let made = Event::created(config_map(""));
    let secret = objects(READ).remove(0);
    for (policy, event, quoted) in [
        (name(call, parse), &made, false),
        (name(call, "{{ seen.data.k }}--Bad_Name"), &made, false),
        (name(config, parse), &made, true),
        (fires, &Event::created(secret), false),
    ] {
        let told = told(&policy, event);
        assert_eq!(
            told.contains("visible\\\"") || told.contains("visible--"),
            quoted,
            "{policy}: {told}"
        );
        assert_eq!(told.contains("the rule read a Secret"), !quoted, "{policy}: {told}");
    }
}
