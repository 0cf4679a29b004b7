//! Overflow of shared CPUs: which sharing containers run in their own scope, and which run on the whole
//! shared pool.
//!
//! Problem: exclusive CPUs may leave a scope less CPU time than was promised in it. Its containers then
//! either share crowded CPUs or run far from their memory, and the overflow must end as soon as possible.
//! Idea: the containers of a scope are ordered by arrival, the oldest first. As many as the remaining CPUs
//! can serve stay *at home*; all later ones are *away*, on the whole shared pool. A container without a
//! promise only needs one remaining CPU.
//!
//! The result depends only on the current allocations, not on history: when exclusive CPUs are released,
//! exactly the containers that they had displaced move back, in whatever order pods are created and deleted.
//! A return displaces no other container, because the order at home only grows at its end.
//!
//! Memory follows: a displaced container uses the memory near the CPUs that it runs on ([`Grant::mems`]), and
//! its own again after its return.
//!
//! CPUs reserved for the system do not count: a scope with only those left serves no container.
//!
//! This refuses a pod for only one reason: some container would have no CPU left at all.
//!
//! Cost: O(holders) set operations of a few words, and their sorting by age; nothing for a return if no
//! container is away.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Allocations, Grant, Holder, SharedCpus};
use numa_topology::{
    Locality, Topology,
    set::{CpuSet, NodeSet},
};

/// A holder of shared CPUs.
struct SharingHolder<'a> {
    holder: &'a Holder,
    grant: &'a Grant,
    shared: &'a SharedCpus,
    /// Exclusive CPUs of all holders that run at the same time.
    taken: Cow<'a, CpuSet>,
    /// Whether its scope can serve its promise and all earlier ones.
    fits: bool,
}

/// Displaces containers from scopes with less room than promised, after the CPUs `moved` became exclusive.
/// `ended` are the CPUs of containers that have ended before a holder starts; `None` for a holder that has
/// ended itself.
///
/// # Errors
/// The holder that would have no CPU left.
pub(crate) fn spill(
    machine: &Topology,
    allocations: &mut Allocations,
    pool: &CpuSet,
    moved: &CpuSet,
    ended: impl Fn(&Holder) -> Option<CpuSet>,
) -> Result<(), Holder> {
    if moved.is_empty() {
        return Ok(());
    }
    let taken = allocations.exclusive_cpus();
    let touched = |shared: &SharedCpus| !shared.reach().is_disjoint(moved);
    let mut away = Vec::new();
    for SharingHolder { holder, grant, shared, taken, fits } in judge(allocations, &taken, touched, ended) {
        let stays = match &shared.fallback_cpus {
            None => fits,
            Some(fallback_cpus) => left_of(fallback_cpus, &taken) > 0,
        };
        if stays {
            continue;
        }
        let wider = shared.reach().union(pool);
        if left_of(&wider, &taken) == 0 {
            return Err(holder.clone());
        }
        // Also if that has no effect yet: it will when other containers leave.
        if wider != *shared.reach() {
            let memory = memory_near(machine, &wider);
            away.push((holder.clone(), moved_to(grant, Some(wider), memory)));
        }
    }
    for (holder, grant) in away {
        allocations.give(holder, grant);
    }
    Ok(())
}

/// Moves containers back to scopes that have room again.
pub fn unspill(allocations: &mut Allocations) {
    let is_away = |grant: &Grant| grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some());
    if !allocations.iter().any(|(_, grant)| is_away(grant)) {
        return;
    }
    let taken = allocations.exclusive_cpus();
    let judged = judge(allocations, &taken, |_| true, |_| Some(CpuSet::new()));
    let back = judged.into_iter().filter(|one| one.fits && one.shared.fallback_cpus.is_some());
    let back: Vec<_> = back.map(|one| (one.holder.clone(), moved_to(one.grant, None, Vec::new()))).collect();
    for (holder, grant) in back {
        allocations.give(holder, grant);
    }
}

/// All holders with pinned shared CPUs that are of interest, the oldest first. If a holder is of interest,
/// all holders in its scope must be.
fn judge<'a>(
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    interesting: impl Fn(&SharedCpus) -> bool + 'a,
    ended: impl Fn(&Holder) -> Option<CpuSet>,
) -> Vec<SharingHolder<'a>> {
    let sharing = allocations
        .in_arrival_order(move |grant| grant.pin_cpus && grant.shared.as_ref().is_some_and(&interesting))
        .filter_map(|(holder, grant)| Some((holder, grant, grant.shared.as_ref()?)));
    let mut rows = BTreeMap::<&CpuSet, u64>::new();
    let judged = sharing.filter_map(|(holder, grant, shared)| {
        let ended = ended(holder)?;
        let taken =
            if ended.is_empty() { Cow::Borrowed(taken) } else { Cow::Owned(taken.difference(&ended)) };
        let promised = rows.entry(&shared.scope).or_default();
        *promised = promised.saturating_add(shared.milli_cpus);
        let needed = if shared.milli_cpus == 0 { 1 } else { *promised };
        // Reserved CPUs do not count, see [`SharedCpus::reserved`].
        let room = shared.scope.difference(&shared.reserved);
        let left = u64::try_from(left_of(&room, &taken)).unwrap_or(u64::MAX);
        let fits = left.saturating_mul(1000) >= needed;
        Some(SharingHolder { holder, grant, shared, taken, fits })
    });
    judged.collect()
}

