//! The ledger of CPUs and memory nodes given to containers, shared by the engine's turns and the runtime's
//! calls.
//!
//! A runtime calls at any time and waits for the answer, while a turn may wait for the kernel. So the ledger
//! has its own lock, held for one decision and never during a read or a write. A separate thread
//! ([`record_writer`]) writes what the next daemon must know; callers wait for it without the lock.
//!
//! Before the topology is read, and where the daemon may not place, containers are known by name only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::{
    declarations::{Declarations, names_of},
    hosted::{Announced, CallOutcome, Containers, Cpuset, GrantRecord, PlacementNode, declare, exposed},
    model::Model,
    owner::{KnownContainer, Owner, Ownership, OwnershipFacts, given_at_creation},
    owners::Owners,
    policy::{Policy, RuleSubject as Declared, WorkloadKind, WorkloadRule, placement::PlacementSettings},
    sample::Sample,
    workload::{CgroupPath, Origin, QosClass, Workload, identify, printable},
};
use numa_placement::{Allocations, ContainerRequest, Holder, Inventory, external::UNPLACED};
use numa_topology::{degraded::Degraded, set::CpuSet};
use tokio::sync::Notify;

use super::{
    decisions::{Decisions, entry},
    source::ForeignOwners,
    widening::Widening,
};
use enforcer_act::{
    cpuset::CpusetTree,
    journal::{MADE_WITHIN, Made, MakingRecord},
};
use enforcer_kernel::{clock, waker::Waker};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, DecisionSubject},
    runtime::{AnswerTimes, RuntimeLink, RuntimeReport},
    tick::ContainerNames,
};

mod current_claims;
mod early_turn;
mod explained;
mod leaving;
mod originals;
mod pending;
mod pins;
mod record_writer;
mod runtime_writes;
mod sandboxes;
mod warn_once;

use early_turn::EarlyTurn;
pub(super) use originals::Noting;
use originals::UnjournalledOriginals;
pub(super) use pins::CpusChange;
use warn_once::{Unseen, WarnOnce};

/// Longest container name that is shown, in characters.
const NAME_LIMIT: usize = 200;

/// Time in which a runtime carries out the writes it was told of; meanwhile it may create a container.
const WRITTEN_BY: Duration = Duration::from_secs(10);

/// Interval of checks whether the runtime has listed its containers.
const LOOK_FOR_RUNTIME: Duration = Duration::from_millis(20);

/// Handle to the ledger; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

/// The ledger: which container has what.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct Ledger {
    pub(super) allocations: Allocations,
    pub(super) containers: Containers,
    inventory: Option<Arc<Inventory>>,
    settings: PlacementSettings,
    /// Ignore marks that claim a cpuset for another controller.
    ignores_marks: bool,
    /// Workload rules of the configuration.
    rules: Vec<WorkloadRule>,
    places: bool,
    /// Notified when the runtime must list its containers again.
    again: Arc<Notify>,
    /// At least one container has an unknown cpuset owner.
    left_alone: bool,
    /// Cgroups that another writer sets repeatedly, with our goal for each. Neither turns nor answers restore
    /// it.
    given_up: BTreeMap<CgroupPath, Cpuset>,
    /// Running containers' cgroups with cpusets that the runtime writes because of an answer, and its time.
    pending_writes: BTreeMap<CgroupPath, Instant>,
    /// Cgroups with CPUs that an answer has changed since the latest turn began.
    changed_cpus: BTreeSet<CgroupPath>,
    /// Thread pins of these containers from before the change, kept until the runtime has written.
    pins: BTreeMap<CgroupPath, pins::PendingPins>,
    /// Time of the latest turn's decision.
    decided: Option<Instant>,
    /// A turn before its time is requested.
    pub(super) early_turn: EarlyTurn,
    /// Cpusets that containers would have without us.
    pub(super) originals: UnjournalledOriginals,
    /// Containers between the answer to their creation and their start, keyed by the id in the runtime's
    /// list.
    pending: BTreeMap<String, pending::PendingContainer>,
    /// Containers that end and may still have processes.
    leaving: BTreeMap<String, leaving::DepartingContainer>,
    /// Listed containers that had a cgroup.
    found: BTreeSet<String>,
    /// Containers that have ended, and when. Later events about them are stale.
    ended_lately: BTreeMap<String, Instant>,
    /// Grants may differ from those on disk.
    regranted: bool,
    /// Reads the current cpusets of cgroups; only for a daemon that may write.
    tree: Option<CpusetTree>,
    /// `NAMESPACE/POD (sandbox)` by sandbox id.
    sandboxes: BTreeMap<String, String>,
    /// Cgroups with cpuset writes that the runtime does on our behalf, including new containers, and the time
    /// of the latest answer. The kernel side reports such a write later than the write is done.
    own_writes: BTreeMap<CgroupPath, Instant>,
    /// `NAMESPACE/POD/CONTAINER` by container id.
    pub(super) names: BTreeMap<String, String>,
    /// Facts about other writers of cpusets.
    facts: OwnershipFacts,
    report: RuntimeReport,
    said: WarnOnce,
    /// Writes are blocked because the journal could not undo them.
    journal_blocked: bool,
    /// While enforcement is paused or blocked: each container's cpuset at that moment.
    frozen: Option<BTreeMap<String, Cpuset>>,
    decisions: Decisions,
    /// Memory nodes added to containers that ran short; `None` when widening is off.
    widening: Option<Widening>,
}

