//! Authentication: no client without a token, however permissions are decided.

use kiln_apiserver::{ApiRequest, Authorization, Response, Server, Settings};
use kiln_testkit::server::start_with;
use kiln_value::{json, value};

fn servers() -> [Server; 2] {
    [Authorization::AlwaysAllow, Authorization::Rbac].map(|authorization| {
        let admin_token = Some("secret".to_owned());
        start_with(Settings { authorization, admin_token, ..Settings::default() })
    })
}

/// What a real API server says to people it does not know.
fn assert_unauthorized(answer: &Response, what: &str) {
    assert_eq!(answer.status, 401, "{what}");
    assert_eq!(
        answer.value(),
        value!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401}),
        "{what}"
    );
}

#[test]
fn nobody_comes_in_without_a_token() {
    let config_map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for server in servers() {
        for path in [
            "/",
            "/api",
            "/apis",
            "/openapi/v3",
            "/api/v1/secrets",
            "/api/v1/namespaces?watch=true",
            "/apis/nobody.knows/v1/this",
            "/healthz/../api/v1/secrets",
            "/version/x",
        ] {
            let request = ApiRequest::new("GET", path);
            assert_unauthorized(&server.call(&request), path);
            for header in ["Bearer x", "bearer x", "Bearer a.b.c", "Bearer", "Basic c2VjcmV0"] {
                let with = request.clone().with_header("Authorization", header);
                assert_unauthorized(&server.call(&with), &format!("{path} with {header}"));
            }
            // No user may impersonate another.
            let other = request.with_header("Impersonate-User", "admin");
            assert_unauthorized(&server.call(&other), path);
        }
        let write = ApiRequest::new("POST", "/api/v1/namespaces/default/configmaps")
            .with_body("application/json", json::to_string(&config_map));
        assert_unauthorized(&server.call(&write), "a write");
    }
}

#[test]
fn health_and_version_are_for_everybody() {
    for server in servers() {
        for path in ["/healthz", "/livez?verbose", "/readyz", "/version"] {
            let request = ApiRequest::new("GET", path);
            assert_eq!(server.call(&request).status, 200, "{path}");
            let wrong = request.with_header("Authorization", "Bearer x");
            assert_unauthorized(&server.call(&wrong), path);
        }
    }
}

#[test]
fn tokens_come_in() {
    for server in servers() {
        for scheme in ["Bearer", "bearer"] {
            let request = ApiRequest::new("GET", "/api/v1/secrets")
                .with_header("authorization", &format!("{scheme} secret"));
            assert_eq!(server.call(&request).status, 200);
        }
    }
}

#[test]
fn heads_say_whose_body_counts() {
    for server in servers() {
        let head = |method: &str, path: &str, token: &str| {
            let request = ApiRequest::new(method, path);
            let request = match token {
                "" => request,
                token => request.with_header("Authorization", &format!("Bearer {token}")),
            };
            server.wants_body(&request).map_err(|refused| refused.status)
        };
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(head("POST", path, "secret"), Ok(true));
        assert_eq!(head("GET", path, "secret"), Ok(false));
        assert_eq!(head("POST", path, ""), Err(401));
        assert_eq!(head("POST", path, "x"), Err(401));
        // Every client may get these, without a token.
        assert_eq!(head("POST", "/version", ""), Ok(false));
    }
}

#[test]
fn tokens_last_from_ten_minutes_to_what_a_clock_can_hold() {
    for server in servers() {
        let ask = |seconds: &str| {
            let body = format!(
                r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{{"expirationSeconds":{seconds}}}}}"#
            );
            let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
            let request = ApiRequest::new("POST", path).with_body("application/json", body);
            server.call(&request.with_header("Authorization", "Bearer secret"))
        };
        for (seconds, status, words) in [
            ("600", 201, ""),
            ("null", 201, ""),
            ("4294967296", 201, ""),
            ("599", 422, "may not specify a duration less than 10 minutes"),
            ("-1", 422, "may not specify a duration less than 10 minutes"),
            ("4294967297", 422, "may not specify a duration larger than 2^32 seconds"),
            ("9223372036854775807", 422, "may not specify a duration larger than 2^32 seconds"),
            ("9223372036854775808", 400, "TokenRequestSpec.spec.expirationSeconds"),
            ("1.5", 400, "TokenRequestSpec.spec.expirationSeconds"),
            ("\"x\"", 400, "TokenRequestSpec.spec.expirationSeconds"),
        ] {
            let answer = ask(seconds);
            let value = answer.value();
            let message = value.str_at(["message"]).unwrap_or_default();
            assert_eq!(answer.status, status, "{seconds}: {message}");
            assert!(message.contains(words), "{seconds}: {message}");
        }
    }
}
