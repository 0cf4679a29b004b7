//! Prepares and gives up claims, one decision after another.
//!
//! The kubelet tries a claim that failed again after a minute or more, so a call waits here for what will
//! soon be true: a server that answers, or CPUs of a claim that is being given up. It ends before the
//! kubelet's own limit, with what was missing last.
//!
//! Locks: `deciding` is held over a decision and its writes, `state` only to read or to put in what was
//! written. So a container that is being made never waits for a disk.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use enforcer_core::dra::{
    ClaimAllocation, ClaimConsumer, ClaimContext, ClaimLedger, ClaimSupply, ClaimUid, LedgerLimits,
    MissingAmounts, PrepareDecision, PreparedClaim, PreparedDevice,
};
use enforcer_runtime::dra::{BoxedAnswer, ClaimCalls, DeviceCondition, DeviceHealthReport, KubeletClaim};
use numa_topology::{set::CpuSet, text::printable_within};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::{
    lock::ClaimLock,
    places::ClaimPlaces,
    running::{RunningCall, RunningCalls},
    runtime_link::{RuntimeReadiness, RuntimeWait},
    source::{ClaimSource, UnreadClaim},
    store::ClaimStore,
    tally::ClaimTally,
};
use crate::wall_clock;

/// Longest time of a call: the kubelet gives it up after 45 s.
const LIMIT: Duration = Duration::from_secs(40);
/// Longest time of one try to read a claim.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(5);
/// Time between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// Most tries to take CPUs that no container gets meanwhile.
const TRIES: usize = 3;

/// Why a claim is not prepared that the kubelet gives up at the same time.
const GIVEN_UP: &str = "the kubelet has given it up meanwhile";

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
}

/// The claims of this node.
pub struct ClaimDriver {
    settings: DriverSettings,
    store: ClaimStore,
    source: Arc<dyn ClaimSource>,
    places: Arc<dyn ClaimPlaces>,
    /// Held over a decision; whether the disk may have other claims than the ledger, because a write failed.
    deciding: Mutex<bool>,
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
        let state = Mutex::new(DriverState { ledger, supply, interrupt_cpus: CpuSet::new() });
        let deciding = Mutex::new(is_unwritten);
        Self {
            settings,
            store,
            source,
            places,
            deciding,
            state,
            changes: watch::Sender::new(0),
            running: RunningCalls::default(),
            runtime: RuntimeReadiness::new(),
            lock: None,
            began: Instant::now(),
            tally: Arc::default(),
        }
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
    pub fn observe_machine(&self, interrupt_cpus: CpuSet) -> Result<(), String> {
        let mut is_unwritten = self.deciding();
        let supply = self.newest_supply();
        let ledger = {
            let mut state = self.state();
            *is_unwritten |= !state.ledger.settle(&supply).is_empty();
            state.interrupt_cpus = interrupt_cpus;
            state.ledger.clone()
        };
        self.places.hold_all(&ledger, &supply);
        let written = self.catch_up(&mut is_unwritten, &ledger);
        drop(is_unwritten);
        // Also without a repair: there may be more for those that wait.
        self.tell();
        written
    }

    /// Reads a claim of the ledger again: pods may have been added that may have it, or only its CPUs and
    /// name may be known, as a file has told them. A claim that cannot be read stays as it is.
    pub async fn read_again(&self, uid: &ClaimUid) {
        let (claim, is_recovered) = {
            let state = self.state();
            let known = state.ledger.claim(uid).filter(|known| !known.name.is_empty());
            let Some(known) = known else { return };
            (named(known), known.is_recovered())
        };
        let name = shown(&claim);
        match self.prepare_claim(claim).await {
            Ok(_) if is_recovered => {
                tracing::info!("claim {name}, of which only its file was left, is whole");
            }
            Ok(_) => {}
            Err(error) => {
                let why = if is_recovered {
                    "its file alone is left"
                } else {
                    "a container of another pod names it"
                };
                tracing::warn!("claim {name} was not read again ({why}): {error}");
            }
        }
    }

    /// Claims of which only their CPUs and names are known.
    pub(super) fn recovered(&self) -> Vec<ClaimUid> {
        let state = self.state();
        let recovered = state.ledger.claims().filter(|claim| claim.is_recovered() && !claim.name.is_empty());
        recovered.map(|claim| claim.uid.clone()).collect()
    }

