//! Vars: `$(NAME)` in some fields is replaced by the value of a field of an object.

use std::collections::{BTreeMap, BTreeSet};

use kiln_diagnostic::Diagnostic;
use kiln_value::{Number, Str, Value};

use crate::build::budget::{Budget, Size};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::field_path;
use crate::fields::field_spec::FieldSpec;
use crate::load::kustomization::Var;
use crate::model::id::{Gvk, ResId, split_api_version};
use crate::model::resources::Resources;

/// The vars of a build so far, by name.
pub(crate) type Vars = BTreeMap<String, Var>;

const DEFAULT_PATH: &str = "metadata.name";

/// Adds vars, and marks the objects they take their values from.
///
/// # Errors
/// When a name occurs twice, or several objects fit.
pub(crate) fn add(
    vars: &mut Vars,
    incoming: &[Var],
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    for var in incoming {
        let id = target(var);
        let exact = !id.namespace.is_empty();
        let matches: Vec<_> = resources
            .by_any_name(&id.name)
            .into_iter()
            .filter(|slot| {
                let resource = resources.get(*slot);
                let fits = |other: &ResId| {
                    if exact {
                        id.equals(other)
                    } else {
                        id.name == other.name && id.gvk == other.gvk
                    }
                };
                fits(resource.id()) || resource.previous_ids().any(|other| fits(&other))
            })
            .collect();
        match matches.as_slice() {
            [] => {}
            [slot] => {
                let name = Str::new(&var.name);
                resources.update(*slot, &session.scopes, |resource| resource.vars.push(name));
            }
            several => {
                return Err(Error::new(format!(
                    "found {} resId matches for var {} (unable to disambiguate)",
                    several.len(),
                    show(var)
                )));
            }
        }
    }
    merge(vars, incoming.iter().cloned())
}

/// Adds vars of another layer.
///
/// # Errors
/// When a name occurs twice.
pub(crate) fn merge(vars: &mut Vars, incoming: impl IntoIterator<Item = Var>) -> Result<()> {
    for mut var in incoming {
        if vars.contains_key(&var.name) {
            return Err(Error::new(format!("var '{}' already encountered", var.name)));
        }
        if var.fieldref.field_path.is_empty() {
            DEFAULT_PATH.clone_into(&mut var.fieldref.field_path);
        }
        vars.insert(var.name.clone(), var);
    }
    Ok(())
}

fn target(var: &Var) -> ResId {
    let at = &var.objref;
    let mut gvk =
        Gvk { group: at.group.clone(), version: at.version.clone(), kind: at.kind.clone() };
    if !at.api_version.is_empty() {
        let (group, version) = split_api_version(&at.api_version);
        if !group.is_empty() {
            gvk.group = group.into();
        }
        gvk.version = version.into();
    }
    // kustomize: an id from a file never counts as cluster-scoped.
    ResId { gvk, name: at.name.clone(), namespace: at.namespace.clone(), cluster_scoped: false }
}

fn show(var: &Var) -> String {
    let at = &var.objref;
    let gvk = Gvk { group: at.group.clone(), version: at.version.clone(), kind: at.kind.clone() };
    format!(
        "{{{} {{{} {{{} {} {} false}} {} {}}} {{{}}}}}",
        var.name,
        at.api_version,
        gvk.group,
        gvk.version,
        gvk.kind,
        at.name,
        at.namespace,
        var.fieldref.field_path
    )
}

/// Replaces all vars.
///
/// # Errors
/// When a var has no value, or a field cannot hold one.
pub(crate) fn resolve(
    vars: &Vars,
    specs: &[FieldSpec],
    resources: &mut Resources,
    session: &Session<'_>,
) -> Result<()> {
    if vars.is_empty() {
        return Ok(());
    }
    let values = values(vars, resources)?;
    let budget = &session.budget;
    let mut expansion = Expansion { values: &values, used: BTreeSet::new(), budget };
    for resource in resources.iter_mut() {
        let id = resource.id().clone();
        for spec in specs {
            let set = &mut |field: &mut Value| expansion.set(field);
            spec.apply(resource.object_mut(), &id, None, budget, set).map_err(|error| {
                error.at(resource.document.as_ref().map(|document| document.place()))
            })?;
        }
        resource.settle_shared();
        resource.refresh_id(&session.scopes);
    }
    let unused: Vec<&str> =
        values.keys().map(String::as_str).filter(|name| !expansion.used.contains(*name)).collect();
    if !unused.is_empty() {
        session.warn(Diagnostic::warning(format!(
            "well-defined vars that were never replaced: {}",
            unused.join(",")
        )));
    }
    Ok(())
}

