//! JSON Schemas of the kinds that Kiln reads, printed from the tables of fields that its readers use.
//!
//! Draft 7, because that is what editors understand best. What a reader accepts without an error is valid, but for words
//! in another letter case; `null` counts as a field that is not there, as in the readers.

use std::collections::BTreeMap;

use kiln_fields::{DocumentKind, Field, FieldTable, FieldType, Support, chainsaw};
use kiln_value::{Map, Value, value};
use kiln_yaml::{ReadOptions, read_bytes};

const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The name of the file with the schema that fits documents of every kind.
pub const ALL_KINDS_FILE: &str = "kiln.json";

/// The kinds that documents name, in the order of the tables; parts of files that have no `kind` are left out.
pub fn document_kinds() -> impl Iterator<Item = &'static DocumentKind> {
    kiln_fields::kinds().filter(|kind| !kind.api_versions.is_empty())
}

/// The kinds that a user may mean by a word: `ClusterPolicy`, `clusterpolicy`, `kyverno.io/v1/ClusterPolicy`, `Test` of
/// two programs.
pub fn kinds_called(name: &str) -> Vec<&'static DocumentKind> {
    let (version, name) = name.rsplit_once('/').map_or((None, name), |(v, name)| (Some(v), name));
    document_kinds()
        .filter(|kind| kind.name.eq_ignore_ascii_case(name))
        .filter(|kind| version.is_none_or(|version| kind.api_versions.contains(&version)))
        .collect()
}

/// The name of the file for the schema of a kind: `kyverno.io-clusterpolicy.json`.
pub fn file_name(kind: &DocumentKind) -> String {
    let group =
        kind.api_versions.first().map(|version| version.split('/').next().unwrap_or(version));
    format!("{}-{}.json", group.unwrap_or("kiln"), kind.name.to_lowercase())
}

/// The line that tells editors which schema a YAML file has.
pub fn editor_comment(schema: &str) -> String {
    format!("# yaml-language-server: $schema={schema}")
}

/// The schema of documents of one kind.
pub fn schema(kind: &DocumentKind) -> Value {
    let mut printer = Printer::default();
    let body = printer.document(kind);
    let mut root = Map::from_iter([
        ("$schema", Value::from(DRAFT)),
        ("title", Value::from(kind.name)),
        ("description", Value::from(kind.summary)),
    ]);
    for (key, value) in body.as_map().into_iter().flatten() {
        root.insert(key.clone(), value.clone());
    }
    printer.finish(root)
}

/// One schema for documents of every kind: which holds is decided by `apiVersion` and `kind`. Documents of other kinds
/// are valid.
pub fn schema_of_all_kinds() -> Value {
    let mut printer = Printer::default();
    let cases: Vec<Value> = document_kinds()
        .map(|kind| {
            let body = printer.document(kind);
            let versions: Value = kind.api_versions.iter().copied().collect();
            value!({
                "if": {
                    "properties": {"apiVersion": {"enum": (versions)}, "kind": {"const": (kind.name)}},
                    "required": ["apiVersion", "kind"],
                },
                "then": (body),
            })
        })
        .collect();
    let root = Map::from_iter([
        ("$schema", Value::from(DRAFT)),
        ("title", Value::from("Kiln")),
        ("description", Value::from("Policies, kustomizations and tests that Kiln reads")),
        ("type", Value::from("object")),
        ("allOf", Value::from_iter(cases)),
    ]);
    printer.finish(root)
}

/// Prints tables as definitions, each once.
#[derive(Default)]
struct Printer {
    names: BTreeMap<*const FieldTable, String>,
    definitions: Map,
    /// Whether names are read in any letter case, as Go does where kustomize reads.
    any_case: bool,
    /// Fields that every part of the kind may have besides its own.
    everywhere: Option<&'static FieldTable>,
}

impl Printer {
    /// The fields of a whole document: those of its table, with its own kind and versions.
    fn document(&mut self, kind: &DocumentKind) -> Value {
        self.any_case = kind.original == "kustomize";
        let is_chainsaw = std::ptr::eq(kind.table, &raw const chainsaw::TEST);
        self.everywhere = is_chainsaw.then_some(&chainsaw::WITHOUT_EFFECT);
        let mut properties = Map::new();
        // Tables of plugins have only what is theirs.
        let versions: Value = kind.api_versions.iter().copied().collect();
        let head = [
            ("apiVersion", value!({"enum": (versions)})),
            ("kind", value!({"const": (kind.name)})),
            ("metadata", value!({"type": ["object", "null"]})),
        ];
        for (name, schema) in head {
            if kind.table.field(name).is_none() {
                properties.insert(name, schema);
            }
        }
        for field in kind.table.fields {
            let schema = match field.name {
                "kind" => described(&value!({"const": (kind.name)}), field),
                "apiVersion" => {
                    let versions: Value = kind.api_versions.iter().copied().collect();
                    described(&value!({"enum": (versions)}), field)
                }
                _ => self.field(field),
            };
            properties.insert(field.name, schema);
        }
        self.object(kind.table, properties)
    }

