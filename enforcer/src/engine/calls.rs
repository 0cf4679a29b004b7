//! Answers the calls of a container runtime.
//!
//! Each call is one decision under the lock of [`Placed`], which takes less than a millisecond; nothing is read
//! or written for it, but for what a new container is to have mounted ([`Exposure`]), and, without the lock, what cgroups
//! show: all of them when a runtime says which containers there are, else those whose memory nodes are in the answer. What a container
//! gets goes into the answer, and so does what changes for others, which refreshes what the runtime has stored of them. No memory
//! node is taken from a container that runs: its pages go first, which is for turns. What an answer was too late for is done by the engine's next
//! turn, which compares every container with its grant. While enforcement is paused answers change nothing: an
//! update is answered with what the container was set to before, and the turn after the pause writes the rest.
//!
//! A container whose cpuset is somebody else's gets no answer but that nothing changes, at its creation and at every
//! update; what others must leave because of it is in the same answer.
//!
//! An answer is never an error: the pod would not start.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::mpsc::sync_channel,
    thread,
};

use enforcer_core::{
    owner::KnownContainer,
    parse::scalar,
    place::{Announced, Cpuset, Settled},
};
use tokio::sync::mpsc;

use super::{
    exposure::Exposure,
    gate::Gate,
    placed::{Placed, State},
};
use crate::{
    discover::nri::{
        Answer, Call, Reply, Subject,
        api::{
            Container, ContainerUpdate, LinuxCpu, LinuxResources, LinuxUpdate, Mount, OptionalUint,
            PodSandbox,
        },
        marks::known,
        request::{container_cgroup, pod_request},
    },
    report::runtime::RuntimeLink,
};

/// Where containers find what they were given.
const EXPOSED_AT: &str = "/.numa-enforcer";

/// `CONTAINER_STOPPED` of NRI.
const STOPPED: i32 = 4;

/// Answers calls until nobody sends any. Whoever must make room reads it once it was told to the runtime, from another
/// thread: the next call does not wait for files of the containers before.
pub fn answer_calls(placed: &Placed, gate: &Gate, exposure: &Exposure, mut calls: mpsc::Receiver<Call>) {
    thread::scope(|scope| {
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
            // Where it was woken already, or nothing is exposed, there is nothing to do.
            let _ = wake.try_send(());
        }
        drop(wake);
    });
}

