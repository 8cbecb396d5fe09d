//! The administrator, who acts on a world from outside.

use std::future::{Future, ready};

use http::Method;
use kiln_apiserver::ApiRequest;
use kiln_cluster::ApiError;
use kiln_replica::api::Api;
use kiln_value::{Value, json};

use crate::connection::read;
use crate::core::Core;

/// The administrator's way to the server, without faults.
#[derive(Debug)]
pub(crate) struct Admin<'c>(pub(crate) &'c Core);

impl Api for Admin<'_> {
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send {
        let mut request = ApiRequest::new(method.as_str(), path);
        if let Some(body) = body {
            let form = if content_type.is_empty() { "application/json" } else { content_type };
            request = request.with_body(form, json::to_string(body));
        }
        ready(read(&self.0.send(request, None)))
    }

    fn now(&self) -> u64 {
        self.0.now()
    }
}
