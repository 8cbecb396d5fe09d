//! What the loop around the controller hears, and how it gives that to the controller.

use std::sync::Arc;
use std::time::Duration;

use kiln_controller::ClaimKeys;
use kiln_engine::{Globals, ObservedRequest};
use kiln_object::{Gvk, Kinds};
use tokio::sync::{mpsc, watch};

use super::{AT_ONCE, CallAnswer, ControllerLoop, ToldAnswer, now};
use crate::lease::TermEnd;
use crate::policy_store::Registry;
use crate::watch::WatchNews;

/// What the loop hears: what tasks tell, what other parts of the process know, and when to end.
pub(super) struct LoopInputs<'h> {
    pub(super) news: mpsc::Receiver<(Gvk, WatchNews)>,
    pub(super) answered: mpsc::Receiver<CallAnswer>,
    pub(super) services_answered: mpsc::Receiver<ToldAnswer>,
    pub(super) hints: &'h mut mpsc::Receiver<ObservedRequest>,
    pub(super) kinds: watch::Receiver<Kinds>,
    pub(super) registry: watch::Receiver<Arc<Registry>>,
    pub(super) globals: watch::Receiver<Arc<Globals>>,
    pub(super) claim_keys: watch::Receiver<Option<ClaimKeys>>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) term: TermEnd,
}

/// What was heard.
pub(super) enum Heard {
    /// Something for the controller, or nothing for a while.
    Input,
    /// The process may be about to end.
    Shutdown,
    /// The term is over.
    TermEnd,
}

impl ControllerLoop {
    /// Waits for the next input, and gives it to the controller.
    ///
    /// Events come in bursts (a list has thousands). Taking many before acting lets the work queue join those of one key;
    /// the bound keeps answers and the Lease from waiting behind a burst.
    pub(super) async fn hear(&mut self, inputs: &mut LoopInputs<'_>, wait: Duration) -> Heard {
        tokio::select! {
            Some((gvk, told)) = inputs.news.recv() => {
                self.told(&gvk, told);
                for _ in 0..AT_ONCE {
                    let Ok((gvk, told)) = inputs.news.try_recv() else { break };
                    self.told(&gvk, told);
                }
            }
            Some((ticket, answer)) = inputs.answered.recv() => {
                self.controller.answer(ticket, answer, now());
                for _ in 0..AT_ONCE {
                    let Ok((ticket, answer)) = inputs.answered.try_recv() else { break };
                    self.controller.answer(ticket, answer, now());
                }
            }
            Some((number, answer)) = inputs.services_answered.recv() => {
                self.controller.answered(number, answer, now());
                for _ in 0..AT_ONCE {
                    let Ok((number, answer)) = inputs.services_answered.try_recv() else { break };
                    self.controller.answered(number, answer, now());
                }
            }
            Some(hint) = inputs.hints.recv() => self.hint(hint),
            Ok(()) = inputs.kinds.changed() => {
                let known = inputs.kinds.borrow_and_update().clone();
                self.controller.set_kinds(known);
            }
            Ok(()) = inputs.registry.changed() => {
                let stored = inputs.registry.borrow_and_update().clone();
                self.stored(&stored);
            }
            Ok(()) = inputs.globals.changed() => {
                self.controller.set_globals(inputs.globals.borrow_and_update().clone());
            }
            Ok(()) = inputs.claim_keys.changed() => {
                let keys = inputs.claim_keys.borrow_and_update().clone().unwrap_or_default();
                self.controller.configure(|settings| settings.claim_keys = keys);
            }
            Ok(()) = inputs.shutdown.changed() => return Heard::Shutdown,
            () = inputs.term.comes() => return Heard::TermEnd,
            () = tokio::time::sleep(wait) => {}
        }
        Heard::Input
    }
}
