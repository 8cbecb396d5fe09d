//! What rules would do, found out without doing it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::support::{Kyverno, World, config_map, id, namespace};
use kiln_cluster::{ApiError, Call, Reply};
use kiln_controller::dry_run::{self, Admit, Applied, ClusterReader, DryRun, DryRunResult};
use kiln_engine::{
    CachedGlobal, ExternalData, ExternalDataError, Globals, ServiceAnswer, ServiceRequest,
};
use kiln_object::{Gvk, Selector};
use kiln_testkit::{MadeBy, made_by_kyverno};
use kiln_value::{Value, value};
use kiln_yaml::{ReadOptions, read_bytes};

fn policy(existing: bool, value: &str) -> String {
    format!(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: settings}}
spec:
  rules:
  - name: make
    match: {{any: [{{resources: {{kinds: [Namespace], names: ["team-*"]}}}}]}}
    generate:
      generateExisting: {existing}
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{{{request.object.metadata.name}}}}"
      data: {{data: {{mode: {value}}}}}
"#
    )
}

const COPIES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: copies}
spec:
  rules:
  - name: copy
    match: {any: [{resources: {kinds: [Namespace], names: ["team-*"]}}]}
    generate:
      generateExisting: true
      apiVersion: v1
      kind: Secret
      name: token
      namespace: "{{request.object.metadata.name}}"
      clone: {namespace: default, name: absent}
"#;

/// Asks the cluster of a world.
struct Seen<'w>(RefCell<&'w mut World>);