fn left_of(scope: &CpuSet, taken: &CpuSet) -> usize {
    scope.len() - scope.common(taken)
}

fn moved_to(grant: &Grant, fallback_cpus: Option<CpuSet>, fallback_memory: Vec<(CpuSet, NodeSet)>) -> Grant {
    let shared = grant.shared.clone().map(|shared| SharedCpus { fallback_cpus, fallback_memory, ..shared });
    Grant { shared, ..grant.clone() }
}

/// The CPUs of each node among these, and the ordinary memory near them.
fn memory_near(machine: &Topology, cpus: &CpuSet) -> Vec<(CpuSet, NodeSet)> {
    let nodes = machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus));
    let everywhere = machine.ordinary_memory_nodes();
    let locality = Locality::new(machine);
    let near = |node| {
        let near = locality.near_memory_nodes(machine, &std::iter::once(node).collect());
        machine.with_kernel_memory(near, &everywhere)
    };
    nodes.map(|node| (node.cpus.intersection(cpus), near(node.id))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        QosClass,
        samples::{GIB, Host, container, pod},
        settings::{HintsSettings, TopologyPolicy},
    };
    use numa_topology::synth::Machine;

    /// Nodes of four CPUs and 16 GiB; all classes are aligned.
    fn host(sockets: u32) -> Host {
        let machine = Machine::new().sockets(sockets).cores(4).threads(1).build();
        let policy = TopologyPolicy::BestEffort;
        Host::new(machine, HintsSettings { policy, align_all_qos: true, ..HintsSettings::default() })
    }

    fn best_effort(name: &str) -> crate::PodRequest {
        let mut pod = pod(name, vec![container("main", 0, 0)]);
        pod.qos = QosClass::BestEffort;
        pod
    }

    fn exclusive(name: &str, cpus: u64) -> crate::PodRequest {
        pod(name, vec![container("main", cpus * 1000, GIB)])
    }

    #[test]
    fn a_displaced_container_gets_the_memory_near_its_cpus_and_its_own_back() {
        let mut host = host(2);
        host.admit(&best_effort("shared")).unwrap();
        assert_eq!(host.place("shared", "main"), ("0-3".into(), "0".into()));
        host.admit(&exclusive("first", 2)).unwrap();
        let admission = host.admit(&exclusive("second", 2)).unwrap();
        let now = host.place("shared", "main");
        if now.0 == "4-7" {
            assert_eq!(now.1, "1");
            let update = &admission.updates[0];
            let mems = update.mems.as_ref().map(ToString::to_string);
            assert_eq!((update.holder.pod().name.as_str(), mems.as_deref()), ("shared", Some("1")));
        }
        crate::remove(&mut host.allocations, &crate::PodName::new("default", "second"));
        assert_eq!(host.place("shared", "main").1, "0", "it is at home again");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Exclusive(u8, u64),
        Shared(u8, u64, u64),
        Remove(u8),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u8..12, 1u64..5).prop_map(|(pod, cpus)| Step::Exclusive(pod, cpus)),
            3 => (0u8..12, 0u64..6, 0u64..3).prop_map(|(pod, halves, gib)| Step::Shared(pod, halves, gib)),
            2 => (0u8..12).prop_map(Step::Remove),
        ]
    }

    proptest! {
        /// For any sequence of pods: a displaced container may use the memory of the nodes that it runs on.
        #[test]
        fn a_displaced_container_never_runs_beside_memory_that_it_may_not_use(
            sockets in 2u32..5,
            steps in prop::collection::vec(any_step(), 1..30),
        ) {
            let mut host = host(sockets);
            for step in steps {
                match step {
                    Step::Exclusive(name, cpus) => drop(host.admit(&exclusive(&format!("p{name}"), cpus))),
                    Step::Shared(name, halves, gib) => {
                        let asked = container("main", halves * 500, gib * GIB).without_limits();
                        let mut pod = pod(&format!("p{name}"), vec![asked]);
                        pod.qos = if halves + gib == 0 { QosClass::BestEffort } else { QosClass::Burstable };
                        drop(host.admit(&pod));
                    }
                    Step::Remove(name) => {
                        let pod = crate::PodName::new("default", format!("p{name}"));
                        crate::remove(&mut host.allocations, &pod);
                    }
                }
                let taken = host.allocations.exclusive_cpus();
                for (holder, grant) in host.allocations.iter() {
                    let is_away = grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some());
                    let (cpus, mems) = (grant.cpus(&taken), grant.mems(&taken));
                    if is_away && grant.pin_cpus && grant.pin_mems && !cpus.is_empty() && !mems.is_empty() {
                        let nodes = host.inventory.machine.nodes_of(&cpus);
                        prop_assert!(nodes.is_subset(&mems), "{}: {} {}", holder, cpus, mems);
                    }
                }
            }
        }
    }
}
