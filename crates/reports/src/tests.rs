//! Results in, calls out; the clock is a number.

use kiln_object::Kinds;
use kiln_yaml::{ReadOptions, read_bytes};

use super::*;

/// The rule `r` of a policy about objects of a kind.
fn rule(policy: &str, kind: &str) -> Arc<Rule> {
    let text = format!(
        "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: {policy}}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}
    validate: {{message: m, pattern: {{metadata: {{name: '?*'}}}}}}
"
    );
    let documents = read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
    let rules = &compiled.policies[0].rules;
    Arc::clone(rules.iter().find(|rule| rule.id.rule == "r").unwrap())
}

fn key(policy: &str) -> ResultKey {
    ResultKey::new("kyverno", policy, Some("r"))
}

/// Policies about objects of a kind whose results can be in reports; the first so many are scanned.
fn policies(names: &[&str], scanned: usize, kind: &str) -> ReportingPolicies {
    let keyed = names.iter().map(|name| (key(name), vec![rule(name, kind)]));
    ReportingPolicies {
        results: keyed.collect(),
        scanned: names.iter().take(scanned).map(|name| key(name)).collect(),
        sources: BTreeSet::from(["kyverno".into()]),
    }
}

fn result(policy: &str, word: &str, seconds: i64) -> Value {
    value!({
        "source": "kyverno", "policy": policy, "rule": "r", "result": word,
        "timestamp": {"seconds": seconds, "nanos": 0},
    })
}

fn object() -> ReportedObject {
    ReportedObject { id: ObjectId::new(Gvk::new("v1", "Pod"), "shop", "web"), uid: "u".into() }
}

/// Policies `a` and `b` are scanned; `user` only sees requests.
fn reports() -> Reports {
    let mut reports = Reports::new(1_000, ReportForm::default());
    reports.set_policies(policies(&["a", "b", "user"], 2, "Pod"));
    reports
}

/// Lets everything that is due happen to one stored report; how many writes there were.
fn settle(reports: &mut Reports, live: &mut Option<Value>, now: u64) -> usize {
    let mut writes = 0;
    for object in reports.due(now, 10) {
        let call = reports.call(&object.uid, live.as_ref());
        writes += usize::from(call.is_some());
        match call {
            Some(Call::Create { object, .. } | Call::Update { object, .. }) => *live = Some(object),
            Some(Call::Delete { .. }) => *live = None,
            _ => {}
        }
        reports.answered(&object.uid, Ok(()), now);
    }
    writes
}

fn words(live: &Option<Value>) -> Vec<String> {
    let shown = |result: &Value| {
        format!("{} {}", result.str_at(["policy"]).unwrap(), result.str_at(["result"]).unwrap())
    };
    live.iter().flat_map(results).map(shown).collect()
}

#[test]
fn several_results_are_one_write_and_the_same_again_is_none() {
    let (mut reports, mut live) = (reports(), None);
    reports.found(object(), vec![result("b", "fail", 1)], 0);
    reports.found(object(), vec![result("a", "pass", 1)], 10);
    assert_eq!(reports.next_time(), Some(1_000), "the first one decides how long they wait");
    assert_eq!(settle(&mut reports, &mut live, 999), 0);
    assert_eq!(settle(&mut reports, &mut live, 1_000), 1);
    assert_eq!(words(&live), ["a pass", "b fail"]);
    let stored = live.clone().unwrap();
    assert_eq!(stored.str_at(["kind"]), Some("PolicyReport"));
    assert_eq!(stored.str_at(["metadata", "name"]), Some("u"));
    assert_eq!(
        stored.get("summary"),
        Some(&value!({"error": 0, "fail": 1, "pass": 1, "skip": 0, "warn": 0}))
    );
    let owner = stored.get_path(["metadata", "ownerReferences"]).and_then(|list| list.index(0));
    assert_eq!(owner.and_then(|owner| owner.str_at(["uid"])), Some("u"));
    assert_eq!((reports.waiting(), reports.next_time()), (0, None));
    // Found out again later: no difference, no write, and the time stays.
    reports.scanned(object(), vec![result("a", "pass", 9), result("b", "fail", 9)], 5_000);
    assert_eq!(settle(&mut reports, &mut live, 6_000), 0);
    assert_eq!(live, Some(stored));
}

#[test]
fn a_scan_replaces_what_scans_gave_and_leaves_the_rest() {
    let (mut reports, mut live) = (reports(), None);
    let found = vec![result("a", "fail", 1), result("b", "pass", 1), result("user", "fail", 1)];
    reports.found(object(), found, 0);
    settle(&mut reports, &mut live, 1_000);
    let theirs = value!({"source": "scanner", "policy": "x", "result": "warn"});
    let mut all: Vec<Value> = live.iter().flat_map(results).cloned().collect();
    all.push(theirs);
    live.as_mut().unwrap().set(["results"], Value::from(all)).unwrap();
    // Rule `a` no longer matches the object.
    reports.scanned(object(), vec![result("b", "pass", 2)], 2_000);
    assert_eq!(settle(&mut reports, &mut live, 3_000), 1);
    assert_eq!(words(&live), ["b pass", "user fail", "x warn"]);
}

