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
//! | `request`, `paths`, `options`, `media` | what a request says |
//! | `status` | why it fails, in the words that clients compare |
//! | `types`, `crd`, `convert` | the built-in types, custom kinds, and versions of one kind |
//! | `storage` | objects, versions, the log |
//! | `read`, `fields`, `watch`, `table` | lists, field selectors, watches, what `kubectl get` prints |
//! | `write`, `managed_fields`, `defaults`, `validate`, `admission` | how objects come, change and go |
//! | `bootstrap`, `controllers`, `workloads` | what a cluster begins with, and what controllers do on their own |
//! | `discovery`, `openapi` | what is served |
//! | `authorization`, `escalation`, `access_reviews`, `tokens` | who may do what |

mod access_reviews;
mod admission;
mod authorization;
mod bootstrap;
mod controllers;
mod convert;
mod crd;
mod defaults;
mod discovery;
mod escalation;
mod fields;
mod managed_fields;
mod media;
mod object_size;
mod openapi;
mod options;
mod paths;
mod read;
mod request;
mod server;
mod status;
mod storage;
mod table;
mod tokens;
mod types;
mod validate;
mod watch;
mod workloads;
mod write;

pub use authorization::{Authorization, User};
pub use media::LONGEST_BODY;
pub use request::{Request, Response};
pub use server::{ResponseOrWatch, Server, ServerHost, Settings, WebhookCall};
pub use storage::Record;
pub use watch::Watch;
