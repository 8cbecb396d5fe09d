//! The global context, as the given objects make it.

use kiln_engine::{CachedGlobal, GlobalEntry, GlobalSource, Globals};
use kiln_object::policy_kinds::{PolicyRole, policy_kind};
use kiln_object::{Gvk, Kind, Kinds, metadata};
use kiln_value::{Str, Value};

use crate::objects::with_namespace;

/// What the GlobalContextEntries among given objects hold of these objects.
pub(crate) fn given(resources: &[Value], others: &[Value], kinds: &Kinds) -> Globals {
    let objects = || resources.iter().chain(others);
    let is_entry = |object: &&Value| {
        Gvk::of(object)
            .and_then(|gvk| policy_kind(&gvk))
            .is_some_and(|row| row.role == PolicyRole::Data)
    };
    let mut globals = Globals::default();
    for entry in objects().filter(is_entry) {
        let held = GlobalEntry::read(entry).and_then(|written| {
            CachedGlobal::of(value(&written.source, objects(), kinds)?, &written.projections)
        });
        globals.insert(metadata::name(entry).unwrap_or_default().into(), held);
    }
    globals
}

fn value<'o>(
    source: &GlobalSource,
    objects: impl Iterator<Item = &'o Value>,
    kinds: &Kinds,
) -> Result<Value, String> {
    let GlobalSource::Objects { group, version, resource, namespace } = source else {
        return Err(
            "it calls the API server, and there is none here: give a value of this name, or \
                    list objects with kubernetesResource"
                .to_owned(),
        );
    };
    let kind = kinds
        .by_resource(group, version, resource)
        .map(Kind::gvk)
        .ok_or_else(|| format!("there is no resource {resource:?} in {group}/{version}"))?;
    let mut found: Vec<((Str, Str), Value)> = objects
        .filter(|object| {
            Gvk::of(object).is_some_and(|gvk| gvk.group == kind.group && gvk.kind == kind.kind)
        })
        .map(|object| {
            let object = with_namespace(object.clone(), kinds);
            let of = |part: Option<&str>| Str::from(part.unwrap_or_default());
            ((of(metadata::namespace(&object)), of(metadata::name(&object))), object)
        })
        .filter(|((of, _), _)| namespace.is_empty() || of == namespace)
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found.into_iter().map(|(_, object)| object).collect())
}
