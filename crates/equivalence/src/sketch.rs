//! What objects of a kind may look like: the fields that policies mention and those that must be there, each with values
//! worth trying.

use std::collections::BTreeMap;

use kiln_schema::types::{SchemaType, StructId, types};
use kiln_value::{Map, Value};

use crate::chance::Chance;
use crate::required_fields::is_always_there;
use crate::words::{ValueKind, Words};

/// A value that is to be made up.
#[derive(Clone, Debug)]
pub(crate) enum Sketch {
    Fields(BTreeMap<String, Field>),
    List(Box<Sketch>),
    /// A map with any of these keys.
    Keyed(Vec<String>, Box<Sketch>),
    /// One of these values.
    Leaf(Vec<Value>),
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) sketch: Sketch,
    pub(crate) required: bool,
    /// A server leaves it out where it is an empty list or map.
    pub(crate) omits_empty: bool,
}

/// How deep fields are followed.
const DEPTH: usize = 14;

/// The sketch of a kind: from its types where they are known, otherwise from the paths that policies write out.
pub(crate) fn of_kind(api_version: &str, kind: &str, words: &Words) -> Sketch {
    let mut sketch = match types().kind(api_version, kind) {
        Some(id) => of_struct(id, words, 0),
        None => of_paths(words),
    };
    if let Sketch::Fields(fields) = &mut sketch {
        for gone in ["apiVersion", "kind", "metadata", "status"] {
            let mentioned = gone == "status"
                && words.paths.iter().any(|path| path.first().is_some_and(|step| step == "status"));
            if !mentioned {
                fields.remove(gone);
            }
        }
        fields.insert(
            "metadata".to_owned(),
            Field { sketch: metadata(words), required: true, omits_empty: false },
        );
    }
    sketch
}

fn metadata(words: &Words) -> Sketch {
    let mut fields = BTreeMap::new();
    let keyed = || {
        let keys: Vec<String> = words.keys.iter().take(40).cloned().collect();
        Sketch::Keyed(keys, Box::new(texts(words)))
    };
    for name in ["labels", "annotations"] {
        if words.names.contains(name) {
            fields.insert(
                name.to_owned(),
                Field { sketch: keyed(), required: false, omits_empty: true },
            );
        }
    }
    for name in ["ownerReferences", "finalizers", "generateName"] {
        if words.names.contains(name)
            && let Some(field) =
                types().named("meta/v1.ObjectMeta").and_then(|id| types().field(id, name))
        {
            fields.insert(
                name.to_owned(),
                Field { sketch: of_type(&field.ty, words, 4), required: false, omits_empty: true },
            );
        }
    }
    Sketch::Fields(fields)
}

fn of_struct(id: StructId, words: &Words, depth: usize) -> Sketch {
    let mut fields = BTreeMap::new();
    for field in types().fields(id) {
        let mentioned = words.names.contains(field.name);
        let required = is_always_there(id, field);
        if depth > DEPTH || !(mentioned || required) {
            continue;
        }
        let sketch = match (field.name, of_type(&field.ty, words, depth + 1)) {
            ("image", Sketch::Leaf(texts)) => Sketch::Leaf(images(&texts)),
            // Names that tell elements apart are not empty, and servers leave out what is empty and may be missing.
            (name, Sketch::Leaf(mut texts)) if !required || name == "name" => {
                texts.retain(|text| text.as_str() != Some(""));
                Sketch::Leaf(texts)
            }
            (_, sketch) => sketch,
        };
        let omits_empty = matches!(sketch, Sketch::List(_) | Sketch::Keyed(..));
        fields.insert(field.name.to_owned(), Field { sketch, required, omits_empty });
    }
    Sketch::Fields(fields)
}

