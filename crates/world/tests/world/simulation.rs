//! Whatever happens to objects, policies and processes in whatever order: at rest the cluster is as if only what is there at
//! the end had ever been.
//!
//! Each seed is one story: namespaces, sources, policies and exceptions come, change and go; people edit and delete downstreams;
//! calls and answers are lost, watches break, processes crash, are late, and cannot reach the server. `KILN_SEEDS` says how
//! many seeds are run, `KILN_SEED` runs one of them and tells its story; `cargo xtask simulate` sets both.

use std::collections::BTreeMap;
use std::fmt;

use kiln_object::{Gvk, ObjectId, Selector};
use kiln_value::{Value, value};
use kiln_world::{Chance, FaultRates, TimelineEvent, World, WorldOptions};

use crate::support::{id, objects, world};

/// How many seeds are run unless `KILN_SEEDS` says otherwise.
const SEEDS: u64 = 6;
const SHOPS: u64 = 3;

/// Something that happens in a story.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// A namespace comes, or gets other labels.
    Shop(u64, bool),
    ShopGone(u64),
    /// The source of the clones says something else.
    Source(u64),
    /// A policy comes or changes.
    Policy(u64, u64),
    PolicyGone(u64),
    /// Somebody deletes or edits what a rule made.
    DeleteMade(u64, u64),
    EditMade(u64, u64),
    Restart(usize),
    Compact,
    Wait(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The policies of the stories: data and clones of Kyverno's rules, and one in CEL.
fn policy(number: u64, version: u64) -> Value {
    let text = match number {
        0 => format!(
            "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p0}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Namespace], selector: {{matchLabels: {{shop: 'yes'}}}}}}}}]}}
    generate: {{synchronize: true, generateExisting: true, apiVersion: v1, kind: ConfigMap, name: p0,
      namespace: '{{{{request.object.metadata.name}}}}', data: {{data: {{v: '{version}'}}}}}}
"
        ),
        1 => "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p1}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {shop: 'yes'}}}}]}
    generate: {synchronize: true, generateExisting: true, apiVersion: v1, kind: ConfigMap, name: p1,
      namespace: '{{request.object.metadata.name}}', clone: {namespace: default, name: source}}
"
        .to_owned(),
        _ => format!(
            "
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {{name: p2}}
spec:
  evaluation: {{synchronize: {{enabled: true}}, generateExisting: {{enabled: true}}}}
  matchConstraints:
    objectSelector: {{matchLabels: {{shop: 'yes'}}}}
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], resources: [namespaces], operations: [CREATE, UPDATE]}}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.name, [{{'apiVersion': 'v1', 'kind': 'ConfigMap',
      'metadata': {{'name': 'p2'}}, 'data': {{'v': '{version}'}}}}])
"
        ),
    };
    objects(&text).remove(0)
}

fn shop(number: u64, open: bool) -> Value {
    let open = if open { "yes" } else { "no" };
    value!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": (format!("shop{number}")), "labels": {"shop": open}}})
}

fn source(version: u64) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "source", "namespace": "default"}, "data": {"v": (version.to_string())}})
}

fn story(chance: &mut Chance) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..6 + chance.below(10) {
        steps.push(match chance.below(14) {
            0..4 => Step::Shop(chance.below(SHOPS), !chance.one_in(4)),
            4 => Step::ShopGone(chance.below(SHOPS)),
            5 | 6 => Step::Source(chance.below(5)),
            7..10 => Step::Policy(chance.below(3), chance.below(4)),
            10 if chance.one_in(2) => Step::PolicyGone(chance.below(3)),
            10 => Step::Compact,
            11 => Step::DeleteMade(chance.below(SHOPS), chance.below(3)),
            12 => Step::EditMade(chance.below(SHOPS), chance.below(3)),
            _ if chance.one_in(2) => Step::Restart(usize::from(chance.one_in(2))),
            _ => Step::Wait(chance.below(20)),
        });
    }
    steps
}

/// What a user wants to be there at the end.
#[derive(Default)]
struct Wanted {
    shops: BTreeMap<u64, bool>,
    policies: BTreeMap<u64, u64>,
    source: u64,
}

fn made(shop: u64, policy: u64) -> ObjectId {
    id("v1", "ConfigMap", &format!("shop{shop}"), &format!("p{policy}"))
}

fn policy_id(number: u64) -> ObjectId {
    match number {
        2 => id("policies.kyverno.io/v1", "GeneratingPolicy", "", "p2"),
        _ => id("kyverno.io/v1", "ClusterPolicy", "", &format!("p{number}")),
    }
}

/// Does something until the server takes it: users try again.
fn insist<T, E: fmt::Display>(world: &mut World, mut act: impl FnMut(&World) -> Result<T, E>) {
    let mut last = String::new();
    for _ in 0..40 {
        match act(world) {
            Ok(_) => return world.run_now(),
            Err(error) => last = error.to_string(),
        }
        let until = world.now() + 1_000;
        world.run_until(until);
    }
    panic!("the server does not take it: {last}");
}