impl SharedLedger {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Poisoning is ignored: every update leaves the grants consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies this machine and policy; `writes` says whether the daemon may write.
    pub fn apply_policy(&self, inventory: Option<Arc<Inventory>>, policy: &Policy, writes: bool) {
        let mut state = self.lock();
        state.inventory = inventory;
        state.settings = policy.placement.clone();
        state.rules.clone_from(&policy.workloads);
        if std::mem::replace(&mut state.ignores_marks, !policy.nri.honour_marks) == policy.nri.honour_marks {
            state.again.notify_one();
        }
        let placed = std::mem::replace(&mut state.places, writes && policy.nri.place);
        if state.places && !placed {
            // Containers that came meanwhile are known by name only.
            state.again.notify_one();
        }
    }

    /// Notifier that asks the runtime link to list all containers again.
    pub fn again(&self) -> Arc<Notify> {
        Arc::clone(&self.lock().again)
    }

    /// Waits until the runtime has listed its containers or is known to be absent, for at most `limit`.
    pub fn wait_for_runtime(&self, limit: Duration) {
        let begin = Instant::now();
        while self.lock().report.link == RuntimeLink::Untried && begin.elapsed() < limit {
            thread::sleep(LOOK_FOR_RUNTIME);
        }
    }

    /// Sets the waker for when [`take_early_turn`](Self::take_early_turn) should be asked.
    pub fn listen(&self, waker: Waker) {
        self.lock().early_turn.set_waker(waker);
    }

    /// Takes over the previous daemon's grants, as far as `tree` still shows them.
    pub(super) fn adopt(&self, tree: CpusetTree, mut records: BTreeMap<String, GrantRecord>) {
        records.retain(|_, record| tree.set_to(&record.cgroup).is_some_and(|set_to| record.holds(&set_to)));
        let mut state = self.lock();
        let Ledger { containers, allocations, .. } = &mut *state;
        containers.expect(allocations, records);
        state.tree = Some(tree);
    }

