//! Values as a running template sees them: Go's types, because functions and messages tell `int` from `float64`.
//!
//! The data stays the shared [`kiln_value::Value`] until a template looks inside; then one level is taken over, so that
//! sprig's `set` and `merge` change the one map that every path leads to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use kiln_text::{Duration, Time};
use kiln_value::{Number, Str, Value};

use crate::Numbers;
use crate::functions::TemplateFunction;
use crate::helm;
use crate::marked::Marked;
use crate::semver::SprigVersion;

/// A value of some Go type.
#[derive(Clone, Debug)]
pub(crate) enum Dyn {
    /// No value at all: a key that a map does not have.
    Missing,
    /// A nil interface.
    Nil,
    Bool(bool),
    Int(i64),
    Int64(i64),
    Uint8(u8),
    Uint64(u64),
    Float(f64),
    Complex(f64, f64),
    Text(Marked),
    /// A slice of bytes: the contents of a file.
    Bytes(Arc<[u8]>),
    List(TemplateList),
    Map(Map),
    Time(Rc<Time>),
    Duration(Duration),
    Version(Rc<SprigVersion>),
}

/// A Go type with a name of its own.
#[derive(Debug)]
pub(crate) struct GoType {
    pub(crate) name: &'static str,
    pub(crate) methods: &'static [TemplateFunction],
    /// The field that it prints as, if it is a `Stringer`.
    pub(crate) shown_as: Option<&'static str>,
    /// The fields of a struct in their order.
    pub(crate) fields: &'static [GoField],
    /// How many of its first fields are those of a struct inside of it.
    pub(crate) embedded: usize,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct GoField {
    pub(crate) name: &'static str,
    /// What JSON calls it.
    pub(crate) json: &'static str,
    /// Whether JSON leaves it out if it is empty.
    pub(crate) omit_empty: bool,
}

impl GoField {
    /// A field that JSON calls like Go does.
    pub(crate) const fn plain(name: &'static str) -> Self {
        GoField { name, json: name, omit_empty: false }
    }

    /// A field with a name for JSON, which leaves it out if it is empty.
    pub(crate) const fn optional(name: &'static str, json: &'static str) -> Self {
        GoField { name, json, omit_empty: true }
    }
}

impl GoType {
    /// A type of maps with methods.
    pub(crate) const fn map(name: &'static str, methods: &'static [TemplateFunction]) -> Self {
        GoType { name, methods, shown_as: None, fields: &[], embedded: 0 }
    }

    /// A struct.
    pub(crate) const fn record(name: &'static str, fields: &'static [GoField]) -> Self {
        GoType { name, methods: &[], shown_as: None, fields, embedded: 0 }
    }
}

/// What the elements of a list are declared to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    Any,
    Text,
    Int,
    Lists,
    /// API versions, with a method that looks for one.
    Versions,
}

/// A slice; never changed once made.
#[derive(Clone, Debug)]
pub(crate) struct TemplateList {
    pub(crate) elem: Elem,
    body: Rc<Items>,
}

/// The elements; dropped level by level, so that what templates nest deep costs no stack.
#[derive(Debug, Default)]
struct Items(Vec<Dyn>);

/// A map with string keys, shared by all holders.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// Whether the values are declared to be strings.
    pub(crate) of_text: bool,
    /// Whether it has exactly the keys it has: a struct in Go.
    pub(crate) is_record: bool,
    /// The Go type of its own that it has, which may have methods.
    pub(crate) named: Option<&'static GoType>,
    body: Rc<DictBody>,
}

#[derive(Debug)]
struct DictBody(RefCell<Entries>);

#[derive(Debug)]
enum Entries {
    /// The data itself, and those maps and lists in it that a template asked for: each is one, however it is changed.
    Shared(kiln_value::Map, Numbers, Vec<(Str, Dyn)>),
    Own(BTreeMap<Str, Dyn>),
}

/// From so many maps and lists on they are looked for by their keys.
const MANY: usize = 8;

impl Drop for Items {
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.0));
    }
}

