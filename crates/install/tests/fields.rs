//! The definitions that Kiln installs have the fields of the tables, with their types and defaults.

use kiln_fields::{FieldTable, FieldType, kinds};
use kiln_install::definitions;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

fn example(text: &str) -> Option<Value> {
    let documents = read_bytes("default", text.as_bytes(), ReadOptions::kubernetes()).ok()?;
    documents.into_iter().next().map(Document::into_value)
}

fn type_of(holds: &FieldType) -> &'static str {
    match holds {
        FieldType::String | FieldType::Expression(_) | FieldType::Enum(_) => "string",
        FieldType::Boolean => "boolean",
        FieldType::Integer => "integer",
        FieldType::List(_) | FieldType::Tables(_) => "array",
        FieldType::Map(_) | FieldType::Table(_) => "object",
        FieldType::Any | FieldType::Either(_) => "",
    }
}

fn compare(
    table: &'static FieldTable,
    schema: &Value,
    path: &str,
    wrong: &mut Vec<String>,
) -> usize {
    let Some(properties) = schema.get("properties").and_then(Value::as_map) else { return 0 };
    let mut compared = 0;
    for (name, property) in properties {
        let at = format!("{path}.{name}");
        let Some(field) = table.field(name) else {
            wrong.push(format!("{at}: the tables lack it"));
            continue;
        };
        compared += 1;
        let (said, wanted) = (property.str_at(["type"]).unwrap_or_default(), type_of(&field.holds));
        if !said.is_empty() && !wanted.is_empty() && said != wanted {
            wrong.push(format!("{at}: {said} in the definition, {wanted} in the table"));
        }
        if let Some(default) = property.get("default")
            && field.default.and_then(example).as_ref() != Some(default)
        {
            wrong.push(format!("{at}: default {default:?}, in the table {:?}", field.default));
        }
        for next in field.holds.tables() {
            compared += compare(next, property.get("items").unwrap_or(property), &at, wrong);
        }
    }
    compared
}

#[test]
fn the_definitions_have_the_fields_of_the_tables() {
    let (mut wrong, mut compared, mut seen) = (Vec::new(), 0, 0);
    for definition in definitions() {
        let group = definition.str_at(["spec", "group"]).unwrap();
        let name = definition.str_at(["spec", "names", "kind"]).unwrap();
        let of_group = |version: &&str| version.split('/').next() == Some(group);
        let Some(kind) =
            kinds().find(|kind| kind.name == name && kind.api_versions.iter().any(of_group))
        else {
            continue;
        };
        seen += 1;
        for version in definition.get_path(["spec", "versions"]).and_then(Value::as_list).unwrap() {
            let written = format!("{group}/{}", version.str_at(["name"]).unwrap());
            assert!(kind.api_versions.contains(&written.as_str()), "{name} lacks {written}");
            let schema = version.get_path(["schema", "openAPIV3Schema"]).unwrap();
            for (part, schema) in schema.get("properties").and_then(Value::as_map).unwrap() {
                let tables =
                    kind.table.field(part).map(|field| field.holds.tables()).unwrap_or_default();
                for table in tables {
                    compared += compare(table, schema, &format!("{name} {part}"), &mut wrong);
                }
            }
        }
    }
    assert!(seen >= 10, "only {seen} definitions");
    assert!(compared > 200, "only {compared} fields");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
