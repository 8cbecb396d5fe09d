//! The engine inside `kiln up --authorization rbac` may do what its roles say, and what it does not run is said.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ureq::tls::TlsConfig;
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder};

use super::Up;
use crate::harness::Folder;

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const MAKES_WIDGETS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: widgets}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: example.com/v1
      kind: Widget
      name: w
      namespace: '{{request.object.metadata.name}}'
      synchronize: true
      data: {spec: {size: 1}}
";

const BINDS_ADMINS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: admins}
spec:
  rules:
  - name: bind
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: rbac.authorization.k8s.io/v1
      kind: RoleBinding
      name: admins
      namespace: '{{request.object.metadata.name}}'
      data:
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
        subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

const POLICIES: &str = "/apis/kyverno.io/v1/clusterpolicies";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// An answer: its status, its warnings and its text.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) warnings: String,
    pub(super) text: String,
}

impl Up {
    pub(super) fn create(&self, path: &str, document: &str) -> Answer {
        let request = self.agent.post(format!("{}{path}", self.server));
        self.answer(request.header("Content-Type", "application/yaml"), document)
    }

    /// Server-side apply.
    pub(super) fn apply(&self, path: &str, document: &str) -> Answer {
        let path = format!("{}{path}?fieldManager=test&force=true", self.server);
        let request = self.agent.patch(path);
        self.answer(request.header("Content-Type", "application/apply-patch+yaml"), document)
    }

    fn answer(&self, request: RequestBuilder<WithBody>, document: &str) -> Answer {
        let token = format!("Bearer {}", self.token);
        let mut response = request.header("Authorization", token).send(document).unwrap();
        let warnings = response.headers().get_all("Warning").iter();
        let warnings: Vec<_> = warnings
            .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
            .collect();
        Answer {
            status: response.status().as_u16(),
            warnings: warnings.join("\n"),
            text: response.body_mut().read_to_string().unwrap(),
        }
    }

    /// An object in another form.
    pub(super) fn get_as(&self, path: &str, form: &str) -> String {
        let request = self.agent.get(format!("{}{path}", self.server)).header("Accept", form);
        let token = format!("Bearer {}", self.token);
        let mut response = request.header("Authorization", token).call().unwrap();
        response.body_mut().read_to_string().unwrap()
    }

    /// The conditions of a policy: type, status, reason.
    pub(super) fn conditions(&self, path: &str) -> Vec<String> {
        let policy: serde_json::Value = serde_json::from_str(&self.get(path).1).unwrap();
        let status = &policy["status"];
        let places = [&status["conditions"], &status["conditionStatus"]["conditions"]];
        let list = places.into_iter().filter_map(serde_json::Value::as_array).flatten();
        let shown = |c: &serde_json::Value| {
            let text = |key: &str| c[key].as_str().unwrap_or("").to_owned();
            format!("{} {} {}", text("type"), text("status"), text("reason"))
        };
        list.map(shown).collect()
    }

