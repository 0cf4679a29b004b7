//! Resources of other owners, in the same allocations as the daemon's own grants.
//!
//! Problem: CPUs that the kubelet's static manager gave to a container must not be given again, and
//! containers that share CPUs must leave them; but the daemon must not write that container's cpuset. Idea:
//! claims of other owners are grants that pin nothing. Everything derived from grants (taken CPUs, memory of
//! a zone, displaced containers) then includes them, and no cpuset is computed from them.
//!
//! Their holders have names that no pod can have, so that engines never treat them as their own.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{
    Allocations, CpuClass, Grant, Holder, Inventory, MemoryClaim, MemoryResource, PodName,
    external::{CLAIMED, OTHERS},
    settle_overflow,
};

use crate::owner::{Claim, ClaimedPod, MemoryBlock, Owner, Ownership};
use numa_topology::set::CpuSet;

/// Resources of processes and cgroups that are not claims of a kubelet, each with its own holder.
pub type ExternalGrants = BTreeMap<Holder, Grant>;

/// Replaces all grants of other owners by these claims and resources. Containers that share CPUs make room or
/// move back.
pub(crate) fn sync_external(
    inventory: &Inventory,
    allocations: &mut Allocations,
    claims: &[Claim],
    apart: ExternalGrants,
) {
    let before = allocations.exclusive_cpus();
    list(allocations, claims, apart);
    if allocations.exclusive_cpus() != before {
        settle_overflow(inventory, allocations);
    }
}

/// Replaces the exclusive CPUs of resource claims, whether containers have them or not: they stay the claim's
/// between two of its containers. Containers that share CPUs make room or move back.
pub fn hold_resource_claims(inventory: &Inventory, allocations: &mut Allocations, wanted: ExternalGrants) {
    let before = allocations.exclusive_cpus();
    let had = allocations.iter().filter(|(holder, _)| holder.is_resource_claim());
    let had: BTreeSet<Holder> = had.map(|(holder, _)| holder.clone()).collect();
    for gone in had.iter().filter(|holder| !wanted.contains_key(*holder)) {
        allocations.release(gone);
    }
    for (holder, grant) in wanted {
        if allocations.get(&holder) != Some(&grant) {
            allocations.give(holder, grant);
        }
    }
    if allocations.exclusive_cpus() != before {
        settle_overflow(inventory, allocations);
    }
}

fn list(allocations: &mut Allocations, claims: &[Claim], apart: ExternalGrants) {
    let mut wanted = apart;
    for claim in claims {
        let grant = wanted.entry(holder(claim)).or_default();
        *grant = joined(std::mem::take(grant), claim);
    }
    // Resource claims come and go with the driver's calls, and not with turns.
    let is_apart = |holder: &Holder| holder.is_apart() && !holder.is_resource_claim();
    let is_held = |holder: &Holder| is_apart(holder) || holder.pod().namespace == CLAIMED;
    let gone = |holder: &Holder| is_held(holder) && !wanted.contains_key(holder);
    let had: BTreeSet<Holder> = allocations.iter().map(|(holder, _)| holder.clone()).collect();
    if had.iter().any(gone) {
        allocations.retain(|holder| !gone(holder));
    }
    for (holder, grant) in wanted {
        if allocations.get(&holder) != Some(&grant) {
            allocations.give(holder, grant);
        }
    }
}

/// Holder of a claim. One pod may be in two lists under two names. Its CPUs count once because they are a
/// set; its memory is taken from the list that names it by uid.
fn holder(claim: &Claim) -> Holder {
    let name = match &claim.pod {
        ClaimedPod::Uid(uid) => uid.clone(),
        ClaimedPod::Named { namespace, name } => format!("{namespace}/{name}"),
    };
    Holder::new(PodName::new(CLAIMED, name), claim.container.clone().unwrap_or_default())
}

fn joined(grant: Grant, claim: &Claim) -> Grant {
    let counted = matches!(claim.pod, ClaimedPod::Uid(_));
    let memory = claim.memory.iter().filter(|_| counted).filter_map(memory_claim);
    Grant {
        engine: OTHERS,
        policy: OTHERS,
        class: CpuClass::Exclusive,
        exclusive: grant.exclusive.union(&claim.cpus),
        mems: grant.mems.union(&claim.mems()),
        memory: grant.memory.into_iter().chain(memory).collect(),
        reason: claim.source.clone(),
        ..Grant::default()
    }
}

