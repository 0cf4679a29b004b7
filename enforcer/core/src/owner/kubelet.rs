//! What the kubelet's static managers gave away, as its state files and its podresources socket say.
//!
//! A state file names pods by uid and containers by name, the socket names pods by namespace and name; a
//! container may be in both. Both list a container only if it has CPUs or memory for itself: everybody else
//! shares what is left.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::KnownContainer;
use crate::set::{CpuSet, NodeSet};

/// A kubelet as it is seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubelet {
    /// Policy of the CPU manager; `None` where nothing says.
    pub cpu_policy: Option<String>,
    /// Policy of the memory manager, likewise.
    pub memory_policy: Option<String>,
    /// CPUs that nobody has for itself, of a static CPU manager.
    pub shared_cpus: Option<CpuSet>,
    /// What is given away.
    pub claims: Vec<Claim>,
    /// Why it is not known what the CPU manager does, where its state file is there and cannot be used.
    pub unread: Option<String>,
}

/// CPUs and memory of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Whose pod.
    pub pod: ClaimedPod,
    /// Which container; `None` for what the pod has as a whole.
    pub container: Option<String>,
    /// Exclusive CPUs; empty where it has none.
    pub cpus: CpuSet,
    /// Memory, where the memory manager gave it any.
    pub memory: Vec<MemoryBlock>,
    /// Devices near nodes: how many of each resource.
    pub devices: BTreeMap<String, usize>,
    /// File or socket that says so.
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
    /// Where; more than one node where none had all.
    pub nodes: NodeSet,
    /// How much.
    pub bytes: u64,
}

impl Kubelet {
    /// Name of the policy that hands out exclusive CPUs (`PolicyStatic` of the kubelet's cpumanager).
    pub const STATIC_CPUS: &str = "static";

    /// Does its CPU manager write the cpuset of every container?
    pub fn is_static(&self) -> bool {
        self.cpu_policy.as_deref() == Some(Self::STATIC_CPUS)
    }

    /// What files and sockets told before that tell nothing now still counts as given away.
    pub fn keep_untold(&mut self, before: Self) {
        let told: BTreeSet<String> = self.claims.iter().map(|claim| claim.source.clone()).collect();
        self.claims.extend(before.claims.into_iter().filter(|claim| !told.contains(&claim.source)));
    }

    /// What a pod has, all its containers together.
    pub(super) fn of_pod<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| matches!(&claim.pod, ClaimedPod::Uid(of) if of == uid))
    }

    /// What a container has. Of what the pod has as a whole each container is a part.
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
    /// Nodes of its memory.
    pub fn mems(&self) -> NodeSet {
        self.memory.iter().fold(NodeSet::new(), |nodes, block| nodes.union(&block.nodes))
    }
}
