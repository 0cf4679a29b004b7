//! Prepares and gives up claims, one decision after another.
//!
//! The kubelet tries a claim that failed again after a minute or more, so a call waits here for what will
//! soon be true: a server that answers, or CPUs of a claim that is being given up. It ends before the
//! kubelet's own limit, with what was missing last.
//!
//! Locks: `deciding` is held over a decision and its writes, `state` only to read or to put in what was
//! written. So a container that is being made never waits for a disk.
//!
//! A decision and its writes run on a thread of their own, to their end: what waits for a slow disk keeps
//! neither the registration nor the health of devices waiting, and a call that ends leaves nothing half done.
//! A claim that is prepared already needs no write, and is answered meanwhile.

mod give_up;
mod prepare;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use enforcer_core::dra::{ClaimLedger, ClaimSupply, ClaimUid, MissingAmounts, PreparedClaim, PreparedDevice};
use enforcer_runtime::dra::{BoxedAnswer, ClaimCalls, DeviceCondition, DeviceHealthReport, KubeletClaim};
use numa_topology::{set::CpuSet, text::printable_within};
use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    lock::ClaimLock,
    places::ClaimPlaces,
    running::RunningCalls,
    runtime_link::{RuntimeReadiness, RuntimeWait},
    source::ClaimSource,
    store::ClaimStore,
    tally::ClaimTally,
};
/// Longest time of a call: the kubelet gives it up after 45 s.
const LIMIT: Duration = Duration::from_secs(40);
/// Longest time of one try to read a claim.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(5);
/// Most tries to take CPUs that no container gets meanwhile.
const TRIES: usize = 3;
/// Why a claim is not decided in time.
const SLOW_DISK: &str = "earlier claims are still being written to the disk";

/// Longest reason of others, in characters.
const LONGEST_REASON: usize = 500;

/// How claims are prepared.
#[derive(Debug, Clone)]
pub struct DriverSettings {
    /// Name of the driver.
    pub driver: String,
    /// What a device without amounts means.
    pub missing: MissingAmounts,
    /// Whether several pods may share exclusive CPUs.
    pub share_exclusive: bool,
    /// Whether the daemon keeps interrupts off exclusive CPUs; a reload of the configuration changes it.
    pub steers_interrupts: Arc<AtomicBool>,
}

/// The claims of this node.
pub struct ClaimDriver {
    settings: DriverSettings,
    store: ClaimStore,
    source: Arc<dyn ClaimSource>,
    places: Arc<dyn ClaimPlaces>,
    /// Held over a decision and its writes.
    deciding: Arc<AsyncMutex<()>>,
    state: Mutex<DriverState>,
    /// Number of changes of the ledger.
    changes: watch::Sender<u64>,
    /// Calls that prepare claims.
    running: RunningCalls,
    runtime: RuntimeReadiness,
    /// Keeps other daemons from the claims of this node.
    #[expect(dead_code, reason = "it is held, not read")]
    lock: Option<ClaimLock>,
    began: Instant,
    tally: Arc<ClaimTally>,
}

pub(super) struct DriverState {
    pub(super) ledger: ClaimLedger,
    pub(super) supply: ClaimSupply,
    interrupt_cpus: CpuSet,
    /// Whether the disk may have other claims than the ledger, because a write failed or is still due.
    pub(super) is_unwritten: bool,
    /// Claims that are being given up.
    ending: BTreeSet<ClaimUid>,
}

impl ClaimDriver {
    /// Goes on with this ledger, as the store has it.
    #[must_use]
    pub fn new(
        settings: DriverSettings,
        store: ClaimStore,
        source: Arc<dyn ClaimSource>,
        places: Arc<dyn ClaimPlaces>,
        mut ledger: ClaimLedger,
    ) -> Self {
        let supply = places.supply().unwrap_or_default();
        // The machine may be another one than that of the recorded claims.
        let is_unwritten = !ledger.settle(&supply).is_empty();
        places.hold_all(&ledger, &supply);
        let (interrupt_cpus, ending) = (CpuSet::new(), BTreeSet::new());
        let state = Mutex::new(DriverState { ledger, supply, interrupt_cpus, is_unwritten, ending });
        Self {
            settings,
            store,
            source,
            places,
            deciding: Arc::default(),
            state,
            changes: watch::Sender::new(0),
            running: RunningCalls::default(),
            runtime: RuntimeReadiness::new(),
            lock: None,
            began: Instant::now(),
            tally: Arc::default(),
        }
    }

