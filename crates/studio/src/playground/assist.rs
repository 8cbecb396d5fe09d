//! Completion and hover: which fields fit where the cursor is, and what the field under it means.
//!
//! The text is being typed and often is not YAML, so the place is found by indentation alone.

use kiln_fields::{FieldTable, FieldType};
use kiln_schema::types::{Type, types};
use kiln_value::{Map, Value};

/// What an editor shows at a place.
pub(super) fn assist(text: &str, utf16_offset: usize) -> Value {
    let place = Cursor::find(text, utf16_offset);
    let mut fields = Map::new();
    let here = resolve(&place, &place.path);
    let entries: Vec<Value> = match &place.value_of {
        None => here.iter().flat_map(Shape::fields).map(FieldInfo::into_value).collect(),
        Some(_) => Vec::new(),
    };
    fields.insert("fields", entries);
    if let Some(key) = &place.key {
        let known = here.iter().flat_map(Shape::fields).find(|field| field.name == *key);
        if let Some(field) = known {
            fields.insert("hover", field.into_value());
        }
    }
    let values: Vec<Value> = match &place.value_of {
        Some(key) if key == "kind" && place.path.is_empty() => {
            kiln_fields::kinds().map(|kind| Value::from(kind.name)).collect()
        }
        Some(key) => here.iter().flat_map(|shape| shape.values(key)).collect(),
        None => Vec::new(),
    };
    fields.insert("values", values);
    fields
        .insert("path", place.path.iter().map(|key| Value::from(key.as_str())).collect::<Value>());
    Value::from(fields)
}

/// Where the cursor is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// The keys above it.
    path: Vec<String>,
    /// The key of its line.
    key: Option<String>,
    /// The key whose value it is in.
    value_of: Option<String>,
    api_version: String,
    kind: String,
}

/// A line as indentation has it: dashes, then perhaps a key.
struct Line<'t> {
    dashes: Vec<usize>,
    /// Where what follows the dashes begins.
    column: usize,
    key: Option<&'t str>,
}

impl<'t> Line<'t> {
    fn read(text: &'t str) -> Option<Self> {
        let mut column = text.len() - text.trim_start().len();
        let mut rest = text.trim_start();
        if rest.is_empty() || rest.starts_with('#') {
            return None;
        }
        let mut dashes = Vec::new();
        while let Some(after) = rest.strip_prefix('-') {
            if !after.is_empty() && !after.starts_with(' ') {
                break;
            }
            dashes.push(column);
            let inner = after.trim_start();
            column += 1 + (after.len() - inner.len());
            rest = inner;
        }
        let key =
            rest.split_once(':').filter(|(_, after)| after.is_empty() || after.starts_with(' '));
        let key = key.map(|(key, _)| key.trim_matches(['"', '\'']));
        Some(Line { dashes, column, key })
    }

    /// Moves out of the list items that the line begins.
    fn leave_items(&self, column: usize) -> usize {
        self.dashes.iter().rev().fold(column, |column, dash| match *dash < column {
            true => dash + 1,
            false => column,
        })
    }
}

impl Cursor {
    fn find(text: &str, utf16_offset: usize) -> Self {
        let mut offset = text.len();
        let mut units = 0;
        for (at, c) in text.char_indices() {
            if units >= utf16_offset {
                offset = at;
                break;
            }
            units += c.len_utf16();
        }
        let (before, after) = text.split_at(offset);
        let start = before.rfind("\n---").map_or(0, |at| at + 4);
        let end = after.find("\n---").map_or(text.len(), |at| offset + at);
        let document = &text[start..end];
        let top = |key: &str| {
            let line = document.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned()
        };
        let mut cursor =
            Cursor { api_version: top("apiVersion"), kind: top("kind"), ..Cursor::default() };
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = after.find('\n').map_or(text.len(), |at| offset + at);
        let typed = &text[line_start..offset];
        let whole = Line::read(&text[line_start..line_end]);
        cursor.key = whole.as_ref().and_then(|line| line.key).map(str::to_owned);
        let line = Line::read(typed);
        if line.as_ref().is_some_and(|line| line.key.is_some()) {
            cursor.value_of.clone_from(&cursor.key);
        }
        // On an empty line the cursor itself is the indentation.
        let mut column = match &line {
            Some(line) => line.leave_items(line.column),
            None => typed.len(),
        };
        let above: Vec<&str> = text[start.min(line_start)..line_start].lines().collect();
        for line in above.iter().rev().filter_map(|line| Line::read(line)) {
            if line.column < column {
                if let Some(key) = line.key {
                    cursor.path.push(key.to_owned());
                }
                column = line.column;
            }
            column = line.leave_items(column);
        }
        cursor.path.reverse();
        cursor
    }
}

