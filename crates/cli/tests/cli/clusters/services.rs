//! Services that rules ask: only those that are allowed, and by plans and explanations like by a running engine.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use kiln_testkit::control_plane::ControlPlane;

use crate::harness::Folder;

/// A service that knows a price.
fn prices() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 8192]);
            let body = r#"{"price": "7"}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
    });
    port
}

fn by_context(port: u16) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: priced}}\nspec:\n  rules:\n  - name: price\n\
         \x20   match: {{any: [{{resources: {{kinds: [Namespace]}}}}]}}\n\
         \x20   context:\n    - name: found\n      apiCall: {{method: GET, service: {{url: 'http://127.0.0.1:{port}/'}}}}\n\
         \x20   generate:\n      apiVersion: v1\n      kind: ConfigMap\n      name: price\n      namespace: shop\n\
         \x20     data: {{data: {{price: '{{{{ found.price }}}}'}}}}\n"
    )
}

fn by_cel(port: u16) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {{name: priced}}\nspec:\n\
         \x20 matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}}]}}\n\
         \x20 variables:\n  - name: found\n    expression: http.Get('http://127.0.0.1:{port}/')\n\
         \x20 - name: made\n    expression: >-\n      [{{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({{'name': 'price', 'namespace': 'shop'}}), 'data': dyn({{'price': variables.found.price}})}}]\n\
         \x20 generate:\n  - expression: generator.Apply('shop', variables.made)\n"
    )
}

#[test]
fn only_services_that_are_allowed_are_asked() {
    let port = prices();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    for (what, rules) in [("context", by_context(port)), ("cel", by_cel(port))] {
        let folder = Folder::with(&[("rules.yaml", &rules), ("namespace.yaml", namespace)]);
        let apply = ["apply", "rules.yaml", "--resource", "namespace.yaml"];
        let off = folder.kiln(&apply);
        assert_ne!(off.code, 0, "{what}: {}", off.stdout);
        let words = format!("{}{}", off.stdout, off.stderr);
        assert!(words.contains("no services are allowed"), "{what}: {words}");
        let allowed = format!("127.0.0.1:{port}");
        let allow = ["--format", "yaml", "--allow-service", &allowed];
        let on = folder.kiln(&[&apply[..], &allow].concat());
        assert_eq!(on.code, 0, "{what}: {}{}", on.stdout, on.stderr);
        assert!(on.stdout.contains("price: \"7\""), "{what}: {}", on.stdout);
        let other = folder.kiln(&[&apply[..], &["--allow-service", "*.example.com"]].concat());
        assert_ne!(other.code, 0);
        let words = format!("{}{}", other.stdout, other.stderr);
        assert!(words.contains("not on the allowlist"), "{what}: {words}");
    }
    let wrong = crate::harness::kiln(&["apply", "a", "--allow-service", "http://x"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("is not a host"), "{}", wrong.stderr);
}

#[test]
fn plans_and_explanations_have_services_and_the_global_context() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let port = prices();
    let priced = by_context(port)
        .replace("spec:\n  rules:", "spec:\n  generateExisting: true\n  rules:")
        .replace("kinds: [Namespace]", "kinds: [Namespace], names: [shop]")
        .replace("    context:\n", "    context:\n    - name: settings\n      globalReference: {name: settings, jmesPath: data.unit}\n")
        .replace("{{ found.price }}", "{{ found.price }} {{ settings }}");
    let folder = Folder::with(&[("rules.yaml", &priced)]);
    let install = folder.kiln(&["install", "--no-workload"]);
    cluster.apply(&install.stdout).unwrap();
    let stored = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {unit: crowns}}
---
apiVersion: kyverno.io/v2
kind: GlobalContextEntry
metadata: {name: settings}
spec: {apiCall: {urlPath: /api/v1/namespaces/shop/configmaps/settings}}
";
    cluster.apply(stored).unwrap();
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let allowed = format!("127.0.0.1:{port}");
    let plan = ["plan", "rules.yaml", "--kubeconfig", &kubeconfig];
    let off = folder.kiln(&plan);
    assert_eq!(off.code, 1, "{}", off.stderr);
    assert!(off.stdout.contains("no services are allowed"), "{}{}", off.stdout, off.stderr);
    let on = folder.kiln(&[&plan[..], &["--allow-service", &allowed]].concat());
    assert!(on.stdout.contains("price: 7 crowns"), "{}{}", on.stdout, on.stderr);
    cluster.apply(&priced).unwrap();
    let explain = ["explain", "namespace/shop", "--kubeconfig", &kubeconfig];
    let off = folder.kiln(&explain);
    assert!(off.stdout.contains("no services are allowed"), "{}{}", off.stdout, off.stderr);
    // What the ConfigMap of the engine allows is allowed here too.
    let patch = format!(r#"{{"data": {{"kiln.services": "{allowed}"}}}}"#);
    let config = ["patch", "configmap", "kyverno", "-n", "kyverno", "--type=merge", "-p", &patch];
    cluster.kubectl(&config).unwrap();
    let on = folder.kiln(&explain);
    let wanted = "  pass\n    v1/ConfigMap/shop/price is not there\n";
    assert!(on.stdout.contains(wanted), "{}{}", on.stdout, on.stderr);
}