fn answer(placed: &Placed, gate: &Gate, exposure: &Exposure, call: Call) {
    let mut there = match &call {
        Call::Synchronize { pods, containers, .. } => {
            placed.lock().with_those_in_the_making(announced_all(pods, containers))
        }
        // It was being made when the link came up: nobody asked about it, and no list had it.
        Call::Started(subject) | Call::Update { subject, .. }
            if !placed.lock().knows(&subject.container.id) =>
        {
            vec![both(&subject.pod, &subject.container)]
        }
        _ => Vec::new(),
    };
    let mut shown = placed.shown(there.iter().filter_map(|(one, _)| one.cgroup.as_ref()));
    for (one, _) in &mut there {
        one.shown = one.cgroup.as_ref().and_then(|cgroup| shown.remove(cgroup));
    }
    let mut state = placed.lock();
    state.hold(gate.paused().is_some());
    match call {
        Call::Started(_) | Call::Update { .. } => {
            there.drain(..).for_each(|(one, who)| late(&mut state, one, who))
        }
        _ => {}
    }
    match call {
        Call::Synchronize { runtime, containers, reply, .. } => {
            tracing::info!(
                "connected to {} {} (NRI {}): {} containers",
                runtime.name.escape_default(),
                runtime.version.escape_default(),
                runtime.nri.as_deref().unwrap_or("of before 0.12").escape_default(),
                containers.len()
            );
            state.link(RuntimeLink::Up { name: runtime.name, version: runtime.version });
            state.only(&mut there);
            let all: Vec<Announced> = there.into_iter().map(|(one, _)| one).collect();
            let there: BTreeSet<String> = all.iter().map(|one| one.id.clone()).collect();
            let shown: BTreeMap<_, _> =
                all.iter().filter_map(|one| Some((one.id.clone(), one.shown.clone()?))).collect();
            state
                .originals
                .are_set_to(all.iter().filter_map(|one| Some((one.cgroup.clone()?, one.set_to().clone()))));
            let mut settled = state.settle("synchronize", |known, node| known.synchronize(node, all));
            state.changes(settled.others.keys());
            for (id, cpuset) in &mut settled.others {
                shown.get(id).into_iter().for_each(|now| cpuset.keep_memory(now));
            }
            let answer = answer_of(&mut state, None, None, settled);
            send(&mut state, "synchronize", reply, answer);
            let left = state.originals.left();
            drop(state);
            exposure.only(|id| there.contains(id) || left.iter().any(|cgroup| cgroup.as_str().contains(id)));
        }
        Call::Create { subject, reply } => {
            let mut new = announced(&subject.pod, &subject.container);
            let has = shares(resources_of(&subject.container));
            let who = known(&subject.pod, &subject.container);
            state.name(&mut new, who.clone());
            let mut settled = state.settle("create", |containers, node| containers.create(node, &new));
            let noted = state.changes(settled.others.keys());
            if !settled.own.is_empty() {
                if noted && state.made(&new) {
                    state.makes(&new, who, &settled.own);
                } else {
                    state.made_without(&new.id);
                }
            }
            // The one thing that is written for an answer: what is mounted must be there. Not under the lock.
            drop(state);
            let mounts = exposure.begin(placed, &new.id).map(|dir| mount(&dir));
            keep_memory(placed, settled.others.iter_mut());
            let mut state = placed.lock();
            // Somebody may have paused it meanwhile.
            state.hold(gate.paused().is_some());
            let mut answer = answer_of(&mut state, None, mounts, settled);
            if let Some(adjust) = &mut answer.adjust {
                share(adjust, state.shares(&new.id), has);
            }
            send(&mut state, "create", reply, answer);
        }
        Call::Update { subject, wanted, reply } => {
            let id = subject.container.id.clone();
            let has = shares(Some(&wanted)).or_else(|| shares(resources_of(&subject.container)));
            let mut settled = update(&mut state, *subject, wanted);
            state.changes(settled.others.keys().chain([&id]));
            // The runtime would write the cpuset that it has stored, so it is told every time.
            let mut own = state.cpuset(&id).unwrap_or_default();
            drop(state);
            keep_memory(placed, settled.others.iter_mut().chain([(&id, &mut own)]));
            let mut state = placed.lock();
            let mut answer = answer_of(&mut state, Some((id.clone(), own)), None, settled);
            for update in answer.updates.iter_mut().filter(|update| update.container_id == id) {
                if let Some(resources) = update.linux.as_mut().and_then(|linux| linux.resources.as_mut()) {
                    share(resources, state.shares(&id), has);
                }
            }
            send(&mut state, "update", reply, answer);
        }
        Call::Stop { subject, reply } => {
            state.ends(&subject.container.id);
            let mut settled = state.ended("stop", &subject.container.id);
            state.forget(&subject.container.id);
            state.changes(settled.others.keys());
            drop(state);
            keep_memory(placed, settled.others.iter_mut());
            let mut state = placed.lock();
            let answer = answer_of(&mut state, None, None, settled);
            send(&mut state, "stop", reply, answer);
        }
        // Its cgroup is there now; what it lacks is written by the next turn.
        Call::Started(subject) => {
            state.runs(&subject.container.id);
            state.originals.started();
            state.count("started");
        }
        Call::Removed(subject) => {
            state.ends(&subject.container.id);
            // It was stopped before. If that was not told, what changes for others is written by the next turn.
            state.ended("removed", &subject.container.id);
            state.forget(&subject.container.id);
            state.count("removed");
            drop(state);
            exposure.end(&subject.container.id);
        }
        Call::PodRemoved(_) => state.count("pod-removed"),
        Call::Down(reason) => {
            tracing::info!("no container runtime: {reason}");
            state.link(RuntimeLink::Down { reason });
        }
    }
}

/// Leaves those who run the memory nodes that their cgroups show: a runtime that takes one away has the kernel move all pages in
/// one go, and makes everybody wait who begins or ends a container. Turns move them in batches, and narrow then.
fn keep_memory<'a>(placed: &Placed, cpusets: impl Iterator<Item = (&'a String, &'a mut Cpuset)>) {
    let narrowed: Vec<_> = {
        let state = placed.lock();
        let with_memory = cpusets.filter(|(_, cpuset)| cpuset.mems.is_some());
        with_memory.filter_map(|(id, cpuset)| Some((state.containers.cgroup(id)?.clone(), cpuset))).collect()
    };
    let shown = placed.shown(narrowed.iter().map(|(cgroup, _)| cgroup));
    for (cgroup, cpuset) in narrowed {
        shown.get(&cgroup).into_iter().for_each(|now| cpuset.keep_memory(now));
    }
}

/// Places one that runs, or is about to, and of whose creation nobody was told. The next turn writes what comes of it.
fn late(state: &mut State, mut one: Announced, who: KnownContainer) {
    state.name(&mut one, who);
    if let Some(cgroup) = one.cgroup.clone() {
        state.originals.is_set_to(cgroup, one.set_to().clone());
    }
    state.settle("late", |containers, node| containers.create(node, &one));
    state.originals.want_turn();
}

