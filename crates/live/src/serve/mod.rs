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
//! | `keeper` | keeps desk, certificates and webhook configurations as policies need them |
//! | `server` | connections, their limits, and how they end |
//! | `answer` | what is answered at which path |
//! | `bodies` | how many bytes of reviews are there at once |
//! | `carriers` | how many requests are written down for whoever acts |
//! | `places` | who gives up a connection when somebody else wants one |
//! | `tls` | the certificate that is served now |
//! | `turns` | how many reviews are at work at once |
//! | `view` | objects and surroundings for rules that ask while a request waits |

mod answer;
mod bodies;
mod carriers;
mod keeper;
mod places;
mod server;
mod tls;
mod turns;
mod view;

use std::collections::HashMap;
use std::sync::Arc;

use kiln_admission::{Hooks, Settings};
use kiln_engine::User;
use kiln_rules::PolicyId;
use kiln_services::Services;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::state::Shared;
use crate::supervisor::{OnPanic, Supervisor};

pub use carriers::CarrierLimits;
pub use server::Limits;
pub use tls::ClientAuthority;

/// What answers reviews: rules and settings that belong together.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) hooks: Hooks,
    pub(crate) settings: Settings,
    pub(crate) services: Services,
    /// Whose rights policies are held to.
    pub(crate) authors: Arc<HashMap<PolicyId, User>>,
}

/// Serves until the process is to end. A process that only controls serves health and metrics.
pub async fn serve(shared: Shared, admits: bool) {
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
    serve_on(shared, listener, admits, Limits::default()).await;
}

/// Serves on a socket until the process is to end.
pub async fn serve_on(shared: Shared, listener: TcpListener, admits: bool, limits: Limits) {
    let settings = Settings::new(&shared.options.namespace);
    let first = Arc::new(Desk {
        hooks: Hooks::default(),
        settings,
        services: Services::default(),
        authors: Arc::default(),
    });
    let (desk_sender, desk) = watch::channel(first);
    let certificate = tls::Served::default();
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "listens");
    }
    let mut shutdown = shared.shutdown.clone();
    let keeping = async {
        if admits {
            let keep = || keeper::keep(shared.clone(), &desk_sender, &certificate);
            Supervisor::of(&shared).keep("webhooks", OnPanic::Restart, keep).await;
        } else {
            keeper::serve_own_certificate(&shared, &certificate);
            std::future::pending::<()>().await;
        }
    };
    let (close, closed) = watch::channel(false);
    let ending = async {
        tokio::select! {
            () = keeping => {}
            _ = shutdown.wait_for(|end| *end) => {}
        }
        // Whoever asks whether it is ready sends requests elsewhere; those that still come are answered.
        shared.health.bad("server", "the process ends");
        if admits {
            if shared.options.webhook_url.is_some() && !shared.options.leave_webhooks {
                // Nobody else answers at the address of one process.
                keeper::take_back(&shared).await;
            }
            tokio::time::sleep(shared.options.linger).await;
        }
        let _ = close.send(true);
    };
    let serving = server::serve(&shared, listener, &certificate, desk, limits, closed);
    tokio::join!(serving, ending);
}
