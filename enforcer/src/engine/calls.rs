//! Answers the calls of a container runtime.
//!
//! Each call is one decision under the lock of [`SharedLedger`], which takes less than a millisecond. No file
//! is read or written under that lock. Without it a call writes the resource files that a new container
//! mounts ([`ResourceFiles`]). It also reads current cpusets: of all containers for a runtime's list, else of
//! those in the answer. It reads thread pins of these ([`running`]), and whether an ending container still
//! has a process.
//!
//! The answer has the cpuset of the call's container, and the CPUs that others must give up at once.
//! Additional CPUs and all memory nodes are for turns, which check first and restore pins. The next turn also
//! corrects what a late answer missed: it compares every container with its grant. While enforcement is
//! paused answers change no cpuset: an update gets the container's former one, and the turn after the pause
//! writes the rest.
//!
//! A container with a foreign cpuset owner gets "no change" at its creation and at every update. The same
//! answer moves others off its CPUs.
//!
//! An answer is never an error: the pod would not start.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::sync_channel,
    thread,
};

use enforcer_core::{
    hosted::{Announced, CallOutcome, Cpuset},
    owner::KnownContainer,
    workload::{CgroupPath, printable},
};
use numa_topology::set::{CpuSet, NodeSet};
use tokio::sync::mpsc;

use self::messages::{
    STOPPED, announced, both, listed, mount, resources, resources_of, share, shares, update_of,
};
use super::{
    exposure::ResourceFiles,
    gate::Gate,
    placed::{Ledger, Noting, SharedLedger},
};
use enforcer_report::runtime::RuntimeLink;
use enforcer_runtime::nri::{
    NriAnswer, NriCall, NriSubject, Reply, RuntimeVersion,
    api::{Container, LinuxResources, Mount, PodSandbox},
    marks::known,
};

mod messages;
mod running;

/// Answers calls until all senders are gone. Another thread refreshes the resource files of containers that
/// make room, so the next call does not wait for them.
pub fn answer_calls(
    placed: &SharedLedger,
    gate: &Gate,
    exposure: &ResourceFiles,
    mut calls: mpsc::Receiver<NriCall>,
) {
    thread::scope(|scope| {
        let (wake_departures, told) = sync_channel(1);
        let departures = move || placed.watch_departures(&told);
        let spawned = thread::Builder::new().name("departures".into()).spawn_scoped(scope, departures);
        if let Err(error) = spawned {
            tracing::warn!(
                "what ended containers had is free with the next turn: starting a thread: {error}"
            );
        }
        let (wake, woken) = sync_channel(1);
        let refresh = move || exposure.refresh_when_woken(placed, &woken);
        let spawn = || thread::Builder::new().name("exposure".into()).spawn_scoped(scope, refresh);
        if let Some(Err(error)) = exposure.is_wanted().then(spawn) {
            tracing::warn!(
                "containers read what changed for them after the next turn: starting a thread: {error}"
            );
        }
        while let Some(call) = calls.blocking_recv() {
            answer(placed, gate, exposure, call);
            // A pending wake-up is enough, and without resource files there is no receiver.
            let _ = wake.try_send(());
            let _ = wake_departures.try_send(());
        }
        drop((wake, wake_departures));
    });
}

fn answer(placed: &SharedLedger, gate: &Gate, exposure: &ResourceFiles, call: NriCall) {
    // Stay inside until the call is answered: a pause waits for that.
    let inside = gate.enter();
    placed.lock().freeze(inside.is_none());
    let answering = Answering { placed, exposure };
    match call {
        NriCall::Synchronize { runtime, pods, containers, reply } => {
            answering.synchronize(runtime, &pods, &containers, reply);
        }
        NriCall::Create { subject, reply } => answering.create(&subject, reply),
        NriCall::Update { subject, wanted, reply } => answering.update(*subject, wanted, reply),
        NriCall::Stop { subject, reply } => answering.stop(&subject.container.id, reply),
        NriCall::Started(subject) => answering.started(&subject),
        NriCall::Removed(subject) => answering.removed(&subject.container.id),
        NriCall::PodRemoved(pod) => {
            let mut state = placed.lock();
            state.roster.remove_pod(&pod);
            state.trace.count("pod-removed");
        }
        NriCall::Down(reason) => {
            tracing::info!("no container runtime: {reason}");
            placed.lock().trace.link(RuntimeLink::Down { reason });
            placed.report_supply();
        }
    }
}