/// What may be at a place.
#[derive(Clone)]
enum Shape {
    /// Of the kinds that Kiln reads.
    Known(FieldType),
    /// Of Kubernetes' kinds.
    Builtin(&'static Type),
    BuiltinRoot(usize),
}

#[derive(Clone)]
struct FieldInfo {
    name: &'static str,
    holds: String,
    doc: &'static str,
    default: Option<&'static str>,
    example: Option<&'static str>,
    required: bool,
}

impl FieldInfo {
    fn into_value(self) -> Value {
        let mut fields = Map::from_iter([
            ("name", Value::from(self.name)),
            ("type", Value::from(self.holds)),
            ("doc", Value::from(self.doc)),
            ("required", Value::from(self.required)),
        ]);
        if let Some(default) = self.default {
            fields.insert("default", default);
        }
        if let Some(example) = self.example {
            fields.insert("example", example);
        }
        Value::from(fields)
    }
}

fn resolve(cursor: &Cursor, path: &[String]) -> Vec<Shape> {
    let of_kiln = kiln_fields::kinds().find(|kind| {
        let versions = kind.api_versions;
        kind.name == cursor.kind
            && (versions.is_empty()
                || versions.contains(&cursor.api_version.as_str())
                || cursor.api_version.is_empty())
    });
    let root = match of_kiln {
        Some(kind) => Some(Shape::Known(FieldType::Table(kind.table))),
        None => types().kind(&cursor.api_version, &cursor.kind).map(Shape::BuiltinRoot),
    };
    path.iter().fold(root.into_iter().collect(), |shapes: Vec<Shape>, key| {
        shapes.iter().flat_map(|shape| shape.step(key)).collect()
    })
}

/// Whether a kiln type can be walked into with a table.
fn tables_of(holds: &FieldType) -> Vec<&'static FieldTable> {
    match holds {
        // The keys of a map are the author's.
        FieldType::Map(_) => Vec::new(),
        other => other.tables(),
    }
}

impl Shape {
    fn fields(&self) -> Vec<FieldInfo> {
        match self {
            Shape::Known(holds) => tables_of(holds)
                .into_iter()
                .flat_map(|table| table.fields)
                .map(|field| FieldInfo {
                    name: field.name,
                    holds: type_words(&field.holds),
                    doc: field.doc,
                    default: field.default,
                    example: field.example,
                    required: field.is_required,
                })
                .collect(),
            Shape::Builtin(ty) => match inner(ty) {
                Type::Struct(id) => builtin_fields(*id),
                _ => Vec::new(),
            },
            Shape::BuiltinRoot(id) => builtin_fields(*id),
        }
    }

    fn step(&self, key: &str) -> Vec<Shape> {
        match self {
            Shape::Known(FieldType::Map(inner)) => vec![Shape::Known(**inner)],
            Shape::Known(holds) => {
                let found = tables_of(holds).into_iter().filter_map(|table| table.field(key));
                found.map(|field| Shape::Known(field.holds)).collect()
            }
            Shape::Builtin(ty) => match inner(ty) {
                Type::Struct(id) => builtin_field(*id, key),
                Type::Map(inner) => vec![Shape::Builtin(inner)],
                _ => Vec::new(),
            },
            Shape::BuiltinRoot(id) => builtin_field(*id, key),
        }
    }

    /// The values that a field can have, where they are few.
    fn values(&self, key: &str) -> Vec<Value> {
        let of = self.step(key);
        let words = of.iter().flat_map(|shape| match shape {
            Shape::Known(holds) => words_of(holds),
            Shape::Builtin(Type::Bool) => vec!["true", "false"],
            _ => Vec::new(),
        });
        words.map(Value::from).collect()
    }
}

fn words_of(holds: &FieldType) -> Vec<&'static str> {
    match holds {
        FieldType::Enum(words) => words.to_vec(),
        FieldType::Boolean => vec!["true", "false"],
        FieldType::List(inner) => words_of(inner),
        FieldType::Either(forms) => forms.iter().flat_map(words_of).collect(),
        _ => Vec::new(),
    }
}

