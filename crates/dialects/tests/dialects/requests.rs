//! Policies of the modes HTTP and Envoy.

use crate::support::compiled;

/// What kyverno-authz has and Kiln does not is named, with what to do instead.
#[test]
fn libraries_that_are_missing_are_named() {
    for (expression, missing, instead) in [
        ("jwks.Fetch('https://example.com/keys') != null", "'jwks'", "jwt.Decode(token, secret)"),
        ("mcp.Parse(object.attributes) != null", "'mcp'", "json.Unmarshal"),
    ] {
        let policy = format!(
            "apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {{name: vp}}
spec:
  evaluation: {{mode: HTTP}}
  validations: [{{expression: \"{expression} ? http.Allowed().Response() : null\"}}]
"
        );
        let compiled = compiled(&policy);
        let found = &compiled.diagnostics[0];
        assert!(compiled.has_errors() && found.message.contains(missing), "{found}");
        assert!(found.hint.as_deref().is_some_and(|hint| hint.contains(instead)), "{found:?}");
        assert!(found.place.is_some(), "{found:?}");
    }
}
