//! How values are merged: those of a file over others, and those of a user over those of a chart and its subcharts.
//!
//! To *coalesce* removes what a user sets to null; to *merge* keeps nulls, for values that are coalesced later.

use kiln_value::{Map, Number, Value};
use kiln_yaml::ReadOptions;

use crate::error::{ChartError, Result};
use crate::load::{Chart, yaml_error};
use crate::options::HelmVersion;

pub(crate) const GLOBAL: &str = "global";

/// The values of a file.
///
/// # Errors
/// When it is not a YAML map.
pub fn read_values(name: &str, text: &[u8], helm: HelmVersion) -> Result<Map> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let documents = kiln_yaml::read_bytes(name, text, ReadOptions::kustomization())
        .map_err(|problem| yaml_error(&problem))?;
    let mut values = Map::new();
    let count = if helm.all_value_documents { documents.len() } else { 1 };
    for document in documents.into_iter().take(count) {
        match document.value() {
            Value::Null => {}
            Value::Map(map) => merge_values(&mut values, &with_floats(map)),
            other => {
                let kind = match other {
                    Value::List(_) => "array",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    _ => "number",
                };
                let helm = format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
                );
                let message = format!("values must be a map, not a {}", other.type_name());
                let diagnostic = kiln_diagnostic::Diagnostic::error(message).at(document.place());
                return Err(ChartError::placed(diagnostic, helm));
            }
        }
    }
    Ok(values)
}

/// Go reads every number of a YAML file as `float64`; those of a command line are integers.
fn with_floats(map: &Map) -> Map {
    fn floats(value: &Value) -> Value {
        match value {
            Value::Number(number) => Value::Number(Number::Float(number.as_f64())),
            Value::List(list) => list.iter().map(floats).collect(),
            Value::Map(map) => Value::Map(with_floats(map)),
            other => other.clone(),
        }
    }
    Map::from_unique(map.iter().map(|(key, value)| (key.clone(), floats(value))).collect())
}

/// One over the other, map by map: how several files of values become one.
pub fn merge_values(below: &mut Map, above: &Map) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Map(inner)), Value::Map(over)) => merge_values(inner, over),
            _ => drop(below.insert(key.clone(), value.clone())),
        }
    }
}

/// Whether nulls stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    Remove,
    Keep,
}

/// Merges values of a chart and its subcharts, and collects what is left out.
pub(crate) struct Merger<'w> {
    pub(crate) helm: HelmVersion,
    pub(crate) warnings: &'w mut Vec<String>,
}

