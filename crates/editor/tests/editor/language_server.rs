//! Conversations with the language server, message by message.

use kiln_editor::LanguageServer;
use kiln_kustomize::fs::Memory;
use serde_json::{Value, json};

/// A client with one open file; `‸` in a text is where it asks.
struct Client<'f> {
    server: LanguageServer<'f>,
    id: u64,
}

impl<'f> Client<'f> {
    fn new(files: Option<&'f Memory>) -> Self {
        let files = files.map(|files| files as &dyn kiln_kustomize::fs::FileSystem);
        let mut client = Client { server: LanguageServer::new(files), id: 0 };
        let started = client.ask("initialize", json!({"capabilities": {}}));
        assert_eq!(started["capabilities"]["hoverProvider"], true);
        assert!(client.tell("initialized", json!({})).is_empty());
        client
    }

    #[expect(clippy::needless_pass_by_value, reason = "so that calls can write it in place")]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        let answers = self.server.handle(&message);
        let [answer] = answers.as_slice() else { panic!("one answer, not {answers:?}") };
        assert_eq!(answer["id"], self.id);
        answer.get("result").cloned().unwrap_or_else(|| answer["error"].clone())
    }

    #[expect(clippy::needless_pass_by_value, reason = "so that calls can write it in place")]
    fn tell(&mut self, method: &str, params: Value) -> Vec<Value> {
        self.server.handle(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Opens a text; its diagnostics as `line:column message`.
    fn open(&mut self, uri: &str, text: &str) -> Vec<String> {
        let document =
            json!({"uri": uri, "languageId": "yaml", "version": 1, "text": text.replace('‸', "")});
        let published = self.tell("textDocument/didOpen", json!({"textDocument": document}));
        shown(&published)
    }

    /// Asks about the place that is marked in a text.
    fn at(&mut self, method: &str, uri: &str, text: &str) -> Value {
        self.open(uri, text);
        let before = &text[..text.find('‸').expect("a place is marked")];
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let character: usize = before[start..].chars().map(char::len_utf16).sum();
        let position = json!({"line": line, "character": character});
        self.ask(method, json!({"textDocument": {"uri": uri}, "position": position}))
    }

    fn labels(&mut self, uri: &str, text: &str) -> Vec<String> {
        let list = self.at("textDocument/completion", uri, text);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    }

    fn hover(&mut self, uri: &str, text: &str) -> String {
        let answer = self.at("textDocument/hover", uri, text);
        answer["contents"]["value"].as_str().unwrap_or_default().to_owned()
    }
}

fn shown(published: &[Value]) -> Vec<String> {
    let [published] = published else { panic!("one message, not {published:?}") };
    assert_eq!(published["method"], "textDocument/publishDiagnostics");
    let found = published["params"]["diagnostics"].as_array().unwrap();
    found
        .iter()
        .map(|found| {
            let start = &found["range"]["start"];
            format!(
                "{}:{} {}",
                start["line"],
                start["character"],
                found["message"].as_str().unwrap()
            )
        })
        .collect()
}

const POLICY: &str = "file:///project/policy.yaml";
const KUSTOMIZATION: &str = "file:///project/app/kustomization.yaml";

fn policy(rule: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n{rule}"
    )
}

const MATCH: &str = "    match: {any: [{resources: {kinds: [Pod]}}]}\n";

