//! What is given away on this node: shared by the turns of the engine and the calls of a container runtime.
//!
//! A runtime asks at any time and waits for the answer, a turn takes as long as the kernel lets it. So this
//! is behind a lock of its own, which is held for one decision and never while anything is read or written:
//! what is noted for the next daemon is handed to a thread ([`record_writer`]) and waited for without it.
//!
//! Until the machine was read, and where the daemon may not place, containers are only known by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::{
    declarations::{Declarations, names_of},
    degraded::Degraded,
    model::Model,
    owner::{Facts, KnownContainer, Owner, Owners, Ownership, given_at_creation},
    place::{
        Allocations, Announced, ContainerRequest, Containers, Cpuset, GrantRecord, Holder, Inventory, Node,
        Settled, UNPLACED, exposed,
    },
    policy::{Policy, Standing, Subject as Declared, WorkloadRule, placement::PlacementSettings},
    sample::Sample,
    set::CpuSet,
    workload::{CgroupPath, Origin, QosClass, Workload, identify, printable},
};
use tokio::sync::Notify;

use super::{
    decisions::{Decisions, entry},
    source::Others,
    widening::Widening,
};
use crate::waker::Waker;
use enforcer_act::{
    cpuset::CpusetTree,
    journal::{MADE_WITHIN, Made, MakingRecord},
};
use enforcer_kernel::clock;
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, Subject},
    runtime::{Deciding, RuntimeLink, RuntimeReport},
    tick::PodNames,
};

mod current_claims;
mod explained;
mod leaving;
mod making;
mod originals;
mod pins;
mod record_writer;
mod said;
mod sandboxes;
mod told;

pub(super) use originals::Noting;
use originals::Originals;
pub(super) use pins::Retold;
use said::{News, Said};

/// Longest name of a container that is shown, in characters.
const NAME_LIMIT: usize = 200;

/// Time within which a runtime has written what it was told: it makes a container meanwhile.
const WRITTEN_BY: Duration = Duration::from_secs(10);

/// Time between two looks at whether the runtime has said which containers there are.
const LOOK_FOR_RUNTIME: Duration = Duration::from_millis(20);

/// A handle to what is given away; clones refer to the same.
#[derive(Debug, Clone, Default)]
pub struct Placed(Arc<Mutex<State>>);

/// What is given away, and to whom.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct State {
    pub(super) allocations: Allocations,
    pub(super) containers: Containers,
    inventory: Option<Arc<Inventory>>,
    settings: PlacementSettings,
    /// Marks of other controllers do not count.
    ignores_marks: bool,
    /// What people declared.
    rules: Vec<WorkloadRule>,
    places: bool,
    /// Told when containers have to be announced once more.
    again: Arc<Notify>,
    /// Containers have come of which it could not be told whose they are.
    left_alone: bool,
    /// Whom somebody else sets again and again, and what they were to be: no answer brings them back to that,
    /// as no turn does.
    given_up: BTreeMap<CgroupPath, Cpuset>,
    /// Containers whose cpuset the runtime was told to write, and when.
    told: BTreeMap<CgroupPath, Instant>,
    /// Containers whose CPUs the runtime was told to change since the latest turn began.
    retold: BTreeSet<CgroupPath>,
    /// Where threads of these were pinned, until the runtime has written.
    pins: BTreeMap<CgroupPath, pins::Pins>,
    /// When the latest turn decided.
    decided: Option<Instant>,
    /// What containers would have been set to without us.
    pub(super) originals: Originals,
    /// Containers whose creation was answered with a place, as they will be listed, and when; until they run.
    making: BTreeMap<String, making::Making>,
    /// Containers that end, and whose processes may still run.
    leaving: BTreeMap<String, leaving::Leaving>,
    /// Containers that a runtime has listed and whose cgroups were there.
    found: BTreeSet<String>,
    /// Containers that have ended, and when: what is told of them afterwards was under way.
    ended_lately: BTreeMap<String, Instant>,
    /// Grants may differ from those that were recorded last.
    regranted: bool,
    /// Where cgroups show what they are set to, for a daemon that may write.
    tree: Option<CpusetTree>,
    /// `NAMESPACE/POD (sandbox)` by sandbox id.
    sandboxes: BTreeMap<String, String>,
    /// Cgroups whose cpusets the runtime carries out on our behalf, a new container's included, and when it
    /// was told.
    answered: BTreeMap<CgroupPath, Instant>,
    /// `NAMESPACE/POD/CONTAINER` by container id.
    pub(super) names: BTreeMap<String, String>,
    /// Who else writes cpusets.
    facts: Facts,
    report: RuntimeReport,
    said: Said,
    /// Nothing may be set, because it could not be undone.
    barred: bool,
    /// While enforcement is paused or barred: what each container was set to when that began.
    held: Option<BTreeMap<String, Cpuset>>,
    decisions: Decisions,
    /// What was added to containers that ran short of memory; none where nobody adds any.
    widening: Option<Widening>,
}

