//! The schemas of an API server, for commands that ask none.

use kiln_apiserver::ObjectSchemas;
use kiln_engine::StorageCheck;
use kiln_object::Gvk;
use kiln_value::Value;

/// The schemas of the built-in kinds, and of definitions among some objects.
pub struct SchemasOfServer(ObjectSchemas);

impl SchemasOfServer {
    pub fn given<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Self {
        let is_definition =
            |object: &&Value| object.str_at(["kind"]) == Some("CustomResourceDefinition");
        SchemasOfServer(ObjectSchemas::new(objects.into_iter().filter(is_definition)))
    }

    /// Whether objects of a kind can be held to anything.
    pub fn know(&self, gvk: &Gvk) -> bool {
        self.0.know(gvk)
    }
}

impl StorageCheck for SchemasOfServer {
    fn refuses(&self, before: Option<&Value>, object: &Value) -> Option<String> {
        self.0.refuse(before, object)
    }
}
