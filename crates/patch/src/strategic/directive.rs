//! Directives: keys of a patch that say what to do instead of what to have.

use std::collections::HashSet;

use kiln_value::{Map, Value};

use super::StrategicProblem;

pub(crate) const PATCH: &str = "$patch";
pub(crate) const RETAIN_KEYS: &str = "$retainKeys";
pub(crate) const SET_ELEMENT_ORDER: &str = "$setElementOrder";
pub(crate) const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// What `$patch` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Replace,
    Delete,
    Merge,
}

impl Directive {
    pub(super) fn parse(said: &Value) -> Result<Directive, StrategicProblem> {
        match said.as_str() {
            Some("replace") => Ok(Directive::Replace),
            Some("delete") => Ok(Directive::Delete),
            Some("merge") => Ok(Directive::Merge),
            Some(other) => Err(StrategicProblem::UnknownDirective(format!("{other:?}"))),
            None => Err(StrategicProblem::UnknownDirective(format!("a {}", said.type_name()))),
        }
    }

    /// What a map of a patch says, if it says anything.
    pub(super) fn of(patch: &Map) -> Result<Option<Directive>, StrategicProblem> {
        patch.get(PATCH).map(Directive::parse).transpose()
    }
}

/// A map of a patch without its `$patch`.
pub(super) fn without_directive(patch: &Map) -> Map {
    let mut patch = patch.clone();
    patch.remove(PATCH);
    patch
}

/// A key of a patch as the API server reads it.
pub(super) enum ServerKey<'k> {
    Field(&'k str),
    /// `$retainKeys`, seen to before the fields.
    RetainKeys,
    /// `$setElementOrder/<field>`.
    ElementOrder(&'k str),
    /// `$deleteFromPrimitiveList/<field>`.
    DeleteFromList(&'k str),
}

impl<'k> ServerKey<'k> {
    pub(super) fn parse(key: &'k str) -> Result<ServerKey<'k>, StrategicProblem> {
        if key == RETAIN_KEYS {
            return Ok(ServerKey::RetainKeys);
        }
        for (prefix, make) in [
            (SET_ELEMENT_ORDER, ServerKey::ElementOrder as fn(&'k str) -> ServerKey<'k>),
            (DELETE_FROM_PRIMITIVE_LIST, ServerKey::DeleteFromList),
        ] {
            if let Some(rest) = key.strip_prefix(prefix) {
                let field =
                    rest.strip_prefix('/').ok_or_else(|| StrategicProblem::MalformedDirective {
                        directive: key.to_owned(),
                        wanted: "followed by \"/\" and the name of a field",
                    })?;
                return Ok(make(field));
            }
        }
        Ok(ServerKey::Field(key))
    }
}

/// Follows `$retainKeys`: takes from the object the keys it does not name.
pub(super) fn retain_keys(object: &mut Map, patch: &Map) -> Result<(), StrategicProblem> {
    let Some(named) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || StrategicProblem::MalformedDirective {
        directive: RETAIN_KEYS.to_owned(),
        wanted: "a list of keys",
    };
    let named = named.as_list().ok_or_else(malformed)?;
    if named.iter().any(|key| matches!(key, Value::List(_) | Value::Map(_))) {
        return Err(malformed());
    }
    let named: HashSet<&str> = named.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch {
        let directive = key == RETAIN_KEYS
            || key.starts_with(SET_ELEMENT_ORDER)
            || key.starts_with(DELETE_FROM_PRIMITIVE_LIST);
        if !value.is_null() && !directive && !named.contains(key.as_str()) {
            return Err(StrategicProblem::NotRetained(key.to_string()));
        }
    }
    if object.keys().any(|key| !named.contains(key.as_str())) {
        object.retain(|key, _| named.contains(key.as_str()));
    }
    Ok(())
}
