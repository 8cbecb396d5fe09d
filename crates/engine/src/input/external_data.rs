//! What lies outside the cluster's objects: services, registries, values that a host keeps.

use std::fmt;

use kiln_rules::Method;
use kiln_value::{Str, Value};

/// What a rule may ask besides objects. Every method refuses unless it is written, so that nothing
/// leaves the machine until a host decides otherwise.
pub trait ExternalData {
    /// The answer of a service, decoded from JSON.
    ///
    /// # Errors
    /// When the service may not be asked, or does not answer well.
    fn call(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        Err(ExternalDataError::refused(format!("the service {} is not called", request.url)))
    }

    /// The answer of a service, whatever its status is. Hosts that only know good answers write
    /// [`ExternalData::call`] alone.
    ///
    /// # Errors
    /// When the service may not be asked, or does not answer.
    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<ServiceAnswer, ExternalDataError> {
        Ok(ServiceAnswer { status: 200, body: Some(self.call(request)?) })
    }

    /// The answer of the API server to a path, if the host has one ready; otherwise it is made of the
    /// objects in view.
    ///
    /// # Errors
    /// When the answer that is ready is a refusal.
    fn get(&self, path: &str) -> Result<Option<Value>, ExternalDataError> {
        let _ = path;
        Ok(None)
    }

    /// The answer of the API server to something that is sent to it.
    ///
    /// # Errors
    /// When the API server may not be asked, or does not answer well.
    fn post(&self, path: &str, body: &Value) -> Result<Value, ExternalDataError> {
        let _ = body;
        Err(ExternalDataError::refused(format!("nothing is sent to {path}")))
    }

    /// What a registry knows about an image.
    ///
    /// # Errors
    /// When the registry may not be asked, or does not answer well.
    fn image(&self, reference: &str) -> Result<Value, ExternalDataError> {
        Err(ExternalDataError::refused(format!(
            "the registry of image {reference:?} is not called"
        )))
    }

    /// A value that the host keeps for all rules; none when there is no such value.
    ///
    /// # Errors
    /// When the value is not ready.
    fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        let _ = name;
        Ok(None)
    }
}

/// Refuses everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExternalData;

impl ExternalData for NoExternalData {}

/// What a service is asked.
#[derive(Clone, Debug)]
pub struct ServiceRequest<'r> {
    /// The address.
    pub url: &'r str,
    /// Whether something is sent.
    pub method: Method,
    pub headers: &'r [(Str, String)],
    /// What is sent.
    pub body: Option<&'r Value>,
    /// The certificates to trust, in PEM.
    pub ca_bundle: Option<&'r str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServiceAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// The body, if it is JSON.
    pub body: Option<Value>,
}

impl ServiceAnswer {
    /// What a service said, if it said it well.
    ///
    /// # Errors
    /// When its status says otherwise, or it said no JSON.
    pub fn good(self, url: &str) -> Result<Value, ExternalDataError> {
        let words = match (self.status, self.body) {
            (200..=299, Some(body)) => return Ok(body),
            (200..=299, None) => format!("{url} answers with something that is not JSON"),
            (status @ 300..=399, _) => {
                format!("{url} answers with the redirect {status}, and none is followed")
            }
            (status, _) => format!("{url} answers with status {status}"),
        };
        Err(ExternalDataError::failed(words))
    }
}

/// Why something outside has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalDataError {
    /// What is wrong.
    pub message: String,
    /// The host does not ask, whatever the answer would be.
    pub refused: bool,
}

impl ExternalDataError {
    /// The host refuses to send the request.
    pub fn refused(message: impl Into<String>) -> Self {
        ExternalDataError { message: message.into(), refused: true }
    }

    /// The request failed.
    pub fn failed(message: impl Into<String>) -> Self {
        ExternalDataError { message: message.into(), refused: false }
    }
}

impl fmt::Display for ExternalDataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExternalDataError {}