/// Answers one call.
struct Answering<'a> {
    placed: &'a SharedLedger,
    exposure: &'a ResourceFiles,
}

impl Answering<'_> {
    fn synchronize(
        &self,
        runtime: RuntimeVersion,
        pods: &[PodSandbox],
        containers: &[Container],
        reply: Reply,
    ) {
        let connected = format!(
            "connected to {} {} (NRI {}): {} containers",
            runtime.name.escape_default(),
            runtime.version.escape_default(),
            runtime.nri.as_deref().unwrap_or("of before 0.12").escape_default(),
            containers.len()
        );
        let mut there = self.placed.lock().roster.with_pending(listed(pods, containers));
        let occupied = self.placed.occupied_unlisted(there.iter().map(|(one, _)| one.id.as_str()));
        self.look_at(&mut there);
        let mut state = self.placed.lock();
        // A new list over the same link is no new link.
        if state.trace.link(RuntimeLink::Up { name: runtime.name, version: runtime.version }) {
            tracing::info!("{connected}");
        }
        state.roster.set_pods(pods);
        state.only(&mut there);
        let all: Vec<Announced> = there.into_iter().map(|(one, _)| one).collect();
        let there: BTreeSet<String> = all.iter().map(|one| one.id.clone()).collect();
        let set_to = all.iter().filter_map(|one| Some((one.cgroup.clone()?, one.set_to().clone())));
        state.originals.set_original_cpusets(set_to);
        let mut left = state.originals.left();
        left.extend(occupied);
        let mut settled =
            state.run_placement("synchronize", |known, node| known.synchronize(node, all, &left));
        for container in containers {
            state.note_limits(&container.id, resources_of(container));
        }
        let noting = state.changes(settled.others.keys());
        drop(state);
        let pins = self.leave_running(&mut settled.others, None);
        self.placed.await_noted(noting.and(pins));
        let mut state = self.placed.lock();
        let answer = answer_of(&mut state, None, None, settled);
        drop(state);
        self.send("synchronize", reply, answer);
        self.placed.report_supply();
        self.exposure.only(|id| there.contains(id) || left.iter().any(|cgroup| cgroup.as_str().contains(id)));
    }

    fn create(&self, subject: &NriSubject, reply: Reply) {
        let NriSubject { pod, container } = subject;
        let (mut new, known) = both(pod, container);
        let has = shares(resources_of(container));
        self.placed.keep_apart(&new);
        let mut state = self.placed.lock();
        state.roster.add_pod(pod);
        state.name(&mut new, known.clone());
        let mut settled = state.run_placement("create", |containers, node| containers.create(node, &new));
        let mut noting = state.changes(settled.others.keys());
        if !settled.own.is_empty() {
            state.record_original(&new, &mut noting);
        }
        // Writes that the answer depends on: the record for the next daemon, and the mounted directory. Not
        // under the lock.
        drop(state);
        if let Some(claimed) = &new.claimed {
            settled.others.extend(self.still_on(&claimed.exclusive));
        }
        let pins = self.leave_running(&mut settled.others, None);
        let noted = self.placed.await_noted(noting.and(pins));
        if !settled.own.is_empty() {
            let mut state = self.placed.lock();
            if noted {
                state.mark_pending(&new, known, &settled.own);
            } else {
                state.overrides.unfreeze(&new.id);
            }
        }
        let mounts = self.exposure.begin(self.placed, &new.id).map(|dir| mount(&dir));
        let mut state = self.placed.lock();
        let mut answer = answer_of(&mut state, None, mounts, settled);
        if let Some(adjust) = &mut answer.adjust {
            share(adjust, state.shares(&new.id), has);
        }
        // Also without a place while enforcement is paused: the limits are part of the creation.
        if answer.adjust.is_some() || state.overrides.is_frozen() {
            let wanted = resources_of(container).cloned().unwrap_or_default();
            let mut adjust = answer.adjust.take().unwrap_or_default();
            state.add_limits(&new.id, &mut adjust, &wanted, true);
            answer.adjust = Some(adjust).filter(|adjust| *adjust != LinuxResources::default());
        }
        drop(state);
        self.send("create", reply, answer);
    }

    /// Containers with cpusets that still have these exclusive CPUs of a claim, with what they are to have:
    /// since the claim was prepared, no turn has written it.
    fn still_on(&self, exclusive: &CpuSet) -> BTreeMap<String, Cpuset> {
        if exclusive.is_empty() {
            return BTreeMap::new();
        }
        let goals: Vec<(String, CgroupPath, Cpuset)> = {
            let mut state = self.placed.lock();
            let ids: Vec<String> = state.roster.names.keys().cloned().collect();
            let goal = |id: String| {
                let cgroup = state.held.containers.cgroup(&id)?.clone();
                let goal = state.cpuset(&id)?;
                goal.cpus
                    .as_ref()
                    .is_some_and(|cpus| cpus.is_disjoint(exclusive))
                    .then_some((id, cgroup, goal))
            };
            ids.into_iter().filter_map(goal).collect()
        };
        let shown = self.placed.shown(goals.iter().map(|(_, cgroup, _)| cgroup));
        let is_on = |cgroup: &CgroupPath| {
            let cpus = shown.get(cgroup).and_then(|shown| shown.cpus.as_ref());
            cpus.is_some_and(|cpus| !cpus.is_disjoint(exclusive))
        };
        goals.into_iter().filter(|(_, cgroup, _)| is_on(cgroup)).map(|(id, _, goal)| (id, goal)).collect()
    }

    fn update(&self, subject: NriSubject, wanted: LinuxResources, reply: Reply) {
        self.know(&subject);
        let limits = wanted.clone();
        let id = subject.container.id.clone();
        let has = shares(Some(&wanted)).or_else(|| shares(resources_of(&subject.container)));
        let told = wanted_cpuset(&wanted);
        let mut state = self.placed.lock();
        let mut settled = resize(&mut state, subject, wanted);
        let mut of_caller = Noting::default();
        state.note_caller_request(&id, &told, &mut of_caller);
        let noting = state.changes(settled.others.keys().chain([&id])).and(of_caller);
        // The runtime would write its stored cpuset, so it is told every time.
        let mut own = state.cpuset(&id).unwrap_or_default();
        drop(state);
        let pins = self.leave_running(&mut settled.others, Some((&id, &mut own)));
        let noted = self.placed.await_noted(noting.and(pins));
        let mut state = self.placed.lock();
        if !noted {
            own = state.cpuset(&id).unwrap_or_default();
        }
        let mut answer = answer_of(&mut state, Some((id.clone(), own)), None, settled);
        let told = answer.updates.iter().position(|update| update.container_id == id);
        let mut update =
            told.map_or_else(|| update_of(id.clone(), &Cpuset::default()), |at| answer.updates.remove(at));
        let resources = update.linux.get_or_insert_default().resources.get_or_insert_default();
        if told.is_some() {
            share(resources, state.shares(&id), has);
        }
        state.add_limits(&id, resources, &limits, false);
        if told.is_some() || changes_limits(resources) {
            answer.updates.push(update);
        }
        drop(state);
        self.send("update", reply, answer);
    }

    /// A runtime announces a stop at its begin: the grant is free only when the last process is gone.
    fn stop(&self, id: &str, reply: Reply) {
        if self.placed.leaves(id) {
            self.send("stop", reply, NriAnswer::default());
            return;
        }
        let (mut settled, noting) = {
            let mut state = self.placed.lock();
            let settled = state.ends("stop", id);
            let noting = state.changes(settled.others.keys());
            (settled, noting)
        };
        let pins = self.leave_running(&mut settled.others, None);
        self.placed.await_noted(noting.and(pins));
        let mut state = self.placed.lock();
        let answer = answer_of(&mut state, None, None, settled);
        drop(state);
        self.send("stop", reply, answer);
    }

    /// The cgroup exists now; the next turn corrects it.
    fn started(&self, subject: &NriSubject) {
        self.know(subject);
        let mut state = self.placed.lock();
        state.roster.add_pod(&subject.pod);
        state.roster.runs(&subject.container.id);
        state.request_turn_for_journal();
        state.trace.count("started");
    }

    /// Usually it was stopped before. If the stop was not announced, the next turn writes the changes for
    /// others.
    fn removed(&self, id: &str) {
        let stays = self.placed.leaves(id);
        {
            let mut state = self.placed.lock();
            if !stays {
                state.ends("removed", id);
            }
            state.trace.count("removed");
        }
        self.exposure.end(id);
    }

    /// Places a running or starting container without an announced creation: the creation was under way when
    /// the link came up, and no list had it. The next turn writes the results. A container without a cgroup
    /// has ended already.
    fn know(&self, subject: &NriSubject) {
        let NriSubject { pod, container } = subject;
        if container.state == STOPPED || self.placed.lock().roster.knows(&container.id) {
            return;
        }
        let mut there = [both(pod, container)];
        self.look_at(&mut there);
        let [(mut one, known)] = there;
        if one.shown.is_none() {
            return;
        }
        // A container that names another's cgroup is refused below, and needs no separate grant.
        let is_refused = |cgroup| self.placed.lock().container_in(cgroup).is_some();
        if !one.cgroup.as_ref().is_some_and(is_refused) {
            self.placed.keep_apart(&one);
        }
        let mut state = self.placed.lock();
        if let Some(other) = one.cgroup.as_ref().and_then(|cgroup| state.container_in(cgroup)) {
            let (id, other) = (printable(&one.id), printable(&other));
            tracing::warn!("container {id} is not placed: it names the cgroup of container {other}");
            return;
        }
        state.name(&mut one, known);
        if let Some(cgroup) = one.cgroup.clone() {
            state.originals.set_original_cpuset(cgroup, one.set_to().clone());
        }
        state.run_placement("late", |containers, node| containers.create(node, &one));
        state.note_limits(&one.id, resources_of(container));
        state.requests.early_turn.request();
    }

    /// Adds limits that claims give and that runtimes were not told, as those of containers that were created
    /// during a pause, for containers that have their cpusets by now; then sends the answer.
    fn send(&self, call: &'static str, reply: Reply, mut answer: NriAnswer) {
        let mut state = self.placed.lock();
        let missing = state.containers_with_missing_limits();
        if missing.is_empty() {
            send(&mut state, call, reply, answer);
            return;
        }
        // No file is read under the lock.
        drop(state);
        let shown = self.placed.shown(missing.iter().map(|(_, cgroup, _)| cgroup));
        let mut state = self.placed.lock();
        for (id, cgroup, goal) in missing {
            let told = answer.updates.iter_mut().find(|update| update.container_id == id);
            if let Some(linux) = told.and_then(|update| update.linux.as_mut()) {
                state.add_missing_limits(&id, linux.resources.get_or_insert_default());
                continue;
            }
            // The runtime writes both sets, so these are the present ones.
            let Some(now) = shown.get(&cgroup).filter(|now| now.cpus == goal.cpus) else { continue };
            let mut update = update_of(id.clone(), now);
            let linux = update.linux.get_or_insert_default();
            state.add_missing_limits(&id, linux.resources.get_or_insert_default());
            state.note_answers([&id].into_iter());
            answer.updates.push(update);
        }
        send(&mut state, call, reply, answer);
    }

    /// Fills in the current cpusets of these containers.
    fn look_at(&self, there: &mut [(Announced, KnownContainer)]) {
        let mut shown = self.placed.shown(there.iter().filter_map(|(one, _)| one.cgroup.as_ref()));
        for (one, _) in there {
            one.shown = one.cgroup.as_ref().and_then(|cgroup| shown.remove(cgroup));
        }
    }
}