#[test]
fn mistakes_are_shown_and_fixed() {
    let mut client = Client::new(None);
    let text = policy(
        "    macth: {any: [{resources: {kinds: [Pod]}}]}\n    validate: {pattern: {a: b}}\n",
    );
    let found = client.open(POLICY, &text);
    assert!(
        found.iter().any(|found| found
            .starts_with("6:4 unknown field spec.rules[0].macth\nhelp: did you mean \"match\"?")),
        "{found:?}"
    );
    let range = json!({"start": {"line": 6, "character": 5}, "end": {"line": 6, "character": 5}});
    let asked =
        json!({"textDocument": {"uri": POLICY}, "range": range, "context": {"diagnostics": []}});
    let actions = client.ask("textDocument/codeAction", asked);
    assert_eq!(actions[0]["title"], "Replace \"macth\" with \"match\"");
    assert_eq!(actions[0]["edit"]["changes"][POLICY][0]["newText"], "match");
    assert_eq!(
        actions[0]["edit"]["changes"][POLICY][0]["range"],
        json!({"start": {"line": 6, "character": 4}, "end": {"line": 6, "character": 9}})
    );
    // What is mended is not shown any longer, and a closed file shows nothing.
    let change = json!({"textDocument": {"uri": POLICY, "version": 2}, "contentChanges": [{"text": text.replace("macth", "match")}]});
    assert_eq!(shown(&client.tell("textDocument/didChange", change)), [""; 0]);
    let closed = client.tell("textDocument/didClose", json!({"textDocument": {"uri": POLICY}}));
    assert_eq!(shown(&closed), [""; 0]);
}

#[test]
fn a_wrong_variable_in_an_expression_is_fixed() {
    let mut client = Client::new(None);
    let text = policy(&format!(
        "{MATCH}    validate: {{message: '{{{{ reqest.object.kind }}}}', pattern: {{a: b}}}}\n"
    ));
    let found = client.open(POLICY, &text);
    assert!(found.iter().any(|found| found.contains("did you mean \"request\"?")), "{found:?}");
    let everywhere =
        json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let asked = json!({"textDocument": {"uri": POLICY}, "range": everywhere, "context": {"diagnostics": []}});
    let actions = client.ask("textDocument/codeAction", asked);
    let edit = &actions[0]["edit"]["changes"][POLICY][0];
    assert_eq!(edit["newText"], "request", "{actions}");
    let other = json!({"textDocument": {"uri": POLICY}, "range": everywhere, "context": {"only": ["refactor"]}});
    assert_eq!(client.ask("textDocument/codeAction", other), json!([]));
}

