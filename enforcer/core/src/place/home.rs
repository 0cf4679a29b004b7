//! Who among those that share CPUs is at home, and who is away.
//!
//! Problem: exclusive CPUs may leave a scope less than was promised in it. Those there must not be
//! slowed down more than by the smaller of two evils, and must not be far from their memory longer than
//! necessary. Idea: those of a scope stand in a row, the oldest first. As many as what is left of the
//! scope holds are *at home*; all behind them are *away*, on the whole shared pool. Who is promised
//! nothing needs no more than a CPU that is left.
//!
//! Who is at home depends on what is given away now and on nothing that was before: when exclusive CPUs
//! come back, exactly those return who went because of them, in whatever order pods come and go. A
//! return takes room from nobody, because the row at home only grows at its end.
//!
//! Memory goes along: one that is away uses the memory near the CPUs that it runs on
//! ([`Grant::mems`]), and that of its home again when it has returned.
//!
//! CPUs that are reserved for the system are no room: a scope of which only those are left holds nobody.
//!
//! This never refuses a pod, but for one reason: somebody would have no CPU left at all.
//!
//! Cost: O(holders) set operations of a few words, and their sorting by age; nothing for a return when
//! nobody is away.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Allocations, Grant, Holder, SharedCpus};
use crate::{
    set::{CpuSet, NodeSet},
    topology::{Locality, Topology},
};

/// A holder of shared CPUs.
struct Judged<'a> {
    holder: &'a Holder,
    grant: &'a Grant,
    shared: &'a SharedCpus,
    /// Exclusive CPUs of all beside whom it runs.
    taken: Cow<'a, CpuSet>,
    /// Its home holds what was promised to it and to those before it.
    fits: bool,
}

/// Sends those away whose home holds less than was promised there, where CPUs that were `moved` are
/// exclusive now. `ended` are the CPUs of those that have ended when a holder starts, none for a holder
/// that has ended itself. The holder for whom nothing is left is the error.
pub(super) fn send_away(
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
    for Judged { holder, grant, shared, taken, fits } in judge(allocations, &taken, touched, ended) {
        let stays = match &shared.refuge {
            None => fits,
            Some(refuge) => left_of(refuge, &taken) > 0,
        };
        if stays {
            continue;
        }
        let wider = shared.reach().union(pool);
        if left_of(&wider, &taken) == 0 {
            return Err(holder.clone());
        }
        // Also where that brings nothing yet: it will when others leave.
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

/// Lets those return whose home has room for them again.
pub(crate) fn bring_home(allocations: &mut Allocations) {
    let is_away = |grant: &Grant| grant.shared.as_ref().is_some_and(|shared| shared.refuge.is_some());
    if !allocations.iter().any(|(_, grant)| is_away(grant)) {
        return;
    }
    let taken = allocations.exclusive_cpus();
    let judged = judge(allocations, &taken, |_| true, |_| Some(CpuSet::new()));
    let back = judged.into_iter().filter(|one| one.fits && one.shared.refuge.is_some());
    let back: Vec<_> = back.map(|one| (one.holder.clone(), moved_to(one.grant, None, Vec::new()))).collect();
    for (holder, grant) in back {
        allocations.give(holder, grant);
    }
}

/// Everybody whose shared CPUs are pinned and of interest, the oldest first. Where somebody is who is at
/// home, all of that home must be of interest.
fn judge<'a>(
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    interesting: impl Fn(&SharedCpus) -> bool + 'a,
    ended: impl Fn(&Holder) -> Option<CpuSet>,
) -> Vec<Judged<'a>> {
    let sharing = allocations
        .in_turn(move |grant| grant.pin_cpus && grant.shared.as_ref().is_some_and(&interesting))
        .filter_map(|(holder, grant)| Some((holder, grant, grant.shared.as_ref()?)));
    let mut rows = BTreeMap::<&CpuSet, u64>::new();
    let judged = sharing.filter_map(|(holder, grant, shared)| {
        let ended = ended(holder)?;
        let taken =
            if ended.is_empty() { Cow::Borrowed(taken) } else { Cow::Owned(taken.difference(&ended)) };
        let promised = rows.entry(&shared.scope).or_default();
        *promised = promised.saturating_add(shared.milli_cpus);
        let needed = if shared.milli_cpus == 0 { 1 } else { *promised };
        // Reserved CPUs are no room, see [`SharedCpus::reserved`].
        let room = shared.scope.difference(&shared.reserved);
        let left = u64::try_from(left_of(&room, &taken)).unwrap_or(u64::MAX);
        let fits = left.saturating_mul(1000) >= needed;
        Some(Judged { holder, grant, shared, taken, fits })
    });
    judged.collect()
}

fn left_of(scope: &CpuSet, taken: &CpuSet) -> usize {
    scope.len() - scope.common(taken)
}

fn moved_to(grant: &Grant, refuge: Option<CpuSet>, refuge_memory: Vec<(CpuSet, NodeSet)>) -> Grant {
    let shared = grant.shared.clone().map(|shared| SharedCpus { refuge, refuge_memory, ..shared });
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
        place::{
            Cpuset,
            samples::{GIB, Host, container, pod},
        },
        policy::placement::{HintsSettings, TopologyPolicy},
        topology::synth::Machine,
        workload::QosClass,
    };

    /// Nodes of four CPUs and 16 GiB, where everything is aligned.
    fn host(sockets: u32) -> Host {
        let machine = Machine::new().sockets(sockets).cores(4).threads(1).build();
        let policy = TopologyPolicy::BestEffort;
        Host::new(machine, HintsSettings { policy, align_all_qos: true, ..HintsSettings::default() })
    }

    fn best_effort(name: &str) -> crate::place::PodRequest {
        let mut pod = pod(name, vec![container("main", 0, 0)]);
        pod.qos = QosClass::BestEffort;
        pod
    }

    fn exclusive(name: &str, cpus: u64) -> crate::place::PodRequest {
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
        crate::place::remove(&mut host.allocations, &crate::place::PodName::new("default", "second"));
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
        /// Whatever comes and goes: a container that is away from home may use the memory of the nodes that
        /// it runs on.
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
                        let pod = crate::place::PodName::new("default", format!("p{name}"));
                        crate::place::remove(&mut host.allocations, &pod);
                    }
                }
                let taken = host.allocations.exclusive_cpus();
                for (holder, grant) in host.allocations.iter() {
                    let is_away = grant.shared.as_ref().is_some_and(|shared| shared.refuge.is_some());
                    let Cpuset { cpus: Some(cpus), mems: Some(mems) } = Cpuset::of(grant, &taken) else { continue };
                    if is_away {
                        let nodes = host.inventory.machine.nodes_of(&cpus);
                        prop_assert!(nodes.is_subset(&mems), "{}: {} {}", holder, cpus, mems);
                    }
                }
            }
        }
    }
}
