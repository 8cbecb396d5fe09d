//! Field specs: which fields of which kinds a transformer changes, and the walk to them.

use kiln_value::{Path, Str, Value};

use crate::build::budget::{self, Budget, Size};
use crate::error::{Error, Result};
use crate::load::decode::record;
use crate::model::id::{Gvk, ResId};

record! {
    /// A path, limited to what fits the group, version and kind; empty parts fit anything.
    FieldSpec = "FieldSpec" {
        group: Str = "group",
        version: Str = "version",
        kind: Str = "kind",
        path: Str = "path",
        create: bool = "create",
    }
}

impl FieldSpec {
    pub(crate) fn everywhere(path: &str, create: bool) -> Self {
        FieldSpec { path: path.into(), create, ..FieldSpec::default() }
    }

    /// Whether an object of this group, version and kind has the field.
    pub(crate) fn fits(&self, gvk: &Gvk) -> bool {
        (self.kind.is_empty() || self.kind == gvk.kind)
            && (self.group.is_empty() || self.group == gvk.group)
            && (self.version.is_empty() || self.version == gvk.version)
    }

    pub(crate) fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }

    /// Walks to every field this spec means in an object and lets `set` change it.
    ///
    /// # Errors
    /// When something on the way is neither map nor list, or `set` fails.
    pub(crate) fn apply(
        &self,
        object: &mut Value,
        id: &ResId,
        make: Option<Make>,
        budget: &Budget,
        set: &mut dyn FnMut(&mut Value) -> Result<()>,
    ) -> Result<()> {
        if !self.fits(&id.gvk) {
            return Ok(());
        }
        let path = split_path(&self.path, '/');
        let make = if self.create { make } else { None };
        budget::check_path(path.len(), 0)?;
        let mut set = |field: &mut Value| {
            let before = budget::own_size(field);
            set(field)?;
            budget.pay(budget::growth(before, field))
        };
        walk(object, &path, make, budget, &mut set).map_err(|error| {
            error.context(format_args!("considering field '{}' of object {id}", self.path))
        })
    }
}

impl FieldSpec {
    /// The places that [`FieldSpec::apply`] comes to, in its order, when nothing is made on the way.
    pub(crate) fn places(&self, object: &Value, id: &ResId) -> Vec<Path> {
        let mut found = Vec::new();
        if self.fits(&id.gvk) {
            places(object, &split_path(&self.path, '/'), &mut Path::root(), &mut found);
        }
        found
    }
}

fn places(value: &Value, path: &[String], at: &mut Path, found: &mut Vec<Path>) {
    let Some((part, rest)) = path.split_first() else {
        found.push(at.clone());
        return;
    };
    match value {
        Value::List(list) => {
            for (index, element) in list.iter().enumerate() {
                at.push(index);
                places(element, path, at, found);
                at.pop();
            }
        }
        Value::Map(map) => {
            let name = part.strip_suffix("[]").unwrap_or(part);
            if let Some(field) = map.get(name) {
                at.push(name);
                places(field, rest, at, found);
                at.pop();
            }
        }
        _ => {}
    }
}

/// What a transformer puts where a field is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Map,
    Scalar,
}

