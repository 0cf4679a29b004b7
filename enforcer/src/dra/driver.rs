//! Prepares and gives up claims, one decision after another.
//!
//! The kubelet tries a claim that failed again after a minute or more, so a call waits here for what will
//! soon be true: a server that answers, or CPUs of a claim that is being given up. It ends before the
//! kubelet's own limit, with what was missing last.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use enforcer_core::dra::{
    ClaimAllocation, ClaimContext, ClaimSupply, ClaimUid, Ledger, LedgerLimits, MissingAmounts,
    PrepareDecision, PreparedClaim,
    binding::{Bound, ContainerHints, bind},
    cdi,
};
use enforcer_runtime::dra::{BoxedAnswer, ClaimCalls, KubeletClaim, PreparedDevice};
use numa_topology::set::CpuSet;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::store::ClaimStore;
use crate::wall_clock;

/// Longest time of a call: the kubelet gives it up after 45 s.
const LIMIT: Duration = Duration::from_secs(40);
/// Time between two tries to read a claim.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for the API server about a claim that is prepared already, of which only pods may be new.
const REPEATED: Duration = Duration::from_secs(5);

/// Reads claims of the API server.
pub trait ClaimSource: Send + Sync + 'static {
    /// The claim of this namespace and name; an error may be over at the next try.
    fn read(&self, claim: &KubeletClaim) -> BoxedAnswer<'_, Value>;
}

/// How claims are prepared.
#[derive(Debug, Clone)]
pub struct DriverSettings {
    /// Name of the driver.
    pub driver: String,
    /// What a device without amounts means.
    pub missing: MissingAmounts,
    /// Whether several pods may share exclusive CPUs.
    pub share_exclusive: bool,
}

/// The claims of this node.
pub struct ClaimDriver {
    settings: DriverSettings,
    store: ClaimStore,
    source: Arc<dyn ClaimSource>,
    state: Mutex<DriverState>,
    /// Number of changes of the ledger.
    changes: watch::Sender<u64>,
}

struct DriverState {
    ledger: Ledger,
    supply: ClaimSupply,
    interrupt_cpus: CpuSet,
}

impl ClaimDriver {
    /// Goes on with this ledger, as the store has it, on a machine with this supply.
    #[must_use]
    pub fn new(
        settings: DriverSettings,
        store: ClaimStore,
        source: Arc<dyn ClaimSource>,
        (ledger, supply): (Ledger, ClaimSupply),
    ) -> Self {
        let state = Mutex::new(DriverState { ledger, supply, interrupt_cpus: CpuSet::new() });
        Self { settings, store, source, state, changes: watch::Sender::new(0) }
    }

    /// Tells each change of the ledger.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What a container gets of the claims that it refers to.
    #[must_use]
    pub fn bind(&self, hints: &ContainerHints<'_>) -> Bound {
        let state = self.state();
        bind(hints, &state.ledger, &state.supply)
    }

    /// All exclusive CPUs of claims.
    #[must_use]
    pub fn exclusive_cpus(&self) -> CpuSet {
        self.state().ledger.exclusive_cpus()
    }

    /// Takes what claims may have of the machine from now on, and the CPUs that serve interrupts. Claims that
    /// have lost a CPU get another one where there is one.
    ///
    /// # Errors
    /// If the claims have other CPUs now and that cannot be written; they have them all the same.
    pub fn observe_machine(&self, supply: ClaimSupply, interrupt_cpus: CpuSet) -> Result<(), String> {
        let mut state = self.state();
        let repairs = state.ledger.settle(&supply);
        (state.supply, state.interrupt_cpus) = (supply, interrupt_cpus);
        if repairs.is_empty() {
            return Ok(());
        }
        let written = self.store.write(&state.ledger).and_then(|()| self.store.tidy(&state.ledger));
        drop(state);
        self.tell();
        written.map_err(|error| error.to_string())
    }

    fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The claim as the API server has it; tried again until then, or once.
    async fn allocation(
        &self,
        claim: &KubeletClaim,
        until: Instant,
        once: bool,
    ) -> Result<ClaimAllocation, String> {
        let node = self.state().ledger.node().to_owned();
        let context = ClaimContext {
            driver: &self.settings.driver,
            pool: &node,
            uid: &claim.uid,
            missing: self.settings.missing,
        };
        loop {
            let why = match timeout_at(until, self.source.read(claim)).await {
                Ok(Ok(object)) => {
                    return ClaimAllocation::read(&object, &context)
                        .map_err(|error| format!("claim {}/{}: {error}", claim.namespace, claim.name));
                }
                Ok(Err(why)) => why,
                Err(_elapsed) => "the API server does not answer".to_owned(),
            };
            if once || Instant::now() + AGAIN >= until {
                return Err(why);
            }
            sleep(AGAIN).await;
        }
    }