fn values(vars: &Vars, resources: &Resources) -> Result<BTreeMap<String, Value>> {
    let mut sources: BTreeMap<&str, &crate::model::resource::Resource> = BTreeMap::new();
    for (_, resource) in resources.iter() {
        for name in &resource.vars {
            sources.entry(name).or_insert(resource);
        }
    }
    let mut values = BTreeMap::new();
    for (name, var) in vars {
        let Some(resource) = sources.get(name.as_str()) else {
            return Err(Error::new(format!(
                "var '{}' cannot be mapped to a field in the set of known resources",
                show(var)
            )));
        };
        let parts = field_path::split_with_indices(&var.fieldref.field_path);
        let path = field_path::look_up(resource.object(), &parts).ok().flatten();
        let value = path.and_then(|path| resource.object().get_path(&path)).ok_or_else(|| {
            Error::new(format!(
                "field specified in var '{}' not found in corresponding resource",
                show(var)
            ))
            .at(resource.document.as_ref().map(|document| document.place()))
        })?;
        values.insert(name.clone(), value.clone());
    }
    Ok(values)
}

struct Expansion<'v> {
    values: &'v BTreeMap<String, Value>,
    used: BTreeSet<&'v str>,
    budget: &'v Budget,
}

impl<'v> Expansion<'v> {
    fn set(&mut self, field: &mut Value) -> Result<()> {
        match field {
            Value::String(text) => {
                if let Some(new) = self.expand(text)? {
                    *field = new;
                }
            }
            Value::Map(map) if map.values().any(has_reference) => {
                for (_, value) in map.iter_mut() {
                    if let Value::String(text) = value
                        && let Some(new) = self.expand(text)?
                    {
                        *value = new;
                    }
                }
            }
            Value::List(list) => {
                if list.iter().any(|element| !matches!(element, Value::String(_))) {
                    return Err(Error::new("invalid value type expect a string"));
                }
                if list.iter().any(has_reference) {
                    for element in list.make_mut() {
                        if let Value::String(text) = element
                            && let Some(new) = self.expand(text)?
                        {
                            *element = new;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The text with its vars replaced, or `None` when there is nothing to do.
    fn expand(&mut self, text: &str) -> Result<Option<Value>> {
        if !text.contains('$') {
            return Ok(None);
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            rest = match after.chars().next() {
                None => {
                    out.push('$');
                    ""
                }
                Some('$') => {
                    out.push('$');
                    &after[1..]
                }
                Some('(') => match after.find(')') {
                    Some(end) => {
                        let name = &after[1..end];
                        match self.value(name) {
                            Some(value) if end + 2 == text.len() => {
                                return Ok(Some(value.clone()));
                            }
                            Some(value) => {
                                let text = as_text(value);
                                self.budget.pay(Size::of_text(&text))?;
                                out.push_str(&text);
                            }
                            None => {
                                out.push('$');
                                out.push_str(&after[..=end]);
                            }
                        }
                        &after[end + 1..]
                    }
                    None => {
                        out.push_str("$(");
                        &after[1..]
                    }
                },
                Some(other) => {
                    out.push('$');
                    out.push(other);
                    &after[other.len_utf8()..]
                }
            };
        }
        out.push_str(rest);
        Ok(Some(out.into()))
    }

    /// The value of a var, if it is one that can stand in a text.
    fn value(&mut self, name: &str) -> Option<&'v Value> {
        let (name, value) = self.values.get_key_value(name)?;
        match value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                self.used.insert(name);
                Some(value)
            }
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}

fn has_reference(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains('$'))
}

/// A value in the middle of a text, as Go's `%v` prints it.
fn as_text(value: &Value) -> String {
    match value {
        Value::Number(Number::Float(float)) => kiln_text::float::print(*float),
        other => crate::model::resource::scalar_text(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn references_are_replaced_and_dollars_escaped() {
        let values: BTreeMap<String, Value> =
            [("A", value!("x")), ("N", value!(8080)), ("M", value!({}))]
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
        let budget = Budget::default();
        let mut expansion = Expansion { values: &values, used: BTreeSet::new(), budget: &budget };
        for (text, expanded) in [
            ("$(A)", value!("x")),
            ("$(N)", value!(8080)),
            ("a $(A) b $(N)", value!("a x b 8080")),
            ("$$(A)", value!("$(A)")),
            ("$(NOPE)", value!("$(NOPE)")),
            ("$(M)", value!("$(M)")),
            ("$(A", value!("$(A")),
            ("5$ $x $", value!("5$ $x $")),
        ] {
            assert_eq!(expansion.expand(text).unwrap(), Some(expanded), "{text}");
        }
        assert_eq!(expansion.expand("plain").unwrap(), None);
    }
}