    fn object(&mut self, table: &FieldTable, mut properties: Map) -> Value {
        let more = self.everywhere.into_iter().flat_map(|everywhere| everywhere.fields);
        for field in more {
            if !properties.contains_key(field.name) {
                let schema = self.field(field);
                properties.insert(field.name, schema);
            }
        }
        let required: Vec<&str> =
            table.fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
        let mut object = Map::from_iter([
            ("type", Value::from("object")),
            ("properties", Value::from(properties)),
        ]);
        // Kubernetes has more metadata than Kiln reads of a policy.
        if !std::ptr::eq(table, &raw const kiln_fields::METADATA) {
            object.insert("additionalProperties", false);
        }
        if self.any_case && !table.fields.is_empty() {
            object.insert("patternProperties", value!({(any_case(table)): {}}));
        }
        if !required.is_empty() {
            object.insert("required", required.into_iter().collect::<Value>());
        }
        Value::from(object)
    }

    fn field(&mut self, field: &Field) -> Value {
        if field.support == Support::Rejected {
            return described(&value!({"not": {}}), field);
        }
        let schema = self.holds(&field.holds);
        described(&schema, field)
    }

    /// What a type accepts, `null` included.
    fn holds(&mut self, holds: &FieldType) -> Value {
        match holds {
            FieldType::String | FieldType::Expression(_) => value!({"type": ["string", "null"]}),
            FieldType::Enum(words) => {
                let mut words: Vec<Value> = words.iter().copied().map(Value::from).collect();
                words.push(Value::Null);
                value!({"enum": (words)})
            }
            FieldType::Boolean => value!({"type": ["boolean", "null"]}),
            FieldType::Integer => value!({"type": ["integer", "null"]}),
            FieldType::Any => value!({}),
            FieldType::List(inner) => {
                let items = self.holds(inner);
                value!({"type": ["array", "null"], "items": (items)})
            }
            FieldType::Map(inner) => {
                let values = self.holds(inner);
                value!({"type": ["object", "null"], "additionalProperties": (values)})
            }
            FieldType::Table(table) => {
                let reference = self.reference(table);
                value!({"anyOf": [(reference), {"type": "null"}]})
            }
            FieldType::Tables(table) => {
                let items = self.reference(table);
                value!({"type": ["array", "null"], "items": (items)})
            }
            FieldType::Either(forms) => {
                let forms: Vec<Value> = forms.iter().map(|form| self.holds(form)).collect();
                value!({"anyOf": (forms)})
            }
        }
    }

    fn reference(&mut self, table: &'static FieldTable) -> Value {
        let key: *const FieldTable = table;
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let mut name = definition_name(table.title);
                // Tables of different programs may have one title.
                while self.names.values().any(|taken| *taken == name) {
                    name.push('_');
                }
                self.names.insert(key, name.clone());
                let mut properties = Map::new();
                for field in table.fields {
                    let schema = self.field(field);
                    properties.insert(field.name, schema);
                }
                let mut object = self.object(table, properties);
                if let Value::Map(object) = &mut object {
                    object.insert("description", plain(table.summary));
                }
                self.definitions.insert(name.as_str(), object);
                name
            }
        };
        value!({"$ref": (format!("#/definitions/{name}"))})
    }

    fn finish(self, mut root: Map) -> Value {
        if !self.definitions.is_empty() {
            root.insert("definitions", self.definitions);
        }
        Value::from(root)
    }
}

/// A pattern for the names of a table in any letter case: what they hold is said of the usual spelling.
fn any_case(table: &FieldTable) -> String {
    let name = |name: &str| -> String {
        name.chars()
            .map(|c| match c.is_ascii_alphabetic() {
                true => format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase()),
                false => c.to_string(),
            })
            .collect()
    };
    format!("^({})$", table.names().map(name).collect::<Vec<_>>().join("|"))
}

fn definition_name(title: &str) -> String {
    title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Without the marks of Markdown, which editors show as they are.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// A schema with what the table says of the field besides its type.
fn described(schema: &Value, field: &Field) -> Value {
    let mut entries = Map::new();
    let note = match field.support {
        Support::Full | Support::Deprecated(_) => "",
        Support::Ignored => "No effect. ",
        Support::NotRun => "Not run. ",
        Support::Rejected => "Rejected. ",
    };
    entries.insert("description", format!("{note}{}", plain(field.doc)));
    entries.insert("markdownDescription", format!("{note}{}", field.doc));
    for (key, value) in schema.as_map().into_iter().flatten() {
        entries.insert(key.clone(), value.clone());
    }
    if let Some(default) = field.default.filter(|text| text.starts_with('[') || !text.contains(' '))
        && let Some(default) = yaml(default)
    {
        entries.insert("default", default);
    }
    if let Some(example) = field.example.and_then(yaml) {
        entries.insert("examples", Value::from_iter([example]));
    }
    if let Support::Deprecated(instead) = field.support {
        entries.insert("deprecated", true);
        entries.insert("deprecationMessage", format!("write {instead}"));
    }
    Value::from(entries)
}

fn yaml(text: &str) -> Option<Value> {
    let documents = read_bytes("example", text.as_bytes(), ReadOptions::kubernetes()).ok()?;
    documents.into_iter().next().map(kiln_yaml::Document::into_value)
}