/// The cpuset that the runtime's caller wants; absent or unreadable sets are left out.
fn wanted_cpuset(wanted: &LinuxResources) -> Cpuset {
    let cpu = wanted.cpu.as_ref();
    let cpus = cpu.and_then(|cpu| cpu.cpus.parse().ok()).filter(|cpus: &CpuSet| !cpus.is_empty());
    let mems = cpu.and_then(|cpu| cpu.mems.parse().ok()).filter(|mems: &NodeSet| !mems.is_empty());
    Cpuset { cpus, mems }
}

/// Whether a runtime is to set a quota or limits of huge pages.
fn changes_limits(resources: &LinuxResources) -> bool {
    !resources.hugepage_limits.is_empty() || resources.cpu.as_ref().is_some_and(|cpu| cpu.quota.is_some())
}

fn resize(state: &mut Ledger, subject: NriSubject, wanted: LinuxResources) -> CallOutcome {
    let NriSubject { pod, mut container } = subject;
    let linux = container.linux.get_or_insert_default();
    // Values that are not in the update stay.
    let now = linux.resources.get_or_insert_default();
    now.memory = wanted.memory.or(now.memory.take());
    let cpu = now.cpu.get_or_insert_default();
    if let Some(wanted) = wanted.cpu {
        cpu.shares = wanted.shares.or(cpu.shares);
        cpu.quota = wanted.quota.or(cpu.quota);
        cpu.period = wanted.period.or(cpu.period);
        for (now, wanted) in [(&mut cpu.cpus, wanted.cpus), (&mut cpu.mems, wanted.mems)] {
            if !wanted.is_empty() {
                *now = wanted;
            }
        }
    }
    let mut changed = announced(&pod, &container);
    state.name(&mut changed, known(&pod, &container));
    let settled = state.run_placement("update", |known, node| known.resize(node, changed));
    if settled.rejections.is_empty() {
        state.clear_rejection("update", &container.id);
    }
    settled
}