    /// Records from now on the cpusets that containers would have without us, and takes over the previous
    /// daemon's entries (`left`). Grants in `left` count as taken while their containers may still start.
    pub(super) fn remember(&self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        let mut state = self.lock();
        let now_ns = clock::now_ns();
        let granted =
            left.values().filter(|made| made.may_come(now_ns)).filter_map(|made| made.granted.clone());
        let mut awaited: BTreeMap<String, GrantRecord> = granted.map(|one| (one.id, one.grant)).collect();
        let Ledger { containers, allocations, tree, originals, .. } = &mut *state;
        let set_to = |cgroup: &CgroupPath| tree.as_ref()?.set_to(cgroup);
        // A container that is just being created has an empty cpuset or that of its parent.
        let may_hold = |record: &GrantRecord| {
            let Some(found) = set_to(&record.cgroup) else { return true };
            let of_parent = record.cgroup.parent().and_then(|parent| set_to(&parent));
            found.is_empty() || of_parent.is_some_and(|of_parent| of_parent == found) || record.holds(&found)
        };
        awaited.retain(|_, record| !containers.expects(&record.cgroup) && may_hold(record));
        containers.expect(allocations, awaited);
        originals.remember(record, left);
    }

    /// Sets the widening. Its added nodes become part of each cpuset.
    pub(super) fn set_widening(&self, widening: Widening) {
        self.lock().widening = Some(widening);
    }

    /// Replaces the set of cgroups left to another writer that sets them repeatedly.
    pub(super) fn give_up(&self, goals: BTreeMap<CgroupPath, Cpuset>) {
        self.lock().given_up = goals;
    }

    /// Blocks or unblocks writes.
    pub(super) fn block_writes(&self, blocked: bool) {
        self.lock().journal_blocked = blocked;
    }

    /// Stops answers with cpusets: the daemon ends and restores what it has set. Returns the time since the
    /// latest answer that the runtime may still be writing; `None` when all are written.
    pub fn retire(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.places = false;
        state.frozen = None;
        let writes = state.pending_writes.values().copied();
        let latest = writes.chain(state.pending.values().map(pending::PendingContainer::answered)).max()?;
        Some(latest.elapsed()).filter(|since| *since < WRITTEN_BY)
    }

    /// Checks that original cpusets can be recorded. The error says why not.
    pub(super) fn can_note(&self) -> Result<(), String> {
        let waiter = self.lock().originals.waiter();
        waiter.map_or(Ok(()), |waiter| waiter.check())
    }

    /// Drops containers of the previous daemon, except those that run or may still start.
    pub(super) fn expect_only(&self, workloads: &[Workload]) {
        let mut state = self.lock();
        let runs = |cgroup: &CgroupPath| workloads.iter().any(|one| one.cgroup == *cgroup);
        state.drop_expired_pending(runs);
        let Ledger { containers, allocations, originals, .. } = &mut *state;
        let awaited = originals.left();
        containers.expect_only(allocations, |cgroup| awaited.contains(cgroup) || runs(cgroup));
    }

