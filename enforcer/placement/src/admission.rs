//! Admission, resize and removal of pods: the only paths by which allocations change.
//!
//! Problem: whatever engine places a pod, the result must be complete or nothing, and the caller must learn
//! of every holder with changed CPUs or memory nodes. Idea: the engine works inside a transaction. Afterwards
//! the effective CPUs and memory nodes of every holder are compared with those before, but only if exclusive
//! CPUs or a grant changed.
//!
//! Cost: O(holders) set operations of a few words each if exclusive CPUs changed, else O(changed grants).

use std::{collections::BTreeMap, convert::Infallible};

use super::{
    Allocations, Grant, Holder, Inventory, PodName, PodRequest, Rejection, RejectionProblem, RejectionReason,
    Trace, capacity, choice::engine_of, external::UNPLACED, settle_overflow, taken, unspill,
};
use crate::settings::PlacementSettings;
use numa_topology::set::{CpuSet, NodeSet};

/// Result of admitting or resizing a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// Grants of the pod's containers, in order of their holders.
    pub grants: Vec<PodGrant>,
    /// Changes for containers of other pods.
    pub updates: Vec<Update>,
}

/// Grant of one container of an admitted pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodGrant {
    /// The container.
    pub holder: Holder,
    /// What the ledger has for it now.
    pub grant: Grant,
    /// CPUs that it may run on now: its exclusive ones, and its shared ones without those that are exclusive
    /// to other containers.
    pub cpus: CpuSet,
    /// Memory nodes that it may use now.
    pub mems: NodeSet,
}

/// A holder with changed CPUs or memory nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The holder.
    pub holder: Holder,
    /// Its CPUs, if changed.
    pub cpus: Option<CpuSet>,
    /// Its memory nodes, if changed.
    pub mems: Option<NodeSet>,
}

/// Places a new pod with the engine and policy that the settings select for it.
///
/// # Errors
/// If a container of the pod does not fit, or the pod is there already. The allocations are unchanged then.
pub fn admit(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
) -> Result<Admission, Rejection> {
    admit_traced(inventory, settings, allocations, pod, &mut Trace::default())
}

/// [`admit`] with an explanation: `trace` gets the ignored settings of the pod and, if it is
/// [wanted](Trace::wanted), the candidates; also if the pod is rejected.
///
/// # Errors
/// As [`admit`].
pub fn admit_traced(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    refuse_known(allocations, pod)?;
    replace_and_tell(inventory, settings, allocations, pod, trace)
}

fn refuse_known(allocations: &Allocations, pod: &PodRequest) -> Result<(), Rejection> {
    if allocations.of_pod(&pod.name).next().is_none() {
        return Ok(());
    }
    let problem = RejectionProblem::PodExists(pod.name.clone());
    Err(Rejection::new(RejectionReason::UnexpectedAdmissionError, problem))
}

/// [`admit`] for a prediction: nothing is told of what changed.
///
/// # Errors
/// As [`admit`].
pub fn place(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
) -> Result<(), Rejection> {
    refuse_known(allocations, pod)?;
    replace(inventory, settings, allocations, pod, &mut Trace::default()).map(|_| ())
}

/// Changes the amounts of a running pod. It keeps its placement as far as that is still valid.
///
/// # Errors
/// If the new amounts do not fit, or the pod is not there. It keeps everything then.
pub fn resize(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
) -> Result<Admission, Rejection> {
    resize_traced(inventory, settings, allocations, pod, &mut Trace::default())
}

/// [`resize`] with an explanation, as [`admit_traced`].
///
/// # Errors
/// As [`resize`].
pub fn resize_traced(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    if allocations.of_pod(&pod.name).next().is_none() {
        let problem = RejectionProblem::UnknownPod(pod.name.clone());
        return Err(Rejection::new(RejectionReason::UnexpectedAdmissionError, problem));
    }
    replace_and_tell(inventory, settings, allocations, pod, trace)
}

/// Removes a pod. Containers that it had displaced move back. Returns nothing if the pod is unknown.
pub fn remove(allocations: &mut Allocations, pod: &PodName) -> Vec<Update> {
    outside(allocations, pod, |allocations| {
        allocations.release_pod(pod);
        unspill(allocations);
    })
}