/// Builds the answer, and notes the cpusets that the runtime is about to write. `own` is the container of the
/// call if the answer has it among the updates.
fn answer_of(
    state: &mut Ledger,
    own: Option<(String, Cpuset)>,
    mounts: Option<Mount>,
    mut settled: CallOutcome,
) -> NriAnswer {
    if state.overrides.is_frozen() {
        // Decided, but written only by a turn after the pause.
        (settled.own, settled.others) = Default::default();
    }
    let adjust = (!settled.own.is_empty() && own.is_none()).then(|| resources(&settled.own));
    let updates = settled.others.into_iter().chain(own).filter(|(_, cpuset)| !cpuset.is_empty());
    let updates: Vec<_> = updates.collect();
    state.note_answers(updates.iter().map(|(id, _)| id));
    NriAnswer {
        adjust,
        mounts: mounts.into_iter().collect(),
        updates: updates.into_iter().map(|(id, cpuset)| update_of(id, &cpuset)).collect(),
    }
}

/// Sends the answer, and counts a late one. Time spent waiting for earlier calls, or for a turn to release
/// the lock, is part of the runtime's wait.
fn send(state: &mut Ledger, call: &'static str, reply: Reply, answer: NriAnswer) {
    let arrived = reply.arrived();
    let late = reply.send(answer).is_err();
    if late {
        tracing::warn!("the answer to {call} came too late; what was decided is written by the next turn");
    }
    state.trace.count(call);
    state.trace.count_answer(call, arrived.elapsed(), late);
}

#[cfg(test)]
mod tests;