fn inner(ty: &'static Type) -> &'static Type {
    match ty {
        Type::List(items) => inner(items),
        other => other,
    }
}

fn builtin_fields(id: usize) -> Vec<FieldInfo> {
    let fields = types().fields(id).into_iter();
    fields
        .map(|field| FieldInfo {
            name: field.name,
            holds: builtin_words(&field.ty),
            doc: "",
            default: None,
            example: None,
            required: field.required,
        })
        .collect()
}

fn builtin_field(id: usize, key: &str) -> Vec<Shape> {
    types().field(id, key).map(|field| Shape::Builtin(&field.ty)).into_iter().collect()
}

fn builtin_words(ty: &Type) -> String {
    match ty {
        Type::Struct(id) => types().get(*id).name.rsplit('.').next().unwrap_or_default().to_owned(),
        Type::List(items) => format!("list of {}", builtin_words(items)),
        Type::Map(_) => "map".to_owned(),
        Type::Bool => "boolean".to_owned(),
        Type::Int32 | Type::Int64 => "integer".to_owned(),
        Type::Double => "number".to_owned(),
        Type::Quantity => "quantity".to_owned(),
        Type::IntOrString => "integer or string".to_owned(),
        Type::Time | Type::MicroTime => "time".to_owned(),
        Type::Duration => "duration".to_owned(),
        Type::Bytes => "base64".to_owned(),
        Type::String => "string".to_owned(),
        Type::Raw | Type::Fields | Type::Json | Type::SchemaOr(_) => "any".to_owned(),
    }
}

fn type_words(holds: &FieldType) -> String {
    match holds {
        FieldType::String => "string".to_owned(),
        FieldType::Expression(language) => (*language).to_owned(),
        FieldType::Enum(words) => words.join(" | "),
        FieldType::Boolean => "boolean".to_owned(),
        FieldType::Integer => "integer".to_owned(),
        FieldType::Any => "any".to_owned(),
        FieldType::List(inner) => format!("list of {}", type_words(inner)),
        FieldType::Map(inner) => format!("map of {}", type_words(inner)),
        FieldType::Table(table) => table.title.to_owned(),
        FieldType::Tables(table) => format!("list of {}", table.title),
        FieldType::Either(forms) => forms.iter().map(type_words).collect::<Vec<_>>().join(" or "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cursor is at the bar.
    fn at(text: &str) -> (String, usize) {
        let offset = text.find('|').unwrap();
        (text.replacen('|', "", 1), text[..offset].encode_utf16().count())
    }

    fn names(text: &str) -> Vec<String> {
        let (text, offset) = at(text);
        let found = assist(&text, offset);
        let fields = found.get("fields").and_then(Value::as_list).unwrap();
        fields.iter().map(|field| field.str_at(["name"]).unwrap().to_owned()).collect()
    }

    const POLICY: &str =
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: ä\nspec:\n  rules:\n";

    #[test]
    fn fields_of_a_rule_are_offered_in_both_styles_of_lists() {
        for rule in ["  - name: a\n    |", "    - name: a\n      |", "  - |", "  - name: a\n    m|"]
        {
            let names = names(&format!("{POLICY}{rule}"));
            assert!(names.contains(&"preconditions".to_owned()), "{rule:?}: {names:?}");
        }
        let names = names(&format!(
            "{POLICY}  - name: a\n    match:\n      any:\n      - resources:\n          |"
        ));
        assert!(names.contains(&"kinds".to_owned()), "{names:?}");
    }

    #[test]
    fn fields_of_builtin_kinds_are_offered() {
        let names = names("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    |\n");
        assert!(names.contains(&"imagePullPolicy".to_owned()), "{names:?}");
    }

    #[test]
    fn another_document_has_another_kind() {
        let text = format!("{POLICY}---\napiVersion: v1\nkind: ConfigMap\n|");
        assert!(names(&text).contains(&"binaryData".to_owned()));
    }

    #[test]
    fn words_are_offered_as_values_and_fields_explained() {
        let (text, offset) = at(&format!("{POLICY}  - name: a\n    skipBackgroundRequests: |"));
        let found = assist(&text, offset);
        let values = found.get("values").and_then(Value::as_list).unwrap();
        assert_eq!(values.len(), 2, "{found:?}");
        let (text, offset) = at(&format!("{POLICY}  - name: a\n    precond|itions: {{}}"));
        let found = assist(&text, offset);
        assert!(found.str_at(["hover", "doc"]).is_some_and(|doc| !doc.is_empty()), "{found:?}");
    }

    #[test]
    fn nothing_breaks_anywhere_in_a_text() {
        let text = format!("{POLICY}  - - - a: b\n\t-x\n---\n :\n- : -\nä: 𝄞");
        for offset in 0..=text.encode_utf16().count() + 2 {
            assist(&text, offset);
        }
    }
}
