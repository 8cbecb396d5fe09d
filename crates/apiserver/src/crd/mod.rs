//! Custom kinds: what a CustomResourceDefinition says, ready for use.
//!
//! | module | does |
//! |---|---|
//! | `definition` | checks a schema itself |
//! | `names` | decides which names a kind gets |
//! | `schema` | takes unknown fields away, fills defaults in |
//! | `validate` | checks objects against their schema |
//! | `rules` | checks objects against the CEL rules of their schema |
//! | `shape` | tells apply what it must know |

mod definition;
pub(crate) mod names;
mod rules;
mod schema;
mod shape;
mod validate;

use std::collections::HashMap;
use std::sync::Arc;

use kiln_object::Gvk;
use kiln_value::{Str, Value};

use crate::status::{FieldProblem, FieldProblemKind};

pub(crate) use definition::schema_problems;
pub(crate) use schema::{fill_defaults, prune};
pub(crate) use shape::SchemaShape;
pub(crate) use validate::problems_of;

/// One version of a custom kind.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// `openAPIV3Schema`; none when there is none.
    pub(crate) schema: Option<Value>,
    pub(crate) preserves: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Value>,
    pub(crate) selectable: Vec<Str>,
    pub(crate) rules: rules::SchemaRules,
    pub(crate) warning: Option<String>,
}

/// Where the scale of an object stands.
#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// All custom kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Customs(HashMap<Gvk, Arc<CustomVersion>>);

impl Customs {
    pub(crate) fn get(&self, gvk: &Gvk) -> Option<&Arc<CustomVersion>> {
        self.0.get(gvk)
    }

    /// Reads a definition anew.
    pub(crate) fn set(&mut self, definition: &Value) {
        let text = |path: &[&str]| definition.str_at(path.iter().copied()).unwrap_or_default();
        let (group, kind) = (text(&["spec", "group"]), text(&["spec", "names", "kind"]));
        self.remove(group, kind);
        let preserves =
            definition.get_path(["spec", "preserveUnknownFields"]).and_then(Value::as_bool);
        let versions = definition.get_path(["spec", "versions"]).and_then(Value::as_list);
        for version in versions.into_iter().flat_map(|versions| versions.iter()) {
            let name = version.str_at(["name"]).unwrap_or_default();
            let gvk = Gvk::new(&format!("{group}/{name}"), kind);
            let read = read_version(&gvk, version, preserves.unwrap_or(false));
            self.0.insert(gvk, Arc::new(read));
        }
    }

    pub(crate) fn remove(&mut self, group: &str, kind: &str) {
        self.0.retain(|gvk, _| gvk.group != group || gvk.kind != kind);
    }
}

fn read_version(gvk: &Gvk, version: &Value, preserves: bool) -> CustomVersion {
    let schema = version.get_path(["schema", "openAPIV3Schema"]).cloned();
    let list = |path: &[&str]| -> Vec<Value> {
        let list = version.get_path(path.iter().copied()).and_then(Value::as_list);
        list.into_iter().flat_map(|list| list.iter().cloned()).collect()
    };
    let steps = |text: &str| -> Vec<String> {
        text.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect()
    };
    let scale = version.get_path(["subresources", "scale"]).filter(|scale| !scale.is_null());
    let deprecated = version.get("deprecated").and_then(Value::as_bool) == Some(true);
    let usual = format!("{} {} is deprecated", gvk.api_version(), gvk.kind);
    let warning = version.str_at(["deprecationWarning"]).map_or(usual, str::to_owned);
    CustomVersion {
        rules: rules::SchemaRules::compile(schema.as_ref()),
        schema,
        preserves,
        scale: scale.map(|scale| ScalePaths {
            spec: steps(scale.str_at(["specReplicasPath"]).unwrap_or_default()),
            status: steps(scale.str_at(["statusReplicasPath"]).unwrap_or_default()),
            selector: scale.str_at(["labelSelectorPath"]).map(steps),
        }),
        columns: list(&["additionalPrinterColumns"]),
        selectable: list(&["selectableFields"])
            .iter()
            .filter_map(|field| field.str_at(["jsonPath"]))
            .map(|path| Str::new(path.trim_start_matches('.')))
            .collect(),
        warning: deprecated.then_some(warning),
    }
}

impl CustomVersion {
    /// Takes unknown fields away; tells which.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.preserves {
            return Vec::new();
        }
        let empty = Value::map();
        prune(object, self.schema.as_ref().unwrap_or(&empty))
    }

    /// Fills in what the schema has defaults for; whether that came to its end.
    pub(crate) fn fill_defaults(&self, object: &mut Value) -> bool {
        self.schema.as_ref().is_none_or(|schema| fill_defaults(object, schema))
    }

    /// What is wrong with an object, given what it was before.
    pub(crate) fn problems(&self, object: &Value, old: Option<&Value>) -> Vec<FieldProblem> {
        let Some(schema) = &self.schema else { return Vec::new() };
        let mut problems = problems_of(object, schema);
        if !self.rules.is_empty() {
            // Kubernetes: a value out of its bounds keeps no rule from being checked, one of the wrong kind does.
            let stops = |problem: &FieldProblem| {
                use FieldProblemKind::{Required, TooLong, TooMany, Type, Unsupported};
                matches!(
                    problem.kind,
                    Required(_) | TooLong(_) | TooMany(..) | Type(..) | Unsupported(..)
                )
            };
            if problems.iter().any(stops) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
                problems.push(FieldProblem::invalid("<nil>", Value::Null, why));
            } else {
                problems.extend(self.rules.check(object, old));
            }
        }
        problems
    }
}