    /// Goes on although the disk has other claims or files than the ledger: they are written with the first
    /// change.
    #[must_use]
    pub fn with_unwritten(self, is_unwritten: bool) -> Self {
        self.state().is_unwritten |= is_unwritten;
        self
    }

    /// Holds the lock of the claims' state as long as it is there.
    #[must_use]
    pub fn with_lock(self, lock: ClaimLock) -> Self {
        Self { lock: Some(lock), ..self }
    }

    /// Lets new claims wait so for the container runtime.
    #[must_use]
    pub fn with_runtime_wait(mut self, wait: RuntimeWait) -> Self {
        self.runtime.wait = wait;
        self
    }

    /// The container runtime has told all its containers, and tells changes from now on: new claims need not
    /// wait any more.
    pub fn containers_known(&self) {
        self.runtime.set_listed();
        self.tell();
    }

    /// The link to the container runtime is lost.
    pub fn runtime_lost(&self) {
        self.runtime.set_lost();
        self.tell();
    }

    /// Counts of calls.
    #[must_use]
    pub fn tally(&self) -> Arc<ClaimTally> {
        Arc::clone(&self.tally)
    }

    /// Tells each change of the ledger.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// All exclusive CPUs of claims.
    #[must_use]
    pub fn exclusive_cpus(&self) -> CpuSet {
        self.state().ledger.exclusive_cpus()
    }

    /// The health of these devices, as the kubelet is told it.
    #[must_use]
    pub fn health(&self, devices: &[String]) -> DeviceHealthReport {
        let runtime_fault = self.runtime.fault();
        let state = self.state();
        let mut ailing: BTreeMap<String, String> = (state.ledger.ailing_devices().into_iter())
            .map(|(device, message)| (device.to_string(), message))
            .collect();
        let condition = |name: &String| {
            let ailing = ailing.remove(name).or_else(|| runtime_fault.map(str::to_owned));
            let ailing = ailing.map(DeviceCondition::Unhealthy);
            (name.clone(), ailing.unwrap_or(DeviceCondition::Healthy))
        };
        let devices = devices.iter().map(condition).collect();
        DeviceHealthReport { pool: state.ledger.node().to_owned(), devices }
    }

    /// When the health of devices changes without a change of claims or of the machine.
    pub(super) fn health_due(&self) -> Option<Instant> {
        self.runtime.fault_due()
    }

    /// Takes what claims may have of the machine by now, and the CPUs that serve interrupts from now on.
    /// Claims that have lost a CPU get another one where there is one.
    ///
    /// # Errors
    /// If the claims have other CPUs now and that cannot be written; they have them all the same.
    pub async fn observe_machine(self: &Arc<Self>, interrupt_cpus: CpuSet) -> Result<(), String> {
        self.decision(None, move |driver| driver.settle_machine(interrupt_cpus)).await.flatten()
    }

    fn settle_machine(&self, interrupt_cpus: CpuSet) -> Result<(), String> {
        let mut ledger = self.ledger();
        let is_changed = self.settle_and_hold(&mut ledger);
        {
            let mut state = self.state();
            state.is_unwritten |= is_changed;
            state.interrupt_cpus = interrupt_cpus;
            state.ledger = ledger.clone();
        }
        let written = self.catch_up(&ledger);
        // Also without a repair: there may be more for those that wait.
        self.tell();
        written
    }

    /// Makes these claims fit what the machine has now, and has the placement hold them. A CPU that a
    /// container without a claim gets meanwhile goes to no claim. Returns whether a claim has other CPUs now.
    pub(super) fn settle_and_hold(&self, ledger: &mut ClaimLedger) -> bool {
        for _ in 0..TRIES {
            let supply = self.newest_supply();
            let mut settled = ledger.clone();
            let is_changed = !settled.settle(&supply).is_empty();
            if self.places.hold(&settled, &supply).is_ok() {
                *ledger = settled;
                return is_changed;
            }
        }
        let supply = self.newest_supply();
        let is_changed = !ledger.settle_losses(&supply).is_empty();
        self.places.hold_all(ledger, &supply);
        is_changed
    }

