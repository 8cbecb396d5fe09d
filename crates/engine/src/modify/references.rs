//! Objects that belong to an object, shown to rules below its root: its namespace, and the node of a Pod.

use kiln_object::Gvk;
use kiln_object::metadata::LAST_APPLIED;
use kiln_value::{Map, Value};

use crate::context::EvalShared;
use crate::output::failure::Failure;

/// Where rules find them.
pub(super) const FIELD: &str = "syntheticRefs";
/// KubeMod: the annotation that names the node of a Pod.
const NODE: [&str; 3] = ["metadata", "annotations", "ref.kubemod.io/nodename"];

/// What belongs to the object, as far as it can be read.
pub(super) fn of(
    object: &Value,
    namespace: &str,
    shared: &EvalShared<'_>,
) -> Result<Option<Value>, Failure> {
    let mut found = Map::new();
    // The view itself: a rule of a namespace may see that namespace, which lies in none.
    let get = |kind: &str, name: &str| {
        shared.counters.read()?;
        let object = shared.eval_env.view.get(&Gvk::new("v1", kind), None, name)?;
        Ok::<_, Failure>(object.map(|mut object| {
            object.remove(["metadata", "managedFields"]);
            object.remove(["metadata", "annotations", LAST_APPLIED]);
            object
        }))
    };
    if !namespace.is_empty()
        && let Some(object) = get("Namespace", namespace)?
    {
        found.insert("namespace", object);
    }
    // A Pod that runs says where, also without the annotation.
    let runs_on = || {
        let is_pod = object.str_at(["kind"]) == Some("Pod");
        object.str_at(["spec", "nodeName"]).filter(|name| is_pod && !name.is_empty())
    };
    if let Some(node) = object.str_at(NODE).or_else(runs_on)
        && let Some(object) = get("Node", node)?
    {
        found.insert("node", object);
    }
    Ok((!found.is_empty()).then(|| Value::Map(found)))
}