impl Merger<'_> {
    fn warn(&mut self, message: String) {
        if !self.warnings.contains(&message) {
            self.warnings.push(message);
        }
    }

    /// What a user says over what the chart and its subcharts say.
    pub(crate) fn all(&mut self, chart: &Chart, given: &Map, nulls: Nulls) -> Result<Map> {
        let mut values = given.clone();
        self.coalesce(chart, &mut values, "", nulls)?;
        Ok(values)
    }

    fn coalesce(
        &mut self,
        chart: &Chart,
        values: &mut Map,
        prefix: &str,
        nulls: Nulls,
    ) -> Result<()> {
        let path = joined(prefix, chart.name());
        self.own_values(chart, values, &path, nulls);
        for subchart in &chart.subcharts {
            let name = subchart.name();
            let mut inner = match values.get(name) {
                None => Map::new(),
                Some(Value::Map(inner)) => inner.clone(),
                Some(other) => {
                    let message = format!("type mismatch on {name}: {}", as_truth(other));
                    return Err(ChartError::new(message).hint(format!(
                        "the values under {name:?} are those of a subchart: write a map"
                    )));
                }
            };
            self.globals(&mut inner, values, &path);
            self.coalesce(subchart, &mut inner, &path, nulls)?;
            share_globals(values, &inner);
            values.insert(name, inner);
        }
        Ok(())
    }

    /// The values of the chart below those that were given.
    fn own_values(&mut self, chart: &Chart, values: &mut Map, path: &str, nulls: Nulls) {
        for (key, own) in &chart.values {
            let is_subchart =
                chart.subcharts.iter().any(|subchart| subchart.name() == key.as_str());
            match values.get_mut(key) {
                Some(Value::Null) if nulls == Nulls::Remove => drop(values.remove(key)),
                Some(Value::Map(given)) => match own {
                    Value::Map(own) => {
                        let nulls = if is_subchart { Nulls::Keep } else { nulls };
                        let mut own = own.clone();
                        if self.helm.clean_default_nulls && nulls == Nulls::Remove {
                            remove_nulls(&mut own);
                        }
                        let mut given = std::mem::take(given);
                        self.tables(&mut given, &own, &joined(path, key), nulls);
                        values.insert(key.clone(), given);
                    }
                    Value::Null => {}
                    _ => self.warn(format!("skipped value for {path}.{key}: Not a table.")),
                },
                Some(_) => {}
                None => {
                    let mut own = own.clone();
                    if self.helm.clean_default_nulls && nulls == Nulls::Remove {
                        match &mut own {
                            Value::Null => continue,
                            Value::Map(map) => remove_nulls(map),
                            _ => {}
                        }
                    }
                    values.insert(key.clone(), own);
                }
            }
        }
    }

    /// The globals of a chart over those of its subchart.
    fn globals(&mut self, inner: &mut Map, outer: &Map, path: &str) {
        let mut own = match inner.get(GLOBAL) {
            None => Map::new(),
            Some(Value::Map(own)) => own.clone(),
            Some(_) => {
                self.warn(format!("skipping globals because destination {GLOBAL} is not a table."));
                return;
            }
        };
        let given = match outer.get(GLOBAL) {
            None => Map::new(),
            Some(Value::Map(given)) => given.clone(),
            Some(_) => {
                self.warn(format!("skipping globals because source {GLOBAL} is not a table."));
                return;
            }
        };
        for (key, value) in &given {
            match (value, own.get(key)) {
                (Value::Map(table), None) => drop(own.insert(key.clone(), table.clone())),
                (Value::Map(table), Some(Value::Map(below))) => {
                    let (mut table, below) = (table.clone(), below.clone());
                    self.tables(&mut table, &below, &joined(path, key), Nulls::Keep);
                    own.insert(key.clone(), table);
                }
                (Value::Map(_), Some(_)) => {
                    self.warn(format!("cannot merge map onto non-map for key {key:?}. Skipping."));
                }
                (_, Some(Value::Map(_))) => self.warn(format!("key {key} is table. Skipping")),
                _ => drop(own.insert(key.clone(), value.clone())),
            }
        }
        inner.insert(GLOBAL, own);
    }

    /// One map over another.
    pub(crate) fn tables(&mut self, above: &mut Map, below: &Map, path: &str, nulls: Nulls) {
        for (key, value) in below {
            let full = || joined(path, key);
            match (above.get_mut(key), value) {
                (None, value) => drop(above.insert(key.clone(), value.clone())),
                (Some(Value::Null), value) if nulls == Nulls::Remove && !value.is_null() => {
                    above.remove(key);
                }
                (Some(Value::Null), _) => {}
                (Some(Value::Map(inner)), Value::Map(value)) => {
                    let full = full();
                    let mut taken = std::mem::take(inner);
                    self.tables(&mut taken, value, &full, nulls);
                    above.insert(key.clone(), taken);
                }
                (Some(_), Value::Map(_)) => {
                    let message = format!("cannot overwrite table with non table for {}", full());
                    self.warn(message);
                }
                (Some(Value::Map(_)), value) if !value.is_null() => {
                    let message = format!(
                        "destination for {} is a table. Ignoring non-table value ({})",
                        full(),
                        go_text(value)
                    );
                    self.warn(message);
                }
                _ => {}
            }
        }
    }
}

