//! Where objects come from and what transformed them, as `buildMetadata` writes it.

use kiln_value::{Map, Value};

use crate::load::paths;
use crate::load::remote::Repository;

/// Where a build is, or where an object or a transformer comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) path: String,
    pub(crate) repository: String,
    pub(crate) reference: String,
    pub(crate) configured_in: String,
    pub(crate) configured_by: Option<ConfiguredBy>,
}

/// The object that configured a generator or transformer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredBy {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl Origin {
    /// The place one step further: a file or directory below, or a repository.
    pub(crate) fn join(&self, path: &str) -> Self {
        match Repository::parse(path) {
            Some(repository) => Origin {
                path: paths::join("", repository.path()),
                repository: repository.url(),
                reference: repository.reference().to_owned(),
                ..self.clone()
            },
            None => Origin { path: paths::join(&self.path, path), ..self.clone() },
        }
    }

    /// The origin of what a built-in generator or transformer in a kustomization file does.
    pub(crate) fn of_builtin(&self, kustomization: &str, kind: &str) -> Self {
        Origin {
            path: String::new(),
            repository: self.repository.clone(),
            reference: self.reference.clone(),
            configured_in: paths::join(&self.path, kustomization),
            configured_by: Some(ConfiguredBy {
                api_version: "builtin".to_owned(),
                kind: kind.to_owned(),
                ..ConfiguredBy::default()
            }),
        }
    }

    /// Reads what [`Origin::to_text`] wrote.
    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let map = value.as_map()?;
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let by = map.get("configuredBy").and_then(Value::as_map);
        Some(Origin {
            path: text(map.get("path")),
            repository: text(map.get("repo")),
            reference: text(map.get("ref")),
            configured_in: text(map.get("configuredIn")),
            configured_by: by.map(|by| ConfiguredBy {
                api_version: text(by.get("apiVersion")),
                kind: text(by.get("kind")),
                name: text(by.get("name")),
                namespace: text(by.get("namespace")),
            }),
        })
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                map.insert(key, text);
            }
        };
        put("path", &self.path);
        put("repo", &self.repository);
        put("ref", &self.reference);
        put("configuredIn", &self.configured_in);
        if let Some(by) = &self.configured_by {
            let mut inner = Map::new();
            for (key, text) in [
                ("apiVersion", &by.api_version),
                ("kind", &by.kind),
                ("name", &by.name),
                ("namespace", &by.namespace),
            ] {
                if !text.is_empty() {
                    inner.insert(key, text.as_str());
                }
            }
            map.insert("configuredBy", inner);
        }
        Value::Map(map)
    }

    /// The text of the annotation `config.kubernetes.io/origin`.
    pub(crate) fn to_text(&self) -> String {
        crate::model::output::emit_in_order(&self.to_value())
    }
}

/// The text of the annotation `alpha.config.kubernetes.io/transformations`.
pub(crate) fn transformations_text<'o>(steps: impl IntoIterator<Item = &'o Origin>) -> String {
    let list: Value = steps.into_iter().map(Origin::to_value).collect();
    crate::model::output::emit_in_order(&list)
}
