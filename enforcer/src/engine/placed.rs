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
    interrupts::InterruptClient,
    model::Model,
    owner::{KnownContainer, Owner, Ownership, OwnershipFacts, given_at_creation},
    owners::Owners,
    policy::{Policy, RuleSubject as Declared, WorkloadKind},
    sample::Sample,
    workload::{CgroupPath, Origin, QosClass, Workload, identify, printable},
};
use numa_placement::{ContainerRequest, Inventory};
use numa_topology::{Topology, degraded::Degraded, set::CpuSet};
use tokio::sync::Notify;

use super::{
    decisions::{Decisions, entry},
    source::ForeignOwners,
    widening::Widening,
};
use enforcer_act::{
    cpuset::CpusetTree,
    journal::{Made, MakingRecord},
};
use enforcer_kernel::{clock, waker::Waker};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, DecisionSubject},
    runtime::{RuntimeLink, RuntimeReport},
    tick::ContainerNames,
};

mod claim_limits;
mod claim_traffic;
mod claims;
mod current_claims;
mod explained;
mod held;
mod leaving;
mod originals;
mod overrides;
mod pending;
mod pins;
pub(crate) mod published;
mod record_writer;
mod requests;
mod roster;
mod runtime_writes;
mod sandboxes;
mod terms;
mod trace;
mod warn_once;

use claims::HeldClaims;
pub(super) use held::HeldResources;
pub(super) use originals::Noting;
use originals::UnjournalledOriginals;
use overrides::CpusetOverrides;
pub(super) use pins::CpusChange;
use requests::LedgerRequests;
use roster::ContainerRoster;
use runtime_writes::RuntimeWrites;
use terms::LedgerTerms;
use trace::LedgerTrace;

/// Time in which a runtime carries out the writes it was told of; meanwhile it may create a container.
const WRITTEN_BY: Duration = Duration::from_secs(10);

/// Interval of checks whether the runtime has listed its containers.
const LOOK_FOR_RUNTIME: Duration = Duration::from_millis(20);

/// Handle to the ledger; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

/// The ledger: which container has what. Each part has its own module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What the machine has and the policy says.
    pub(super) terms: LedgerTerms,
    /// Grants of containers.
    pub(super) held: HeldResources,
    /// Resource claims of containers.
    pub(super) claims: HeldClaims,
    /// Containers that runtimes have announced.
    pub(super) roster: ContainerRoster,
    /// Writes of answers by runtimes.
    pub(super) writes: RuntimeWrites,
    /// What replaces a cpuset of a grant.
    pub(super) overrides: CpusetOverrides,
    /// Cpusets that containers would have without us.
    pub(super) originals: UnjournalledOriginals,
    /// What people see of it.
    pub(super) trace: LedgerTrace,
    /// What is requested of the engine and of the runtime link.
    pub(super) requests: LedgerRequests,
}

impl SharedLedger {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Poisoning is ignored: every update leaves the grants consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies this machine and policy; `writes` says whether the daemon may write.
    pub fn apply_policy(&self, inventory: Option<Arc<Inventory>>, policy: &Policy, writes: bool) {
        let mut state = self.lock();
        if state.terms.apply(inventory, policy, writes) {
            state.requests.relist();
        }
    }

    /// Notifier that asks the runtime link to list all containers again.
    pub fn again(&self) -> Arc<Notify> {
        self.lock().requests.relisting()
    }

    /// Waits until the runtime has listed its containers or is known to be absent, for at most `limit`.
    pub fn wait_for_runtime(&self, limit: Duration) {
        let begin = Instant::now();
        while self.lock().trace.report.link == RuntimeLink::Untried && begin.elapsed() < limit {
            thread::sleep(LOOK_FOR_RUNTIME);
        }
    }

    /// Sets the waker for when [`take_early_turn`](Self::take_early_turn) should be asked.
    pub fn listen(&self, waker: Waker) {
        self.lock().requests.early_turn.set_waker(waker);
    }

