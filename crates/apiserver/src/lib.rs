//! An API server for development and tests: what kubectl, client libraries and controllers take for
//! Kubernetes, over objects in memory.
//!
//! ```text
//! Request ─▶ paths ─▶ who and may they ─▶ read / watch / write ─▶ Response or Watch
//!                                            │ decode ─ defaults ─ admission ─ validate
//!                                            ▼
//!                                         storage
//! ```
//!
//! Pure: no sockets, no clock, no chance. [`Server::handle`] takes a request as data; time, randomness and
//! calls to webhooks come through [`ServerHost`]; a [`Watch`] is pulled by the host.
//!
//! | module | holds |
//! |---|---|
//! | `server` | the state, and the way of a request through it |
//! | `request` | what a request says: `paths`, `options`, `media` types |
//! | `access` | who may do what: `tokens`, `authorization` (RBAC), `escalation`, `access_reviews` |
//! | `discovery` | what is served, and its `openapi` |
//! | `read` | lists, `field_selector`, `watch`, the `table` that `kubectl get` prints |
//! | `write` | how objects come, change and go; `patch`, `managed_fields` |
//! | `defaults`, `validate`, `admission` | what happens to an object before it is stored |
//! | `storage` | objects, versions, the log |
//! | `types`, `crd` | the built-in types and versions of one kind, custom kinds |
//! | `object_schemas` | what a server would refuse, for hosts that have none |
//! | `controllers` | what controllers do on their own; `bootstrap`: what a cluster begins with; `workloads` |
//! | `status` | why a request fails, in the words that clients compare |

mod access;
mod admission;
mod controllers;
mod crd;
mod defaults;
mod discovery;
mod object_schemas;
mod read;
mod request;
mod server;
mod status;
mod storage;
mod types;
mod validate;
mod write;

pub use access::authorization::{Authorization, User};
pub use object_schemas::ObjectSchemas;
pub use read::watch::Watch;
pub use request::media::LONGEST_BODY;
pub use request::{ApiRequest, Response};
pub use server::{ResponseOrWatch, Server, ServerHost, Settings, WebhookCall};
pub use storage::Record;