impl Placed {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left grants that are whole: each change of them is one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with this machine and policy; `writes` says whether the daemon may.
    pub fn follow(&self, inventory: Option<Arc<Inventory>>, policy: &Policy, writes: bool) {
        let mut state = self.lock();
        state.inventory = inventory;
        state.settings = policy.placement.clone();
        state.rules.clone_from(&policy.workloads);
        if std::mem::replace(&mut state.ignores_marks, !policy.nri.honour_marks) == policy.nri.honour_marks {
            state.again.notify_one();
        }
        let placed = std::mem::replace(&mut state.places, writes && policy.nri.place);
        if state.places && !placed {
            // Who came meanwhile is only known by name.
            state.again.notify_one();
        }
    }

    /// Whoever keeps up the link to a runtime is to be told by it once more which containers there are.
    pub fn again(&self) -> Arc<Notify> {
        Arc::clone(&self.lock().again)
    }

    /// Waits until the runtime has said which containers there are, or that it is not there; at most so long.
    pub fn wait_for_runtime(&self, limit: Duration) {
        let begin = Instant::now();
        while self.lock().report.link == RuntimeLink::Untried && begin.elapsed() < limit {
            thread::sleep(LOOK_FOR_RUNTIME);
        }
    }

    /// Wakes this from now on when [`has_started`](Self::has_started) should be asked.
    pub fn listen(&self, waker: Waker) {
        self.lock().originals.listen(waker);
    }

    /// Goes on where the daemon before this one stopped, as far as `tree` still shows what it had granted.
    pub(super) fn adopt(&self, tree: CpusetTree, mut records: BTreeMap<String, GrantRecord>) {
        records.retain(|_, record| tree.set_to(&record.cgroup).is_some_and(|set_to| record.holds(&set_to)));
        let mut state = self.lock();
        let State { containers, allocations, .. } = &mut *state;
        containers.expect(allocations, records);
        state.tree = Some(tree);
    }

    /// Notes from now on what containers would be set to without us, and goes on with what a daemon before
    /// this one `left`: what those were granted that still may be made counts as given away.
    pub(super) fn remember(&self, record: MakingRecord, left: BTreeMap<CgroupPath, Made>) {
        let mut state = self.lock();
        let now_ns = clock::now_ns();
        let granted =
            left.values().filter(|made| made.may_come(now_ns)).filter_map(|made| made.granted.clone());
        let mut awaited: BTreeMap<String, GrantRecord> = granted.map(|one| (one.id, one.grant)).collect();
        let State { containers, allocations, tree, originals, .. } = &mut *state;
        let set_to = |cgroup: &CgroupPath| tree.as_ref()?.set_to(cgroup);
        // One that is made this moment is set to nothing yet, or to what its parent has.
        let may_hold = |record: &GrantRecord| {
            let Some(found) = set_to(&record.cgroup) else { return true };
            let of_parent = record.cgroup.parent().and_then(|parent| set_to(&parent));
            found.is_empty() || of_parent.is_some_and(|of_parent| of_parent == found) || record.holds(&found)
        };
        awaited.retain(|_, record| !containers.expects(&record.cgroup) && may_hold(record));
        containers.expect(allocations, awaited);
        originals.remember(record, left);
    }

    /// What is added to containers that run short of memory is part of what they are set to.
    pub(super) fn widened_by(&self, widening: Widening) {
        self.lock().widening = Some(widening);
    }

    /// These are left to who sets them again and again, and nobody else is.
    pub(super) fn give_up(&self, goals: BTreeMap<CgroupPath, Cpuset>) {
        self.lock().given_up = goals;
    }

    /// Nothing may be set from now on, or may be again.
    pub(super) fn bar(&self, barred: bool) {
        self.lock().barred = barred;
    }

