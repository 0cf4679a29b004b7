//! Whether the container runtime has told which containers there are.
//!
//! Before that, containers of an earlier daemon's claims may run that the ledger does not know to be
//! running, so what is free is not known. A new claim waits, for a grace or until the runtime has told,
//! within the time that the kubelet gives a call.

use std::time::Duration;

use enforcer_core::policy::DraSettings;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// How long claims wait for the container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeWait {
    /// For this time after the start of the driver. Containers are corrected when the runtime tells of them.
    Grace(Duration),
    /// Until the runtime has told, or the call ends.
    Required,
}

impl RuntimeWait {
    /// As it is configured.
    pub(crate) fn of(dra: &DraSettings) -> Self {
        if dra.require_nri { Self::Required } else { Self::default() }
    }
}

impl Default for RuntimeWait {
    /// A grace of 20 s.
    fn default() -> Self {
        Self::Grace(Duration::from_secs(20))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// The runtime has not told its containers yet.
    Unlisted,
    /// They are known, and changes are told.
    Listed,
    /// The runtime tells no changes any more, since then.
    Lost(Instant),
}

/// The link to the container runtime, as claims see it.
#[derive(Debug)]
pub(super) struct RuntimeReadiness {
    state: watch::Sender<LinkState>,
    pub(super) wait: RuntimeWait,
    began: Instant,
}

impl RuntimeReadiness {
    /// Of a driver that starts now.
    pub(super) fn new() -> Self {
        Self {
            state: watch::Sender::new(LinkState::Unlisted),
            wait: RuntimeWait::default(),
            began: Instant::now(),
        }
    }

    pub(super) fn set_listed(&self) {
        self.state.send_replace(LinkState::Listed);
    }

    pub(super) fn set_lost(&self) {
        self.state.send_replace(LinkState::Lost(Instant::now()));
    }

    /// What is wrong with it; `None` as long as it may come.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let grace = match self.wait {
            RuntimeWait::Grace(grace) => grace,
            RuntimeWait::Required => Duration::ZERO,
        };
        match *self.state.borrow() {
            LinkState::Listed => None,
            LinkState::Unlisted if self.began.elapsed() < grace => None,
            LinkState::Unlisted => Some("the container runtime has not told its containers (NRI)"),
            LinkState::Lost(_) => Some("the link to the container runtime is lost (NRI)"),
        }
    }

    /// When [`Self::fault`] changes without a call: at the end of the grace after the start.
    pub(super) fn fault_due(&self) -> Option<Instant> {
        let RuntimeWait::Grace(grace) = self.wait else { return None };
        let end = self.began + grace;
        (*self.state.borrow() == LinkState::Unlisted && end > Instant::now()).then_some(end)
    }

    /// Waits until the containers are known, or the grace is over: of the start, or of the loss of the link.
    ///
    /// # Errors
    /// What was waited for, at the end of the call.
    pub(super) async fn wait(&self, until: Instant) -> Result<(), &'static str> {
        let since = match *self.state.borrow() {
            LinkState::Lost(at) => at,
            LinkState::Unlisted | LinkState::Listed => self.began,
        };
        let grace_end = match self.wait {
            RuntimeWait::Grace(grace) => Some(since + grace),
            RuntimeWait::Required => None,
        };
        let mut state = self.state.subscribe();
        let listed = state.wait_for(|state| *state == LinkState::Listed);
        let is_listed = timeout_at(grace_end.unwrap_or(until).min(until), listed).await.is_ok();
        if is_listed || grace_end.is_some_and(|end| end <= Instant::now()) {
            return Ok(());
        }
        Err(self.fault().unwrap_or("the container runtime has not told its containers yet (NRI)"))
    }
}