    /// Current cpusets of these cgroups, read from the cgroups.
    pub(super) fn shown<'a>(
        &self,
        cgroups: impl Iterator<Item = &'a CgroupPath>,
    ) -> BTreeMap<CgroupPath, Cpuset> {
        let Some(tree) = self.lock().tree.clone() else { return BTreeMap::new() };
        cgroups.filter_map(|cgroup| Some((cgroup.clone(), tree.set_to(cgroup)?))).collect()
    }

    /// The grants, if they may differ from those on disk. Clears that mark.
    pub(super) fn regranted(&self) -> Option<BTreeMap<String, GrantRecord>> {
        let mut state = self.lock();
        std::mem::take(&mut state.regranted).then(|| state.containers.records(&state.allocations))
    }

    /// Marks the grants as not recorded.
    pub(super) fn mark_unrecorded(&self) {
        self.lock().regranted = true;
    }

    /// CPUs that containers have exclusively, without those of the daemon's own pod.
    pub(super) fn exclusive_of_others(&self) -> CpuSet {
        let state = self.lock();
        let own = state.facts.own_cgroup.as_ref().map(|cgroup| identify(cgroup).origin);
        let own = match &own {
            Some(Origin::Pod { container_id: Some(id), .. }) => state.containers.holder(id),
            _ => None,
        };
        let own = own.and_then(|holder| state.allocations.get(holder)).map(|grant| grant.exclusive.clone());
        state.allocations.exclusive_cpus().difference(&own.unwrap_or_default())
    }

    pub(super) fn set_foreign_owners(&self, others: ForeignOwners) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.facts.kubelet, others.kubelet);
        state.facts.units = others.units;
        state.facts.own_cgroup = others.own_cgroup;
        let kubelet = &mut state.facts.kubelet;
        if kubelet.unread.is_some() {
            kubelet.keep_untold(before);
        } else if std::mem::take(&mut state.left_alone) && state.places {
            state.again.notify_one();
        }
    }

    /// Finds the declared rules and the owner of each cpuset. A container that is opted out, or that belongs
    /// to another owner, gives up what we gave it. A container with an unknown owner keeps its grant, and its
    /// cpuset is not written. `note` receives the facts used.
    pub(super) fn owners(
        &self,
        workloads: &[Workload],
        sample: &Sample,
        model: &Model,
        policy: &Policy,
        note: impl FnOnce(&OwnershipFacts),
    ) -> (Declarations, Owners) {
        let mut state = self.lock();
        note(&state.facts);
        let declarations = Declarations::find(policy, workloads, &sample.tasks, &state.facts);
        let owners = {
            let placed = state.containers.cgroups().filter(|(_, holder)| !holder.is_given());
            let placed: BTreeSet<&CgroupPath> = placed.map(|(cgroup, _)| cgroup).collect();
            Owners::find(&state.facts, workloads, model, &declarations, |cgroup| placed.contains(cgroup))
        };
        for workload in workloads {
            let Origin::Pod { container_id: Some(id), .. } = &workload.origin else { continue };
            let Some(holder) = state.containers.holder(id).cloned() else { continue };
            let name = holder.name();
            if holder.is_given() {
                let nothing = state.allocations.get(&holder).is_some_and(|had| had.exclusive.is_empty());
                let named = owners.foreign(workload).filter(|ownership| ownership.cpus.is_some());
                // A mark can name too many CPUs for one container and still be right for all containers of
                // its pod.
                if let Some(ownership) = named.filter(|_| nothing) {
                    state.settle("turn", |known, node| known.give_up(node, id, name, None, ownership));
                }
                continue;
            }
            if declarations.opts_out(&workload.cgroup) {
                tracing::info!("{} is left alone from now on: it is declared so", workload.name);
                state.ended("turn", id);
                continue;
            }
            let foreign = owners.foreign(workload).filter(|ownership| ownership.owner != Owner::Unknown);
            let Some(ownership) = foreign else { continue };
            tracing::info!("{} is left alone from now on: {}", workload.name, ownership.refusal());
            state.settle("turn", |known, node| known.give_up(node, id, name, None, ownership));
        }
        (declarations, owners)
    }

    /// The latest decisions.
    pub(super) fn decisions(&self) -> Decisions {
        self.lock().decisions.clone()
    }

    /// Gives workloads the runtime's names.
    pub(super) fn rename(&self, workloads: &mut [Workload]) {
        let state = self.lock();
        for workload in workloads {
            if let Origin::Pod { container_id: Some(id), .. } = &workload.origin
                && let Some(name) = state.names.get(id)
            {
                workload.name.clone_from(name);
            }
        }
    }

    /// Pod names of the workloads, from the runtime.
    pub(super) fn pods(&self, workloads: &[Workload]) -> BTreeMap<CgroupPath, ContainerNames> {
        let known = &self.lock().facts.containers;
        let named = workloads.iter().filter_map(|workload| {
            let Origin::Pod { container_id: Some(id), .. } = &workload.origin else { return None };
            let KnownContainer { namespace, pod, container, .. } = known.get(id)?;
            let [namespace, pod, container] = [namespace, pod, container].map(Clone::clone);
            Some((workload.cgroup.clone(), ContainerNames { namespace, pod, container }))
        });
        named.collect()
    }

    /// Reports a runtime that was connected and is gone. A runtime that never connected is not missed.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let RuntimeReport { link, calls, .. } = &self.lock().report;
        let RuntimeLink::Down { reason } = link else { return None };
        let effect = "new containers start without a place and get one when the runtime is back";
        (!calls.is_empty()).then(|| Degraded::new("nri", reason.clone(), effect))
    }

    /// Has the journal `renew` the originals that callers of the runtime have changed. Originals that it does
    /// not take are offered again.
    pub(super) fn renew(
        &self,
        renew: impl FnOnce(&BTreeMap<CgroupPath, Cpuset>) -> Result<(), String>,
    ) -> Result<(), String> {
        let taken = self.lock().originals.take_renewed();
        // Without the lock: it waits for a disk.
        let written = renew(&taken);
        self.lock().originals.were_taken(taken, written.is_ok());
        written
    }

    /// Original cpusets that are not in the journal yet.
    pub(super) fn unrecorded(&self) -> BTreeMap<CgroupPath, Cpuset> {
        self.lock().originals.unrecorded()
    }

    /// Marks the originals of these cgroups as recorded.
    pub(super) fn recorded(&self, cgroups: &[CgroupPath]) {
        self.lock().originals.recorded(cgroups);
    }

    /// Takes the request for an early turn, if there is one.
    pub(super) fn take_early_turn(&self) -> bool {
        self.lock().early_turn.take()
    }

    /// Cgroups with cpusets that the runtime is writing because of our answers.
    pub(super) fn pending_writes(&self) -> Vec<CgroupPath> {
        let pending = &mut self.lock().pending_writes;
        pending.retain(|_, at| at.elapsed() < WRITTEN_BY);
        pending.keys().cloned().collect()
    }

    /// Treats all answers as carried out.
    #[cfg(test)]
    pub(super) fn finish_pending_writes(&self) {
        self.lock().pending_writes.clear();
    }

    /// State of the runtime link; `None` if there never was a runtime. Resets the longest deciding time.
    pub(super) fn take_report(&self) -> Option<RuntimeReport> {
        let mut state = self.lock();
        let known = state.report != RuntimeReport::default();
        let report = known.then(|| RuntimeReport { containers: state.names.len(), ..state.report.clone() });
        state.report.deciding.longest = None;
        report
    }
}