impl ClusterReader for Seen<'_> {
    fn all(&self, kind: &Gvk) -> Result<Vec<Value>, ApiError> {
        let all = Selector::everything();
        self.0.borrow().memory.list(kind, None, &all, None, None).map(|listing| listing.objects)
    }

    fn dry_run(&self, call: &Call) -> Option<Result<Value, ApiError>> {
        assert!(!call.changes(), "a dry run writes: {call:?}");
        let mut world = self.0.borrow_mut();
        let user = world.user.clone();
        match world.memory.call(&user, call) {
            Ok(Reply::Object(object)) => Some(Ok(object)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn planned(world: &mut World, policies: &[&str]) -> DryRunResult {
    admitted(world, policies, false, &|_, object| Ok(object))
}

/// A dry run where writes pass rules at admission.
fn admitted(world: &mut World, policies: &[&str], all: bool, admit: &Admit<'_>) -> DryRunResult {
    let policies = policies.iter().map(|text| {
        let read = read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
        read[0].value().clone()
    });
    let policies: Vec<Value> = policies.collect();
    let (revision, now) = (world.memory.revision(), world.now);
    let (kinds, settings) = (world.memory.kinds().clone(), world.settings.clone());
    let seen = Seen(RefCell::new(world));
    let policies = Some(policies).filter(|policies| !policies.is_empty());
    // Rules that act on new objects only act on all.
    let compile = |policy: &Value| {
        let mut policy = Kyverno.compile(policy, &kinds)?;
        for rule in Arc::make_mut(&mut policy).rules.iter_mut().filter(|_| all) {
            Arc::make_mut(rule).lifecycle.existing = true;
        }
        Ok(policy)
    };
    let input = DryRun {
        cluster: &seen,
        kinds: &kinds,
        settings: &settings,
        policies,
        policy_kinds: &Kyverno.kinds(),
        compile: &compile,
        exceptions: Vec::new(),
        globals: Arc::new(globals()),
        services: &Prices,
        admit,
        applied: Applied::nothing(),
    };
    let result = dry_run::run(input, now);
    let world = seen.0.into_inner();
    assert_eq!(world.memory.revision(), revision, "the cluster is another one");
    result
}

/// The global context of every dry run.
fn globals() -> Globals {
    let mut globals = Globals::default();
    globals.insert("regions".into(), CachedGlobal::of(value!(["north", "south"]), &[]));
    globals
}

/// A service that is asked in every dry run.
struct Prices;

impl ExternalData for Prices {
    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        let body = value!({"asked": request.url, "price": "7"});
        Ok(ServiceAnswer { status: 200, body: Some(body) })
    }
}

#[test]
fn rules_have_the_global_context_and_services() {
    let informed = policy(true, "\"{{ regions[1] }} {{ prices.price }}\"").replace(
        "    generate:",
        "    context:
    - name: regions
      globalReference: {name: regions}
    - name: prices
      apiCall: {service: {url: 'http://prices.shop.svc/all'}}
    generate:",
    );
    let mut world = world();
    world.settings.rules.services = true;
    let plan = planned(&mut world, &[&informed]);
    assert_eq!(plan.undone, []);
    let made = plan.changes.first().and_then(|planned| planned.after.as_ref());
    assert_eq!(made.and_then(|made| made.str_at(["data", "mode"])), Some("south 7"));
}

fn summary(result: &DryRunResult) -> Vec<String> {
    let changes = result.changes.iter();
    let lines = changes.map(|planned| format!("{} {}", planned.action(), planned.target));
    lines.collect()
}

fn world() -> World {
    let mut world = World::new();
    for name in ["team-a", "team-b", "other"] {
        world.put(namespace(name, value!({})));
    }
    world
}

#[test]
fn new_policies_would_create_what_they_want_for_what_is_there() {
    let mut world = world();
    let plan = planned(&mut world, &[&policy(true, "quiet")]);
    assert_eq!(
        summary(&plan),
        ["create v1/ConfigMap/team-a/settings", "create v1/ConfigMap/team-b/settings"]
    );
    assert_eq!(plan.undone, []);
    let first = &plan.changes[0];
    assert_eq!(first.rules[0].rule, "make");
    assert_eq!(first.after.as_ref().unwrap().str_at(["data", "mode"]), Some("quiet"));
    assert!(!world.has(&id("ConfigMap", "team-a", "settings")));
}

#[test]
fn rules_for_new_objects_wait_for_them_unless_they_are_let() {
    let mut world = world();
    assert_eq!(summary(&planned(&mut world, &[&policy(false, "quiet")])), [""; 0]);
    let plan = admitted(&mut world, &[&policy(false, "quiet")], true, &|_, object| Ok(object));
    assert_eq!(plan.changes.len(), 2);
}

#[test]
fn what_is_in_step_stays_and_what_differs_is_changed_or_deleted() {
    let mut world = world();
    world.apply(&policy(true, "quiet"));
    world.seconds(2);
    assert!(world.has(&id("ConfigMap", "team-b", "settings")), "{}", world.explain());
    assert_eq!(planned(&mut world, &[&policy(true, "quiet")]), DryRunResult::default());
    // The policies of the cluster themselves.
    assert_eq!(planned(&mut world, &[]), DryRunResult::default());

    let plan = planned(&mut world, &[&policy(true, "loud")]);
    assert_eq!(
        summary(&plan),
        ["change v1/ConfigMap/team-a/settings", "change v1/ConfigMap/team-b/settings"]
    );
    let change = &plan.changes[0];
    let mode = |object: &Option<Value>| {
        object.as_ref().unwrap().str_at(["data", "mode"]).map(str::to_owned)
    };
    assert_eq!(
        (mode(&change.before).unwrap(), mode(&change.after).unwrap()),
        ("quiet".into(), "loud".into())
    );

    // A rule that makes nothing of the one namespace any more.
    let fewer = policy(true, "quiet").replace("team-*", "team-a");
    assert_eq!(summary(&planned(&mut world, &[&fewer])), ["delete v1/ConfigMap/team-b/settings"]);
    // Another user changed what a rule made.
    world.controller.configure(|settings| settings.workers = 0);
    world.edit(&id("ConfigMap", "team-a", "settings"), &["data", "mode"], "mine");
    assert_eq!(summary(&planned(&mut world, &[])), ["change v1/ConfigMap/team-a/settings"]);
    // Other policies do not act beside the ones that are given, and what they made stays.
    assert_eq!(planned(&mut world, &[COPIES]).changes, []);
}

#[test]
fn what_cannot_be_done_is_told() {
    let mut world = world();
    let plan = planned(&mut world, &[COPIES]);
    assert_eq!(plan.changes, []);
    let said: Vec<_> = plan.undone.iter().map(|undone| format!("{undone:?}")).collect();
    assert!(said.iter().any(|said| said.contains("absent")), "{said:?}");
    let broken = policy(true, "quiet").replace("kinds: [Namespace]", "kinds: 7");
    let plan = planned(&mut world, &[&broken]);
    assert_eq!((plan.changes.len(), plan.undone.len()), (0, 1), "{plan:?}");
}

#[test]
fn what_another_policy_keeps_stays_with_it() {
    let mut world = world();
    world.apply(&policy(true, "quiet"));
    world.seconds(2);
    let second = |mode| policy(true, mode).replace("name: settings}", "name: second}");
    assert_eq!(planned(&mut world, &[&second("quiet")]), DryRunResult::default());
    let plan = planned(&mut world, &[&second("loud")]);
    assert_eq!(summary(&plan), [""; 0]);
    let why = "it is also generated by policy settings, rule make, with other content, and stays as it is";
    let said: Vec<_> = plan.undone.iter().map(|undone| undone.why.as_str()).collect();
    let wanted = ["team-a", "team-b"].map(|name| format!("v1/ConfigMap/{name}/settings: {why}"));
    assert_eq!(said, wanted);
    assert_eq!(plan.undone[0].what, "kyverno:second/make");
    // So it is when the policy is stored.
    world.forget_calls();
    world.apply(&second("loud"));
    world.seconds(2);
    assert_eq!(world.writes(), Vec::<&Call>::new(), "{}", world.explain());
    assert_eq!(world.conditions().len(), 2, "{}", world.explain());

    // What is not synchronized is adopted.
    let mut world = crate::support::World::new();
    world.put(namespace("team-a", value!({})));
    world.apply(&policy(true, "quiet").replace("synchronize: true", "synchronize: false"));
    world.seconds(2);
    let plan = planned(&mut world, &[&second("loud")]);
    assert_eq!(summary(&plan), ["change v1/ConfigMap/team-a/settings"]);
}

#[test]
fn writes_pass_rules_at_admission() {
    let mut world = world();
    let label = |old: Option<&Value>, mut object: Value| {
        let seen = if old.is_some() { "again" } else { "first" };
        if object.str_at(["metadata", "namespace"]) == Some("team-b") {
            return Err("too much".to_owned());
        }
        object.set(["metadata", "labels", "seen"], seen).unwrap();
        Ok(object)
    };
    let plan = admitted(&mut world, &[&policy(true, "quiet")], false, &label);
    assert_eq!(summary(&plan), ["create v1/ConfigMap/team-a/settings"]);
    let made = plan.changes[0].after.as_ref().unwrap();
    assert_eq!(made.str_at(["metadata", "labels", "seen"]), Some("first"));
    assert_eq!(plan.undone.len(), 1, "{plan:?}");
    assert!(plan.undone[0].why.contains("too much"), "{plan:?}");
}

/// What admission adds to objects that another engine made is there already.
#[test]
fn what_admission_made_of_an_object_is_no_difference() {
    let mut world = world();
    world.apply(&policy(true, "quiet"));
    let trigger = world.get(&id("Namespace", "", "team-a")).unwrap();
    let by = MadeBy::Rule { policy: "settings", namespace: "", rule: "make" };
    let made = config_map("team-a", "settings", value!({"mode": "quiet", "added": "yes"}));
    world.put(made_by_kyverno(made, by, &trigger, None));
    let add = |_: Option<&Value>, mut object: Value| {
        object.set(["data", "added"], "yes").unwrap();
        Ok(object)
    };
    let only = |plan: DryRunResult| {
        let lines = summary(&plan);
        lines.into_iter().filter(|line| line.contains("team-a")).collect::<Vec<_>>()
    };
    let plan = admitted(&mut world, &[], false, &add);
    assert_eq!(only(plan), [""; 0]);
    let plan = planned(&mut world, &[]);
    assert_eq!(only(plan), ["change v1/ConfigMap/team-a/settings"]);
}

#[test]
fn rules_that_change_what_is_stored_are_named() {
    let mut world = world();
    world.put(config_map("team-a", "settings", value!({"mode": "loud"})));
    let calm = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: calm}
spec:
  rules:
  - name: quiet
    match: {any: [{resources: {kinds: [Namespace], names: [team-a]}}]}
    mutate:
      mutateExistingOnPolicyUpdate: true
      targets: [{apiVersion: v1, kind: ConfigMap, name: settings, namespace: team-a}]
      patchStrategicMerge: {data: {mode: quiet}}
"#;
    let plan = planned(&mut world, &[calm]);
    assert_eq!(summary(&plan), ["change v1/ConfigMap/team-a/settings"]);
    let named: Vec<_> = plan.changes[0].rules.iter().map(ToString::to_string).collect();
    assert_eq!(named, ["kyverno:calm/quiet"]);
}