/// Memory on several nodes counts on the first, because the kubelet does not report the amounts by node.
fn memory_claim(block: &MemoryBlock) -> Option<MemoryClaim> {
    let resource = MemoryResource::of_name(&block.kind)?;
    let by_node = block.nodes.first().map(|node| (node, block.bytes)).into_iter().collect();
    Some(MemoryClaim { resource, zone: block.nodes.clone(), bytes: block.bytes, by_node })
}

/// Grant of a container that was created with CPUs of another owner.
pub(super) fn given(
    ownership: &Ownership,
    holder: &Holder,
    inventory: &Inventory,
    allocations: &Allocations,
) -> Grant {
    let named = ownership.cpus.clone().unwrap_or_default();
    let exclusive = if matches!(ownership.owner, Owner::Koordlet | Owner::Katalyst | Owner::DraDriver) {
        believed(&named, holder, inventory, allocations)
    } else {
        named
    };
    Grant {
        engine: OTHERS,
        policy: OTHERS,
        class: CpuClass::Exclusive,
        exclusive,
        mems: ownership.mems.clone().unwrap_or_default(),
        reason: ownership.refusal(),
        ..Grant::default()
    }
}

/// CPUs of a mark that count as taken. Any user that may create pods can write a mark, so CPUs reserved for
/// the system and those of resource claims never count. If the mark would leave no CPU for containers that
/// share, it is ignored.
fn believed(named: &CpuSet, holder: &Holder, inventory: &Inventory, allocations: &Allocations) -> CpuSet {
    let believed = named.difference(&inventory.reserved_cpus).difference(&cpus_of_claims(allocations));
    let others = allocations.iter().filter(|(other, _)| *other != holder);
    let taken = others.fold(believed.clone(), |taken, (_, grant)| taken.union(&grant.exclusive));
    let pool = inventory.shareable_cpus();
    if pool.is_subset(&taken) { CpuSet::new() } else { believed }
}

/// Exclusive CPUs of resource claims.
pub fn cpus_of_claims(allocations: &Allocations) -> CpuSet {
    let claims = allocations.iter().filter(|(holder, _)| holder.is_resource_claim());
    claims.fold(CpuSet::new(), |cpus, (_, grant)| cpus.union(&grant.exclusive))
}

#[cfg(test)]
mod hugepages_tests;
#[cfg(test)]
mod tests {
    use super::*;

    use crate::policy::placement::TopologyPolicy;
    use numa_placement::{
        SharedCpus,
        samples::{Host, policy},
    };
    use numa_topology::synth::Machine;

    fn inventory() -> Inventory {
        let machine = Machine::new().sockets(2).cores(4).threads(1).build();
        Host::new(machine, policy(TopologyPolicy::None)).inventory
    }

    fn claim(uid: &str, container: &str, cpus: &str) -> Claim {
        Claim {
            pod: ClaimedPod::Uid(uid.into()),
            container: Some(container.into()),
            cpus: cpus.parse().unwrap(),
            source: "cpu_manager_state".into(),
            ..Claim::default()
        }
    }

    #[test]
    fn claims_take_cpus_as_long_as_they_are_listed_and_pin_nothing() {
        let mut allocations = Allocations::default();
        let own = Holder::new(PodName::new("shop", "web"), "main".into());
        allocations.give(own.clone(), Grant { exclusive: "0".parse().unwrap(), ..Grant::default() });
        sync_external(
            &inventory(),
            &mut allocations,
            &[claim("a", "x", "2-3"), claim("a", "y", "4"), claim("b", "x", "5")],
            ExternalGrants::new(),
        );
        assert_eq!(allocations.exclusive_cpus().to_string(), "0,2-5");
        sync_external(&inventory(), &mut allocations, &[claim("a", "y", "4,6")], ExternalGrants::new());
        assert_eq!(allocations.exclusive_cpus().to_string(), "0,4,6");
        for (holder, grant) in allocations.iter().filter(|(holder, _)| **holder != own) {
            assert!(super::super::Cpuset::of(grant, &CpuSet::new()).is_empty(), "{holder}");
        }
        sync_external(&inventory(), &mut allocations, &[], ExternalGrants::new());
        assert_eq!(allocations.iter().count(), 1);
    }

