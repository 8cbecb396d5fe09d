//! Tables: what `kubectl get` prints, made by the server.

mod cells;
mod small_tables;

use kiln_value::{Map, Value, json};

use crate::read::metadata_only;
use crate::request::paths::RequestTarget;
use crate::server::ServerState;

const COLUMNS: &str = include_str!("columns.txt");

/// A column of a table.
struct Column {
    name: String,
    ty: String,
    format: &'static str,
    priority: i64,
    description: String,
    /// Of a custom kind: where the value stands.
    path: Option<String>,
}

/// A column of a built-in kind, as the table writes it.
fn column(text: &str) -> Column {
    let wide = text.ends_with('*');
    let text = text.trim_end_matches('*');
    let named = text.ends_with('!');
    let text = text.trim_end_matches('!');
    let (name, ty) = text.split_once(':').unwrap_or((text, "string"));
    Column {
        name: name.to_owned(),
        ty: ty.to_owned(),
        format: if named { "name" } else { "" },
        priority: i64::from(wide),
        description: String::new(),
        path: None,
    }
}

fn columns(state: &ServerState, target: &RequestTarget) -> Vec<Column> {
    let gvk = target.kind.gvk();
    if let Some(custom) = state.customs.get(&gvk) {
        let mut all = vec![column("Name!")];
        for given in &custom.columns {
            let text = |field: &str| given.str_at([field]).unwrap_or_default().to_owned();
            let path = text("jsonPath");
            let description = match text("description").as_str() {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                given => given.to_owned(),
            };
            all.push(Column {
                name: text("name"),
                ty: text("type"),
                format: "",
                priority: given.get("priority").and_then(Value::as_i64).unwrap_or(0),
                description,
                path: Some(path),
            });
        }
        if custom.columns.is_empty() {
            let path = ".metadata.creationTimestamp".to_owned();
            all.push(Column { ty: "date".to_owned(), path: Some(path), ..column("Age") });
        }
        return all;
    }
    // Versions of a kind look alike.
    let exact = format!("{} {} | ", gvk.api_version(), gvk.kind);
    let any = format!(" {} | ", gvk.kind);
    let group = if gvk.group.is_empty() { String::new() } else { format!("{}/", gvk.group) };
    let line = COLUMNS.lines().find_map(|line| line.strip_prefix(exact.as_str())).or_else(|| {
        let same = |line: &&str| line.contains(&any) && line.starts_with(group.as_str());
        COLUMNS
            .lines()
            .find(same)
            .and_then(|line| line.split_once(" | "))
            .map(|(_, columns)| columns)
    });
    line.unwrap_or("Name!, Created At:date").split(", ").map(column).collect()
}

/// A table of objects, in the version that was asked for.
pub(crate) fn table(
    state: &ServerState,
    target: &RequestTarget,
    objects: &[Value],
    metadata: Map,
    include: &str,
    now: i64,
) -> Value {
    let columns = columns(state, target);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns
                .iter()
                .map(|column| match &column.path {
                    Some(path) => custom_cell(object, path, &column.ty, now),
                    None => cells::cell(target.kind.kind(), &column.name, object, now),
                })
                .collect();
            let shown = match include {
                "None" => Value::Null,
                "Object" => object.clone(),
                _ => metadata_only(object),
            };
            let mut row = Map::new();
            row.insert("cells", cells);
            row.insert("object", shown);
            Value::Map(row)
        })
        .collect();
    build(&columns, metadata, rows)
}

fn build(columns: &[Column], metadata: Map, rows: Vec<Value>) -> Value {
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            let mut definition = Map::new();
            definition.insert("name", column.name.as_str());
            definition.insert("type", column.ty.as_str());
            definition.insert("format", column.format);
            definition.insert("description", column.description.as_str());
            definition.insert("priority", column.priority);
            Value::Map(definition)
        })
        .collect();
    let mut table = Map::new();
    table.insert("kind", "Table");
    table.insert("apiVersion", "meta.k8s.io/v1");
    table.insert("metadata", Value::Map(metadata));
    table.insert("columnDefinitions", definitions);
    table.insert("rows", rows);
    Value::Map(table)
}