fn update(state: &mut State, subject: Subject, wanted: LinuxResources) -> Settled {
    let Subject { pod, mut container } = subject;
    let linux = container.linux.get_or_insert_default();
    // What is not in the update stays as it is.
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
    let settled = state.settle("update", |known, node| known.resize(node, changed));
    if settled.rejections.is_empty() {
        state.is_content("update", &container.id);
    }
    settled
}

/// What the runtime has stored for a container.
fn resources_of(container: &Container) -> Option<&LinuxResources> {
    container.linux.as_ref()?.resources.as_ref()
}

fn shares(resources: Option<&LinuxResources>) -> Option<u64> {
    resources?.cpu.as_ref()?.shares.map(|shares| shares.value)
}

/// Adds the shares that were given, where it has others. Who was made without any has those of its runtime.
fn share(resources: &mut LinuxResources, given: Option<u64>, has: Option<u64>) {
    if let Some(given) = given.filter(|given| has.is_some_and(|has| has != *given)) {
        resources.cpu.get_or_insert_default().shares = Some(OptionalUint { value: given });
    }
}

/// What was settled, as an answer, which notes what the runtime is about to write. `own` is the container of the call, where
/// the answer has it among the updates.
fn answer_of(
    state: &mut State,
    own: Option<(String, Cpuset)>,
    mounts: Option<Mount>,
    mut settled: Settled,
) -> Answer {
    if state.is_held() {
        // Decided it is; once the pause is over a turn writes it.
        (settled.own, settled.others) = Default::default();
    }
    let adjust = (!settled.own.is_empty() && own.is_none()).then(|| resources(&settled.own));
    let updates = settled.others.into_iter().chain(own).filter(|(_, cpuset)| !cpuset.is_empty());
    let updates: Vec<_> = updates.collect();
    state.tells(updates.iter().map(|(id, _)| id));
    Answer {
        adjust,
        mounts: mounts.into_iter().collect(),
        updates: updates.into_iter().map(|(id, cpuset)| of_container(id, &cpuset)).collect(),
    }
}

/// Where a container reads what it was given. It cannot change it, and nothing in it can be run.
fn mount(dir: &Path) -> Mount {
    Mount {
        destination: EXPOSED_AT.to_owned(),
        r#type: "bind".to_owned(),
        source: dir.to_string_lossy().into_owned(),
        options: ["bind", "ro", "nosuid", "nodev", "noexec"].map(str::to_owned).into(),
    }
}

/// Sends it, and notes when that was too late. Waiting for the calls before, or for a turn to let go of the lock, is part of
/// what the runtime waits for.
fn send(state: &mut State, call: &'static str, reply: Reply, answer: Answer) {
    let arrived = reply.arrived();
    let late = reply.send(answer).is_err();
    if late {
        tracing::warn!("the answer to {call} came too late; what was decided is written by the next turn");
    }
    state.count(call);
    state.answered(call, arrived.elapsed(), late);
}

fn of_container(container_id: String, cpuset: &Cpuset) -> ContainerUpdate {
    let linux = LinuxUpdate { resources: Some(resources(cpuset)) };
    // One that ends in between is no error.
    ContainerUpdate { container_id, linux: Some(linux), ignore_failure: true }
}

fn resources(cpuset: &Cpuset) -> LinuxResources {
    let cpus = cpuset.cpus.as_ref().map(ToString::to_string).unwrap_or_default();
    let mems = cpuset.mems.as_ref().map(ToString::to_string).unwrap_or_default();
    LinuxResources { cpu: Some(LinuxCpu { cpus, mems, ..LinuxCpu::default() }), ..LinuxResources::default() }
}

fn announced_all(pods: &[PodSandbox], containers: &[Container]) -> Vec<(Announced, KnownContainer)> {
    let by_id: HashMap<&str, &PodSandbox> = pods.iter().map(|pod| (pod.id.as_str(), pod)).collect();
    let there = containers.iter().filter(|container| container.state != STOPPED);
    there.filter_map(|one| Some(both(by_id.get(one.pod_sandbox_id.as_str())?, one))).collect()
}

fn both(pod: &PodSandbox, container: &Container) -> (Announced, KnownContainer) {
    (announced(pod, container), known(pod, container))
}

fn announced(pod: &PodSandbox, container: &Container) -> Announced {
    let cpu = resources_of(container).and_then(|resources| resources.cpu.as_ref());
    let cpus = cpu.and_then(|cpu| scalar::list(&cpu.cpus).ok()).filter(|cpus| !cpus.is_empty());
    let mems = cpu.and_then(|cpu| scalar::list(&cpu.mems).ok()).filter(|mems| !mems.is_empty());
    Announced {
        id: container.id.clone(),
        cgroup: container_cgroup(container),
        pod: pod_request(pod, [container]),
        now: Cpuset { cpus, mems },
        shown: None,
        given: None,
        opts_out: false,
    }
}

#[cfg(test)]
mod tests;
