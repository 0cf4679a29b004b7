//! What others gave away, in the same state as what we give.
//!
//! Problem: CPUs that the kubelet's static manager gave to a container must not be handed out again, and
//! whoever shares CPUs must leave them; but nobody may set that container. Idea: others' claims are grants
//! that pin nothing. Everything that is derived from grants (CPUs that are taken, memory of a zone, who must
//! give way) then counts them, and no cpuset is ever made of them.
//!
//! Their holders have names that no pod can have, so that no engine ever takes them for its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Allocations, CpuClass, Grant, Holder, Inventory, MemoryClaim, MemoryResource, PodName, bring_home,
    send_away,
};
use crate::{
    id::NodeId,
    owner::{Claim, ClaimedPod, MemoryBlock, Owner, Ownership},
    parse::quantity,
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, printable},
};

/// Engine of a grant that others gave.
pub(super) const OTHERS: &str = "others";
/// Namespace of those who are in the kubelet's own lists. No namespace of Kubernetes starts with `-`.
const CLAIMED: &str = "-claimed";
/// Namespace of containers that came with CPUs.
const GIVEN: &str = "-given";
/// Namespace of cgroups that have a partition of their own.
const PARTITION: &str = "-partition";
/// Namespace of cgroups that are pinned to CPUs by others, where advice looks for a place beside them.
const PINNED: &str = "-pinned";
/// Namespace of cgroups that are left alone because their processes have placed themselves.
const SELF_PLACED: &str = "-self-placed";
/// Namespace of nodes whose huge pages processes use that nothing was promised to.
const HUGEPAGES: &str = "-hugepages";
/// Name of what is reserved of them.
const RESERVED: &str = "reserved";

impl Grant {
    /// CPUs that others took for themselves.
    pub(crate) fn taken_by_others(cpus: CpuSet, reason: String) -> Self {
        let (engine, policy, class) = (OTHERS, OTHERS, CpuClass::Exclusive);
        Self { engine, policy, class, exclusive: cpus, reason, ..Self::default() }
    }

    /// Memory of one node that others use.
    pub(crate) fn used_by_others(node: NodeId, used: &BTreeMap<MemoryResource, u64>) -> Self {
        let claims = used.iter().map(|(resource, bytes)| MemoryClaim {
            resource: *resource,
            zone: NodeSet::from_iter([node]),
            bytes: *bytes,
            by_node: BTreeMap::from([(node, *bytes)]),
        });
        let reason = "in use, and promised to no container".to_owned();
        Self { memory: claims.collect(), ..Self::taken_by_others(CpuSet::new(), reason) }
    }
}

impl Grant {
    /// Memory that processes have reserved on all of these nodes together; from which of them it will come is
    /// not known.
    pub(crate) fn reserved_by_others(nodes: &NodeSet, reserved: &BTreeMap<MemoryResource, u64>) -> Self {
        let claims = reserved.iter().map(|(resource, bytes)| MemoryClaim {
            resource: *resource,
            zone: nodes.clone(),
            bytes: *bytes,
            by_node: BTreeMap::new(),
        });
        let reason = "reserved, and promised to no container".to_owned();
        Self { memory: claims.collect(), ..Self::taken_by_others(CpuSet::new(), reason) }
    }
}

impl Holder {
    /// A container that came with CPUs of somebody else, by its id.
    pub(super) fn given(id: &str, container: &str) -> Self {
        Self::new(PodName::new(GIVEN, id), container.to_owned())
    }

    /// Is it one of these?
    pub fn is_given(&self) -> bool {
        self.pod().namespace == GIVEN
    }

    /// Is it one of those that stand for what is held apart?
    pub(crate) fn is_apart(&self) -> bool {
        [PARTITION, HUGEPAGES, SELF_PLACED].contains(&self.pod().namespace.as_str())
    }

    /// A cgroup that has a partition of its own; the root cgroup for partitions of which no root is known.
    pub(crate) fn partition(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(PARTITION, cgroup.as_str()), String::new())
    }

    /// A cgroup that others have pinned to CPUs.
    pub(crate) fn pinned(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(PINNED, cgroup.as_str()), String::new())
    }

    /// A cgroup that is left alone because its processes have placed themselves.
    pub(crate) fn self_placed(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(SELF_PLACED, cgroup.as_str()), String::new())
    }

    /// Whatever uses huge pages of a node without a promise.
    pub(crate) fn hugepages(node: NodeId) -> Self {
        Self::new(PodName::new(HUGEPAGES, format!("node {node}")), String::new())
    }

    /// Whatever has reserved huge pages without a promise.
    pub(crate) fn reserved_hugepages() -> Self {
        Self::new(PodName::new(HUGEPAGES, RESERVED), String::new())
    }

    /// Its name for what it has of memory or devices.
    pub(super) fn of_memory_in_words(&self) -> String {
        match self.pod().namespace.as_str() {
            HUGEPAGES if self.pod().name == RESERVED => {
                "processes that have them reserved, and the kernel does not say where".to_owned()
            }
            HUGEPAGES => format!("processes on {} without a promise", self.pod().name),
            _ => self.to_string(),
        }
    }

    /// What its CPUs are to others, by name, when `grant` is what it has: `exclusive to default/db/main`. Of
    /// names for the same the one that says more has the lower rank.
    pub(super) fn in_words(&self, grant: &Grant) -> (u8, String) {
        let PodName { namespace, name, .. } = self.pod();
        let container =
            if self.name().is_empty() { String::new() } else { format!("/{}", printable(self.name())) };
        match namespace.as_str() {
            PARTITION if name == CgroupPath::root().as_str() => {
                (0, "of a partition without processes, or offline".to_owned())
            }
            PINNED => (0, format!("of the pinned cgroup {}", printable(name))),
            PARTITION => (0, format!("of the partition {}", printable(name))),
            SELF_PLACED => (0, format!("of {}, whose processes have placed themselves", printable(name))),
            CLAIMED => {
                let (rank, pod) = if name.contains('/') { (0, "pod") } else { (1, "the pod with uid") };
                let source = printable(&grant.reason);
                (rank, format!("exclusive to {pod} {}{container} by the kubelet ({source})", printable(name)))
            }
            GIVEN => (1, format!("exclusive to container {}{container}: {}", printable(name), grant.reason)),
            _ => (0, format!("exclusive to {self}")),
        }
    }
}