    #[test]
    fn sharing_container_leaves_foreign_cpus_and_moves_back() {
        let sharing = Holder::new(PodName::new("shop", "web"), "main".into());
        let shared = Some(SharedCpus::new("0-3".parse().unwrap(), 500));
        let mut allocations = Allocations::default();
        allocations.give(sharing.clone(), Grant { shared, pin_cpus: true, ..Grant::default() });
        let mut runs_on = |claims: &[Claim]| {
            sync_external(&inventory(), &mut allocations, claims, ExternalGrants::new());
            let taken = allocations.exclusive_cpus();
            allocations.get(&sharing).map(|grant| grant.cpus(&taken).to_string()).unwrap_or_default()
        };
        assert_eq!(runs_on(&[claim("a", "x", "0-1")]), "2-3");
        assert_eq!(runs_on(&[claim("a", "x", "0-3")]), "4-7");
        assert_eq!(runs_on(&[claim("a", "x", "0-7")]), "", "nothing is left, and nothing is set");
        assert_eq!(runs_on(&[]), "0-3");
    }

    #[test]
    fn memory_counts_once_though_two_lists_have_it() {
        let blocks = |kind: &str| {
            vec![MemoryBlock { kind: kind.into(), nodes: "0-1".parse().unwrap(), bytes: 4 << 30 }]
        };
        let file = Claim { memory: blocks("memory"), ..claim("a", "x", "") };
        let named = ClaimedPod::Named { namespace: "shop".into(), name: "web".into() };
        let socket = Claim { pod: named, ..file.clone() };
        let huge = Claim { memory: blocks("hugepages-2Mi"), ..claim("a", "x", "") };
        let odd = Claim { memory: blocks("hugepages-x"), ..claim("a", "x", "") };
        let mut allocations = Allocations::default();
        sync_external(&inventory(), &mut allocations, &[file, socket, huge, odd], ExternalGrants::new());
        let claims: Vec<String> = allocations
            .iter()
            .flat_map(|(_, grant)| &grant.memory)
            .map(|claim| format!("{} {} {}", claim.resource, claim.zone, claim.bytes >> 30))
            .collect();
        assert_eq!(claims, ["memory 0-1 4", "hugepages-2Mi 0-1 4"]);
    }

    #[test]
    fn what_came_with_a_container_is_taken() {
        let ownership = Ownership {
            cpus: Some("2-3".parse().unwrap()),
            ..Ownership::of(Owner::KubeletCpuManager, "CPUs 2-3 came with the container")
        };
        let holder = Holder::given("id", "main");
        let grant = given(&ownership, &holder, &inventory(), &Allocations::default());
        assert_eq!(
            (grant.exclusive.to_string().as_str(), grant.pin_cpus, grant.pin_mems),
            ("2-3", false, false)
        );
        assert!(holder.is_given());
    }

    #[test]
    fn cpus_of_a_resource_claim_are_not_those_of_a_mark() {
        let mut allocations = Allocations::default();
        let of_claim = Grant { exclusive: "4-5".parse().unwrap(), ..Grant::default() };
        let claim = Holder::resource_claim("a");
        hold_resource_claims(&inventory(), &mut allocations, ExternalGrants::from([(claim, of_claim)]));
        let believed = |owner, allocations: &Allocations| {
            let ownership =
                Ownership { cpus: Some("2-5".parse().unwrap()), ..Ownership::of(owner, "CPUs 2-5") };
            let grant = given(&ownership, &Holder::given("id", "main"), &inventory(), allocations);
            grant.exclusive.to_string()
        };
        for marked in [Owner::Koordlet, Owner::Katalyst, Owner::DraDriver] {
            assert_eq!(believed(marked, &allocations), "2-3");
            assert_eq!(believed(marked, &Allocations::default()), "2-5");
        }
        assert_eq!(believed(Owner::KubeletCpuManager, &allocations), "2-5", "it runs there");
    }
}