impl Ledger {
    /// Records a container's runtime names, its declared rule and the owner of its cpuset.
    pub(super) fn name(&mut self, one: &mut Announced, known: KnownContainer) {
        let known = self.believed(known);
        if let Some(cpus) = self.facts.excess(&known) {
            let container = printable(&format!("{}/{}/{}", known.namespace, known.pod, known.container));
            let text =
                format!("{container} requests less than the CPUs {cpus} of its mark: none count as taken");
            for text in self.said.news([text.as_str()]).texts {
                tracing::warn!("{text}");
            }
        }
        // The same id in another cgroup is another container; the former one is gone.
        if self.containers.cgroup(&one.id).is_some_and(|before| one.cgroup.as_ref() != Some(before)) {
            self.decisions.end(&one.id);
        }
        one.given = self.given(one, &known);
        self.left_alone |= one.given.as_ref().is_some_and(|given| given.owner == Owner::Unknown);
        self.declare(one, &known);
        self.facts.containers.insert(one.id.clone(), known);

        let container = one.pod.containers.first().map_or("", |container| container.name.as_str());
        let name = printable(&format!("{}/{}/{container}", one.pod.name.namespace, one.pod.name.name));
        self.names.insert(one.id.clone(), name.chars().take(NAME_LIMIT).collect());
    }

    /// Drops a container's claim where the policy ignores marks.
    fn believed(&self, known: KnownContainer) -> KnownContainer {
        if self.ignores_marks { KnownContainer { claim: None, ..known } } else { known }
    }

    /// Applies the configuration's rule to a container. No process runs in it yet, so commands do not match.
    fn declare(&self, one: &mut Announced, known: &KnownContainer) {
        let (cgroup, pod) = (one.cgroup.as_ref(), Some(names_of(known)));
        let subject = Declared { cgroup, standing: WorkloadKind::Pod, pod, commands: &[] };
        let mut rules = self.rules.iter().enumerate();
        let Some((position, rule)) = rules.find(|(_, rule)| rule.is_about(&subject)) else { return };
        one.opts_out = !rule.enforce;
        // The kubelet policy ignores the rest of the rule; the configuration check has reported it.
        if self.settings.predicts_kubelet() {
            return;
        }
        let (Some(inventory), Some(asked)) = (&self.inventory, one.pod.containers.first_mut()) else {
            return;
        };
        for unknown in declare(asked, rule, position, &inventory.machine) {
            tracing::warn!("workload {:?}: {unknown}", rule.name);
        }
    }

