//! What the kubelet's static managers gave away, as its state files and its podresources socket say.
//!
//! A state file names pods by uid and containers by name; the socket names pods by namespace and name. A
//! container may be in both. Both list only containers with CPUs or memory of their own; all other containers
//! share the rest.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::KnownContainer;
use numa_topology::set::{CpuSet, NodeSet};

/// State of a kubelet, read from its files and its podresources socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubelet {
    /// Policy of the CPU manager; `None` if unknown.
    pub cpu_policy: Option<String>,
    /// Policy of the memory manager; `None` if unknown.
    pub memory_policy: Option<String>,
    /// The shared pool of a static CPU manager: CPUs that no container has exclusively.
    pub shared_cpus: Option<CpuSet>,
    /// CPUs, memory and devices given to containers.
    pub claims: Vec<Claim>,
    /// Why the state file of the CPU manager cannot be used, if it exists and cannot.
    pub unread: Option<String>,
}

/// CPUs, memory and devices of one container or pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The pod.
    pub pod: ClaimedPod,
    /// The container; `None` for what the pod has as a whole.
    pub container: Option<String>,
    /// Exclusive CPUs; empty if it has none.
    pub cpus: CpuSet,
    /// Memory that the memory manager gave; empty if it gave none.
    pub memory: Vec<MemoryBlock>,
    /// Number of devices with a NUMA node, by resource.
    pub devices: BTreeMap<String, usize>,
    /// File or socket that this was read from.
    pub source: String,
}

/// How a pod is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClaimedPod {
    /// By its uid.
    Uid(String),
    /// By namespace and name.
    Named {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

impl Default for ClaimedPod {
    fn default() -> Self {
        Self::Uid(String::new())
    }
}

/// Memory of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBlock {
    /// `memory`, `hugepages-2Mi`.
    pub kind: String,
    /// NUMA nodes; more than one if no single node had enough.
    pub nodes: NodeSet,
    /// Size in bytes.
    pub bytes: u64,
}

impl Kubelet {
    /// Name of the policy that hands out exclusive CPUs (`PolicyStatic` of the kubelet's cpumanager).
    pub const STATIC_CPUS: &str = "static";

    /// Does the CPU manager write the cpuset of every container?
    pub fn is_static(&self) -> bool {
        self.cpu_policy.as_deref() == Some(Self::STATIC_CPUS)
    }

    /// Keeps the claims of the previous read for sources that could not be read this time.
    pub fn keep_untold(&mut self, before: Self) {
        let told: BTreeSet<String> = self.claims.iter().map(|claim| claim.source.clone()).collect();
        self.claims.extend(before.claims.into_iter().filter(|claim| !told.contains(&claim.source)));
    }

    /// Claims of a pod and of all its containers.
    pub(super) fn of_pod<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| matches!(&claim.pod, ClaimedPod::Uid(of) if of == uid))
    }

    /// Claims of a container. Each container is part of what its pod has as a whole.
    pub(super) fn of_container<'a>(&'a self, known: &'a KnownContainer) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(|claim| {
            let same_pod = match &claim.pod {
                ClaimedPod::Uid(uid) => *uid == known.pod_uid,
                ClaimedPod::Named { namespace, name } => (namespace, name) == (&known.namespace, &known.pod),
            };
            same_pod && claim.container.as_ref().is_none_or(|name| *name == known.container)
        })
    }
}

impl Claim {
    /// NUMA nodes of its memory.
    pub fn mems(&self) -> NodeSet {
        self.memory.iter().fold(NodeSet::new(), |nodes, block| nodes.union(&block.nodes))
    }
}