/// Images that a node could pull: usual ones, and what policies mention.
fn images(texts: &[Value]) -> Vec<Value> {
    let usual = [
        "nginx",
        "nginx:latest",
        "nginx:1.27",
        "registry.example.com/team/app:v1",
        "nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ];
    let mentioned = texts.iter().filter_map(Value::as_str).filter_map(image);
    usual.map(str::to_owned).into_iter().chain(mentioned).map(Value::from).collect()
}

/// A text as an image, if it can be the beginning or the end of one.
fn image(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "./:@_-".contains(c);
    if text.is_empty() || !text.chars().all(is_plain) {
        return None;
    }
    let text = match text.chars().next() {
        Some(':' | '@') => format!("app{text}"),
        Some('/' | '.' | '-' | '_') => format!("app{}", &text[1..]),
        _ => text.to_owned(),
    };
    let text =
        if text.ends_with(['/', ':', '@', '.', '-', '_']) { format!("{text}app") } else { text };
    // A repository has two characters at least.
    let text = text.strip_suffix("/x").map_or(text.clone(), |before| format!("{before}/app"));
    // A tag without digits behind `@` is none.
    (!text.contains('@') || text.contains("@sha256:")).then_some(text)
}

fn of_type(ty: &SchemaType, words: &Words, depth: usize) -> Sketch {
    match ty {
        SchemaType::String | SchemaType::Duration => texts(words),
        SchemaType::Time | SchemaType::MicroTime => {
            Sketch::Leaf(vec![Value::from("2026-01-01T00:00:00Z")])
        }
        SchemaType::Bytes => Sketch::Leaf(vec![Value::from("eA==")]),
        SchemaType::Bool => Sketch::Leaf(vec![Value::Bool(true), Value::Bool(false)]),
        SchemaType::Int32 | SchemaType::Int64 => {
            Sketch::Leaf(words.numbers.iter().map(|number| Value::from(*number)).collect())
        }
        SchemaType::Double => Sketch::Leaf(vec![Value::from(0.5), Value::from(2)]),
        SchemaType::Quantity => {
            let mut found = vec![Value::from("1"), Value::from("100m"), Value::from("1Gi")];
            for quantity in &words.quantities {
                found.push(Value::from(quantity.as_str()));
                found.extend(beside(quantity).into_iter().map(Value::from));
            }
            Sketch::Leaf(found)
        }
        SchemaType::IntOrString => {
            let mut found: Vec<Value> =
                words.numbers.iter().map(|number| Value::from(*number)).collect();
            found.extend(["50%", "100%"].map(Value::from));
            found.extend(words.texts.iter().take(8).map(|text| Value::from(text.as_str())));
            Sketch::Leaf(found)
        }
        SchemaType::Struct(id) => of_struct(*id, words, depth),
        SchemaType::List(element) => Sketch::List(Box::new(of_type(element, words, depth))),
        SchemaType::Map(value) => {
            let keys: Vec<String> = words
                .keys
                .iter()
                .chain(
                    words
                        .names
                        .iter()
                        .filter(|name| matches!(name.as_str(), "cpu" | "memory" | "storage")),
                )
                .take(40)
                .cloned()
                .collect();
            Sketch::Keyed(keys, Box::new(of_type(value, words, depth)))
        }
        SchemaType::Raw | SchemaType::Fields | SchemaType::Json | SchemaType::SchemaOr(_) => {
            Sketch::Leaf(vec![Value::map()])
        }
    }
}

/// A little less and a little more.
fn beside(quantity: &str) -> Vec<String> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(digits);
    let Ok(number) = number.parse::<i64>() else { return Vec::new() };
    vec![format!("{}{unit}", number + 1), format!("{}{unit}", (number - 1).max(0))]
}

fn texts(words: &Words) -> Sketch {
    let mut found: Vec<Value> = ["", "other"].into_iter().map(Value::from).collect();
    found.extend(words.texts.iter().map(|text| Value::from(text.as_str())));
    Sketch::Leaf(found)
}

/// What the paths of policies say about a kind that is not known.
fn of_paths(words: &Words) -> Sketch {
    let mut root = SketchTree::default();
    for path in &words.paths {
        root.add(path);
    }
    let mut sketch = root.sketch(words, &mut Vec::new());
    if !words.element_paths.is_empty() {
        let mut element = SketchTree::default();
        words.element_paths.iter().for_each(|path| element.add(path));
        let element = element.sketch(words, &mut Vec::new());
        add_to_lists(&mut sketch, &element, words, &mut Vec::new());
    }
    match sketch {
        Sketch::Fields(_) => sketch,
        _ => Sketch::Fields(BTreeMap::new()),
    }
}

#[derive(Debug, Default)]
struct SketchTree {
    below: BTreeMap<String, SketchTree>,
}

impl SketchTree {
    fn add(&mut self, path: &[String]) {
        if let Some((first, rest)) = path.split_first() {
            self.below.entry(first.clone()).or_default().add(rest);
        }
    }

