//! What tells the process to end: Ctrl-C, SIGTERM, or a terminal that is closed.

use kiln_diagnostic::Diagnostic;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// The number of the signal of Ctrl-C.
pub(super) const INTERRUPT: i32 = 2;

/// Hears of signals from the moment when it is made, so that none ends the process before it has tidied up.
#[cfg(unix)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> Result<Self, Diagnostic> {
        let listen = |kind| signal(kind).map_err(|error| cannot_hear(&error));
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

/// Hears of Ctrl-C from the moment when it is made.
#[cfg(windows)]
pub(super) struct Signals(CtrlC);

#[cfg(windows)]
impl Signals {
    pub(super) fn listen() -> Result<Self, Diagnostic> {
        Ok(Signals(ctrl_c().map_err(|error| cannot_hear(&error))?))
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        self.0.recv().await;
        INTERRUPT
    }
}

fn cannot_hear(error: &std::io::Error) -> Diagnostic {
    Diagnostic::error(format!("cannot listen for signals: {error}"))
}
