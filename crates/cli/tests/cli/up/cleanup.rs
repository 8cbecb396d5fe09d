//! Objects whose time has come, with the roles of an installation: policies on schedules, the TTL label, and what a plan
//! says of them.

use nix::sys::signal::Signal;

use super::Up;
use crate::harness::Folder;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLEANUP: &str = "/apis/kyverno.io/v2/clustercleanuppolicies";
const DELETING: &str = "/apis/policies.kyverno.io/v1/deletingpolicies";

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{{labels}}}}}\nspec: {{containers: [{{name: a, image: a}}]}}\n"
    )
}

fn cleanup(name: &str, schedule: &str, kind: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v2\nkind: ClusterCleanupPolicy\nmetadata: {{name: {name}}}\nspec:\n  schedule: '{schedule}'\n  match: {{any: [{{resources: {{kinds: [{kind}], selector: {{matchLabels: {{by: {name}}}}}}}}}]}}\n  conditions: {{all: [{{key: '{{{{ target.metadata.name }}}}', operator: Equals, value: 'old-*'}}]}}\n"
    )
}

fn deleting(schedule: &str, resource: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: DeletingPolicy\nmetadata: {{name: {resource}}}\nspec:\n  schedule: '{schedule}'\n  matchConstraints:\n    resourceRules: [{{apiGroups: [''], apiVersions: [v1], resources: [{resource}]}}]\n  conditions: [{{name: c, expression: object.metadata.name.startsWith('worn-')}}]\n"
    )
}

#[test]
fn objects_go_when_their_time_has_come_and_others_stay() {
    let folder = Folder::with(&[]);
    let up = Up::start(&folder, &["--authorization", "rbac"], "Ctrl-C");
    let is_there = |name: &str| up.get(&format!("{PODS}/{name}")).0 == 200;
    for (name, labels) in [
        ("old-a", "by: sweep"),
        ("new-a", "by: sweep"),
        ("old-b", "by: other"),
        ("worn-a", "a: b"),
        ("short", "cleanup.kyverno.io/ttl: 1s"),
        ("long", "cleanup.kyverno.io/ttl: 1h"),
        ("odd", "cleanup.kyverno.io/ttl: 10ay"),
    ] {
        let stored = up.create(PODS, &pod(name, labels));
        assert_eq!(stored.status, 201, "{}", stored.text);
    }
    up.wait_until("the label deletes", || !is_there("short"));
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kyverno-ttl-validating-webhook-cfg";
    up.wait_for(path);
    up.wait_until("who stores an odd value is warned", || {
        assert!([200, 404].contains(&up.delete(&format!("{PODS}/odd"))));
        let stored = up.create(PODS, &pod("odd", "cleanup.kyverno.io/ttl: 10ay"));
        stored.warnings.contains("label value cannot be parsed as any recognizable format")
    });

    // A plan says what runs will delete, and deletes nothing.
    folder.write("sweep.yaml", cleanup("sweep", "0 0 1 1 *", "Pod"));
    let plan = folder.kiln(&["plan", "sweep.yaml", "--kubeconfig", "config"]);
    assert_eq!(plan.code, 1, "{}{}", plan.stdout, plan.stderr);
    assert!(plan.stdout.contains("by the next run of policy sweep ("), "{}", plan.stdout);
    assert!(plan.stdout.contains("delete v1/Pod/default/old-a\n"), "{}", plan.stdout);
    assert!(plan.stdout.contains("1 object is deleted on a schedule"), "{}", plan.stdout);
    assert!(!plan.stdout.contains("old-b") && !plan.stdout.contains("new-a"), "{}", plan.stdout);

    for (path, policy) in
        [(CLEANUP, cleanup("sweep", "@every 1s", "Pod")), (DELETING, deleting("@every 1s", "pods"))]
    {
        let stored = up.create(path, &policy);
        assert_eq!(stored.status, 201, "{}", stored.text);
        assert!(!stored.warnings.contains("not run"), "{}", stored.warnings);
    }
    up.wait_until("the cleanup policy deletes", || !is_there("old-a"));
    up.wait_until("the deleting policy deletes", || !is_there("worn-a"));
    let good = ["Ready True Succeeded", "LastRunSucceeded True Succeeded"];
    for path in [format!("{CLEANUP}/sweep"), format!("{DELETING}/pods")] {
        up.wait_until("its status", || up.conditions(&path) == good);
        assert!(up.get(&path).1.contains("\"lastExecutionTime\":"));
    }
    // It runs again and again.
    assert_eq!(up.create(PODS, &pod("old-c", "by: sweep")).status, 201);
    up.wait_until("the next run", || !is_there("old-c"));
    for name in ["new-a", "old-b", "long", "odd"] {
        assert!(is_there(name), "{name} is gone");
    }
    let shown =
        up.get_as(&format!("{CLEANUP}/sweep"), "application/json;as=Table;v=v1;g=meta.k8s.io");
    assert!(shown.contains("@every 1s") && shown.contains("\"True\""), "{shown}");
    let metrics = up.metrics();
    for line in [
        "kyverno_cleanup_controller_deletedobjects_total{policy_type=\"ClusterCleanupPolicy\",policy_namespace=\"\",policy_name=\"sweep\",resource_kind=\"Pod\",resource_namespace=\"default\",deletion_propagation=\"\"} 2",
        "kyverno_deleting_controller_deletedobjects_total{policy_type=\"DeletingPolicy\",policy_namespace=\"\",policy_name=\"pods\",resource=\"Pod\",resource_namespace=\"default\",deletion_propagation=\"\"} 1",
        "kyverno_ttl_controller_deletedobjects_total{resource_namespace=\"default\",resource_group=\"\",resource_version=\"v1\",resource_resource=\"pods\"} 1",
        "kyverno_ttl_controller_info{resource_group=\"\",resource_version=\"v1\",resource_resource=\"pods\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }

    // What the account may not delete.
    let refused = up.create(CLEANUP, &cleanup("secrets", "@daily", "Secret"));
    assert_eq!(refused.status, 403, "{}", refused.text);
    let why = "cleanup controller has no permission to delete kind Secret, to list kind Secret";
    assert!(refused.text.contains(why), "{}", refused.text);
    let stored = up.create(DELETING, &deleting("@every 1s", "secrets"));
    assert_eq!(stored.status, 201, "{}", stored.text);
    let path = format!("{DELETING}/secrets");
    up.wait_until("its status", || {
        up.conditions(&path).first().is_some_and(|it| it == "Ready False MissingPermissions")
    });
    assert!(up.get(&path).1.contains("missing permissions: delete,list secrets"));
    // Neither is stored without a schedule that can be read, or without objects to look at.
    let bad = up.create(CLEANUP, &cleanup("bad", "invalid-schedule", "Pod"));
    assert!(bad.text.contains("is not in proper cron format"), "{}", bad.text);
    let bad = "apiVersion: policies.kyverno.io/v1\nkind: DeletingPolicy\nmetadata: {name: all}\nspec: {schedule: '@daily'}\n";
    let bad = up.create(DELETING, bad);
    assert!(
        bad.text.contains("a matchConstraints with at least one resource rule"),
        "{}",
        bad.text
    );
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