/// What processes and cgroups have that is no claim of a kubelet: by a holder of its own each.
pub(crate) type Apart = BTreeMap<Holder, Grant>;

/// Makes the allocations have these claims, and what is held apart, and nothing else of before. Who shares
/// CPUs makes room.
pub(crate) fn hold(inventory: &Inventory, allocations: &mut Allocations, claims: &[Claim], apart: Apart) {
    let before = allocations.exclusive_cpus();
    list(allocations, claims, apart);
    let now = allocations.exclusive_cpus();
    if now != before {
        make_room(inventory, allocations, &now.difference(&before));
        bring_home(allocations);
    }
}

/// Sends those away whose home has no room left beside CPUs that others have given away, `moved` ones. Where
/// nobody would have a CPU left everybody stays: whoever gave all away has seen to that.
pub(super) fn make_room(inventory: &Inventory, allocations: &mut Allocations, moved: &CpuSet) {
    let pool = inventory.shareable_cpus();
    let _squeezed = send_away(&inventory.machine, allocations, &pool, moved, |_| Some(CpuSet::new()));
}

fn list(allocations: &mut Allocations, claims: &[Claim], apart: Apart) {
    let mut wanted = apart;
    for claim in claims {
        let grant = wanted.entry(holder(claim)).or_default();
        *grant = joined(std::mem::take(grant), claim);
    }
    let is_held = |holder: &Holder| holder.is_apart() || holder.pod().namespace == CLAIMED;
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

/// One pod may be in two lists by two names; what it has counts once for CPUs, which are a set, and its
/// memory is taken from the list that names it by uid.
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

/// On several nodes it lies on the first, as far as anybody can tell.
fn memory_claim(block: &MemoryBlock) -> Option<MemoryClaim> {
    let resource = match block.kind.strip_prefix("hugepages-") {
        None if block.kind == "memory" => MemoryResource::Memory,
        None => return None,
        Some(size) => MemoryResource::Hugepages(quantity::whole(size)?),
    };
    let by_node = block.nodes.first().map(|node| (node, block.bytes)).into_iter().collect();
    Some(MemoryClaim { resource, zone: block.nodes.clone(), bytes: block.bytes, by_node })
}

/// The grant of a container that came with what somebody else gave it.
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

/// CPUs of a mark that count as taken. Anybody who may make a pod may mark it: what is set aside for the
/// system is not given away by that, and where nobody who shares CPUs would have one left the mark counts for
/// nothing.
fn believed(named: &CpuSet, holder: &Holder, inventory: &Inventory, allocations: &Allocations) -> CpuSet {
    let believed = named.difference(&inventory.reserved_cpus);
    let others = allocations.iter().filter(|(other, _)| *other != holder);
    let taken = others.fold(believed.clone(), |taken, (_, grant)| taken.union(&grant.exclusive));
    let pool = inventory.shareable_cpus();
    if pool.is_subset(&taken) { CpuSet::new() } else { believed }
}

#[cfg(test)]
mod hugepages_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        place::{
            SharedCpus,
            samples::{Host, policy},
        },
        policy::placement::TopologyPolicy,
        topology::synth::Machine,
    };

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
        hold(
            &inventory(),
            &mut allocations,
            &[claim("a", "x", "2-3"), claim("a", "y", "4"), claim("b", "x", "5")],
            Apart::new(),
        );
        assert_eq!(allocations.exclusive_cpus().to_string(), "0,2-5");
        hold(&inventory(), &mut allocations, &[claim("a", "y", "4,6")], Apart::new());
        assert_eq!(allocations.exclusive_cpus().to_string(), "0,4,6");
        for (holder, grant) in allocations.iter().filter(|(holder, _)| **holder != own) {
            assert!(super::super::Cpuset::of(grant, &CpuSet::new()).is_empty(), "{holder}");
        }
        hold(&inventory(), &mut allocations, &[], Apart::new());
        assert_eq!(allocations.iter().count(), 1);
    }

    #[test]
    fn who_shares_cpus_that_others_gave_away_goes_elsewhere_and_comes_back() {
        let sharing = Holder::new(PodName::new("shop", "web"), "main".into());
        let shared = Some(SharedCpus::new("0-3".parse().unwrap(), 500));
        let mut allocations = Allocations::default();
        allocations.give(sharing.clone(), Grant { shared, pin_cpus: true, ..Grant::default() });
        let mut runs_on = |claims: &[Claim]| {
            hold(&inventory(), &mut allocations, claims, Apart::new());
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
        hold(&inventory(), &mut allocations, &[file, socket, huge, odd], Apart::new());
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
}