    /// A definition gives each field one type, which is that of what it is compared with.
    fn sketch(&self, words: &Words, path: &mut Vec<String>) -> Sketch {
        let below = |name: &str, tree: &SketchTree, path: &mut Vec<String>| {
            path.push(name.to_owned());
            let sketch = tree.sketch(words, path);
            path.pop();
            sketch
        };
        if self.below.contains_key("{}") {
            let keys: Vec<String> = words.keys.iter().take(20).cloned().collect();
            return Sketch::Keyed(keys, Box::new(texts(words)));
        }
        if let Some(element) = self.below.get("[]") {
            return Sketch::List(Box::new(below("[]", element, path)));
        }
        if self.below.is_empty() {
            let is_keyed = path.last().is_some_and(|name| {
                matches!(name.as_str(), "labels" | "annotations" | "matchLabels")
            });
            if is_keyed {
                let keys: Vec<String> = words.keys.iter().take(20).cloned().collect();
                return Sketch::Keyed(keys, Box::new(texts(words)));
            }
            return match words.types.get(path) {
                Some(ValueKind::Number) => Sketch::Leaf(
                    words.numbers.iter().take(20).map(|number| Value::from(*number)).collect(),
                ),
                Some(ValueKind::Bool) => Sketch::Leaf(vec![Value::Bool(true), Value::Bool(false)]),
                Some(ValueKind::Text) | None => texts(words),
            };
        }
        let fields = self.below.iter().map(|(name, tree)| {
            let sketch = below(name, tree, path);
            (name.clone(), Field { sketch, required: false, omits_empty: false })
        });
        Sketch::Fields(fields.collect())
    }
}

/// Elements of lists may be maps with the fields that loops read.
fn add_to_lists(sketch: &mut Sketch, element: &Sketch, words: &Words, path: &mut Vec<String>) {
    match sketch {
        Sketch::Fields(fields) => {
            for (name, field) in fields {
                path.push(name.clone());
                add_to_lists(&mut field.sketch, element, words, path);
                path.pop();
            }
        }
        Sketch::List(inner) => {
            path.push("[]".to_owned());
            // What was put in is not looked at again: it may hold lists itself.
            match **inner {
                // A pattern says what its elements are.
                Sketch::Leaf(_) if words.types.contains_key(path) => {}
                Sketch::Leaf(_) => (**inner).clone_from(element),
                _ => add_to_lists(inner, element, words, path),
            }
            path.pop();
        }
        Sketch::Keyed(..) | Sketch::Leaf(_) => {}
    }
}

/// How much of a sketch is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fullness {
    /// What must be there.
    Least,
    /// Everything once.
    Most,
    /// By chance.
    Some,
}

/// Elements of lists that have names have different ones.
fn told_apart(mut elements: Vec<Value>) -> Value {
    let mut seen: Vec<String> = Vec::new();
    for element in &mut elements {
        let Some(name) = element.str_at(["name"]).map(str::to_owned) else { continue };
        let known = seen.iter().filter(|known| **known == name).count();
        if known > 0 {
            let _ = element.set(["name"], format!("{name}{}", known + 1));
        }
        seen.push(name);
    }
    Value::List(elements.into())
}

impl Sketch {
    /// A value as the sketch says.
    pub(crate) fn fill(&self, fullness: Fullness, chance: &mut Chance) -> Value {
        match self {
            Sketch::Fields(fields) => {
                let mut map = Map::new();
                for (name, field) in fields {
                    let there = field.required
                        || match fullness {
                            Fullness::Least => false,
                            Fullness::Most => true,
                            Fullness::Some => chance.percent(60),
                        };
                    if there {
                        let mut value = field.sketch.fill(fullness, chance);
                        // A list that must be there is hardly ever empty.
                        if let (Sketch::List(element), Value::List(list)) = (&field.sketch, &value)
                            && field.required
                            && list.is_empty()
                            && (name == "containers" || chance.percent(90))
                        {
                            value = std::iter::once(element.fill(fullness, chance)).collect();
                        }
                        let is_empty = match &value {
                            Value::List(list) => list.is_empty(),
                            Value::Map(map) => map.is_empty(),
                            _ => false,
                        };
                        if !(is_empty && field.omits_empty && !field.required) {
                            map.insert(name.as_str(), value);
                        }
                    }
                }
                Value::Map(map)
            }
            Sketch::List(element) => {
                let count = match fullness {
                    Fullness::Least | Fullness::Most => 1,
                    Fullness::Some => chance.below(4).min(2),
                };
                let elements = (0..count).map(|_| element.fill(fullness, chance));
                told_apart(elements.collect())
            }
            Sketch::Keyed(keys, value) => {
                let mut map = Map::new();
                let count = match fullness {
                    Fullness::Least => 0,
                    Fullness::Most => keys.len().min(3),
                    Fullness::Some => chance.below(4),
                };
                for _ in 0..count {
                    if let Some(key) = chance.pick(keys) {
                        map.insert(key.as_str(), value.fill(fullness, chance));
                    }
                }
                Value::Map(map)
            }
            Sketch::Leaf(values) => chance.pick(values).cloned().unwrap_or(Value::Null),
        }
    }
}
