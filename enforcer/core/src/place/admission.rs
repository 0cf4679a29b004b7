//! From a request to grants: the one way in and the one way out.
//!
//! Problem: whatever engine places a pod, the result must be complete or nothing, and everybody whose
//! CPUs or memory nodes change because of it must be told. Idea: the engine works inside a
//! transaction; afterwards the effective CPUs and memory nodes of every holder are compared with
//! those before, but only where exclusive CPUs came or went or a grant was touched.
//!
//! Cost: O(holders) set operations of a few words each where exclusive CPUs came or went, else O(touched).

use std::{collections::BTreeMap, convert::Infallible};

use super::{
    Allocations, Grant, Holder, Inventory, PodName, PodRequest, Reason, Rejection, Trace, UNPLACED,
    bring_home, capacity, choice::engine_of, held::make_room, taken,
};
use crate::{
    policy::placement::PlacementSettings,
    set::{CpuSet, NodeSet},
};

/// A pod that has its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// What changes for others.
    pub updates: Vec<Update>,
}

/// A holder whose CPUs or memory nodes are others now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Who.
    pub holder: Holder,
    /// Its CPUs, where they changed.
    pub cpus: Option<CpuSet>,
    /// Its memory nodes, where they changed.
    pub mems: Option<NodeSet>,
}

/// Places a pod that is not there yet, by the engine and policy that the settings choose for it. What
/// was considered and what was ignored is in the trace, also when the pod is rejected.
pub fn admit(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    if allocations.of_pod(&pod.name).next().is_some() {
        let problem = format!("pod {} is already there", pod.name);
        return Err(Rejection::new(Reason::UnexpectedAdmissionError, problem));
    }
    replace(inventory, settings, allocations, pod, trace)
}

/// Gives a pod that is there what it asks for now. What it has stays as far as it is still valid; on
/// an error it keeps everything.
pub fn resize(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    if allocations.of_pod(&pod.name).next().is_none() {
        let problem = format!("pod {} is not there", pod.name);
        return Err(Rejection::new(Reason::UnexpectedAdmissionError, problem));
    }
    replace(inventory, settings, allocations, pod, trace)
}

/// Takes a pod away. Whoever it had driven from home returns. No pod of that name is no update.
pub fn remove(allocations: &mut Allocations, pod: &PodName) -> Vec<Update> {
    outside(allocations, pod, |allocations| {
        allocations.release_pod(pod);
    })
}

/// The same with one container of a pod. What changes for the others of its pod is not among the updates.
pub(super) fn remove_container(allocations: &mut Allocations, holder: &Holder) -> Vec<Update> {
    outside(allocations, holder.pod(), |allocations| {
        allocations.release(holder);
    })
}

/// What a change of one pod that no engine makes changes for all others.
fn outside(
    allocations: &mut Allocations,
    pod: &PodName,
    change: impl FnOnce(&mut Allocations),
) -> Vec<Update> {
    let taken = allocations.exclusive_cpus();
    let outcome = allocations.transaction(|allocations| {
        change(allocations);
        bring_home(allocations);
        Ok::<_, Infallible>(())
    });
    match outcome {
        Ok(((), before)) => updates(allocations, &taken, &before, pod),
        Err(never) => match never {},
    }
}

/// Lets those return whose home has room for them again, `pod` aside.
pub(super) fn settle_home(allocations: &mut Allocations, pod: &PodName) -> Vec<Update> {
    outside(allocations, pod, |_| {})
}

/// Notes what somebody else gave to a holder that is no pod of ours.
pub(super) fn give_apart(
    inventory: &Inventory,
    allocations: &mut Allocations,
    holder: &Holder,
    grant: Grant,
) -> Vec<Update> {
    outside(allocations, holder.pod(), |allocations| {
        let moved = grant.exclusive.difference(&allocations.exclusive_cpus());
        allocations.give(holder.clone(), grant);
        make_room(inventory, allocations, &moved);
    })
}

fn replace(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    let engine = engine_of(settings, pod, trace);
    let taken = allocations.exclusive_cpus();
    let placed = allocations.transaction(|allocations| {
        let mut released = allocations.release_pod(&pod.name);
        // What an unplaced container runs on was given by no engine: there is nothing to keep of it.
        released.retain(|_, grant| grant.engine != UNPLACED);
        if released.is_empty() {
            engine.place(inventory, allocations, pod, trace)?;
        } else {
            // One that comes to a pod that is there may run already, after a restart.
            let mut previous = pod.previous.clone();
            previous.extend(released);
            let pod = PodRequest { previous, ..pod.clone() };
            engine.place(inventory, allocations, &pod, trace)?;
        }
        bring_home(allocations);
        // The engines know better what is short, where they mind.
        capacity::check(inventory, pod, settings.predicts_kubelet())
    });
    let ((), before) =
        placed.map_err(|rejection| taken::explained(inventory, allocations, pod, rejection))?;
    Ok(Admission { updates: updates(allocations, &taken, &before, &pod.name) })
}

/// Holders outside `pod` whose CPUs or memory nodes changed; `taken` were the exclusive CPUs before.
fn updates(
    allocations: &Allocations,
    taken: &CpuSet,
    before: &BTreeMap<Holder, Option<Grant>>,
    pod: &PodName,
) -> Vec<Update> {
    let now = allocations.exclusive_cpus();
    let moved = taken.difference(&now).union(&now.difference(taken));
    // Where no CPU moved, nothing is different but for those that were touched.
    let all = (!moved.is_empty()).then(|| allocations.iter());
    let touched = || before.keys().filter_map(|holder| Some((holder, allocations.get(holder)?)));
    let touched = moved.is_empty().then(touched);
    let all = all.into_iter().flatten().chain(touched.into_iter().flatten());
    let others = all.filter(|(holder, _)| holder.pod() != pod);
    let changed = others.filter_map(|(holder, grant)| {
        let had = before.get(holder).map_or(Some(grant), Option::as_ref)?;
        let near =
            |grant: &Grant| grant.shared.as_ref().is_some_and(|shared| !shared.reach().is_disjoint(&moved));
        let touched = before.contains_key(holder);
        if !touched && !near(grant) {
            return None;
        }
        let (cpus, mems) = (grant.cpus(&now), grant.mems(&now));
        let (cpus_changed, mems_changed) = (cpus != had.cpus(taken), mems != had.mems(taken));
        (cpus_changed || mems_changed).then(|| Update {
            holder: holder.clone(),
            cpus: (cpus_changed && grant.pin_cpus).then_some(cpus),
            mems: (mems_changed && grant.pin_mems).then_some(mems),
        })
    });
    changed.filter(|update| update.cpus.is_some() || update.mems.is_some()).collect()
}