fn take(world: &mut World, wanted: &mut Wanted, step: &Step) {
    match *step {
        Step::Shop(number, open) => {
            wanted.shops.insert(number, open);
            // A namespace that is being deleted has to be gone first.
            insist(world, |world| match world.apply(&shop(number, open), "") {
                Ok(stored) if stored.get_path(["metadata", "deletionTimestamp"]).is_some() => {
                    Err("it is being deleted".to_owned())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            });
        }
        Step::ShopGone(number) => {
            if wanted.shops.remove(&number).is_some() {
                insist(world, |world| {
                    world.delete(&id("v1", "Namespace", "", &format!("shop{number}")))
                });
            }
        }
        Step::Source(version) => {
            wanted.source = version;
            insist(world, |world| world.apply(&source(version), ""));
        }
        Step::Policy(number, version) => {
            wanted.policies.insert(number, version);
            insist(world, |world| world.apply(&policy(number, version), ""));
        }
        Step::PolicyGone(number) => {
            if wanted.policies.remove(&number).is_some() {
                insist(world, |world| world.delete(&policy_id(number)));
            }
        }
        Step::DeleteMade(shop, policy) => drop(world.delete(&made(shop, policy))),
        Step::EditMade(shop, policy) => {
            let edit = value!({"data": {"v": "edited", "more": "x"}});
            drop(world.patch(&made(shop, policy), kiln_world::ObjectPatch::Merge(edit)));
        }
        Step::Restart(replica) => world.restart(replica),
        Step::Compact => world.compact(),
        Step::Wait(seconds) => {
            let until = world.now() + seconds * 1000;
            world.run_until(until);
        }
    }
    world.run_now();
}

/// Plays a story; what is wrong at its end.
fn play(seed: u64, steps: &[Step], loud: bool) -> Result<(), String> {
    let options = WorldOptions { seed, replicas: 2, shuffled: true, ..WorldOptions::default() };
    let mut world = world(&options);
    world.apply(&source(0), "").map_err(|error| error.to_string())?;
    let bystander = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "bystander", "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "kyverno", "generate.kyverno.io/policy-name": "p0",
            "generate.kyverno.io/rule-name": "r", "generate.kyverno.io/trigger-uid": "u"}}});
    let bystander = world.apply(&bystander, "").map_err(|error| error.to_string())?;
    let mut wanted = Wanted::default();
    world.set_faults(FaultRates::usual());
    for step in steps {
        if loud {
            eprintln!("{} {step}", world.now());
        }
        take(&mut world, &mut wanted, step);
    }
    world.set_faults(FaultRates::none());
    let until = world.now() + 180_000;
    if !world.run_until(until) {
        return Err("the engine goes round in a circle".to_owned());
    }
    if loud {
        let (entries, _) = world.timeline(0);
        entries.iter().for_each(|entry| eprintln!("{} {entry}", entry.at));
    }
    // Safety: what carries the labels of a rule and is not its own stays.
    let there = world.get(&id("v1", "ConfigMap", "default", "bystander")).ok().flatten();
    if there.as_ref().and_then(|there| there.str_at(["metadata", "uid"]))
        != bystander.str_at(["metadata", "uid"])
    {
        return Err("an object of somebody else was deleted".to_owned());
    }
    check(&world, &wanted)?;
    rests(&mut world)
}

/// Whether the downstreams are those that the policies want of what is there.
fn check(world: &World, wanted: &Wanted) -> Result<(), String> {
    let all = world.list(&Gvk::new("v1", "ConfigMap"), None, Selector::everything());
    let all = all.map_err(|error| error.to_string())?;
    for shop in 0..SHOPS {
        let open = wanted.shops.get(&shop) == Some(&true);
        for number in 0..3 {
            let version = wanted.policies.get(&number).copied();
            let id = made(shop, number);
            let there =
                all.iter().find(|object| ObjectId::of(object).is_ok_and(|other| other == id));
            let version = match number {
                1 => version.map(|_| wanted.source),
                _ => version,
            };
            let expected = version.filter(|_| open).map(|version| version.to_string());
            let found =
                there.map(|object| object.str_at(["data", "v"]).unwrap_or_default().to_owned());
            if found != expected {
                return Err(format!(
                    "{id} is {found:?}, and should be {expected:?}; waiting: {:?}",
                    world.waiting()
                ));
            }
        }
    }
    Ok(())
}

/// Whether nothing more is written, but what says that a process lives.
fn rests(world: &mut World) -> Result<(), String> {
    let (_, from) = world.timeline(usize::MAX);
    let until = world.now() + 120_000;
    world.run_until(until);
    let (entries, _) = world.timeline(from);
    let written = entries.iter().find(|entry| match &entry.what {
        TimelineEvent::Write { path, .. } => !path.contains("/leases/"),
        _ => false,
    });
    written.map_or(Ok(()), |entry| Err(format!("at rest, something is written: {entry}")))
}

/// The shortest story that fails as well.
fn shortened(seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let mut at = 0;
    while at < steps.len() {
        let mut shorter = steps.clone();
        shorter.remove(at);
        match play(seed, &shorter, false) {
            Err(_) => steps = shorter,
            Ok(()) => at += 1,
        }
    }
    steps
}

#[test]
fn every_story_ends_as_if_only_its_end_had_been() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let one = number("KILN_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("KILN_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let steps = story(&mut Chance::new(seed));
        if let Err(why) = play(seed, &steps, one.is_some()) {
            let short = shortened(seed, steps);
            let why = play(seed, &short, false).err().unwrap_or(why);
            let told: Vec<String> = short.iter().map(ToString::to_string).collect();
            panic!(
                "seed {seed}: {why}\n{}\nreplay: cargo xtask simulate --seed {seed}",
                told.join("\n")
            );
        }
    }
}
