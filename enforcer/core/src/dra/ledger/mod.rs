//! Prepared claims: which CPUs are exclusive to which claim, and what each claim was promised.
//!
//! Problem: a kubelet may ask for a claim again after any restart, may ask for a new claim seconds before it
//! gives the CPUs of an old one back (a force-deleted pod), and may never give some back. Idea: one ledger,
//! written to disk before any answer, decides alone. A request either gets its answer, or waits for named
//! claims, or is refused for a reason that waiting does not change.
//!
//! How the shell calls it, with its own lock around the ledger:
//! - [`ClaimLedger::prepare`]. After [`PrepareDecision::Prepared`], or `Repeated` with `is_changed`, write
//!   [`ClaimLedger::to_text`] to disk, then the CDI file; if a write fails after `Prepared`, call
//!   [`ClaimLedger::unprepare`] and answer an error. After [`PrepareDecision::Wait`] **release the lock** and
//!   try again after the next unprepare, up to the kubelet's deadline; [`Shortage`] is the text of the error
//!   then.
//! - [`ClaimLedger::unprepare`], then [`ClaimLedger::settle`], which gives what is free to claims that have
//!   lost CPUs; write the state; wake those that wait.
//! - [`ClaimLedger::settle`] also with each new [`ClaimSupply`]; if it returns repairs, write the state and
//!   the cpusets.
//! - [`ClaimLedger::recover`] at start for each claim of a CDI file, if the state is lost or damaged.
//! - [`ClaimLedger::release_orphans`] from time to time, then [`ClaimLedger::settle`], with what the kubelet
//!   and the API server know.
//!
//! Invariants: no CPU is in two results; a refused or waiting request changes nothing; the same claim has the
//! same answer; a claim leaves only by [`ClaimLedger::unprepare`] and [`ClaimLedger::release_orphans`].

mod choose;
mod orphans;
mod record;
mod recover;
mod refusal;
mod repair;
#[cfg(test)]
pub(super) mod samples;
mod shortage;
#[cfg(test)]
mod tests;
mod wants;

use std::{collections::BTreeMap, sync::Arc};

use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::{
    ClaimAllocation, ClaimCapacity, ClaimConsumer, ClaimResult, ClaimSupply, ClaimUid, ConsumedAmounts,
    DeviceName, PlaceAmounts,
};

pub use self::{
    orphans::OrphanEvidence,
    record::RecordDamage,
    refusal::LedgerError,
    repair::CpuRepair,
    shortage::{Shortage, ShortageHolder},
};

/// Most claims of a node; more than any kubelet runs pods.
const MAX_CLAIMS: usize = 2_048;
/// Most consumers of all claims together.
const MAX_CONSUMERS_IN_ALL: usize = 16_384;

/// The prepared claims of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimLedger {
    node: String,
    boot_id: String,
    /// Copies of the ledger share the claims.
    claims: BTreeMap<ClaimUid, Arc<PreparedClaim>>,
    /// Since when a claim looks as if nothing needed it any more; not recorded.
    orphans: BTreeMap<ClaimUid, u64>,
}

/// A prepared claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedClaim {
    /// Its uid.
    pub uid: ClaimUid,
    /// Its namespace.
    pub namespace: String,
    /// Its name; empty if it is not known ([`Self::is_recovered`]).
    pub name: String,
    /// Its name in the pod, of a claim that a template made.
    pub pod_claim: Option<String>,
    /// Consumers at the latest request of the kubelet.
    pub consumers: Vec<ClaimConsumer>,
    /// Its results of this driver.
    pub results: Vec<PreparedResult>,
    /// Boot in which the kubelet asked for it last.
    pub boot_id: String,
    /// When it was prepared, in seconds since 1970.
    pub prepared_at: u64,
}

/// A prepared result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedResult {
    /// The result, as it was allocated.
    pub result: ClaimResult,
    /// Its node.
    pub node: NodeId,
    /// What it was promised; of a whole device, what that had.
    pub amounts: PlaceAmounts,
    /// Its exclusive CPUs; fewer than promised if some have gone offline.
    pub cpus: CpuSet,
}