    /// The daemon ends and puts back what it has set: a runtime is told nothing from now on. Returns how long
    /// ago it was last told something that it may be writing still; `None` where it has written all of it.
    pub fn retire(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.places = false;
        state.held = None;
        let told = state.told.values().copied();
        let latest = told.chain(state.making.values().map(making::Making::answered)).max()?;
        Some(latest.elapsed()).filter(|since| *since < WRITTEN_BY)
    }

    /// Can it be noted what containers would be set to without us? The error says why not.
    pub(super) fn can_note(&self) -> Result<(), String> {
        let waiter = self.lock().originals.waiter();
        waiter.map_or(Ok(()), |waiter| waiter.check())
    }

    /// Of the containers that were there before the daemon, only those are still there that run, or that may
    /// still be made.
    pub(super) fn expect_only(&self, workloads: &[Workload]) {
        let mut state = self.lock();
        let runs = |cgroup: &CgroupPath| workloads.iter().any(|one| one.cgroup == *cgroup);
        state.lapse(runs);
        let State { containers, allocations, originals, .. } = &mut *state;
        let awaited = originals.left();
        containers.expect_only(allocations, |cgroup| awaited.contains(cgroup) || runs(cgroup));
    }

    /// What cgroups are set to, as they show it themselves.
    pub(super) fn shown<'a>(
        &self,
        cgroups: impl Iterator<Item = &'a CgroupPath>,
    ) -> BTreeMap<CgroupPath, Cpuset> {
        let Some(tree) = self.lock().tree.clone() else { return BTreeMap::new() };
        cgroups.filter_map(|cgroup| Some((cgroup.clone(), tree.set_to(cgroup)?))).collect()
    }

    /// What containers have been granted by now, if that may be different from what was recorded.
    pub(super) fn regranted(&self) -> Option<BTreeMap<String, GrantRecord>> {
        let mut state = self.lock();
        std::mem::take(&mut state.regranted).then(|| state.containers.records(&state.allocations))
    }

    /// It could not be recorded.
    pub(super) fn not_recorded(&self) {
        self.lock().regranted = true;
    }

    /// Notes who else writes cpusets.
    /// CPUs that containers have for themselves, but for those of the daemon's own pod.
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

    pub(super) fn beside(&self, others: Others) {
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

    /// Who is declared, and whose each cpuset is. What is somebody else's, or is declared to be left alone,
    /// and was ours by mistake or until now, is given up. `note` is told what that is found from. What is not
    /// known to be anybody's keeps what we gave it, and is not written.
    pub(super) fn owners(
        &self,
        workloads: &[Workload],
        sample: &Sample,
        model: &Model,
        policy: &Policy,
        note: impl FnOnce(&Facts),
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
                // A mark that named too many for it alone counts when the others of its pod are there.
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

    /// What was decided lately.
    pub(super) fn decisions(&self) -> Decisions {
        self.lock().decisions.clone()
    }

    /// Gives workloads the names that the runtime has for them.
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

    /// Names of the pods that workloads are containers of, as the runtime told them.
    pub(super) fn pods(&self, workloads: &[Workload]) -> BTreeMap<CgroupPath, PodNames> {
        let known = &self.lock().facts.containers;
        let named = workloads.iter().filter_map(|workload| {
            let Origin::Pod { container_id: Some(id), .. } = &workload.origin else { return None };
            let KnownContainer { namespace, pod, container, .. } = known.get(id)?;
            let [namespace, pod, container] = [namespace, pod, container].map(Clone::clone);
            Some((workload.cgroup.clone(), PodNames { namespace, pod, container }))
        });
        named.collect()
    }

    /// A runtime that was there and is not. One that never was is none that is missed.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let RuntimeReport { link, calls, .. } = &self.lock().report;
        let RuntimeLink::Down { reason } = link else { return None };
        let effect = "new containers start without a place and get one when the runtime is back";
        (!calls.is_empty()).then(|| Degraded::new("nri", reason.clone(), effect))
    }

    /// Has the journal `renew` what runtimes were told by their callers to set, of those in it. What it does
    /// not take is offered again.
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

    /// What containers would have been set to without us, as far as it is not recorded.
    pub(super) fn unrecorded(&self) -> BTreeMap<CgroupPath, Cpuset> {
        self.lock().originals.unrecorded()
    }

    /// These are recorded.
    pub(super) fn recorded(&self, cgroups: &[CgroupPath]) {
        self.lock().originals.recorded(cgroups);
    }

    /// Has a container started that is to be recorded, or of whose creation nobody was told, since this was
    /// last asked?
    pub(super) fn has_started(&self) -> bool {
        self.lock().originals.take_started()
    }

    /// Cgroups whose cpusets the runtime writes about now, because it was told to.
    pub(super) fn told_lately(&self) -> Vec<CgroupPath> {
        let told = &mut self.lock().told;
        told.retain(|_, at| at.elapsed() < WRITTEN_BY);
        told.keys().cloned().collect()
    }

    /// Whatever the runtime was told, it has written by now.
    #[cfg(test)]
    pub(super) fn told_long_ago(&self) {
        self.lock().told.clear();
    }

    /// How the runtime fares; `None` where there never was one. What is told since the report before begins
    /// anew.
    pub(super) fn take_report(&self) -> Option<RuntimeReport> {
        let mut state = self.lock();
        let known = state.report != RuntimeReport::default();
        let report = known.then(|| RuntimeReport { containers: state.names.len(), ..state.report.clone() });
        state.report.deciding.longest = None;
        report
    }
}