    /// Takes over the previous daemon's grants, as far as `tree` still shows them.
    pub(super) fn adopt(&self, tree: CpusetTree, mut records: BTreeMap<String, GrantRecord>) {
        records.retain(|_, record| tree.set_to(&record.cgroup).is_some_and(|set_to| record.holds(&set_to)));
        let mut state = self.lock();
        let HeldResources { containers, allocations, .. } = &mut state.held;
        containers.expect(allocations, records);
        state.terms.tree = Some(tree);
    }

    /// Records from now on the cpusets that containers would have without us, and takes over the previous
    /// daemon's entries (`left`). Grants in `left` count as taken while their containers may still start.
    pub(super) fn remember(&self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        let mut state = self.lock();
        let now_ns = clock::now_ns();
        let granted =
            left.values().filter(|made| made.may_come(now_ns)).filter_map(|made| made.granted.clone());
        let mut awaited: BTreeMap<String, GrantRecord> = granted.map(|one| (one.id, one.grant)).collect();
        let Ledger { held: HeldResources { containers, allocations, .. }, terms, originals, .. } =
            &mut *state;
        let set_to = |cgroup: &CgroupPath| terms.tree.as_ref()?.set_to(cgroup);
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
        self.lock().overrides.widening = Some(widening);
    }

    /// Replaces the set of cgroups left to another writer that sets them repeatedly.
    pub(super) fn give_up(&self, goals: BTreeMap<CgroupPath, Cpuset>) {
        self.lock().overrides.given_up = goals;
    }

    /// Blocks or unblocks writes.
    pub(super) fn block_writes(&self, blocked: bool) {
        self.lock().overrides.journal_blocked = blocked;
    }

    /// Stops answers with cpusets: the daemon ends and restores what it has set. Returns the time since the
    /// latest answer that the runtime may still be writing; `None` when all are written.
    pub fn retire(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.terms.places = false;
        state.overrides.frozen = None;
        let writes = state.writes.pending_writes.values().copied();
        let latest =
            writes.chain(state.roster.pending.values().map(pending::PendingContainer::answered)).max()?;
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
        let Ledger { held: HeldResources { containers, allocations, .. }, originals, .. } = &mut *state;
        let awaited = originals.left();
        containers.expect_only(allocations, |cgroup| awaited.contains(cgroup) || runs(cgroup));
    }

