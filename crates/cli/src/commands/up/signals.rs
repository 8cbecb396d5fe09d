//! What tells the process to end: Ctrl-C, SIGTERM, or a terminal that is closed.

use kiln_diagnostic::Diagnostic;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears of signals from the moment when it is made, so that none ends the process before it has tidied up.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Diagnostic> {
        let listen = |kind| {
            signal(kind).map_err(|error| Diagnostic::error(format!("cannot hear signals: {error}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}