    /// The foreign owner of its cpuset, if any. Our own containers stay ours when the owner becomes unknown.
    fn given(&self, one: &Announced, known: &KnownContainer) -> Option<Ownership> {
        let asked = one.pod.containers.first().filter(|_| one.pod.qos == QosClass::Guaranteed);
        let whole = asked.and_then(ContainerRequest::whole_cpus);
        let given = given_at_creation(&self.facts, known, one.now.cpus.as_ref(), whole)?;
        let ours = self.containers.holder(&one.id).is_some_and(|holder| !holder.is_given())
            || one.cgroup.as_ref().is_some_and(|cgroup| self.containers.expects(cgroup));
        (given.owner != Owner::Unknown || !ours).then_some(given)
    }

    /// Id of the container in this cgroup.
    pub(super) fn container_in(&self, cgroup: &CgroupPath) -> Option<String> {
        let has = |id: &&String| self.containers.cgroup(id) == Some(cgroup);
        self.names.keys().find(has).cloned()
    }

    /// Forgets a container that has ended. The decision is logged under `call`.
    pub(super) fn ends(&mut self, call: &str, id: &str) -> CallOutcome {
        if let Some(cgroup) = self.containers.cgroup(id).or_else(|| self.containers.expected_cgroup(id)) {
            self.originals.ends(cgroup);
            self.pending_writes.remove(cgroup);
        }
        let settled = self.ended(call, id);
        self.ended_lately.retain(|_, at| at.elapsed() < MADE_WITHIN);
        self.ended_lately.insert(id.to_owned(), Instant::now());
        self.pending.remove(id);
        self.leaving.remove(id);
        self.found.remove(id);
        self.names.remove(id);
        self.facts.containers.remove(id);
        self.decisions.end(id);
        if let Some(frozen) = &mut self.frozen {
            frozen.remove(id);
        }
        self.report.unplaced.remove(id);
        settled
    }

    /// Replaces the list of containers.
    pub(super) fn only(&mut self, all: &mut [(Announced, KnownContainer)]) {
        let there = all.iter().map(|(one, _)| one.id.as_str());
        self.decisions.only(&there.chain(self.leaving.keys().map(String::as_str)).collect());
        self.left_alone = false;
        let Self { names, facts, leaving, .. } = self;
        names.retain(|id, _| leaving.contains_key(id));
        facts.containers.retain(|id, _| leaving.contains_key(id));
        self.report.unplaced.clear();
        self.originals.only(|cgroup| all.iter().any(|(one, _)| one.cgroup.as_ref() == Some(cgroup)));
        // All containers of a pod together make its request.
        let told: Vec<_> =
            all.iter().map(|(one, known)| (one.id.clone(), self.believed(known.clone()))).collect();
        self.facts.containers.extend(told);
        let found = all.iter().filter(|(one, _)| one.shown.is_some());
        self.found = found.map(|(one, _)| one.id.clone()).collect();
        for (one, known) in all {
            self.name(one, std::mem::take(known));
        }
    }

    /// Records the state of the runtime link. Returns whether it changed.
    pub(super) fn link(&mut self, link: RuntimeLink) -> bool {
        let is_new = self.report.link != link;
        self.report.link = link;
        is_new
    }

    /// Counts a call of the runtime.
    pub(super) fn count(&mut self, call: &'static str) {
        *self.report.calls.entry(call).or_default() += 1;
    }

