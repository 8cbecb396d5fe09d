//! What a server would refuse of an object by its schema, for hosts that have none: the types of its fields, and what
//! must be there.

use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_value::Value;

use crate::crd::Customs;
use crate::defaults;
use crate::status::{FieldProblem, RequestFailure};
use crate::types::types;
use crate::validate::content;
use crate::write::decode_as;

/// The schemas of the built-in kinds, and of some definitions.
#[derive(Debug)]
pub struct ObjectSchemas {
    customs: Customs,
    kinds: Kinds,
}

impl ObjectSchemas {
    /// Built-in kinds, and those of CustomResourceDefinitions. Definitions that cannot be used count for nothing.
    pub fn new<'d>(definitions: impl IntoIterator<Item = &'d Value>) -> Self {
        let mut schemas = ObjectSchemas { customs: Customs::default(), kinds: Kinds::builtin() };
        for definition in definitions {
            if let Ok(kinds) = schemas.kinds.clone().with_crd(definition) {
                schemas.kinds = kinds;
                schemas.customs.set(definition);
            }
        }
        schemas
    }

    /// Whether objects of a kind can be held to anything.
    pub fn know(&self, gvk: &Gvk) -> bool {
        self.customs.get(gvk).is_some() || types().kind(&gvk.api_version(), &gvk.kind).is_some()
    }

    /// Why a server would not store an object, in its words. `before` is the object before it was changed: what was
    /// wrong with it already is not told.
    ///
    /// Of new objects of built-in kinds only the types are looked at: files leave out what servers fill in.
    pub fn refuse(&self, before: Option<&Value>, object: &Value) -> Option<String> {
        let gvk = Gvk::of(object)?;
        if !self.know(&gvk) {
            return None;
        }
        let old = match before.map(|old| self.decode(&gvk, old)) {
            Some(Err(_)) => return None,
            old => old.and_then(Result::ok),
        };
        let decoded = match self.decode(&gvk, object) {
            Ok(decoded) => decoded,
            Err(why) => {
                let (kind, version) = (&gvk.kind, gvk.version.as_str());
                return Some(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
                ));
            }
        };
        let is_custom = self.customs.get(&gvk).is_some();
        if old.is_none() && !is_custom {
            return None;
        }
        let known = old.map(|old| self.problems(&gvk, &old)).unwrap_or_default();
        let mut problems = self.problems(&gvk, &decoded);
        // A rule that adds to a list moves what was wrong in it.
        problems.retain(|problem| !known.iter().any(|known| is_same(known, problem)));
        if problems.is_empty() {
            return None;
        }
        let name = ObjectId::of(object).map(|id| id.name.to_string()).unwrap_or_default();
        Some(RequestFailure::invalid(&gvk.group, &gvk.kind, &name, &problems).message)
    }

    fn decode(&self, gvk: &Gvk, object: &Value) -> Result<Value, String> {
        let mut decoded = decode_as(&self.customs, gvk, object.clone(), &mut Vec::new())?;
        match self.customs.get(gvk) {
            Some(custom) => _ = custom.fill_defaults(&mut decoded),
            None => defaults::fill(gvk, &mut decoded),
        }
        Ok(decoded)
    }

    fn problems(&self, gvk: &Gvk, object: &Value) -> Vec<FieldProblem> {
        let kind = self.kinds.get(gvk);
        kind.map(|kind| content(&self.customs, kind, object, None)).unwrap_or_default()
    }
}

/// Whether two problems are one, wherever in a list.
fn is_same(one: &FieldProblem, other: &FieldProblem) -> bool {
    let steps = |problem: &FieldProblem| {
        let mut is_index = false;
        let mut path = problem.field.clone();
        path.retain(|letter| {
            is_index = letter == '[' || is_index && letter != ']';
            !is_index && letter != ']'
        });
        path
    };
    one.kind == other.kind && steps(one) == steps(other)
}
