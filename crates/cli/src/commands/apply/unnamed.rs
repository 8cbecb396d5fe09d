//! Resources that an API server would name: they have `generateName` and no name. Rules are tried on them under a name that
//! could be, and they come out without it.

use kiln_offline::Report;
use kiln_value::Value;

/// In the place of what an API server would choose.
const CHOSEN: &str = "xxxxx";

/// Names the resources that have none.
pub(super) fn name(objects: &mut [Value]) {
    for object in objects {
        let metadata = object.get("metadata");
        let text = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str);
        if text("name").is_none_or(str::is_empty)
            && let Some(prefix) = text("generateName")
        {
            let name = format!("{prefix}{CHOSEN}");
            // What is no map was read from no object.
            let _ = object.set(["metadata", "name"], name);
        }
    }
}

/// Takes the names away again.
pub(super) fn forget(report: &mut Report) {
    report.resources.iter_mut().for_each(forget_one);
    for result in &mut report.results {
        result.left.iter_mut().for_each(forget_one);
        for made in &mut result.made {
            forget_one(&mut made.object);
            made.before.iter_mut().for_each(forget_one);
        }
    }
}

fn forget_one(object: &mut Value) {
    let Some(metadata) = object.get("metadata") else { return };
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let prefix = text("generateName");
    let is_chosen = !prefix.is_empty() && text("name").strip_prefix(prefix) == Some(CHOSEN);
    if is_chosen
        && let Some(metadata) =
            object.as_map_mut().and_then(|map| map.get_mut("metadata")).and_then(Value::as_map_mut)
    {
        metadata.remove("name");
    }
}
