//! Random ModRules on random objects, held to a small model of what their documentation says.
//!
//! The model shares nothing with the engine but the values: it knows paths of names and indices, a handful of tests, and the six
//! operations. What it does not know is not generated: expressions with functions, templates beyond names, keys that need escapes.

use kiln_engine::{Effect, EvalEnv, Event, Mutated};
use kiln_object::Kinds;
use kiln_value::{Value, json, value};

use crate::support::{Fixed, Objects, rules};

const CASES: u64 = 4_000;

/// Chance that comes again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }
}

const KEYS: [&str; 3] = ["a", "b", "c"];
const WORDS: [&str; 5] = ["red", "green", "blue", "red-1", "x"];

fn object(dice: &mut Dice) -> Value {
    let pairs = |dice: &mut Dice| {
        let mut map = value!({});
        for key in KEYS {
            if dice.roll(2) == 0 {
                map.set([key], dice.one(&WORDS)).unwrap();
            }
        }
        map
    };
    let count = dice.roll(4);
    let list: Value = (0..count)
        .map(|_| {
            let mut element = value!({"name": dice.one(&WORDS)});
            if dice.roll(2) == 0 {
                element.set(["image"], dice.one(&WORDS)).unwrap();
            }
            element
        })
        .collect();
    let kind = dice.one(&["ConfigMap", "Deployment"]);
    let mut object = value!({
        "apiVersion": if kind == "ConfigMap" { "v1" } else { "apps/v1" },
        "kind": kind,
        "metadata": {"name": dice.one(&WORDS), "namespace": "dev"},
        "spec": {"list": list, "n": i64::try_from(dice.roll(4)).unwrap()},
    });
    for field in ["labels", "annotations"] {
        if dice.roll(3) > 0 {
            let found = pairs(dice);
            object.set(["metadata", field], found).unwrap();
        }
    }
    object
}

