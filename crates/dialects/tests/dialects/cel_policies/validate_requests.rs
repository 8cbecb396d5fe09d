//! What checks make of requests: those to subresources, and what they ask the API server about users.

use std::cell::RefCell;

use kiln_engine::{EvalEnv, Event, ExternalData, ExternalDataError, RuleSet, ServiceRequest, User};
use kiln_object::Kinds;
use kiln_value::{Value, json, value};

use super::validating::{POD, outcomes, rule, said, verdicts};
use crate::support::{Objects, compiled, messages, objects};

#[test]
fn what_failed_before_excuses_no_request_to_a_subresource() {
    let policy = |kind: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p, annotations: {{pod-policies.kyverno.io/autogen-controllers: none}}}}\n\
             spec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}\n    \
             validate: {{failureAction: Enforce, deny: {{}}}}\n"
        )
    };
    let pod = objects(POD).remove(0);
    let update = |subresource: &str| Event {
        subresource: subresource.into(),
        ..Event::updated(pod.clone(), pod.clone())
    };
    for (kind, subresource, wanted) in [
        ("Pod/ephemeralcontainers", "ephemeralcontainers", "fail"),
        ("'*/ephemeralcontainers'", "ephemeralcontainers", "fail"),
        ("Pod", "", "skip skipping the rule evaluation as pre-existing violations are allowed"),
    ] {
        let found = said(&outcomes(&update(subresource), &policy(kind), ""));
        assert!(found[0].starts_with(wanted), "{kind}: {found:?}");
    }
}

/// An API server that answers access reviews: the user jane is allowed.
#[derive(Default)]
struct Reviews(RefCell<Vec<String>>);

impl ExternalData for Reviews {
    fn call(&self, _: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        Err(ExternalDataError::refused("no service is called".to_owned()))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ExternalDataError> {
        assert_eq!(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let spec = body.get("spec").unwrap();
        self.0.borrow_mut().push(json::to_string(spec));
        let allowed = spec.str_at(["user"]).unwrap().contains("jane");
        Ok(value!({"status": {"allowed": allowed, "reason": "she may"}}))
    }
}

#[test]
fn the_authorizer_is_asked_by_access_reviews() {
    let asks = |expression: &str| {
        rule(&format!("cel: {{expressions: [{{expression: \"{expression}\"}}]}}"), "")
    };
    let own = "authorizer.group('').resource('pods').namespace('default').name('p').check('delete').allowed()";
    let other =
        "authorizer.serviceAccount('default', 'bob').path('/metrics').check('get').allowed()";
    let request = "authorizer.requestResource.check('create').reason() == 'she may'";
    let jane = User { username: "jane".into(), groups: vec!["team".into()], ..User::default() };
    let event = Event { user: Some(jane), ..Event::created(objects(POD).remove(0)) };
    let (kinds, view) = (Kinds::builtin(), Objects(Vec::new()));
    let ask = |text: &str| {
        let reviews = Reviews::default();
        let compiled = compiled(text);
        assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
        let rules = RuleSet::new(compiled.policies);
        let eval_env = EvalEnv { external_data: &reviews, ..EvalEnv::of(&view, &kinds) };
        let found = said(&rules.mutate(&event, &eval_env).outcomes);
        (found[0].clone(), reviews.0.into_inner())
    };
    let (found, sent) = ask(&asks(own));
    assert_eq!(found, "pass Validation rule 'r' passed.");
    let wanted = value!({
        "user": "jane", "uid": "", "groups": ["team"], "extra": {},
        "resourceAttributes": {
            "group": "", "version": "*", "resource": "pods", "subresource": "", "namespace": "default", "name": "p",
            "verb": "delete",
        },
    });
    assert_eq!(sent, [json::to_string(&wanted)]);
    let (found, sent) = ask(&asks(other));
    assert!(found.starts_with("fail"), "{found}");
    assert!(sent[0].contains("system:serviceaccount:default:bob"), "{sent:?}");
    assert!(
        sent[0].contains("\"nonResourceAttributes\":{\"path\":\"/metrics\",\"verb\":\"get\"}"),
        "{sent:?}"
    );
    assert_eq!(ask(&asks(request)).0, "pass Validation rule 'r' passed.");
    // A policy of a namespace learns nothing about others.
    let within = |expression: &str| {
        asks(expression)
            .replace("kind: ClusterPolicy", "kind: Policy")
            .replace("{name: cp}", "{name: cp, namespace: default}")
    };
    assert_eq!(ask(&within(own)).0, "pass Validation rule 'r' passed.");
    let (found, sent) = ask(&within(other));
    assert!(found.contains("only ask about permissions in it"), "{found}");
    assert_eq!(sent, [""; 0]);
    // On files there is no one to ask.
    let found = verdicts(POD, &asks(own), "");
    assert!(found[0].contains("authorization is not available here"), "{found:?}");
}