#[test]
fn results_of_policies_that_are_gone_go_and_an_empty_report_with_them() {
    let (mut reports, mut live) = (reports(), None);
    reports.scanned(object(), vec![result("a", "fail", 1)], 0);
    settle(&mut reports, &mut live, 1_000);
    reports.stored(live.as_ref().unwrap(), 2_000);
    assert_eq!(reports.waiting(), 0, "nothing is lost yet");
    reports.set_policies(ReportingPolicies {
        sources: BTreeSet::from(["kyverno".into()]),
        ..Default::default()
    });
    reports.stored(live.as_ref().unwrap(), 2_000);
    assert_eq!(settle(&mut reports, &mut live, 3_000), 1);
    assert_eq!(live, None);
    // A result that comes late of a policy that is gone makes no report.
    reports.found(object(), vec![result("a", "fail", 3)], 4_000);
    assert_eq!(settle(&mut reports, &mut live, 5_000), 0);
}

#[test]
fn results_of_rules_that_are_not_about_the_kind_any_more_go() {
    let (mut reports, mut live) = (reports(), None);
    reports.found(object(), vec![result("a", "fail", 1), result("user", "fail", 1)], 0);
    settle(&mut reports, &mut live, 1_000);
    // Policy `a` is about Deployments now: no Pod is scanned for it.
    let mut edited = policies(&["user"], 0, "Pod");
    edited.results.extend(policies(&["a"], 1, "Deployment").results);
    reports.set_policies(edited);
    reports.stored(live.as_ref().unwrap(), 2_000);
    assert_eq!(settle(&mut reports, &mut live, 3_000), 1);
    assert_eq!(words(&live), ["user fail"]);
    reports.withdrawn(object(), vec![key("user")], 4_000);
    assert!(!reports.has_results("u"), "no report is made to say nothing");
    assert_eq!(settle(&mut reports, &mut live, 5_000), 1);
    assert_eq!(live, None);
}

#[test]
fn a_policy_in_cel_has_one_result_for_an_object() {
    let of = |rule: Option<&str>| {
        let mut result = value!({"source": "KyvernoGeneratingPolicy", "policy": "p"});
        if let Some(rule) = rule {
            result.set(["rule"], rule).unwrap();
        }
        ResultKey::of(&result)
    };
    assert_eq!(of(Some("p")), of(Some("exception")));
    assert_eq!(of(Some("p")), of(None));
    assert_ne!(ResultKey::of(&result("a", "pass", 1)), of(Some("r")));
}

#[test]
fn results_about_an_object_wait_until_it_is_stored() {
    let stored = |uid: &str, made: &str| value!({"metadata": {"name": "web", "uid": uid, "creationTimestamp": made}});
    let now = 1_700_000_000_000;
    let (mut reports, mut live) = (reports(), None);
    let id = object().id;
    reports.found_unborn(id.clone(), vec![result("a", "pass", 1)], now);
    reports.found_unborn(
        ObjectId { name: "".into(), ..id.clone() },
        vec![result("a", "pass", 1)],
        now,
    );
    assert_eq!(reports.due_unborn(now, 10), [], "it takes a moment");
    assert_eq!(reports.next_time(), Some(now + 500));
    assert_eq!(reports.due_unborn(now + 500, 10).first(), Some(&id));
    assert_eq!(reports.due_unborn(now + 500, 10), [], "it is looked for");
    // The object that was there before is another one.
    let old = stored("old", "2020-01-01T00:00:00Z");
    reports.looked_for(&id, Some(&old), now + 600);
    assert_eq!((reports.waiting(), reports.due_unborn(now + 10_000, 10).len()), (0, 1));
    let made = stored("u", "2023-11-14T22:13:20Z");
    reports.looked_for(&id, Some(&made), now + 10_000);
    assert_eq!(settle(&mut reports, &mut live, now + 20_000), 1);
    assert_eq!(words(&live), ["a pass"]);
    // One that never comes is forgotten.
    reports.found_unborn(id.clone(), vec![result("a", "pass", 1)], now);
    let mut looks = 0;
    while let Some(time) = reports.next_time() {
        assert_eq!(reports.due_unborn(time, 10).len(), 1);
        reports.looked_for(&id, None, time);
        looks += 1;
    }
    assert_eq!(looks, 6);
}