/// Helm copies the globals of a parent one level deep: what a subchart adds further in, the parent gets, too.
fn share_globals(parent: &mut Map, subchart: &Map) {
    let Some(Value::Map(merged)) = subchart.get(GLOBAL) else { return };
    let Some(Value::Map(globals)) = parent.get_mut(GLOBAL) else { return };
    for (key, table) in globals.iter_mut() {
        let (Value::Map(table), Some(Value::Map(merged))) = (table, merged.get(key)) else {
            continue;
        };
        for (key, inner) in table.iter_mut() {
            if let (Value::Map(_), Some(merged @ Value::Map(_))) = (&*inner, merged.get(key)) {
                *inner = merged.clone();
            }
        }
    }
}

fn remove_nulls(map: &mut Map) {
    map.retain(|_, value| {
        if let Value::Map(inner) = value {
            remove_nulls(inner);
        }
        !value.is_null()
    });
}

fn joined(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.as_str().to_owned(),
        Value::Number(number) => kiln_text::float::print(number.as_f64()),
        Value::List(list) => {
            format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" "))
        }
        Value::Map(map) => {
            let mut entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            entries.sort();
            format!("map[{}]", entries.join(" "))
        }
        Value::Bool(truth) => truth.to_string(),
    }
}

/// Go's `%t` of a value.
fn as_truth(value: &Value) -> String {
    match value {
        Value::Bool(truth) => truth.to_string(),
        Value::Null => "%!t(<nil>)".to_owned(),
        Value::String(text) => format!("%!t(string={text})"),
        Value::Number(_) => format!("%!t(float64={})", go_text(value)),
        Value::List(list) => {
            format!("[{}]", list.iter().map(as_truth).collect::<Vec<_>>().join(" "))
        }
        Value::Map(_) => format!("%!t({})", go_text(value)),
    }
}

/// The map under keys with dots between them.
pub(crate) fn table<'v>(values: &'v Map, path: &str) -> Option<&'v Map> {
    path.split('.').try_fold(values, |table, key| table.get(key)?.as_map())
}

/// What lies under keys with dots between them, unless it is a map.
pub(crate) fn path_value<'v>(values: &'v Map, path: &str) -> Option<&'v Value> {
    let (within, key) = match path.rsplit_once('.') {
        Some((tables, key)) => (table(values, tables)?, key),
        None => (values, path),
    };
    within.get(key).filter(|value| value.as_map().is_none())
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn tables(above: &Value, below: &Value, nulls: Nulls) -> (Value, Vec<String>) {
        let mut above = above.as_map().unwrap().clone();
        let mut warnings = Vec::new();
        let mut merger = Merger { helm: HelmVersion::V3, warnings: &mut warnings };
        merger.tables(&mut above, below.as_map().unwrap(), "", nulls);
        (Value::Map(above), warnings)
    }

    #[test]
    fn a_null_of_the_user_removes_a_default() {
        let (above, below) = (
            value!({"a": null, "b": null, "c": {"d": null}}),
            value!({"a": 1, "c": {"d": 2, "e": 3}}),
        );
        let (merged, _) = tables(&above, &below, Nulls::Remove);
        assert_eq!(merged, value!({"b": null, "c": {"e": 3}}));
        let (merged, _) = tables(&above, &below, Nulls::Keep);
        assert_eq!(merged, value!({"a": null, "b": null, "c": {"d": null, "e": 3}}));
    }

    #[test]
    fn tables_and_scalars_do_not_replace_each_other() {
        let (merged, warnings) =
            tables(&value!({"a": 1, "b": {}}), &value!({"a": {}, "b": 2}), Nulls::Remove);
        assert_eq!(merged, value!({"a": 1, "b": {}}));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }

    #[test]
    fn paths_lead_through_maps() {
        let values = value!({"a": {"b": 1, "c": {"d": true}}});
        let values = values.as_map().unwrap();
        assert_eq!(path_value(values, "a.c.d"), Some(&value!(true)));
        assert_eq!(path_value(values, "a.c"), None);
        assert_eq!(path_value(values, "a.x.d"), None);
        assert_eq!(table(values, "a.c"), value!({"d": true}).as_map());
    }
}