    /// Writes what an earlier write has left out.
    fn catch_up(&self, is_unwritten: &mut bool, ledger: &ClaimLedger) -> Result<(), String> {
        if *is_unwritten {
            let written = self.store.write(ledger).and_then(|()| self.store.tidy(ledger));
            written.map_err(|error| error.to_string())?;
            *is_unwritten = false;
        }
        Ok(())
    }

    pub(super) fn deciding(&self) -> MutexGuard<'_, bool> {
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The claim as the API server has it; tried again until then, or once.
    async fn object(&self, claim: &KubeletClaim, until: Instant, once: bool) -> Result<Value, UnreadClaim> {
        loop {
            let limit = until.min(Instant::now() + READ_LIMIT);
            let unread = match timeout_at(limit, self.source.read(claim)).await {
                Ok(Ok(object)) => return Ok(object),
                Ok(Err(unread)) => unread,
                Err(_elapsed) => UnreadClaim::Passing("the API server does not answer".to_owned()),
            };
            let is_passing = matches!(unread, UnreadClaim::Passing(_));
            if once || !is_passing || Instant::now() + AGAIN >= until {
                return Err(unread);
            }
            sleep(AGAIN).await;
        }
    }

    async fn prepare_claim(&self, claim: KubeletClaim) -> Result<Vec<PreparedDevice>, String> {
        let until = Instant::now() + LIMIT;
        let no_uid = || format!("claim {}: {} is no uid", shown(&claim), printable_within(&claim.uid, 80));
        let uid = ClaimUid::parse(&claim.uid).ok_or_else(no_uid)?;
        let running = self.running.begin(&uid);
        tokio::select! {
            biased;
            () = running.given_up() => Err(was_given_up(&claim)),
            answer = self.prepare_until(&claim, &running, &uid, until) => answer,
        }
    }