/// The table of a scale.
pub(crate) fn scale(scale: &Value, now: i64) -> Value {
    let columns: Vec<Column> =
        ["Name!", "Desired:integer", "Available:integer", "Age"].map(column).into();
    let number =
        |path: [&'static str; 2]| scale.get_path(path).and_then(Value::as_i64).unwrap_or(0);
    let cells = vec![
        scale.get_path(["metadata", "name"]).cloned().unwrap_or_default(),
        Value::from(number(["spec", "replicas"])),
        Value::from(number(["status", "replicas"])),
        Value::from(cells::age(scale.str_at(["metadata", "creationTimestamp"]), now)),
    ];
    let mut row = Map::new();
    row.insert("cells", cells);
    row.insert("object", metadata_only(scale));
    build(&columns, Map::new(), vec![Value::Map(row)])
}

/// The cell of a custom column: what stands at a path.
fn custom_cell(object: &Value, path: &str, ty: &str, now: i64) -> Value {
    let found = find(object, path);
    match (ty, found) {
        ("date", Some(Value::String(text))) => Value::from(cells::age(Some(&text), now)),
        (_, None | Some(Value::Null)) => Value::Null,
        ("integer" | "number" | "boolean", Some(value)) => value,
        (_, Some(text @ Value::String(_))) => text,
        (_, Some(other)) => Value::from(json::to_string(&other)),
    }
}

/// What stands at a simple JSONPath: fields, indices, `[*]` and filters by equality.
fn find(object: &Value, path: &str) -> Option<Value> {
    let mut found = vec![object.clone()];
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (inner, after) = inside.split_once(']')?;
            rest = after;
            found = found.iter().flat_map(|value| select(value, inner)).collect();
        } else {
            let name_start = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = name_start.len();
            let mut escaped = false;
            for (at, c) in name_start.char_indices() {
                match c {
                    '\\' => escaped = true,
                    '.' | '[' if !escaped => {
                        end = at;
                        break;
                    }
                    _ => escaped = false,
                }
            }
            let name = name_start[..end].replace('\\', "");
            rest = &name_start[end..];
            if name.is_empty() {
                return None;
            }
            found = found.iter().filter_map(|value| value.get(&name).cloned()).collect();
        }
        if found.len() > 10_000 {
            return None;
        }
    }
    match found.len() {
        0 => None,
        1 => found.pop(),
        _ => {
            let texts: Vec<String> = found
                .iter()
                .map(|value| value.as_str().map_or_else(|| json::to_string(value), str::to_owned))
                .collect();
            Some(Value::from(texts.join(" ")))
        }
    }
}

fn select(value: &Value, inner: &str) -> Vec<Value> {
    if inner == "*" {
        return match value {
            Value::List(list) => list.to_vec(),
            Value::Map(map) => map.values().cloned().collect(),
            _ => Vec::new(),
        };
    }
    if let Ok(index) = inner.parse::<i64>() {
        let Some(list) = value.as_list() else { return Vec::new() };
        let length = i64::try_from(list.len()).unwrap_or(0);
        let at = if index < 0 { length + index } else { index };
        return usize::try_from(at).ok().and_then(|at| list.get(at)).cloned().into_iter().collect();
    }
    if let Some(condition) = inner.strip_prefix("?(@.").and_then(|inner| inner.strip_suffix(')'))
        && let Some((field, wanted)) = condition.split_once("==")
    {
        let wanted = wanted.trim().trim_matches(['"', '\'']);
        let list = value.as_list().map(|list| list.to_vec()).unwrap_or_default();
        return list
            .into_iter()
            .filter(|item| item.str_at(field.trim().split('.')) == Some(wanted))
            .collect();
    }
    let name = inner.trim_matches(['"', '\'']);
    value.get(name).cloned().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn paths_of_columns_are_followed() {
        let object = value!({"spec": {"a": 1, "list": [{"n": "x", "v": "1"}, {"n": "y", "v": "2"}]},
            "metadata": {"annotations": {"a.b/c": "d"}}});
        assert_eq!(find(&object, ".spec.a"), Some(value!(1)));
        assert_eq!(find(&object, ".spec.list[1].v"), Some(value!("2")));
        assert_eq!(find(&object, ".spec.list[*].v"), Some(value!("1 2")));
        assert_eq!(find(&object, ".spec.list[?(@.n==\"y\")].v"), Some(value!("2")));
        assert_eq!(find(&object, r".metadata.annotations.a\.b/c"), Some(value!("d")));
        assert_eq!(find(&object, ".metadata.annotations['a.b/c']"), Some(value!("d")));
        assert_eq!(find(&object, ".spec.none"), None);
    }
}
