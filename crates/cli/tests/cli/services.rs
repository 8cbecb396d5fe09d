//! Services that rules ask, offline: only those that are allowed.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

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
        assert!(words.contains("not among those that are allowed"), "{what}: {words}");
    }
    let wrong = crate::harness::kiln(&["apply", "a", "--allow-service", "http://x"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("is no host"), "{}", wrong.stderr);
}
