//! A request of the ledger for a turn before its time.
//!
//! Problem: an answer to a runtime, or the start of a container, leaves something for a turn: a record in the
//! journal, pins to restore, CPUs to hand on. Idea: the request is kept until the engine takes it, and wakes
//! the thread that waits between two turns.
//!
//! Invariant: a request is taken once, and no request is lost while there is no waker.

use enforcer_kernel::waker::Waker;

/// Whether an early turn is requested.
#[derive(Debug, Default)]
pub(in crate::engine) struct EarlyTurn {
    requested: bool,
    /// Woken by a request.
    waker: Option<Waker>,
}

impl EarlyTurn {
    /// Requests an early turn.
    pub(in crate::engine) fn request(&mut self) {
        self.requested = true;
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Takes the request, if there is one.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.requested)
    }

    /// Sets the waker for requests.
    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }
}
