//! What the tables say about the originals is what their own definitions say: Kyverno's and KubeMod's
//! CustomResourceDefinitions, as recorded.

use kiln_fields::{DocumentKind, FieldTable, FieldType, kinds};
use kiln_testkit::corpus;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

/// Where a table is right about Kiln and says something else than the definition: what two kinds share.
fn may_differ(kind: &DocumentKind, path: &str) -> bool {
    // Which default a switch has is said of the switch, not of `enabled` in it.
    path.ends_with(".enabled")
        // The old form is rejected there with a message of its own.
        || kind.name == "PolicyException" && path.starts_with("spec.match.")
}

/// The tables of a type, and whether each is for the elements of a list.
fn forms(holds: &FieldType) -> Vec<(&'static FieldTable, bool)> {
    match holds {
        FieldType::Table(table) => vec![(table, false)],
        FieldType::Tables(table) => vec![(table, true)],
        FieldType::Either(all) => all.iter().flat_map(forms).collect(),
        _ => Vec::new(),
    }
}

struct Compare<'k> {
    kind: &'k DocumentKind,
    wrong: Vec<String>,
    compared: usize,
}

impl Compare<'_> {
    fn table(&mut self, table: &'static FieldTable, schemas: &[&Value], path: &str, depth: usize) {
        // What has no properties of its own says nothing.
        let typed: Vec<&Value> =
            schemas.iter().filter_map(|schema| schema.get("properties")).collect();
        if typed.is_empty() || depth > 12 {
            return;
        }
        for field in table.fields {
            let at = format!("{path}.{}", field.name);
            let found: Vec<&Value> = typed.iter().filter_map(|p| p.get(field.name)).collect();
            self.compared += 1;
            if field.in_original == found.is_empty() && !may_differ(self.kind, &at) {
                let says = if field.in_original { "has" } else { "lacks" };
                self.wrong.push(format!(
                    "{} {at}: the table says that the original {says} it",
                    self.kind.name
                ));
                continue;
            }
            for schema in &found {
                if let Some(default) = schema.get("default").filter(|_| !may_differ(self.kind, &at))
                {
                    let said = field.default.map(example);
                    if said.as_ref() != Some(default) {
                        self.wrong.push(format!(
                            "{} {at}: default {default:?}, not {said:?}",
                            self.kind.name
                        ));
                    }
                }
                if let (FieldType::Enum(words), Some(known)) = (&field.holds, schema.get("enum")) {
                    let known: Vec<&str> =
                        known.as_list().unwrap().iter().filter_map(Value::as_str).collect();
                    let more: Vec<_> = known
                        .iter()
                        .filter(|word| !words.contains(word) && !word.is_empty())
                        .collect();
                    if !more.is_empty() {
                        self.wrong.push(format!(
                            "{} {at}: the original also takes {more:?}",
                            self.kind.name
                        ));
                    }
                }
            }
            for (next, is_list) in forms(&field.holds) {
                let inner: Vec<&Value> = found
                    .iter()
                    .filter(|schema| schema.get("items").is_some() == is_list)
                    .map(|schema| schema.get("items").unwrap_or(schema))
                    .collect();
                self.table(next, &inner, &at, depth + 1);
            }
        }
        for properties in &typed {
            for name in properties.as_map().unwrap().keys() {
                let at = format!("{path}.{name}");
                if table.field(name).is_none() {
                    self.wrong.push(format!("{} {at}: only the original has it", self.kind.name));
                }
            }
        }
    }
}

fn example(text: &str) -> Value {
    read(text.as_bytes()).unwrap_or_default()
}

fn read(text: &[u8]) -> Option<Value> {
    let documents = read_bytes("text", text, ReadOptions::kubernetes()).unwrap();
    documents.into_iter().next().map(Document::into_value)
}

/// The file of a kind's definition, by the plural of its name.
fn file_of(kind: &DocumentKind) -> Option<String> {
    let group = kind.api_versions.first()?.split('/').next()?;
    let name = kind.name.to_lowercase();
    let plural = match name.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{name}s"),
    };
    Some(format!("{group}_{plural}.yaml"))
}

#[test]
fn the_tables_agree_with_the_definitions_of_the_originals() {
    let Some(folder) = corpus("crds") else { return };
    let (mut wrong, mut compared, mut definitions) = (Vec::new(), 0, 0);
    for kind in kinds() {
        let Some(file) = file_of(kind).map(|file| folder.join(file)).filter(|f| f.exists()) else {
            continue;
        };
        let definition = read(&std::fs::read(file).unwrap()).unwrap();
        let versions = definition.get_path(["spec", "versions"]).and_then(Value::as_list).unwrap();
        let schemas: Vec<&Value> = versions
            .iter()
            .filter_map(|version| version.get_path(["schema", "openAPIV3Schema"]))
            .collect();
        let mut compare = Compare { kind, wrong: Vec::new(), compared: 0 };
        // Metadata is the same everywhere, and no definition describes it.
        for field in kind.table.fields.iter().filter(|field| field.name == "spec") {
            let specs: Vec<&Value> = schemas
                .iter()
                .filter_map(|schema| schema.get_path(["properties", "spec"]))
                .collect();
            for table in field.holds.tables() {
                compare.table(table, &specs, "spec", 0);
            }
        }
        definitions += 1;
        compared += compare.compared;
        wrong.extend(compare.wrong);
    }
    wrong.sort();
    wrong.dedup();
    assert!(definitions >= 9, "only {definitions} definitions");
    assert!(compared > 1_000, "only {compared} fields");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
}