#[test]
fn yaml_that_is_broken_has_one_problem() {
    let mut client = Client::new(None);
    let found = client.open(POLICY, "kind: ClusterPolicy\nspec: [\n");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn fields_are_completed_where_they_may_stand() {
    let mut client = Client::new(None);
    let rule = client.labels(POLICY, &policy("    ‸"));
    for field in ["match", "exclude", "validate", "mutate", "generate", "context", "preconditions"]
    {
        assert!(rule.contains(&field.to_owned()), "{field}: {rule:?}");
    }
    assert!(!rule.contains(&"name".to_owned()), "it is there already: {rule:?}");
    assert!(
        client
            .labels(POLICY, &policy(&format!("{MATCH}    validate:\n      mess‸")))
            .contains(&"message".to_owned())
    );
    assert!(client.labels(POLICY, &policy("    match: {a‸")).contains(&"any".to_owned()));
    let spec =
        client.labels(POLICY, "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec:\n  ‸\n");
    assert!(spec.contains(&"rules".to_owned()), "{spec:?}");
    let top = client.labels(POLICY, "‸");
    assert_eq!(top, ["apiVersion", "kind", "metadata", "spec"]);
}

#[test]
fn kinds_words_functions_and_variables_are_completed() {
    let mut client = Client::new(None);
    assert!(client.labels(POLICY, "kind: ‸").contains(&"ClusterPolicy".to_owned()));
    assert!(
        client
            .labels(POLICY, "kind: ModRule\napiVersion: ‸")
            .contains(&"api.kubemod.io/v1beta1".to_owned())
    );
    let kinds = client.labels(
        POLICY,
        &policy("    match:\n      any:\n      - resources:\n          kinds:\n          - De‸"),
    );
    assert!(kinds.contains(&"Deployment".to_owned()) && kinds.contains(&"DaemonSet".to_owned()));
    let actions =
        client.labels(POLICY, &policy(&format!("{MATCH}    validate:\n      failureAction: ‸")));
    assert_eq!(actions[..2], ["Audit", "Enforce"]);
    let context = "    context:\n    - name: replicas\n      variable: {value: 3}\n";
    let words = client.labels(
        POLICY,
        &policy(&format!("{MATCH}{context}    validate:\n      message: '{{{{ re‸ }}}}'\n")),
    );
    for word in ["replicas", "request", "regex_match", "to_upper"] {
        assert!(words.contains(&word.to_owned()), "{word}: {words:?}");
    }
    let cel = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nspec:\n  variables:\n  - name: most\n    expression: '5'\n  validations:\n  - expression: variables.‸";
    assert!(client.labels(POLICY, cel).contains(&"most".to_owned()));
    let cel = cel.replace("variables.‸", "ob‸");
    let words = client.labels(POLICY, &cel);
    assert!(
        words.contains(&"object".to_owned()) && words.contains(&"size".to_owned()),
        "{words:?}"
    );
    let modrule = "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nspec:\n  patch:\n  - op: add\n    path: /a\n    value: '{{ ‸ }}'\n";
    let words = client.labels(POLICY, modrule);
    assert!(
        words.contains(&".Target".to_owned()) && words.contains(&"upper".to_owned()),
        "{words:?}"
    );
}

#[test]
fn fields_kinds_functions_and_variables_are_explained() {
    let mut client = Client::new(None);
    let field = client.hover(POLICY, &policy("    ma‸tch: {any: []}\n"));
    assert!(field.starts_with("**match**"), "{field}");
    assert!(
        client
            .hover(POLICY, "apiVersion: kyverno.io/v1\nkind: Cluster‸Policy\n")
            .contains("whole cluster")
    );
    let text = |place: &str| {
        policy(&format!(
            "{MATCH}    context:\n    - name: replicas\n      variable: {{value: {{most: 3}}, jmesPath: most}}\n    - name: settings\n      configMap: {{name: m, namespace: n}}\n    validate:\n      message: '{{{{ {place} }}}}'\n"
        ))
    };
    let known = client.hover(POLICY, &text("repl‸icas"));
    assert!(
        known.contains("variable **replicas**") && known.contains("```json\n3\n```"),
        "{known}"
    );
    let unknown = client.hover(POLICY, &text("settings.da‸ta"));
    assert!(unknown.contains("configMap") && unknown.contains("when the rule runs"), "{unknown}");
    assert!(client.hover(POLICY, &text("to_up‸per(replicas)")).contains("to_upper("));
    assert!(client.hover(POLICY, &text("request.ob‸ject.kind")).contains("**request.object**"));
    assert_eq!(client.hover(POLICY, "a: ‸b\n"), "");
}

#[test]
fn variables_lead_to_their_definition() {
    let mut client = Client::new(None);
    let text = policy(&format!(
        "{MATCH}    context:\n    - name: replicas\n      variable: {{value: 3}}\n    validate:\n      message: '{{{{ repl‸icas }}}}'\n"
    ));
    let found = client.at("textDocument/definition", POLICY, &text);
    assert_eq!(found["range"]["start"], json!({"line": 8, "character": 12}));
    let cel = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nspec:\n  variables:\n  - name: most\n    expression: '5'\n  validations:\n  - expression: object.spec.replicas < variables.mo‸st\n";
    let found = client.at("textDocument/definition", POLICY, cel);
    assert_eq!(
        found["range"],
        json!({"start": {"line": 4, "character": 10}, "end": {"line": 4, "character": 14}})
    );
    assert!(
        client
            .at("textDocument/definition", POLICY, &text.replace("repl‸icas", "oth‸er"))
            .is_null()
    );
}

#[test]
fn kustomizations_are_served_with_their_files() {
    let files = Memory::new()
        .with("project/app/kustomization.yaml", "resources: [deployment.yaml]\n")
        .with(
            "project/app/deployment.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
        )
        .with("project/base/kustomization.yaml", "namePrefix: x-\n");
    let mut client = Client::new(Some(&files));
    let found = client.open(KUSTOMIZATION, "resources: [deployment.yaml]\nnamePrefx: a-\n");
    assert_eq!(found, ["1:0 unknown field namePrefx\nhelp: did you mean \"namePrefix\"?"]);
    let found = client.open(KUSTOMIZATION, "resources: [missing.yaml]\n");
    assert!(found.len() == 1 && found[0].contains("missing.yaml"), "{found:?}");
    assert_eq!(client.open(KUSTOMIZATION, "resources: [deployment.yaml]\n"), [""; 0]);
    let old = client.open(KUSTOMIZATION, "resources: [deployment.yaml]\ncommonLabels: {a: b}\n");
    assert!(old[0].contains("deprecated"), "{old:?}");
    assert!(
        client.labels(KUSTOMIZATION, "resources:\n- ‸").contains(&"deployment.yaml".to_owned())
    );
    assert!(client.labels(KUSTOMIZATION, "na‸").contains(&"namePrefix".to_owned()));
    assert!(client.hover(KUSTOMIZATION, "name‸Prefix: a-\n").starts_with("**namePrefix**"));
    let file =
        client.at("textDocument/definition", KUSTOMIZATION, "resources:\n- deploy‸ment.yaml\n");
    assert_eq!(file["uri"], "file:///project/app/deployment.yaml");
    let base = client.at("textDocument/definition", KUSTOMIZATION, "resources:\n- ../ba‸se\n");
    assert_eq!(base["uri"], "file:///project/base/kustomization.yaml");
    let vars = "vars:\n- name: HOST\n  objref: {kind: Service, name: web, apiVersion: v1}\nnamePrefix: $(HO‸ST)\n";
    let var = client.at("textDocument/definition", KUSTOMIZATION, vars);
    assert_eq!(var["range"]["start"], json!({"line": 1, "character": 8}));
    assert!(client.hover(KUSTOMIZATION, vars).contains("Service"));
}

#[test]
fn a_text_is_formatted_with_its_comments() {
    let mut client = Client::new(None);
    client.open(POLICY, "a:\n    b:   1 # why\n");
    let options =
        json!({"textDocument": {"uri": POLICY}, "options": {"tabSize": 2, "insertSpaces": true}});
    let edits = client.ask("textDocument/formatting", options.clone());
    assert_eq!(edits[0]["newText"], "a:\n  b: 1 # why\n");
    client.open(POLICY, "a: [");
    assert_eq!(client.ask("textDocument/formatting", options)["code"], -32803);
}

#[test]
fn the_protocol_is_kept() {
    let mut server = LanguageServer::new(None);
    let ask = |server: &mut LanguageServer<'_>, method: &str| {
        server.handle(&json!({"jsonrpc": "2.0", "id": 1, "method": method}))[0].clone()
    };
    assert_eq!(ask(&mut server, "textDocument/hover")["error"]["code"], -32002);
    ask(&mut server, "initialize");
    assert_eq!(ask(&mut server, "no/such")["error"]["code"], -32601);
    assert_eq!(server.handle(&json!([]))[0]["error"]["code"], -32600);
    assert!(ask(&mut server, "textDocument/hover")["result"].is_null());
    assert!(server.handle(&json!({"method": "$/cancelRequest", "params": {"id": 1}})).is_empty());
    assert!(ask(&mut server, "shutdown")["result"].is_null());
    assert_eq!(ask(&mut server, "textDocument/hover")["error"]["code"], -32600);
    assert_eq!(server.exit_code(), None);
    server.handle(&json!({"method": "exit"}));
    assert_eq!(server.exit_code(), Some(0));
}

/// Every place of a text in every state of being written is answered.
#[test]
fn any_place_of_any_beginning_is_answered() {
    let text = policy(&format!(
        "{MATCH}    context:\n    - name: x\n      variable: {{value: 3}}\n    validate:\n      message: \"{{{{ x }}}}\"\n      pattern: {{a: [b, {{c: d}}]}}\n"
    ));
    let mut client = Client::new(None);
    for end in (0..text.len()).step_by(7) {
        let marked = format!("{}‸", &text[..end]);
        for method in ["textDocument/completion", "textDocument/hover", "textDocument/definition"] {
            client.at(method, POLICY, &marked);
        }
    }
}