    /// What the engine inside counts: it serves that where its webhooks answer.
    pub(super) fn metrics(&self) -> String {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kyverno-policy-validating-webhook-cfg";
        let hooks: serde_json::Value = serde_json::from_str(&self.get(path).1).unwrap();
        let url = hooks["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().to_owned();
        let (origin, _) = url.rsplit_once('/').unwrap();
        let trusting = TlsConfig::builder().disable_verification(true).build();
        let agent: Agent = Agent::config_builder().tls_config(trusting).build().into();
        let mut response = agent.get(format!("{origin}/metrics")).call().unwrap();
        response.body_mut().read_to_string().unwrap()
    }

    pub(super) fn create_namespace(&self, name: &str) {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
        assert_eq!(self.create("/api/v1/namespaces", &namespace).status, 201);
    }

    pub(super) fn delete(&self, path: &str) -> u16 {
        let request = self.agent.delete(format!("{}{path}", self.server));
        let token = format!("Bearer {}", self.token);
        request.header("Authorization", token).call().unwrap().status().as_u16()
    }

    /// Tries until something holds.
    pub(super) fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What `kiln doctor` finds about something: how it is, what is wrong, and what to do.
fn found(folder: &Folder, about: &str) -> Vec<[String; 3]> {
    let run = folder.kiln(&["doctor", "--kubeconfig", "config", "--format", "json"]);
    let all: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let all = all.as_array().unwrap().iter().filter(|found| found["about"] == about);
    let text = |found: &serde_json::Value, key: &str| found[key].as_str().unwrap_or("").to_owned();
    all.map(|found| ["state", "message", "hint"].map(|key| text(found, key))).collect()
}

#[test]
fn the_role_that_is_printed_is_enough_and_the_engine_is_held_to_it() {
    let folder = Folder::with(&[("widgets.yaml", WIDGETS)]);
    let up = Up::start(&folder, &["--authorization", "rbac", "widgets.yaml"], "Ctrl-C");
    let refused = up.create(POLICIES, MAKES_WIDGETS);
    assert_eq!(refused.status, 403, "{}", refused.text);
    let refused: serde_json::Value = serde_json::from_str(&refused.text).unwrap();
    let message = refused["message"].as_str().unwrap();
    let (_, roles) = message.split_once("to grant them, apply:\n").unwrap();
    // Exactly what is printed.
    for role in roles.split("---\n") {
        let answer = up.create(ROLES, role);
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    up.wait_until("the policy is accepted", || up.create(POLICIES, MAKES_WIDGETS).status == 201);
    up.create_namespace("one");
    up.wait_for("/apis/example.com/v1/namespaces/one/widgets/w");
    let rights = found(&folder, "permissions");
    assert!(rights.iter().all(|[state, ..]| state == "ok"), "{rights:#?}");

    // Without the role nothing more is made, and every command says so.
    let role = roles.split("---\n").find(|role| role.contains("to-background")).unwrap();
    assert_eq!(up.delete(&format!("{ROLES}/kyverno:background-controller:widgets")), 200);
    let lacks = || found(&folder, "permissions").iter().any(|[state, ..]| state == "problem");
    up.wait_until("doctor misses the rights", lacks);
    for name in ["two", "three"] {
        up.create_namespace(name);
    }
    let requests = "/apis/kyverno.io/v2/namespaces/kyverno/updaterequests";
    up.wait_until("forbidden work shows", || up.get(requests).1.matches("Forbidden").count() > 1);
    assert_eq!(up.get("/apis/example.com/v1/namespaces/two/widgets/w").0, 404);

    // With it, the work goes on by itself.
    assert_eq!(up.create(ROLES, role).status, 201);
    for name in ["two", "three"] {
        up.wait_for(&format!("/apis/example.com/v1/namespaces/{name}/widgets/w"));
    }
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

#[test]
fn rules_that_bind_roles_are_told_that_they_may_not() {
    let folder = Folder::with(&[]);
    let up = Up::start(&folder, &["--authorization", "rbac"], "Ctrl-C");
    let stored = up.create(POLICIES, BINDS_ADMINS);
    assert_eq!(stored.status, 201, "{}", stored.text);
    let wanted =
        "requires permissions bind for resource rbac.authorization.k8s.io/v1/ClusterRole admin";
    assert!(stored.warnings.contains(wanted), "{}", stored.warnings);
    let rights = found(&folder, "permissions");
    let [[state, message, hint]] = &rights[..] else { panic!("{rights:#?}") };
    assert_eq!(state, "problem");
    assert!(message.contains(wanted), "{message}");
    up.create_namespace("one");
    let requests = "/apis/kyverno.io/v2/namespaces/kyverno/updaterequests";
    up.wait_until("forbidden work shows", || up.get(requests).1.contains("Forbidden"));
    let (_, role) = hint.split_once("apply:\n").unwrap();
    assert_eq!(up.create(ROLES, role).status, 201, "{role}");
    let binding = "rolebindings/admins";
    up.wait_for(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/one/{binding}"));
    // What the engine has itself it may hand out.
    let views = BINDS_ADMINS.replace("admin", "view").replace("name: views", "name: viewers");
    let stored = up.create(POLICIES, &views);
    assert_eq!((stored.status, stored.warnings.as_str()), (201, ""), "{}", stored.text);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

const CHECKS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: NAME}
spec:
  validationFailureAction: Enforce
  rules:
  - name: images
    match: {any: [{resources: {kinds: [Namespace]}}]}
    verifyImages: [{imageReferences: ['*']}]
";

const MAKES: &str = "  - name: make
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: default, data: {}}
";

/// Kinds that only Kyverno defines, their plurals, and what they would do.
const OF_KYVERNO: [(&str, &str, &str); 1] =
    [("ImageValidatingPolicy", "imagevalidatingpolicies", "verifyImages")];

#[test]
fn what_is_not_run_is_never_shown_as_at_work() {
    let folder = Folder::with(&[]);
    // With the roles of an installation, which must be enough to say so.
    let up = Up::start(&folder, &["--authorization", "rbac"], "Ctrl-C");
    for (name, more) in [("checks", ""), ("mixed", MAKES)] {
        let stored = up.create(POLICIES, &format!("{}{more}", CHECKS.replace("NAME", name)));
        assert_eq!(stored.status, 201, "{}", stored.text);
        assert!(
            stored.warnings.contains("is not run by Kiln: verifyImages"),
            "{}",
            stored.warnings
        );
    }
    let conditions = |name: &str| up.conditions(&format!("{POLICIES}/{name}"));
    let not_run = "AllRulesRun False RulesNotRun";
    let mixed = ["Ready True Succeeded", not_run];
    up.wait_until("the status of the mixed policy", || conditions("mixed") == mixed);
    let only = ["Ready False RulesNotRun", not_run];
    up.wait_until("the status of the other", || conditions("checks") == only);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    up.wait_until("events", || up.get(events).1.matches("\"RulesNotRun\"").count() == 2);

    // Kinds of another engine of which nothing is run: stored, and then the same everywhere.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (kind, plural, _) in OF_KYVERNO {
        let definition = WIDGETS
            .replace("widgets.example.com", &format!("{plural}.policies.kyverno.io"))
            .replace("group: example.com", "group: policies.kyverno.io")
            .replace("scope: Namespaced", "scope: Cluster")
            .replace("plural: widgets, kind: Widget", &format!("plural: {plural}, kind: {kind}"))
            .replace("    schema:", "    subresources: {status: {}}\n    schema:");
        assert_eq!(up.create(definitions, &definition).status, 201);
    }
    for (kind, plural, operation) in OF_KYVERNO {
        let path = format!("/apis/policies.kyverno.io/v1/{plural}");
        up.wait_until("the definition is served", || up.get(&path).0 == 200);
        let policy = format!(
            "{{apiVersion: policies.kyverno.io/v1, kind: {kind}, metadata: {{name: {plural}}}, spec: \
             {{matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: \
             [CREATE], resources: [pods]}}]}}, validations: [{{expression: 'true'}}]}}}}"
        );
        let stored = up.create(&path, &policy);
        assert_eq!(stored.status, 201, "{}", stored.text);
        let warning = format!("is not run by Kiln: {operation}");
        assert!(stored.warnings.contains(&warning), "{kind}: {}", stored.warnings);
        let wanted = [
            "WebhookConfigured False RulesNotRun",
            "RBACPermissionsGranted False RulesNotRun",
            not_run,
        ];
        let path = format!("{path}/{plural}");
        up.wait_until("the status of the policy in CEL", || up.conditions(&path) == wanted);
    }
    let told = |kind: &str| {
        let events: serde_json::Value = serde_json::from_str(&up.get(events).1).unwrap();
        let is_told = |event: &serde_json::Value| {
            event["reason"] == "RulesNotRun" && event["regarding"]["kind"] == kind
        };
        events["items"].as_array().unwrap().iter().filter(|event| is_told(event)).count()
    };
    up.wait_until("its event", || told("ImageValidatingPolicy") == 1);
    let metrics = up.metrics();
    for line in [
        "kiln_policies{state=\"broken\"} 0",
        "kiln_policies{state=\"not run\"} 2",
        "kiln_policies{state=\"sound\"} 1",
        "kiln_rules_not_run{operation=\"verifyImages\"} 3",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }

    let said = found(&folder, "not run");
    let rules: Vec<_> =
        said.iter().map(|[state, message, _]| format!("{state}: {message}")).collect();
    assert_eq!(
        rules,
        [
            r#"problem: rule "images" of policy "checks" is not run by Kiln: verifyImages, and nothing else runs it: it has no effect"#,
            r#"problem: rule "images" of policy "mixed" is not run by Kiln: verifyImages, and nothing else runs it: it has no effect"#,
            r#"problem: policy "imagevalidatingpolicies" is not run by Kiln: verifyImages, and nothing else runs it: it has no effect"#,
        ]
    );
    let policies = found(&folder, "policies");
    let policies: Vec<_> = policies.iter().map(|[_, message, _]| message.as_str()).collect();
    assert_eq!(policies, ["1 policy can be run"]);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

#[test]
fn no_definition_takes_the_place_of_a_built_in_kind() {
    let bindings = "clusterrolebindings.rbac.authorization.k8s.io";
    let definition = WIDGETS
        .replace(
            "{name: widgets.example.com}",
            &format!(
                "{{name: {bindings}, annotations: {{api-approved.kubernetes.io: unapproved}}}}"
            ),
        )
        .replace("group: example.com", "group: rbac.authorization.k8s.io")
        .replace("plural: widgets, kind: Widget", "plural: clusterrolebindings, kind: Mine");
    let folder = Folder::with(&[("mine.yaml", &definition)]);
    // Among files it is an error.
    let run = folder.kiln(&["up", "--bare", "mine.yaml", "--", "true"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    let why = format!(
        "CustomResourceDefinition {bindings}: spec.names.plural is that of a built-in kind; choose another"
    );
    assert!(run.stderr.contains(&why), "{}", run.stderr);
    // From clients it is stored, and changes nothing.
    let up = Up::start(&folder, &["--bare", "--authorization", "rbac"], "Ctrl-C");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let stored = up.create(path, &definition);
    assert_eq!(stored.status, 201, "{}", stored.text);
    let warning = format!("not all names of {bindings} are accepted");
    assert!(stored.warnings.contains(&warning), "{}", stored.warnings);
    let inside = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterrolebindings";
    assert_eq!(up.get(inside).0, 404);
    assert_eq!(up.delete(&format!("{path}/{bindings}")), 200);
    up.wait_until("the definition is gone", || up.get(&format!("{path}/{bindings}")).0 == 404);
    let admins = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin";
    assert_eq!(up.get(admins).0, 200);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
