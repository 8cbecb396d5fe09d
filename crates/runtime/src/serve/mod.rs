//! The HTTPS server: admission reviews, health, metrics; and what the API server needs to find it.
//!
//! ```text
//! registry, kinds ─▶ keeper ─┬─▶ desk (hooks and settings, swapped as one) ─▶ server ─▶ answers, hints
//!                            ├─▶ certificates in Secrets ─▶ tls (swapped while connections go on)
//!                            └─▶ webhook configurations ─▶ which policies are registered
//! ```
//!
//! | module | holds |
//! |---|---|
//! | here | starting and ending the parts |
//! | `webhook_reconciler` | keeps desk, certificates and webhook configurations as policies need them |
//! | `server` | connections, their limits, and how they end |
//! | `routes` | what is answered at which path |
//! | `body_budget` | how many bytes of reviews are there at once |
//! | `update_request_limiter` | how many requests are stored for the leader |
//! | `connection_slots` | which connection is evicted when all slots are taken |
//! | `tls` | the certificate that is served now |
//! | `review_pool` | how many reviews are at work at once |
//! | `audits` | results of rules that check objects, and those that are evaluated after the answer |
//! | `view` | objects and surroundings for rules that ask while a request waits |

mod audits;
mod body_budget;
mod connection_slots;
mod review_pool;
mod routes;
mod server;
mod tls;
mod update_request_limiter;
mod view;
mod webhook_reconciler;

use std::collections::HashMap;
use std::sync::Arc;

use kiln_admission::{Hooks, Settings};
use kiln_engine::User;
use kiln_rules::PolicyId;
use kiln_services::Services;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::state::AppState;
use crate::supervisor::{OnPanic, Supervisor};

pub use server::ConnectionLimits;
pub use tls::{ClientAuthority, TlsError};
pub use update_request_limiter::CarrierLimits;
pub(crate) use view::Machine;

/// What answers reviews: rules and settings that belong together.
#[derive(Debug)]
pub(crate) struct AdmissionState {
    pub(crate) hooks: Hooks,
    pub(crate) settings: Settings,
    pub(crate) services: Services,
    /// Whose rights policies are held to.
    pub(crate) authors: Arc<HashMap<PolicyId, User>>,
}

/// Serves until the process is to end. A process that only controls serves health and metrics.
pub async fn serve(shared: AppState, admits: bool) {
    let listener = loop {
        match TcpListener::bind(shared.options.listen).await {
            Ok(listener) => break listener,
            Err(error) => {
                let address = shared.options.listen;
                tracing::error!(%address, %error, "cannot listen; trying again");
                shared.health.bad("server", format!("cannot listen on {address}: {error}"));
                tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            }
        }
    };
    serve_on(shared, listener, admits, ConnectionLimits::default()).await;
}

/// Serves on a socket until the process is to end.
pub async fn serve_on(
    shared: AppState,
    listener: TcpListener,
    admits: bool,
    limits: ConnectionLimits,
) {
    let settings = shared.options.settings();
    let first = Arc::new(AdmissionState {
        hooks: Hooks::default(),
        settings,
        services: Services::default(),
        authors: Arc::default(),
    });
    let (desk_sender, desk) = watch::channel(first);
    let certificate = tls::Served::default();
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving HTTPS");
    }
    let mut shutdown = shared.shutdown.clone();
    let keeping = async {
        if admits {
            let keep = || webhook_reconciler::keep(shared.clone(), &desk_sender, &certificate);
            Supervisor::of(&shared).keep("webhooks", OnPanic::Restart, keep).await;
        } else {
            webhook_reconciler::serve_own_certificate(&shared, &certificate);
            std::future::pending::<()>().await;
        }
    };
    let (close, closed) = watch::channel(false);
    let ending = async {
        tokio::select! {
            () = keeping => {}
            _ = shutdown.wait_for(|end| *end) => {}
        }
        // Clients of the readiness probe send requests elsewhere; those that still come are answered.
        shared.health.bad("server", "the process ends");
        if admits {
            if shared.options.webhook_url.is_some() && !shared.options.leave_webhooks {
                // No other process answers at the address of one process.
                webhook_reconciler::take_back(&shared).await;
            }
            tokio::time::sleep(shared.options.linger).await;
        }
        let _ = close.send(true);
    };
    let serving = server::serve(&shared, listener, &certificate, desk, limits, closed);
    tokio::join!(serving, ending);
}
