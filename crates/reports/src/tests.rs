//! Results in, calls out; the clock is a number.

use super::*;

fn key(policy: &str) -> ResultKey {
    ResultKey { source: "kyverno".into(), policy: policy.into(), rule: Some("r".into()) }
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
    reports.set_policies(ReportingPolicies {
        results: ["a", "b", "user"].map(key).into_iter().collect(),
        scanned: ["a", "b"].map(key).into_iter().collect(),
        sources: BTreeSet::from(["kyverno".into()]),
    });
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
    reports.admitted(object(), vec![result("b", "fail", 1)], 0);
    reports.admitted(object(), vec![result("a", "pass", 1)], 10);
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
    reports.admitted(object(), found, 0);
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
    reports.admitted(object(), vec![result("a", "fail", 3)], 4_000);
    assert_eq!(settle(&mut reports, &mut live, 5_000), 0);
}

#[test]
fn failures_are_tried_again_and_nothing_is_lost_meanwhile() {
    let mut reports = reports();
    reports.scanned(object(), vec![result("a", "fail", 1)], 0);
    assert_eq!(reports.due(1_000, 10).len(), 1);
    assert!(reports.call("u", None).is_some());
    // While it is written, a request finds out something else.
    reports.admitted(object(), vec![result("user", "fail", 1)], 1_100);
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
    reports.admitted(object(), vec![result("a", "fail", 1)], 0);
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
