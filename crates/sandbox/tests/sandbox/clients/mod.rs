//! Client libraries at the sandbox: the recorded sequences of two of them, request by request, and what their
//! users build on them.

mod kube_rs;
mod python;
mod recorded;
mod runtime;