/// What an item of `match` looks at.
#[derive(Clone, Copy)]
enum Select {
    Kind,
    Name,
    Label(&'static str),
    /// `name` or `image` of every element of the list.
    Each(&'static str),
    /// Whether the number is this one.
    Number(i64),
    Nothing,
}

#[derive(Clone, Copy)]
enum Test {
    Any,
    Value(&'static str),
    Values([&'static str; 2]),
    /// Begins with.
    Begins(&'static str),
    /// Contains.
    Contains(&'static str),
}

struct Item {
    select: Select,
    test: Test,
    all: bool,
    negate: bool,
}

/// A place, as its steps.
#[derive(Clone, Copy)]
enum Place {
    Label(&'static str),
    Annotation(&'static str),
    /// An element of the list, also from the back.
    Element(i64),
    Name(i64),
    Number,
    Deep,
}

#[derive(Clone, Copy)]
enum Filled {
    Word(&'static str),
    /// The name of the target, then of the namespace.
    Template,
}

enum Op {
    Add(Place, Filled),
    Replace(Place, Filled),
    Remove(Place),
    Test(Place, Filled),
    Move(Place, Place),
    Copy(Place, Place),
}

struct Rule {
    name: &'static str,
    namespace: &'static str,
    tier: i64,
    items: Vec<Item>,
    /// None for a rule that rejects.
    ops: Option<Vec<Op>>,
}

fn rule(dice: &mut Dice, name: &'static str) -> Rule {
    let count = 1 + dice.roll(2);
    let items = (0..count)
        .map(|_| Item {
            select: match dice.roll(7) {
                0 | 1 => Select::Kind,
                2 => Select::Name,
                3 => Select::Label(dice.one(&KEYS)),
                4 => Select::Each(dice.one(&["name", "image"])),
                5 => Select::Number(i64::try_from(dice.roll(4)).unwrap()),
                _ => Select::Nothing,
            },
            test: match dice.roll(9) {
                0 => Test::Value(dice.one(&["ConfigMap", "red", "blue"])),
                1 => Test::Values([dice.one(&["ConfigMap", "green"]), dice.one(&WORDS)]),
                2 => Test::Begins(dice.one(&["red", "D", "b"])),
                3 => Test::Contains(dice.one(&["e", "-1", "Map"])),
                _ => Test::Any,
            },
            all: dice.roll(3) == 0,
            negate: dice.roll(3) == 0,
        })
        .collect();
    let place = |dice: &mut Dice| match dice.roll(7) {
        0 | 1 => Place::Label(dice.one(&KEYS)),
        2 => Place::Annotation(dice.one(&KEYS)),
        3 => Place::Element(dice.one(&[-1, 0, 1, 2])),
        4 => Place::Name(dice.one(&[-1, 0, 1])),
        5 => Place::Number,
        _ => Place::Deep,
    };
    let text = |dice: &mut Dice| match dice.roll(4) {
        0 => Filled::Template,
        _ => Filled::Word(dice.one(&WORDS)),
    };
    let ops = (dice.roll(6) > 0).then(|| {
        let count = 1 + dice.roll(3);
        (0..count)
            .map(|_| match dice.roll(8) {
                // Whose element is missing is made with its parents; the model knows no half-made elements.
                0..3 => match place(dice) {
                    Place::Name(_) => Op::Add(Place::Deep, text(dice)),
                    place => Op::Add(place, text(dice)),
                },
                3 => Op::Replace(place(dice), text(dice)),
                4 => Op::Remove(place(dice)),
                5 => Op::Test(Place::Label(dice.one(&KEYS)), Filled::Word(dice.one(&WORDS))),
                6 => Op::Move(Place::Label(dice.one(&KEYS)), Place::Annotation(dice.one(&KEYS))),
                _ => Op::Copy(Place::Name(dice.one(&[0, -1])), Place::Label(dice.one(&KEYS))),
            })
            .collect()
    });
    Rule {
        name,
        namespace: if dice.roll(8) == 0 { "elsewhere" } else { "dev" },
        tier: dice.one(&[0, 0, 0, -1, 1]),
        items,
        ops,
    }
}

// As they are written.

fn pointer(place: Place) -> String {
    match place {
        Place::Label(key) => format!("/metadata/labels/{key}"),
        Place::Annotation(key) => format!("/metadata/annotations/{key}"),
        Place::Element(at) => format!("/spec/list/{at}"),
        Place::Name(at) => format!("/spec/list/{at}/name"),
        Place::Number => "/spec/n".into(),
        Place::Deep => "/spec/new/deep/value".into(),
    }
}

/// What a place takes: an element is a map, a number is one, all else is text.
fn written(place: Place, text: Filled) -> String {
    let text = match text {
        Filled::Word(word) => word.to_owned(),
        Filled::Template => "{{ .Target.metadata.name }}-{{ .Namespace }}".into(),
    };
    match place {
        Place::Element(_) => format!("name: {text}"),
        Place::Number => "7".into(),
        _ => text,
    }
}

fn yaml(rule: &Rule) -> String {
    let mut out = format!(
        "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: {}, namespace: {}}}\nspec:\n  type: {}\n  executionTier: {}\n  match:\n",
        rule.name,
        rule.namespace,
        if rule.ops.is_some() { "Patch" } else { "Reject" },
        rule.tier
    );
    for item in &rule.items {
        let select = match item.select {
            Select::Kind => "$.kind".to_owned(),
            Select::Name => "$.metadata.name".into(),
            Select::Label(key) => format!("$.metadata.labels.{key}"),
            Select::Each(field) => format!("$.spec.list[*].{field}"),
            Select::Number(number) => format!("$.spec.n == {number}"),
            Select::Nothing => "$.nothing.at.all".into(),
        };
        out.push_str(&format!("  - select: '{select}'\n"));
        out.push_str(&match item.test {
            Test::Any => String::new(),
            Test::Value(text) => format!("    matchValue: '{text}'\n"),
            Test::Values([one, two]) => format!("    matchValues: ['{one}', '{two}']\n"),
            Test::Begins(text) => format!("    matchRegex: '^{text}'\n"),
            Test::Contains(text) => format!("    matchRegex: '{text}'\n"),
        });
        if item.all {
            out.push_str("    matchFor: All\n");
        }
        if item.negate {
            out.push_str("    negate: true\n");
        }
    }
    for (at, op) in rule.ops.iter().flatten().enumerate() {
        if at == 0 {
            out.push_str("  patch:\n");
        }
        let (word, place, rest) = match op {
            Op::Add(place, text) => {
                ("add", place, format!(", value: '{}'", written(*place, *text)))
            }
            Op::Replace(place, text) => {
                ("replace", place, format!(", value: '{}'", written(*place, *text)))
            }
            Op::Remove(place) => ("remove", place, String::new()),
            Op::Test(place, text) => {
                ("test", place, format!(", value: '{}'", written(*place, *text)))
            }
            Op::Move(from, place) => ("move", place, format!(", from: '{}'", pointer(*from))),
            Op::Copy(from, place) => ("copy", place, format!(", from: '{}'", pointer(*from))),
        };
        out.push_str(&format!("  - {{op: {word}, path: '{}'{rest}}}\n", pointer(*place)));
    }
    out.push_str("---\n");
    out
}

// What they mean.

fn item_holds(item: &Item, object: &Value) -> bool {
    let passes = |text: &str| match item.test {
        Test::Any => true,
        Test::Value(wanted) => text == wanted,
        Test::Values(wanted) => wanted.contains(&text),
        Test::Begins(wanted) => text.starts_with(wanted),
        Test::Contains(wanted) => text.contains(wanted),
    };
    let texts: Vec<&str> = match item.select {
        // A comparison is the verdict itself.
        Select::Number(number) => {
            let is = object.get_path(["spec", "n"]).and_then(Value::as_i64) == Some(number);
            return is != item.negate;
        }
        Select::Kind => object.str_at(["kind"]).into_iter().collect(),
        Select::Name => object.str_at(["metadata", "name"]).into_iter().collect(),
        Select::Label(key) => object.str_at(["metadata", "labels", key]).into_iter().collect(),
        Select::Each(field) => {
            let list = object.get_path(["spec", "list"]).and_then(Value::as_list).unwrap();
            list.iter().filter_map(|element| element.str_at([field])).collect()
        }
        Select::Nothing => Vec::new(),
    };
    let mut verdicts = texts.iter().map(|text| passes(text));
    let each = matches!(item.select, Select::Each(_));
    let held = match item.all && each {
        true => !texts.is_empty() && verdicts.all(|passed| passed),
        false => verdicts.any(|passed| passed),
    };
    held != item.negate
}

/// The index of an element that is there.
fn index(list: &[Value], at: i64) -> Option<usize> {
    let length = i64::try_from(list.len()).unwrap();
    let at = if at < 0 { length + at } else { at };
    usize::try_from(at).ok().filter(|at| *at < list.len())
}

fn list_of(object: &Value) -> Vec<Value> {
    object.get_path(["spec", "list"]).and_then(Value::as_list).unwrap().to_vec()
}

fn set_list(object: &mut Value, list: Vec<Value>) {
    object.set(["spec", "list"], Value::from(list)).unwrap();
}

fn get(object: &Value, place: Place) -> Option<Value> {
    let found = match place {
        Place::Label(key) => object.get_path(["metadata", "labels", key]).cloned(),
        Place::Annotation(key) => object.get_path(["metadata", "annotations", key]).cloned(),
        Place::Number => object.get_path(["spec", "n"]).cloned(),
        Place::Deep => object.get_path(["spec", "new", "deep", "value"]).cloned(),
        Place::Element(at) | Place::Name(at) => {
            let list = list_of(object);
            index(&list, at).map(|at| list[at].clone())
        }
    };
    match place {
        Place::Name(_) => found?.get("name").cloned(),
        _ => found,
    }
}

/// Whether there is something to put a label or an annotation into.
fn has_parent(object: &Value, place: Place) -> bool {
    let field = match place {
        Place::Label(_) => "labels",
        Place::Annotation(_) => "annotations",
        _ => return true,
    };
    object.get_path(["metadata", field]).is_some()
}

/// Sets a member, whose parents are made, or inserts an element.
fn add(object: &mut Value, place: Place, new: Value) -> Option<()> {
    match place {
        Place::Label(key) => object.set(["metadata", "labels", key], new).ok(),
        Place::Annotation(key) => object.set(["metadata", "annotations", key], new).ok(),
        Place::Number => object.set(["spec", "n"], new).ok(),
        Place::Deep => object.set(["spec", "new", "deep", "value"], new).ok(),
        Place::Element(at) => {
            let mut list = list_of(object);
            // -1 is behind the last one.
            let at = if at == -1 { list.len() } else { usize::try_from(at).unwrap() };
            if at > list.len() {
                return None;
            }
            list.insert(at, new);
            set_list(object, list);
            Some(())
        }
        Place::Name(at) => {
            let mut list = list_of(object);
            let at = index(&list, at)?;
            list[at].set(["name"], new).ok()?;
            set_list(object, list);
            Some(())
        }
    }
}

/// Takes away a value; whether there was one.
fn remove(object: &mut Value, place: Place) -> Option<Value> {
    let was = get(object, place)?;
    match place {
        Place::Label(key) => drop(object.remove(["metadata", "labels", key])),
        Place::Annotation(key) => drop(object.remove(["metadata", "annotations", key])),
        Place::Number => drop(object.remove(["spec", "n"])),
        Place::Deep => drop(object.remove(["spec", "new", "deep", "value"])),
        Place::Element(at) => {
            let mut list = list_of(object);
            let at = index(&list, at)?;
            list.remove(at);
            set_list(object, list);
        }
        Place::Name(at) => {
            let mut list = list_of(object);
            let at = index(&list, at)?;
            drop(list[at].remove(["name"]));
            set_list(object, list);
        }
    }
    Some(was)
}

/// The object after a rule's operations; none when one of them fails.
fn patched(ops: &[Op], before: &Value) -> Option<Value> {
    let name = before.str_at(["metadata", "name"]).unwrap();
    let fill = |place: Place, text: Filled| {
        let text = match text {
            Filled::Word(word) => word.to_owned(),
            Filled::Template => format!("{name}-dev"),
        };
        match place {
            Place::Element(_) => value!({"name": text}),
            Place::Number => Value::from(7),
            _ => Value::from(text),
        }
    };
    let mut after = before.clone();
    for op in ops {
        match op {
            Op::Add(place, text) => add(&mut after, *place, fill(*place, *text))?,
            Op::Replace(place, text) => {
                get(&after, *place)?;
                let new = fill(*place, *text);
                if let Place::Element(at) = place {
                    let mut list = list_of(&after);
                    let at = index(&list, *at)?;
                    list[at] = new;
                    set_list(&mut after, list);
                } else {
                    add(&mut after, *place, new)?;
                }
            }
            Op::Remove(place) => drop(remove(&mut after, *place)),
            Op::Test(place, text) => {
                if get(&after, *place)? != fill(*place, *text) {
                    return None;
                }
            }
            // Only `add` makes parents.
            Op::Move(_, place) | Op::Copy(_, place) if !has_parent(&after, *place) => return None,
            Op::Move(from, place) => {
                let moved = remove(&mut after, *from)?;
                add(&mut after, *place, moved)?;
            }
            Op::Copy(from, place) => {
                let copied = get(&after, *from)?;
                add(&mut after, *place, copied)?;
            }
        }
    }
    Some(after)
}

/// What becomes of an object, and whether it is refused.
fn model(all: &[Rule], object: &Value) -> (Value, bool) {
    let mut all: Vec<&Rule> = all.iter().filter(|rule| rule.namespace == "dev").collect();
    all.sort_by_key(|rule| (rule.tier, rule.name));
    let mut after = object.clone();
    for tier in all.chunk_by(|a, b| a.tier == b.tier) {
        let before = after.clone();
        for rule in tier {
            let Some(ops) = &rule.ops else { continue };
            if rule.items.iter().all(|item| item_holds(item, &before)) {
                after = patched(ops, &after).unwrap_or(after);
            }
        }
    }
    let refused = all
        .iter()
        .filter(|rule| rule.ops.is_none())
        .any(|rule| rule.items.iter().all(|item| item_holds(item, &after)));
    (after, refused)
}

#[test]
fn random_rules_act_as_the_documentation_says() {
    let kinds = Kinds::builtin();
    let mut changed = 0;
    for seed in 0..CASES {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let object = object(&mut dice);
        let count = 1 + dice.roll(3);
        let all: Vec<Rule> =
            ["a", "b", "c"][..count].iter().map(|name| rule(&mut dice, name)).collect();
        let text: String = all.iter().map(yaml).collect();
        let sources = Fixed(std::cell::Cell::new(0));
        let view = Objects::default();
        let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
        // An update that leaves the object as it is: what the request itself brought is not added again.
        let event = Event::updated(object.clone(), object.clone());
        let Mutated { object: after, outcomes } = rules(&text).mutate(&event, &eval_env);
        let refused = outcomes
            .iter()
            .flat_map(|outcome| &outcome.effects)
            .any(|effect| matches!(effect, Effect::Reject { .. }));
        let (wanted, wanted_refused) = model(&all, &object);
        assert!(
            after == wanted && refused == wanted_refused,
            "case {seed}\n{text}\nobject {}\nfound  {} refused: {refused}\nwanted {} refused: {wanted_refused}",
            json::to_string(&object),
            json::to_string(&after),
            json::to_string(&wanted),
        );
        changed += usize::from(wanted != object || wanted_refused);
    }
    assert!(changed > 1_000, "most cases change nothing: {changed}");
}
