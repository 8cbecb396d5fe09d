//! `lookup` of charts in a cluster: with the permissions of the user who runs the command, and only to read.

use kiln_chart::Lookup;
use kiln_engine::View;
use kiln_object::Gvk;
use kiln_runtime::LiveReader;
use kiln_value::{Map, Value};

/// Finds the objects of a cluster.
pub(crate) struct ChartLookup<'r>(pub(crate) &'r LiveReader);

impl Lookup for ChartLookup<'_> {
    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, String> {
        let gvk = Gvk::new(api_version, kind);
        // Helm: of a kind that the cluster does not have there is nothing.
        if self.0.kinds().get(&gvk).is_none() {
            return Ok(Value::Null);
        }
        if !name.is_empty() {
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            let found = View::get(self.0, &gvk, namespace, name);
            return found
                .map(|found| found.unwrap_or(Value::Null))
                .map_err(|error| error.to_string());
        }
        let items = self.0.all(&gvk, namespace).map_err(|error| error.to_string())?;
        Ok(Value::from(Map::from_iter([
            ("apiVersion", Value::from(api_version)),
            ("kind", Value::from(format!("{kind}List"))),
            ("items", Value::from(items)),
        ])))
    }
}
