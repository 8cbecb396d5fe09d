//! The objects that a rule is given as parameters.

use kiln_rules::{FindParams, MissingParams, Params, Script};
use kiln_value::{Map, Str, Value};

use crate::context::EvalShared;
use crate::input::event::Event;
use crate::output::claim::ObjectRef;
use crate::output::failure::{Failure, FailureKind};

/// The parameters of each run; none when there are none and that is fine.
pub(crate) fn find(
    script: &Script,
    event: &Event,
    shared: &EvalShared<'_>,
) -> Result<Option<Vec<Value>>, Failure> {
    let Some(Params { kind, find, namespace, missing, as_list }) = &script.params else {
        return Ok(Some(vec![Value::Null]));
    };
    let namespaced = shared.eval_env.kinds.is_namespaced(kind) != Some(false);
    let namespace = namespace.as_ref().or(event.namespace.as_ref()).filter(|_| namespaced);
    if namespaced && namespace.is_none() {
        let message = "failed to configure binding: paramRef.namespace must be given for \
                       resources that are in no namespace";
        return Err(Failure::new(FailureKind::Value, message));
    }
    let namespace = namespace.map(Str::as_str);
    let mut found = match find {
        FindParams::Named(name) => shared.gate.get(kind, namespace, name)?.into_iter().collect(),
        FindParams::Selected(selector) => {
            shared.gate.list(kind, namespace, selector, None)?.objects
        }
    };
    if found.is_empty() {
        return match missing {
            MissingParams::Skip => Ok(None),
            MissingParams::Fail => Err(Failure::new(
                FailureKind::Value,
                "no params found for policy binding with `Deny` parameterNotFoundAction",
            )),
        };
    }
    if *as_list && matches!(find, FindParams::Selected(_)) {
        // Kyverno's command line keeps the order of the files.
        found.sort_by_key(|object| shared.eval_env.view.sequence(&ObjectRef::of(object).id));
        let mut list = Map::new();
        list.insert("apiVersion", kind.api_version());
        list.insert("kind", format!("{}List", kind.kind));
        list.insert("items", Value::from(std::mem::take(&mut found)));
        found = vec![Value::Map(list)];
    }
    Ok(Some(found))
}