impl Drop for DictBody {
    fn drop(&mut self) {
        drop_flat(self.0.get_mut().take());
    }
}

fn drop_flat(mut pending: Vec<Dyn>) {
    while let Some(value) = pending.pop() {
        match value {
            Dyn::List(list) => {
                if let Some(mut items) = Rc::into_inner(list.body) {
                    pending.append(&mut items.0);
                }
            }
            Dyn::Map(map) => {
                if let Some(mut body) = Rc::into_inner(map.body) {
                    pending.append(&mut body.0.get_mut().take());
                }
            }
            _ => {}
        }
    }
}

impl TemplateList {
    pub(crate) fn items(&self) -> &[Dyn] {
        &self.body.0
    }
}

impl Map {
    pub(crate) fn own(entries: BTreeMap<Str, Dyn>) -> Map {
        Map {
            of_text: false,
            is_record: false,
            named: None,
            body: Rc::new(DictBody(RefCell::new(Entries::Own(entries)))),
        }
    }

    /// Whether it holds the files of a chart.
    pub(crate) fn is_files(&self) -> bool {
        self.named.is_some_and(|named| std::ptr::eq(named, &raw const helm::FILES))
    }

    /// The same map under another Go type.
    pub(crate) fn under_type(&self, named: Option<&'static GoType>) -> Map {
        Map { named, ..self.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        match &*self.body.0.borrow() {
            Entries::Shared(map, ..) => map.len(),
            Entries::Own(own) => own.len(),
        }
    }

    pub(crate) fn same(&self, other: &Map) -> bool {
        Rc::ptr_eq(&self.body, &other.body)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Dyn> {
        let mut entries = self.body.0.borrow_mut();
        if let Entries::Shared(map, numbers, known) = &mut *entries {
            let value = map.get(key)?;
            if !matches!(value, Value::List(_) | Value::Map(_)) {
                return Some(Dyn::from_value(value, *numbers));
            }
            if let Some((_, known)) = known.iter().find(|(known, _)| known == key) {
                return Some(known.clone());
            }
            // A path takes over what it goes through, and not what lies beside it, which was a quarter of rendering
            // `.Target.metadata.name`.
            if known.len() < MANY {
                let value = Dyn::from_value(value, *numbers);
                known.push((Str::new(key), value.clone()));
                return Some(value);
            }
            entries.take_over();
        }
        match &*entries {
            Entries::Own(own) => own.get(key).cloned(),
            Entries::Shared(..) => None,
        }
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        match &*self.body.0.borrow() {
            Entries::Shared(map, ..) => map.contains_key(key),
            Entries::Own(own) => own.contains_key(key),
        }
    }

    /// The keys in order.
    pub(crate) fn keys(&self) -> Vec<Str> {
        match &*self.body.0.borrow() {
            Entries::Shared(map, ..) => {
                let mut keys: Vec<Str> = map.keys().map(|key| Str::new(key.as_str())).collect();
                keys.sort_unstable();
                keys
            }
            Entries::Own(own) => own.keys().cloned().collect(),
        }
    }

    /// The entries in the order of their keys.
    pub(crate) fn entries(&self) -> Vec<(Str, Dyn)> {
        let mut entries = self.body.0.borrow_mut();
        entries.take_over();
        match &*entries {
            Entries::Own(own) => own.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            Entries::Shared(..) => Vec::new(),
        }
    }

    pub(crate) fn insert(&self, key: Str, value: Dyn) {
        let mut entries = self.body.0.borrow_mut();
        entries.take_over();
        if let Entries::Own(own) = &mut *entries {
            own.insert(key, value);
        }
    }

    pub(crate) fn remove(&self, key: &str) {
        let mut entries = self.body.0.borrow_mut();
        entries.take_over();
        if let Entries::Own(own) = &mut *entries {
            own.remove(key);
        }
    }
}

impl Entries {
    /// Makes the entries changeable; what they hold is taken over on first access.
    fn take_over(&mut self) {
        if let Entries::Shared(map, numbers, known) = self {
            let mut known: BTreeMap<Str, Dyn> = std::mem::take(known).into_iter().collect();
            let own = map.iter().map(|(key, value)| match known.remove_entry(key.as_str()) {
                Some(known) => known,
                None => (Str::new(key.as_str()), Dyn::from_value(value, *numbers)),
            });
            *self = Entries::Own(own.collect());
        }
    }

    /// What has to be dropped.
    fn take(&mut self) -> Vec<Dyn> {
        match self {
            Entries::Shared(_, _, known) => {
                std::mem::take(known).into_iter().map(|(_, value)| value).collect()
            }
            Entries::Own(own) => std::mem::take(own).into_values().collect(),
        }
    }
}

impl Dyn {
    pub(crate) fn from_value(value: &Value, numbers: Numbers) -> Dyn {
        match value {
            Value::Null => Dyn::Nil,
            Value::Bool(truth) => Dyn::Bool(*truth),
            Value::Number(number) => match (numbers, number) {
                (Numbers::Integers, Number::Int(int)) => Dyn::Int(*int),
                (Numbers::AsTyped, Number::Int(int)) => Dyn::Int64(*int),
                (Numbers::Integers | Numbers::AsTyped, Number::UInt(uint)) => Dyn::Uint64(*uint),
                _ => Dyn::Float(number.as_f64()),
            },
            Value::String(text) => Dyn::Text(Marked::data(text.clone())),
            Value::List(list) => {
                Dyn::list(list.iter().map(|item| Dyn::from_value(item, numbers)).collect())
            }
            Value::Map(map) => {
                let entries = Entries::Shared(map.clone(), numbers, Vec::new());
                Dyn::Map(Map {
                    of_text: false,
                    is_record: false,
                    named: None,
                    body: Rc::new(DictBody(RefCell::new(entries))),
                })
            }
        }
    }

    /// A text of bytes that need not be UTF-8; what is not becomes U+FFFD.
    pub(crate) fn bytes(bytes: &[u8]) -> Dyn {
        Dyn::Text(Marked::own(Str::from(String::from_utf8_lossy(bytes))))
    }

    pub(crate) fn list(items: Vec<Dyn>) -> Dyn {
        Dyn::list_of(Elem::Any, items)
    }

    pub(crate) fn list_of(elem: Elem, items: Vec<Dyn>) -> Dyn {
        Dyn::List(TemplateList { elem, body: Rc::new(Items(items)) })
    }

    pub(crate) fn texts<S: Into<Marked>>(items: impl IntoIterator<Item = S>) -> Dyn {
        Dyn::list_of(Elem::Text, items.into_iter().map(|text| Dyn::Text(text.into())).collect())
    }

    pub(crate) fn map(entries: impl IntoIterator<Item = (Str, Dyn)>) -> Dyn {
        Dyn::Map(Map::own(entries.into_iter().collect()))
    }

    /// A map whose values are declared to be strings.
    pub(crate) fn text_map(entries: impl IntoIterator<Item = (Str, Dyn)>) -> Dyn {
        let mut map = Map::own(entries.into_iter().collect());
        map.of_text = true;
        Dyn::Map(map)
    }

    /// A map that has no other keys.
    pub(crate) fn record(entries: impl IntoIterator<Item = (Str, Dyn)>) -> Dyn {
        // One by one: a record has a few fields, and collecting them sorts a list first.
        let mut own = BTreeMap::new();
        for (key, value) in entries {
            own.insert(key, value);
        }
        let mut map = Map::own(own);
        map.is_record = true;
        Dyn::Map(map)
    }

    /// Whether a text that a function makes of this may say what the data says. Of lists and maps it is assumed.
    pub(crate) fn may_hold_data(&self) -> bool {
        match self {
            Dyn::Text(text) => text.has_data(),
            Dyn::List(list) => !list.items().is_empty(),
            Dyn::Map(_) | Dyn::Version(_) | Dyn::Bytes(_) => true,
            _ => false,
        }
    }

    /// The same with its texts marked as data: what a function made of data.
    pub(crate) fn as_data(&self) -> Dyn {
        match self {
            Dyn::Text(text) => Dyn::Text(text.as_data()),
            Dyn::List(list) => {
                Dyn::list_of(list.elem, list.items().iter().map(Dyn::as_data).collect())
            }
            Dyn::Map(map) => {
                for (key, value) in map.entries() {
                    if let Dyn::Text(_) | Dyn::List(_) = value {
                        map.insert(key, value.as_data());
                    }
                }
                self.clone()
            }
            other => other.clone(),
        }
    }

    /// Whether there is nothing: no value, or a nil.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Dyn::Missing | Dyn::Nil)
    }

    /// Whether `if` takes it for true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Dyn::Missing | Dyn::Nil => false,
            Dyn::Bool(truth) => *truth,
            Dyn::Int(int) | Dyn::Int64(int) => *int != 0,
            Dyn::Uint8(uint) => *uint != 0,
            Dyn::Uint64(uint) => *uint != 0,
            Dyn::Float(float) => *float != 0.0,
            Dyn::Complex(real, imaginary) => *real != 0.0 || *imaginary != 0.0,
            Dyn::Text(text) => !text.is_empty(),
            Dyn::Bytes(bytes) => !bytes.is_empty(),
            Dyn::List(list) => !list.items().is_empty(),
            // A struct is true, whatever is in it.
            Dyn::Map(map) => map.is_record || map.len() > 0,
            Dyn::Duration(duration) => duration.as_nanos() != 0,
            Dyn::Time(_) | Dyn::Version(_) => true,
        }
    }

    /// The name of the type, as `%T` prints it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Dyn::Missing | Dyn::Nil => "<nil>",
            Dyn::Bool(_) => "bool",
            Dyn::Int(_) => "int",
            Dyn::Int64(_) => "int64",
            Dyn::Uint8(_) => "uint8",
            Dyn::Uint64(_) => "uint64",
            Dyn::Float(_) => "float64",
            Dyn::Complex(..) => "complex128",
            Dyn::Text(_) => "string",
            Dyn::Bytes(_) => "[]uint8",
            Dyn::List(list) => match list.elem {
                Elem::Any => "[]interface {}",
                Elem::Text => "[]string",
                Elem::Int => "[]int",
                Elem::Lists => "[][]interface {}",
                Elem::Versions => "chartutil.VersionSet",
            },
            Dyn::Map(Map { named: Some(named), .. }) => named.name,
            Dyn::Map(map) if map.of_text => "map[string]string",
            Dyn::Map(_) => "map[string]interface {}",
            Dyn::Time(_) => "time.Time",
            Dyn::Duration(_) => "time.Duration",
            Dyn::Version(_) => "*semver.Version",
        }
    }

    /// The kind below the type, as Go's reflection names it.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Dyn::Missing | Dyn::Nil => "invalid",
            Dyn::List(_) | Dyn::Bytes(_) => "slice",
            Dyn::Map(map) if map.is_record => "struct",
            Dyn::Map(_) => "map",
            Dyn::Time(_) => "struct",
            Dyn::Duration(_) => "int64",
            Dyn::Version(_) => "ptr",
            other => other.type_name(),
        }
    }

    /// The integer, if it is of an integer type.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        match self {
            Dyn::Int(int) | Dyn::Int64(int) => Some(i128::from(*int)),
            Dyn::Uint8(uint) => Some(i128::from(*uint)),
            Dyn::Uint64(uint) => Some(i128::from(*uint)),
            Dyn::Duration(duration) => Some(i128::from(duration.as_nanos())),
            _ => None,
        }
    }
}

impl From<bool> for Dyn {
    fn from(truth: bool) -> Self {
        Dyn::Bool(truth)
    }
}

impl From<String> for Dyn {
    fn from(text: String) -> Self {
        Dyn::Text(text.into())
    }
}

impl From<Marked> for Dyn {
    fn from(text: Marked) -> Self {
        Dyn::Text(text)
    }
}

impl From<&str> for Dyn {
    fn from(text: &str) -> Self {
        Dyn::Text(text.into())
    }
}
