//! Which fields of kustomizations and of built-in plugins are paths.

use kiln_value::{Map, Value};

use super::{CopiedKustomization, Copy};
use crate::edit::key_in;
use crate::error::{Context, Result};

/// What a text is the path of.
#[derive(Clone, Copy)]
enum Is {
    File,
    FileSource,
    Kustomization,
    Resource,
    /// An object, or a file with one.
    Object,
    Plugin,
}

/// Fields that are lists of texts.
const LISTS: [(&str, Is); 9] = [
    ("bases", Is::Kustomization),
    ("components", Is::Kustomization),
    ("configurations", Is::File),
    ("crds", Is::File),
    ("resources", Is::Resource),
    ("patchesStrategicMerge", Is::Object),
    ("generators", Is::Plugin),
    ("transformers", Is::Plugin),
    ("validators", Is::Plugin),
];

/// Fields that are lists of maps, and the fields of these.
const ENTRIES: [(&str, &[(&str, Is)]); 7] = [
    ("configMapGenerator", GENERATOR),
    ("secretGenerator", GENERATOR),
    ("patches", &[("path", Is::File)]),
    ("patchesJson6902", &[("path", Is::File)]),
    ("replacements", &[("path", Is::File)]),
    ("helmCharts", &[("valuesFile", Is::File), ("additionalValuesFiles", Is::File)]),
    ("helmChartInflationGenerator", &[("values", Is::File)]),
];

const GENERATOR: &[(&str, Is)] =
    &[("env", Is::File), ("envs", Is::File), ("files", Is::FileSource)];

/// Built-in plugins and their fields.
const PLUGINS: [(&str, &[(&str, Is)]); 6] = [
    ("ConfigMapGenerator", GENERATOR),
    ("SecretGenerator", GENERATOR),
    (
        "HelmChartInflationGenerator",
        &[("valuesFile", Is::File), ("additionalValuesFiles", Is::File)],
    ),
    ("PatchTransformer", &[("path", Is::File)]),
    ("PatchJson6902Transformer", &[("path", Is::File)]),
    ("PatchStrategicMergeTransformer", &[("paths", Is::Object)]),
];

impl Copy<'_, '_> {
    /// Copies what the fields of a kustomization name, and makes their paths lead there.
    pub(super) fn fields(&mut self, at: &CopiedKustomization, value: &mut Value) -> Result<()> {
        let schema = key_in(value, "openapi");
        if let Some(Value::Map(openapi)) = value.get_mut(&schema) {
            self.text(at, openapi, "path", Is::File).context("unable to localize openapi path")?;
        }
        for (field, is) in LISTS {
            let key = key_in(value, field);
            let Some(Value::Map(map)) = Some(&mut *value) else { return Ok(()) };
            self.text(at, map, &key, is)
                .context(format_args!("unable to localize {field} entry"))?;
        }
        for (field, inner) in ENTRIES {
            let key = key_in(value, field);
            let Some(Value::List(list)) = value.get_mut(&key) else { continue };
            for entry in list.make_mut() {
                let Value::Map(entry) = entry else { continue };
                for (name, is) in inner {
                    self.text(at, entry, name, *is)
                        .context(format_args!("unable to localize {field}"))?;
                }
                if field == "helmChartInflationGenerator" {
                    self.chart_home(at, entry)?;
                }
            }
        }
        let globals = key_in(value, "helmGlobals");
        let has_charts = value.get(&key_in(value, "helmCharts")).is_some();
        match value.get_mut(&globals) {
            Some(Value::Map(globals)) => self.chart_home(at, globals),
            _ if has_charts => self.charts(at, "").map(drop),
            _ => Ok(()),
        }
    }

    /// The same for the configuration of a built-in plugin.
    pub(super) fn plugin_fields(
        &mut self,
        at: &CopiedKustomization,
        value: &mut Value,
    ) -> Result<()> {
        if value.get("apiVersion").and_then(Value::as_str) != Some("builtin") {
            return Ok(());
        }
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Value::Map(map) = value else { return Ok(()) };
        let fields = PLUGINS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, f)| f);
        for (name, is) in fields {
            self.text(at, map, name, *is).context(format_args!("plugin {kind}"))?;
        }
        if kind == "HelmChartInflationGenerator" {
            self.chart_home(at, map)?;
        }
        if kind == "ReplacementTransformer"
            && let Some(Value::List(list)) = map.get_mut("replacements")
        {
            for entry in list.make_mut() {
                if let Value::Map(entry) = entry {
                    self.text(at, entry, "path", Is::File)?;
                }
            }
        }
        Ok(())
    }

    fn chart_home(&mut self, at: &CopiedKustomization, map: &mut Map) -> Result<()> {
        let home = map.get("chartHome").and_then(Value::as_str).unwrap_or_default().to_owned();
        let copied = self.charts(at, &home).context("unable to copy the chart home")?;
        if !copied.is_empty() && copied != home {
            map.insert("chartHome", copied);
        }
        Ok(())
    }

    /// Copies what a text, or a list of texts, names.
    fn text(&mut self, at: &CopiedKustomization, map: &mut Map, field: &str, is: Is) -> Result<()> {
        let Some(value) = map.get(field).cloned() else { return Ok(()) };
        let copied = match &value {
            Value::String(text) => Value::from(self.one(at, text, is)?),
            Value::List(list) => {
                let mut copied = Vec::with_capacity(list.len());
                for element in list {
                    copied.push(match element {
                        Value::String(text) => Value::from(self.one(at, text, is)?),
                        other => other.clone(),
                    });
                }
                Value::from(copied)
            }
            _ => return Ok(()),
        };
        if copied != value {
            map.insert(field, copied);
        }
        Ok(())
    }

    fn one(&mut self, at: &CopiedKustomization, text: &str, is: Is) -> Result<String> {
        match is {
            Is::File => self.file(at, text),
            Is::FileSource => self.file_source(at, text),
            Is::Kustomization => self.root(at, text),
            Is::Resource => self.resource(at, text),
            Is::Object => self.inline_or_file(at, text),
            Is::Plugin => self.plugin(at, text),
        }
    }
}
