//! Policies that authorise requests: answers, tokens, and the types that are demanded.

use kiln_cel::{Asker, AuthzAnswer, Env, Host, HostResult, Session, Timestamp};
use kiln_value::{Value, value};

struct Clock;

impl Host for Clock {
    fn now(&mut self) -> HostResult<Timestamp> {
        Ok(Timestamp::new(1_800_000_000, 0).unwrap())
    }
}

fn eval(asker: Asker, source: &str, object: &Value) -> Result<Option<AuthzAnswer>, String> {
    let env = Env::requests(asker);
    let program = env.compile(source).map_err(|error| error.to_string())?;
    let mut host = Clock;
    let mut session = Session::new(&env, &mut host);
    session.set("object", object.clone());
    let value = session.eval(&program).map_err(|error| error.to_string())?;
    Ok(value.as_answer())
}

fn denied(status: Option<i64>, reason: &str) -> Option<AuthzAnswer> {
    Some(AuthzAnswer::Denied { status, reason: reason.into() })
}

#[test]
fn web_servers_are_answered() {
    let object = value!({"attributes": {
        "method": "GET", "path": "/x", "header": {"X-Team": ["a", "b"]}, "query": {"page": ["1"]},
    }});
    for (source, wanted) in [
        ("http.Allowed().Response()", Some(AuthzAnswer::Allowed)),
        (r#"http.Denied("no").Response()"#, denied(None, "no")),
        (r#"object.attributes.method == "GET" ? null : http.Allowed().Response()"#, None),
        (
            r#"object.attributes.Header("x-team") == ["a", "b"] ? http.Allowed().Response() : null"#,
            Some(AuthzAnswer::Allowed),
        ),
        (
            r#"object.attributes.QueryParam("size").size() == 0 ? http.Denied("size").Response() : null"#,
            denied(None, "size"),
        ),
    ] {
        assert_eq!(eval(Asker::Http, source, &object), Ok(wanted), "{source}");
    }
    let env = Env::requests(Asker::Http);
    assert_eq!(
        *env.compile("http.Allowed().Response()").unwrap().result_type(),
        Asker::Http.answer_type()
    );
    assert!(env.compile("envoy.Allowed()").is_err());
    assert!(env.compile("http.Allowed().WithBody('a')").is_err());
}

#[test]
fn envoy_is_answered() {
    let object = value!({"attributes": {"request": {"http": {"headers": {"a": "b"}}}}});
    for (source, wanted) in [
        ("envoy.Allowed().Response()", Some(AuthzAnswer::Allowed)),
        (
            r#"envoy.Allowed().WithHeader("a", "b").WithHeader(envoy.Header("c", "").KeepEmptyValue()).WithoutHeader("d")
               .WithResponseHeader("e", "f").WithQueryParam("g", "h").WithQueryParam(envoy.QueryParam("i", "j"))
               .WithoutQueryParam("k").Response().WithMessage("m").WithMetadata({"n": 1})"#,
            Some(AuthzAnswer::Allowed),
        ),
        (
            r#"envoy.Denied(403).WithBody("go away").WithHeader("a", "b").Response()"#,
            denied(Some(403), ""),
        ),
        (
            r#"object.attributes.request.http.headers[?"a"].orValue("") == "b" ? envoy.Denied(401).Response() : null"#,
            denied(Some(401), ""),
        ),
    ] {
        assert_eq!(eval(Asker::Envoy, source, &object), Ok(wanted), "{source}");
    }
}

#[test]
fn tokens_are_verified() {
    // {"exp": 2241081539, "nbf": 1514851139, "role": "guest", "sub": "YWxpY2U="}, signed with "secret".
    let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjIyNDEwODE1MzksIm5iZiI6MTUxNDg1MTEzOSwicm9sZSI6Imd1ZXN0Iiwic3ViIjoiWVd4cFkyVT0ifQ.ja1bgvIt47393ba_WbSBm35NrUhdxM4mOVQN8iXz8lk";
    let ask = |test: &str, secret: &str| {
        let source = format!(
            r#"(cel.bind(t, jwt.Decode("{token}", "{secret}"), {test})) ? http.Allowed().Response() : null"#
        );
        eval(Asker::Http, &source, &value!({}))
    };
    assert_eq!(
        ask(r#"t.Valid && t.Claims.role == "guest""#, "secret"),
        Ok(Some(AuthzAnswer::Allowed))
    );
    assert_eq!(ask("t.Claims.exp == 2241081539.0", "secret"), Ok(Some(AuthzAnswer::Allowed)));
    assert_eq!(ask("has(t.Claims.aud)", "secret"), Ok(None));
    assert!(
        ask("t.Valid", "other").unwrap_err().contains("the signature is not that of the secret")
    );
}