/// Removes one container of a pod. The updates do not include the other containers of its pod.
pub fn remove_container(allocations: &mut Allocations, holder: &Holder) -> Vec<Update> {
    outside(allocations, holder.pod(), |allocations| {
        allocations.release(holder);
        unspill(allocations);
    })
}

/// Updates of all other holders by a change to one pod that no engine makes.
fn outside(
    allocations: &mut Allocations,
    pod: &PodName,
    change: impl FnOnce(&mut Allocations),
) -> Vec<Update> {
    let taken = allocations.exclusive_cpus();
    let outcome = allocations.transaction(|allocations| {
        change(allocations);
        Ok::<_, Infallible>(())
    });
    match outcome {
        Ok(((), before)) => updates(allocations, &taken, &before, pod),
        Err(never) => match never {},
    }
}

/// [`settle_overflow`] after a change that no engine made. The updates leave out the containers of `pod`.
pub fn settle_others(inventory: &Inventory, allocations: &mut Allocations, pod: &PodName) -> Vec<Update> {
    outside(allocations, pod, |allocations| settle_overflow(inventory, allocations))
}

/// Records what another owner gave to a holder outside the daemon's control.
pub fn give_apart(
    inventory: &Inventory,
    allocations: &mut Allocations,
    holder: &Holder,
    grant: Grant,
) -> Vec<Update> {
    outside(allocations, holder.pod(), |allocations| {
        allocations.give(holder.clone(), grant);
        settle_overflow(inventory, allocations);
    })
}

/// Places a pod anew, and tells what that changed.
fn replace_and_tell(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<Admission, Rejection> {
    let taken = allocations.exclusive_cpus();
    let before = replace(inventory, settings, allocations, pod, trace)?;
    Ok(Admission {
        grants: grants(allocations, &pod.name),
        updates: updates(allocations, &taken, &before, &pod.name),
    })
}

/// Places a pod anew; returns the previous grant of each touched holder.
fn replace(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &mut Allocations,
    pod: &PodRequest,
    trace: &mut Trace,
) -> Result<BTreeMap<Holder, Option<Grant>>, Rejection> {
    let engine = engine_of(settings, pod, trace);
    let placed = allocations.transaction(|allocations| {
        let mut released = allocations.release_pod(&pod.name);
        // An unplaced container got its CPUs from no engine: there is nothing to keep.
        released.retain(|_, grant| grant.engine != UNPLACED);
        if released.is_empty() {
            engine.place(inventory, allocations, pod, trace)?;
        } else {
            // After a restart, a container that is added to a known pod may be running already.
            let mut previous = pod.previous.clone();
            previous.extend(released);
            let pod = PodRequest { previous, ..pod.clone() };
            engine.place(inventory, allocations, &pod, trace)?;
        }
        // The engines that check capacity report the shortage in more detail.
        capacity::check(inventory, pod, settings.predicts_kubelet())
    });
    match placed {
        Ok(((), before)) => Ok(before),
        Err(rejection) => Err(taken::explained(inventory, allocations, pod, rejection)),
    }
}

/// Grants of the containers of a pod.
fn grants(allocations: &Allocations, pod: &PodName) -> Vec<PodGrant> {
    let taken = allocations.exclusive_cpus();
    let own = allocations.of_pod(pod).map(|(holder, grant)| PodGrant {
        holder: holder.clone(),
        grant: grant.clone(),
        cpus: grant.cpus(&taken),
        mems: grant.mems(&taken),
    });
    own.collect()
}

/// Holders outside `pod` with changed CPUs or memory nodes; `taken` were the exclusive CPUs before.
fn updates(
    allocations: &Allocations,
    taken: &CpuSet,
    before: &BTreeMap<Holder, Option<Grant>>,
    pod: &PodName,
) -> Vec<Update> {
    let now = allocations.exclusive_cpus();
    let moved = taken.difference(&now).union(&now.difference(taken));
    // If the exclusive CPUs are unchanged, only touched holders can differ.
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
