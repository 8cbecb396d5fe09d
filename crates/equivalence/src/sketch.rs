//! What objects of a kind may look like: the fields that policies mention and those that must be there, each with values
//! worth trying.

use std::collections::BTreeMap;

use kiln_schema::types::{SchemaType, StructId, types};
use kiln_value::{Map, Value};

use crate::chance::Chance;
use crate::required_fields::is_always_there;
use crate::words::Words;

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
        fields.insert("metadata".to_owned(), Field { sketch: metadata(words), required: true });
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
            fields.insert(name.to_owned(), Field { sketch: keyed(), required: false });
        }
    }
    for name in ["ownerReferences", "finalizers", "generateName"] {
        if words.names.contains(name)
            && let Some(field) =
                types().named("meta/v1.ObjectMeta").and_then(|id| types().field(id, name))
        {
            fields.insert(
                name.to_owned(),
                Field { sketch: of_type(&field.ty, words, 4), required: false },
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
        let sketch = of_type(&field.ty, words, depth + 1);
        fields.insert(field.name.to_owned(), Field { sketch, required });
    }
    Sketch::Fields(fields)
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
    let mut sketch = root.sketch(words, false);
    if !words.element_paths.is_empty() {
        let mut element = SketchTree::default();
        words.element_paths.iter().for_each(|path| element.add(path));
        add_to_lists(&mut sketch, &element, words);
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

    fn sketch(&self, words: &Words, keyed: bool) -> Sketch {
        if let Some(element) = self.below.get("[]") {
            return Sketch::List(Box::new(element.sketch(words, false)));
        }
        if self.below.is_empty() {
            if keyed {
                let keys: Vec<String> = words.keys.iter().take(20).cloned().collect();
                return Sketch::Keyed(keys, Box::new(texts(words)));
            }
            let mut found = match texts(words) {
                Sketch::Leaf(found) => found,
                _ => Vec::new(),
            };
            found.extend(words.numbers.iter().take(12).map(|number| Value::from(*number)));
            found.extend([Value::Bool(true), Value::Bool(false)]);
            return Sketch::Leaf(found);
        }
        let fields = self.below.iter().map(|(name, below)| {
            let keyed = matches!(name.as_str(), "labels" | "annotations");
            (name.clone(), Field { sketch: below.sketch(words, keyed), required: false })
        });
        Sketch::Fields(fields.collect())
    }
}

/// Elements of lists may be maps with the fields that loops read.
fn add_to_lists(sketch: &mut Sketch, element: &SketchTree, words: &Words) {
    match sketch {
        Sketch::Fields(fields) => {
            fields.values_mut().for_each(|field| add_to_lists(&mut field.sketch, element, words));
        }
        Sketch::List(inner) => {
            // What was put in is not looked at again: it may hold lists itself.
            match **inner {
                Sketch::Leaf(_) => **inner = element.sketch(words, false),
                _ => add_to_lists(inner, element, words),
            }
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
                            && chance.percent(90)
                        {
                            value = std::iter::once(element.fill(fullness, chance)).collect();
                        }
                        map.insert(name.as_str(), value);
                    }
                }
                Value::Map(map)
            }
            Sketch::List(element) => {
                let count = match fullness {
                    Fullness::Least | Fullness::Most => 1,
                    Fullness::Some => chance.below(4).min(2),
                };
                (0..count).map(|_| element.fill(fullness, chance)).collect()
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
