//! Grants and holders of other owners, in the same allocations as the daemon's own grants.
//!
//! A claim of another owner is a grant that pins nothing: everything derived from grants (taken CPUs, memory
//! of a zone, displaced containers) includes it, and no cpuset is computed from it. The holders have names
//! that no pod can have, so that engines never treat them as their own.

use std::collections::BTreeMap;

use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
    text::printable,
};

use crate::{CgroupPath, CpuClass, Grant, Holder, MemoryClaim, MemoryResource, PodName};

pub use crate::engine_name::{CLAIMS, OTHERS, UNPLACED};
/// Namespace of holders from the kubelet's own lists. No namespace of Kubernetes starts with `-`.
pub const CLAIMED: &str = "-claimed";
/// Namespace of containers that were created with CPUs.
pub const GIVEN: &str = "-given";
/// Namespace of resource claims that have CPUs.
pub(crate) const RESOURCE_CLAIMS: &str = "-resource-claims";
/// Namespace of containers that have what resource claims give them.
pub(crate) const CLAIMING: &str = "-claiming";
/// Namespace of cgroups with a cpuset partition.
pub(crate) const PARTITION: &str = "-partition";
/// Namespace of cgroups that other owners have pinned to CPUs, for advice about a place beside them.
pub(crate) const PINNED: &str = "-pinned";
/// Namespace of cgroups that are not changed because their processes set their own placement.
pub(crate) const SELF_PLACED: &str = "-self-placed";
/// Namespace of nodes with huge pages in use without a promise.
pub const HUGEPAGES: &str = "-hugepages";
/// Name of the holder of reserved huge pages.
pub(crate) const RESERVED: &str = "reserved";

impl Grant {
    /// Exclusive CPUs of another owner.
    pub fn taken_by_others(cpus: CpuSet, reason: String) -> Self {
        let (engine, policy, class) = (OTHERS, OTHERS, CpuClass::Exclusive);
        Self { engine, policy, class, exclusive: cpus, reason, ..Self::default() }
    }

    /// Memory of one node in use by others.
    pub fn used_by_others(node: NodeId, used: &BTreeMap<MemoryResource, u64>) -> Self {
        let claims = used.iter().map(|(resource, bytes)| MemoryClaim {
            resource: *resource,
            zone: NodeSet::from_iter([node]),
            bytes: *bytes,
            by_node: BTreeMap::from([(node, *bytes)]),
        });
        let reason = "in use, and promised to no container".to_owned();
        Self { memory: claims.collect(), ..Self::taken_by_others(CpuSet::new(), reason) }
    }

    /// Memory that processes have reserved on all of these nodes together; the kernel does not report the
    /// node.
    pub fn reserved_by_others(nodes: &NodeSet, reserved: &BTreeMap<MemoryResource, u64>) -> Self {
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
    /// Holder of a container that was created with CPUs of another owner, by its id.
    pub fn given(id: &str, container: &str) -> Self {
        Self::new(PodName::new(GIVEN, id), container.to_owned())
    }

    /// Is it the holder of such a container?
    pub fn is_given(&self) -> bool {
        self.pod().namespace == GIVEN
    }

    /// Holder of the exclusive CPUs of a resource claim.
    pub fn resource_claim(uid: &str) -> Self {
        Self::new(PodName::new(RESOURCE_CLAIMS, uid), String::new())
    }

    /// Is it the holder of a resource claim?
    pub fn is_resource_claim(&self) -> bool {
        self.pod().namespace == RESOURCE_CLAIMS
    }

    /// Holder of a container that has what resource claims give it, by its id.
    pub fn claiming(id: &str, container: &str) -> Self {
        Self::new(PodName::new(CLAIMING, id), container.to_owned())
    }

    /// Is it the holder of such a container?
    pub fn is_claiming(&self) -> bool {
        self.pod().namespace == CLAIMING
    }

    /// Is it one of the holders for resources outside the runtime's containers?
    pub fn is_apart(&self) -> bool {
        [PARTITION, HUGEPAGES, SELF_PLACED, RESOURCE_CLAIMS].contains(&self.pod().namespace.as_str())
    }

    /// Holder of a cgroup with a cpuset partition; the root cgroup stands for partitions with an unknown
    /// root.
    pub fn partition(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(PARTITION, cgroup.as_str()), String::new())
    }

    /// Holder of a cgroup that another owner has pinned to CPUs.
    pub fn pinned(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(PINNED, cgroup.as_str()), String::new())
    }

    /// Holder of a cgroup that is not changed because its processes set their own placement.
    pub fn self_placed(cgroup: &CgroupPath) -> Self {
        Self::new(PodName::new(SELF_PLACED, cgroup.as_str()), String::new())
    }

    /// Holder of huge pages of a node that are in use without a promise.
    pub fn hugepages(node: NodeId) -> Self {
        Self::new(PodName::new(HUGEPAGES, format!("node {node}")), String::new())
    }

    /// Holder of huge pages that are reserved without a promise.
    pub fn reserved_hugepages() -> Self {
        Self::new(PodName::new(HUGEPAGES, RESERVED), String::new())
    }

    /// Its name in messages about memory or devices.
    pub(crate) fn of_memory_in_words(&self) -> String {
        match self.pod().namespace.as_str() {
            HUGEPAGES if self.pod().name == RESERVED => {
                "processes that have them reserved, and the kernel does not say where".to_owned()
            }
            HUGEPAGES => format!("processes on {} without a promise", self.pod().name),
            _ => self.to_string(),
        }
    }

    /// Description of its CPUs for messages, where `grant` is its grant: `exclusive to default/db/main`. Of
    /// several names for the same CPUs, the more informative has the lower rank.
    pub fn in_words(&self, grant: &Grant) -> (u8, String) {
        let PodName { namespace, name, .. } = self.pod();
        let container =
            if self.name().is_empty() { String::new() } else { format!("/{}", printable(self.name())) };
        match namespace.as_str() {
            PARTITION if name == CgroupPath::root().as_str() => {
                (0, "of a partition without processes, or offline".to_owned())
            }
            PINNED => (0, format!("of the pinned cgroup {}", printable(name))),
            PARTITION => (0, format!("of the partition {}", printable(name))),
            SELF_PLACED => (0, format!("of {}, where processes set their own placement", printable(name))),
            CLAIMED => {
                let (rank, pod) = if name.contains('/') { (0, "pod") } else { (1, "the pod with uid") };
                let source = printable(&grant.reason);
                (rank, format!("exclusive to {pod} {}{container} by the kubelet ({source})", printable(name)))
            }
            RESOURCE_CLAIMS => (1, grant.reason.clone()),
            CLAIMING => {
                (0, format!("exclusive to container {}{container}: {}", printable(name), grant.reason))
            }
            GIVEN => (1, format!("exclusive to container {}{container}: {}", printable(name), grant.reason)),
            _ => (0, format!("exclusive to {self}")),
        }
    }
}
