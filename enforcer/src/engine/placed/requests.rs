//! Requests of the ledger: for a turn before its time, and for a new list of all containers.
//!
//! Problem: an answer to a runtime, or the start of a container, leaves something for a turn: a record in the
//! journal, pins to restore, CPUs to hand on. Idea: the request is kept until the engine takes it, and wakes
//! the thread that waits between two turns.
//!
//! Invariant: a request is taken once, and no request is lost while there is no waker.

use std::sync::Arc;

use tokio::sync::Notify;

use enforcer_kernel::waker::Waker;

/// What is requested of the engine and of the runtime link.
#[derive(Debug, Default)]
pub(in crate::engine) struct LedgerRequests {
    /// A turn before its time is requested.
    pub(in crate::engine) early_turn: EarlyTurn,
    /// Notified when the runtime must list its containers again.
    again: Arc<Notify>,
    /// At least one container has an unknown cpuset owner: once owners are known, containers are listed
    /// again.
    pub(super) left_alone: bool,
}

impl LedgerRequests {
    /// Requests a new list of all containers.
    pub(super) fn relist(&self) {
        self.again.notify_one();
    }

    /// Notifier of requests for a new list.
    pub(super) fn relisting(&self) -> Arc<Notify> {
        Arc::clone(&self.again)
    }

    /// Whether a container has an unknown owner. Clears that mark.
    pub(super) fn take_left_alone(&mut self) -> bool {
        std::mem::take(&mut self.left_alone)
    }
}

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