    /// Reads a claim of the ledger again: pods may have been added that may have it, or only its CPUs and
    /// name may be known, as a file has told them. A claim that cannot be read stays as it is. Returns
    /// whether the API server has answered for it.
    pub async fn read_again(self: &Arc<Self>, uid: &ClaimUid) -> bool {
        let (claim, is_recovered) = {
            let state = self.state();
            let known = state.ledger.claim(uid).filter(|known| !known.name.is_empty());
            let Some(known) = known else { return true };
            (named(known), known.is_recovered())
        };
        let name = shown(&claim);
        let (is_answered, error) = match self.prepare_again(&claim, uid).await {
            Ok(()) if is_recovered => {
                tracing::info!("claim {name}, of which only its file was left, is whole");
                return true;
            }
            Ok(()) => return true,
            Err(failed) => failed,
        };
        if is_recovered {
            tracing::warn!("claim {name} was not read again (its file alone is left): {error}");
        } else {
            // Any pod may name it for as long as it likes.
            tracing::debug!("claim {name} was not read again (a container of another pod names it): {error}");
        }
        is_answered
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.settings.driver
    }

    /// The claims of now.
    pub(super) fn ledger(&self) -> ClaimLedger {
        self.state().ledger.clone()
    }

    /// Claims of which only their CPUs and names are known.
    pub(super) fn recovered(&self) -> Vec<ClaimUid> {
        let state = self.state();
        let recovered = state.ledger.claims().filter(|claim| claim.is_recovered() && !claim.name.is_empty());
        recovered.map(|claim| claim.uid.clone()).collect()
    }

    /// Writes what an earlier write has left out.
    fn catch_up(&self, ledger: &ClaimLedger) -> Result<(), String> {
        if self.state().is_unwritten {
            let written = self.store.write(ledger).and_then(|()| self.store.tidy(ledger));
            written.map_err(|error| error.to_string())?;
            self.state().is_unwritten = false;
        }
        Ok(())
    }

    /// Decides and writes on a thread of its own, alone, whatever becomes of the caller.
    pub(super) async fn decision<T: Send + 'static>(
        self: &Arc<Self>,
        until: Option<Instant>,
        decide: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, String> {
        let lock = Arc::clone(&self.deciding).lock_owned();
        let alone = match until {
            Some(until) => timeout_at(until, lock).await.map_err(|_elapsed| SLOW_DISK.to_owned())?,
            None => lock.await,
        };
        let driver = Arc::clone(self);
        let decided = spawn_blocking(move || {
            let decided = decide(&driver);
            drop(alone);
            decided
        });
        decided.await.map_err(|error| format!("deciding about claims: {error}"))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) const fn store(&self) -> &ClaimStore {
        &self.store
    }

    pub(super) fn places(&self) -> &dyn ClaimPlaces {
        &*self.places
    }

    pub(super) fn source(&self) -> &dyn ClaimSource {
        &*self.source
    }

    /// Time since the start of the driver.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// What claims may have now.
    pub(super) fn newest_supply(&self) -> ClaimSupply {
        let newest = self.places.supply();
        let mut state = self.state();
        if let Some(newest) = newest {
            state.supply = newest;
        }
        state.supply.clone()
    }

    /// Has the placement hold the claims of the ledger.
    fn hold(&self, ledger: &ClaimLedger) {
        let supply = self.newest_supply();
        self.places.hold_all(ledger, &supply);
    }
}

/// A prepared claim as the kubelet names it.
pub(super) fn named(claim: &PreparedClaim) -> KubeletClaim {
    let (namespace, name) = (claim.namespace.clone(), claim.name.clone());
    KubeletClaim { uid: claim.uid.to_string(), namespace, name }
}

fn shown(claim: &KubeletClaim) -> String {
    printable_within(&format!("{}/{}", claim.namespace, claim.name), LONGEST_REASON)
}

/// The calls of the kubelet to a driver.
pub(super) struct DriverCalls(pub(super) Arc<ClaimDriver>);

impl ClaimCalls for DriverCalls {
    fn prepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, Vec<PreparedDevice>> {
        Box::pin(self.0.prepare(claim))
    }

    fn unprepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, ()> {
        Box::pin(self.0.unprepare(claim))
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
