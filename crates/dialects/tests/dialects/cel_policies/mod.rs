//! Policies in CEL: Kyverno's and Kubernetes' own.

mod generating;
mod mutating;
mod validate_requests;
mod validating;