/// Settings and circumstances of a request.
#[derive(Debug, Clone, Copy)]
pub struct LedgerLimits<'a> {
    /// Seconds since 1970.
    pub now: u64,
    /// Whether several pods may share exclusive CPUs.
    pub share_exclusive: bool,
    /// CPUs that serve interrupts of devices.
    pub interrupt_cpus: &'a CpuSet,
}

/// Answer to a request for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrepareDecision {
    /// The claim is prepared now.
    Prepared,
    /// The claim was prepared already and keeps its answer.
    Repeated {
        /// Whether its consumers or its boot are others than those on disk.
        is_changed: bool,
    },
    /// Something is short that other claims hold.
    Wait(Shortage),
}

impl PreparedResult {
    /// Promised CPUs that it does not have, because they went offline and no other was free.
    pub fn missing_cpus(&self) -> u64 {
        self.amounts.cpus.saturating_sub(self.cpus.len() as u64)
    }
}

impl PreparedClaim {
    /// Its namespace and name, for messages.
    pub fn full_name(&self) -> String {
        if self.name.is_empty() {
            return format!("with uid {}", self.uid);
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// All of its exclusive CPUs.
    pub fn cpus(&self) -> CpuSet {
        let mut cpus = CpuSet::new();
        self.results.iter().for_each(|result| cpus.extend(&result.cpus));
        cpus
    }

    /// The nodes of its devices, without those for administrators.
    pub fn nodes(&self) -> NodeSet {
        self.results.iter().filter(|result| !result.result.is_admin).map(|result| result.node).collect()
    }

    /// Promised CPUs that it does not have.
    pub fn missing_cpus(&self) -> u64 {
        self.results.iter().map(PreparedResult::missing_cpus).sum()
    }
}

impl ClaimLedger {
    /// An empty ledger of the node in this boot.
    pub fn new(node: &str, boot_id: &str) -> Self {
        Self {
            node: node.to_owned(),
            boot_id: boot_id.to_owned(),
            claims: BTreeMap::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// All prepared claims, in order of uid.
    pub fn claims(&self) -> impl Iterator<Item = &PreparedClaim> {
        self.claims.values().map(AsRef::as_ref)
    }

    /// A prepared claim.
    pub fn claim(&self, uid: &ClaimUid) -> Option<&PreparedClaim> {
        self.claims.get(uid).map(AsRef::as_ref)
    }

    /// All exclusive CPUs of claims.
    pub fn exclusive_cpus(&self) -> CpuSet {
        let mut taken = CpuSet::new();
        self.results().for_each(|result| taken.extend(&result.cpus));
        taken
    }

    /// CPUs of a node for claims of shared CPUs and for containers without claims. If all are exclusive,
    /// those of the machine; none only if the whole machine has none, and then a cpuset stays as it is.
    pub fn shared_cpus(&self, node: NodeId, supply: &ClaimSupply) -> Option<CpuSet> {
        let exclusive = self.exclusive_cpus();
        let own = supply.node(node).map(|budget| budget.cpus.difference(&exclusive));
        own.filter(|cpus| !cpus.is_empty()).or_else(|| {
            let all = supply.cpus().difference(&exclusive);
            (!all.is_empty()).then_some(all)
        })
    }

    /// What claims were promised of a node.
    pub fn promised(&self, node: NodeId) -> PlaceAmounts {
        let mut sum = PlaceAmounts::default();
        self.results().filter(|result| result.node == node).for_each(|result| sum.add(&result.amounts));
        sum
    }

    fn results(&self) -> impl Iterator<Item = &PreparedResult> {
        self.claims().flat_map(|claim| &claim.results)
    }

    /// Decides about a claim. Only [`PrepareDecision::Prepared`] and a changed repetition change the ledger.
    ///
    /// # Errors
    /// If the claim cannot be prepared, whatever other claims do.
    pub fn prepare(
        &mut self,
        claim: &ClaimAllocation,
        supply: &ClaimSupply,
        limits: &LedgerLimits<'_>,
    ) -> Result<PrepareDecision, LedgerError> {
        let recovered = self.take_recovered(&claim.uid);
        let had = recovered.as_ref().map(|recovered| recovered.cpus()).unwrap_or_default();
        let decision = self.decide(claim, supply, limits, &had);
        if let Some(recovered) = recovered.filter(|_| decision != Ok(PrepareDecision::Prepared)) {
            self.claims.insert(claim.uid.clone(), recovered);
        }
        decision
    }

    /// Decides about a claim, which keeps CPUs that it `had`.
    fn decide(
        &mut self,
        claim: &ClaimAllocation,
        supply: &ClaimSupply,
        limits: &LedgerLimits<'_>,
        had: &CpuSet,
    ) -> Result<PrepareDecision, LedgerError> {
        let name = || format!("{}/{}", claim.namespace, claim.name);
        let known = self.claim(&claim.uid);
        let is_same = |known: &PreparedClaim| known.results.iter().map(|own| &own.result).eq(&claim.results);
        if known.is_some_and(|known| !is_same(known)) {
            return Err(LedgerError::OtherAllocation { claim: name() });
        }
        let consumers = claim.consumers.len();
        let may_take = limits.share_exclusive || !claim.takes_cpus() || !claim.may_have_several_pods();
        // Pods that were there first keep exclusive CPUs, and further ones get none.
        let is_known = |one: &&ClaimConsumer| known.is_some_and(|known| known.consumers.contains(one));
        let first: Vec<ClaimConsumer> = claim.consumers.iter().filter(is_known).cloned().collect();
        let accepted = if may_take { claim.consumers.clone() } else { first };
        if !may_take && accepted.is_empty() {
            return Err(LedgerError::Shared { claim: name(), consumers });
        }
        let others = self.claims().filter(|other| other.uid != claim.uid);
        let (claims, in_all) =
            others.fold((1, consumers), |(claims, sum), other| (claims + 1, sum + other.consumers.len()));
        if claims > MAX_CLAIMS || in_all > MAX_CONSUMERS_IN_ALL {
            return Err(LedgerError::TooMany { claim: name() });
        }
        if let Some(known) = self.claims.get_mut(&claim.uid) {
            let is_changed = known.consumers != accepted || known.boot_id != self.boot_id;
            if is_changed {
                let known = Arc::make_mut(known);
                known.consumers = accepted;
                known.boot_id.clone_from(&self.boot_id);
            }
            return Ok(PrepareDecision::Repeated { is_changed });
        }
        let wants = wants::of(claim, supply)?;
        if let Some(shortage) = self.shortage(&wants, supply) {
            return Ok(PrepareDecision::Wait(shortage));
        }
        let results = match self.choose(claim, wants, supply, (limits.interrupt_cpus, had)) {
            Ok(results) => results,
            Err(shortage) => return Ok(PrepareDecision::Wait(shortage)),
        };
        let prepared = PreparedClaim {
            uid: claim.uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            pod_claim: claim.pod_claim.clone(),
            consumers: accepted,
            results,
            boot_id: self.boot_id.clone(),
            prepared_at: limits.now,
        };
        self.claims.insert(claim.uid.clone(), Arc::new(prepared));
        Ok(PrepareDecision::Prepared)
    }

    /// Answers for a claim that is prepared already, without its object: consumers stay as they are. None for
    /// an unknown claim, and for one of which only the CPUs are known.
    pub fn repeat(&mut self, uid: &ClaimUid) -> Option<PrepareDecision> {
        let known = self.claims.get_mut(uid).filter(|known| !known.is_recovered())?;
        let is_changed = known.boot_id != self.boot_id;
        if is_changed {
            Arc::make_mut(known).boot_id.clone_from(&self.boot_id);
        }
        Some(PrepareDecision::Repeated { is_changed })
    }

    /// Gives everything of a claim back; returns what it had, nothing for an unknown uid, which is no error.
    pub fn unprepare(&mut self, uid: &ClaimUid) -> Option<Arc<PreparedClaim>> {
        self.orphans.remove(uid);
        self.claims.remove(uid)
    }
}