/// Splits at a delimiter that a backslash can escape; one leading delimiter is allowed.
pub(crate) fn split_path(path: &str, delimiter: char) -> Vec<String> {
    let mut rest = path.split(delimiter).peekable();
    if path.starts_with(delimiter) && path.len() > delimiter.len_utf8() {
        rest.next();
    }
    let mut parts: Vec<String> = Vec::new();
    for part in rest {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

fn walk(
    value: &mut Value,
    path: &[String],
    make: Option<Make>,
    budget: &Budget,
    set: &mut dyn FnMut(&mut Value) -> Result<()>,
) -> Result<()> {
    let Some((part, rest)) = path.split_first() else {
        return set(value);
    };
    match value {
        Value::Null => Ok(()),
        Value::List(list) => {
            if !list.iter().any(|element| leads_on(element, path, make)) {
                return Ok(());
            }
            for element in list.make_mut() {
                walk(element, path, make, budget, set).map_err(|error| {
                    error.context(format_args!("visit traversal on path: [{}]", path.join(" ")))
                })?;
            }
            Ok(())
        }
        Value::Map(map) => {
            let (name, is_list) =
                part.strip_suffix("[]").map_or((part.as_str(), false), |n| (n, true));
            if name.is_empty() {
                return Err(Error::new("cannot set or create an empty field name"));
            }
            let make_here = if is_list { None } else { make };
            let field = match (map.get_mut(name), make_here) {
                // A missing list is never made, but one that is null becomes an empty one.
                (Some(field @ Value::Null), _) if is_list => {
                    *field = Value::list();
                    field
                }
                (Some(field), None) => field,
                (Some(field), Some(make)) => {
                    if field.is_null() && !(rest.is_empty() && make == Make::Scalar) {
                        *field = Value::map();
                    }
                    field
                }
                (None, None) => return Ok(()),
                (None, Some(make)) => {
                    budget.pay(Size::of_text(name))?;
                    let scalar = rest.is_empty() && make == Make::Scalar;
                    map.get_or_insert_with(name, || if scalar { Value::Null } else { Value::map() })
                }
            };
            walk(field, rest, make, budget, set)
        }
        _ => Err(Error::new("expected sequence or mapping node")),
    }
}

/// Whether a walk into a list element can do anything (or fail), so that lists shared with others
/// are copied only when needed.
fn leads_on(element: &Value, path: &[String], make: Option<Make>) -> bool {
    match element {
        Value::Null => path.is_empty(),
        Value::Map(map) if make.is_none() => path.first().is_none_or(|part| {
            let name = part.strip_suffix("[]").unwrap_or(part);
            name.is_empty() || map.contains_key(name)
        }),
        _ => true,
    }
}

/// A list of field specs.
pub(crate) type Specs = Vec<FieldSpec>;

/// Adds specs; one that is there already (or whose narrower form is) is skipped.
///
/// # Errors
/// When both differ in whether they create the field.
pub(crate) fn merge_specs(into: &mut Specs, more: &[FieldSpec]) -> Result<()> {
    for spec in more {
        let gvk = spec.gvk();
        let same = into.iter().find(|old| old.path == spec.path && old.gvk().is_selected_by(&gvk));
        match same {
            Some(old) if old.create != spec.create => {
                return Err(Error::new("conflicting fieldspecs").hint(format!(
                    "the field {} is declared with create: {} elsewhere",
                    spec.path, old.create
                )));
            }
            Some(_) => {}
            None => into.push(spec.clone()),
        }
    }
    Ok(())
}

/// Sorts by the legacy order of kinds.
pub(crate) fn sort_specs(specs: &mut Specs) {
    specs.sort_by_cached_key(|spec| (crate::model::id::rank(&spec.kind), spec.gvk().sort_text()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn set_all(path: &str, create: bool, make: Option<Make>, object: Value) -> Result<Value> {
        let mut object = object;
        FieldSpec::everywhere(path, create).apply(
            &mut object,
            &ResId::default(),
            make,
            &Budget::default(),
            &mut |place| {
                *place = "X".into();
                Ok(())
            },
        )?;
        Ok(object)
    }

    #[test]
    fn lists_on_the_way_are_entered() {
        let object = value!({"a": [{"b": 1}, {"c": 2}, {"b": 3}]});
        for path in ["a/b", "a[]/b", "/a/b"] {
            assert_eq!(
                set_all(path, false, None, object.clone()).unwrap(),
                value!({"a": [{"b": "X"}, {"c": 2}, {"b": "X"}]})
            );
        }
    }

    #[test]
    fn missing_fields_are_made_only_when_asked() {
        let made = value!({"a": {"b": "X"}});
        assert_eq!(set_all("a/b", true, Some(Make::Scalar), value!({"a": null})).unwrap(), made);
        assert_eq!(set_all("a/b", true, Some(Make::Scalar), value!({})).unwrap(), made);
        assert_eq!(set_all("a/b", false, Some(Make::Scalar), value!({})).unwrap(), value!({}));
        assert_eq!(set_all("a/b", true, None, value!({"a": null})).unwrap(), value!({"a": null}));
        assert_eq!(set_all("a[]/b", true, Some(Make::Map), value!({})).unwrap(), value!({}));
        assert_eq!(set_all("a[]/b", false, None, value!({"a": null})).unwrap(), value!({"a": []}));
    }

    #[test]
    fn a_scalar_in_the_way_is_an_error_with_the_field() {
        let error = set_all("a/b", false, None, value!({"a": 1})).unwrap_err();
        assert_eq!(
            error.message(),
            "considering field 'a/b' of object [noKind].[noVer].[noGrp]/[noName].[noNs]: expected sequence or mapping node"
        );
    }

    #[test]
    fn a_slash_can_be_escaped() {
        assert_eq!(split_path("a/b\\/c/d", '/'), ["a", "b/c", "d"]);
        assert_eq!(split_path("/a", '/'), ["a"]);
        assert_eq!(split_path("a", '/'), ["a"]);
    }
}