impl State {
    /// Notes what the runtime calls a container, what is declared for it, and whose its cpuset is.
    pub(super) fn name(&mut self, one: &mut Announced, known: KnownContainer) {
        let known = self.believed(known);
        if let Some(cpus) = self.facts.excess(&known) {
            let who = printable(&format!("{}/{}/{}", known.namespace, known.pod, known.container));
            let text =
                format!("{who} asks for less than the CPUs {cpus} of its mark: none of them count as taken");
            for text in self.said.news([text.as_str()]).texts {
                tracing::warn!("{text}");
            }
        }
        // The same id in another cgroup is another container, and the one before is gone.
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

    /// What counts of what a container says of itself.
    fn believed(&self, known: KnownContainer) -> KnownContainer {
        if self.ignores_marks { KnownContainer { claim: None, ..known } } else { known }
    }

    /// What the configuration declares for a container. It runs no command yet.
    fn declare(&self, one: &mut Announced, known: &KnownContainer) {
        let (cgroup, pod) = (one.cgroup.as_ref(), Some(names_of(known)));
        let subject = Declared { cgroup, standing: Standing::Pod, pod, commands: &[] };
        let mut rules = self.rules.iter().enumerate();
        let Some((position, rule)) = rules.find(|(_, rule)| rule.is_about(&subject)) else { return };
        one.opts_out = !rule.enforce;
        // No kubelet reads the rest of it; the reader of the configuration has said so.
        if self.settings.predicts_kubelet() {
            return;
        }
        let (Some(inventory), Some(asked)) = (&self.inventory, one.pod.containers.first_mut()) else {
            return;
        };
        for unknown in asked.declare(rule, position, &inventory.machine) {
            tracing::warn!("workload {:?}: {unknown}", rule.name);
        }
    }

    /// Whose its cpuset is, if it is another's. What is ours stays so where it cannot be told any longer.
    fn given(&self, one: &Announced, known: &KnownContainer) -> Option<Ownership> {
        let asked = one.pod.containers.first().filter(|_| one.pod.qos == QosClass::Guaranteed);
        let whole = asked.and_then(ContainerRequest::whole_cpus);
        let given = given_at_creation(&self.facts, known, one.now.cpus.as_ref(), whole)?;
        let ours = self.containers.holder(&one.id).is_some_and(|holder| !holder.is_given())
            || one.cgroup.as_ref().is_some_and(|cgroup| self.containers.expects(cgroup));
        (given.owner != Owner::Unknown || !ours).then_some(given)
    }

    /// The id of the container in this cgroup.
    pub(super) fn who_has(&self, cgroup: &CgroupPath) -> Option<String> {
        let has = |id: &&String| self.containers.cgroup(id) == Some(cgroup);
        self.names.keys().find(has).cloned()
    }

    /// A container has ended, and is forgotten: what of it is told for `call`.
    pub(super) fn ends(&mut self, call: &str, id: &str) -> Settled {
        if let Some(cgroup) = self.containers.cgroup(id).or_else(|| self.containers.expected_cgroup(id)) {
            self.originals.ends(cgroup);
            self.told.remove(cgroup);
        }
        let settled = self.ended(call, id);
        self.ended_lately.retain(|_, at| at.elapsed() < MADE_WITHIN);
        self.ended_lately.insert(id.to_owned(), Instant::now());
        self.making.remove(id);
        self.leaving.remove(id);
        self.found.remove(id);
        self.names.remove(id);
        self.facts.containers.remove(id);
        self.decisions.end(id);
        if let Some(held) = &mut self.held {
            held.remove(id);
        }
        self.report.unplaced.remove(id);
        settled
    }

    /// Only these containers are there.
    pub(super) fn only(&mut self, all: &mut [(Announced, KnownContainer)]) {
        let there = all.iter().map(|(one, _)| one.id.as_str());
        self.decisions.only(&there.chain(self.leaving.keys().map(String::as_str)).collect());
        self.left_alone = false;
        let Self { names, facts, leaving, .. } = self;
        names.retain(|id, _| leaving.contains_key(id));
        facts.containers.retain(|id, _| leaving.contains_key(id));
        self.report.unplaced.clear();
        self.originals.only(|cgroup| all.iter().any(|(one, _)| one.cgroup.as_ref() == Some(cgroup)));
        // What a pod asks for is told by all its containers.
        let told: Vec<_> =
            all.iter().map(|(one, known)| (one.id.clone(), self.believed(known.clone()))).collect();
        self.facts.containers.extend(told);
        let found = all.iter().filter(|(one, _)| one.shown.is_some());
        self.found = found.map(|(one, _)| one.id.clone()).collect();
        for (one, known) in all {
            self.name(one, std::mem::take(known));
        }
    }

    /// Notes the link to a runtime; says whether it is another one than before.
    pub(super) fn link(&mut self, link: RuntimeLink) -> bool {
        let is_new = self.report.link != link;
        self.report.link = link;
        is_new
    }

    /// Counts a call.
    pub(super) fn count(&mut self, call: &'static str) {
        *self.report.calls.entry(call).or_default() += 1;
    }

    /// Counts an answer, and whether it came too late.
    pub(super) fn answered(&mut self, call: &'static str, took: Duration, late: bool) {
        let Deciding { sum, longest, creations } = &mut self.report.deciding;
        *sum = sum.saturating_add(took);
        *longest = (*longest).max(Some(took));
        if call == "create" {
            creations.note(took);
        }
        self.report.late += u64::from(late);
    }

    /// Places, where that may be done now, and notes who has no place, and for `call` how that came about.
    pub(super) fn settle(
        &mut self,
        call: &str,
        settle: impl FnOnce(&mut Containers, &mut Node<'_>) -> Settled,
    ) -> Settled {
        if !self.places {
            return Settled::default();
        }
        let mut settled = self.act(settle);
        settled.others.retain(|id, _| self.goal(id).is_none_or(|goal| !self.is_given_up(id, &goal)));
        for (id, cpuset) in &mut settled.others {
            widen(self.widening.as_ref(), self.containers.cgroup(id), cpuset);
        }
        self.explain(call, &mut settled);
        let News { texts, more } = self.said.news(settled.warnings.iter().map(String::as_str));
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
                tracing::warn!("{name} has no place and runs on what is left: {rejection}");
            }
            self.report.unplaced.insert(id.clone(), rejection);
        }
        settled
    }