    /// Counts an answer with its duration, and whether it was late.
    pub(super) fn count_answer(&mut self, call: &'static str, took: Duration, late: bool) {
        let AnswerTimes { sum, longest, creations } = &mut self.report.deciding;
        *sum = sum.saturating_add(took);
        *longest = (*longest).max(Some(took));
        if call == "create" {
            creations.note(took);
        }
        self.report.late += u64::from(late);
    }

    /// Runs a placement if placing is allowed. Notes rejected containers, and explains the outcome under
    /// `call`.
    pub(super) fn settle(
        &mut self,
        call: &str,
        settle: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> CallOutcome,
    ) -> CallOutcome {
        if !self.places {
            return CallOutcome::default();
        }
        let mut settled = self.act(settle);
        settled.others.retain(|id, _| self.goal(id).is_none_or(|goal| !self.is_given_up(id, &goal)));
        for (id, cpuset) in &mut settled.others {
            widen(self.widening.as_ref(), self.containers.cgroup(id), cpuset);
        }
        self.explain(call, &mut settled);
        let Unseen { texts, more } = self.said.news(settled.warnings.iter().map(String::as_str));
        for warning in texts {
            tracing::warn!("placement: {warning}");
        }
        if more > 0 {
            tracing::warn!("placement: and {more} more of that sort");
        }
        for id in settled.weighed.keys().filter(|id| !settled.rejections.contains_key(*id)) {
            self.report.unplaced.remove(id);
        }
        for (id, rejection) in &settled.rejections {
            let rejection = rejection.to_string();
            if self.report.unplaced.get(id) == Some(&rejection) {
                continue;
            }
            let name = printable(self.names.get(id).map_or(id.as_str(), String::as_str));
            if self.keeps(id) {
                tracing::warn!("{name} keeps what it has: {rejection}");
            } else {
                tracing::warn!("{name} has no place and runs on the shared CPUs: {rejection}");
            }
            self.report.unplaced.insert(id.clone(), rejection);
        }
        settled
    }

    fn is_given_up(&self, id: &str, goal: &Cpuset) -> bool {
        let given_up = self.containers.cgroup(id).and_then(|cgroup| self.given_up.get(cgroup));
        given_up.is_some_and(|given_up| given_up == goal)
    }

    /// Whether a container has a place from us, whatever it asks for now.
    fn keeps(&self, id: &str) -> bool {
        let grant = self.containers.holder(id).and_then(|holder| self.allocations.get(holder));
        grant.is_some_and(|grant| grant.engine != UNPLACED)
    }

    /// The container asks again for what it has: clears its rejection.
    pub(super) fn clear_rejection(&mut self, call: &str, id: &str) {
        if !self.keeps(id) || self.report.unplaced.remove(id).is_none() {
            return;
        }
        let reason = "it asks again for what it has".to_owned();
        let record = DecisionRecord { reason, ..entry(call, DecisionState::Placed) };
        self.decisions.note(self.subject(id), record);
    }

    fn subject(&self, id: &str) -> DecisionSubject {
        DecisionSubject {
            name: self.names.get(id).cloned().unwrap_or_else(|| printable(id)),
            cgroup: self.containers.cgroup(id).cloned(),
            container_id: Some(id.to_owned()),
            ended: false,
        }
    }

    /// `cpu.shares` of the container's grant; `None` leaves them unchanged.
    pub(super) fn shares(&self, id: &str) -> Option<u64> {
        if !self.places || self.frozen.is_some() {
            return None;
        }
        self.allocations.get(self.containers.holder(id)?)?.cpu_shares
    }

