//! Which fields an API server sees to: those that its types require, and those that its validation does.

use kiln_schema::types::{SchemaType, StructId, TypeField, types};
use kiln_value::{Path, Segment, Value};

/// Whether a field is there in every object that an API server stores.
pub fn is_always_there(of: StructId, field: &TypeField) -> bool {
    let name = types().get(of).name;
    field.required
        || field.name == "metadata"
        // Servers write it even where it is empty.
        || (field.name == "spec" && types().field(of, "metadata").is_some())
        // The schema leaves it open, so that controllers may fill it in; validation does not.
        || (field.name == "image" && name.starts_with("core/v1.") && name.contains("Container"))
        || (field.name == "template"
            && matches!(name, "apps/v1.ReplicaSetSpec" | "core/v1.ReplicationControllerSpec"))
}

/// Whether an API server would refuse an object without what lies at a path; the last element of a list counts as the
/// list.
pub(crate) fn is_required(object: &Value, path: &Path) -> bool {
    let text = |field: &str| object.str_at([field]).unwrap_or_default();
    let Some(root) = types().kind(text("apiVersion"), text("kind")) else { return false };
    let mut ty = SchemaType::Struct(root);
    let mut required = true;
    let mut place = object;
    for segment in path.segments() {
        let next = match (&ty, segment) {
            (SchemaType::Struct(id), Segment::Key(key)) => {
                let Some(field) = types().field(*id, key) else { return false };
                required = is_always_there(*id, field);
                field.ty.clone()
            }
            (SchemaType::List(element), Segment::Index(_)) => {
                let is_last = place.as_list().is_some_and(|list| list.len() == 1);
                required = required && is_last;
                (**element).clone()
            }
            _ => return false,
        };
        let Some(below) = place.step(segment) else { return false };
        place = below;
        ty = next;
    }
    required
}
