//! Which kinds the server serves.

use kiln_apiserver::ApiRequest;
use kiln_object::Kinds;
use kiln_value::{Map, Value};

use crate::core::{Core, items};

/// The form of discovery that tells everything at once.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What is served right now.
pub(crate) fn discover(core: &Core) -> Kinds {
    let mut groups = Vec::new();
    for path in ["/api", "/apis"] {
        let request = ApiRequest::new("GET", path).with_header("Accept", ACCEPT);
        groups.extend(items(&core.send(request, None).value()));
    }
    let mut all = Map::new();
    all.insert("items", Value::from_iter(groups));
    Kinds::discovered(&Value::Map(all))
}