    fn is_given_up(&self, id: &str, goal: &Cpuset) -> bool {
        let given_up = self.containers.cgroup(id).and_then(|cgroup| self.given_up.get(cgroup));
        given_up.is_some_and(|given_up| given_up == goal)
    }

    /// Has a container a place that was given to it, whatever it asks for now?
    fn keeps(&self, id: &str) -> bool {
        let grant = self.containers.holder(id).and_then(|holder| self.allocations.get(holder));
        grant.is_some_and(|grant| grant.engine != UNPLACED)
    }

    /// It asks for what it has, whatever it asked for before.
    pub(super) fn is_content(&mut self, call: &str, id: &str) {
        if !self.keeps(id) || self.report.unplaced.remove(id).is_none() {
            return;
        }
        let reason = "it asks again for what it has".to_owned();
        let record = DecisionRecord { reason, ..entry(call, DecisionState::Placed) };
        self.decisions.note(self.subject(id), record);
    }

    fn subject(&self, id: &str) -> Subject {
        Subject {
            name: self.names.get(id).cloned().unwrap_or_else(|| printable(id)),
            cgroup: self.containers.cgroup(id).cloned(),
            container_id: Some(id.to_owned()),
            ended: false,
        }
    }

    /// `cpu.shares` that belong to what a container was given; `None` where they are left as they are.
    pub(super) fn shares(&self, id: &str) -> Option<u64> {
        if !self.places || self.held.is_some() {
            return None;
        }
        self.allocations.get(self.containers.holder(id)?)?.cpu_shares
    }