    /// Notes that the runtime was told to write these cpusets. While paused or blocked nothing new is told.
    pub(super) fn note_answers<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
        if self.frozen.is_none() {
            let now = Instant::now();
            let cgroups: Vec<CgroupPath> = ids.filter_map(|id| self.containers.cgroup(id)).cloned().collect();
            self.pending_writes.extend(cgroups.iter().map(|cgroup| (cgroup.clone(), now)));
            self.note_own_writes(cgroups, now);
        }
    }

    /// Marks the begin of a turn's decision; freezes the cpusets while enforcement is paused.
    pub(super) fn decides(&mut self, paused: bool) {
        self.decided = Some(Instant::now());
        self.freeze(paused);
    }

    /// Frees what a container had that has ended, also while placing is not allowed.
    pub(super) fn ended(&mut self, call: &str, id: &str) -> CallOutcome {
        if self.places {
            return self.settle(call, |known, node| known.end(node, id));
        }
        // The runtime is not told how this changes other containers.
        self.act(|known, node| known.end(node, id));
        CallOutcome::default()
    }

    /// Marks the grants as changed without a request of the runtime.
    pub(super) fn grants_changed(&mut self) {
        self.regranted = true;
    }

    /// The latest decisions.
    pub(super) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    fn act(
        &mut self,
        act: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> CallOutcome,
    ) -> CallOutcome {
        let Some(inventory) = self.inventory.clone() else { return CallOutcome::default() };
        self.regranted = true;
        let Self { allocations, settings, containers, .. } = self;
        act(containers, &mut PlacementNode { inventory: &inventory, settings, allocations })
    }

    /// Freezes the current cpusets for as long as enforcement is paused or blocked.
    pub(super) fn freeze(&mut self, paused: bool) {
        if !paused && !self.journal_blocked {
            self.frozen = None;
        } else if self.frozen.is_none() {
            let ids: Vec<String> = self.names.keys().cloned().collect();
            let set = ids.into_iter().filter_map(|id| Some((id.clone(), self.cpuset(&id)?)));
            self.frozen = Some(set.collect());
        }
    }

    /// Text of the resource file of each container. Empty while cpusets are frozen, and for containers that
    /// are not ours to set.
    pub(super) fn exposed<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
        let Some(inventory) = self.inventory.as_ref().filter(|_| self.places && self.frozen.is_none()) else {
            return Vec::new();
        };
        let taken = self.allocations.exclusive_cpus();
        let text = |id: &str| {
            let holder = self.containers.holder(id).filter(|holder| !holder.is_given())?;
            Some((id.to_owned(), exposed(self.allocations.get(holder)?, &taken, &inventory.machine)))
        };
        ids.filter_map(text).collect()
    }

    /// Those of these containers that are still in their cold start.
    pub(super) fn starting<'a>(&self, ids: impl Iterator<Item = &'a str>) -> BTreeMap<String, Holder> {
        let holder = |id: &'a str| {
            let holder = self.containers.holder(id)?;
            self.allocations.get(holder)?.cold_start.as_ref()?;
            Some((id.to_owned(), holder.clone()))
        };
        ids.filter_map(holder).collect()
    }

    /// Whether cpusets are frozen.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The machine in use.
    #[cfg(test)]
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory.clone()
    }

    /// Whether writes are blocked by the journal.
    #[cfg(test)]
    pub(super) fn is_journal_blocked(&self) -> bool {
        self.journal_blocked
    }

    /// Cpuset that a container is to have or keep.
    pub(super) fn cpuset(&mut self, id: &str) -> Option<Cpuset> {
        if let Some(frozen) = &self.frozen {
            return frozen.get(id).cloned();
        }
        let mut cpuset = self.goal(id).filter(|goal| !self.is_given_up(id, goal))?;
        widen(self.widening.as_ref(), self.containers.cgroup(id), &mut cpuset);
        Some(cpuset)
    }

    /// Cpuset from the container's grant, without added nodes.
    fn goal(&mut self, id: &str) -> Option<Cpuset> {
        let inventory = self.inventory.clone().filter(|_| self.places)?;
        let Self { allocations, settings, containers, .. } = self;
        containers.cpuset(&PlacementNode { inventory: &inventory, settings, allocations }, id)
    }
}

/// Adds the widening's nodes, so that an answer to the runtime does not take them away.
fn widen(widening: Option<&Widening>, cgroup: Option<&CgroupPath>, cpuset: &mut Cpuset) {
    if let (Some(widening), Some(cgroup), Some(mems)) = (widening, cgroup, &mut cpuset.mems) {
        widening.add_to(cgroup, mems);
    }
}
