//! Prepares claims: reads what they were allocated, decides, and writes before the answer.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use enforcer_core::dra::{
    ClaimAllocation, ClaimConsumer, ClaimContext, ClaimLedger, ClaimUid, LedgerLimits, PrepareDecision,
    PreparedDevice,
};
use enforcer_runtime::dra::KubeletClaim;
use numa_topology::{set::CpuSet, text::printable_within};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClaimDriver, LIMIT, LONGEST_REASON, READ_LIMIT, TRIES, shown};
use crate::{
    dra::{
        running::{CallEnd, RunningCall},
        source::UnreadClaim,
    },
    wall_clock,
};

/// Time between two tries.
const AGAIN: Duration = Duration::from_secs(1);
/// Why a claim is not prepared that the kubelet gives up at the same time.
const GIVEN_UP: &str = "the kubelet has given it up meanwhile";

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

    pub(super) async fn prepare_claim(
        self: &Arc<Self>,
        claim: KubeletClaim,
    ) -> Result<Vec<PreparedDevice>, String> {
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
        let is_known = self.is_whole(uid);
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
        self.prepare_object(claim, &object, (running, uid), until).await
    }

    /// Whether a claim is prepared, and known as a whole.
    fn is_whole(&self, uid: &ClaimUid) -> bool {
        self.state().ledger.claim(uid).is_some_and(|known| !known.is_recovered())
    }

    /// Prepares a claim of the ledger again, as the API server has it now, tried once. The error is told
    /// beside whether the server has answered.
    pub(super) async fn prepare_again(
        self: &Arc<Self>,
        claim: &KubeletClaim,
        uid: &ClaimUid,
    ) -> Result<(), (bool, String)> {
        let until = Instant::now() + LIMIT;
        let unread = |unread: UnreadClaim| (unread.is_gone(), printable_within(unread.why(), LONGEST_REASON));
        let running = self.running.begin(uid);
        // From here on, giving it up ends this.
        if self.state().ledger.claim(uid).is_none() {
            return Err((true, was_given_up(claim)));
        }
        let preparing = async {
            let object = self.object(claim, until, true).await.map_err(unread)?;
            let prepared = self.prepare_object(claim, &object, (&running, uid), until).await;
            prepared.map(drop).map_err(|error| (true, error))
        };
        tokio::select! {
            biased;
            () = running.given_up() => Err((true, was_given_up(claim))),
            prepared = preparing => prepared,
        }
    }

    /// Prepares a claim as the API server has it.
    async fn prepare_object(
        self: &Arc<Self>,
        claim: &KubeletClaim,
        object: &Value,
        (running, uid): (&RunningCall<'_>, &ClaimUid),
        until: Instant,
    ) -> Result<Vec<PreparedDevice>, String> {
        let is_known = self.is_whole(uid);
        let node = self.state().ledger.node().to_owned();
        let context = ClaimContext {
            driver: &self.settings.driver,
            pool: &node,
            uid: &claim.uid,
            missing: self.settings.missing,
        };
        let allocation = ClaimAllocation::read(object, &context)
            .map_err(|error| format!("claim {}: {error}", shown(claim)))?;
        let is_group = |consumer: &ClaimConsumer| matches!(consumer, ClaimConsumer::Other { .. });
        if !allocation.consumers.is_empty() && allocation.consumers.iter().all(is_group) {
            return Err(format!(
                "claim {}: it is reserved for no pod: groups of pods are not served",
                shown(claim)
            ));
        }
        // Prepared, it would be believed to have no interrupts.
        if !is_known
            && allocation.wants_no_interrupts()
            && !self.settings.steers_interrupts.load(Ordering::Relaxed)
        {
            return Err(format!(
                "claim {}: irqs is `away`, and the daemon of this node keeps no interrupts off exclusive CPUs: \
                 interrupts.mode is not enforce",
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
        (is_unchanged && self.store.has(known, ledger.node())).then(|| known.answer(ledger.node()))
    }

    /// One decision: devices, or what is short.
    pub(super) fn decide(
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

    /// The answer of a prepared claim while the API server does not tell of it.
    pub(super) fn answer_again(&self, uid: &ClaimUid, end: &CallEnd) -> Result<Vec<PreparedDevice>, String> {
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
        if let Err(error) = written.and_then(|()| self.store.add(prepared, next.node())) {
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
}

fn was_given_up(claim: &KubeletClaim) -> String {
    format!("claim {}: {GIVEN_UP}", shown(claim))
}
