//! Overflow of shared CPUs: which sharing containers run in their own scope, and which run on the whole
//! shared pool.
//!
//! Problem: exclusive CPUs may leave a scope less CPU time than was promised in it. Its containers then
//! either share crowded CPUs or run far from their memory, and the overflow must end as soon as possible.
//! Idea: the containers of a scope are ordered by arrival, the oldest first. As many as the remaining CPUs
//! can serve stay *at home*; all later ones are *away*, on the whole shared pool. A container without a
//! promise only needs one remaining CPU.
//!
//! Promises beyond the size of the scope do not count: a scope of four CPUs that promises five, because its
//! containers may run nowhere else, has an overflow only while a CPU of it is exclusive. So exclusive CPUs
//! are the only cause: without any in its scope every container is at home.
//!
//! Invariant: the result depends only on the current allocations, not on history. One function decides it
//! ([`judge`]), and every path that changes allocations ends with it: placement by either engine, resources
//! of other owners, adoption after a restart, moves of the rebalance. When exclusive CPUs are released,
//! exactly the containers that they had displaced move back, in whatever order pods are created and deleted.
//! A return displaces no other container, because the order at home only grows at its end; so a release only
//! moves containers home ([`unspill`]).
//!
//! Memory follows: a displaced container uses the memory near the CPUs that it runs on ([`Grant::mems`]), and
//! its own again after its return.
//!
//! CPUs reserved for the system do not count: a scope with only those left serves no container. A displaced
//! container may run on them unless it was placed under a strict reservation.
//!
//! A pod is refused for only one reason: its exclusive CPUs would leave a container no CPU at all.
//!
//! Cost: O(holders) set operations of a few words, and the sorting by age of those in scopes with exclusive
//! CPUs; nothing for a release if no container is away.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    Allocations, ContainerKind, Grant, Holder, Inventory, PodRequest, Rejection, RejectionProblem,
    RejectionReason, SharedCpus, Shortage, room::FittingAmount,
};
use numa_topology::set::{CpuSet, NodeSet};

/// A holder of pinned shared CPUs.
struct SharingHolder<'a> {
    holder: &'a Holder,
    grant: &'a Grant,
    shared: &'a SharedCpus,
    /// Exclusive CPUs of all holders that run at the same time.
    taken: Cow<'a, CpuSet>,
    /// Whether it runs in its scope.
    at_home: bool,
}

/// CPU time of a scope in thousandths of a CPU.
#[derive(Clone, Copy)]
struct ScopeTime {
    /// Without exclusive CPUs.
    capacity: u64,
    /// Beside the exclusive CPUs.
    left: u64,
    /// Whether any CPU is left, even a reserved one.
    has_cpu: bool,
}

/// Moves sharing containers to their fallback CPUs or back, as the allocations demand. A container may be
/// left without a CPU: other owners can take all of them.
pub fn settle_overflow(inventory: &Inventory, allocations: &mut Allocations) {
    Settlement::of(inventory, allocations, None).apply(allocations);
}

/// [`settle_overflow`] after this pod was placed. Its init containers have ended before its later containers
/// start.
///
/// # Errors
/// If the exclusive CPUs of the pod leave a container no CPU. Nothing is changed then.
pub(crate) fn settle_overflow_for(
    inventory: &Inventory,
    allocations: &mut Allocations,
    pod: &PodRequest,
) -> Result<(), Rejection> {
    let settlement = Settlement::of(inventory, allocations, Some(pod));
    if !settlement.emptied.is_empty() {
        let mut own = CpuSet::new();
        allocations.of_pod(&pod.name).for_each(|(_, grant)| own.extend(&grant.exclusive));
        let mut emptied = settlement.emptied.iter();
        if let Some((holder, _)) = emptied.find(|(_, cpus)| !cpus.is_disjoint(&own)) {
            return Err(nothing_left(inventory, holder, &own));
        }
    }
    settlement.apply(allocations);
    Ok(())
}

/// Moves containers back to scopes that have room again, after a release.
pub fn unspill(allocations: &mut Allocations) {
    if !allocations.iter().any(|(_, grant)| grant.shared.as_ref().is_some_and(is_away)) {
        return;
    }
    let taken = allocations.exclusive_cpus();
    let back = judge(allocations, &taken, None).filter(|one| one.at_home && is_away(one.shared));
    let back: Vec<_> = back.map(|one| (one.holder.clone(), moved_to(one.grant, None, Vec::new()))).collect();
    for (holder, grant) in back {
        allocations.give(holder, grant);
    }
}

/// Differences between the allocations and where their sharing containers belong.
struct Settlement {
    /// New grants.
    moves: Vec<(Holder, Grant)>,
    /// Holders without a CPU, in order of arrival, each with the CPUs where it could run.
    emptied: Vec<(Holder, CpuSet)>,
}

impl Settlement {
    fn of(inventory: &Inventory, allocations: &Allocations, pod: Option<&PodRequest>) -> Self {
        let taken = allocations.exclusive_cpus();
        let pool = inventory.shareable_cpus();
        let unreserved = pool.difference(&inventory.reserved_cpus);
        let (mut moves, mut emptied) = (Vec::new(), Vec::new());
        let mut memory_by_cpus = BTreeMap::new();
        for SharingHolder { holder, grant, shared, taken, at_home } in judge(allocations, &taken, pod) {
            if at_home {
                if is_away(shared) {
                    moves.push((holder.clone(), moved_to(grant, None, Vec::new())));
                }
                continue;
            }
            let pool = if shared.avoids_reserved { &unreserved } else { &pool };
            let wider = shared.scope.union(pool);
            if wider.is_subset(&taken) {
                emptied.push((holder.clone(), wider.clone()));
            }
            // Also if a move has no effect yet: it will when other containers leave.
            let fallback_cpus = (wider != shared.scope).then_some(wider);
            // The memory follows from the CPUs. A record without it, of an older daemon, stays as it is.
            if fallback_cpus == shared.fallback_cpus {
                continue;
            }
            let near = fallback_cpus.as_ref().map(|cpus| {
                memory_by_cpus.entry(cpus.clone()).or_insert_with(|| memory_near(inventory, cpus)).clone()
            });
            moves.push((holder.clone(), moved_to(grant, fallback_cpus, near.unwrap_or_default())));
        }
        Self { moves, emptied }
    }

