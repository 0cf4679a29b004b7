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

use std::{
    collections::{BTreeMap, BTreeSet},
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
    sync::{Mutex as AsyncMutex, watch},
    task::spawn_blocking,
    time::{Instant, sleep, timeout_at},
};

use super::{
    lock::ClaimLock,
    places::ClaimPlaces,
    running::{CallEnd, RunningCall, RunningCalls},
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

/// A claim that is being given up, until this is dropped.
struct EndingClaim {
    driver: Arc<ClaimDriver>,
    uid: ClaimUid,
}

impl Drop for EndingClaim {
    fn drop(&mut self) {
        self.driver.state().ending.remove(&self.uid);
    }
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
        let supply = self.newest_supply();
        let ledger = {
            let mut state = self.state();
            state.is_unwritten |= !state.ledger.settle(&supply).is_empty();
            state.interrupt_cpus = interrupt_cpus;
            state.ledger.clone()
        };
        self.places.hold_all(&ledger, &supply);
        let written = self.catch_up(&ledger);
        // Also without a repair: there may be more for those that wait.
        self.tell();
        written
    }

    /// Reads a claim of the ledger again: pods may have been added that may have it, or only its CPUs and
    /// name may be known, as a file has told them. A claim that cannot be read stays as it is.
    pub async fn read_again(self: &Arc<Self>, uid: &ClaimUid) {
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

    async fn prepare_claim(self: &Arc<Self>, claim: KubeletClaim) -> Result<Vec<PreparedDevice>, String> {
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
        self: &Arc<Self>,
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
            Err(unread) if is_known && !unread.is_gone() => {
                if let Some(devices) = self.answer_known(uid, None, running) {
                    return Ok(devices);
                }
                let (uid, end) = (uid.clone(), running.end());
                return self
                    .decision(Some(until), move |driver| driver.answer_again(&uid, &end))
                    .await
                    .flatten();
            }
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
        if let Some(devices) = self.answer_known(uid, Some(&allocation), running) {
            return Ok(devices);
        }
        let mut changes = self.changes();
        let allocation = Arc::new(allocation);
        loop {
            changes.borrow_and_update();
            let (allocation, end) = (Arc::clone(&allocation), running.end());
            let decided = self.decision(Some(until), move |driver| driver.decide(&allocation, &end)).await;
            let decided = decided.map_err(|reason| format!("claim {}: {reason}", shown(claim)))?;
            let shortage = match decided? {
                Ok(devices) => return Ok(devices),
                Err(shortage) => shortage,
            };
            if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return Err(format!("claim {}: {shortage}", shown(claim)));
            }
        }
    }

    fn limits<'a>(&self, interrupt_cpus: &'a CpuSet) -> LedgerLimits<'a> {
        LedgerLimits {
            now: wall_clock::unix_ms() / 1_000,
            share_exclusive: self.settings.share_exclusive,
            interrupt_cpus,
        }
    }

    /// The devices of a prepared claim of which nothing is to be written, also while another decision waits
    /// for the disk. `None` if it takes a decision.
    fn answer_known(
        &self,
        uid: &ClaimUid,
        allocation: Option<&ClaimAllocation>,
        running: &RunningCall<'_>,
    ) -> Option<Vec<PreparedDevice>> {
        let (mut ledger, supply, interrupt_cpus) = {
            let state = self.state();
            let is_settled = !state.is_unwritten && !state.ending.contains(uid);
            let is_whole = state.ledger.claim(uid).is_some_and(|known| !known.is_recovered());
            if running.is_given_up() || !is_settled || !is_whole {
                return None;
            }
            (state.ledger.clone(), state.supply.clone(), state.interrupt_cpus.clone())
        };
        let repeated = match allocation {
            Some(allocation) => ledger.prepare(allocation, &supply, &self.limits(&interrupt_cpus)).ok(),
            None => ledger.repeat(uid),
        };
        let known = ledger.claim(uid)?;
        let is_unchanged = repeated == Some(PrepareDecision::Repeated { is_changed: false });
        (is_unchanged && self.store.has(known)).then(|| known.answer(ledger.node()))
    }

    /// One decision: devices, or what is short.
    fn decide(
        &self,
        claim: &ClaimAllocation,
        end: &CallEnd,
    ) -> Result<Result<Vec<PreparedDevice>, String>, String> {
        if end.is_given_up() {
            return Err(format!("claim {}/{}: {GIVEN_UP}", claim.namespace, claim.name));
        }
        let (ledger, interrupt_cpus) = {
            let state = self.state();
            (state.ledger.clone(), state.interrupt_cpus.clone())
        };
        self.catch_up(&ledger)?;
        let limits = self.limits(&interrupt_cpus);
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
            return self.answer(is_changed, next, &claim.uid).map(Ok);
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
    fn answer_again(&self, uid: &ClaimUid, end: &CallEnd) -> Result<Vec<PreparedDevice>, String> {
        if end.is_given_up() {
            return Err(format!("claim {uid}: {GIVEN_UP}"));
        }
        let mut next = self.state().ledger.clone();
        self.catch_up(&next)?;
        let repeated = next.repeat(uid);
        let is_changed = repeated == Some(PrepareDecision::Repeated { is_changed: true });
        if is_changed {
            self.hold(&next);
        }
        self.answer(is_changed, next, uid)
    }

    /// Writes the ledger if it has changed, and the file of the claim; then it counts, and is answered.
    fn answer(
        &self,
        is_changed: bool,
        next: ClaimLedger,
        uid: &ClaimUid,
    ) -> Result<Vec<PreparedDevice>, String> {
        let prepared = next.claim(uid).ok_or_else(|| format!("claim {uid} was given up"))?;
        let written = if is_changed { self.store.write(&next) } else { Ok(()) };
        if let Err(error) = written.and_then(|()| self.store.add(prepared)) {
            let before = {
                let mut state = self.state();
                state.is_unwritten = true;
                state.ledger.clone()
            };
            // Now, if that can be done: a daemon that starts next finds what counts.
            let _later = self.catch_up(&before);
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

    async fn unprepare_claim(self: &Arc<Self>, claim: &KubeletClaim) -> Result<(), String> {
        let until = Instant::now() + LIMIT;
        // A uid that is none was never prepared.
        let Some(uid) = ClaimUid::parse(&claim.uid) else { return Ok(()) };
        self.state().ending.insert(uid.clone());
        let ending = EndingClaim { driver: Arc::clone(self), uid };
        let given_up = self.decision(Some(until), move |driver| {
            let given_up = driver.give_up(&ending.uid);
            drop(ending);
            given_up
        });
        given_up.await.map_err(|reason| format!("claim {}: {reason}", shown(claim)))?
    }

    fn give_up(&self, uid: &ClaimUid) -> Result<(), String> {
        self.running.give_up(uid);
        let supply = self.newest_supply();
        let mut next = self.state().ledger.clone();
        if next.unprepare(uid).is_none() {
            // The disk may still have it.
            return self.catch_up(&next);
        }
        let repairs = next.settle(&supply);
        let removed = self.store.remove(uid).and_then(|()| self.store.write(&next));
        if let Err(error) = removed {
            self.state().is_unwritten = true;
            return Err(error.to_string());
        }
        self.places.hold_all(&next, &supply);
        {
            let mut state = self.state();
            // The variables of a claim are hints, so old ones do no harm meanwhile.
            state.is_unwritten |= !repairs.is_empty();
            state.ledger = next;
        }
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

impl ClaimDriver {
    /// Prepares a claim.
    ///
    /// # Errors
    /// What keeps it from being prepared, for the event of its pod.
    pub async fn prepare(self: &Arc<Self>, claim: KubeletClaim) -> Result<Vec<PreparedDevice>, String> {
        let began = Instant::now();
        let answer = self.prepare_claim(claim).await;
        self.tally.count_prepare(answer.is_ok(), began.elapsed());
        answer
    }

    /// Gives up a claim, which may be unknown.
    ///
    /// # Errors
    /// If that cannot be written.
    pub async fn unprepare(self: &Arc<Self>, claim: KubeletClaim) -> Result<(), String> {
        let answer = self.unprepare_claim(&claim).await;
        self.tally.count_unprepare(answer.is_ok());
        answer
    }
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