    /// Current cpusets of these cgroups, read from the cgroups.
    pub(super) fn shown<'a>(
        &self,
        cgroups: impl Iterator<Item = &'a CgroupPath>,
    ) -> BTreeMap<CgroupPath, Cpuset> {
        let Some(tree) = self.lock().terms.tree.clone() else { return BTreeMap::new() };
        cgroups.filter_map(|cgroup| Some((cgroup.clone(), tree.set_to(cgroup)?))).collect()
    }

    /// The grants, if they may differ from those on disk. Clears that mark.
    pub(super) fn regranted(&self) -> Option<BTreeMap<String, GrantRecord>> {
        let mut state = self.lock();
        state.held.take_unrecorded()
    }

    /// Marks the grants as not recorded.
    pub(super) fn mark_unrecorded(&self) {
        self.lock().held.regranted = true;
    }

    /// CPUs that containers have exclusively, without those of the daemon's own pod.
    pub(crate) fn exclusive_of_others(&self) -> CpuSet {
        let state = self.lock();
        let own = state.roster.facts.own_cgroup.as_ref().map(|cgroup| identify(cgroup).origin);
        let own = match &own {
            Some(Origin::Pod { container_id: Some(id), .. }) => Some(id.as_str()),
            _ => None,
        };
        state.held.exclusive_without(own)
    }

    /// Containers with exclusive CPUs, and one more for those that are held for no container that is
    /// known. CPUs that a mark or the kubelet gave a container are not of these: their owners tell of
    /// them.
    pub(super) fn exclusive_clients(&self, machine: &Topology) -> Vec<InterruptClient> {
        let state = self.lock();
        let HeldResources { containers, allocations, .. } = &state.held;
        let client = |cgroup: Option<&CgroupPath>, name: String, exclusive: CpuSet| InterruptClient {
            cgroup: cgroup.cloned(),
            name,
            nodes: machine.nodes_of(&exclusive),
            exclusive,
            ..InterruptClient::default()
        };
        let granted = containers.cgroups().filter(|(_, holder)| !holder.is_given());
        let granted = granted.filter_map(|(cgroup, holder)| {
            let exclusive = allocations.get(holder)?.exclusive.clone();
            (!exclusive.is_empty()).then(|| client(Some(cgroup), holder.to_string(), exclusive))
        });
        let mut clients: Vec<InterruptClient> = granted.collect();
        let known = clients.iter().fold(CpuSet::new(), |all, one| all.union(&one.exclusive));
        let told = allocations.iter().filter(|(holder, _)| !holder.is_given());
        let others =
            told.fold(CpuSet::new(), |all, (_, grant)| all.union(&grant.exclusive)).difference(&known);
        if !others.is_empty() {
            clients.push(client(None, "claims and containers that start".to_owned(), others));
        }
        clients
    }

    /// Replaces the facts about other writers of cpusets.
    pub(super) fn set_foreign_owners(&self, others: ForeignOwners) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.roster.facts.kubelet, others.kubelet);
        state.roster.facts.units = others.units;
        state.roster.facts.lxc = others.lxc;
        state.roster.facts.own_cgroup = others.own_cgroup;
        let kubelet = &mut state.roster.facts.kubelet;
        if kubelet.unread.is_some() {
            kubelet.keep_untold(before);
        } else if state.requests.take_left_alone() && state.terms.places {
            state.requests.relist();
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
        note(&state.roster.facts);
        let declarations = Declarations::find(policy, workloads, &sample.tasks, &state.roster.facts);
        let owners = {
            let placed = state.held.containers.cgroups().filter(|(_, holder)| !holder.is_given());
            let placed: BTreeSet<&CgroupPath> = placed.map(|(cgroup, _)| cgroup).collect();
            Owners::find(&state.roster.facts, workloads, model, &declarations, |cgroup| {
                placed.contains(cgroup)
            })
        };
        for workload in workloads {
            let Origin::Pod { container_id: Some(id), .. } = &workload.origin else { continue };
            let Some(holder) = state.held.containers.holder(id).cloned() else { continue };
            let name = holder.name();
            if holder.is_given() {
                let nothing = state.held.allocations.get(&holder).is_some_and(|had| had.exclusive.is_empty());
                let named = owners.foreign(workload).filter(|ownership| ownership.cpus.is_some());
                // A mark can name too many CPUs for one container and still be right for all containers of
                // its pod.
                if let Some(ownership) = named.filter(|_| nothing) {
                    state.run_placement("turn", |known, node| known.give_up(node, id, name, None, ownership));
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
            state.run_placement("turn", |known, node| known.give_up(node, id, name, None, ownership));
        }
        (declarations, owners)
    }

    /// The latest decisions.
    pub(super) fn decisions(&self) -> Decisions {
        self.lock().trace.decisions.clone()
    }

    /// Gives workloads the runtime's names.
    pub(super) fn rename(&self, workloads: &mut [Workload]) {
        let state = self.lock();
        for workload in workloads {
            if let Origin::Pod { container_id: Some(id), .. } = &workload.origin
                && let Some(name) = state.roster.names.get(id)
            {
                workload.name.clone_from(name);
            }
        }
    }

    /// Pod names of the workloads, from the runtime.
    pub(super) fn pods(&self, workloads: &[Workload]) -> BTreeMap<CgroupPath, ContainerNames> {
        let known = &self.lock().roster.facts.containers;
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
        self.lock().trace.degraded()
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
        self.lock().requests.early_turn.take()
    }

    /// Cgroups with cpusets that the runtime is writing because of our answers.
    pub(super) fn pending_writes(&self) -> Vec<CgroupPath> {
        self.lock().writes.pending()
    }

    /// Treats all answers as carried out.
    #[cfg(test)]
    pub(super) fn finish_pending_writes(&self) {
        self.lock().writes.pending_writes.clear();
    }

    /// State of the runtime link; `None` if there never was a runtime. Resets the longest deciding time.
    pub(super) fn take_report(&self) -> Option<RuntimeReport> {
        let mut state = self.lock();
        let containers = state.roster.names.len();
        state.trace.take_report(containers)
    }
}

impl Ledger {
    /// Records a container's runtime names, its declared rule and the owner of its cpuset.
    pub(super) fn name(&mut self, one: &mut Announced, known: KnownContainer) {
        let mut known = self.terms.believed(known);
        self.bind_claims(one);
        if one.claimed.is_some() || self.claims.has_written_mark(one, &known) {
            // Its variables are those of this daemon's own driver.
            known.claim = None;
        }
        if let Some(why) = self.why_mark_is_void(&known) {
            let container = printable(&format!("{}/{}/{}", known.namespace, known.pod, known.container));
            let text = format!("{container} is placed as any other, beside resource claims: {why}");
            self.trace.warn([text.as_str()]);
            known.claim = None;
        }
        if let Some(cpus) = self.roster.facts.excess(&known) {
            let container = printable(&format!("{}/{}/{}", known.namespace, known.pod, known.container));
            let text =
                format!("{container} requests less than the CPUs {cpus} of its mark: none count as taken");
            self.trace.warn([text.as_str()]);
        }
        // The same id in another cgroup is another container; the former one is gone.
        if self.held.containers.cgroup(&one.id).is_some_and(|before| one.cgroup.as_ref() != Some(before)) {
            self.trace.decisions.end(&one.id);
        }
        one.given = self.given(one, &known);
        self.requests.left_alone |= one.given.as_ref().is_some_and(|given| given.owner == Owner::Unknown);
        self.declare(one, &known);
        self.roster.facts.containers.insert(one.id.clone(), known);

        self.roster.insert_name(one);
    }

    /// Applies the configuration's rule to a container. No process runs in it yet, so commands do not match.
    fn declare(&self, one: &mut Announced, known: &KnownContainer) {
        let (cgroup, pod) = (one.cgroup.as_ref(), Some(names_of(known)));
        let subject = Declared { cgroup, standing: WorkloadKind::Pod, pod, commands: &[] };
        let mut rules = self.terms.rules.iter().enumerate();
        let Some((position, rule)) = rules.find(|(_, rule)| rule.is_about(&subject)) else { return };
        one.opts_out = !rule.enforce;
        // The kubelet policy ignores the rest of the rule; the configuration check has reported it.
        if self.terms.settings.predicts_kubelet() {
            return;
        }
        let (Some(inventory), Some(asked)) = (&self.terms.inventory, one.pod.containers.first_mut()) else {
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
        let given = given_at_creation(&self.roster.facts, known, one.now.cpus.as_ref(), whole)?;
        let ours = one.claimed.is_some()
            || self.held.containers.holder(&one.id).is_some_and(|holder| !holder.is_given())
            || one.cgroup.as_ref().is_some_and(|cgroup| self.held.containers.expects(cgroup));
        (given.owner != Owner::Unknown || !ours).then_some(given)
    }

    /// Id of the container in this cgroup.
    pub(super) fn container_in(&self, cgroup: &CgroupPath) -> Option<String> {
        let has = |id: &&String| self.held.containers.cgroup(id) == Some(cgroup);
        self.roster.names.keys().find(has).cloned()
    }

    /// Forgets a container that has ended. The decision is logged under `call`.
    pub(super) fn ends(&mut self, call: &str, id: &str) -> CallOutcome {
        if let Some(cgroup) =
            self.held.containers.cgroup(id).or_else(|| self.held.containers.expected_cgroup(id))
        {
            self.originals.ends(cgroup);
            self.writes.pending_writes.remove(cgroup);
        }
        let settled = self.ended(call, id);
        self.roster.end(id);
        self.trace.decisions.end(id);
        self.overrides.unfreeze(id);
        if self.claims.keep(|one| one != id) {
            self.rebind();
        }
        self.trace.report.unplaced.remove(id);
        settled
    }

    /// Replaces the list of containers.
    pub(super) fn only(&mut self, all: &mut [(Announced, KnownContainer)]) {
        let there = all.iter().map(|(one, _)| one.id.as_str());
        self.trace.decisions.only(&there.chain(self.roster.leaving.keys().map(String::as_str)).collect());
        self.requests.left_alone = false;
        self.roster.keep_leaving();
        let listed: BTreeSet<String> = all.iter().map(|(one, _)| one.id.clone()).collect();
        let leaving = &self.roster.leaving;
        let _rebound = self.claims.keep(|id| listed.contains(id) || leaving.contains_key(id));
        self.trace.report.unplaced.clear();
        self.originals.only(|cgroup| all.iter().any(|(one, _)| one.cgroup.as_ref() == Some(cgroup)));
        // All containers of a pod together make its request.
        let told: Vec<_> =
            all.iter().map(|(one, known)| (one.id.clone(), self.terms.believed(known.clone()))).collect();
        self.roster.facts.containers.extend(told);
        let found = all.iter().filter(|(one, _)| one.shown.is_some());
        self.roster.found = found.map(|(one, _)| one.id.clone()).collect();
        for (one, known) in all {
            self.name(one, std::mem::take(known));
        }
    }

    /// Runs a placement if placing is allowed. Notes rejected containers, and explains the outcome under
    /// `call`.
    pub(super) fn run_placement(
        &mut self,
        call: &str,
        settle: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> CallOutcome,
    ) -> CallOutcome {
        if !self.terms.places {
            return CallOutcome::default();
        }
        let mut settled = self.act(settle);
        settled.others.retain(|id, _| self.goal(id).is_none_or(|goal| !self.is_given_up(id, &goal)));
        for (id, cpuset) in &mut settled.others {
            self.overrides.widen(self.held.containers.cgroup(id), cpuset);
        }
        self.explain(call, &mut settled);
        self.trace.warn_of_placement(settled.warnings.iter().map(String::as_str));
        for id in settled.weighed.keys().filter(|id| !settled.rejections.contains_key(*id)) {
            self.trace.report.unplaced.remove(id);
        }
        for (id, rejection) in &settled.rejections {
            let rejection = rejection.to_string();
            if self.trace.report.unplaced.get(id) == Some(&rejection) {
                continue;
            }
            let name = printable(self.roster.names.get(id).map_or(id.as_str(), String::as_str));
            if self.held.has_place(id) {
                tracing::warn!("{name} keeps what it has: {rejection}");
            } else {
                tracing::warn!("{name} has no place and runs on the shared CPUs: {rejection}");
            }
            self.trace.report.unplaced.insert(id.clone(), rejection);
        }
        settled
    }

    fn is_given_up(&self, id: &str, goal: &Cpuset) -> bool {
        self.held.containers.cgroup(id).is_some_and(|cgroup| self.overrides.is_given_up(cgroup, goal))
    }

    /// The container asks again for what it has: clears its rejection.
    pub(super) fn clear_rejection(&mut self, call: &str, id: &str) {
        if !self.held.has_place(id) || self.trace.report.unplaced.remove(id).is_none() {
            return;
        }
        let reason = "it asks again for what it has".to_owned();
        let record = DecisionRecord { reason, ..entry(call, DecisionState::Placed) };
        self.trace.decisions.note(self.subject(id), record);
    }

    fn subject(&self, id: &str) -> DecisionSubject {
        DecisionSubject {
            name: self.roster.name_of(id),
            cgroup: self.held.containers.cgroup(id).cloned(),
            container_id: Some(id.to_owned()),
            ended: false,
        }
    }

    /// `cpu.shares` of the container's grant; `None` leaves them unchanged.
    pub(super) fn shares(&self, id: &str) -> Option<u64> {
        if !self.terms.places || self.overrides.is_frozen() {
            return None;
        }
        self.held.grant(id)?.cpu_shares
    }

    /// Notes that the runtime was told to write these cpusets. While paused or blocked nothing new is told.
    pub(super) fn note_answers<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
        if !self.overrides.is_frozen() {
            let cgroups = ids.filter_map(|id| self.held.containers.cgroup(id)).cloned().collect();
            self.writes.note_answers(cgroups, Instant::now());
        }
    }

    /// Marks the begin of a turn's decision; freezes the cpusets while enforcement is paused.
    pub(super) fn decides(&mut self, paused: bool) {
        self.writes.decided = Some(Instant::now());
        self.freeze(paused);
    }

    /// Frees what a container had that has ended, also while placing is not allowed.
    pub(super) fn ended(&mut self, call: &str, id: &str) -> CallOutcome {
        if self.terms.places {
            return self.run_placement(call, |known, node| known.end(node, id));
        }
        // The runtime is not told how this changes other containers.
        self.act(|known, node| known.end(node, id));
        CallOutcome::default()
    }

    fn act(
        &mut self,
        act: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> CallOutcome,
    ) -> CallOutcome {
        self.held.change(&self.terms, act)
    }

    /// Freezes the current cpusets for as long as enforcement is paused or blocked.
    pub(super) fn freeze(&mut self, paused: bool) {
        if !paused && !self.overrides.journal_blocked {
            self.overrides.frozen = None;
        } else if !self.overrides.is_frozen() {
            let ids: Vec<String> = self.roster.names.keys().cloned().collect();
            let set = ids.into_iter().filter_map(|id| Some((id.clone(), self.cpuset(&id)?)));
            self.overrides.frozen = Some(set.collect());
        }
    }

    /// Text of the resource file of each container. Empty while cpusets are frozen, and for containers that
    /// are not ours to set.
    pub(super) fn exposed<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
        let Some(inventory) =
            self.terms.inventory.as_ref().filter(|_| self.terms.places && !self.overrides.is_frozen())
        else {
            return Vec::new();
        };
        let taken = self.held.allocations.exclusive_cpus();
        let text = |id: &str| {
            let holder = self.held.containers.holder(id).filter(|holder| !holder.is_given())?;
            Some((id.to_owned(), exposed(self.held.allocations.get(holder)?, &taken, &inventory.machine)))
        };
        ids.filter_map(text).collect()
    }

    /// The machine in use.
    #[cfg(test)]
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.terms.inventory.clone()
    }

    /// Whether writes are blocked by the journal.
    #[cfg(test)]
    pub(super) fn is_journal_blocked(&self) -> bool {
        self.overrides.journal_blocked
    }

    /// Cpuset that a container is to have or keep.
    pub(super) fn cpuset(&mut self, id: &str) -> Option<Cpuset> {
        if let Some(frozen) = &self.overrides.frozen {
            return frozen.get(id).cloned();
        }
        let mut cpuset = self.goal(id).filter(|goal| !self.is_given_up(id, goal))?;
        self.overrides.widen(self.held.containers.cgroup(id), &mut cpuset);
        Some(cpuset)
    }

    /// Cpuset from the container's grant, without added nodes.
    fn goal(&mut self, id: &str) -> Option<Cpuset> {
        self.held.goal(&self.terms, id)
    }
}