    async fn prepare_claim(&self, claim: KubeletClaim) -> Result<Vec<PreparedDevice>, String> {
        let until = Instant::now() + LIMIT;
        let uid = ClaimUid::parse(&claim.uid).ok_or_else(|| format!("{:?} is no uid", claim.uid))?;
        let is_known = self.state().ledger.claim(&uid).is_some();
        let patience = if is_known { Instant::now() + REPEATED } else { until };
        let allocation = match self.allocation(&claim, patience, is_known).await {
            Err(_unread) if is_known => return self.answer_again(&uid),
            allocation => allocation?,
        };
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let shortage = match self.decide(&allocation)? {
                Ok(devices) => return Ok(devices),
                Err(shortage) => shortage,
            };
            if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return Err(format!("claim {}/{}: {shortage}", claim.namespace, claim.name));
            }
        }
    }

    /// One decision: devices, or what is short.
    fn decide(&self, claim: &ClaimAllocation) -> Result<Result<Vec<PreparedDevice>, String>, String> {
        let mut state = self.state();
        let mut next = state.ledger.clone();
        let limits = LedgerLimits {
            now: wall_clock::unix_ms() / 1_000,
            share_exclusive: self.settings.share_exclusive,
            interrupt_cpus: &state.interrupt_cpus,
        };
        let decision = next.prepare(claim, &state.supply, &limits).map_err(|error| error.to_string())?;
        let is_changed = match decision {
            PrepareDecision::Prepared => true,
            PrepareDecision::Repeated { is_changed } => is_changed,
            PrepareDecision::Wait(shortage) => return Ok(Err(shortage.to_string())),
        };
        if is_changed {
            self.store.write(&next).map_err(|error| error.to_string())?;
        }
        let Some(prepared) = next.claim(&claim.uid) else {
            return Err(format!("claim {} is not in the ledger", claim.uid));
        };
        if let Err(error) = self.store.add(prepared) {
            // If the state on disk keeps the claim, its next request finds it there.
            let _kept = is_changed.then(|| self.store.write(&state.ledger));
            return Err(error.to_string());
        }
        let devices = devices_of(prepared, next.node());
        state.ledger = next;
        drop(state);
        if is_changed {
            self.tell();
        }
        Ok(Ok(devices))
    }

    /// The answer of a prepared claim.
    fn answer_again(&self, uid: &ClaimUid) -> Result<Vec<PreparedDevice>, String> {
        let state = self.state();
        let prepared = state.ledger.claim(uid).ok_or_else(|| format!("claim {uid} was given up"))?;
        self.store.add(prepared).map_err(|error| error.to_string())?;
        Ok(devices_of(prepared, state.ledger.node()))
    }

    fn unprepare_claim(&self, claim: &KubeletClaim) -> Result<(), String> {
        // A uid that is none was never prepared.
        let Some(uid) = ClaimUid::parse(&claim.uid) else { return Ok(()) };
        let mut state = self.state();
        let mut next = state.ledger.clone();
        if next.unprepare(&uid).is_none() {
            return Ok(());
        }
        let removed = self.store.remove(&uid).and_then(|()| self.store.write(&next));
        removed.map_err(|error| error.to_string())?;
        state.ledger = next;
        drop(state);
        self.tell();
        Ok(())
    }
}

/// What the kubelet is told of a claim.
fn devices_of(claim: &PreparedClaim, node: &str) -> Vec<PreparedDevice> {
    let device = cdi::device_id(&claim.uid);
    let own = claim.results.iter().map(|prepared| PreparedDevice {
        requests: vec![prepared.result.base_request().to_owned()],
        pool: node.to_owned(),
        device: prepared.result.device.to_string(),
        cdi_ids: vec![device.clone()],
        share_id: prepared.result.share_id.clone(),
    });
    own.collect()
}

impl ClaimCalls for ClaimDriver {
    fn prepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, Vec<PreparedDevice>> {
        Box::pin(self.prepare_claim(claim))
    }

    fn unprepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, ()> {
        Box::pin(async move { self.unprepare_claim(&claim) })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
