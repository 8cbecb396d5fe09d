//! Old fields to new ones.

use kiln_value::{Key, Map, Value};

use super::{KustomizationFile, key_in};
use crate::error::{Error, Result};
use crate::load::kustomization::{
    COMPONENT, COMPONENT_VERSION, KUSTOMIZATION, KUSTOMIZATION_VERSION,
};

/// A field that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Its old name.
    pub from: &'static str,
    /// Its new name.
    pub to: &'static str,
}

/// What kustomize does whenever it reads a file to change it: kind, apiVersion, and fields whose new
/// name takes the same values.
pub(super) fn settle(value: &mut Value) {
    let text = |value: &Value, field: &str| {
        let found = value.get(&key_in(value, field)).and_then(Value::as_str);
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let kind = text(value, "kind");
    if text(value, "apiVersion").is_none() {
        let is_component = kind.as_deref() == Some(COMPONENT);
        put(
            value,
            "apiVersion",
            if is_component { COMPONENT_VERSION } else { KUSTOMIZATION_VERSION },
        );
    }
    if kind.is_none() {
        put(value, "kind", KUSTOMIZATION);
    }
    append(value, "bases", "resources");
    append(value, "imageTags", "images");
    for field in ["configMapGenerator", "secretGenerator"] {
        let key = key_in(value, field);
        let entries = value.get_mut(&key).and_then(Value::as_list_mut);
        for entry in entries.into_iter().flatten() {
            settle_env(entry);
        }
    }
    settle_charts(value);
}

fn put(value: &mut Value, field: &str, text: &str) {
    let key = key_in(value, field);
    if let Some(map) = value.as_map_mut() {
        map.insert(key, text);
    }
}

/// Appends the elements of one list to another.
fn append(value: &mut Value, old: &str, new: &str) {
    let (old, new) = (key_in(value, old), key_in(value, new));
    let Some(map) = value.as_map_mut() else { return };
    let Some(moved) = take(map, &old, &new) else { return };
    extend(map, &new, moved);
}

/// Takes a list out; if nothing stands under the new name, it goes there as it is, at its own place.
fn take(map: &mut Map, old: &Key, new: &Key) -> Option<Vec<Value>> {
    let list = match map.get(old)? {
        Value::List(list) => list.clone().into_vec(),
        _ => Vec::new(),
    };
    let has_new = map.get(new).is_some_and(|value| !value.is_null());
    if has_new || list.is_empty() || map.contains_key(new) {
        map.remove(old);
        return (!list.is_empty()).then_some(list);
    }
    let renamed = map
        .iter()
        .map(|(key, value)| (if key == old { new.clone() } else { key.clone() }, value.clone()))
        .collect();
    *map = renamed;
    None
}

fn extend(map: &mut Map, key: &Key, more: Vec<Value>) {
    let list = map.get_or_insert_with(key, Value::list);
    match list.as_list_mut() {
        Some(list) => list.extend(more),
        None => *list = Value::from(more),
    }
}

fn settle_env(entry: &mut Value) {
    let (env, envs) = (key_in(entry, "env"), key_in(entry, "envs"));
    let Some(map) = entry.as_map_mut() else { return };
    if env == envs {
        return;
    }
    match map.get(&env).cloned() {
        Some(Value::String(file)) if !file.is_empty() => {
            map.remove(&env);
            extend(map, &envs, vec![Value::String(file)]);
        }
        _ => {}
    }
}

/// The old fields of a chart and where they went.
const CHART_FIELDS: [(&str, &str); 7] = [
    ("chartName", "name"),
    ("chartRepoUrl", "repo"),
    ("chartVersion", "version"),
    ("releaseName", "releaseName"),
    ("values", "valuesFile"),
    ("valuesLocal", "valuesInline"),
    ("valuesMerge", "valuesMerge"),
];

fn settle_charts(value: &mut Value) {
    let old = key_in(value, "helmChartInflationGenerator");
    let Some(list) = value.get(&old).cloned() else { return };
    let mut globals = Map::new();
    let mut charts = Vec::new();
    for entry in list.as_list().into_iter().flat_map(|list| list.iter()) {
        let mut chart = Map::new();
        for (from, to) in CHART_FIELDS {
            if let Some(found) = entry.get(&key_in(entry, from)) {
                chart.insert(to, found.clone());
            }
        }
        for (from, to) in [("chartHome", "chartHome"), ("helmHome", "configHome")] {
            if let Some(found) = entry.get(&key_in(entry, from)) {
                globals.insert(to, found.clone());
            }
        }
        charts.push(Value::Map(chart));
    }
    let (new, all) = (key_in(value, "helmCharts"), key_in(value, "helmGlobals"));
    let Some(map) = value.as_map_mut() else { return };
    map.remove(&old);
    if !charts.is_empty() {
        extend(map, &new, charts);
    }
    if !globals.is_empty() && map.get(&all).is_none_or(Value::is_null) {
        map.insert(all, globals);
    }
}

impl KustomizationFile {
    /// Moves every old field but `vars` to its successor. `is_file` tells patches that are paths from
    /// patches that are text.
    ///
    /// # Errors
    /// When a label stands in both `commonLabels` and `labels`.
    pub fn fix(&mut self, is_file: &dyn Fn(&str) -> bool) -> Result<Vec<Fixed>> {
        let mut fixed = Vec::new();
        for (from, to) in [
            ("bases", "resources"),
            ("imageTags", "images"),
            ("helmChartInflationGenerator", "helmCharts"),
        ] {
            if self.was.get(&key_in(&self.was, from)).is_some() {
                fixed.push(Fixed { from, to });
            }
        }
        if self.field("patchesJson6902").is_some() {
            append(&mut self.value, "patchesJson6902", "patches");
            fixed.push(Fixed { from: "patchesJson6902", to: "patches" });
        }
        if self.field("patchesStrategicMerge").is_some() {
            let patches: Vec<Value> = self
                .list("patchesStrategicMerge")
                .iter()
                .map(|patch| {
                    let is_path = patch.as_str().is_some_and(is_file);
                    let field = if is_path { "path" } else { "patch" };
                    Value::Map([(field, patch.clone())].into_iter().collect())
                })
                .collect();
            self.remove_field("patchesStrategicMerge");
            self.list_mut("patches").extend(patches);
            self.drop_if_empty("patches");
            fixed.push(Fixed { from: "patchesStrategicMerge", to: "patches" });
        }
        if self.field("commonLabels").is_some() {
            self.fix_common_labels()?;
            fixed.push(Fixed { from: "commonLabels", to: "labels" });
        }
        // Kind, apiVersion and new names count here, even if nothing else is changed.
        self.settled = self.was.clone();
        Ok(fixed)
    }

    fn fix_common_labels(&mut self) -> Result<()> {
        let common = self.map_mut("commonLabels").clone();
        for entry in self.list("labels") {
            let pairs = entry.get(&key_in(entry, "pairs")).and_then(Value::as_map);
            let twice = pairs.into_iter().flat_map(Map::keys).find(|key| common.contains_key(key));
            if let Some(key) = twice {
                return Err(Error::new(format!(
                    "label name '{key}' exists in both commonLabels and labels"
                ))
                .hint("remove one of them"));
            }
        }
        self.remove_field("commonLabels");
        if !common.is_empty() {
            let mut entry = Map::new();
            entry.insert("includeSelectors", true);
            entry.insert("pairs", common);
            self.list_mut("labels").push(Value::Map(entry));
        }
        Ok(())
    }
}