    fn apply(self, allocations: &mut Allocations) {
        for (holder, grant) in self.moves {
            allocations.give(holder, grant);
        }
    }
}

/// Decides which holders of pinned shared CPUs are at home, the oldest first. Left out are holders that are
/// at home because no CPU of their scope is exclusive, and init containers of the `pod` that is being placed.
fn judge<'a>(
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    pod: Option<&'a PodRequest>,
) -> impl Iterator<Item = SharingHolder<'a>> {
    let is_concerned = |shared: &SharedCpus| is_away(shared) || !shared.scope.is_disjoint(taken);
    let sharing = allocations
        .in_arrival_order(move |grant| grant.pin_cpus && grant.shared.as_ref().is_some_and(is_concerned));
    let mut scopes = BTreeMap::<(&CpuSet, &CpuSet), (u64, ScopeTime)>::new();
    sharing.filter_map(move |(holder, grant)| {
        let shared = grant.shared.as_ref()?;
        let beside = taken_beside(allocations, taken, pod, holder)?;
        let scope = scopes.entry((&shared.scope, &shared.reserved));
        let (promised, time) = scope.or_insert_with(|| (0, ScopeTime::of(shared, taken)));
        *promised = promised.saturating_add(shared.milli_cpus);
        let needed = if shared.milli_cpus == 0 { 1 } else { *promised };
        let time = match &beside {
            Cow::Borrowed(_) => *time,
            Cow::Owned(own) => ScopeTime::of(shared, own),
        };
        let at_home = time.has_cpu && time.left >= needed.min(time.capacity);
        Some(SharingHolder { holder, grant, shared, taken: beside, at_home })
    })
}

/// Exclusive CPUs of all holders that run at the same time as this one: all but those of init containers that
/// end before it starts. `None` for an init container of the pod that is being placed.
fn taken_beside<'a>(
    allocations: &Allocations,
    taken: &'a CpuSet,
    pod: Option<&PodRequest>,
    holder: &Holder,
) -> Option<Cow<'a, CpuSet>> {
    let placed = pod.filter(|pod| pod.name == *holder.pod()).and_then(|pod| {
        let index = pod.containers.iter().position(|container| container.name == holder.name())?;
        Some((pod, index))
    });
    let Some((pod, index)) = placed else { return Some(Cow::Borrowed(taken)) };
    let is_init = |index: usize| pod.containers[index].kind == ContainerKind::Init;
    if is_init(index) {
        return None;
    }
    if !(0..index).any(is_init) {
        return Some(Cow::Borrowed(taken));
    }
    let beside = allocations.iter().filter(|(other, _)| !pod.has_ended(other, index));
    let mut taken = CpuSet::new();
    beside.for_each(|(_, grant)| taken.extend(&grant.exclusive));
    Some(Cow::Owned(taken))
}

impl ScopeTime {
    fn of(shared: &SharedCpus, taken: &CpuSet) -> Self {
        // Reserved CPUs do not count, see [`SharedCpus::reserved`].
        let room = shared.scope.difference(&shared.reserved);
        let millis = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1000);
        Self {
            capacity: millis(room.len()),
            left: millis(room.apart(taken)),
            has_cpu: !shared.scope.is_subset(taken),
        }
    }
}

/// Does it have fallback CPUs, or memory near them?
const fn is_away(shared: &SharedCpus) -> bool {
    shared.fallback_cpus.is_some() || !shared.fallback_memory.is_empty()
}

fn moved_to(grant: &Grant, fallback_cpus: Option<CpuSet>, fallback_memory: Vec<(CpuSet, NodeSet)>) -> Grant {
    let shared = grant.shared.clone().map(|shared| SharedCpus { fallback_cpus, fallback_memory, ..shared });
    Grant { shared, ..grant.clone() }
}

/// The CPUs of each node among these, and the ordinary memory near them.
fn memory_near(inventory: &Inventory, cpus: &CpuSet) -> Vec<(CpuSet, NodeSet)> {
    let machine = &inventory.machine;
    let nodes = machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus));
    let everywhere = machine.ordinary_memory_nodes();
    let near = |node| {
        let near = inventory.locality.near_memory_nodes(machine, &std::iter::once(node).collect());
        machine.with_kernel_memory(near, &everywhere)
    };
    nodes.map(|node| (node.cpus.intersection(cpus), near(node.id))).collect()
}

fn nothing_left(inventory: &Inventory, holder: &Holder, wanted: &CpuSet) -> Rejection {
    let problem = RejectionProblem::EmptiesHolder(holder.clone());
    let nodes: NodeSet = inventory.machine.nodes_of(wanted);
    let count = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX);
    let wanted = count(wanted.len());
    let available = wanted.saturating_sub(1);
    let room = FittingAmount::together("cpu", nodes.clone(), available);
    let shortage = Shortage { resource: "cpu".to_owned(), nodes, wanted, available };
    Rejection::new(RejectionReason::UnexpectedAdmissionError, problem).short_of(vec![shortage], &[room])
}

#[cfg(test)]
mod tests;