    async fn prepare_until(
        &self,
        claim: &KubeletClaim,
        running: &RunningCall<'_>,
        uid: &ClaimUid,
        until: Instant,
    ) -> Result<Vec<PreparedDevice>, String> {
        let (is_known, node) = {
            let state = self.state();
            let known = state.ledger.claim(uid).filter(|known| !known.is_recovered());
            (known.is_some(), state.ledger.node().to_owned())
        };
        let object = match self.object(claim, until, is_known).await {
            Ok(object) => object,
            // What was given up need not be prepared again.
            Err(unread) if is_known && !unread.is_gone() => return self.answer_again(uid, running),
            Err(unread) => {
                let why = printable_within(unread.why(), LONGEST_REASON);
                return Err(format!("reading claim {}: {why}", shown(claim)));
            }
        };
        let context = ClaimContext {
            driver: &self.settings.driver,
            pool: &node,
            uid: &claim.uid,
            missing: self.settings.missing,
        };
        let allocation = ClaimAllocation::read(&object, &context)
            .map_err(|error| format!("claim {}: {error}", shown(claim)))?;
        let is_group = |consumer: &ClaimConsumer| matches!(consumer, ClaimConsumer::Other { .. });
        if !allocation.consumers.is_empty() && allocation.consumers.iter().all(is_group) {
            return Err(format!(
                "claim {}: it is reserved for no pod: groups of pods are not served",
                shown(claim)
            ));
        }
        if !is_known {
            let listed = self.runtime.wait(until).await;
            listed.map_err(|fault| format!("claim {}: {fault}", shown(claim)))?;
        }
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let shortage = match self.decide(&allocation, running)? {
                Ok(devices) => return Ok(devices),
                Err(shortage) => shortage,
            };
            if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return Err(format!("claim {}: {shortage}", shown(claim)));
            }
        }
    }

    /// One decision: devices, or what is short.
    fn decide(
        &self,
        claim: &ClaimAllocation,
        running: &RunningCall<'_>,
    ) -> Result<Result<Vec<PreparedDevice>, String>, String> {
        let mut is_unwritten = self.deciding();
        if running.is_given_up() {
            return Err(format!("claim {}/{}: {GIVEN_UP}", claim.namespace, claim.name));
        }
        let (ledger, interrupt_cpus) = {
            let state = self.state();
            (state.ledger.clone(), state.interrupt_cpus.clone())
        };
        self.catch_up(&mut is_unwritten, &ledger)?;
        let limits = LedgerLimits {
            now: wall_clock::unix_ms() / 1_000,
            share_exclusive: self.settings.share_exclusive,
            interrupt_cpus: &interrupt_cpus,
        };
        let mut taken = CpuSet::new();
        for _ in 0..TRIES {
            let supply = self.newest_supply();
            let mut next = ledger.clone();
            let decision = next.prepare(claim, &supply, &limits).map_err(|error| error.to_string())?;
            let is_changed = match decision {
                PrepareDecision::Prepared => true,
                PrepareDecision::Repeated { is_changed } => is_changed,
                PrepareDecision::Wait(shortage) => return Ok(Err(shortage.to_string())),
            };
            if is_changed && let Err(others) = self.places.hold(&next, &supply) {
                taken = others;
                continue;
            }
            return self.answer((&mut is_unwritten, is_changed), next, &claim.uid).map(Ok);
        }
        Ok(Err(format!("containers without claims got the CPUs {taken} meanwhile")))
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

    /// The answer of a prepared claim while the API server does not tell of it.
    fn answer_again(&self, uid: &ClaimUid, running: &RunningCall<'_>) -> Result<Vec<PreparedDevice>, String> {
        let mut is_unwritten = self.deciding();
        if running.is_given_up() {
            return Err(format!("claim {uid}: {GIVEN_UP}"));
        }
        let mut next = self.state().ledger.clone();
        self.catch_up(&mut is_unwritten, &next)?;
        let repeated = next.repeat(uid);
        let is_changed = repeated == Some(PrepareDecision::Repeated { is_changed: true });
        if is_changed {
            self.hold(&next);
        }
        self.answer((&mut is_unwritten, is_changed), next, uid)
    }

    /// Writes the ledger if it has changed, and the file of the claim; then it counts, and is answered.
    fn answer(
        &self,
        (is_unwritten, is_changed): (&mut bool, bool),
        next: ClaimLedger,
        uid: &ClaimUid,
    ) -> Result<Vec<PreparedDevice>, String> {
        let prepared = next.claim(uid).ok_or_else(|| format!("claim {uid} was given up"))?;
        let written = if is_changed { self.store.write(&next) } else { Ok(()) };
        if let Err(error) = written.and_then(|()| self.store.add(prepared)) {
            *is_unwritten = true;
            // Now, if that can be done: a daemon that starts next finds what counts.
            let before = self.state().ledger.clone();
            let _later = self.catch_up(is_unwritten, &before);
            self.hold(&before);
            return Err(error.to_string());
        }
        let devices = prepared.answer(next.node());
        self.state().ledger = next;
        if is_changed {
            self.tell();
        }
        Ok(devices)
    }

    fn unprepare_claim(&self, claim: &KubeletClaim) -> Result<(), String> {
        // A uid that is none was never prepared.
        let Some(uid) = ClaimUid::parse(&claim.uid) else { return Ok(()) };
        let mut is_unwritten = self.deciding();
        self.running.give_up(&uid);
        let supply = self.newest_supply();
        let mut next = self.state().ledger.clone();
        if next.unprepare(&uid).is_none() {
            // The disk may still have it.
            return self.catch_up(&mut is_unwritten, &next);
        }
        let repairs = next.settle(&supply);
        let removed = self.store.remove(&uid).and_then(|()| self.store.write(&next));
        if let Err(error) = removed {
            *is_unwritten = true;
            return Err(error.to_string());
        }
        // The variables of a claim are hints, so old ones do no harm meanwhile.
        *is_unwritten |= !repairs.is_empty();
        self.places.hold_all(&next, &supply);
        self.state().ledger = next;
        drop(is_unwritten);
        self.tell();
        Ok(())
    }
}

fn was_given_up(claim: &KubeletClaim) -> String {
    format!("claim {}: {GIVEN_UP}", shown(claim))
}

/// A prepared claim as the kubelet names it.
pub(super) fn named(claim: &PreparedClaim) -> KubeletClaim {
    let (namespace, name) = (claim.namespace.clone(), claim.name.clone());
    KubeletClaim { uid: claim.uid.to_string(), namespace, name }
}

fn shown(claim: &KubeletClaim) -> String {
    printable_within(&format!("{}/{}", claim.namespace, claim.name), LONGEST_REASON)
}

impl ClaimCalls for ClaimDriver {
    fn prepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, Vec<PreparedDevice>> {
        Box::pin(async move {
            let began = Instant::now();
            let answer = self.prepare_claim(claim).await;
            self.tally.count_prepare(answer.is_ok(), began.elapsed());
            answer
        })
    }

    fn unprepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, ()> {
        Box::pin(async move {
            let answer = self.unprepare_claim(&claim);
            self.tally.count_unprepare(answer.is_ok());
            answer
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