#[test]
fn failures_are_tried_again_and_nothing_is_lost_meanwhile() {
    let mut reports = reports();
    reports.scanned(object(), vec![result("a", "fail", 1)], 0);
    assert_eq!(reports.due(1_000, 10).len(), 1);
    assert!(reports.call("u", None).is_some());
    // While it is written, a request finds out something else.
    reports.found(object(), vec![result("user", "fail", 1)], 1_100);
    assert_eq!(reports.due(9_000, 10).len(), 0, "one write at a time");
    let conflict = ApiError::new(Reason::Conflict, "another one");
    reports.answered("u", Err(&conflict), 1_200);
    assert_eq!(reports.next_time(), Some(1_200 + 2 * PAUSE));
    let mut live = None;
    assert_eq!(settle(&mut reports, &mut live, 10_000), 1);
    assert_eq!(words(&live), ["a fail", "user fail"]);
    // What can never succeed is given up at once, an object that is not there after some looks.
    for (reason, tries) in [(Reason::NamespaceTerminating, 1), (Reason::NotFound, 7)] {
        reports.scanned(object(), vec![result("a", "pass", 1)], 20_000);
        let error = ApiError::new(reason, "no");
        let mut now = 20_000;
        for _ in 0..tries {
            assert_eq!(reports.waiting(), 1);
            now = reports.next_time().unwrap();
            assert_eq!(reports.due(now, 10).len(), 1);
            reports.call("u", live.as_ref());
            reports.answered("u", Err(&error), now);
        }
        assert_eq!((reports.waiting(), reports.next_time()), (0, None), "{now}");
    }
}

#[test]
fn what_servers_and_permissions_hinder_is_written_when_they_no_longer_do() {
    for reason in [Reason::Unavailable, Reason::Forbidden, Reason::UnknownKind] {
        let (mut reports, mut live) = (reports(), None);
        reports.scanned(object(), vec![result("a", "fail", 1)], 0);
        let error = ApiError::new(reason, "not now");
        let mut pauses = Vec::new();
        for _ in 0..50 {
            let now = reports.next_time().unwrap();
            assert_eq!(reports.due(now, 10).len(), 1);
            assert!(reports.call("u", None).is_some());
            reports.answered("u", Err(&error), now);
            pauses.push(reports.next_time().unwrap() - now);
        }
        assert!(pauses.is_sorted() && pauses[49] == PAUSE << MOST_DOUBLINGS, "{pauses:?}");
        let now = reports.next_time().unwrap();
        assert_eq!(settle(&mut reports, &mut live, now), 1);
        assert_eq!((words(&live), reports.waiting()), (vec!["a fail".to_owned()], 0));
    }
}

#[test]
fn the_first_report_of_a_scanned_object_is_written_without_being_read() {
    let (mut reports, mut live) = (reports(), None);
    reports.found(object(), vec![result("a", "fail", 1)], 0);
    assert!(reports.must_read("u"), "a request may have been refused");
    reports.scanned(object(), vec![result("a", "fail", 1)], 10);
    assert!(!reports.must_read("u"));
    // It was there all the same.
    assert_eq!(reports.due(1_000, 10).len(), 1);
    assert!(matches!(reports.call("u", None), Some(Call::Create { .. })));
    let there = ApiError::new(Reason::AlreadyExists, "it is there");
    reports.answered("u", Err(&there), 1_000);
    assert!(reports.must_read("u"));
    let again = reports.next_time().unwrap();
    assert_eq!(settle(&mut reports, &mut live, again), 1);
    // From then on it is known, also from a list.
    reports.scanned(object(), vec![result("a", "pass", 2)], again);
    assert!(reports.must_read("u"));
    reports.gone("u");
    reports.stored(live.as_ref().unwrap(), again);
    reports.scanned(object(), vec![result("a", "pass", 2)], again);
    assert!(reports.must_read("u"));
}

#[test]
fn reports_of_others_and_about_reports_are_left_alone() {
    let mut reports = reports();
    let mut live = Some(value!({
        "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport", "metadata": {"name": "u"}, "results": [],
    }));
    let before = live.clone();
    reports.scanned(object(), vec![result("a", "fail", 1)], 0);
    assert_eq!(settle(&mut reports, &mut live, 1_000), 0);
    assert_eq!(live, before);
    let about = ReportedObject { id: object().report(&ReportForm::default()), uid: "v".into() };
    reports.scanned(about, vec![result("a", "fail", 1)], 0);
    assert_eq!(reports.waiting(), 0);
    let cluster =
        ReportedObject { id: ObjectId::new(Gvk::new("v1", "Node"), "", "n"), uid: "n".into() };
    assert_eq!(cluster.report(&ReportForm::default()).gvk.kind, "ClusterPolicyReport");
}