    /// Notes that the runtime is told what to set these to. While paused or barred it is told nothing new.
    pub(super) fn tells<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
        if self.held.is_none() {
            let now = Instant::now();
            let told = ids.filter_map(|id| Some((self.containers.cgroup(id)?.clone(), now)));
            self.told.extend(told);
            let told: Vec<CgroupPath> = self.told.keys().cloned().collect();
            self.note_answered(told, now);
        }
    }

    /// A turn decides now, and holds what containers are set to while enforcement is paused.
    pub(super) fn decides(&mut self, paused: bool) {
        self.decided = Some(Instant::now());
        self.hold(paused);
    }

    /// A container has ended. What it had is free, whether anybody may be placed now or not.
    pub(super) fn ended(&mut self, call: &str, id: &str) -> Settled {
        if self.places {
            return self.settle(call, |known, node| known.end(node, id));
        }
        // Nobody is told what that changes for others.
        self.act(|known, node| known.end(node, id));
        Settled::default()
    }

    /// Grants have changed without the runtime having asked.
    pub(super) fn grants_changed(&mut self) {
        self.regranted = true;
    }

    /// What was decided lately.
    pub(super) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    fn act(&mut self, act: impl FnOnce(&mut Containers, &mut Node<'_>) -> Settled) -> Settled {
        let Some(inventory) = self.inventory.clone() else { return Settled::default() };
        self.regranted = true;
        let Self { allocations, settings, containers, .. } = self;
        act(containers, &mut Node { inventory: &inventory, settings, allocations })
    }

    /// Holds what containers are set to as it is, for as long as enforcement is paused or barred.
    pub(super) fn hold(&mut self, paused: bool) {
        if !paused && !self.barred {
            self.held = None;
        } else if self.held.is_none() {
            let ids: Vec<String> = self.names.keys().cloned().collect();
            let set = ids.into_iter().filter_map(|id| Some((id.clone(), self.cpuset(&id)?)));
            self.held = Some(set.collect());
        }
    }

    /// What each of these containers has, for itself to read; nothing of those that are not ours to set, or
    /// while what they have is not what they are set to.
    pub(super) fn exposed<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
        let Some(inventory) = self.inventory.as_ref().filter(|_| self.places && self.held.is_none()) else {
            return Vec::new();
        };
        let taken = self.allocations.exclusive_cpus();
        let text = |id: &str| {
            let holder = self.containers.holder(id).filter(|holder| !holder.is_given())?;
            Some((id.to_owned(), exposed(self.allocations.get(holder)?, &taken, &inventory.machine)))
        };
        ids.filter_map(text).collect()
    }

    /// Those of these containers that have begun on slow memory and are not through with that.
    pub(super) fn starting<'a>(&self, ids: impl Iterator<Item = &'a str>) -> BTreeMap<String, Holder> {
        let holder = |id: &'a str| {
            let holder = self.containers.holder(id)?;
            self.allocations.get(holder)?.cold_start.as_ref()?;
            Some((id.to_owned(), holder.clone()))
        };
        ids.filter_map(holder).collect()
    }

    /// Nothing may be set now but what was set before.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The machine that counts.
    #[cfg(test)]
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory.clone()
    }

    /// May nothing be set, because it could not be undone?
    #[cfg(test)]
    pub(super) fn is_barred(&self) -> bool {
        self.barred
    }

    /// What a container shall be set to, or stay set to.
    pub(super) fn cpuset(&mut self, id: &str) -> Option<Cpuset> {
        if let Some(held) = &self.held {
            return held.get(id).cloned();
        }
        let mut cpuset = self.goal(id).filter(|goal| !self.is_given_up(id, goal))?;
        widen(self.widening.as_ref(), self.containers.cgroup(id), &mut cpuset);
        Some(cpuset)
    }

    /// What its grant says.
    fn goal(&mut self, id: &str) -> Option<Cpuset> {
        let inventory = self.inventory.clone().filter(|_| self.places)?;
        let Self { allocations, settings, containers, .. } = self;
        containers.cpuset(&Node { inventory: &inventory, settings, allocations }, id)
    }
}

/// A runtime that is told what a container is set to must not take away what was added.
fn widen(widening: Option<&Widening>, cgroup: Option<&CgroupPath>, cpuset: &mut Cpuset) {
    if let (Some(widening), Some(cgroup), Some(mems)) = (widening, cgroup, &mut cpuset.mems) {
        widening.add_to(cgroup, mems);
    }
}
